"""Arrays that know how wrong they may be: what NumPy code computes without rounding, and a bound on what rounding may add.

``Bounded`` goes through plain NumPy code in the place of an array. Its values have more precision than the array's dtype has; its
errors follow Higham, "Accuracy and Stability of Numerical Algorithms" (2002): an operation is wrong by at most a unit roundoff,
a product of k terms by gamma(k) = k u / (1 - k u) times the product of sizes (section 3.5), and what was wrong before goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

Array = Any
BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype("f2"), BF16)
FUNCTIONS_ERROR = 8
"""Unit roundoffs that elementary functions may be wrong by."""
SLACK = 1.01
"""The factor that allows for the rounding of bounds and of exact values."""


def unit(dtype: Any) -> float:
    """The unit roundoff."""
    return float(ml_dtypes.finfo(dtype).eps) / 2


def least(dtype: Any) -> float:
    """The smallest number, which underflow may be wrong by."""
    return float(ml_dtypes.finfo(dtype).smallest_subnormal)


def exact_dtype(dtype: Any) -> Any:
    """One of more precision, in which values count as exact."""
    narrow, wide = ("D", "G") if dtype.kind == "c" else ("d", "g")
    return np.dtype(wide if dtype == np.dtype(narrow) else narrow)


def gamma(terms: Any, u: float) -> Any:
    product = np.asarray(terms, float) * u
    with np.errstate(divide="ignore"):
        return np.where(product < 1, product / np.maximum(1 - product, 1e-9), np.inf)


class Bounded(NDArrayOperatorsMixin):
    """``value`` of more precision than ``dtype``, and ``error``, of the same shape: the most by which a result in ``dtype`` may
    differ. Of bools, ``error`` is infinite where rounding may decide."""

    __array_priority__ = 1000

    def __init__(self, value: Array, error: Array, dtype: Any) -> None:
        self.value, self.error, self.dtype = value, np.broadcast_to(error, np.shape(value)), np.dtype(dtype)

    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)
    T = property(lambda self: np.transpose(self))
    real = property(lambda self: np.real(self))
    imag = property(lambda self: np.imag(self))

    def __getitem__(self, index: Any) -> Bounded:
        return Bounded(self.value[index], self.error[index], self.dtype)

    def dot(self, other: Any) -> Any:
        return np.dot(self, other)

    def conj(self) -> Any:
        return np.conj(self)

    def sum(self, axis: Any = None) -> Any:
        return np.sum(self, axis=axis)

    def reshape(self, *shape: Any) -> Any:
        return np.reshape(self, shape[0] if len(shape) == 1 else shape)

    def astype(self, dtype: Any) -> Bounded:
        dtype = np.dtype(dtype)
        value = self.value.astype(exact_dtype(dtype))
        is_wider = dtype == np.result_type(self.dtype, dtype)
        return _made(value, self.error, dtype, 0.0 if is_wider else 1.0)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            return NotImplemented
        if ufunc in (np.matmul, np.vecdot):
            return multilinear(ufunc, inputs)
        if ufunc in COMPARISONS:
            x, y = _lifted(inputs)
            is_unsure = np.abs(x.value - y.value) <= x.error + y.error
            return Bounded(ufunc(x.value, y.value), np.where(is_unsure & (x.error + y.error > 0), np.inf, 0.0), bool)
        return ELEMENTWISE[ufunc](*_lifted(inputs))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in MULTILINEAR:
            return _multilinear_call(function, args, kwargs)
        if function in MOVES:
            return _moved(function, args, kwargs)
        return FUNCTIONS[function](*args, **kwargs)


def bounded(x: Any, is_inexact: bool = False) -> Any:
    """An argument: no error. Integers and bools stay an array, unless they take part in an inexact computation."""
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        return Bounded(x, 0.0, x.dtype.newbyteorder("=")) if is_inexact else x
    return Bounded(x.astype(exact_dtype(x.dtype)), 0.0, x.dtype.newbyteorder("="))


def promoted(operands: Any, function: Callable[..., Any] = np.multiply) -> Any:
    """Return the dtype of NumPy's results for operands; for matrices of bfloat16 it is the dtype of products."""
    with np.errstate(all="ignore"):
        probes = [np.ones(1, x.dtype) if isinstance(x, Bounded | np.ndarray | np.generic) else x for x in operands]
        total = probes[0]
        for probe in probes[1:]:
            total = function(total, probe)
        return np.asarray(total).dtype.newbyteorder("=")


def _lifted(operands: Any, function: Callable[..., Any] = np.multiply) -> list[Bounded]:
    dtype = promoted(operands, function)
    return [_as(x, dtype) for x in operands]


