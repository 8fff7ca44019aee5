"""The branch of a ``where`` that is not taken, at orders 1 and 2: its derivative is left out, never multiplied by zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

W = np.array([[1.0, 2.0], [3.0, 4.0]])

DEAD: dict[str, Callable[[Any], Any]] = {
    "elementwise": lambda x: np.arccos(np.log(x)).sum() ** 0.5,
    "matmul": lambda x: (W @ np.log(x))[0],
    "gather": lambda x: np.log(x)[np.array([0, 0, 1])].sum(),
    "take of a traced index": lambda x: np.log(x)[np.argmin(x)],
    "slice": lambda x: np.log(x)[1:].sum(),
    "scatter": lambda x: np.array([np.log(x[0]), x[1], 1 / x[0]]).sum(),
    "prod": lambda x: np.prod(1 / x),
    "max": lambda x: np.max(np.log(x)),
    "cumsum": lambda x: np.cumsum(np.log(x))[-1],
    "cumprod": lambda x: np.cumprod(1 / x)[-1],
    "sort": lambda x: np.sort(np.log(x))[0],
    "inverse": lambda x: np.linalg.inv(np.diag(np.log(x)) + W)[0, 0],
    "solve": lambda x: np.linalg.solve(np.diag(x) + 1e-300, x)[0],
    "log-determinant": lambda x: np.linalg.slogdet(np.diag(x))[1],
    "eigenvectors": lambda x: np.linalg.eigh(np.outer(x, x) * 0 + np.eye(2))[1][0, 1],
    "Fourier transform": lambda x: np.abs(np.fft.fft(np.log(x)))[0],
    "convolution": lambda x: np.convolve(np.log(x), x)[0],
    "interpolation": lambda x: np.interp(np.log(x[0]), x, x),
    "another where": lambda x: np.where(x[1] > 2, np.log(x[0]), np.sqrt(x[0])),
}


@pytest.mark.parametrize("name", DEAD)
def test_a_dead_branch_gives_nothing(name: str) -> None:
    """A dead branch adds nothing to a gradient alone, in a batch with a live row, and at second order in both modes."""

    def f(x: Any) -> Any:
        return np.where(x[0] > 0, DEAD[name](x), x[1] ** 2)

    x = np.array([0.0, 1.0])
    first, second, forward = pb.jit(lambda x: (pb.grad(f)(x), pb.hessian(f)(x), pb.jvp(f, (x,), (np.ones(2),))[1]))(x)
    np.testing.assert_array_equal(first, [0, 2])
    np.testing.assert_array_equal(second, [[0, 0], [0, 2]])
    np.testing.assert_array_equal(forward, 2)
    batched = pb.grad(lambda rows: np.sum(pb.vmap(f)(rows)))(np.stack([x, x + 1.5]))
    np.testing.assert_array_equal(batched[0], [0, 2])


def test_dead_rows_of_a_product_spare_the_other_operand() -> None:
    data = np.array([[0.0, 1.0], [2.0, 3.0]])
    alive = np.array([[False], [True]])

    def f(w: Any) -> Any:
        return np.sum(np.where(alive, np.log(data) @ w, 0.0) ** 2)

    w = np.array([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7]])
    live = np.log(data[1:])
    np.testing.assert_allclose(pb.grad(f)(w), 2 * live.T @ (live @ w), rtol=1e-14)
    missing = np.array([[np.nan, 1.0], [2.0, 3.0]])
    result = pb.grad(lambda w: np.sum(np.where(~np.isnan(missing).any(axis=1)[:, None], missing @ w, 0.0) ** 2))(w)
    np.testing.assert_allclose(result, 2 * missing[1:].T @ (missing[1:] @ w), rtol=1e-14)


def test_what_cannot_be_infinite_is_not_selected() -> None:
    """A perceptron whose rectifier is a ``where`` pays nothing for the policy."""

    def loss(w1: Any, w2: Any, x: Any) -> Any:
        h = x @ w1
        h = np.where(h > 0, h, 0.0) @ w2
        return np.sum(np.where(h > 0, h, 0.0) ** 2)

    text = str(pb.jit(pb.grad(loss, argnums=(0, 1))).stages(np.ones((3, 4)), np.ones((4, 2)), np.ones((5, 3)))["simplify"])
    assert " any " not in text
    assert text.count(" select ") == 4


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.sqrt(np.where(x > 0, x, 0.0)).sum(),
        lambda x: np.sqrt(np.abs(np.where(x > 0, x, 0.0))).sum(),
        lambda x: np.sqrt(np.where(x > 0, np.where(x > 1, x, 2.0), 0.0)).sum(),
        lambda x: np.log(np.concatenate([np.where(x > 0, x, 0.0)[::-1], np.zeros(2)]).reshape(2, 2).T)[0].sum(),
        lambda x: np.sqrt(np.sum(np.where(x > 9, x, 0.0))) + np.sqrt(x[1]),
    ],
)
def test_a_constant_branch_has_no_tangent(f: Callable[[Any], Any]) -> None:
    x, direction = np.array([0.0, 4.0]), np.array([3.0, 2.0])
    forward = pb.jvp(f, (x,), (direction,))[1]
    np.testing.assert_allclose(forward, pb.grad(f)(x) @ direction)
    assert forward > 0


def test_many_branches_in_a_row_before_a_product() -> None:
    w = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])

    def f(x: Any) -> Any:
        for _ in range(60):
            x = np.where(x > 0, x / 2, np.tanh(x))
        return np.sum(x @ w)

    x = np.ones((4, 3))
    np.testing.assert_allclose(pb.grad(f)(x), 0.5**60 * np.tile(w.sum(axis=1), (4, 1)))
