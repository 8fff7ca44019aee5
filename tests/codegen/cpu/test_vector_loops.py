"""Vector loops: lengths around the vectors that an iteration takes, elements at any address, and stores past the caches."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cpu.llvm import streaming as llvm_streaming
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function
from pullback.ir.core.types import DTYPES, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.text import parse_module
from pullback.ir.verify import verify_module
from pullback.runtime.program.executable import parts_of
from tests.support.matmul.kernels import MACHINES, compiled_product
from tests.support.op_cases import sample
from tests.support.targets import assert_close, compiled, layout_of, run_targets

LENGTHS = (0, 1, 3, 7, 8, 9, 15, 16, 31, 32, 33, 63, 64, 65, 127, 130, 259)


@pytest.fixture(params=["cached", "streamed"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the arrays are small or, as the code sees it, large."""
    if request.param == "streamed":
        monkeypatch.setattr(llvm_streaming, "LARGE_BYTES", 0)
    return str(request.param)


def light(dtype: str, *shape: int) -> Function:
    """A map, two sums and a maximum in one pass."""
    t = ArrayType(DTYPES[dtype], shape)
    b, axes = Builder(), tuple(range(len(shape)))
    x, y = Value(t, "x"), Value(t, "y")
    product = b.mul(x, y)
    results = [b.sub(product, x), b.sum(product, axes=axes), b.sum(y, axes=axes)]
    return b.function("f", [x, y], [*results, *([b.max(y, axes=axes)] if 0 not in shape else [])])


def check(function: Function, arguments: list[Any], note: object) -> None:
    results = run_targets(function, arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            assert_close(a, e, 0, note=f"{note} on {target}")


def dyadic(rng: np.random.Generator, t: ArrayType) -> Any:
    """Numbers whose sums are exact in any order."""
    array = sample(rng, t, (0.5, 1.5))
    return np.round(array * 2).astype(array.dtype) / 2 if t.dtype.is_float else array


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i64", "i32", "u8"])
def test_lengths(dtype: str, way: str) -> None:
    rng = np.random.default_rng(1)
    for n in LENGTHS if dtype != "f16" else LENGTHS[:-1]:
        t = ArrayType(DTYPES[dtype], (n,))
        check(light(dtype, n), [dyadic(rng, t), dyadic(rng, t)], n)


@pytest.mark.parametrize("shift", [0, 1, 3])
def test_layouts(shift: int, way: str) -> None:
    """Arrays at odd addresses, reversed ones, every other element, rows with gaps, overlapping ones."""
    rng = np.random.default_rng(2)
    whole = dyadic(rng, ArrayType(DTYPES["f32"], (40, 70)))
    line = whole.ravel()[shift:]
    check(light("f32", 600), [line[:600], line[5:605]], "overlapping")
    check(light("f32", 600), [line[600:0:-1], line[: 2 * 600 : 2]], "reversed")
    check(light("f32", 39, 65), [whole[1:, shift : shift + 65], whole[:39, :65]], "rows")
    check(light("f32", 65, 39), [whole[1:, shift : shift + 65].T, np.asfortranarray(whole[:39, :65]).T], "columns")


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_special_values(dtype: str, way: str) -> None:
    """NaN, infinities, zeros of both signs and subnormal numbers, anywhere in the vectors of an iteration."""
    t = ArrayType(DTYPES[dtype], (133,))
    tiny = np.finfo(t.dtype.numpy).smallest_subnormal
    for value in (np.nan, np.inf, -np.inf, -0.0, 0.0, tiny):
        x, y = np.full(133, -0.0, t.dtype.numpy), np.ones(133, t.dtype.numpy)
        x[::17], y[5::31] = value, value
        check(light(dtype, 133), [x, y], value)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda b, x: b.mul(x, x), True),
        (lambda b, x: b.sqrt(b.sort(x, axis=0)), False),
        (lambda b, x: b.erf(b.exp(x)), False),
    ],
    ids=["light", "in_place", "heavy"],
)
def test_what_is_streamed(make: Callable[[Builder, Value], Value], expected: bool) -> None:
    """Light loops write past the caches, to memory that they do not read."""
    b, x = Builder(), Value(ArrayType(DTYPES["f64"], (100,)), "x")
    function = b.function("f", [x], [make(b, x)])
    assert any("!nontemporal" in text for text in parts_of(compiled(function).scheduled)) == expected


