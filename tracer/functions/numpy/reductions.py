"""Reductions: NumPy's calling conventions over the IR's reduce ops.

Result dtypes are NumPy's: sums and products of bools and small integers are 64-bit, means of integers float64; sums of float16
are accumulated in float32. Statistics follow NumPy's formulas (``numpy/_core/_methods.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.arguments import (
    NOVALUE,
    Axes,
    as_bool,
    axes_of,
    axis_of,
    choose_where,
    existing,
    is_scalars_axis,
    or_default,
    part,
    positions,
    reduced_axes,
    reshaped,
    scanned,
    xp,
)
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_to,
    cast,
    emit,
    expand,
    fresh,
    full,
    literal,
    number_of_extent,
    promote,
    refuse_sequence,
)
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_extents, check_least, check_some, reduced_extent


def reduced(op: str, x: TracedArray, axes: Axes, keepdims: bool = False) -> TracedArray:
    """Emit one reduce op over sorted axes; without axes return a copy."""
    if not axes:
        return fresh(x)
    result = emit(op, x, axes=axes)
    return expand(result, axes) if keepdims else result


def _masked(x: TracedArray, where: Any, identity: Any) -> TracedArray:
    """Return ``x`` with ``identity`` where the mask is false."""
    if where is True or where is NOVALUE:
        return x
    mask = broadcast_to(as_bool(as_traced(where)), x.shape)
    return choose_where(mask, x, full(x.shape, identity, x.dtype))


def _accumulator_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which NumPy sums and multiplies."""
    if dtype.kind in "bi" and dtype.itemsize < 8:
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" and dtype.itemsize < 8 else dtype


def _fold(op: str, x: TracedArray, axis: Any, dtype: Any, keepdims: Any, initial: Any, where: Any) -> TracedArray:
    """Return a sum or a product."""
    target = _accumulator_dtype(x.dtype) if dtype is None else np.dtype(dtype)
    x, axes, identity = cast(x, target), reduced_axes(axis, x.ndim), int(op == "prod")
    if target.kind == "b":
        x = _masked(x, where, bool(identity))
        holds = reduced("all" if identity else "any", x, axes, bool(or_default(keepdims, False)))
        if initial is NOVALUE:
            return holds
        refuse_sequence(initial, target)
        return emit("bitand" if identity else "bitor", broadcast_to(as_bool(as_traced(initial)), holds.shape), holds)
    x = _masked(x, where, identity)
    if target == np.float16 and axes:
        x = cast(x, np.float32)
    result = cast(reduced(op, x, axes, bool(or_default(keepdims, False))), target)
    if initial is NOVALUE:
        return result
    refuse_sequence(initial, target)
    start = cast(as_traced(initial), target)
    return start * result if identity else start + result


@register_method("sum")
@implements(np.sum)
def sum(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NOVALUE,
    where: Any = True,
) -> TracedArray:
    return _fold("sum", as_traced(a), axis, dtype, keepdims, initial, where)


@register_method("prod")
@implements(np.prod)
def prod(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NOVALUE,
    where: Any = True,
) -> TracedArray:
    return _fold("prod", as_traced(a), axis, dtype, keepdims, initial, where)


def _extreme(op: str, a: Any, axis: Any, keepdims: Any, initial: Any, where: Any) -> TracedArray:
    x = as_traced(a)
    axes = reduced_axes(axis, x.ndim)
    ufunc = "maximum" if op == "max" else "minimum"
    if initial is not NOVALUE:
        refuse_sequence(initial, x.dtype)
    if where is not True and where is not NOVALUE:
        if initial is NOVALUE:
            raise ValueError(
                f"reduction operation '{ufunc}' does not have an identity, so to use a where mask one has to specify 'initial'"
            )
        mask = broadcast_to(as_bool(as_traced(where)), x.shape)
        x = choose_where(mask, x, broadcast_to(cast(as_traced(initial), x.dtype), x.shape))
    kept = [n for k, n in enumerate(x.shape) if k not in axes]
    message = f"zero-size array to reduction operation {ufunc} which has no identity"
    if initial is NOVALUE and not check_some(math.prod(n for k, n in enumerate(x.shape) if k in axes), message):
        raise ValueError(message)
    if x.dtype.kind == "c" and initial is not NOVALUE and x.size == 0:  # complex numbers have no least one
        shape = [1 if k in axes else n for k, n in enumerate(x.shape)] if or_default(keepdims, False) else kept
        return fresh(broadcast_to(cast(as_traced(initial), x.dtype), shape))
    result = reduced(op, x, axes, bool(or_default(keepdims, False)))
    if initial is NOVALUE:
        return result
    start = broadcast_to(cast(as_traced(initial), x.dtype), result.shape)
    return emit(ufunc, start, result)


