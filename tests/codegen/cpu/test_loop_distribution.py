"""Long vector loops cut into phases: the same numbers as in one loop, bit by bit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cpu.loops import distribute_loops
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Module
from pullback.ir.core.types import DTYPES, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module, print_module
from tests.support.targets import compiled, run_targets

SIZES = (0, 1, 63, 64, 65, 700)


def cut_often(monkeypatch: pytest.MonkeyPatch, window: int) -> None:
    """Bodies of six instructions are long, and cuts cost nothing."""
    for name, value in (("LONG", 6), ("WINDOW", window), ("L1_BYTES", 64), ("PHASE", 0.0), ("KEPT", 0.0)):
        monkeypatch.setattr(distribute_loops, name, value)


def price(n: int, dtype: str, is_summed: bool) -> Function:
    """Build nearly the price of options, with further results as a gradient has them, which use intermediates again."""
    t = ArrayType(DTYPES[dtype], (n,))
    spot, strike, years = (Value(t, name) for name in ("spot", "strike", "years"))
    b = Builder()
    root = b.sqrt(years)
    d = b.div(b.log(b.div(spot, strike)), root)
    value = b.sub(b.mul(spot, b.tanh(d)), b.mul(strike, b.mul(b.exp(b.neg(years)), b.tanh(b.sub(d, root)))))
    is_in = b.gt(value, b.zeros_like(value))
    results = [b.select(is_in, value, d), b.sqrt(b.add(d, value))]
    if is_summed:
        results += [b.sum(value, axes=(0,)), b.max(d, axes=(0,))] if n else [b.sum(value, axes=(0,))]
    return b.function("price", [spot, strike, years], results)


def arguments(n: int, dtype: str) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.uniform(0.5, 2.0, n).astype(dtype) for _ in range(3)]


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("window", [1, 5, 30])
def test_phases_change_no_bit(dtype: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in SIZES:
        function, inputs = price(n, dtype, False), arguments(n, f"float{dtype[1:]}")
        whole = compiled(function).run(inputs)
        with monkeypatch.context() as inner:
            cut_often(inner, window)
            parts = compiled(function)
            assert n == 0 or "local" in print_module(parts.scheduled)
            for a, e in zip(parts.run(inputs), whole, strict=True):
                assert np.array_equal(a, e, equal_nan=True)


@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_with_sums(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_often(monkeypatch, 5)
    for n in SIZES:
        results = run_targets(price(n, dtype, True), arguments(n, f"float{dtype[1:]}"))
        for a, e in zip(results["cpu"], results["interpreter"], strict=True):
            assert np.allclose(a, e, rtol=1e-12 if dtype == "f64" else 1e-4, atol=1e-5, equal_nan=True)


TEXT = """pullback-ir 2

kernel k(%x: &f64[s0], %y: &f64[s0]) -> () {
  %n: i64[] = extent {size=s0}
  for %n {map="vector"} (%i: i64[]) {
    %a: f64[] = load %x, %i
    %b: f64[] = sqrt %a
    %c: f64[] = mul %b, %b
    store %c, %x, %i
    %d: f64[] = add %c, %a
    %e: bool[] = lt %d, %b
    %f: f64[] = select %e, %d, %b
    %g: f64[] = sub %f, %a
    store %g, %y, %i
    yield
  }
  return
}
"""
"""Elements are written over before another phase reads them, and one phase makes a mask for another."""


def test_what_is_read_is_written_last(monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = parse_module(TEXT).functions
    cut_often(monkeypatch, 1)
    cut = schedule(kernel)
    text = print_module(Module((cut,)))
    assert text.count("map=vector") > 2 and "&bool" in text
    x = np.linspace(0.0, 4.0, 700)
    ways = []
    for k in (kernel, cut):
        a, y = x.copy(), np.zeros_like(x)
        interpret(k, a, y)
        ways.append((a, y))
    assert all(np.array_equal(a, b) for a, b in zip(*ways, strict=True))


def test_a_body_that_reads_what_it_wrote_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_often(monkeypatch, 1)
    text = TEXT.replace("    %d: f64[] = add %c, %a", "    %z: f64[] = load %x, %i\n    %d: f64[] = add %c, %z")
    (kernel,) = parse_module(text).functions
    assert "local" not in print_module(Module((schedule(kernel),)))


def test_a_body_with_nothing_in_memory_has_strips_too() -> None:
    """The strip length depends on the bytes per element; random schedules have produced bodies that use none."""
    body: Any = SimpleNamespace(region=SimpleNamespace(instructions=()), read={}, written={})
    assert distribute_loops._strip_length(body, 0) == distribute_loops.MOST_STRIP


RARE = """pullback-ir 2

