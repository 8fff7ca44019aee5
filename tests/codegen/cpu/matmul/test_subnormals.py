"""Matrix products of subnormal numbers: panels that hold them are scaled for a while, which no result may show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.runtime.threads import threads
from tests.support.matmul.kernels import MACHINES, compiled_product, product_text

M, K, N = 29, 300, 75


def multiply(x: Any, w: Any, machine: str, turned: tuple[bool, bool] = (False, False)) -> Any:
    out = np.zeros((len(x), w.shape[1]), x.dtype)
    kernel = compiled_product(product_text(f"f{x.itemsize * 8}", turned), machine)
    at = [np.ascontiguousarray(a.T) if is_turned else a for a, is_turned in zip((x, w), turned, strict=True)]
    assert kernel([*at, out], [len(x), x.shape[1], w.shape[1]]) == 0
    return out


def plain(dtype: Any, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(M, K)).astype(dtype), rng.normal(size=(K, N)).astype(dtype)


def small(dtype: Any, shape: tuple[int, ...], seed: int = 1) -> Any:
    """Subnormal numbers of all sizes and both signs, and zeros of both."""
    rng, bits = np.random.default_rng(seed), np.finfo(dtype).nmant
    size = (rng.integers(0, 1 << bits, shape) >> rng.integers(0, bits + 1, shape)).astype(f"u{np.dtype(dtype).itemsize}")
    return size.view(dtype) * rng.choice([-1, 1], shape).astype(dtype)


def agree(result: Any, x: Any, w: Any) -> None:
    """Within the bound of sums in any order, and half of the least number more; what is not finite is where it has to be."""
    with np.errstate(invalid="ignore", over="ignore"):
        wide = x.astype(np.longdouble), w.astype(np.longdouble)
        exact, size = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
        limits = np.finfo(x.dtype)
        bound = (K + 4) * size * limits.eps + limits.smallest_subnormal * (K // 64 + 1)
        is_finite = np.isfinite(exact)
        np.testing.assert_array_equal(np.isfinite(result), is_finite)
        assert (np.abs(result - exact)[is_finite] <= bound[is_finite]).all()
        np.testing.assert_array_equal(result[~is_finite], exact[~is_finite].astype(x.dtype))


def large(x: Any) -> Any:
    return x * x.dtype.type(2.0 ** (np.finfo(x.dtype).nmant - 3))


def huge(x: Any) -> Any:
    """Together with large numbers finite, unless these are scaled."""
    limits = np.finfo(x.dtype)
    return x * x.dtype.type(2.0 ** (limits.maxexp - 10 - limits.nmant))


def some_small(x: Any, w: Any) -> None:
    x[:, 3:40] = small(x.dtype, x[:, 3:40].shape)


def rows_small(x: Any, w: Any) -> None:
    x[[2, 13, 14]] = small(x.dtype, (3, K))


def columns_small(x: Any, w: Any) -> None:
    w[:, 30:70] = small(w.dtype, (K, 40))


def both_small(x: Any, w: Any) -> None:
    x[:, ::2] = small(x.dtype, x[:, ::2].shape)
    w[1::2] = small(w.dtype, w[1::2].shape)


def all_small(x: Any, w: Any) -> None:
    x[...] = small(x.dtype, x.shape)
    w[...] = small(w.dtype, w.shape)


def huge_columns(x: Any, w: Any) -> None:
    """Columns with which scaled rows would overflow, between those with which they do not."""
    x[...], w[:, 32:40] = large(x), huge(w[:, 32:40])
    rows_small(x, w)


def huge_rows(x: Any, w: Any) -> None:
    w[...], x[12:20] = large(w), huge(x[12:20])
    columns_small(x, w)


def small_and_huge(x: Any, w: Any) -> None:
    """Rows that can only be scaled out of bounds themselves."""
    x[:, ::3] = small(x.dtype, x[:, ::3].shape)
    x[5, 1::3] *= np.finfo(x.dtype).max / (64 * K)
    w *= w.dtype.type(4.0 ** -np.finfo(w.dtype).nmant)


def with_infinities(x: Any, w: Any) -> None:
    both_small(x, w)
    x[4, 7], x[20, 260], w[100, 50], w[290, 3] = np.inf, -np.inf, np.inf, np.inf


def with_nans(x: Any, w: Any) -> None:
    both_small(x, w)
    x[4, 7], w[299, 60] = np.nan, np.nan


CASES = (
    some_small, rows_small, columns_small, both_small, all_small, huge_columns, huge_rows, small_and_huge, with_infinities,
    with_nans,
)  # fmt: skip


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.__name__))
def test_subnormal_operands(case: Any, dtype: Any, machine: str) -> None:
    x, w = plain(dtype)
    case(x, w)
    agree(multiply(x, w, machine), x, w)


@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("case", [both_small, huge_columns, huge_rows], ids=lambda case: str(case.__name__))
def test_turned_operands(case: Any, turned: tuple[bool, bool]) -> None:
    x, w = plain(np.float32)
    case(x, w)
    agree(multiply(x, w, "AVX-512", turned), x, w)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_scaled_operands_lose_no_bits(dtype: Any) -> None:
    """Products far below the least number add up to what is above it: without a scale each would be rounded to it or to 0."""
    limits = np.finfo(dtype)
    x = np.full((M, K), limits.smallest_subnormal * 5, dtype)
    w = np.full((K, N), 1 / 16, dtype)
    result = multiply(x, w, "AVX-512")
    np.testing.assert_array_less(np.abs(result / limits.smallest_subnormal - K * 5 / 16), 2)


def test_scaled_products_do_not_depend_on_threads() -> None:
    x, w = (np.concatenate([a] * 12, axis) for a, axis in zip(plain(np.float32), (0, 1), strict=True))
    huge_columns(x, w)
    x[40:300:3, ::5] = small(x.dtype, x[40:300:3, ::5].shape)
    before, result = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 7):
            threads.set_num_threads(count)
            result.append(multiply(x, w, "AVX-512"))
    finally:
        threads.set_num_threads(before)
    assert all(each.tobytes() == result[0].tobytes() for each in result)
