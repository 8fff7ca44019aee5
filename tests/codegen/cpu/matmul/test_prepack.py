"""Operands of products in loops that are packed before: where, what for, and that results are those of other products."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.analysis.loop_kernels import repeated
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.matmul.prepack.kernels import Prepacked
from pullback.codegen.cpu.matmul.prepack.prepack import packs, prepacked
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir import Module
from pullback.ir.core.structure import walk
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.kernel.functions import split_functions
from pullback.ir.ops.program import Launch
from pullback.ir.text import parse_module, print_module
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.threads import threads
from tests.codegen.cpu.matmul import test_subnormals as subnormal
from tests.support.matmul.kernels import MACHINES, Compiled, fenced
from tests.support.paths import GOLDEN
from tests.support.targets import checked

SCHEDULED = GOLDEN / "matmul" / "scheduled" / "prepacked.ir"
WIDE = MACHINES["AVX-512"]
BOTH = """pullback-ir 2

func f(%h: f64[m,k], %w: f64[k,k], %x: f64[t,m,k]) -> (f64[m,k]) {
  %0: f64[m,k] = scan %h, %x, %w {carried=1, length=[t], reverse=false, sliced=1} (%i: i64[], %a: f64[m,k], %b: f64[m,k], %c: f64[k,k]) {
    %1: f64[m,k] = contract %a, %c {spec="ik,kj->ij"}
    %2: f64[m,k] = add %1, %b
    %3: f64[m,k] = contract %2, %c {spec="ij,kj->ik"}
    yield %3
  }
  return %0
}
"""  # noqa: E501


def packed_module(text: str, machine: Any = WIDE) -> Module:
    (function,) = parse_module(text).functions
    return checked(prepacked(repeated(lower(fuse(function))), machine))


def test_text(bless: bool) -> None:
    program, *kernels = packed_module(BOTH).functions
    result = print_module(Module((program, *(split_functions(kernel)[0] for kernel in kernels))))
    if bless:
        SCHEDULED.write_text(result)
    assert result == SCHEDULED.read_text()


GEMM = """pullback-ir 2

kernel k(%x: &f64[s0,s1], %w: &f64[s1,s2], %out: &f64[s0,s2]) -> () {
  gemm %x, %w, %out {transpose_a=false, transpose_b=false}
  return
}
"""


@functools.cache
def kernels_for(dtype: str, machine: str, is_turned: bool) -> tuple[Prepacked, Compiled, Compiled]:
    """The kernels that pack and multiply, compiled for a machine."""
    target = MACHINES[machine]
    of = Prepacked(DTYPES[dtype], target)
    (plain,) = parse_module(GEMM.replace("f64", dtype)).functions
    built = []
    for kernel in (of.pack("k", is_turned), of.multiply("k", plain, 3)):
        emitted = emit(schedule(kernel, target.cpu, target), "k", target)
        built.append(Compiled(default_engine().load(emitted.text, symbols=["k"])["k"], emitted.slots, kernel))
    return of, *built


def multiply(x: Any, w: Any, machine: str, is_turned: bool = False) -> Any:
    of, pack, product = kernels_for(f"f{x.itemsize * 8}", machine, is_turned)
    (m, k), n = x.shape, w.shape[1]
    panels, known = (np.full(shape, 77, dtype.numpy) for dtype, shape in of.buffers(k, n))
    stored = fenced(np.ascontiguousarray(w.T) if is_turned else w)
    assert pack([stored, panels, known], [k, n, m, *panels.shape]) == 0
    out = fenced(np.full((m, n), 99, x.dtype))
    assert product([fenced(x), w, out, panels, known], [m, k, n, *panels.shape]) == 0
    return out


@pytest.mark.parametrize("machine", ["AVX-512", "AVX2"])
@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_extents(dtype: Any, is_turned: bool, machine: str) -> None:
    rng = np.random.default_rng(4)
    for m, k, n in ((4, 7, 5), (5, 1, 33), (7, 30, 16), (9, 0, 20), (13, 40, 70), (16, 515, 37), (29, 3, 100), (70, 50, 64)):
        x, w = rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(k, n)).astype(dtype)
        exact, size = x.astype(np.longdouble) @ w.astype(np.longdouble), np.abs(x) @ np.abs(w)
        assert (np.abs(multiply(x, w, machine, is_turned) - exact) <= (k + 4) * np.finfo(dtype).eps * size).all(), (m, k, n)


@pytest.mark.parametrize("machine", ["AVX-512", "AVX2"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", subnormal.CASES, ids=lambda case: str(case.__name__))
def test_subnormal_operands(case: Any, dtype: Any, machine: str) -> None:
    x, w = subnormal.plain(dtype)
    case(x, w)
    subnormal.agree(multiply(x, w, machine), x, w)


def test_threads_change_no_bits() -> None:
    before = threads.get_num_threads()
    try:
        for m, k, n in ((64, 128, 512), (13, 300, 700), (35, 520, 200)):
            rng = np.random.default_rng(m)
            x, w = rng.normal(size=(m, k)), rng.normal(size=(k, n))
            x[3:9], w[:, 40:60] = subnormal.small(np.float64, (6, k)), subnormal.small(np.float64, (k, 20))
            result = []
            for count in (1, 2, 3, 7):
                threads.set_num_threads(count)
                result.append(multiply(x, w, "AVX-512").tobytes())
            assert len(set(result)) == 1, (m, k, n)
    finally:
        threads.set_num_threads(before)


def steps_of(text: str) -> list[bool]:
    """Return, for each launch of a program in order, whether it packs."""
    return [packs(i) for i in walk(packed_module(text).functions[0].body) if isinstance(i.op, Launch)]


def test_one_operand_is_packed_once() -> None:
    text = BOTH.replace('%2, %c {spec="ij,kj->ik"}', '%2, %c {spec="ik,kj->ij"}')
    assert sum(steps_of(text)) == 1 and sum(steps_of(BOTH)) == 2


def test_what_a_loop_writes_is_not_packed() -> None:
    assert not any(steps_of(WRITTEN))


WRITTEN = """pullback-ir 2

