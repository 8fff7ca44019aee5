"""Quotients and roots by multiply-adds: NumPy's bits."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cpu.llvm import kernel as llvm
from pullback.codegen.cpu.llvm.division import LEAST, MOST, plan
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import PROCESSORS, Target, core
from pullback.ir.core.structure import Function, walk
from pullback.ir.text import parse_module
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.compile.engine import Engine

Array = np.ndarray[Any, np.dtype[Any]]
CPU = "icelake-server"
BITS = {np.dtype(np.float32): 23, np.dtype(np.float64): 52}
UNSIGNED = {np.dtype(np.float32): np.uint32, np.dtype(np.float64): np.uint64}
FUNCTIONS = {
    "quotient": "div %a, %b",
    "root": "sqrt %b",
    "inverse": "div %one, %b",
    "third": "div %a, %three",
    "by_root": "div %a, %r",
    "inverse_root": "div %one, %r",
}
OF_ROOTS = ("root", "by_root", "inverse_root")
SLOW = ("div", "sqrt")
KERNEL = """pullback-ir 2

kernel k(%x: &{t}[s0], %y: &{t}[s0], %out: &{t}[s0]) -> () {{
  %n: i64[] = extent {{size=s0}}
  %one: {t}[] = const {{value=1.0}}
  %three: {t}[] = const {{value=3.0}}
  for %n {{map="vector"}} (%i: i64[]) {{
    %a: {t}[] = load %x, %i
    %b: {t}[] = load %y, %i
{root}    %c: {t}[] = {what}
    store %c, %out, %i
    yield
  }}
  return
}}
"""


@functools.cache
def engine() -> Engine:
    try:
        return Engine(KernelCache(), level="avx512")
    except ValueError as error:
        pytest.skip(str(error))


def kernel(what: str, dtype: np.dtype[Any]) -> Function:
    t = f"f{8 * dtype.itemsize}"
    root = f"    %r: {t}[] = sqrt %b\n" if what in OF_ROOTS[1:] else ""
    return parse_module(KERNEL.format(t=t, what=FUNCTIONS[what], root=root)).functions[0]


@functools.cache
def compiled(what: str, dtype: np.dtype[Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm, "plan", lambda block, processor, width: {i.result for i in block.instructions if i.op.name in SLOW})
        text = llvm.emit(kernel(what, dtype), "k", Target(64, cpu=CPU)).text
    assert ("rsqrt14" if what in OF_ROOTS else "rcp14") in text
    assert ("rcp14" in text) != (what in OF_ROOTS), "one estimate serves a root and what it divides"
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(engine().load(text, symbols=["k"])["k"])


def run(what: str, x: Array, y: Array) -> Array:
    function, out = compiled(what, y.dtype), np.empty_like(y)
    slots = np.array([x.ctypes.data, y.ctypes.data, out.ctypes.data, y.size], np.int64)
    assert function(slots.ctypes.data) == 0
    return out


def check(what: str, x: Array, y: Array) -> None:
    """All are NumPy's, signs of zeros included; one NaN is as good as another."""
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    result = run(what, x, y)
    with np.errstate(all="ignore"):
        one = y.dtype.type(1)
        divisor = 3 * one if what == "third" else np.sqrt(y) if what in OF_ROOTS else y
        expected = divisor if what == "root" else (one if what.startswith("inverse") else x) / divisor
    same = (result.view(UNSIGNED[y.dtype]) == expected.view(UNSIGNED[y.dtype])) | (np.isnan(result) & np.isnan(expected))
    bad = np.flatnonzero(~same)[:3]
    assert same.all(), (what, x[bad], y[bad], result[bad], expected[bad])


def scaled(significands: Sequence[int] | Array, exponents: Array | int, dtype: Any) -> Array:
    return np.ldexp(np.array(significands, np.float64), exponents).astype(dtype)


def test_all_significands_of_float32() -> None:
    """Inverses, and roots of both parities; quotients of one numerator by all divisors, and of all numerators by one divisor."""
    all_bits = (np.arange(2**23, dtype=np.uint32) | np.uint32(127 << 23)).view(np.float32)
    for sign in (1, -1):
        check("inverse", all_bits, sign * all_bits)
    check("root", all_bits, all_bits)
    check("root", all_bits, all_bits * np.float32(2))
    for factor in (1, 2):
        check("inverse_root", all_bits, all_bits * np.float32(factor))
        check("by_root", all_bits[::-1], all_bits * np.float32(factor))
        check("by_root", np.full_like(all_bits, 4 / 3), all_bits * np.float32(factor))
    for other in (1 + 2.0**-23, 4 / 3, 1.5, 2 - 2.0**-22, 2 - 2.0**-23):
        check("quotient", np.full_like(all_bits, other), all_bits)
        check("quotient", all_bits, np.full_like(all_bits, other))
    check("third", all_bits, all_bits)


