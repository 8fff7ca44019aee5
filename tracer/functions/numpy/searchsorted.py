"""Search in sorted arrays, by an unrolled binary search, and interpolation between their entries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size, most_of
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import as_array, as_number, xp
from pullback.tracer.arrays.make import as_traced, cast, conform, emit, full, number_of_extent, promote, static_array, wrapping
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_least


def count_before(a: TracedArray, v: TracedArray, side: str) -> Any:
    """Count, for each value, the entries of a sorted vector below it (``side`` "right": or equal to it). NaN sorts last."""
    n: Any = a.size
    count: Any = full(v.shape, 0, np.int64)
    is_least = None
    if side == "left" and v.dtype.kind == "f":
        v, side, is_least = _number_below(v), "at most", v == -math.inf
    if is_value_size(n):
        result = _count_by_value(padded(a), v, side, n, count)
    else:
        result = _count_in_halves(a, v, side, n, count) if n else count
    return result if is_least is None else xp.where(is_least, 0, result)


def _number_below(v: TracedArray) -> Any:
    """Return the largest number that sorts before each value, infinity for NaN: entries are compared with it once, while two
    comparisons would be needed to find that they are before the value, or that it alone is NaN."""
    return xp.where(v == v, emit("nextafter", v, full(v.shape, -math.inf, v.dtype)), full(v.shape, math.inf, v.dtype))


def _count_in_halves(a: TracedArray, v: TracedArray, side: str, n: Any, least: Any) -> Any:
    """Return ``count_before`` for a vector of ``n`` entries, at least one, by Shar's uniform search (Knuth, The Art of Computer
    Programming 3, 6.2.1): the count is at least ``least``, and less than ``size`` more after each comparison. ``size`` is a power
    of two, so that no position is beyond the end."""
    size = 1 << (int(lifted(int.bit_length, n)) - 1)
    least = xp.where(_is_before(a, size - 1, v, side), n - size + 1, least)
    while size > 1:
        size >>= 1
        least = xp.where(_is_before(a, least + (size - 1), v, side), least + size, least)
    return least


def _count_by_value(a: TracedArray, v: TracedArray, side: str, extent: Any, count: Any) -> Any:
    """Return ``count_before`` for a vector of a length by value, which has one more entry: ``count`` grows by powers of two."""
    step, n = 1 << (most_of(extent).bit_length() - 1), number_of_extent(extent)
    while step:
        following = count + step
        position = xp.maximum(xp.minimum(following, n) - 1, 0)
        count = xp.where((following <= n) & _is_before(a, position, v, side), following, count)
        step >>= 1
    return count


def _is_before(a: TracedArray, position: Any, v: TracedArray, side: str) -> Any:
    """Return whether the entry at a position counts for ``v``. ``side`` "at most": whether it is at most ``v``, not NaN."""
    entry: Any = xp.take(a, position)
    if side == "at most":
        return entry <= v
    return _sorts_before(entry, v) if side == "left" else ~_sorts_before(v, entry)


def padded(x: TracedArray) -> TracedArray:
    """Return a vector with a zero appended, so that it has an element to read even if it has none of its own."""
    return as_traced(xp.concatenate([x, full((1,), 0, x.dtype)]))


def _sorts_before(a: Any, b: Any) -> Any:
    """Return whether NumPy sorts ``a`` before ``b``: NaN is last; among complex NaNs, a NaN imaginary part sorts first."""
    if a.dtype.kind not in "fc":
        return a < b
    if a.dtype.kind == "f":
        return ~(a >= b) & (a == a)
    lower, higher = a.real < b.real, a.real > b.real
    is_equal = (a.real == b.real) | (xp.isnan(a.real) & xp.isnan(b.real))
    has_a, has_b = ~xp.isnan(a.imag), ~xp.isnan(b.imag)
    is_before = (lower & (has_a | ~has_b)) | (higher & ~has_b & has_a) | (is_equal & ((a.imag < b.imag) | (~has_b & has_a)))
    return is_before | (~(lower | higher | is_equal) & xp.isnan(b.real))


@implements(np.searchsorted)
def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    if side not in ("left", "right"):
        raise ValueError(f"search side must be 'left' or 'right' (got '{side}')")
    x, y = as_traced(a), as_traced(v)
    if x.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    x, y = promote(wrapping(x), wrapping(y))
    return as_number(count_before(x if sorter is None else xp.take(x, sorter), y, side))


@register_method("searchsorted")
def searchsorted_method(a: TracedArray, v: Any, side: str = "left", sorter: Any = None) -> Any:
    return searchsorted(a, v, side, sorter)


@implements(np.digitize)
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges = static_array(bins)
    side = "left" if right else "right"
    if np.iscomplexobj(x):
        raise TypeError("x may not be complex")
    if not isinstance(edges, TracedArray):
        edges = np.asarray(edges)
        if np.all(edges[:-1] <= edges[1:]):
            return searchsorted(edges, x, side)
        if not np.all(edges[:-1] >= edges[1:]):
            raise ValueError("bins must be monotonically increasing or decreasing")
        return edges.size - searchsorted(edges[::-1].copy(), x, side)
    if is_value_size(edges.size):
        size: Any = number_of_extent(edges.size)
        ends = padded(edges)
        falls: Any = (size > 0) & (ends[0] > xp.take(ends, xp.maximum(size - 1, 0)))
    else:
        size = edges.size
        falls = edges[0] > edges[-1] if edges.size else as_traced(np.bool_(False))
    rising: Any = xp.where(falls, edges[::-1], edges)
    is_ordered = as_traced(xp.all(rising[:-1] <= rising[1:]))
    emit("check", is_ordered, error="ValueError", message="bins must be monotonically increasing or decreasing")
    index = searchsorted(rising, x, side)
    return xp.where(falls, size - index, index)


@implements(np.isin)
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None) -> Any:
    """Return membership by a search in the sorted test elements; NaN is never a member. A scalar element gives a 0-d array
    too."""
    x, y = promote(as_traced(element), xp.ravel(as_traced(test_elements)))
    if kind not in (None, "sort", "table"):
        raise ValueError(f"Invalid kind: '{kind}'. Please use None, 'sort' or 'table'.")
    if kind == "table" and x.dtype.kind not in "biu":
        raise ValueError(
            "The 'table' method is only supported for boolean or integer arrays. Please select 'sort' or None for kind."
        )
    if not y.size:
        return as_array(full(x.shape, bool(invert), bool))
    ordered = xp.sort(y)
    index: Any = count_before(ordered, x, "left")
    if is_value_size(y.size):
        result = (xp.take(padded(ordered), index) == x) & (index < number_of_extent(y.size))
    else:
        result = xp.take(ordered, xp.minimum(index, y.size - 1)) == x
    return as_array(~result if invert else result)


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Interpolate linearly between points, with ``left`` and ``right`` beyond them; returns float64, or complex128 for complex
    values."""
    at, points, values = (as_traced(v) for v in (x, xp, fp))
    at, points = cast(at, np.float64), cast(points, np.float64)
    values = cast(values, np.complex128 if values.dtype.kind == "c" else np.float64)
    if points.ndim != 1 or values.ndim != 1:
        raise ValueError("fp and xp are not of the same length.")
    values = conform(values, points.shape, "fp and xp are not of the same length.")
    check_least(points.size, 1, "array of sample points is empty")
    if period is not None:
        return _periodic(at, points, values, period)
    return _interpolated(at, points, values, left, right)