@pytest.mark.parametrize("vector_bytes", [32, 64])
@pytest.mark.parametrize("reverse", [False, True])
def test_stores_to_a_line_come_one_after_the_other(vector_bytes: int, reverse: bool) -> None:
    b, x = Builder(), Value(ArrayType(DTYPES["f64"], (100,)), "x")
    scan = b.cumsum(x, axis=0, reverse=reverse)
    function = b.function("f", [x], [scan, b.mul(scan, scan)])
    for kernel in compiled(function).scheduled.functions[1:]:
        lines = emit(kernel, "k", Target(vector_bytes)).text.splitlines()
        together = [len(list(result)) for past, result in groupby(lines, lambda line: "!nontemporal" in line) if past]
        assert together and all(count * vector_bytes % 64 == 0 for count in together)


def test_rows_wait_once_for_what_went_past_the_caches(way: str) -> None:
    """Rows that are written past the caches, one after another: no loop waits for its stores, the function does at its end."""
    b, x = Builder(), Value(ArrayType(DTYPES["f64"], (70, 64)), "x")
    mean = b.div(b.sum(x, axes=(1,)), b.broadcast(b.const(64.0, DTYPES["f64"]), shape=(70,), axes=(0,)))
    function = b.function("f", [x], [b.sub(x, b.broadcast(mean, shape=(70, 64), axes=(1,)))])
    bodies = [body for text in parts_of(compiled(function).scheduled) for body in text.split("define ")[1:]]
    streaming = [body for body in bodies if "!nontemporal" in body]
    assert len(streaming) == 1
    _, fence, after = streaming[0].partition("fence")
    assert fence and "fence" not in after and after.count("br ") == 1 and "ret " in after
    check(function, [dyadic(np.random.default_rng(4), x.type)], way)


def test_alignment_does_not_change_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    t = ArrayType(DTYPES["f32"], (5000,))
    values = [sample(rng, t, (-1.0, 1.0)) for _ in range(2)]
    result = []
    for large in (0, 1 << 60):
        monkeypatch.setattr(llvm_streaming, "LARGE_BYTES", large)
        call = compiled(light("f32", 5000), [layout_of(v) for v in values])
        for shift in (0, 1, 2, 5):
            moved = [np.zeros(5016, np.float32)[shift : shift + 5000] for _ in values]
            for position, value in zip(moved, values, strict=True):
                position[:] = value
            result.append([np.asarray(r).tobytes() for r in call.run(moved)])
    assert all(f == result[0] for f in result)


ROWS = """pullback-ir 2

kernel k(%x: &f64[s0,s1], %out: &f64[s0]) -> () {
  %m: i64[] = extent {size=s0}
  %n: i64[] = extent {size=s1}
  %zero: f64[] = const {value=0.0}
  for %m (%i: i64[]) {
    %0: f64[] = for %n, %zero {combine=[add]MOST} (%j: i64[]) {
      %1: f64[] = load %x, %i, %j
      yield %1
    }
    store %0, %out, %i
    yield
  }
  return
}
"""


@pytest.mark.parametrize("machine", ["AVX-512", "AVX2", "SSE"])
def test_sums_of_loops_that_are_known_to_be_short_have_one_tier(machine: str) -> None:
    """Up to 64 vectors; a longer chain of additions would lose digits."""
    most = 64 * MACHINES[machine].vector_bytes // 8
    rng = np.random.default_rng(5)
    for count, tiers in ((None, True), (most, False), (most + 1, True)):
        text = ROWS.replace("MOST", "" if count is None else f", max_trip_count={count}")
        target = MACHINES[machine]
        (kernel,) = verify_module(parse_module(text)).functions
        assert ("tier" in emit(schedule(kernel, target.cpu, target), "k", target).text) == tiers
        built = compiled_product(text, machine)
        for n in (0, 1, 7, 33, most):
            x, out = dyadic(rng, ArrayType(DTYPES["f64"], (5, n))), np.full(5, np.nan)
            assert built([x, out], [5, n]) == 0
            np.testing.assert_array_equal(out, x.sum(axis=1))