def _as(x: Any, dtype: Any) -> Bounded:
    if isinstance(x, Bounded) and x.dtype.kind in "biu":
        x = x.value
    if isinstance(x, Bounded):
        return Bounded(x.value.astype(exact_dtype(dtype)), x.error, dtype)
    return Bounded(np.asarray(x).astype(dtype).astype(exact_dtype(dtype)), 0.0, dtype)


def _size(x: Bounded) -> Any:
    return np.abs(x.value).astype(float)


def _rounding(value: Any, dtype: Any, units: float = 1.0) -> Any:
    return units * unit(dtype) * np.abs(value).astype(float) + least(dtype)


def _made(value: Any, error: Any, dtype: Any, units: float = 1.0) -> Bounded:
    """An operation's result: what was wrong before, and what its own rounding adds."""
    value = np.asarray(value)
    with np.errstate(over="ignore"):
        total = error + (_rounding(np.abs(value) + error, dtype, units) if units else 0.0)
        return Bounded(value, np.where(np.abs(value) + total < float(ml_dtypes.finfo(dtype).max), total, np.inf), dtype)


# contractions


def multilinear(function: Callable[..., Any], operands: Any) -> Any:
    """A sum of products of operands: any function that is linear in each. Sums of ones are the numbers of terms."""
    dtype = promoted(operands)
    arguments = [_as(x, dtype) for x in operands]
    count = len(arguments)
    value = np.asarray(function(*(x.value for x in arguments)))
    terms = np.asarray(function(*(np.ones(x.shape) for x in arguments)))
    sizes = np.asarray(function(*(_size(x) for x in arguments)))
    before = np.zeros_like(sizes)
    for k, x in enumerate(arguments):
        if x.error.any():
            before += function(*(_size(y) + y.error for y in arguments[:k]), x.error, *(_size(y) for y in arguments[k + 1 :]))
    with_errors = sizes + before
    inner = np.dtype("f4") if dtype in HALVES else dtype
    more = (3 if dtype.kind == "c" else 0) + 2 * (count - 2)
    error = before + gamma(terms + more, unit(inner)) * with_errors + 2 * terms * least(inner)
    if dtype in HALVES:
        error = error + (count - 2) * (1 + 2.0**-7) * unit(dtype) * with_errors
        return _made(value, error, dtype)
    return _made(value, error, dtype, 0.0)


def _multilinear_call(function: Any, args: Any, kwargs: Any) -> Any:
    if function is np.einsum:
        spec, *operands = args
        return multilinear(lambda *given: _einsum(spec, given), operands)
    x, y, *others = args
    if function is np.vdot:
        x = np.conj(x)
        return multilinear(lambda x, y: np.dot(np.ravel(x), np.ravel(y)), (x, y))
    return multilinear(lambda x, y: function(x, y, *others, **kwargs), (x, y))


def _einsum(spec: str, arguments: Any) -> Any:
    """Call NumPy's einsum. Only the shape of empty results, for which it writes out of bounds (2.4, complex long double)."""
    if all(x.size for x in arguments):
        return np.einsum(spec, *arguments)
    larger = np.einsum(spec, *(np.ones([e + 1 for e in x.shape], bool) for x in arguments))
    return np.zeros([e - 1 for e in np.shape(larger)], arguments[0].dtype)


MULTILINEAR = {np.einsum, np.dot, np.inner, np.vdot, np.tensordot, np.outer}

# elementwise


def _add(x: Bounded, y: Bounded) -> Bounded:
    return _made(x.value + y.value, x.error + y.error, x.dtype)


def _subtract(x: Bounded, y: Bounded) -> Bounded:
    return _made(x.value - y.value, x.error + y.error, x.dtype)


def _multiply(x: Bounded, y: Bounded) -> Bounded:
    error = _size(x) * y.error + _size(y) * x.error + x.error * y.error
    return _made(x.value * y.value, error, x.dtype, 3.0 if x.dtype.kind == "c" else 1.0)


def _divide(x: Bounded, y: Bounded) -> Bounded:
    least_divisor = _size(y) - y.error
    with np.errstate(all="ignore"):
        value = x.value / y.value
        error = (x.error + np.abs(value).astype(float) * y.error) / least_divisor
    return _made(value, np.where(least_divisor > 0, error, np.inf), x.dtype, 3.0)


def _largest(x: Bounded, y: Bounded) -> Bounded:
    return Bounded(np.maximum(x.value, y.value), np.maximum(x.error, y.error), x.dtype)


def _exp(x: Bounded) -> Bounded:
    value = np.exp(x.value)
    with np.errstate(over="ignore"):
        return _made(value, value.astype(float) * np.expm1(x.error), x.dtype, FUNCTIONS_ERROR)