@register_method("max")
@implements(np.max, np.amax)
def max(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NOVALUE,
    where: Any = True,
) -> TracedArray:
    return _extreme("max", a, axis, keepdims, initial, where)


@register_method("min")
@implements(np.min, np.amin)
def min(
    a: Any,
    axis: Any = None,
    out: Any = None,
    keepdims: Any = False,
    initial: Any = NOVALUE,
    where: Any = True,
) -> TracedArray:
    return _extreme("min", a, axis, keepdims, initial, where)


@register_method("any")
@implements(np.any)
def any(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> TracedArray:
    x = _masked(as_bool(as_traced(a)), where, False)
    if axis is None and x.size == 0 and not or_default(keepdims, False):
        return literal(False, np.bool_)
    return reduced("any", x, reduced_axes(axis, x.ndim), bool(or_default(keepdims, False)))


@register_method("all")
@implements(np.all)
def all(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> TracedArray:
    x = _masked(as_bool(as_traced(a)), where, True)
    if axis is None and x.size == 0 and not or_default(keepdims, False):
        return literal(True, np.bool_)
    return reduced("all", x, reduced_axes(axis, x.ndim), bool(or_default(keepdims, False)))


def _position(op: str, a: Any, axis: Any, keepdims: Any) -> TracedArray:
    x = as_traced(a)
    if axis is None or is_scalars_axis(axis, x.ndim):
        flat = reshaped(x, (x.size,))
        _refuse_empty(op, flat, 0)
        result = emit(op, flat, axes=(0,))
        return expand(result, range(x.ndim)) if or_default(keepdims, False) else result
    at = axis_of(axis, x.ndim)
    _refuse_empty(op, x, at)
    return reduced(op, x, (at,), bool(or_default(keepdims, False)))


def _refuse_empty(op: str, x: TracedArray, axis: int) -> None:
    message = f"attempt to get {op} of an empty sequence"
    if not check_some(x.shape[axis], message):
        raise ValueError(message)


@register_method("argmax")
@implements(np.argmax)
def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> TracedArray:
    return _position("argmax", a, axis, keepdims)


@register_method("argmin")
@implements(np.argmin)
def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> TracedArray:
    return _position("argmin", a, axis, keepdims)


def _count(x: TracedArray, axes: Axes, keepdims: bool, where: Any) -> Any:
    """Return the number of reduced elements: a scalar, or an array if a mask selects them."""
    if where is True or where is NOVALUE:
        return emit("count", x, axes=tuple(axes), shape=tuple(x.shape[a] for a in axes))
    mask = broadcast_to(as_bool(as_traced(where)), x.shape)
    return reduced("sum", cast(mask, np.int64), axes, keepdims)


def _quotient(total: TracedArray, count: Any) -> TracedArray:
    """Return ``total / count`` in the dtype of ``total``."""
    if total.dtype.kind in "fc":
        return total / cast(as_traced(count), total.dtype)
    return cast(cast(total, np.float64) / cast(as_traced(count), np.float64), total.dtype)


@register_method("mean")
@implements(np.mean)
def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True
) -> TracedArray:
    x, keep = as_traced(a), bool(or_default(keepdims, False))
    is_half = dtype is None and x.dtype == np.float16
    accumulator = dtype
    if dtype is None and x.dtype.kind in "biu":
        accumulator = np.float64
    elif is_half:
        accumulator = np.float32
    total = _fold("sum", x, axis, accumulator, keep, NOVALUE, where)
    result = _quotient(total, _count(x, axes_of(axis, x.ndim), keep, where))
    return cast(result, np.float16) if is_half else result


def _variance(a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any, average: Any, correction: Any) -> TracedArray:
    x, keep = as_traced(a), bool(or_default(keepdims, False))
    if correction is not NOVALUE:
        if ddof != 0:
            raise ValueError("ddof and correction can't be provided simultaneously.")
        ddof = correction
    axes = axes_of(axis, x.ndim)
    if dtype is None and x.dtype.kind in "biu":
        dtype = np.float64
    if average is NOVALUE:
        total = _fold("sum", x, axis, dtype, True, NOVALUE, where)
        average = _quotient(total, _count(x, axes, True, where))
    deviation = np.subtract(x, average)
    squares = deviation * deviation
    if squares.dtype.kind == "c":
        squares = deviation.real * deviation.real + deviation.imag * deviation.imag
        dtype = None
    total = _fold("sum", squares, axis, dtype, keep, NOVALUE, where)
    free = _count(x, axes, keep, where) - ddof
    return _quotient(total, np.maximum(free, 0))


@register_method("var")
@implements(np.var)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = NOVALUE,
    correction: Any = NOVALUE,
) -> TracedArray:
    return _variance(a, axis, dtype, ddof, keepdims, where, mean, correction)