kernel k(%x: &f64[s0], %y: &f64[s0]) -> () {
  cold_function {function=far} (%v: f64[], %w: f64[]) {
    %p: f64[] = sub %v, %w
    %q: f64[] = mul %v, %w
    yield %p, %q
  }
  %n: i64[] = extent {size=s0}
  %one: f64[] = const {value=1.0}
  for %n {map="vector"} (%i: i64[]) {
    %a: f64[] = load %x, %i
    %b: f64[] = sqrt %a
    %c: f64[] = mul %b, %a
    %far: bool[] = gt %a, %one
    %d: f64[], %e: f64[] = cold_call %far, %b, %c, %a, %c {defaults=2, function=far}
    %f: f64[] = add %d, %b
    %g: f64[] = mul %f, %e
    store %g, %y, %i
    yield
  }
  return
}
"""
"""The condition, what is usual and what rare code reads are of other phases, as is one of its two results."""


@pytest.mark.parametrize("reach", [0.5, 4.0])
def test_rare_code_is_in_a_phase(reach: float, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = parse_module(RARE).functions
    cut_often(monkeypatch, 1)
    cut = schedule(kernel)
    text = print_module(Module((cut,)))
    assert text.count("map=vector") > 2 and text.count(" = cold_call ") == 1 and "&bool" in text
    x = np.linspace(0.0, reach, 700)
    whole, parts = np.zeros_like(x), np.zeros_like(x)
    interpret(kernel, x, whole)
    interpret(cut, x, parts)
    assert np.array_equal(whole, parts) and np.count_nonzero(whole) == 699


def rare_everywhere(n: int, dtype: str) -> Function:
    """Derivatives of tanh, whose rare code is short, and sines, whose rare code is called."""
    t = ArrayType(DTYPES[dtype], (n,))
    x, y = (Value(t, name) for name in ("x", "y"))
    b = Builder()
    slope, wave = b.sech2(x), b.sin(y)
    return b.function("f", [x, y], [b.mul(slope, b.tanh(x)), b.add(wave, slope), b.cos(b.mul(wave, y))])


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("window", [1, 30])
def test_rare_code_in_phases_changes_no_bit(dtype: str, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are usual ones, some unusual ones such as NaN and infinities, and unusual ones alone."""
    kind, far = f"float{dtype[1:]}", 360.0 if dtype == "f64" else 45.0
    for n in SIZES:
        near = np.linspace(-3.0, 3.0, n)
        mixed = np.where(np.arange(n) % 9 == 4, far + near, near)
        mixed[::50], mixed[1::50], mixed[2::50] = np.nan, np.inf, -0.0
        cases = [[v.astype(kind), (v * 1e9).astype(kind)] for v in (near, mixed, far + near)]
        function = rare_everywhere(n, dtype)
        whole = [compiled(function).run(arguments) for arguments in cases]
        with monkeypatch.context() as inner:
            cut_often(inner, window)
            parts = compiled(function)
            assert n == 0 or (" = cold_call " in print_module(parts.scheduled) and "local" in print_module(parts.scheduled))
            for arguments, wanted in zip(cases, whole, strict=True):
                for a, e in zip(parts.run(arguments), wanted, strict=True):
                    assert np.array_equal(a, e, equal_nan=True)
                    assert np.array_equal(np.signbit(a) & ~np.isnan(a), np.signbit(e) & ~np.isnan(e))


def test_a_long_body_with_a_derivative_of_tanh_is_cut() -> None:
    """The limits are the default ones, while the other tests cut more often."""
    b, x = Builder(), Value(ArrayType(DTYPES["f64"], (700,)), "x")
    y = b.tanh(x)
    kernel = b.function("f", [x], [b.mul(b.sech2(x), b.exp(b.log(b.expit(b.neg(y))))), y])
    assert "strip" in print_module(compiled(kernel).scheduled)


def test_short_bodies_stay_whole() -> None:
    (kernel,) = parse_module(TEXT).functions
    assert "local" not in print_module(Module((schedule(kernel),)))


def test_phases_ask_for_the_next_strip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each element that is read or written is prefetched once, except elements whose index is read from memory, which may end
    earlier, and elements guarded by a condition."""
    cut_often(monkeypatch, 1)
    text = TEXT.replace("%y: &f64[s0])", "%y: &f64[s0], %p: &i64[s0])")
    text = text.replace("    %a: f64[] = load %x, %i", "    %j: i64[] = load %p, %i\n    %a: f64[] = load %y, %j")
    guarded = TEXT.replace("%y: &f64[s0])", "%y: &f64[s0], %q: &f64[s0])")
    guarded = guarded.replace("    %a: f64[] = load %x, %i", "    %t: bool[] = lt %i, %n\n    %a: f64[] = load_if %q, %t, %i")
    asked = []
    for source in (TEXT, text, guarded):
        (kernel,) = parse_module(source).functions
        cut = print_module(Module((schedule(kernel),)))
        asked.append(sorted(line.split()[1].strip("%,") for line in cut.splitlines() if "prefetch" in line))
    assert asked == [["x", "y"], ["p", "x", "y"], ["x", "y"]]
