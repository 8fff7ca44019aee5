"""Matrix products of few rows, whose columns are packed panel by panel, and of few terms, whose sums go where they belong at
once."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cpu.matmul.blocked import FLAT, RUN
from pullback.codegen.cpu.matmul.blocking import blocking_for
from pullback.ir.core.types import F32, F64
from pullback.runtime.memory import kernel_scratch
from pullback.runtime.threads import threads
from tests.codegen.cpu.matmul.test_blocked import assert_within_bound, operands, run
from tests.support.matmul.kernels import MACHINES, compiled_product, fenced, product_text

DTYPES = {"f32": F32, "f64": F64}


def around(machine: str, dtype: str) -> list[tuple[int, int, int]]:
    """Rows, terms and columns on both sides of where another way begins."""
    shape = blocking_for(MACHINES[machine], DTYPES[dtype])
    high, wide = shape.rows, shape.columns
    low = tuple(m for rows in shape.short_rows for m in (rows, rows + 1, high + rows, 2 * high + rows - 1))
    few = [
        (m, k, n)
        for m in (1, high - 1, high, high + 1, FLAT * high, FLAT * high + 1, *low)
        for k, n in (
            (RUN, wide),
            (RUN + 1, wide - 1),
            (3 * RUN - 1, 3 * wide + 1),
            (1, 5 * wide),
            (200, 4096 // shape.lanes + wide + 3),
        )
    ]
    return few + [(5 * high + e, k, 2 * wide + e) for e in (0, 1) for k in (1, 30, shape.k_block, shape.k_block + 1)]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
def test_shapes_around_each_way(machine: str, dtype: str, turned: tuple[bool, bool]) -> None:
    for m, k, n in around(machine, dtype):
        x, w, stored_x, stored_w = operands(m, k, n, dtype, turned, seed=m + k)
        assert_within_bound(run(product_text(dtype, turned), machine, stored_x, stored_w, m, k, n), x, w)


RESIDUAL = """pullback-ir 2

kernel k(%x: &f32[s0,s1], %w: &f32[s1,s2], %out: &f32[s0,s2], %r: &f32[s0,s2]) -> () {
  %m: i64[] = extent {size=s0}
  %n: i64[] = extent {size=s2}
  %k: i64[] = extent {size=s1}
  product %m, %n, %k (%i: i64[], %p: i64[]) {
    %0: f32[] = load %x, %i, %p
    yield %0
  } (%q: i64[], %j: i64[]) {
    %1: f32[] = load %w, %q, %j
    %2: f32[] = add %1, %1
    yield %2
  } (%i0: i64[], %j0: i64[], %sum: f32[]) {
    %3: f32[] = load %r, %i0, %j0
    %4: f32[] = add %3, %sum
    store %4, %r, %i0, %j0
    yield
  }
  return
}
"""


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("sizes", [(8, 70, 100), (24, 20, 64), (60, 20, 97), (13, 33, 1100)], ids=str)
def test_each_sum_is_taken_once(machine: str, sizes: tuple[int, int, int]) -> None:
    """The last region adds to the values it reads, once; an operand is computed from contiguous elements."""
    m, k, n = sizes
    x, w, *_ = operands(m, k, n, "f32", (False, False))
    before = np.random.default_rng(1).normal(size=(m, n)).astype(np.float32)
    after = fenced(before)
    assert compiled_product(RESIDUAL, machine)([fenced(x), fenced(w), np.empty((m, n), np.float32), after], [m, k, n]) == 0
    np.testing.assert_allclose(after, before + x @ (w + w), rtol=0, atol=1e-5 * (k + 1))


@pytest.mark.parametrize("sizes", [(8, 700, 3000), (33, 300, 1000), (700, 20, 900), (49, 64, 3000)], ids=str)
def test_bits_do_not_depend_on_the_number_of_threads(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    x, w, *_ = operands(m, k, n, "f32", (False, False))
    before = threads.get_num_threads()
    result = []
    try:
        for count in (1, 2, 3, 7):
            threads.set_num_threads(count)
            result.append(run(product_text("f32"), "AVX-512", x, w, m, k, n))
    finally:
        threads.set_num_threads(before)
    assert all((each == result[0]).all() for each in result)


def test_nan_stays_in_its_row_and_column() -> None:
    x, w, *_ = operands(14, 40, 70, "f32", (False, False))
    x[3, 7], w[9, 5], w[39, 69] = np.nan, np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) @ w.astype(np.float64)
        result = run(product_text("f32"), "AVX-512", x, w, 14, 40, 70)
    for kind in (np.isnan, np.isposinf, np.isneginf):
        assert (kind(result) == kind(expected)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(8, 700, 3000), (40, 300, 1000), (48, 70, 3000), (7, 1000, 1100)], ids=str)
def test_subnormal_numbers_in_some_panels(sizes: tuple[int, int, int], dtype: str) -> None:
    m, k, n = sizes
    x, w, *_ = operands(m, k, n, dtype, (False, False))
    least = np.finfo(x.dtype).smallest_normal
    x[2, 40:50] = least / 8
    w[33:60, 70:200] *= least / 4
    x[5 % m] *= 1 / x.dtype.type(2) ** 20
    before, result = threads.get_num_threads(), []
    try:
        for count in (1, 2, 7):
            threads.set_num_threads(count)
            result.append(run(product_text(dtype), "AVX-512", x, w, m, k, n))
    finally:
        threads.set_num_threads(before)
    assert all((each == result[0]).all() for each in result)
    high = np.longdouble if dtype == "f64" else np.float64
    bound = 2 * k * np.finfo(x.dtype).eps * (np.abs(x).astype(high) @ np.abs(w).astype(high))
    bound += (k // RUN + 1) * np.finfo(x.dtype).smallest_subnormal
    assert (np.abs(result[0] - x.astype(high) @ w.astype(high)) <= bound).all()


class Rooms:
    """Memory for kernels, surrounded by bytes that must not change."""

    AROUND = 1 << 12

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.spoiled = 0
        self.count = 0
        self.take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.taken)
        self.give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(self.given)

    def taken(self, state: int, size: int) -> int:
        block = np.full(size + 2 * self.AROUND, 0xA5, np.uint8)
        address = block.ctypes.data + self.AROUND
        self.held[address] = block
        self.count += 1
        return address

    def given(self, state: int, address: int, size: int) -> None:
        block = self.held.pop(address)
        ends = block[: self.AROUND], block[-self.AROUND :]
        self.spoiled += any((end != 0xA5).any() for end in ends)

    def addresses(self) -> dict[str, int]:
        slots = {name: ctypes.cast(getattr(self, name), ctypes.c_void_p).value or 0 for name in ("take", "give")}
        return {"state": 0, **slots}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_stay_in_their_rooms(machine: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the columns, by which runs of terms are longer or shorter, and however many there are."""
    rooms = Rooms()
    monkeypatch.setattr(kernel_scratch, "addresses", rooms.addresses)
    for m, k, n in [*around(machine, dtype), (5, 1000, 900), (5, 1000, 460), (3, 2000, 930), (14, 999, 700), (80, 1000, 900)]:
        x, w, stored_x, stored_w = operands(m, k, n, dtype, (False, False), seed=m + k)
        assert_within_bound(run(product_text(dtype), machine, stored_x, stored_w, m, k, n), x, w)
    assert rooms.count and not rooms.held and not rooms.spoiled
