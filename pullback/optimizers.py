"""Optimisers of functions of containers, with the names and signatures of ``autograd.misc.optimizers``.

``grad(x, i)`` returns the gradient at ``x`` in iteration ``i``, as a tree like ``x``; ``callback(x, i, g)`` is called before
each step. They are plain NumPy, so that a transformed function may contain one, and be differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pullback.tree import ravel

__all__ = ["adam", "rmsprop", "sgd"]

T = TypeVar("T")
Gradient = Callable[[Any, int], Any]
Callback = Callable[[Any, int, Any], Any] | None


def _of_trees(optimise: Callable[..., Any]) -> Callable[..., Any]:
    """Turn an optimiser of vectors into one of trees."""

    @functools.wraps(optimise)
    def call(grad: Gradient, x0: Any, callback: Callback = None, *args: Any, **kwargs: Any) -> Any:
        start, unravel = ravel(x0)

        def slope(x: Any, i: int) -> Any:
            return ravel(grad(unravel(x), i))[0]

        def report(x: Any, i: int, g: Any) -> None:
            if callback is not None:
                callback(unravel(x), i, unravel(g))

        return unravel(optimise(slope, start, report, *args, **kwargs))

    return call


@_of_trees
def sgd(grad: Gradient, x0: T, callback: Callback = None, num_iters: int = 200, step_size: float = 0.1, mass: float = 0.9) -> T:
    """Gradient descent with momentum ``mass`` (Polyak, 1964); returns the value of ``x`` after ``num_iters`` steps from
    ``x0``."""
    x: Any = x0
    velocity = np.zeros_like(x)
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)  # type: ignore[misc]
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@_of_trees
def rmsprop(
    grad: Gradient, x0: T, callback: Callback = None, num_iters: int = 100, step_size: float = 0.1, gamma: float = 0.9,
    eps: float = 1e-8,
) -> T:  # fmt: skip
    """RMSProp: steps divided by a running root mean square of the gradient, which starts at 1 (Tieleman and Hinton, 2012)."""
    x: Any = x0
    squares = np.ones_like(x)
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)  # type: ignore[misc]
        squares = squares * gamma + g**2 * (1 - gamma)
        x = x - step_size * g / (np.sqrt(squares) + eps)
    return x


@_of_trees
def adam(
    grad: Gradient, x0: T, callback: Callback = None, num_iters: int = 100, step_size: float = 0.001, b1: float = 0.9,
    b2: float = 0.999, eps: float = 1e-8,
) -> T:  # fmt: skip
    """Adam (Kingma and Ba, 2014), with decays ``b1`` and ``b2`` of the two moments."""
    x: Any = x0
    first, second = np.zeros_like(x), np.zeros_like(x)
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)  # type: ignore[misc]
        first = (1 - b1) * g + b1 * first
        second = (1 - b2) * g**2 + b2 * second
        mean, square = first / (1 - b1 ** (i + 1)), second / (1 - b2 ** (i + 1))
        x = x - step_size * mean / (np.sqrt(square) + eps)
    return x