@register_method("std")
@implements(np.std)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = False,
    *,
    where: Any = True,
    mean: Any = NOVALUE,
    correction: Any = NOVALUE,
) -> TracedArray:
    variance = _variance(a, axis, dtype, ddof, keepdims, where, mean, correction)
    return cast(xp.sqrt(variance), variance.dtype)


@implements(np.ptp)
def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> TracedArray:
    high = _extreme("max", a, axis, keepdims, NOVALUE, True)
    return xp.subtract(high, _extreme("min", a, axis, keepdims, NOVALUE, True))


@implements(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> TracedArray:
    x = cast(as_bool(as_traced(a)), np.int64)
    return reduced("sum", x, reduced_axes(axis, x.ndim), bool(keepdims))


@implements(np.average)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> TracedArray | tuple[TracedArray, TracedArray]:
    x, keep = as_traced(a), bool(or_default(keepdims, False))
    if weights is None:
        result = mean(x, axis, keepdims=keep)
        # NumPy divides by the number of results, and raises if there are none.
        if is_value_size(x.size) or is_value_size(result.size):
            check_least(result.size, 1, "division by zero", ZeroDivisionError)
            if not returned:
                return result
            total = as_traced(number_of_extent(x.size) / number_of_extent(result.size))
            return result, broadcast_to(cast(total, result.dtype), result.shape)
        count = x.size / result.size
        return (result, full(result.shape, count, result.dtype)) if returned else result
    w = _weights(x, axis, as_traced(weights))
    kinds = [x.dtype, w.dtype, *([np.dtype(np.float64)] if x.dtype.kind in "biu" else [])]
    dtype = np.result_type(*kinds)
    scale = sum(w, axis, dtype, keepdims=keep)
    emit("check", scale != 0, error="ZeroDivisionError", message="Weights sum to zero, can't be normalized")
    result = sum(cast(x, dtype) * cast(w, dtype), axis, keepdims=keep) / scale
    return (result, broadcast_to(scale, result.shape)) if returned else result


def _has_extent_by_value(shape: Sequence[Any]) -> bool:
    """Return whether an extent is by value."""
    return bool([n for n in shape if is_value_size(n)])


def _weights(x: TracedArray, axis: Any, w: TracedArray) -> TracedArray:
    """Broadcast weights to the shape of ``x``, as numpy.average does."""
    if w.shape == x.shape:
        return w
    if axis is None and w.ndim == x.ndim and _has_extent_by_value((*w.shape, *x.shape)):
        for m, n in zip(w.shape, x.shape, strict=True):
            check_extents(m, n, "Axis must be specified when shapes of a and weights differ.", "TypeError")
        return w
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    order = [axis_of(k, x.ndim) for k in (axis if isinstance(axis, tuple) else (axis,))]
    if w.shape != tuple(x.shape[k] for k in order):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    ranked = sorted(range(len(order)), key=lambda k: order[k])
    w = xp.transpose(w, ranked)
    return broadcast_to(expand(w, [k for k in range(x.ndim) if k not in order]), x.shape)


def _detached(x: TracedArray) -> TracedArray:
    """Return ``x`` without a derivative: its bits, cast to integers and back."""
    bits = emit("bitcast", x, dtype=f"i{x.itemsize * 8}")
    result: TracedArray = emit("bitcast", bits, dtype=x.dtype)
    return result


@twin_of("scipy.special.logsumexp")
def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False) -> Any:
    """Return log(sum(b * exp(a))) without overflow: the largest term is factored out, as a constant to derivatives.

    Infinite terms give infinite results. With ``b`` the sum must be positive, else the result is NaN, unless ``return_sign``
    requests the logarithm of its magnitude and its sign.
    """
    x = as_traced(a)
    if x.dtype.kind != "f":
        x = cast(x, np.float64)
    if b is not None:
        x, b = xp.broadcast_arrays(*promote(x, as_traced(b)))
    axes = reduced_axes(axis, x.ndim)
    if x.size == 0:
        return np.log(sum(np.exp(x), axes, keepdims=keepdims))
    usable = x if b is None else choose_where(b != 0, x, full(x.shape, -math.inf, x.dtype))
    highest = reduced("max", usable, axes, True)
    top = _detached(highest)
    top = choose_where(xp.isfinite(top), top, full(top.shape, 0, top.dtype))
    terms = np.exp(x - top)
    if b is not None:
        terms = choose_where(b != 0, b * terms, full(terms.shape, 0, terms.dtype))
    total = sum(terms, axes, keepdims=True)
    result = np.log(np.abs(total) if return_sign else total) + top
    if b is None:
        result = choose_where(xp.isinf(highest), highest, result)
    shape = result.shape if keepdims else [n for k, n in enumerate(x.shape) if k not in axes]
    return (reshaped(result, shape), reshaped(xp.sign(total), shape)) if return_sign else reshaped(result, shape)


