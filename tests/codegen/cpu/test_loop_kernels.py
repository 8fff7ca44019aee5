"""Kernels that loops launch: one that is launched elsewhere too becomes two, and shorter loops are shared out."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.analysis.loop_kernels import kernels_in_loops, repeated
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.program import launch
from pullback.ir.text import parse_function
from pullback.ir.verify import verify_module
from tests.support.targets import compiled

TEXT = """pullback-ir 2
func f(%x: f64[n], %xs: f64[m,n], %c: i64[]) -> (f64[n], f64[m,n], f64[n]) {
  %0: f64[n] = sin %x
  %1: f64[m,n] = scan %xs {carried=0, length=[m], reverse=false, sliced=1} (%i: i64[], %h: f64[n]) {
    %2: f64[n] = sin %h
    yield %2
  }
  %3: f64[n] = switch %c, %0 (%4: f64[n]) {
    %5: f64[n] = cos %4
    yield %5
  } (%6: f64[n]) {
    yield %6
  }
  return %0, %1, %3
}"""
KERNEL = """pullback-ir 2
kernel k(%x: &f64[32768], %y: &f64[32768]) -> () {
  %n: i64[] = const {value=32768}
  for %n {PARAMS} (%i: i64[]) {
    %0: f64[] = load %x, %i
    %1: f64[] = exp %0
    store %1, %y, %i
    yield
  }
  return
}"""


def test_a_kernel_inside_and_outside_becomes_two() -> None:
    lowered = compiled(parse_function(TEXT)).lowered
    assert len(lowered.functions) == 3
    result = repeated(lowered)
    verify_module(result)
    program, *kernels = result.functions
    assert [k.name for k in kernels] == ["k0_again", "k0", "k1"]
    assert kernels_in_loops(program) == {"k0_again"}
    assert [i.params["kernel"] for i in program.instructions if i.op is launch] == ["k0"]
    for kernel in kernels:
        marked = [i.params.get("hot", False) for i in kernel.instructions if isinstance(i.op, For)]
        assert marked == [kernel.name == "k0_again"]


def test_a_program_without_loops_stays() -> None:
    text = "pullback-ir 2\nfunc f(%x: f64[n]) -> (f64[n]) {\n  %0: f64[n] = sin %x\n  return %0\n}"
    lowered = compiled(parse_function(text)).lowered
    assert repeated(lowered) is lowered


@pytest.mark.parametrize(("params", "count"), [("{}", 0), ("{hot=true}", 1)])
def test_a_loop_that_runs_often_is_shared_out_sooner(params: str, count: int) -> None:
    built = schedule(parse_function(KERNEL.replace("{PARAMS}", params if params != "{}" else "")))
    loops = [i for i in walk(built.body) if isinstance(i.op, For)]
    assert sum(i.params.get("map") == "core" for i in loops) == count
    assert not any("hot" in i.params for i in loops[count:])


def test_the_same_bits_for_any_number_of_threads() -> None:
    x = np.random.default_rng(1).normal(size=(40, 300))

    def f(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def body(h: np.ndarray, _: None) -> tuple[np.ndarray, np.ndarray]:
            h = np.sin(h) * np.exp(-h * h) + np.tanh(x)
            return h, np.sum(h * h)

        return pb.scan(body, x, None, length=4)

    compiled_f, before = pb.jit(f), pb.get_num_threads()
    try:
        result = []
        for threads in (1, 2):
            pb.set_num_threads(threads)
            result.append(compiled_f(x))
    finally:
        pb.set_num_threads(before)
    for one, two in zip(*result, strict=True):
        np.testing.assert_array_equal(one, two)