def _periodic(at: Any, points: Any, values: Any, period: Any) -> Any:
    if not isinstance(period, TracedArray) and period == 0:
        raise ValueError("period must be a non-zero value")
    period = xp.abs(as_traced(period))
    points = points % period
    order = xp.argsort(points)
    points, values = xp.take(points, order), xp.take(values, order)
    points = xp.concatenate((points[-1:] - period, points, points[:1] + period))
    values = xp.concatenate((values[-1:], values, values[:1]))
    return _interpolated(at % period, points, values, None, None)


def _interpolated(x: Any, points: Any, values: Any, left: Any, right: Any) -> Any:
    n, last = points.size, points[-1]
    lowest = values[0] if left is None else left
    highest = values[-1] if right is None else right
    if not is_value_size(n) and n == 1:
        inside = values[0]
    else:
        j = xp.clip(count_before(points, x, "right") - 1, 0, n - 2)
        if is_value_size(n):
            size, points, values = number_of_extent(n), padded(points), padded(values)
            j = xp.maximum(j, 0)
        x0, x1, y0, y1 = (xp.take(v, k) for v in (points, values) for k in (j, j + 1))
        slope = (y1 - y0) / (x1 - x0)
        inside = slope * (x - x0) + y0
        from_right = slope * (x - x1) + y1
        inside = xp.where(xp.isnan(inside), xp.where(xp.isnan(from_right) & (y0 == y1), y0, from_right), inside)
        inside = xp.where(x == last, from_right, inside)
        if is_value_size(n):
            inside = xp.where(size == 1, values[0], inside)
    result = xp.where(x < points[0], lowest, xp.where(x > last, highest, inside))
    return as_number(xp.where(xp.isnan(x), math.nan, result))
