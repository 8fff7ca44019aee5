"""The functions that docs/control-flow.md and docs/architecture.md show as instructions and as programs."""

import numpy as np

import pullback as pb


def halvings(x):  # type: ignore[no-untyped-def]
    """How often a number is halved until it is below one."""
    return pb.while_loop(lambda s: s[0] >= 1.0, lambda s: (s[0] / 2, s[1] + 1), (x, 0))[1]


def recurrent(w, h, xs):  # type: ignore[no-untyped-def]
    """A recurrent layer: the last state, and each state on the way."""

    def step(h, x):  # type: ignore[no-untyped-def]
        h = np.tanh(w @ h + x)
        return h, h

    return pb.scan(step, h, xs)
