"""Code that hardly ever runs is a module of its own, which all kernels call that need it."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir.text import parse_function
from pullback.runtime.program.executable import emit_kernel, shared_with

Array = Any

KERNEL = """pullback-ir 2

kernel f(%x: &f64[s0], %out: &f64[s0]) -> () {
  %0: i64[] = extent {size=s0}
  for %0 (%i: i64[]) {
    %1: f64[] = load %x, %i
    %2: f64[] = FUNCTION %1
    store %2, %out, %i
    yield
  }
  return
}
"""


def test_two_kernels_share_one_text() -> None:
    built = [emit_kernel(schedule(parse_function(KERNEL.replace("FUNCTION", name)))) for name in ("sin", "cos", "exp")]
    sin, cos, exp = (shared_with(emitted) for emitted in built)
    assert len(sin) == 1
    assert sin == cos
    assert not exp
    assert "define" not in built[0].text.partition("reduce_large")[2]


def test_each_width_has_its_own() -> None:
    kernel = schedule(parse_function(KERNEL.replace("FUNCTION", "sin")))
    texts = {bytes_: shared_with(emit(kernel, "f", Target(bytes_)))[0] for bytes_ in (16, 32, 64)}
    assert [f"<{bytes_ // 8} x double> %p0" in text for bytes_, text in texts.items()] == [True] * 3


def test_large_arguments_in_some_lanes() -> None:
    x = np.linspace(-3.0, 3.0, 1003)
    x[[0, 7, 500, 1002]] = 1e22, -(2.0**60), 1e300, np.inf
    with np.errstate(invalid="ignore"):
        for f in (np.sin, np.cos):
            np.testing.assert_allclose(pb.jit(lambda x, f=f: f(x) + 0.0 * x)(x), f(x) + 0.0 * x, rtol=1e-14)


def test_large_arguments_in_a_loop_of_the_program() -> None:
    """Whose kernels are functions of one module."""

    def f(x: Array) -> Array:
        return pb.fori_loop(0, 3, lambda i, y: 0.5 * y + np.sin(x * 1e12), x)

    x = np.linspace(0.5, 2.0, 37)
    expected = x
    for _ in range(3):
        expected = 0.5 * expected + np.sin(x * 1e12)
    np.testing.assert_allclose(pb.jit(f)(x), expected, rtol=1e-13, atol=1e-13)
