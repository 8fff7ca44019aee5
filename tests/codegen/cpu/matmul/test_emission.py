"""Emitted code of matrix products: whole vectors, conditions inside vector loops, stores transposed in registers,
and scratch that a kernel allocates."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir import Module
from pullback.ir.text import parse_module
from pullback.ir.verify import verify
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.memory import kernel_scratch
from pullback.runtime.program.executable import Executable
from tests.support.matmul.kernels import Compiled, compiled_product, fenced, product_text

WIDE = [Target(64), Target(32)]
WHOLE = """pullback-ir 2

kernel k(%x: &f32[s0], %out: &f32[s0]) -> () {
  %n: i64[] = extent {size=s0}
  for %n {map=vector, multiple=16} (%i: i64[]) {
    %0: f32[] = load %x, %i
    %c: i64[] = const {value=40}
    %1: f32[] = for %c, %0 {map=serial} (%p: i64[], %a: f32[]) {
      %2: f32[] = add %a, %0
      yield %2
    }
    store %1, %out, %i
    yield
  }
  return
}
"""
BRANCH = """pullback-ir 2

kernel k(%x: &f32[s0], %out: &f32[s0]) -> () {
  %n: i64[] = extent {size=s0}
  %c: i64[] = const {value=20}
  %large: bool[] = gt %n, %c
  for %n {map=vector} (%i: i64[]) {
    %0: f32[] = load %x, %i
    %1: f32[] = mul %0, %0
    store %0, %out, %i
    if %large () {
      store %1, %out, %i
      yield
    }
    yield
  }
  return
}
"""
TURNED = """pullback-ir 2

kernel k(%x: &T[4,s0], %out: &T[s0,7]) -> () {
  %n: i64[] = extent {size=s0}
  %c0: i64[] = const {value=0}
  %c1: i64[] = const {value=1}
  %c2: i64[] = const {value=2}
  %c3: i64[] = const {value=3}
  %g: i64[] = extent {size=1}
  for %n {map=vector} (%i: i64[]) {
    %0: T[] = load %x, %c0, %i
    %1: T[] = load %x, %c1, %i
    %2: T[] = load %x, %c2, %i
    %3: T[] = load %x, %c3, %i
    %5: i64[] = add %g, %c1
    %6: i64[] = add %g, %c2
    %7: i64[] = add %g, %c3
    store %0, %out, %i, %g
    store %1, %out, %i, %5
    store %2, %out, %i, %6
    store %3, %out, %i, %7
    yield
  }
  return
}
"""

PARTS = """pullback-ir 2

kernel k(%x: &T[s0,2], %out: &T[2]) -> () {
  %n: i64[] = extent {size=s0}
  %c0: i64[] = const {value=0}
  %c1: i64[] = const {value=1}
  %z: T[] = const {value=0.0}
  %re: T[], %im: T[] = for %n, %z, %z {combine=[add, add], map=vector} (%i: i64[]) {
    %0: T[] = load %x, %i, %c0
    %1: T[] = load %x, %i, %c1
    yield %0, %1
  }
  store %re, %out, %c0
  store %im, %out, %c1
  return
}
"""

EACH = """pullback-ir 2

