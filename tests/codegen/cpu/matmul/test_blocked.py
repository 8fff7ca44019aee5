"""Matrix products of the CPU (``product_blocks``): any shape, layout and machine, within the error bound of textbooks, and the
same bits whatever the number of threads."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pullback.codegen.cpu.matmul import blocked
from pullback.codegen.cpu.matmul.blocking import Blocking, blocking_for
from pullback.codegen.cpu.matmul.microkernel import Microkernel
from pullback.codegen.cpu.schedule import schedule
from pullback.ir import Block, Function, Module
from pullback.ir.core.types import F32, F64
from pullback.ir.text import parse_module, print_module
from pullback.runtime.memory import kernel_scratch
from pullback.runtime.threads import threads
from tests.support.matmul.kernels import MACHINES, compiled_product, fenced, product_text
from tests.support.paths import GOLDEN

EXTENTS = st.one_of(st.integers(0, 40), st.integers(0, 300))
DTYPES = {"f32": np.float32, "f64": np.float64}


def operands(m: int, k: int, n: int, dtype: str, turned: tuple[bool, bool], seed: int = 0) -> tuple[Any, Any, Any, Any]:
    """Return two matrices, and both as they are stored."""
    rng = np.random.default_rng(seed)
    x, w = (rng.normal(size=shape).astype(DTYPES[dtype]) for shape in ((m, k), (k, n)))
    return x, w, *(np.ascontiguousarray(a.T if t else a) for a, t in zip((x, w), turned, strict=True))


def assert_within_bound(result: Any, x: Any, w: Any) -> None:
    """|error| <= k u |x| |w| / (1 - k u)."""
    high = np.longdouble if x.dtype == np.float64 else np.float64
    k, unit = x.shape[1], np.finfo(x.dtype).eps / 2
    bound = k * unit / (1 - k * unit) * (np.abs(x).astype(high) @ np.abs(w).astype(high)) + np.finfo(x.dtype).smallest_subnormal
    assert (np.abs(result - x.astype(high) @ w.astype(high)) <= bound).all()


def run(text: str, machine: str, x: Any, w: Any, m: int, k: int, n: int) -> Any:
    out = fenced(np.full((m, n), np.nan, x.dtype))
    assert compiled_product(text, machine)([fenced(x), fenced(w), out], [m, k, n]) == 0
    return np.array(out)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.tuples(EXTENTS, EXTENTS, EXTENTS), st.sampled_from(sorted(DTYPES)), st.booleans(), st.booleans(),
    st.sampled_from(sorted(MACHINES)), st.booleans(),
)  # fmt: skip
def test_any_shape(extents: tuple[int, int, int], dtype: str, first: bool, second: bool, machine: str, strided: bool) -> None:
    m, k, n = extents
    turned = (first, second)
    x, w, stored_x, stored_w = operands(m, k, n, dtype, turned)
    if strided:
        stored_x = np.repeat(stored_x, 2, axis=0)[::2]
        stored_w = np.repeat(stored_w, 3, axis=1)[:, ::3]
    text = product_text(dtype, turned, "strided" if strided else "")
    result = run(text, machine, stored_x, stored_w, m, k, n)
    assert_within_bound(result, x, w)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_several_runs_of_terms_and_blocks(machine: str, dtype: str) -> None:
    for m, k, n in ((30, 1300, 70), (250, 600, 40), (9, 70, 1500), (700, 20, 900)):
        x, w, stored_x, stored_w = operands(m, k, n, dtype, (False, True))
        assert_within_bound(run(product_text(dtype, (False, True)), machine, stored_x, stored_w, m, k, n), x, w)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_number_of_threads(dtype: str) -> None:
    before = threads.get_num_threads()
    result = []
    x, w, *_ = operands(311, 1100, 290, dtype, (False, False))
    try:
        for count in (1, 2, 3, 7):
            threads.set_num_threads(count)
            result.append(run(product_text(dtype), "AVX-512", x, w, 311, 1100, 290))
    finally:
        threads.set_num_threads(before)
    assert all((each == result[0]).all() for each in result)


@pytest.mark.parametrize("machine", MACHINES)
def test_nan_and_infinity_stay_in_their_rows_and_columns(machine: str) -> None:
    x, w, *_ = operands(30, 50, 40, "f32", (False, False))
    x[3, 7], w[9, 5], x[29, 0] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) @ w.astype(np.float64)
    result = run(product_text("f32"), machine, x, w, 30, 50, 40)
    for kind in (np.isnan, np.isposinf, np.isneginf):
        assert (kind(result) == kind(expected)).all()


def test_no_memory_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    text = product_text("f64", (True, True))
    *_, stored_x, stored_w = operands(20, 20, 20, "f64", (True, True))
    kernel = compiled_product(text, "AVX-512")
    given_back: list[int] = []
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(lambda state, size: None)
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(lambda *given: given_back.append(given[1]))
    result = {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in (("take", take), ("give", give))}
    monkeypatch.setattr(kernel_scratch, "addresses", lambda: {"state": 0, **result})
    assert kernel([stored_x, stored_w, np.empty((20, 20))], [20, 20, 20]) == 0xFFFFFFFE
    assert not given_back


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("machine", MACHINES)
def test_shapes_fit_registers_and_caches(machine: str, dtype: Any) -> None:
    target = MACHINES[machine]
    shape = blocking_for(target, dtype)
    registers = 32 if target.vector_bytes == 64 else 16
    for rows in (shape.rows, *shape.short_rows):
        passes = shape.passes(rows)
        assert [r for some in passes for r in some] == list(range(rows))
        assert max(map(len, passes)) * shape.vectors + shape.vectors + 1 <= registers
    assert shape.rows * shape.k_block * dtype.bytes <= 32 << 10
    assert shape.max_column_panels * shape.k_block * shape.columns * dtype.bytes <= target.cache or shape.max_column_panels == 1


TINY = Blocking(rows=4, vectors=1, accumulators=4, lanes=4, k_block=8, max_column_panels=2, max_row_panels=2)


def test_text(monkeypatch: pytest.MonkeyPatch, bless: bool, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(blocked, "blocking_for", lambda *given: TINY)
    path = GOLDEN / "matmul" / "scheduled" / "tiny.ir"
    (kernel,) = parse_module(product_text("f32", (False, False))).functions
    result = print_module(Module((schedule(kernel),)))
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_text(result)
    assert path.read_text() == result


def test_text_of_a_tile_in_halves(bless: bool, request: pytest.FixtureRequest) -> None:
    """Registers hold half of the sums: columns are prefetched in the first pass alone, each of the two streams in one pass."""
    path = GOLDEN / "matmul" / "scheduled" / "halves.ir"
    tile = Microkernel(F32, replace(TINY, rows=2, accumulators=1), has_fma=True)
    result = print_module(Module((Function("k", Block((), (tile.define(),), ()), "kernel"),)))
    if bless:
        path.write_text(result)
    assert path.read_text() == result
