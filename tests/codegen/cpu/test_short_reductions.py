"""Reductions of short rows and windows in loops: one chunk, whose result stays in registers, by masked vectors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "max": lambda x: x.max(),
    "argmin": lambda x: x.argmin(),
    "sum of squares": lambda x: (x * x).sum(),
    "any": lambda x: (x > 1.5).any(),
}
LENGTHS = (1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 100, 127, 128, 129, 511, 513, 1100, 70_000)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", list(REDUCTIONS))
def test_a_slice_in_a_loop_has_the_bits_of_the_slice_alone(name: str, dtype: type) -> None:
    reduction = REDUCTIONS[name]

    @pb.jit(loops="roll")
    def windows(x: Any, k: Any) -> Any:
        y = np.zeros(5, x.dtype)
        for i in range(5):
            y[i] = reduction(x[3 * i : 3 * i + k])
        return y

    alone = pb.jit(lambda x: np.zeros(1, x.dtype) + reduction(x))
    x = np.random.default_rng(0).normal(size=70_100).astype(dtype)
    for k in LENGTHS:
        expected = np.concatenate([alone(x[3 * i : 3 * i + k].copy()) for i in range(5)]).astype(dtype)
        assert windows(x, np.array(k)).tobytes() == expected.tobytes(), k


@pytest.mark.parametrize("name", list(REDUCTIONS))
def test_a_row_in_a_loop_has_the_bits_of_the_row_alone(name: str) -> None:
    reduction = REDUCTIONS[name]

    @pb.jit(loops="roll")
    def rows(x: Any) -> Any:
        y = np.zeros(len(x))
        for i in range(len(x)):
            y[i] = reduction(x[i])
        return y

    alone = pb.jit(lambda x: np.zeros(1) + reduction(x))
    for k in LENGTHS:
        x = np.random.default_rng(k).normal(size=(3, k))
        assert rows(x).tobytes() == np.concatenate([alone(row.copy()) for row in x]).tobytes(), k


def test_zeros_infinities_and_nan_in_short_windows() -> None:
    @pb.jit(loops="roll")
    def windows(x: Any, k: int) -> Any:
        y = np.zeros(len(x) - k + 1)
        for i in range(len(y)):
            y[i] = x[i : i + k].sum()
        return y

    x = np.array([-0.0, -0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -0.0, 2.0, np.inf, np.inf, -1.0])
    for k in range(1, len(x) + 1):
        with np.errstate(invalid="ignore"):
            expected = [x[i : i + k].sum() for i in range(len(x) - k + 1)]
        assert np.array_equal(windows(x, k), expected, equal_nan=True), k
    assert windows(x, 0).tolist() == [0.0] * 13


def test_the_result_of_one_chunk_is_not_read_from_memory() -> None:
    def windows(x: Any, k: int) -> Any:
        y = np.zeros(len(x) - k + 1)
        for i in range(len(y)):
            y[i] = x[i : i + k].sum()
        return y

    text = str(pb.jit(windows).stages(np.ones(2000), 10)["llvm"])
    chunk = re.search(r"alone(\d+):\n(?:(?!alone).)*few.*?after\1:\n.*?\n\}", text, re.DOTALL)
    assert chunk is not None
    after_vectors = chunk[0].rpartition("\nboth")[2]
    assert "head" not in after_vectors and "tier" not in after_vectors
