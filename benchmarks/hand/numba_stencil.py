"""The heat equation under Numba: rows in parallel, two arrays in turn; the gradient takes the same steps back."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, prange

Array = Any
Call = Callable[[], Any]
STEPS = 100


@njit(parallel=True, fastmath=True, cache=True)
def spread(u: Array, out: Array) -> None:
    rate, rest = u.dtype.type(0.2), u.dtype.type(1.0 - 0.8)
    for i in prange(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            out[i, j] = rest * u[i, j] + rate * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])


@njit(fastmath=True, cache=True)
def run(u: Array, one: Array, two: Array) -> Array:
    one[:] = u
    two[:] = u
    for _ in range(STEPS // 2):
        spread(one, two)
        spread(two, one)
    return one


@njit(fastmath=True, cache=True)
def run_back(d: Array, one: Array, two: Array) -> None:
    """The cotangent of the start, from that of the end; both in d. The border only gives."""
    n, m = d.shape
    rate = d.dtype.type(0.2)
    one[:] = d
    for edge in (0, n - 1):
        one[edge] = 0
    for edge in (0, m - 1):
        one[:, edge] = 0
    two[:] = 0
    for _ in range(STEPS // 2):
        for _ in range(2):
            d[0, 1:-1] += rate * one[1, 1:-1]
            d[n - 1, 1:-1] += rate * one[n - 2, 1:-1]
            for i in range(1, n - 1):
                d[i, 0] += rate * one[i, 1]
                d[i, m - 1] += rate * one[i, m - 2]
            spread(one, two)
            one, two = two, one
    d[1:-1, 1:-1] = one[1:-1, 1:-1]


def make_fwd(u: Array) -> Call:
    one, two = np.empty_like(u), np.empty_like(u)

    def call() -> Any:
        end = run(u, one, two)
        return np.dot(end.ravel(), end.ravel()) / u.dtype.type(u.size)

    return call


def make_grad(u: Array) -> Call:
    one, two, d = np.empty_like(u), np.empty_like(u), np.empty_like(u)
    weight = u.dtype.type(2.0 / u.size)

    def call() -> Any:
        end = run(u, one, two)
        value = np.dot(end.ravel(), end.ravel()) / u.dtype.type(u.size)
        np.multiply(end, weight, out=d)
        run_back(d, one, two)
        return value, (d,)

    return call


LOOPS: dict[tuple[str, str], Callable[..., Call]] = {("heat", "fwd"): make_fwd, ("heat", "grad"): make_grad}
