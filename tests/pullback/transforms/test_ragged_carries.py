"""Loops whose carry becomes longer or shorter: a buffer and a number of rows, with the values and gradients of a Python loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def append_compiled(x: Any) -> Any:
    return pb.fori_loop(0, 4, lambda i, y: np.append(y, y[-1] * 0.5 + i), x)


def append_python(x: Any) -> Any:
    y = x
    for i in range(4):
        y = np.append(y, y[-1] * 0.5 + i)
    return y


def filter_compiled(x: Any) -> Any:
    return pb.fori_loop(0, 4, lambda i, y: y[y > -0.5 * i] * 1.1, x)


def filter_python(x: Any) -> Any:
    y = x
    for i in range(4):
        y = y[y > -0.5 * i] * 1.1
    return y


def pairs_compiled(x: Any) -> Any:
    return pb.while_loop(lambda y: len(y) > 1, lambda y: y[1:] + y[:-1], x)


def pairs_python(x: Any) -> Any:
    y = x
    while len(y) > 1:
        y = y[1:] + y[:-1]
    return y


def stack_compiled(x: Any) -> Any:
    def step(y: Any, v: Any) -> Any:
        return np.concatenate([y[y > v], np.array([v, 2 * v])]), np.sum(y)

    y, sums = pb.scan(step, np.zeros(0), x)
    return np.concatenate([y, sums])


def stack_python(x: Any) -> Any:
    y, sums = np.zeros(0), []
    for v in x:
        sums.append(np.sum(y))
        y = np.concatenate([y[y > v], np.array([v, 2 * v])])
    return np.concatenate([y, sums])


def rows_compiled(x: Any) -> Any:
    return pb.fori_loop(0, 3, lambda i, y: np.vstack([y, np.stack([x[i], x[i] ** 2])]), np.zeros((0, 2)))


def rows_python(x: Any) -> Any:
    y = np.zeros((0, 2))
    for i in range(3):
        y = np.vstack([y, [x[i], x[i] ** 2]])
    return y


def columns_compiled(x: Any) -> Any:
    column = lambda i: np.stack([x[i], x[i] ** 2])[:, None]  # noqa: E731
    return pb.fori_loop(0, 3, lambda i, y: np.hstack([y, column(i)]), np.zeros((2, 0)))


def columns_python(x: Any) -> Any:
    y = np.zeros((2, 0))
    for i in range(3):
        y = np.hstack([y, [[x[i]], [x[i] ** 2]]])
    return y


def removed_compiled(x: Any) -> Any:
    return pb.fori_loop(0, 2, lambda i, y: y[:, 1:] * 2.0, x[:4] * np.ones((3, 1)))


def removed_python(x: Any) -> Any:
    return x[2:4] * np.full((3, 1), 4.0)


def counted_compiled(x: Any) -> Any:
    n = np.sum(x > 0)
    return pb.fori_loop(0, n, lambda i, y: np.append(y, x[i] * y[0]), x[:1])


def counted_python(x: Any) -> Any:
    y = x[:1]
    for i in range(np.sum(x > 0)):
        y = np.append(y, x[i] * y[0])
    return y


LOOPS = [
    (append_compiled, append_python), (filter_compiled, filter_python), (pairs_compiled, pairs_python),
    (stack_compiled, stack_python), (rows_compiled, rows_python), (counted_compiled, counted_python),
    (columns_compiled, columns_python), (removed_compiled, removed_python),
]  # fmt: skip


@pytest.mark.parametrize(("compiled", "plain"), LOOPS, ids=lambda f: f.__name__)
def test_loops_with_other_lengths_give_what_python_gives(compiled: Callable[..., Any], plain: Callable[..., Any]) -> None:
    jitted = pb.jit(compiled)
    gradient = pb.jit(pb.grad(lambda x: np.sum(np.sin(compiled(x)))))
    rng = np.random.default_rng(5)
    for n in (5, 9):
        x = rng.normal(size=n)
        expected = plain(x)
        np.testing.assert_allclose(jitted(x), expected, rtol=1e-12)
        assert jitted(x).shape == expected.shape
        steps = np.eye(n) * 1e-6
        differences = [(np.sum(np.sin(plain(x + h))) - np.sum(np.sin(plain(x - h)))) / 2e-6 for h in steps]
        np.testing.assert_allclose(gradient(x), differences, rtol=1e-6, atol=1e-8)


def test_a_carry_without_a_bound_is_refused() -> None:
    with pytest.raises(pb.TraceError, match="at most a fixed number of rows"):
        pb.jit(lambda x: pb.fori_loop(0, 3, lambda i, y: np.concatenate([y, y]), x))(np.ones(3))
    with pytest.raises(pb.TraceError, match="at most a fixed number of rows"):
        pb.jit(lambda x: pb.while_loop(lambda y: np.sum(y) < 9, lambda y: np.append(y, 1.0), x))(np.ones(3))
    with pytest.raises(pb.TraceError, match="a carry keeps its shape"):
        pb.jit(lambda x: pb.fori_loop(0, 2, lambda i, y: y[:-1, :-1], x))(np.ones((3, 4)))
