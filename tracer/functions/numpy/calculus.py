"""Differences and integrals of sampled values, covariances and block matrices, composed as in NumPy's and SciPy's own sources."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import as_array, axis_of, existing, part, reshaped, shape_of, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_to,
    cast,
    conform,
    convert,
    emit,
    fresh,
    full,
    number_of_extent,
    promote,
)
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_least
from pullback.tracer.functions.numpy.searchsorted import padded


def _float(x: Any) -> TracedArray:
    array = as_traced(x)
    array = cast(array, array.dtype)
    return array if array.dtype.kind in "fc" else cast(array, np.float64)


def _as_double(x: Any) -> TracedArray:
    """Convert to float64 or complex128."""
    array = as_traced(x)
    return cast(array, np.result_type(array.dtype, np.float64))


def _along(x: TracedArray, axis: int, start: int, stop: int | None = None) -> Any:
    n = x.shape[axis]
    stop = n if stop is None else stop + n if stop < 0 else stop
    if is_value_size(n):
        return x[(slice(None),) * axis + (slice(start, stop),)]
    return part(x, axis, start, max(stop - start, 0))


def _along_axis(d: Any, ndim: int, axis: int) -> Any:
    """Reshape 1-D spacings ``d`` so that they broadcast along ``axis`` of an array of ``ndim`` axes."""
    return reshaped(d, [d.shape[0] if k == axis else 1 for k in range(ndim)]) if d.ndim == 1 else d


# integrals


def _spacing(y: TracedArray, x: Any, dx: Any, axis: int) -> Any:
    if x is None:
        return dx
    return _along_axis(xp.diff(as_traced(x)), y.ndim, axis) if as_traced(x).ndim == 1 else xp.diff(as_traced(x), axis=axis)


@implements(*existing("trapezoid", "trapz"))
@twin_of("scipy.integrate.trapezoid")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    a = as_traced(y)
    at = axis_of(axis, a.ndim)
    return xp.sum(_spacing(a, x, dx, at) * (_along(a, at, 1) + _along(a, at, 0, -1)) / 2.0, axis=at)


@twin_of("scipy.integrate.cumulative_trapezoid")
def cumulative_trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1, initial: Any = None) -> Any:
    a = as_traced(y)
    if not a.shape[axis]:
        raise ValueError("At least one point is required along `axis`.")
    at = axis_of(axis, a.ndim)
    sums = xp.cumsum(_spacing(a, x, dx, at) * (_along(a, at, 1) + _along(a, at, 0, -1)) / 2.0, axis=at)
    if initial is None:
        return sums
    if isinstance(initial, TracedArray) or initial != 0:
        raise ValueError("`initial` must be `None` or `0`.")
    first = full([1 if k == at else n for k, n in enumerate(sums.shape)], 0, sums.dtype)
    return xp.concatenate([first, sums], axis=at)


@twin_of("scipy.integrate.simpson")
def simpson(y: Any, x: Any = None, *, dx: Any = 1.0, axis: Any = -1) -> Any:
    """Integrate by Simpson's rule for unequal steps; for an even number of points the last interval uses Cartwright's
    correction."""
    a = _float(y)
    at = axis_of(axis, a.ndim)
    n = a.shape[at]
    steps = _spacing(a, x, dx, at)
    h = broadcast_to(_float(steps), [m - (k == at) for k, m in enumerate(a.shape)])
    if n < 3:
        return xp.sum(0.5 * h * (_along(a, at, 1) + _along(a, at, 0, -1)), axis=at)
    pairs = (n - 1) // 2
    h0, h1 = part(h, at, 0, pairs, 2), part(h, at, 1, pairs, 2)
    y0, y1, y2 = (part(a, at, k, pairs, 2) for k in range(3))
    total, ratio = h0 + h1, h0 / h1
    terms = total / 6.0 * (y0 * (2.0 - 1.0 / ratio) + y1 * (total * total / (h0 * h1)) + y2 * (2.0 - ratio))
    result = xp.sum(terms, axis=at)
    if n % 2:
        return result
    g0, g1 = (xp.squeeze(part(h, at, k, 1), axis=at) for k in (n - 3, n - 2))
    z0, z1, z2 = (xp.squeeze(part(a, at, k, 1), axis=at) for k in (n - 3, n - 2, n - 1))
    last = (2.0 * g1 * g1 + 3.0 * g0 * g1) / (6.0 * (g1 + g0)) * z2 + (g1 * g1 + 3.0 * g1 * g0) / (6.0 * g0) * z1
    return result + last - g1**3 / (6.0 * g0 * (g0 + g1)) * z0


# derivatives


@implements(np.gradient)
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    x = _float(f)
    axes = range(x.ndim) if axis is None else [axis_of(a, x.ndim) for a in (axis if isinstance(axis, tuple) else (axis,))]
    spacings = [1.0] if not varargs else list(varargs)
    if len(spacings) not in (1, len(axes)):
        raise TypeError("invalid number of arguments")
    if len(spacings) == 1 and as_traced(spacings[0]).ndim and len(axes) > 1:
        raise TypeError("invalid number of arguments")
    if edge_order not in (1, 2):
        raise ValueError("'edge_order' greater than 2 not supported")
    steps = spacings * len(axes) if len(spacings) == 1 else spacings
    is_bool = as_traced(f).dtype.kind == "b"
    results = [cast(_derivative(x, as_traced(h), at, edge_order, is_bool), x.dtype) for h, at in zip(steps, axes)]
    return results[0] if len(axes) == 1 else tuple(results)


def _derivative(x: TracedArray, h: TracedArray, axis: int, order: int, is_bool: bool) -> Any:
    n = x.shape[axis]
    message = "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required."
    check_least(n, order + 1, message)
    if h.ndim:
        h = conform(h, (n,), "when 1d, distances must match the length of the corresponding dimension")
        gaps = _along_axis(xp.diff(h), x.ndim, axis)
        left, right = _along(gaps, axis, 0, -1), _along(gaps, axis, 1)
    else:
        gaps = broadcast_to(h, [n - 1 if k == axis else 1 for k in range(x.ndim)])
        left = right = h
    if is_bool and (order == 1 or not h.ndim):
        np.subtract(True, True)  # raises NumPy's TypeError
    y: Any = [part(x, axis, k, n - 2) for k in range(3)]
    if h.ndim:
        inner = -right / (left * (left + right)) * y[0] + (right - left) / (left * right) * y[1]
        inner = inner + left / (right * (left + right)) * y[2]
    else:
        inner = (y[2] - y[0]) / (2.0 * h)

    def ends(k: int) -> Any:
        return part(x, axis, k if k >= 0 else n + k, 1)

    def gap(k: int) -> Any:
        return part(gaps, axis, k if k >= 0 else n - 1 + k, 1)

    if order == 1:
        first, last = (ends(1) - ends(0)) / gap(0), (ends(-1) - ends(-2)) / gap(-1)
    else:
        first = _edge(ends(0), ends(1), ends(2), gap(0), gap(1))
        last = -_edge(ends(-1), ends(-2), ends(-3), gap(-1), gap(-2))
    return xp.concatenate([first, inner, last], axis=axis)


def _edge(y0: Any, y1: Any, y2: Any, h0: Any, h1: Any) -> Any:
    """Return the derivative at the end point (y0) of the parabola through three points."""
    return -(2.0 * h0 + h1) / (h0 * (h0 + h1)) * y0 + (h0 + h1) / (h0 * h1) * y1 - h0 / (h1 * (h0 + h1)) * y2


@implements(np.ediff1d)
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    flat: Any = xp.ravel(as_traced(ary))
    differences = flat[1:] - flat[:-1]
    pieces = [to_begin, differences, to_end]
    return xp.concatenate([xp.ravel(as_traced(p)) for p in pieces if p is not None]) if to_end is not to_begin else differences


@implements(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: Any = -1, *, period: Any = 2 * np.pi) -> Any:
    x = as_traced(p)
    x = cast(x, np.result_type(x.dtype, period))
    at = axis_of(axis, x.ndim)
    if not x.shape[at]:
        return fresh(x)
    jump = xp.diff(x, axis=at)
    limit = period / 2 if discont is None else discont
    is_exact = x.dtype.kind in "iu"
    low = -(period // 2) if is_exact else -period / 2
    wrapped = xp.mod(jump - low, period) + low
    if not is_exact or period % 2 == 0:
        wrapped = xp.where((wrapped == low) & (jump > 0), -low, wrapped)
    correction = xp.where(xp.abs(jump) < limit, 0, wrapped - jump)
    return xp.concatenate([_along(x, at, 0, 1), _along(x, at, 1) + xp.cumsum(correction, axis=at)], axis=at)


# statistics of several variables


@implements(np.cov)
def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None, aweights: Any = None,
    *, dtype: Any = None,
) -> Any:  # fmt: skip
    if ddof is not None and ddof != int(ddof):
        raise ValueError("ddof must be integer")
    x = _as_double(m)
    if x.ndim > 2:
        raise ValueError("m has more than 2 dimensions")
    rows: Any = xp.atleast_2d(x)
    if not rowvar and rows.shape[0] != 1:
        rows = rows.T
    if y is not None:
        other = xp.atleast_2d(_as_double(y))
        if not rowvar and other.shape[0] != 1:
            other = other.T
        rows = xp.concatenate(promote(as_traced(rows), as_traced(other)), axis=0)
    if dtype is not None:
        rows = convert(rows, dtype)
    if ddof is None:
        ddof = 0 if bias else 1
    weights = None
    for w in (fweights, aweights):
        if w is not None:
            weights = as_traced(w) if weights is None else weights * as_traced(w)
    if not rows.shape[0]:
        return full((0, 0), 0, np.float64)
    length = rows.shape[1]
    average, total = xp.average(rows, axis=1, weights=weights, returned=True)
    total = total[0]
    if weights is None:
        free: Any = (number_of_extent(length) if is_value_size(length) else length) - ddof
    elif ddof == 0:
        free = total
    elif aweights is None:
        free = total - ddof
    else:
        free = total - ddof * xp.sum(weights * as_traced(aweights)) / total
    if not isinstance(free, TracedArray):
        free = max(free, 0)
    elif weights is None:
        free = xp.maximum(free, 0)
    deviation = rows - average[:, None]
    weighted = deviation if weights is None else deviation * weights
    scale = xp.true_divide(1.0, as_traced(free) if isinstance(free, TracedArray) else as_traced(float(free)))
    return xp.squeeze(cast(deviation @ xp.conj(weighted.T) * scale, rows.dtype))


@implements(np.corrcoef)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    covariance = cov(x, y, rowvar, dtype=dtype)
    if not covariance.ndim:
        return covariance / covariance
    size = xp.sqrt(xp.diag(covariance).real)
    ratio = covariance / size[:, None] / size[None, :]
    if ratio.dtype.kind == "c":
        return emit("complex", xp.clip(ratio.real, -1, 1), xp.clip(ratio.imag, -1, 1))
    return xp.clip(ratio, -1, 1)


# others


@implements(np.i0)
def i0(x: Any) -> Any:
    if as_traced(x).dtype.kind == "c":
        raise TypeError("i0 not supported for complex values")
    return as_array(emit("i0", _float(x)))


@implements(np.block)
def block(arrays: Any) -> Any:
    def depth(a: Any) -> int:
        return 1 + depth(a[0]) if isinstance(a, list) else 0

    levels = depth(arrays)

    def joined(a: Any, level: int) -> Any:
        if not isinstance(a, list):
            array = as_traced(a)
            return reshaped(array, (1,) * (rank - array.ndim) + array.shape)
        return xp.concatenate([joined(e, level + 1) for e in a], axis=level - levels)

    def ranks(a: Any) -> list[int]:
        return [r for e in a for r in ranks(e)] if isinstance(a, list) else [as_traced(a).ndim]

    if not levels:
        return xp.copy(as_traced(arrays))
    rank = max(levels, *ranks(arrays))
    return joined(arrays, 0)


@implements(np.resize)
def resize(a: Any, new_shape: Any) -> Any:
    x = xp.ravel(as_traced(a))
    shape = shape_of(new_shape)
    if any(type(n) is int and n < 0 for n in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    size = math.prod(shape)
    if not is_value_size(x.size):
        if not x.size:
            return full(shape, 0, x.dtype)
        return reshaped(xp.take(x, lifted(np.arange, size) % x.size), shape)
    count = number_of_extent(x.size)
    taken = xp.take(padded(x), lifted(np.arange, size) % xp.maximum(count, 1))
    return reshaped(as_traced(taken), shape)