kernel k(%x: &T[s0], %out: &T[2,s1]) -> () {
  %n: i64[] = extent {size=s1}
  %c0: i64[] = const {value=0}
  %c1: i64[] = const {value=1}
  %c2: i64[] = const {value=2}
  %c3: i64[] = const {value=3}
  for %n {map=vector, multiple=16} (%i: i64[]) {
    %0: i64[] = bitand %i, %c3
    %1: i64[] = add %0, %c1
    %2: i64[] = raw_shr %i, %c2
    %3: T[] = load %x, %1
    %4: T[] = load %x, %2
    store %3, %out, %c0, %i
    store %4, %out, %c1, %i
    yield
  }
  return
}
"""


def compiled(text: str, target: Target) -> tuple[Compiled, str]:
    (kernel,) = parse_module(text).functions
    verify(kernel)
    emitted = emit(kernel, "k", target)
    return Compiled(default_engine().load(emitted.text, symbols=["k"])["k"], emitted.slots, kernel), emitted.text


@pytest.mark.parametrize("target", WIDE, ids=str)
def test_whole_vectors_have_no_masks(target: Target) -> None:
    kernel, text = compiled(WHOLE, target)
    assert "masked" not in text and "icmp slt <" not in text
    x = np.arange(48, dtype=np.float32)
    out = np.zeros_like(x)
    assert kernel([fenced(x), out], [48]) == 0
    np.testing.assert_array_equal(out, x * 41)


@pytest.mark.parametrize("target", WIDE, ids=str)
@pytest.mark.parametrize("count", [3, 20, 21, 70])
def test_a_condition_that_is_one_for_all_lanes(target: Target, count: int) -> None:
    kernel, _ = compiled(BRANCH, target)
    x = np.arange(count, dtype=np.float32)
    out = np.zeros_like(x)
    assert kernel([fenced(x), out], [count]) == 0
    np.testing.assert_array_equal(out, x * x if count > 20 else x)


@pytest.mark.parametrize("target", WIDE, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_stores_side_by_side_are_turned_in_registers(target: Target, dtype: str) -> None:
    kernel, text = compiled(TURNED.replace("T[", f"{dtype}[").replace("&T", f"&{dtype}"), target)
    body, _, rest = text.partition("define ")[2].partition("icmp slt <")
    assert "store <4 x " in body and "scatter" not in body and "scatter" in rest
    for count in (1, 7, 16, 37):
        x = np.random.default_rng(count).normal(size=(4, count)).astype("f4" if dtype == "f32" else "f8")
        out = fenced(np.full((count, 7), -1, x.dtype))
        assert kernel([fenced(x), out], [count]) == 0
        np.testing.assert_array_equal(out[:, 1:5], x.T)
        assert (out[:, [0, 5, 6]] == -1).all()


@pytest.mark.parametrize("target", WIDE, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("is_whole", [True, False])
def test_lanes_that_repeat_or_share_elements_are_no_gathers(target: Target, dtype: str, is_whole: bool) -> None:
    """Each vector loads as much as its lanes have among them, and not more."""
    text = EACH if is_whole else EACH.replace(", multiple=16", "")
    kernel, result = compiled(text.replace("T[", f"{dtype}[").replace("&T", f"&{dtype}"), target)
    assert not is_whole or "gather" not in result
    for count in (16, 32, 48) if is_whole else (1, 18, 37):
        x = np.random.default_rng(count).normal(size=max(5, -(-count // 4))).astype("f4" if dtype == "f32" else "f8")
        out = fenced(np.zeros((2, count), x.dtype))
        assert kernel([fenced(x), out], [len(x), count]) == 0
        np.testing.assert_array_equal(out, [x[np.arange(count) % 4 + 1], x[np.arange(count) // 4]])


@pytest.mark.parametrize("target", WIDE, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_both_parts_of_complex_numbers_are_read_by_the_same_loads(dtype: str, target: Target) -> None:
    kernel, result = compiled(PARTS.replace("T[", f"{dtype}[").replace("&T", f"&{dtype}"), target)
    assert "gather" not in result
    for count in range(40):
        x = np.random.default_rng(count).normal(size=(count, 2)).astype("f4" if dtype == "f32" else "f8")
        out = fenced(np.zeros(2, x.dtype))
        assert kernel([fenced(x), out], [count]) == 0
        np.testing.assert_allclose(out, x.sum(axis=0, dtype=np.float64), rtol=1e-5, atol=1e-5)


def test_memory_of_a_kernels_own_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    held: dict[int, Any] = {}
    taken: list[int] = []

    def take_some(state: int, size: int) -> int:
        block = ctypes.create_string_buffer(size)
        held[ctypes.addressof(block)] = block
        taken.append(size)
        return ctypes.addressof(block)

    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(take_some)
    give = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(lambda *given: held.pop(given[1]) and None)
    result = {name: ctypes.cast(f, ctypes.c_void_p).value for name, f in (("take", take), ("give", give))}
    monkeypatch.setattr(kernel_scratch, "addresses", lambda: {"state": 0, **result})
    x, w = (np.ones((40, 40), np.float32) for _ in range(2))
    out = np.zeros_like(x)
    assert compiled_product(product_text("f32"), "AVX-512")([x, w, out], [40, 40, 40]) == 0
    assert taken and not held and (out == 40).all()
    assert max(taken) < 1 << 20, "a small product takes little"


def test_a_call_without_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(lambda state, size: None)
    arguments = ctypes.cast(take, ctypes.c_void_p).value
    text = product_text("f64").replace("kernel k(", "kernel k0(")
    program = """pullback-ir 2

program f(%x: &f64[m,k], %w: &f64[k,n]) -> (&f64[m,n]) {
  %out: &f64[m,n] = alloc
  launch %x, %w, %out {kernel=k0, sizes=[m,k,n]}
  return %out
}
"""
    result, *kernels = parse_module(program + text.partition("\n")[2]).functions
    scheduled = Module((result, *map(schedule, kernels)))
    executable = Executable(scheduled)
    x = np.ones((3, 3))
    with monkeypatch.context() as patch:
        patch.setattr(kernel_scratch, "addresses", lambda: {"state": 0, "take": arguments, "give": 0})
        with pytest.raises(MemoryError, match="no memory"):
            executable.run([x, x], {"m": 3, "k": 3, "n": 3})
    assert (Executable(scheduled).run([x, x], {"m": 3, "k": 3, "n": 3})[0] == 3).all()


def test_a_loop_without_memory_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed allocation in a step of a loop raises MemoryError."""
    take = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(lambda state, size: None)
    arguments = ctypes.cast(take, ctypes.c_void_p).value

    def powers(x: Any, w: Any, count: int) -> Any:
        return pb.fori_loop(0, count, lambda _, x: np.maximum(x @ w, 0), x)

    x, w = np.ones((3, 40, 200)), np.tile(np.eye(200), (3, 1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(kernel_scratch, "addresses", lambda: {"state": 0, "take": arguments, "give": 0})
        with pytest.raises(MemoryError, match="no memory"):
            pb.jit(lambda x, w: powers(x, w, 3))(x, w)
    np.testing.assert_array_equal(pb.jit(lambda x, w: powers(x, w, 2))(x, w), x)
