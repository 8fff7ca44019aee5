"""Pooling and convolutions: reductions over few neighbours are unrolled, and operands are rearranged once for all products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
REDUCTIONS: dict[str, Callable[..., Array]] = {
    "max": np.max,
    "min": np.min,
    "sum": np.sum,
    "prod": np.prod,
    "mean": np.mean,
    "any": lambda x, axis: np.any(x > 0, axis),
}


def in_blocks(x: Array, size: tuple[int, int]) -> Array:
    *rest, rows, columns = x.shape
    return x.reshape(*rest, rows // size[0], size[0], columns // size[1], size[1])


def lowered(function: Callable[..., Any], *arguments: Any) -> str:
    return str(pb.jit(function).stages(*arguments)["lower"])


@pytest.mark.parametrize("size", [(2, 2), (1, 4), (3, 2), (4, 4), (5, 7)], ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_blocks(name: str, size: tuple[int, int]) -> None:
    reduce = REDUCTIONS[name]
    pooled = pb.jit(lambda x: reduce(in_blocks(x, size), axis=(-3, -1)))
    rng = np.random.default_rng(3)
    for rows, columns in ((1, 1), (2, 9), (5, 3), (3, 0)):
        x = rng.normal(size=(2, rows * size[0], columns * size[1]))
        np.testing.assert_allclose(pooled(x), reduce(in_blocks(x, size), axis=(-3, -1)), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint8", "complex128"])
def test_dtypes(dtype: str) -> None:
    x = (np.arange(96).reshape(3, 4, 8) % 13).astype(dtype)
    x = x * (1 + 1j) if dtype == "complex128" else x
    sums = lambda x: np.sum(in_blocks(x, (2, 2)), axis=(-3, -1))  # noqa: E731
    result, expected = pb.jit(sums)(x), sums(x)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


def test_nan_and_ties() -> None:
    x = np.array([[1.0, 1.0, np.nan, 2.0], [1.0, 0.0, 3.0, np.inf]])
    top = lambda x: np.max(in_blocks(x, (2, 2)), axis=(-3, -1))  # noqa: E731
    np.testing.assert_array_equal(pb.jit(top)(x), top(x))
    result = pb.jit(pb.grad(lambda x: np.sum(top(x))))(x[:, :2])
    np.testing.assert_allclose(result, [[1 / 3, 1 / 3], [1 / 3, 0]])


def test_a_small_block_is_spelled_out() -> None:
    """A large one is not; the size of an image is no part of the code."""
    top = lambda x, size: np.max(in_blocks(x, (size, size)), axis=(-3, -1))  # noqa: E731
    small, large = (lowered(lambda x, size=size: top(x, size), np.zeros((3, 10, 20))) for size in (2, 5))
    assert "combine" not in small and small.count("maximum") == 3
    assert "combine" in large
    other = lowered(lambda x: top(x, 2), np.zeros((2, 6, 8)))
    assert other[other.index("kernel k0") :] == small[small.index("kernel k0") :]


def convolved(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return np.einsum("nchwij,fcij->nfhw", windows, w)


def test_windows_are_arranged_once() -> None:
    """A convolution and the gradient of its weights arrange the windows once each, along the rows of the image."""
    rng = np.random.default_rng(4)
    x, w = rng.normal(size=(5, 2, 6, 7)), rng.normal(size=(3, 2, 3, 3))
    loss = lambda w, x: np.sum(np.tanh(convolved(x, w)))  # noqa: E731
    text = str(pb.jit(pb.grad(loss)).stages(w, x)["fuse"])
    assert text.count("windows") == 2
    assert "f64[2,3,3,5,4,5]" in text
    got = pb.jit(pb.grad(loss, argnums=(0, 1)))(w, x)
    for k, position in ((0, (1, 0, 2, 1)), (1, (3, 1, 2, 5))):
        ends = []
        for step in (1e-6, -1e-6):
            moved = [w.copy(), x.copy()]
            moved[k][position] += step
            ends.append(loss(*moved))
        assert abs(got[k][position] - (ends[0] - ends[1]) / 2e-6) < 1e-8


SPECS = ["nchwij,fcij->nfhw", "nchwij,fijc->nhwf", "nchwij,jicf->fnwh", "nchwij,nfij->ncfhw", "nchwij,wfij->hfnc"]


@pytest.mark.parametrize("spec", SPECS)
def test_operands_in_any_order(spec: str) -> None:
    left, right = spec.split("->")[0].split(",")
    extents = dict(zip("nchwijf", (2, 3, 4, 5, 3, 2, 6), strict=True))
    rng = np.random.default_rng(5)
    x, y = (rng.normal(size=[extents[k] for k in word]) for word in (left, right))
    np.testing.assert_allclose(pb.jit(lambda x, y: np.einsum(spec, x, y))(x, y), np.einsum(spec, x, y), rtol=1e-12, atol=1e-12)