func f(%h: f64[m,k], %w: f64[k,k], %x: f64[t,k,k]) -> (f64[m,k], f64[k,k]) {
  %0: f64[m,k], %1: f64[k,k] = scan %h, %w, %x {carried=2, length=[t], reverse=false, sliced=1} (%i: i64[], %a: f64[m,k], %c: f64[k,k], %b: f64[k,k]) {
    %2: f64[m,k] = contract %a, %c {spec="ik,kj->ij"}
    %3: f64[k,k] = add %c, %b
    yield %2, %3
  }
  return %0, %1
}
"""  # noqa: E501


def nested(ws: Any, h: Any, n: Any) -> Any:
    """Each layer has a matrix for all of its steps; steps choose between a product and none."""

    def layer(h: Any, w: Any) -> Any:
        def step(h: Any, t: Any) -> Any:
            return pb.cond(t % 2 == 0, lambda h: np.tanh(h @ w), lambda h: h + 1.0, h), None

        return pb.scan(step, h, n)[0], None

    return pb.scan(layer, h, ws)[0]


def nested_by_hand(ws: Any, h: Any, n: Any) -> Any:
    for w in ws:
        for t in n:
            h = np.tanh(h @ w) if t % 2 == 0 else h + 1.0
    return h


def until(w: Any, h: Any) -> Any:
    return pb.while_loop(lambda s: np.sum(s * s) < 1e6, lambda s: s @ w.T + s, h)


def until_by_hand(w: Any, h: Any) -> Any:
    while np.sum(h * h) < 1e6:
        h = h @ w.T + h
    return h


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("layers", [0, 1, 3])
def test_nested_loops(layers: int, steps: int) -> None:
    rng = np.random.default_rng(layers)
    ws, h = rng.normal(size=(layers, 20, 20)) / 4, rng.normal(size=(6, 20))
    result = pb.jit(nested)(ws, h, np.arange(steps))
    np.testing.assert_allclose(result, nested_by_hand(ws, h, np.arange(steps)), rtol=1e-12, atol=1e-13)


def test_loops_of_unknown_length() -> None:
    rng = np.random.default_rng(8)
    w, h = rng.normal(size=(20, 20)) / 4, rng.normal(size=(6, 20))
    f: Callable[..., Any] = pb.jit(until)
    np.testing.assert_allclose(f(w, h), until_by_hand(w, h), rtol=1e-12)
    np.testing.assert_allclose(f(w, 1e9 * h), 1e9 * h)


def recurrent(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(h @ w + x)
        return h, np.sum(h * h)

    return np.sum(pb.scan(step, h, xs)[1])


def test_derivatives() -> None:
    """Gradients and products with the second derivative agree with finite differences."""
    rng = np.random.default_rng(3)
    w, h, xs, v = (rng.normal(size=s) / 3 for s in ((7, 7), (5, 7), (4, 5, 7), (7, 7)))
    gradient = pb.jit(pb.grad(recurrent))
    value = pb.jit(recurrent)
    e = 1e-6
    along = (value(w + e * v, h, xs) - value(w - e * v, h, xs)) / (2 * e)
    np.testing.assert_allclose(np.sum(gradient(w, h, xs) * v), along, rtol=1e-7)
    second = pb.jit(pb.grad(lambda w: np.sum(gradient(w, h, xs) * v)))(w)
    across = (gradient(w + e * v, h, xs) - gradient(w - e * v, h, xs)) / (2 * e)
    np.testing.assert_allclose(second, across, rtol=1e-5, atol=1e-7)