def midway(rng: np.random.Generator, bits: int, count: int) -> tuple[list[int], list[int]]:
    """Return numerators and divisors of ``bits`` bits whose quotients are as close as possible to the midpoint of two adjacent
    floats: with M that midpoint, b M + k is a multiple of a power of two for a small k."""
    numerators, divisors = [], []
    top, unit = 1 << (bits - 1), 1 << (bits + 1)
    near = [2 * top - 1 - 2 * t for t in range(200)] + [top + 1 + 2 * t for t in range(200)]
    for index in range(count):
        b = near[index % len(near)] if index % 2 else int(rng.integers(top, 2 * top)) | 1
        k = int(rng.integers(1, 8)) * (1 - 2 * int(rng.integers(2)))
        for modulus in (unit, unit // 2):
            middle = -k * pow(b, -1, modulus) % modulus
            total = b * middle + k
            a = total // modulus
            if total % modulus == 0 and 0 < a < 2 * top:
                numerators.append(a)
                divisors.append(b)
    return numerators, divisors


@pytest.mark.parametrize("dtype", BITS)
def test_quotients_near_the_middle(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(0)
    a, b = midway(rng, BITS[dtype] + 1, 40_000)
    x, y = scaled(a, -BITS[dtype], dtype), scaled(b, -BITS[dtype], dtype)
    for p, q in ((0, 0), (3, -7), (-20, 20)):
        for sign in (1, -1):
            check("quotient", np.ldexp(x, p).astype(dtype), (sign * np.ldexp(y, q)).astype(dtype))
        # The root of a rounded square is the number.
        check("by_root", np.ldexp(x, p).astype(dtype), (np.ldexp(y, q).astype(dtype) ** 2).astype(dtype))


@pytest.mark.parametrize("dtype", BITS)
def test_roots_near_the_middle(dtype: np.dtype[Any]) -> None:
    """The inputs are floats adjacent to the squares of midpoints, and all floats close to powers of two."""
    rng, bits = np.random.default_rng(1), BITS[dtype]
    unit, result = 1 << bits, []
    for middle in (2 * rng.integers(unit, 2 * unit, 40_000) + 1).tolist():
        square = middle * middle
        shift = square.bit_length() - (bits + 1)
        shift += shift % 2
        result += [(square >> shift), (square >> shift) + 1]
    beside = [*range(unit, unit + 2000), *range(2 * unit - 2000, 2 * unit)]
    for exponent in (-60, -2, -1, 0, 1, 2, 60):
        y = scaled([*result, *beside], exponent - bits, dtype)
        for what in OF_ROOTS:
            check(what, y[::-1], y)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("what", FUNCTIONS)
def test_special_values(what: str, dtype: np.dtype[Any]) -> None:
    info, limits = np.finfo(dtype), (LEAST[8 * dtype.itemsize], *(k * MOST[8 * dtype.itemsize] for k in (1, 2)))
    least = info.smallest_subnormal
    values = [0.0, 1.0, 3.0, np.inf, np.nan, info.max, info.tiny, least, 7 * least, info.tiny - least, info.tiny + least]
    for exponent in (*limits, *(-k for k in limits), -info.minexp, info.minexp + 1):
        near = np.ldexp(dtype.type(1), exponent)
        values += [near, np.nextafter(near, dtype.type(0)), np.nextafter(near, dtype.type(np.inf))]
    all_values = np.array([*values, *(-v for v in values)], dtype)
    x, y = (v.ravel() for v in np.meshgrid(all_values, all_values))
    check(what, x, y)
    for k in range(len(all_values)):
        usual = np.full(64, 1.7, dtype)
        usual[k % 64] = all_values[k]
        check(what, usual[::-1], usual)


def random_bits(rng: np.random.Generator, dtype: np.dtype[Any], count: int) -> Array:
    unsigned = UNSIGNED[dtype]
    return rng.integers(0, np.iinfo(unsigned).max, count, unsigned, endpoint=True).view(dtype)


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("what", FUNCTIONS)
def test_random_bits(what: str, dtype: np.dtype[Any]) -> None:
    """Any exponents; and those around 1, a tenth of the numerators zero."""
    rng = np.random.default_rng(2)
    check(what, random_bits(rng, dtype, 2**20), random_bits(rng, dtype, 2**20))
    x, y = rng.normal(size=2**20).astype(dtype), rng.normal(size=2**20).astype(dtype)
    x[rng.random(2**20) < 0.1] *= 0
    check(what, x, np.abs(y))
    check(what, x, y)


@pytest.mark.long
@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("what", FUNCTIONS)
def test_many_random_significands(what: str, dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        x, y = rng.uniform(1, 4, 2**20).astype(dtype), rng.uniform(1, 4, 2**20).astype(dtype)
        check(what, x, y)


SHARED = """pullback-ir 2

kernel k(%x: &f64[s0], %y: &f64[s0], %p: &f64[s0], %q: &f64[s0], %r: &f64[s0]) -> () {
  %n: i64[] = extent {size=s0}
  %one: f64[] = const {value=1.0}
  for %n {map="vector"} (%i: i64[]) {
    %a: f64[] = load %x, %i
    %b: f64[] = load %y, %i
    %c: f64[] = sqrt %b
    %d: f64[] = div %a, %c
    %e: f64[] = div %one, %c
    %f: f64[] = div %b, %a
    store %d, %p, %i
    store %e, %q, %i
    store %f, %r, %i
    yield
  }
  return
}
"""


def test_shares_of_the_divider() -> None:
    """One divisor has one inverse; the divider keeps what would take the multipliers longer; other processors keep all."""
    function = parse_module(SHARED).functions[0]
    (loop,) = (i for i in function.body.instructions if i.regions)
    block = loop.regions[0]
    root, first, second, _ = (i.result for i in block.instructions if i.op.name in SLOW)
    assert plan(block, PROCESSORS[CPU], 8) == {root, first, second}
    assert not plan(block, PROCESSORS[CPU], 4), "half a register"
    text = emit(function, "k", Target(64, cpu=CPU)).text
    assert "avx512.rsqrt14" in text and "avx512.rcp14" not in text
    for vector_bytes, cpu in ((64, "znver5"), (64, ""), (32, CPU)):
        assert "14.pd" not in emit(function, "k", Target(vector_bytes, cpu=cpu)).text
    x, y = np.random.default_rng(4).uniform(0.5, 2, (2, 1003))
    result = np.zeros((3, 1003))
    slots = np.array([x.ctypes.data, y.ctypes.data, *(row.ctypes.data for row in result), x.size], np.int64)
    address = engine().load(text, symbols=["k"])["k"]
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)(slots.ctypes.data) == 0
    assert np.array_equal(result, [x / np.sqrt(y), 1 / np.sqrt(y), y / x])


def test_ratios_of_recipes() -> None:
    """If a recipe guarantees operands without special cases, a quotient is multiply-adds without tests, with the same bits."""
    rng = np.random.default_rng(7)
    for dtype, name in ((np.float64, "f64"), (np.float32, "f32")):
        near = [0.0, np.nan, 0.5, -0.25, 2.0**-24, -(2.0**-24), 0.3, 0.1]
        y = np.concatenate([rng.uniform(1.75, 2.5, 4001), 2.0 + np.arange(-1, 7) * np.finfo(dtype).epsneg]).astype(dtype)
        x = np.concatenate([rng.uniform(-0.25, 0.5, 4001), near]).astype(dtype)
        text = KERNEL.format(t=name, what="div_in_range %a, %b", root="")
        emitted = emit(parse_module(text).functions[0], "k", Target(64, cpu=CPU)).text
        assert "rcp14" in emitted and "fpclass" not in emitted and "fdiv" not in emitted
        result = np.zeros_like(x)
        slots = np.array([x.ctypes.data, y.ctypes.data, result.ctypes.data, x.size], np.int64)
        address = engine().load(emitted, symbols=["k"])["k"]
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)(slots.ctypes.data) == 0
        assert np.array_equal(result, x / y, equal_nan=True)


def test_processors_are_known_by_their_features() -> None:
    """A hypervisor may give a processor an older model's name, or one that LLVM does not know."""
    wide = "+avx512f,+avx512dq,+avx512vl"
    assert core("rocketlake", f"{wide},+avx512fp16,+amx-tile") == "sapphirerapids"
    assert core("rocketlake", wide) == "rocketlake"
    assert core("graniterapids", f"{wide},+avx512fp16") == "graniterapids"
    assert core("x86-64", wide) == "icelake-server"
    assert core("znver5", f"{wide},+sse4a") == "znver5"
    assert core("znver6", f"{wide},+avx512fp16,+sse4a") == "znver6"
    assert core("haswell", "+avx2,-avx512f") == "haswell"
    assert core("x86-64-v4", "") == "x86-64-v4"


def test_divisions_count_in_phases_of_slow_dividers() -> None:
    """A body is cut into more parts for a processor with a slow divider."""
    lines = [f"    %c{k}: f64[] = {'add' if k % 4 else 'div'} %c{k - 1}, %b" for k in range(1, 130)]
    text = KERNEL.format(t="f64", what="add %a, %b", root="").replace("%c:", "%c0:")
    text = text.replace("    store %c,", "\n".join([*lines, "    store %c129,"]))
    function = parse_module(text).functions[0]
    cut = {cpu: [i.op.name for i in walk(schedule(function, cpu).body)].count("for") for cpu in ("", "znver5", CPU)}
    assert 1 < cut[""] == cut["znver5"] < cut[CPU]
    x, y = np.random.default_rng(5).uniform(1, 2, (2, 1001))
    result = []
    for cpu in ("znver5", CPU):
        out = np.empty_like(x)
        address = engine().load(emit(schedule(function, cpu), "k", Target(64, cpu=cpu)).text, symbols=["k"])["k"]
        slots = np.array([x.ctypes.data, y.ctypes.data, out.ctypes.data, x.size], np.int64)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)(slots.ctypes.data) == 0
        result.append(out)
    assert np.array_equal(*result) and math.isfinite(result[0].sum())
