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
    """Return ``x`` after steps of gradient descent with momentum (Polyak, 1964).

    Parameters
    ----------
    grad : callable
        ``grad(x, i)`` returns the gradient at ``x`` in iteration ``i``, as a tree like ``x``.
    x0 : array, number or container of them
        The start.
    callback : callable, optional
        ``callback(x, i, g)`` is called before each step.
    num_iters : int, optional
        The number of steps.
    step_size : float, optional
        The step size.
    mass : float, optional
        The momentum.

    Returns
    -------
    array, number or container of them
        The value of ``x`` after the last step, like ``x0``.

    See Also
    --------
    adam : Steps scaled by running moments.

    Examples
    --------
    >>> slope = pb.grad(lambda x: np.sum((x - 3) ** 2))
    >>> pb.optimizers.sgd(lambda x, i: slope(x), np.zeros(2), num_iters=300, step_size=0.1).round(3)
    array([3., 3.])
    """
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
    """Return ``x`` after steps of RMSProp: the gradient over a running root mean square of it (Tieleman and Hinton, 2012).

    Parameters
    ----------
    grad : callable
        ``grad(x, i)`` returns the gradient at ``x`` in iteration ``i``, as a tree like ``x``.
    x0 : array, number or container of them
        The start.
    callback : callable, optional
        ``callback(x, i, g)`` is called before each step.
    num_iters : int, optional
        The number of steps.
    step_size : float, optional
        The step size.
    gamma : float, optional
        The decay of the mean square, which starts at 1.
    eps : float, optional
        The number added to the root mean square.

    Returns
    -------
    array, number or container of them
        The value of ``x`` after the last step, like ``x0``.

    See Also
    --------
    adam : With a running mean of the gradient.

    Examples
    --------
    >>> slope = pb.grad(lambda x: np.sum((x - 3) ** 2))
    >>> pb.optimizers.rmsprop(lambda x, i: slope(x), np.zeros(2), num_iters=1000, step_size=0.01).round(1)
    array([3., 3.])
    """
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
    """Return ``x`` after steps of Adam (Kingma and Ba, 2014).

    Parameters
    ----------
    grad : callable
        ``grad(x, i)`` returns the gradient at ``x`` in iteration ``i``, as a tree like ``x``.
    x0 : array, number or container of them
        The start.
    callback : callable, optional
        ``callback(x, i, g)`` is called before each step.
    num_iters : int, optional
        The number of steps.
    step_size : float, optional
        The step size.
    b1, b2 : float, optional
        The decays of the two moments.
    eps : float, optional
        The number added to the root of the second moment.

    Returns
    -------
    array, number or container of them
        The value of ``x`` after the last step, like ``x0``.

    See Also
    --------
    sgd : Gradient descent with momentum.
    rmsprop : Steps divided by a running root mean square.

    Examples
    --------
    >>> slope = pb.grad(lambda x: np.sum((x - 3) ** 2))
    >>> pb.optimizers.adam(lambda x, i: slope(x), np.zeros(2), num_iters=500, step_size=0.1).round(3)
    array([3., 3.])
    """
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
