"""Methods of ufuncs and their keywords do what NumPy's do: values, dtypes, exceptions and their words."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.fuzz.calls import defined
from tests.support.outcomes import listed, outcome, same_error, same_values

# an expression of x, and what x is
CASES: list[tuple[str, Any]] = [
    ("np.add(x, np.ones(1, 'i8'), casting='no')", np.ones(1, "u1")),
    ("np.add(x, 3, casting='no')", np.ones(1, "u1")),
    ("np.add(x, 3, dtype='i1', casting='equiv')", np.ones(1, "i8")),
    ("np.logaddexp(x, x, casting='equiv')", np.ones(2, "u1")),
    ("np.arctan2(x, x, dtype='f8', casting='unsafe')", np.array([1 - 2j, 3j], "c8")),
    ("np.add(x, x, dtype='?', casting='unsafe')", np.array([2.5, 0.0])),
    ("np.hypot(x, x, dtype='f8', casting='no')", np.array([1j])),
    ("np.gcd.reduce(x, dtype='i2')", np.array([4.0, 6.0])),
    ("np.gcd.reduce(x)", np.ones(2)),
    ("np.gcd.accumulate(x, dtype='f2')", np.ones(2, bool)),
    ("np.gcd.reduce(x)", np.array([-4])),
    ("np.gcd.reduce(x, initial=-1, where=False)", np.array([4])),
    ("np.logical_and.reduce(x, dtype='u8')", np.ones(2, bool)),
    ("np.logical_and.reduce(x, dtype='?')", np.ones(2)),
    ("np.logical_and.reduce(x, initial=0)", np.ones((2, 2))),
    ("np.logical_or.reduce(x, axis=None, initial=np.nan, keepdims=True)", np.zeros((2, 2))),
    ("np.logical_or.reduce(x, initial=1, where=False)", np.zeros((2, 2))),
    ("np.logical_xor.reduce(x, initial=300, where=False)", np.ones(2)),
    ("np.logical_xor.reduce(x, dtype='f8')", np.ones(2)),
    ("np.logical_or.accumulate(x)", np.array([0, 3.0, 0])),
    ("np.logical_or.accumulate(x, dtype='f8')", np.array([0, 3.0, 0])),
    ("np.add.accumulate(x, axis=None)", np.ones((2, 2))),
    ("np.add.accumulate(x, axis=None)", np.ones(2, "i1")),
    ("np.multiply.accumulate(x, axis=(1,))", np.full((2, 2), 3, "u1")),
    ("np.fmin.accumulate(x, axis=None)", np.array([3.0, 1.0, 2.0])),
    ("np.fmin.accumulate(x, axis=(0, 1))", np.ones((2, 2))),
    ("np.fmin.accumulate(x, dtype='i2')", np.array([3.5, 1.25])),
    ("np.maximum.reduce(x, dtype='i1', initial=2)", np.array([4.5, 300.0])),
    ("np.maximum.reduce(x, dtype='f4')", np.zeros((0, 2), "u2")),
    ("np.minimum.reduce(x, dtype='c8', initial=-1)", np.array([True, False])),
    ("np.logaddexp.reduce(x, dtype='f8')", np.array([1 + 1j, 2.0])),
    ("np.hypot.reduce(x)", np.array([-3.0])),
    ("np.hypot.reduce(x, initial=-3, where=False)", np.array([-3.0])),
    ("np.lcm.reduce(x)", np.array([-4])),
    ("np.bitwise_and.reduce(x, where=x > 1)", np.array([1, 6, 12], "u1")),
    ("np.bitwise_xor.reduce(x, initial=-1, where=False)", np.array([3])),
    ("np.bitwise_or.reduce(x, initial=300)", np.array([4], "u1")),
    ("np.power.reduce(x, where=[True, False, True], initial=3)", np.array([2.0, 5.0, 0.5])),
    ("np.subtract.reduce(x, where=[True, False], initial=3)", np.array([4.0, 2.0])),
    ("np.subtract.reduce(x)", np.zeros((0, 3))),
    ("np.subtract.reduce(x, initial=3)", np.zeros((0, 3))),
    ("np.equal.reduce(x)", np.array([1.0, 2.0])),
    ("np.divide.reduce(x)", np.array([4, 2])),
    ("np.arctan2.reduce(x)", np.array([4, 2])),
    ("np.add.reduceat(x, [0])", np.float64(3)),
    ("np.bitwise_and.reduceat(x, [0, 9])", np.ones(2)),
    ("np.add.reduceat(x, [0, 1], axis=None)", np.ones(3, "i1")),
    ("np.fmax.accumulate(x)", np.int8(3)),
    ("np.min(x, initial=x)", np.ones(3)),
    ("np.sum(x, initial=x)", np.ones(2, complex)),
    ("np.add.at(x, [0], np.ones((3, 2)))", np.zeros((3, 3))),
    ("np.power.at(x, slice(0, 2), np.ones((1, 1, 3)))", np.zeros((3, 3))),
    ("np.add.at(x, [0, 0], 1.5)", np.zeros((3, 3))),
    ("x.fill(x)", np.zeros(2)),
    ("x.fill([1.0])", np.zeros(2)),
    ("x.fill(x)", np.zeros(1, complex)),
    ("x.__setitem__(0, x)", np.zeros(1)),
    ("x.__setitem__(0, np.ones((2, 1)))", np.zeros(3, complex)),
    ("x.__setitem__(slice(1), np.ones((1, 2)))", np.zeros(3)),
    ("x.__setitem__(slice(2), np.ones((1, 2)))", np.zeros(3)),
    ("x.__setitem__(x > 0, np.ones((1, 3)))", np.ones(3)),
    ("x.__iadd__(np.ones((2, 3)))", np.zeros(3)),
    ("x.__iadd__(np.ones(2))", np.zeros(3)),
    ("np.multiply(x, np.ones((2, 1)), out=x)", np.zeros(3)),
    ("x.fill(np.ones((1, 1)))", np.zeros(2, bool)),
    ("np.putmask(x, x > 0, np.ones(2))", np.ones(3, "f4")),
    ("np.putmask(x, x > 0, np.float64(2.5))", np.ones(3, "f4")),
    ("np.putmask(x, x > 0, np.ones(2, 'f4'))", np.ones(3, bool)),
    ("np.copyto(x, np.ones((1, 3, 1, 2)))", np.zeros((1, 2))),
    ("np.clip(x, np.ones((3, 3)), None, out=x)", np.zeros(3)),
    ("np.power(x, x[:, :2], out=x, where=x > 0)", np.zeros((1, 3))),
    ("x.sum() @ x.sum()", np.ones(3)),
    ("x.__setitem__((..., 0), 1j)", np.array(2)),
    ("x.__setitem__(0, 1j)", np.ones(2, int)),
    ("x.__setitem__(0, 1j)", np.ones(2)),
    ("np.full(2, x)", np.zeros(5)),
    ("np.full(2, 1 - 2j, dtype='i4') * x", np.ones(2, "i4")),
    ("np.full_like(x, 2.5 - 1j)", np.ones(2, "i8")),
    ("np.fmax.reduce(x, initial=np.inf)", np.ones(2, "i8")),
    ("np.bitwise_xor.at(x, 0, x)", np.zeros((0, 0), "f4")),
    ("np.subtract.accumulate(x, axis=None)", np.zeros((5, 3, 0), bool)),
    ("np.logical_and.reduce(x, initial=x)", np.ones((2, 2))),
    ("np.add(x, 1.5j, out=x)", np.ones(2, "f4")),
    ("np.full((3, 2), x)", np.zeros((1, 1, 1, 2))),
    ("np.clip(x, False, np.array([True, False]))", np.array([True])),
    ("np.clip(x, np.array(True), None)", np.array([False])),
    ("np.min(x)[0]", np.ones(3)),
    ("np.min(x)[::-1, None]", np.ones(3)),
    ("np.choose(0, [x, x])", np.ones(3)),
    *((f"np.full(2, x[0], dtype='{d}')", np.array([3, 4], "i1")) for d in ("i8", "u8", "i4", "f8", "f4", "i2", "u1")),
    *((f"np.linspace(0, x[0], 3, dtype='{d}')", np.array([3, 4], "i1")) for d in ("i8", "u8", "f4", "f2")),
    *((f"np.eye(2, dtype='{d}') * x", np.array([3, 4], "i1")) for d in ("i8", "u8", "f8")),
]


@pytest.mark.parametrize(("text", "x"), CASES)
def test_as_numpy(text: str, x: Any) -> None:
    function = defined(f"def f(x):\n    return {{'v': {text}}}\n")
    mine, theirs = copy.copy(x), copy.copy(x)
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        expected, result = outcome(function, theirs), outcome(pb.jit(function), mine)
    if isinstance(expected, Exception):
        same_error(expected, result)
    elif expected["v"] is None:
        assert result == expected
    else:
        same_values(expected, result, {"v": float(np.max(np.abs(expected["v"])))} if "addexp" in text else {})
    same_values(listed([theirs]), listed([mine]), {})


METHODS = [f"np.{name}.{method}" for name in ("logaddexp", "fmax", "hypot", "subtract", "arctan2", "add", "maximum", "logical_or")
           for method in ("reduce", "accumulate")]  # fmt: skip


@pytest.mark.parametrize("text", [*(f"{m}(x)" for m in METHODS), "np.choose(0, [x])", "np.hypot.reduceat(x, [0])"])
def test_results_are_arrays_of_their_own(text: str) -> None:
    """Also of one element along the axis: what is written into them does not reach the argument."""
    function = defined(f"def f(x):\n    v = {text}\n    v |= v[::-1] > 0\n    return {{'v': v}}\n" if "logical" in text else
                       f"def f(x):\n    v = {text}\n    v -= v[::-1]\n    return {{'v': v}}\n")  # fmt: skip
    x = np.array([[[-1.75], [-3.25]]])
    mine, theirs = x.copy(), x.copy()
    expected, result = function(theirs), pb.jit(function)(mine)
    np.testing.assert_allclose(result["v"], expected["v"])
    np.testing.assert_array_equal(mine, x)
    np.testing.assert_array_equal(theirs, x)


REFUSED: list[tuple[str, Any]] = [
    ("np.rot90(x)", np.int8(4)), ("np.rot90(x)", np.ones(3)), ("np.split(x, 2, axis=1)", np.array(-1)),
    ("np.fft.fft(x)", np.array(1.0)),
    ("np.swapaxes(x, 0, 1)", np.ones(3)), ("x.swapaxes(0, 5)", np.ones((2, 3))), ("np.average(x, axis=1)", np.ones(3)),
    ("np.delete(x, 0, axis=-1)", np.zeros((3, 0))), ("np.round(x > 0, 1)", np.ones(3)), ("np.cross(x, 0.5)", np.ones((2, 1))),
    ("np.triu(x)", np.array(2, "u1")), ("np.fft.rfft(x, axis=1)", np.ones((2, 2), complex)),
    ("np.argmax(x, axis=1)", np.array(2)),
    ("np.take_along_axis(x, x % 2, 0)", np.array(2)), ("np.copyto(x, np.float32(1.5))", np.array([], int)),
    ("np.copyto(x, 0.5)", np.zeros((0, 3), "u2")), ("np.convolve(np.ones((2, 2)) * x[0], x[:0])", np.ones(2)),
    ("np.linalg.inv(x)", np.ones((2, 3))), ("np.tensordot(x, x, 1)", np.ones((2, 3))), ("np.quantile(x, 2.0)", np.ones(3)),
    ("x.reshape(7)", np.ones((2, 3))), ("x.transpose(0, 0)", np.ones((2, 3))), ("x.repeat([1, 2], axis=1)", np.ones((2, 3))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "x"), REFUSED)
def test_errors_have_numpys_words(text: str, x: Any) -> None:
    function = defined(f"def f(x):\n    return {text}\n")
    expected, result = outcome(function, copy.copy(x)), outcome(pb.jit(function), copy.copy(x))
    assert isinstance(expected, Exception)
    same_error(expected, result)