def _scanned(op: str, a: Any, axis: Any, dtype: Any) -> TracedArray:
    x, at = scanned(as_traced(a), axis)
    target = _accumulator_dtype(x.dtype) if dtype is None else np.dtype(dtype)
    x = cast(x, target)
    if op == "cumsum":
        return emit("cumsum", x, axis=at, reverse=False)
    one = full(x.shape, 1, target)
    index = positions(x.shape, at)
    first = emit("eq", index, full(x.shape, 0, np.int64))
    zero = full(x.shape, 0, target)
    return emit("linear_recurrence", choose_where(first, one, x), choose_where(first, x, zero), axis=at, reverse=False)


@register_method("cumsum")
@implements(np.cumsum)
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> TracedArray:
    return _scanned("cumsum", a, axis, dtype)


@register_method("cumprod")
@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> TracedArray:
    return _scanned("cumprod", a, axis, dtype)


def _cumulative(name: str, x: Any, axis: Any, dtype: Any, include_initial: Any) -> TracedArray:
    a = xp.atleast_1d(as_traced(x))
    if axis is None:
        if a.ndim != 1:
            raise ValueError("For arrays which have more than one dimension ``axis`` argument is required.")
        axis = 0
    result = _scanned(name, a, axis, dtype)
    if not include_initial:
        return result
    at = axis_of(axis, a.ndim)
    first = full(tuple(1 if k == at else n for k, n in enumerate(a.shape)), int(name == "cumprod"), result.dtype)
    joined: TracedArray = xp.concatenate([first, result], axis=at)
    return joined


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> TracedArray:
    return _cumulative("cumsum", x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> TracedArray:
    return _cumulative("cumprod", x, axis, dtype, include_initial)


for _function in existing("cumulative_sum", "cumulative_prod"):
    implements(_function)(cumulative_sum if _function.__name__ == "cumulative_sum" else cumulative_prod)


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: Any = -1, prepend: Any = NOVALUE, append: Any = NOVALUE) -> TracedArray:
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    x = as_traced(a)
    if n == 0:
        return x
    if x.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    at = axis_of(axis, x.ndim)
    ends = [_end(prepend, x, at), x, _end(append, x, at)]
    if ends[0] is not None or ends[2] is not None:
        x = xp.concatenate([e for e in ends if e is not None], at)
    for _ in range(n):
        count = reduced_extent(x.shape[at], 1)
        upper, lower = part(x, at, 1 if count else 0, count), part(x, at, 0, count)
        x = xp.not_equal(upper, lower) if x.dtype == np.bool_ else upper - lower
    return x


def _end(value: Any, x: TracedArray, axis: int) -> TracedArray | None:
    if value is NOVALUE:
        return None
    end = as_traced(value)
    if end.ndim == 0:
        return broadcast_to(end, tuple(1 if k == axis else n for k, n in enumerate(x.shape)))
    return end