ELEMENTWISE: dict[Any, Callable[..., Bounded]] = {
    np.add: _add,
    np.subtract: _subtract,
    np.multiply: _multiply,
    np.divide: _divide,
    np.maximum: _largest,
    np.exp: _exp,
    np.negative: lambda x: Bounded(-x.value, x.error, x.dtype),
    np.conjugate: lambda x: Bounded(np.conj(x.value), x.error, x.dtype),
    np.absolute: lambda x: Bounded(np.abs(x.value), x.error, x.dtype),
    np.square: lambda x: _multiply(x, x),
    np.tanh: lambda x: _made(np.tanh(x.value), x.error, x.dtype, FUNCTIONS_ERROR),
    np.cos: lambda x: _made(np.cos(x.value), x.error, x.dtype, FUNCTIONS_ERROR),
}
COMPARISONS = {np.greater, np.less, np.greater_equal, np.less_equal}

# movements, sums and choices

MOVES = {
    np.transpose, np.swapaxes, np.moveaxis, np.reshape, np.broadcast_to, np.expand_dims, np.flip, np.triu, np.tril, np.pad,
    np.concatenate, np.stack, np.take, np.lib.stride_tricks.sliding_window_view, np.ravel,
}  # fmt: skip


def _moved(function: Any, args: Any, kwargs: Any) -> Any:
    """The same is done to values and to errors."""
    first, *others = args
    if isinstance(first, list | tuple):
        parts = _lifted(first)
        values, errors, dtype = [x.value for x in parts], [x.error for x in parts], parts[0].dtype
        return Bounded(function(values, *others, **kwargs), function(errors, *others, **kwargs), dtype)
    return Bounded(function(first.value, *others, **kwargs), function(first.error, *others, **kwargs), first.dtype)


def _sum(x: Bounded, axis: Any = None, keepdims: bool = False) -> Bounded:
    how = {"axis": axis, "keepdims": keepdims}
    value = np.asarray(np.sum(x.value, **how))
    terms = x.size // max(value.size, 1)
    error = np.sum(x.error, **how)
    return _made(value, error + gamma(terms, unit(x.dtype)) * (np.sum(_size(x), **how) + error), x.dtype, 0.0)


def _mean(x: Bounded, axis: Any = None, keepdims: bool = False) -> Bounded:
    total = _sum(x, axis, keepdims)
    return _divide(total, _as(float(x.size // max(total.size, 1)), x.dtype))


def _max(x: Bounded, axis: Any = None, keepdims: bool = False) -> Bounded:
    how = {"axis": axis, "keepdims": keepdims}
    return Bounded(np.asarray(np.max(x.value, **how)), np.max(x.error, **how), x.dtype)


def _cumsum(x: Bounded, axis: int) -> Bounded:
    error = np.cumsum(x.error, axis)
    size = np.cumsum(_size(x), axis) + error
    return _made(np.cumsum(x.value, axis), error + gamma(x.shape[axis], unit(x.dtype)) * size, x.dtype, 0.0)


def _where(condition: Any, x: Any, y: Any) -> Bounded:
    dtype = promoted((x, y), lambda x, y: np.where([True], x, y))
    x, y = _as(x, dtype), _as(y, dtype)
    chosen, unsure = (condition.value, condition.error > 0) if isinstance(condition, Bounded) else (condition, False)
    error = np.where(chosen, x.error, y.error)
    either = np.abs(x.value - y.value).astype(float) + x.error + y.error
    return Bounded(np.where(chosen, x.value, y.value), np.where(unsure, either, error), dtype)


def _part(name: str) -> Callable[[Bounded], Bounded]:
    def part(x: Bounded) -> Bounded:
        return Bounded(getattr(x.value, name), x.error, np.empty(0, x.dtype).real.dtype)

    return part


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _sum,
    np.mean: _mean,
    np.max: _max,
    np.cumsum: _cumsum,
    np.where: _where,
    np.real: _part("real"),
    np.imag: _part("imag"),
}


def assert_within(result: Any, expected: Bounded, note: object = "") -> None:
    """Check that a result has the expected dtype and shape, and is within the error bound."""
    result = np.asarray(result)
    assert result.dtype == expected.dtype, f"{result.dtype} is not {expected.dtype}: {note}"
    assert result.shape == expected.shape, f"{result.shape} is not {expected.shape}: {note}"
    wide = result.astype(exact_dtype(result.dtype))
    assert np.isfinite(expected.value).all(), f"nothing to compare with: {note}"
    with np.errstate(all="ignore"):
        wrong = (np.abs(wide - expected.value) > SLACK * expected.error) | (np.isnan(wide) & np.isfinite(expected.error))
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        share = np.abs(wide - expected.value)[at] / expected.error[at] if expected.error[at] else np.inf
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} elements are wrong, the first at {at}: {wide[at]} is not {expected.value[at]}, "
            f"by {float(share):.3g} times what rounding explains: {note}"
        )
