"""Gradients of orders 1 to 3 of a page of functions: order k against differences of our order k - 1."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any


def difference(f: Callable[..., Any], x: Any, h: float = 1e-6) -> Any:
    """Central differences of a scalar function."""
    x = np.asarray(x, np.float64)
    out = np.zeros_like(x)
    for k in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[k] = h
        out[k] = (f(x + step) - f(x - step)) / (2 * h)
    return out


PAGE: dict[str, Callable[..., Any]] = {
    "polynomial": lambda x: np.sum(3 * x**4 - 2 * x**3 + x - 5),
    "trigonometric": lambda x: np.sum(np.sin(x) * np.cos(2 * x) + np.tan(x / 2)),
    "exponential": lambda x: np.sum(np.exp(-(x**2)) + np.expm1(x) * np.log1p(x)),
    "hyperbolic": lambda x: np.sum(np.tanh(x) * np.cosh(x) + np.arcsinh(x)),
    "inverse": lambda x: np.sum(np.arctan(x) + np.arcsin(x / 4) * np.sqrt(x)),
    "quotient": lambda x: np.sum(x / (1 + x**2)),
    "power": lambda x: np.sum(x**2.5 + 1.7**x + x**x),
    "log_sum_exp": lambda x: np.log(np.sum(np.exp(x - np.max(x)))) + np.max(x),
    "softmax": lambda x: np.sum((np.exp(x) / np.sum(np.exp(x))) ** 2),
    "logistic": lambda x: np.mean(np.logaddexp(0, x * np.arange(1.0, len(x) + 1)) - x),
    "variance": lambda x: np.var(x) * np.sum(x) + np.std(x),
    "norm": lambda x: np.sqrt(np.sum(x**2)),
    "product": lambda x: np.prod(x) + np.prod(x[:2]),
    "quadratic": lambda x: (x @ np.outer(np.arange(1.0, len(x) + 1), np.arange(len(x)) - 1.0)) @ x * np.sum(x),
    "indexing": lambda x: x[0] * x[-1] ** 3 + np.sum(x[1:] * x[:-1] ** 2) + x[[0, 0, 1]].sum() * x[1],
    "select": lambda x: np.sum(np.where(x > 0.7, np.log(x), x**3)),
    "reshape": lambda x: np.sum(np.concatenate([x, x[::-1] ** 2]).reshape(2, -1) ** 2 @ np.ones(len(x))),
    "rosenbrock": lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2),
    "cumulative": lambda x: np.sum(np.cumsum(x) ** 3),
    "outer": lambda x: np.sum(np.sin(x[:, None] * x[None, :])),
}


@pytest.mark.parametrize("name", PAGE)
def test_orders_one_to_three(name: str) -> None:
    """Order k against differences of our order k - 1, in random directions."""
    rng = np.random.default_rng(len(name))
    x = rng.uniform(0.2, 1.3, 4)
    f: Callable[..., Any] = PAGE[name]
    np.testing.assert_allclose(pb.jit(f)(x), f(x), rtol=1e-13)
    for order in (1, 2, 3):
        gradient = pb.grad(f)
        got, wanted = gradient(x), difference(pb.jit(f) if order > 1 else f, x)
        size = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6 * size, err_msg=f"order {order}")
        direction = rng.normal(size=x.shape)
        f = functools.partial(_directional, gradient, direction)


def _directional(gradient: Callable[..., Any], direction: Array, x: Array) -> Array:
    return np.sum(gradient(x) * direction)


def test_a_deep_chain() -> None:
    def f(x: Array) -> Array:
        for _ in range(2000):
            x = x * 1.0005
        return x

    np.testing.assert_allclose(pb.grad(f)(2.0), 1.0005**2000, rtol=1e-11)
