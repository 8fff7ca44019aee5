"""Bodies of vector loops that are so large that they are written once, under a mask, give what small ones give."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm import loops
from pullback.programs.pipeline import templates
from pullback.runtime.compile.engine import default_engine

Array = Any


def large(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """More than ``MOST_WEIGHT_TWICE`` operations that no rule makes fewer."""
    a = x
    for k in range(120):
        a = (a * (0.5 + k / 1000) + y) / (1.25 + abs(a))
        a = np.maximum(a, -y)
    return a, np.sum(a), a > 0


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1000, 4097])
def test_every_size(dtype: str, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(2, n)).astype(dtype)
    for got, expected in zip(pb.jit(large)(x, y), large(x, y), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4 if dtype == "f4" else 1e-12)


def test_special_numbers_and_strides() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e308, -1.0, 2.0, 0.5] * 3)
    y = np.linspace(-1.0, 1.0, 54)[::2]
    with np.errstate(all="ignore"):
        expected = large(x, y)
    for got, wanted in zip(pb.jit(large)(x, y), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def divisions(function: Any) -> int:
    stages = pb.jit(lambda x, y: function(x, y)).stages(np.ones(9), np.ones(9))
    return int(stages["llvm"].count("fdiv <"))


def words(x: Array, y: Array) -> tuple[Array, Array]:
    """All that is read and written are words."""
    return large(x, y)[:2]


@pytest.mark.parametrize(("function", "least_bytes"), [(large, 64), (words, 32)])
def test_a_large_body_is_written_once_for_masked_instructions(function: Any, least_bytes: int) -> None:
    assert divisions(function) == (120 if default_engine().host().vector_bytes >= least_bytes else 240)


def test_a_small_body_is_written_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "MOST_WEIGHT_TWICE", 1 << 20)
    monkeypatch.setattr(loops, "MOST_WEIGHT_UNMASKED", 1 << 20)
    assert divisions(words) == 240


def run_anew(x: Array, y: Array) -> tuple[Array, ...]:
    """The results of a program that is built for them."""
    gc.collect()
    templates.forget()
    before = pb.cache_info().templates_built
    result: tuple[Array, ...] = pb.jit(lambda x, y: words(x, y))(x, y)
    assert pb.cache_info().templates_built == before + 1
    return result


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("n", [5, 4099])
def test_both_ways_give_the_same_bits(n: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, n)).astype(dtype)
    once = run_anew(x, y)
    monkeypatch.setattr(loops, "MOST_WEIGHT_TWICE", 1 << 20)
    monkeypatch.setattr(loops, "MOST_WEIGHT_UNMASKED", 1 << 20)
    for a, b in zip(once, run_anew(x, y), strict=True):
        assert a.tobytes() == b.tobytes()


def heavy(x: Array, y: Array) -> tuple[Array, Array]:
    """Heavier than ``MOST_WEIGHT_UNMASKED`` and not long enough to be cut into phases."""
    a = x
    for k in range(15):
        a = (a * (0.5 + k / 1000) + y) / (1.25 + abs(a))
    return a, np.sum(a)


once, twice = pb.jit(heavy), pb.jit(lambda x, y: heavy(x, y)[::-1])


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 17, 512, 513, 4097, 32769, 70_001])
def test_a_heavy_body_and_its_rest(n: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An element does not depend on whether it is in the rest; all is, to the bit, what a loop written twice gives."""
    rng = np.random.default_rng(n)
    x, y = rng.normal(size=(2, n + 1)).astype(dtype)
    got, total = once(x[:n], y[:n])
    np.testing.assert_allclose(got, heavy(x[:n], y[:n])[0], rtol=1e-4 if dtype == "f4" else 1e-12)
    np.testing.assert_array_equal(got, once(x, y)[0][:n])
    monkeypatch.setattr(loops, "MOST_WEIGHT_UNMASKED", 1 << 20)
    other, result = twice(x[:n], y[:n])
    assert (total.tobytes(), got.tobytes()) == (other.tobytes(), result.tobytes())


def test_a_heavy_body_is_written_once_where_masks_are_registers() -> None:
    assert divisions(heavy) == (15 if default_engine().host().vector_bytes == 64 else 30)
