"""Gradients of look-ups of rows: sums of what goes to the same row, bit by bit those of a loop."""

import numpy as np
import pytest
from targets import run_targets

import pullback as pb
from pullback.codegen.fuse import fuse
from pullback.ir.ops.index import scatter_sum
from pullback.ir.structure import walk
from pullback.ir.text import parse_function

RNG = np.random.default_rng(0)
SCATTER = """func f(%i: i64[{given}], %v: {dtype}[{given},{width}]) -> ({dtype}[{rows},{width}]) {{
  %z: {dtype}[] = const {{value=0}}
  %b: {dtype}[{rows},{width}] = broadcast %z {{axes=[0, 1]}}
  %o: {dtype}[{rows},{width}] = scatter_add %b, %i, %v {{axes=[0]}}
  return %o
}}"""


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i32", "u8"])
@pytest.mark.parametrize(("given", "rows", "width"), [(0, 3, 2), (7, 1, 5), (40, 6, 17), (3, 50, 1), (200, 4, 33), (5, 3, 0)])
def test_every_target_sums_in_the_same_order(dtype: str, given: int, rows: int, width: int) -> None:
    function = parse_function(SCATTER.format(dtype=dtype, given=given, rows=rows, width=width))
    assert any(i.op is scatter_sum for i in walk(fuse(function).body))
    values = RNG.normal(size=(given, width)) * 3
    values[:1] = -0.0
    values[1:2] = np.inf
    with np.errstate(invalid="ignore"):
        arguments = [RNG.integers(-rows, rows, given), values.astype(function.parameters[1].type.dtype.numpy)]
    results = run_targets(function, arguments)
    expected = results.pop("interpreter")
    for target, found in results.items():
        np.testing.assert_array_equal(found[0], expected[0], err_msg=target)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_tables(threads: int) -> None:
    before = pb.get_num_threads()
    pb.set_num_threads(threads)
    try:
        table, c = RNG.normal(size=(3000, 40)), RNG.normal(size=(20000, 40))
        places = RNG.integers(-3000, 3000, 20000)
        expected = np.zeros_like(table)
        np.add.at(expected, places, c)
        np.testing.assert_array_equal(pb.grad(lambda t: np.sum(t[places] * c))(table), expected)
    finally:
        pb.set_num_threads(before)


def test_several_indices_blocks_masks_and_second_derivatives() -> None:
    table = RNG.normal(size=(4, 5, 3))
    i, j = RNG.integers(-4, 4, (2, 6)), RNG.integers(0, 5, (2, 6))
    mask = RNG.random((4, 5)) > 0.5
    for call in (lambda t: t[i, j], lambda t: t[i], lambda t: t[mask], lambda t: t[:, j[0]], lambda t: t[i, 1:, 0]):
        pb.check_grads(lambda t, f=call: np.sum(np.sin(f(t)) ** 2), (table,), order=2)
    with pytest.raises(IndexError):
        pb.grad(lambda t, k: np.sum(t[k] ** 2))(table, np.array([0, 4]))
