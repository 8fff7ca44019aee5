"""Components of short rows, such as channels: whole vectors are loaded and stored, and shuffled; values are NumPy's."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.targets import Target
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.text import parse_function
from tests.support.targets import compiled

COUNTS = (2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 30)
LENGTHS = (0, 1, 2, 7, 8, 9, 16, 31, 33, 70)


def some(dtype: str, *shape: int) -> Any:
    """Small integers of any dtype."""
    return np.random.default_rng(1).integers(0, 2 if dtype == "bool" else 9, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("count", COUNTS)
def test_components(count: int, dtype: str) -> None:
    """Components are read in another order than they are stored, and the last row ends where the array ends."""

    def shuffled(x: Any) -> Any:
        parts = [x[..., k] for k in range(count)]
        return np.stack([parts[k * 3 % count] if count % 3 else parts[-k] for k in range(count)], -1), parts[0] == parts[-1]

    f = pb.jit(shuffled)
    for n in LENGTHS:
        x = some(dtype, n, count)
        for result, wanted in zip(f(x), shuffled(x), strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("shape", [(9, 2, 2), (33, 2, 3), (5, 17, 3, 2), (8, 2, 2, 2), (0, 2, 2)])
def test_rows_of_several_axes(shape: tuple[int, ...]) -> None:
    def f(a: Any) -> Any:
        return a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]

    a = some("float64", *shape)
    np.testing.assert_array_equal(pb.jit(f)(a), f(a))


def test_rows_that_a_condition_guards() -> None:
    def f(x: Any, y: Any) -> Any:
        return np.concatenate([x[:, 0] + x[:, 2], y[:, 1] * y[:, 0]])

    x, y = some("float64", 35, 3), some("float64", 21, 3)
    np.testing.assert_array_equal(pb.jit(f)(x, y), f(x, y))


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("count", [2, 3, 4, 6])
def test_no_gathers(vector_bytes: int, count: int) -> None:
    """Nothing is gathered or scattered, and each vector of a row is loaded once."""
    joined = "\n".join(
        f"  %a{k}: f32[41,1] = slice %x {{start=[none, {k}], step=[1, 1]}}\n  %s{k}: f32[41] = squeeze %a{k} {{axes=[1]}}\n"
        f"  %n{k}: f32[41] = neg %s{k}\n  %b{k}: f32[41,1] = broadcast %n{k} {{axes=[1]}}"
        for k in range(count)
    )
    text = f"""pullback-ir 2
func f(%x: f32[41,{count}]) -> (f32[41,{count}]) {{
{joined}
  %r: f32[41,{count}] = concat {", ".join(f"%b{count - 1 - k}" for k in range(count))} {{axis=1, starts={[*range(count)]}}}
  return %r
}}"""
    built = compiled(parse_function(text))
    x = some("float32", 41, count)
    np.testing.assert_array_equal(built.run([x])[0], -x[:, ::-1])
    (kernel,) = built.scheduled.functions[1:]
    code = emit(kernel, "k", Target(vector_bytes)).text
    assert not re.search("gather|scatter", code.replace("declare", ""))


def test_axes_before_rows_are_one_loop() -> None:
    """Components of rows with several axes before them are read and stored in one loop over all rows."""
    text = """pullback-ir 2
func f(%x: f64[50,40,3]) -> (f64[50,40,2], f64[]) {
  %0: f64[50,40,1] = slice %x {start=[none, none, 2], step=[1, 1, 1]}
  %1: f64[50,40] = squeeze %0 {axes=[2]}
  %2: f64[50,40,1] = slice %x {start=[none, none, 1], step=[1, 1, 1]}
  %3: f64[50,40] = squeeze %2 {axes=[2]}
  %4: f64[50,40] = mul %1, %3
  %5: f64[50,40,1] = broadcast %4 {axes=[2]}
  %6: f64[50,40,1] = broadcast %1 {axes=[2]}
  %7: f64[50,40,2] = concat %5, %6 {axis=2, starts=[0, 1]}
  %8: f64[] = max %4 {axes=[0, 1]}
  return %7, %8
}"""
    built = compiled(parse_function(text))
    (kernel,) = built.lowered.functions[1:]
    assert sum(isinstance(i.op, For) for i in walk(kernel.body)) == 1
    x = np.random.default_rng(2).normal(size=(50, 40, 3))
    products = x[..., 2] * x[..., 1]
    for result, wanted in zip(built.run([x]), (np.stack([products, x[..., 2]], -1), products.max()), strict=True):
        np.testing.assert_array_equal(result, wanted)
