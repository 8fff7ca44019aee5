"""bincount, histograms and bin edges, after ``numpy/lib/_histograms_impl.py``. A value's bin is searched among the edges."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full, holds_traced, static_array
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError


def _counts(indices: Any, weights: Any, length: int) -> Any:
    """Return how often each index below ``length`` occurs in a vector, or the sums of its weights."""
    amounts = full(indices.shape, 1, np.int64) if weights is None else weights
    return emit("scatter_add", full((length,), 0, amounts.dtype), cast(indices, np.int64), amounts, axes=(0,))


def _check(holds: Any, message: str, error: str = "ValueError") -> None:
    emit("check", as_traced(holds), error=error, message=message)


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """Count the values of ``x``. For traced integers the result has ``minlength`` counts, and a larger integer fails the
    check."""
    length = operator.index(minlength)
    if length < 0:
        raise ValueError("'minlength' must not be negative")
    indices = static_array(x)
    if not isinstance(indices, TracedArray):
        length = max(length, np.bincount(indices).size)
    elif not length:
        raise TraceError(
            "np.bincount of traced integers: the length of its result depends on values; give minlength=n, where all are below n"
        )
    indices = as_traced(indices)
    if indices.ndim != 1:
        raise ValueError("object too deep for desired array" if indices.ndim else "object of too small depth for desired array")
    if not np.can_cast(indices.dtype, np.int64, "safe"):
        np.bincount(np.zeros(1, indices.dtype))  # raises NumPy's TypeError; from 2.4 on it takes uint64
        indices = cast(indices, np.int64)
    weight = None
    if weights is not None:
        weight = as_traced(weights)
        if weight.shape != indices.shape:
            raise ValueError("The weights and list don't have the same length.")
        weight = cast(weight, np.float64)
    _check(xp.all(indices >= 0), "'list' argument must have no negative elements")
    _check(xp.all(indices < length), "np.bincount of traced integers: one of them is not below minlength")
    return _counts(indices, weight, length)


# the edges of one axis


def _bounds(a: TracedArray, range_: Any) -> tuple[Any, Any]:
    if range_ is not None:
        first, last = range_
        if not holds_traced(range_):
            if first > last:
                raise ValueError("max must be larger than min in range parameter.")
            if not (np.isfinite(first) and np.isfinite(last)):
                raise ValueError(f"supplied range of [{first}, {last}] is not finite")
            return (first - 0.5, last + 0.5) if first == last else (first, last)
        _check(as_traced(first) <= as_traced(last), "max must be larger than min in range parameter.")
    elif not a.size:
        return 0, 1
    else:
        first, last = xp.min(a), xp.max(a)
        if a.dtype.kind == "f":
            _check(xp.isfinite(first) & xp.isfinite(last), "autodetected range is not finite")
    first, last = as_traced(first), as_traced(last)
    is_point = first == last
    return xp.where(is_point, first - 0.5, first), xp.where(is_point, last + 0.5, last)


def _kind_of_edges(a: TracedArray, range_: Any) -> np.dtype[Any]:
    bounds = [e.dtype if isinstance(e, TracedArray) and not e.weak else e for e in range_ or ()]
    dtype = np.result_type(a.dtype, *bounds)
    return np.result_type(dtype, float) if dtype.kind in "iub" else dtype


def _edges(a: TracedArray, bins: Any, range_: Any) -> Any:
    if isinstance(bins, str):
        raise TraceError(f"np.histogram with bins={bins!r}: the number of bins depends on values; give it, or the edges")
    if np.ndim(bins) == 0 if not isinstance(bins, TracedArray) else not bins.ndim:
        try:
            count = operator.index(bins)
        except TypeError as error:
            raise TypeError("`bins` must be an integer, a string, or an array") from error
        if count < 1:
            raise ValueError("`bins` must be positive, when an integer")
        first, last = _bounds(a, range_)
        return xp.linspace(as_traced(first), last, count + 1, dtype=_kind_of_edges(a, range_))
    edges = static_array(bins)
    if not isinstance(edges, TracedArray):
        edges = np.asarray(edges)
        if edges.ndim == 1 and np.any(edges[:-1] > edges[1:]):
            raise ValueError("`bins` must increase monotonically, when an array")
    edges = as_traced(edges)
    if edges.ndim != 1:
        raise ValueError("`bins` must be 1d, when an array")
    _check(xp.all(edges[:-1] <= edges[1:]), "`bins` must increase monotonically, when an array")
    return edges


def _flat(a: Any, weights: Any) -> tuple[TracedArray, Any]:
    x = as_traced(a)
    if x.dtype == np.bool_:
        x = cast(x, np.uint8)
    w = None if weights is None else as_traced(weights)
    if w is not None and w.shape != x.shape:
        raise ValueError("weights should have the same shape as a.")
    return reshaped(x, (x.size,)), None if w is None else reshaped(w, (w.size,))


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    return _edges(_flat(a, weights)[0], bins, range)


@implements(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    x, weight = _flat(a, weights)
    edges = _edges(x, bins, range)
    bin_indices = xp.searchsorted(edges, x, side="right") - 1
    last = edges.shape[0] - 2
    is_inside = (x >= edges[0]) & (x <= edges[-1])
    bin_indices = xp.clip(bin_indices, 0, max(last, 0))
    if last < 0:
        counts = full((0,), 0, np.int64 if weight is None else weight.dtype)
    else:
        amounts = cast(is_inside, np.int64) if weight is None else xp.where(is_inside, weight, 0)
        counts = _counts(bin_indices, cast(as_traced(amounts), np.int64 if weight is None else weight.dtype), last + 1)
    if density:
        widths = cast(xp.diff(edges), np.float64)
        return counts / widths / xp.sum(counts), edges
    return counts, edges


# histograms over several axes


@implements(np.histogramdd)
def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    if isinstance(sample, TracedArray | np.ndarray) and np.ndim(sample) == 2:
        columns = [as_traced(sample)[:, k] for k in lifted(np.arange, sample.shape[1])]
    else:
        rows = xp.atleast_2d(as_traced(sample))
        columns = [rows[k] for k in lifted(np.arange, rows.shape[0])]
    dimension = len(columns)
    if not _length(bins):
        bins = [bins] * dimension
    elif len(bins) != dimension:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = (None,) * dimension if range is None else range
    if len(ranges) != dimension:
        raise ValueError("range argument must have one entry per dimension")
    edges, shape, bin_index = [], [], None
    is_inside: Any = True
    for k, (x, count, bounds) in enumerate(zip(columns, bins, ranges, strict=True)):
        axis_edges = _axis_edges(x, count, bounds, k)
        n = axis_edges.shape[0] - 1
        is_inside = is_inside & (x >= axis_edges[0]) & (x <= axis_edges[-1])
        at = xp.clip(xp.searchsorted(axis_edges, x, side="right") - 1, 0, n - 1)
        bin_index = at if bin_index is None else bin_index * n + at
        edges.append(axis_edges)
        shape.append(n)
    weight = cast(as_traced(1.0 if weights is None else weights), np.float64)
    amounts = xp.where(is_inside, weight, 0.0)
    hist = xp.reshape(_counts(bin_index, amounts, math.prod(shape)), tuple(shape))
    if density:
        total = xp.sum(hist)
        for k, axis_edges in enumerate(edges):
            widths = reshaped(xp.diff(axis_edges), tuple(n if j == k else 1 for j, n in enumerate(shape)))
            hist = hist / widths
        hist = hist / total
    return hist, edges


def _length(bins: Any) -> int:
    """Return the number of entries of ``bins``; 0 if it is a number."""
    try:
        return len(bins)
    except TypeError:
        return 0


def _axis_edges(x: Any, bins: Any, bounds: Any, axis: int) -> Any:
    if np.ndim(bins) == 0 if not isinstance(bins, TracedArray) else not bins.ndim:
        if operator.index(bins) < 1:
            raise ValueError(f"`bins[{axis}]` must be positive, when an integer")
        first, last = _bounds(x, bounds)
        return xp.linspace(cast(as_traced(first), np.float64), last, operator.index(bins) + 1)
    edges = static_array(bins)
    if not isinstance(edges, TracedArray) and np.any(np.asarray(edges)[:-1] > np.asarray(edges)[1:]):
        raise ValueError(f"`bins[{axis}]` must be monotonically increasing, when an array")
    traced: Any = as_traced(edges)
    if traced.ndim != 1:
        raise ValueError(f"`bins[{axis}]` must be a scalar or 1d array")
    _check(xp.all(traced[:-1] <= traced[1:]), f"`bins[{axis}]` must be monotonically increasing, when an array")
    return traced


@implements(np.histogram2d)
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    a, b = as_traced(x), as_traced(y)
    if a.shape[0] != b.shape[0]:
        raise ValueError("x and y must have the same length.")
    if _length(bins) not in (0, 1, 2):
        bins = [bins, bins]
    hist, (first, second) = histogramdd([a, b], bins, range, density, weights)
    return hist, first, second
