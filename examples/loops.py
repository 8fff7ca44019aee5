"""The function that docs/control-flow.md shows as an instruction."""

import pullback as pb


def halvings(x):  # type: ignore[no-untyped-def]
    """How often a number is halved until it is below one."""
    return pb.while_loop(lambda s: s[0] >= 1.0, lambda s: (s[0] / 2, s[1] + 1), (x, 0))[1]
