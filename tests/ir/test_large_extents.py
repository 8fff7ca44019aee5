"""Extents beyond 32 bits: counts, offsets, indices and positions are of 64 bits in every kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
N = 2**31 + 5
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def marked() -> Array:
    """Zeros but for the first element and some beyond 2^31."""
    x = np.zeros(N, np.int8)
    x[[0, 2**31 - 1, 2**31, N - 1]] = (1, 2, 3, 4)
    return x


@pytest.fixture(autouse=True)
def trimmed() -> Any:
    yield
    pb.trim()


WHOLE: dict[str, tuple[Callable[[Array], Any], Any]] = {
    "sum": (lambda x: np.sum(x), 10),
    "sum of floats": (lambda x: np.sum(x * np.float64(0.5)), 5.0),
    "mean": (lambda x: np.mean(x), 10 / N),
    "position of the largest": (lambda x: np.argmax(x), N - 1),
    "position of the least": (lambda x: np.argmin(x), 1),
    "count": (lambda x: np.sum(x == 0), N - 4),
    "last sum": (lambda x: np.max(np.cumsum(x)), 10),
    "first sum": (lambda x: np.max(np.cumsum(x[::-1])), 10),
    "backwards": (lambda x: np.argmax(x[::-1] == 1), N - 1),
    "every third": (lambda x: np.sum(x[::3]), 1 + 2 * ((2**31 - 1) % 3 == 0) + 3 * (2**31 % 3 == 0) + 4 * ((N - 1) % 3 == 0)),
    "neighbours": (lambda x: np.sum(np.abs(x[1:] - x[:-1])), 1 + 2 + 1 + 3 + 4),
    "rows": (lambda x: np.argmax(np.max(x.reshape(-1, 1), axis=1)), N - 1),
    "columns": (lambda x: np.argmax(np.max(x.reshape(1, -1), axis=0)), N - 1),
    "last of them": (lambda x: x[-1] + 10 * x[2**31] + 0 * x[5], 34),
    "part": (lambda x: np.sum(x[2**31 :]), 7),
    "joined": (lambda x: np.argmax(np.concatenate([x[1:], x[:1]]) == 1), N - 1),
    "rolled": (lambda x: np.argmax(np.roll(x, 3)), 2),
}


@pytest.mark.parametrize("name", WHOLE)
def test_reductions(marked: Array, name: str) -> None:
    function, expected = WHOLE[name]
    assert pb.jit(function)(marked) == expected


def test_maps(marked: Array) -> None:
    result = pb.jit(lambda x: 2 * x + 1)(marked)
    assert result.shape == (N,)
    np.testing.assert_array_equal(result[[0, 1, 2**31 - 1, 2**31, 2**31 + 1, N - 1]], [3, 1, 5, 7, 1, 9])
    assert np.count_nonzero(result == 1) == N - 4


def test_lookups(marked: Array) -> None:
    at = np.array([0, 2**31, N - 1, -1, -N, 2**31 - 1 - N])
    np.testing.assert_array_equal(pb.jit(lambda x, at: x[at] * 2)(marked, at), 2 * marked[at])
    with pytest.raises(IndexError):
        pb.jit(lambda x, at: x[at])(marked, np.array([N]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_repeated_operands(dtype: Any) -> None:
    """A broadcast array of more elements than memory holds; its sums are exact."""
    x = np.broadcast_to(dtype(0.5), (N,))
    value, slope = pb.value_and_grad(lambda s, x: np.sum(s * x))(dtype(2.0), x)
    assert (value, slope) == (dtype(N), dtype(N / 2))
    assert pb.jit(lambda x: np.dot(x, x))(x) == dtype(N / 4)
    grid = np.broadcast_to(np.array([1, -1, 2], dtype), (N // 3, 3))
    np.testing.assert_array_equal(pb.jit(lambda x: np.sum(x, axis=0))(grid), np.array([1, -1, 2], dtype) * dtype(N // 3))
    wide = np.broadcast_to(np.array([[1], [2]], dtype), (2, N))
    np.testing.assert_array_equal(pb.jit(lambda x: np.sum(x, axis=1))(wide), np.array([N, 2 * N], dtype))


def test_gradients_by_all_elements() -> None:
    x = np.broadcast_to(np.float16(1.0), (N,))
    at = np.array([N - 1, 2**31, 3, -1])
    result = pb.grad(lambda x: np.sum(x[at]))(x)
    np.testing.assert_array_equal(result[[0, 3, 2**31, N - 1]], [0, 1, 1, 2])
    assert np.count_nonzero(result) == 3


def test_pairs() -> None:
    """More pairs than 32 bits count, of one set and between two."""
    x = np.arange(65537.0) % 2
    ones, zeros = 32768, 32769
    count = pb.jit(lambda x: np.sum(np.abs(x[:, None] - x[None, :]) < 0.5))
    assert count(x) == ones**2 + zeros**2
    total, slope = pb.value_and_grad(lambda x, y: np.sum((x[:, None] - y[None, :]) ** 2))(x, x)
    assert total == 2 * ones * zeros
    np.testing.assert_array_equal(slope, 2 * (len(x) * x - ones))


def test_products_of_more_terms_than_the_library_counts() -> None:
    x = np.ones(N, np.float32)
    x[-4:] = 1000.0
    result = pb.jit(lambda x: x.reshape(1, -1) @ x.reshape(-1, 1))(x)
    np.testing.assert_allclose(result, [[N - 4 + 4e6]], rtol=1e-6)
