"""Gradients of look-ups of rows: sums of what goes to the same row, bit by bit those of a loop."""

import re

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse
from pullback.ir.core.structure import walk
from pullback.ir.ops.array.index import scatter_sum
from pullback.ir.text import parse_function
from tests.support.cuda.host_kernels import run_on_host
from tests.support.cuda.targets import UNAVAILABLE
from tests.support.targets import run_targets

RNG = np.random.default_rng(0)
SCATTER = """func f(%i: i64[{given}], %v: {dtype}[{given},{width}]) -> ({dtype}[{rows},{width}]) {{
  %z: {dtype}[] = const {{value=0}}
  %b: {dtype}[{rows},{width}] = broadcast %z {{axes=[0, 1]}}
  %o: {dtype}[{rows},{width}] = scatter_add %b, %i, %v {{axes=[0]}}
  return %o
}}"""


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i32", "u8"])
@pytest.mark.parametrize(("inputs", "rows", "width"), [(0, 3, 2), (7, 1, 5), (40, 6, 17), (3, 50, 1), (200, 4, 33), (5, 3, 0)])
def test_every_target_sums_in_the_same_order(dtype: str, inputs: int, rows: int, width: int) -> None:
    function = parse_function(SCATTER.format(dtype=dtype, given=inputs, rows=rows, width=width))
    assert any(i.op is scatter_sum for i in walk(fuse(function).body))
    values = RNG.normal(size=(inputs, width)) * 3
    values[:1] = -0.0
    values[1:2] = np.inf
    with np.errstate(invalid="ignore"):
        arguments = [RNG.integers(-rows, rows, inputs), values.astype(function.parameters[1].type.dtype.numpy)]
    results = run_targets(function, arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        np.testing.assert_array_equal(result[0], expected[0], err_msg=target)


def test_large_tables() -> None:
    before = pb.get_num_threads()
    table, c = RNG.normal(size=(3000, 40)), RNG.normal(size=(20000, 40))
    places = RNG.integers(-3000, 3000, 20000)
    expected = np.zeros_like(table)
    np.add.at(expected, places, c)
    loss = lambda t: np.sum(t[places] * c)  # noqa: E731
    values = set()
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            np.testing.assert_array_equal(pb.grad(loss)(table), expected)
            value, slope = pb.value_and_grad(loss)(table)
            np.testing.assert_array_equal(slope, expected)
            values.add(float(value))
    finally:
        pb.set_num_threads(before)
    assert len(values) == 1
    np.testing.assert_allclose(values.pop(), loss(table))


FUSED = """func f(%t: {dtype}[r,w,2], %i: i64[n,m], %c: {dtype}[n,m,w,2]) """
FUSED += """-> ({dtype}[], {dtype}[], {dtype}[r,w,2], {dtype}[r,w,2]) {{
  %x: {dtype}[n,m,w,2] = gather %t, %i {{axes=[0]}}
  %d: {dtype}[n,m,w,2] = sub %x, %c
  %p: {dtype}[n,m,w,2] = mul %x, %d
  %s: {dtype}[] = sum %p {{axes=[0, 1, 2, 3]}}
  %b: {dtype}[] = max %d {{axes=[0, 1, 2, 3]}}
  %z: {dtype}[] = const {{value=0}}
  %e: {dtype}[r,w,2] = broadcast %z {{axes=[0, 1, 2]}}
  %g: {dtype}[r,w,2] = scatter_add %e, %i, %d {{axes=[0]}}
  %h: {dtype}[r,w,2] = scatter_add %e, %i, %c {{axes=[0]}}
  %a: {dtype}[] = add %s, %b
  return %s, %a, %g, %h
}}"""


@pytest.mark.parametrize("dtype", ["f64", "f32", "i32"])
@pytest.mark.parametrize("sizes", [(1, 3, 4, 2), (5, 4, 1, 3), (6, 7, 5, 17), (3, 2, 60, 1), (2, 3, 4, 0)])
def test_look_ups_and_their_sums_are_one_kernel(dtype: str, sizes: tuple[int, ...]) -> None:
    text = FUSED.format(dtype=dtype)
    for name, extent in zip("nmrw", sizes, strict=True):
        text = re.sub(rf"\b{name}(?=[],])", str(extent), text)
    function = parse_function(text)
    assert [i.op.name for i in fuse(function).instructions if i.op.name != "const"] == ["group"]
    n, m, r, w = sizes
    real = function.parameters[0].type.dtype.numpy
    whole = [RNG.integers(-4, 5, size).astype(real) for size in ((r, w, 2), (n, m, w, 2))]
    if not w:
        text = text.replace("max %d", "sum %d")
        function = parse_function(text)
    arguments = [whole[0], RNG.integers(-r, r, (n, m)), whole[1]]
    results = run_targets(function, arguments)
    if UNAVAILABLE is None:
        results["cuda"] = run_on_host(function, arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            np.testing.assert_array_equal(a, e, err_msg=target)


def test_what_is_dear_reads_much_or_is_stored_keeps_its_order() -> None:
    places, c, e = RNG.integers(0, 9, 50), RNG.normal(size=(50, 4)), RNG.normal(size=(50, 4))
    table = RNG.normal(size=(9, 4))
    for call in (
        lambda t: np.sum(np.exp(t[places]) * c),
        lambda t: np.sum(t[places] ** 2 * c * e),
        lambda t: np.sum(t[places] * c) + np.sum(np.sin(t[places])[::-1] * c),
        lambda t: np.sum(t[places] * np.cumsum(c * t[places], axis=0)),
        lambda t: np.sum(np.sum(t[places] * c, axis=1) ** 2),
    ):
        pb.check_grads(call, (table,), order=2)


def test_several_indices_blocks_masks_and_second_derivatives() -> None:
    table = RNG.normal(size=(4, 5, 3))
    i, j = RNG.integers(-4, 4, (2, 6)), RNG.integers(0, 5, (2, 6))
    mask = RNG.random((4, 5)) > 0.5
    for call in (lambda t: t[i, j], lambda t: t[i], lambda t: t[mask], lambda t: t[:, j[0]], lambda t: t[i, 1:, 0]):
        pb.check_grads(lambda t, f=call: np.sum(np.sin(f(t)) ** 2), (table,), order=2)
    with pytest.raises(IndexError):
        pb.grad(lambda t, k: np.sum(t[k] ** 2))(table, np.array([0, 4]))
