"""A scalar recurrence and its gradient under Numba."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

Array = Any
Call = Callable[[], Any]


@njit(cache=True)
def recurrence(a: float, u: Array) -> float:
    h = 0.0
    for t in range(len(u)):
        h = h + a * (u[t] - h * h * h)
    return h


@njit(cache=True)
def recurrence_grad(a: float, u: Array, values: Array, du: Array) -> Any:
    h = da = 0.0
    for t in range(len(u)):
        values[t] = h
        h = h + a * (u[t] - h * h * h)
    ct = 1.0
    for t in range(len(u) - 1, -1, -1):
        before = values[t]
        da += ct * (u[t] - before * before * before)
        du[t] = ct * a
        ct = ct * (1.0 - 3.0 * a * before * before)
    return h, da


def make_fwd(a: Array, u: Array) -> Call:
    return lambda: recurrence(float(a), u)


def make_grad(a: Array, u: Array) -> Call:
    values, du = np.empty_like(u), np.empty_like(u)

    def call() -> Any:
        value, da = recurrence_grad(float(a), u, values, du)
        return value, (da, du)

    return call


LOOPS: dict[tuple[str, str], Callable[..., Call]] = {("recurrence", "fwd"): make_fwd, ("recurrence", "grad"): make_grad}
