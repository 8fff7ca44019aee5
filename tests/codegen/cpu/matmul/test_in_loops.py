"""Matrix products in loops: of one row, one column or one term, of none, and of more, each way that operands are stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
SIZES = [*itertools.product((0, 1, 5), repeat=3), (1, 8, 9), (8, 1, 9), (9, 8, 1), (1, 130, 37), (3, 4, 2)]
STORED: dict[str, Callable[[Array, Array], Array]] = {
    "as they are": lambda a, b: a @ b,
    "left transposed": lambda a, b: np.swapaxes(a, -1, -2) @ b,
    "right transposed": lambda a, b: a @ np.swapaxes(b, -1, -2),
    "both transposed": lambda a, b: np.swapaxes(a, -1, -2) @ np.swapaxes(b, -1, -2),
}


def operands(way: str, sizes: tuple[int, int, int], dtype: Any, *batch: int) -> tuple[Array, Array]:
    rows, terms, columns = sizes
    left = (terms, rows) if way in ("left transposed", "both transposed") else (rows, terms)
    right = (columns, terms) if way in ("right transposed", "both transposed") else (terms, columns)
    rng = np.random.default_rng(rows + 7 * terms + 31 * columns)
    return rng.normal(size=(*batch, *left)).astype(dtype), rng.normal(size=(*batch, *right)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("way", STORED)
def test_products(way: str, dtype: Any) -> None:
    multiply = STORED[way]

    @pb.jit
    def products(a: Array, b: Array) -> Array:
        return pb.scan(lambda k, x: (k + 1, multiply(x, b) * k), 1.0, a)[1]

    for sizes in SIZES:
        a, b = operands(way, sizes, dtype)
        result = products(np.stack([a, -a]), b)
        expected = np.stack([multiply(a, b), -2 * multiply(a, b)])
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected, rtol=0, atol=(1e-13 if dtype == np.float64 else 1e-4) * (1 + sizes[1]))


@pytest.mark.parametrize("way", STORED)
def test_batches_of_products(way: str) -> None:
    multiply = STORED[way]

    @pb.jit
    def products(a: Array, b: Array) -> Array:
        return pb.fori_loop(0, 3, lambda i, total: total + multiply(a + i, b), 0 * multiply(a, b))

    for sizes in SIZES:
        a, b = operands(way, sizes, np.float64, 2)
        np.testing.assert_allclose(products(a, b), 3 * multiply(a + 1, b), rtol=0, atol=1e-12)


def test_infinities_stay_where_they_are() -> None:
    """0 times infinity is NaN in each way."""
    a, b = np.zeros((2, 1, 3)), np.full((3, 4), np.inf)
    result = pb.jit(lambda a, b: pb.scan(lambda k, x: (k, x @ b), 0.0, a)[1])(a, b)
    assert np.isnan(result).all()
