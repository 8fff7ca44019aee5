"""The functions that docs/control-flow.md and docs/architecture.md show as instructions and as programs."""

import numpy as np

import pullback as pb


def halvings(x):  # type: ignore[no-untyped-def]
    """How often a number is halved until it is below one."""
    return pb.while_loop(lambda s: s[0] >= 1.0, lambda s: (s[0] / 2, s[1] + 1), (x, 0))[1]


def reversing(h, xs):  # type: ignore[no-untyped-def]
    """A loop whose step reads the carry in reverse order, so not in place: the last carry, and the carry of each iteration."""

    def step(h, x):  # type: ignore[no-untyped-def]
        h = np.tanh(h[::-1] + x)
        return h, h

    return pb.scan(step, h, xs)
