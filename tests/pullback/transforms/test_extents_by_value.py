"""Transforms of functions whose values decide lengths: both modes, second order, maps, loops, branches and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def sorted_squares(x: Any) -> Any:
    return np.sum(np.sort(x[x > 0]) ** 2)


def parts(x: Any) -> Any:
    n = np.sum(x > 0)
    return np.sum(x[:n] ** 2) + np.sum(np.sin(x[n:]))


def pairs(x: Any) -> Any:
    y = x[x > 0.2]
    return np.sum(np.exp(-((y[:, None] - y[None, :]) ** 2)))


def products(x: Any) -> Any:
    y = x[x > 0]
    a = np.outer(y, y) + np.eye(len(y))
    return np.sum(a @ a @ y)


def inverse(x: Any) -> Any:
    y = x[x > 0]
    a = np.outer(y, y) + 5 * np.eye(len(y))
    return np.sum(np.linalg.solve(a, y)) + np.sum(np.linalg.eigvalsh(a) ** 2)


def written(x: Any) -> Any:
    z, n = x * 2.0, np.sum(x > 0)
    z[:n] = z[:n] ** 2
    z[n:] *= 3
    z[z > 1] = np.sort(z[z > 1])
    return np.sum(z**2 * np.arange(len(x)))


def checkpointed(x: Any) -> Any:
    return np.sum(pb.checkpoint(lambda x: np.sort(np.exp(x[x > 0])))(x) ** 2)


def in_a_loop(x: Any) -> Any:
    def body(i: Any, total: Any) -> Any:
        y = np.sort(x[x > i * 0.1])
        return total + np.sum(y[1:] * y[:-1])

    return pb.fori_loop(0, 4, body, 0.0)


def carried(x: Any) -> Any:
    y = x[x > 0]
    return np.sum(pb.fori_loop(0, 3, lambda i, z: np.sin(z) * 2 + y, y) ** 2)


def chosen(x: Any) -> Any:
    return np.sum(pb.cond(np.sum(x) > 0, lambda y: y * y, lambda y: np.sin(y), x[x > -0.5]))


FUNCTIONS = [sorted_squares, parts, pairs, products, inverse, written, checkpointed, in_a_loop, carried, chosen]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives_of_both_orders(function: Callable[..., Any]) -> None:
    value = pb.jit(function)
    gradient = pb.jit(pb.grad(function))
    forward = pb.jit(lambda x, t: pb.jvp(function, (x,), (t,)))
    product = pb.jit(lambda x, t: pb.jvp(pb.grad(function), (x,), (t,))[1])
    rng = np.random.default_rng(3)
    for n in (7, 12):
        x, t = rng.normal(size=n), rng.normal(size=n)
        h = 1e-5
        slope = (value(x + h * t) - value(x - h * t)) / (2 * h)
        np.testing.assert_allclose(gradient(x) @ t, slope, rtol=1e-6, atol=1e-6)
        primal, tangent = forward(x, t)
        np.testing.assert_allclose(primal, value(x), rtol=1e-12)
        np.testing.assert_allclose(tangent, slope, rtol=1e-6, atol=1e-6)
        second = (gradient(x + h * t) - gradient(x - h * t)) / (2 * h)
        np.testing.assert_allclose(product(x, t), second, rtol=1e-5, atol=1e-4)


def test_a_length_that_differs_from_row_to_row_is_refused() -> None:
    rows, mask = np.random.default_rng(0).normal(size=(4, 6)), np.arange(6) % 2 == 0
    with pytest.raises(pb.TraceError, match="may differ from row to row"):
        pb.jit(pb.vmap(lambda x: x[x > 0]))(rows)
    np.testing.assert_allclose(pb.jit(pb.vmap(lambda x: np.sum(x[x > 0])))(rows), [np.sum(x[x > 0]) for x in rows])
    same = pb.jit(lambda rows, m: pb.vmap(lambda x: np.sort(x[m]) * 2)(rows))
    np.testing.assert_allclose(same(rows, mask), [np.sort(x[mask]) * 2 for x in rows])


def test_extents_of_derived_lengths_have_names_of_their_own() -> None:
    """A length is defined once for the values and once for the tangents; lengths computed from it are others."""

    def lengths(x: Any) -> Any:
        y = x[x > 0]
        return np.concatenate([y, y, np.ones(1)]), np.append(y, 2.0)

    x = np.array([1.0, -1.0, 3.0])
    (both, one), (d_both, d_one) = pb.jit(lambda x: pb.jvp(lengths, (x,), (x,)))(x)
    np.testing.assert_array_equal(both, [1, 3, 1, 3, 1])
    np.testing.assert_array_equal(one, [1, 3, 2])
    np.testing.assert_array_equal(d_both, [1, 3, 1, 3, 0])
    np.testing.assert_array_equal(d_one, [1, 3, 0])


def test_parts_are_changed_in_place_by_arrays_of_fixed_length() -> None:
    def windows(x: Any, h: Any) -> Any:
        y, z = np.zeros(len(x) + len(h) - 1), np.ones((len(x) + len(h), 2))
        for i in range(len(x)):
            y[i : i + len(h)] += x[i] * h
            z[i : i + len(h)] *= 1 + 0.01 * h[:, None]
        return y, z

    def beyond(y: Any, x: Any, h: Any) -> Any:
        for i in range(len(x)):
            y[i : i + len(h)] += x[i] * h
        return y

    x, h = np.random.default_rng(0).normal(size=(2, 300))
    compiled = pb.jit(windows)
    for result, expected in zip(compiled(x, h[:10]), windows(x, h[:10]), strict=True):
        assert np.array_equal(result, expected)
    assert "rolled: 300 iterations" in str(compiled.explain(x, h[:10]))
    y = np.zeros(300)
    with pytest.raises(ValueError, match="could not be broadcast"):
        pb.jit(beyond)(y, x, h[:10])
    assert not y.any()
