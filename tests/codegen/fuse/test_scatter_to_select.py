"""Updates of one element of each row, as in the gradient of ``x[arange(n), labels]``: choices in the kernel of the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse
from pullback.ir.core.structure import Function, walk
from pullback.ir.ops.array.index import Scatter
from pullback.ir.text import parse_function
from tests.support.cuda.host_kernels import run_on_host
from tests.support.cuda.targets import UNAVAILABLE
from tests.support.targets import run_targets

RNG = np.random.default_rng(0)
UPDATE = """func f(
  %x: {dtype}[{rows},{width}], %y: i64[{given}], %v: {dtype}[{given}]
) -> ({dtype}[{rows},{width}], {dtype}[{rows}]) {{
  %b: {dtype}[{rows},{width}] = mul %x, %x
  %r: i64[{given}] = iota {{axis=0}}
  %o: {dtype}[{rows},{width}] = {op} %b, %r, %y, %v {{axes=[0, 1]}}
  %m: {dtype}[{rows}] = sum %o {{axes=[1]}}
  %s: {dtype}[{rows},{width}] = broadcast %m {{axes=[1]}}
  %p: {dtype}[{rows},{width}] = add %o, %s
  return %p, %m
}}"""


def scatters(function: Function) -> int:
    return sum(isinstance(i.op, Scatter) for i in walk(fuse(function).body))


@pytest.mark.parametrize("op", ["scatter_add", "scatter_set"])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "i32", "u8"])
@pytest.mark.parametrize(
    ("rows", "inputs", "width"), [(0, 0, 3), (1, 1, 1), (7, 7, 15), (9, 9, 16), (5, 5, 33), (70, 70, 9), (9, 4, 17)]
)
def test_rows_take_them_in(op: str, dtype: str, rows: int, inputs: int, width: int) -> None:
    """Also where fewer rows are counted than there are."""
    function = parse_function(UPDATE.format(op=op, dtype=dtype, rows=rows, given=inputs, width=width))
    assert not scatters(function)
    real = function.parameters[0].type.dtype.numpy
    labels = RNG.integers(-width, width, inputs)
    labels[:1], labels[1:2] = -width, width - 1
    arguments = [RNG.integers(0, 5, (rows, width)).astype(real), labels, RNG.integers(0, 5, inputs).astype(real)]
    results = run_targets(function, arguments)
    if UNAVAILABLE is None and dtype != "f16":
        results["cuda"] = run_on_host(function, arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            np.testing.assert_array_equal(a, e, err_msg=target)


def test_zeros_keep_their_sign() -> None:
    text = """func f(%x: f64[6,9], %y: i64[6], %v: f64[6]) -> (f64[6,9]) {
      %b: f64[6,9] = neg %x
      %r: i64[6] = iota {axis=0}
      %o: f64[6,9] = scatter_add %b, %r, %y, %v {axes=[0, 1]}
      return %o
    }"""
    results = run_targets(parse_function(text), [np.zeros((6, 9)), np.arange(6), np.zeros(6)])
    for (result,) in results.values():
        np.testing.assert_array_equal(np.signbit(result), ~np.eye(6, 9, dtype=bool))


@pytest.mark.parametrize(
    ("base", "rows", "labels"),
    [
        ("%x", "iota {axis=0}", "%y"),  # an array that exists
        ("mul %x, %x", "add %y, %y", "%y"),  # rows may repeat
    ],
)
def test_others_stay_updates(base: str, rows: str, labels: str) -> None:
    built = "" if base == "%x" else f"%b: f64[5,7] = {base}\n"
    text = f"""func f(%x: f64[5,7], %y: i64[5], %v: f64[5]) -> (f64[5,7]) {{
      {built}%r: i64[5] = {rows}
      %o: f64[5,7] = scatter_add {"%b" if built else "%x"}, %r, {labels}, %v {{axes=[0, 1]}}
      return %o
    }}"""
    function = parse_function(text)
    assert scatters(function) == 1
    results = run_targets(function, [RNG.normal(size=(5, 7)), np.array([0, 1, 1, 2, 0]), RNG.normal(size=5)])
    expected = results.pop("interpreter")
    for result in results.values():
        np.testing.assert_array_equal(result[0], expected[0])


def entropy(z: Any, y: Any) -> Any:
    top = np.max(z, axis=1, keepdims=True)
    total = np.log(np.sum(np.exp(z - top), axis=1)) + top[:, 0]
    return np.mean(total - z[np.arange(z.shape[0]), y])


def entropy_by_hand(z: Any, y: Any) -> Any:
    e = np.exp(z - np.max(z, axis=1, keepdims=True))
    e /= np.sum(e, axis=1, keepdims=True)
    e[np.arange(len(z)), y] -= 1.0
    return e / len(z)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (65, 16), (130, 17), (9, 1000), (3, 9000)])
def test_cross_entropy(shape: tuple[int, int], dtype: Any) -> None:
    z, y = RNG.normal(size=shape).astype(dtype), RNG.integers(-shape[1], shape[1], shape[0])
    gradient = pb.grad(entropy)
    expected = entropy_by_hand(z.astype(np.float64), y)
    tolerance = 1e-12 if dtype is np.float64 else 2e-6
    np.testing.assert_allclose(gradient(z, y), expected, rtol=tolerance, atol=tolerance / shape[0])
    spread = np.asfortranarray(z)
    np.testing.assert_allclose(gradient(spread, y), expected, rtol=tolerance, atol=tolerance / shape[0])
    for outside in (shape[1], -shape[1] - 1):
        wrong = y.copy()
        wrong[-1] = outside
        with pytest.raises(IndexError, match="out of bounds for axis 1"):
            gradient(z, wrong)


def test_threads_change_no_bit() -> None:
    z, y = RNG.normal(size=(3000, 200)), RNG.integers(0, 200, 3000)
    before, result = pb.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            pb.set_num_threads(threads)
            value, slope = pb.value_and_grad(entropy)(z, y)
            result.append((float(value), slope.tobytes()))
    finally:
        pb.set_num_threads(before)
    assert result[0] == result[1] == result[2]


def picked(x: Any, i: Any, j: Any) -> Any:
    rows, columns = np.arange(x.shape[0]), np.arange(x.shape[1])
    return np.sum(np.sin(x[rows[:, None], columns, j]) ** 2) + np.sum(np.cos(x[i, columns, columns % 2]) ** 2)


def test_more_axes() -> None:
    x, i, j = RNG.normal(size=(5, 4, 6)), RNG.integers(0, 5, 4), RNG.integers(-6, 6, (5, 4))
    pb.check_grads(lambda x: picked(x * 1.5, i, j), (x,), order=2)


def test_rows_that_are_changed_are_not_counted() -> None:
    def repeated(x: Any, y: Any) -> Any:
        rows = np.arange(x.shape[0])
        once = x[rows, y]
        rows[1] = 0
        return np.sum(once) + np.sum(x[rows, y] * 2.0) + np.sum(x[np.arange(x.shape[0])[::-1], y] * 3.0)

    x, y = RNG.normal(size=(4, 3)), np.array([2, 2, 1, 0])
    expected = np.zeros((4, 3))
    for rows, term in (([0, 1, 2, 3], 1.0), ([0, 0, 2, 3], 2.0), ([3, 2, 1, 0], 3.0)):
        np.add.at(expected, (rows, y), term)
    np.testing.assert_array_equal(pb.grad(repeated)(x, y), expected)


def test_one_program_for_all_sizes() -> None:
    function = pb.grad(entropy)
    for n in (3, 5, 8):
        z, y = RNG.normal(size=(n, n + 2)), RNG.integers(0, n, n)
        np.testing.assert_allclose(function(z, y), entropy_by_hand(z, y), rtol=1e-12, atol=1e-15)
