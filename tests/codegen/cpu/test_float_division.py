"""Floors of quotients and remainders of floats: NumPy's bits, by a multiply-add in place of the C library's remainder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.math.recipes import WHOLE_QUOTIENTS

Array = np.ndarray[Any, Any]
SPECIAL = (
    0.0, 1.0, np.inf, np.nan, 5e-324, 2.3e-308, 1e308, 0.1, 3.0, 7.0, 1 / 64, 1e16, 2.0**48, 2.0**53 - 1, 1e-45, 2.0**19, 2.0**24,
)  # fmt: skip
CALLS: dict[str, Callable[[Any, Any], Any]] = {"floor_divide": lambda x, y: x // y, "remainder": lambda x, y: x % y}


def agree(name: str, x: Array, y: Array) -> None:
    result = pb.jit(CALLS[name])(x, y)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    same = (result == expected) & (np.signbit(result) == np.signbit(expected)) | (np.isnan(result) & np.isnan(expected))
    wrong = [(x[k], y[k], result[k], expected[k]) for k in np.flatnonzero(~same)]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("name", CALLS)
def test_special_quotients(name: str, dtype: type) -> None:
    with np.errstate(all="ignore"):
        values = np.array([*SPECIAL, *(-x for x in SPECIAL)]).astype(dtype)
    agree(name, *(a.ravel() for a in np.meshgrid(values, values)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
def test_quotients_near_whole_numbers_and_near_the_bound(name: str, dtype: Any) -> None:
    rng, n = np.random.default_rng(0), 4000
    bound = int(WHOLE_QUOTIENTS[8 * np.dtype(dtype).itemsize])
    divisors = (rng.random(n) + 1e-3).astype(dtype)
    for most in (10, 10**4, 4 * bound, 1 << 60):
        x = (rng.integers(-most, most, n) * divisors.astype(np.float64)).astype(dtype)
        for near in (x, np.nextafter(x, dtype(np.inf)), np.nextafter(x, dtype(-np.inf))):
            agree(name, near, divisors)
            agree(name, near, -divisors)
    bits = rng.integers(0, 2 ** (8 * np.dtype(dtype).itemsize), (2, n), np.uint64).astype(f"u{np.dtype(dtype).itemsize}")
    agree(name, *bits.view(dtype))


@pytest.mark.parametrize("name", CALLS)
def test_quotients_in_a_loop(name: str) -> None:
    call = CALLS[name]

    def rows(x: Any, width: Any) -> Any:
        y = np.zeros(len(x))
        for i in range(len(x)):
            y[i] = call(x[i], width)
        return y

    x = np.random.default_rng(1).normal(size=300) * 10
    for width in (1 / 64, 0.1, -0.3, 1e-300, np.inf):
        compiled = pb.jit(rows, loops="roll")
        assert compiled(x, np.float64(width)).tobytes() == getattr(np, name)(x, width).tobytes()


def test_no_library_function_is_called_in_a_quotient_that_is_usual() -> None:
    text = str(pb.jit(lambda x, y: x // y).stages(np.ones(100), 0.3)["schedule"])
    kernel = text[text.rindex("for ") :]
    assert "fma" in kernel and "fmod" not in kernel
