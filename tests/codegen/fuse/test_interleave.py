"""Arrays interleaved along a short last axis: one kernel computes and stores them, with NumPy's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.rewrites.interleave import interleave_short_axes
from pullback.ir.text import parse_function
from tests.support.targets import compiled


@pytest.mark.parametrize("count", [1, 2, 3, 4, 8, 9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.bool_, np.complex64])
def test_stacked_last(count: int, dtype: Any) -> None:
    for shape in ((), (0,), (1,), (17,), (70, 33), (3, 0)):
        x = (np.random.default_rng(1).normal(size=shape) * 4).astype(dtype)
        y = np.random.default_rng(2).normal(size=shape) > 0

        def stacked(x: Any, y: Any) -> Any:
            return np.stack([np.where(y, x, k) for k in range(count)], axis=-1).astype(dtype), x[..., None]

        for result, wanted in zip(pb.jit(stacked)(x, y), stacked(x, y), strict=True):
            assert (result.dtype, result.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_array_equal(result, wanted)


def test_forms() -> None:
    x, y = np.random.default_rng(3).normal(size=(2, 90))

    def forms(x: Any, y: Any) -> Any:
        both = np.stack([x, y], axis=-1)
        again = np.column_stack([np.sin(x), y * 2, x])
        return both, both.sum(), again, np.stack([x, x, x[::-1]], 1), np.stack([x[:5], np.ones(5)], -1)

    for result, wanted in zip(pb.jit(forms)(x, y), forms(x, y), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-15, atol=1e-13)


def test_gradient() -> None:
    x, y = np.random.default_rng(4).normal(size=(2, 40))
    weight = np.random.default_rng(5).normal(size=(40, 3))
    _, (dx, dy) = pb.value_and_grad(lambda x, y: np.sum(np.stack([x * y, y, x], -1) * weight), (0, 1))(x, y)
    np.testing.assert_allclose(dx, y * weight[:, 0] + weight[:, 2])
    np.testing.assert_allclose(dy, x * weight[:, 0] + weight[:, 1])


def test_one_kernel() -> None:
    text = """pullback-ir 2
func f(%x: f64[n]) -> (f64[n,2]) {
  %0: f64[n] = exp %x
  %1: f64[n,1] = broadcast %x {axes=[1]}
  %2: f64[n,1] = broadcast %0 {axes=[1]}
  %3: f64[n,2] = concat %1, %2 {axis=1, starts=[0, 1]}
  return %3
}"""
    assert len(compiled(parse_function(text)).scheduled.functions) == 2


def test_functions_of_them_are_of_the_parts() -> None:
    """Functions of an interleaved array are computed from its parts; a concatenation whose function is also summed is kept."""
    text = """pullback-ir 2
func f(%x: f64[n], %y: f64[n]) -> (f64[n,2], f64[n,2], f64[n]) {
  %0: f64[n,1] = broadcast %x {axes=[1]}
  %1: f64[n,1] = broadcast %y {axes=[1]}
  %2: f64[n,2] = concat %0, %1 {axis=1, starts=[0, 1]}
  %3: f64[n,2] = add %2, %2
  %4: f64[n,2] = neg %3
  %5: f64[n,2] = concat %1, %0 {axis=1, starts=[0, 1]}
  %6: f64[n,2] = exp %5
  %7: f64[n] = sum %6 {axes=[1]}
  return %4, %6, %7
}"""
    function = interleave_short_axes(parse_function(text))
    assert [i.op.name for i in function.instructions if i.op.name in ("concat", "interleave")] == ["interleave", "concat"]
    x, y = np.random.default_rng(6).normal(size=(2, 70))

    def f(x: Any, y: Any) -> Any:
        return -2 * np.stack([x, y], 1), np.exp(np.stack([y, x], 1)), np.exp(np.stack([y, x], 1)).sum(axis=1)

    for result, expected in zip(pb.jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-14)


def test_code_is_not_made_anew_for_each_part_where_that_is_much() -> None:
    """Functions of many instructions, and long chains of short functions, are computed on the interleaved array."""
    for ops in (["exp"], ["neg"] * 20):
        chain = "\n".join(f"  %{k + 3}: f64[n,2] = {op} %{k + 2}" for k, op in enumerate(ops))
        text = f"""pullback-ir 2
func f(%x: f64[n], %y: f64[n]) -> (f64[n,2]) {{
  %0: f64[n,1] = broadcast %x {{axes=[1]}}
  %1: f64[n,1] = broadcast %y {{axes=[1]}}
  %2: f64[n,2] = concat %0, %1 {{axis=1, starts=[0, 1]}}
{chain}
  return %{len(ops) + 2}
}}"""
        function = parse_function(text)
        assert interleave_short_axes(function) is function


def test_along_any_axis_and_for_what_reads_it_whole() -> None:
    """Places of an axis that a product reads, seen as one axis, are stored by the kernel that computes them."""
    text = """pullback-ir 2
func f(%x: f64[5,9], %w: f64[18,4]) -> (f64[5,4], f64[5,2,9]) {
  %0: f64[5,9] = exp %x
  %1: f64[5,9] = sin %x
  %2: f64[5,1,9] = broadcast %0 {axes=[1]}
  %3: f64[5,1,9] = broadcast %1 {axes=[1]}
  %4: f64[5,2,9] = concat %2, %3 {axis=1, starts=[0, 1]}
  %5: f64[5,2,9] = add %4, %4
  %6: f64[5,18] = reshape %5
  %7: f64[5,4] = contract %6, %w {spec="ik,kj->ij"}
  return %7, %5
}"""
    function = interleave_short_axes(parse_function(text))
    assert [(i.op.name, i.params.get("axis")) for i in function.instructions if i.op.name == "interleave"] == [("interleave", 1)]
    x, w = np.random.default_rng(7).normal(size=(5, 9)), np.random.default_rng(8).normal(size=(18, 4))
    built = compiled(parse_function(text))
    expected = 2 * np.stack([np.exp(x), np.sin(x)], 1)
    product, whole = built.run([x, w])
    np.testing.assert_allclose(whole, expected, rtol=1e-14)
    np.testing.assert_allclose(product, expected.reshape(5, 18) @ w, rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(1, 1), (3, 17), (0, 4), (16, 8)])
def test_stacked_along_each_axis(axis: int, shape: tuple[int, int]) -> None:
    x = np.random.default_rng(9).normal(size=shape)

    def f(x: Any) -> Any:
        stacked = np.stack([np.sin(x), x, np.exp(x)], axis)
        return stacked, np.sum(x)

    for result, wanted in zip(pb.jit(f)(x), f(x), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-14, atol=1e-14)
