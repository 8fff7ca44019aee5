"""bincount, histograms and bin edges, after ``numpy/lib/_histograms_impl.py``. A value's bin is searched among the edges."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, conform, emit, full, holds_traced, number_of_extent, static_array
from pullback.tracer.arrays.masked import gathered
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_least, is_computed, value_extent
from pullback.tracer.functions.numpy.searchsorted import padded
from pullback.tracer.user_code.errors import TraceError


def _counts(indices: Any, weights: Any, length: int) -> Any:
    """Return how often each index below ``length`` occurs in a vector, or the sums of its weights."""
    amounts = full(indices.shape, 1, np.int64) if weights is None else weights
    return emit("scatter_add", full((length,), 0, amounts.dtype), cast(indices, np.int64), amounts, axes=(0,))


def _check(holds: Any, message: str, error: str = "ValueError") -> None:
    emit("check", as_traced(holds), error=error, message=message)


NEGATIVE_LENGTH = "'minlength' must not be negative"


@implements(np.bincount)
def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """Count the values of ``x``. For traced integers the result has ``minlength`` counts, if that is positive, and a larger
    integer fails the check; without it, the number of counts is by value."""
    length = value_extent(minlength, message=NEGATIVE_LENGTH) if is_computed(minlength) else operator.index(minlength)
    if not is_value_size(length) and length < 0:
        raise ValueError(NEGATIVE_LENGTH)
    indices = static_array(x)
    is_counted = isinstance(indices, TracedArray) and (is_value_size(length) or not length)
    if not isinstance(indices, TracedArray) and not is_value_size(length):
        length = max(length, np.bincount(indices).size)
    indices = as_traced(indices)
    if indices.ndim != 1:
        raise ValueError("object too deep for desired array" if indices.ndim else "object of too small depth for desired array")
    if not np.can_cast(indices.dtype, np.int64, "safe"):
        np.bincount(np.zeros(1, indices.dtype))  # raises NumPy's TypeError; from 2.4 on it takes uint64
        indices = cast(indices, np.int64)
    weight = None
    if weights is not None and not is_value_size(indices.size) and not indices.size:
        conform(as_traced(weights), indices.shape, "The weights and list don't have the same length.")
    elif weights is not None:
        weight = as_traced(weights)
        weight = cast(conform(weight, indices.shape, "The weights and list don't have the same length."), np.float64)
    _check(xp.all(indices >= 0), "'list' argument must have no negative elements")
    if is_counted or is_value_size(length):
        most = xp.max(indices, initial=-1) + 1
        length = value_extent(as_traced(xp.maximum(most, number_of_extent(length))), least=0)
        return _counts(indices, weight, length)
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
    elif is_value_size(a.size):
        is_some = number_of_extent(a.size) > 0
        first, last = xp.where(is_some, *_extremes(a, xp.min)), xp.where(is_some, *_extremes(a, xp.max))
        if a.dtype.kind == "f":
            _check(xp.isfinite(first) & xp.isfinite(last), "autodetected range is not finite")
    else:
        first, last = xp.min(a), xp.max(a)
        if a.dtype.kind == "f":
            _check(xp.isfinite(first) & xp.isfinite(last), "autodetected range is not finite")
    first, last = as_traced(first), as_traced(last)
    is_point = first == last
    return xp.where(is_point, first - 0.5, first), xp.where(is_point, last + 0.5, last)


def _extremes(a: TracedArray, function: Any) -> tuple[Any, Any]:
    """Return the least (or largest) element of an array that may be empty, and the edge that NumPy takes for an empty one."""
    edge = 0 if function is xp.min else 1
    first = xp.take(padded(a), 0)
    return function(a, initial=first), cast(as_traced(edge), a.dtype)


def _kind_of_edges(a: TracedArray, range_: Any) -> np.dtype[Any]:
    bounds = [e.dtype if isinstance(e, TracedArray) and not e.weak else e for e in range_ or ()]
    dtype = np.result_type(a.dtype, *bounds)
    return np.result_type(dtype, float) if dtype.kind in "iub" else dtype


def _edges(a: TracedArray, bins: Any, range_: Any) -> Any:
    if isinstance(bins, str):
        return _estimated_edges(a, bins, range_)
    if np.ndim(bins) == 0 if not isinstance(bins, TracedArray) else not bins.ndim:
        message = "`bins` must be positive, when an integer"
        try:
            count = value_extent(bins, message=message) if is_computed(bins) else operator.index(bins)
        except TypeError as error:
            raise TypeError("`bins` must be an integer, a string, or an array") from error
        check_least(count, 1, message)
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


def _estimated_edges(a: TracedArray, name: str, range_: Any) -> Any:
    """Return the edges of as many bins as an estimator finds."""
    if name not in _ESTIMATORS:
        known = name == "stone"
        raise (TraceError if known else ValueError)(
            "np.histogram with bins='stone' is not supported; take another estimator" if known
            else f"{name!r} is not a valid estimator for `bins`"
        )  # fmt: skip
    first, last = map(as_traced, _bounds(a, range_))
    kind = _kind_of_edges(a, range_)
    if range_ is not None:
        a = as_traced(gathered(a[(a >= first) & (a <= last)]))
    count: Any = 1
    if is_value_size(a.size) or a.size:
        some: Any = as_traced(xp.concatenate([a, full((1,), 0, a.dtype)])) if is_value_size(a.size) else a
        n = number_of_extent(a.size) if is_value_size(a.size) else a.size
        width = as_traced(_ESTIMATORS[name](a, some, n))
        if a.dtype.kind in "iu":
            width = xp.where((width > 0) & (width < 1), 1.0, width)
        delta = cast(last, np.float64) - cast(first, np.float64) if a.dtype.kind in "iub" else last - first
        estimate = xp.ceil(delta / xp.where(width > 0, width, 1))
        _check((estimate < 2.0**40) & (estimate >= 0), "Maximum allowed size exceeded")
        count = xp.where((width > 0) & (n > 0), cast(as_traced(estimate), np.int64), 1)
        count = value_extent(as_traced(count), least=0)
    edges = xp.linspace(first, last, count + 1, dtype=kind)
    _check(xp.all(edges[:-1] < edges[1:]), "Too many bins for data range. Cannot create that many finite-sized bins.")
    return edges


def _span(a: Any, some: Any) -> Any:
    """Return the range of the elements, in the type in which NumPy subtracts them; 0 if there are none."""
    first, last = xp.min(a, initial=some[0]), xp.max(a, initial=some[0])
    return last - first if a.dtype.kind == "f" else cast(last, np.float64) - cast(first, np.float64)


def _interquartile(a: Any, some: Any, n: Any) -> Any:
    if isinstance(n, TracedArray):
        upper, lower = xp.nanpercentile(a, [75, 25])
        upper = xp.where(n > 0, upper, 0)
        lower = xp.where(n > 0, lower, 0)
    else:
        upper, lower = xp.percentile(a, [75, 25])
    return 2.0 * (upper - lower) * as_float(n) ** (-1.0 / 3.0)


def _automatic(a: Any, some: Any, n: Any) -> Any:
    widest = xp.maximum(_interquartile(a, some, n), _span(a, some) / xp.sqrt(as_float(n)) / 2)
    return xp.minimum(widest, _span(a, some) / (xp.log2(as_float(n)) + 1.0))


def _doane(a: Any, some: Any, n: Any) -> Any:
    n = as_float(n)
    spread = xp.sqrt(6.0 * (n - 2) / ((n + 1.0) * (n + 3)))
    sigma = xp.std(a)
    skewness = xp.mean(((a - xp.mean(a)) / xp.where(sigma > 0, sigma, 1)) ** 3)
    width = _span(a, some) / (1.0 + xp.log2(n) + xp.log2(1.0 + xp.absolute(skewness) / spread))
    return xp.where((n > 2) & (sigma > 0), width, 0.0)


def as_float(n: Any) -> Any:
    """Return a number of elements, at least 1, as a float64."""
    return xp.maximum(cast(as_traced(n), np.float64), 1.0)


_ESTIMATORS: dict[str, Any] = {
    "fd": _interquartile,
    "auto": _automatic,
    "doane": _doane,
    "scott": lambda a, some, n: (24.0 * math.pi**0.5 / as_float(n)) ** (1.0 / 3.0) * xp.std(a),
    "rice": lambda a, some, n: _span(a, some) / (2.0 * as_float(n) ** (1.0 / 3)),
    "sturges": lambda a, some, n: _span(a, some) / (xp.log2(as_float(n)) + 1.0),
    "sqrt": lambda a, some, n: _span(a, some) / xp.sqrt(as_float(n)),
}
"""The bin widths of NumPy's estimators, of the elements, the same with one more if their number ``n`` is by value, and ``n``."""


def _flat(a: Any, weights: Any) -> tuple[TracedArray, Any]:
    x = as_traced(a)
    if x.dtype == np.bool_:
        x = cast(x, np.uint8)
    w = None if weights is None else as_traced(weights)
    if w is not None:
        w = conform(w, x.shape, "weights should have the same shape as a.")
    return reshaped(x, (x.size,)), None if w is None else reshaped(w, (w.size,))


def _refuse_weighted(bins: Any, weights: Any) -> None:
    if isinstance(bins, str) and weights is not None:
        raise TypeError("Automated estimation of the number of bins is not supported for weighted data")


@implements(np.histogram_bin_edges)
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    _refuse_weighted(bins, weights)
    return _edges(_flat(a, weights)[0], bins, range)


@implements(np.histogram)
def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    x, weight = _flat(a, weights)
    _refuse_weighted(bins, weights)
    edges = _edges(x, bins, range)
    bin_indices = xp.searchsorted(edges, x, side="right") - 1
    if is_value_size(edges.shape[0]):
        check_least(edges.shape[0], 2, "np.histogram of less than two edges, whose number depends on values")
    last = edges.shape[0] - 2
    is_inside = (x >= edges[0]) & (x <= edges[-1])
    bin_indices = xp.clip(bin_indices, 0, last if is_value_size(last) else max(last, 0))
    if not is_value_size(last) and last < 0:
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
        bin_index = at if bin_index is None else bin_index * (number_of_extent(n) if is_value_size(n) else n) + at
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
    if isinstance(bins, TracedArray):
        n = bins.shape[0] if bins.ndim else 0
        return 3 if is_value_size(n) else n
    try:
        return len(bins)
    except TypeError:
        return 0


def _axis_edges(x: Any, bins: Any, bounds: Any, axis: int) -> Any:
    if np.ndim(bins) == 0 if not isinstance(bins, TracedArray) else not bins.ndim:
        message = f"`bins[{axis}]` must be positive, when an integer"
        count = value_extent(bins, message=message) if is_computed(bins) else operator.index(bins)
        check_least(count, 1, message)
        first, last = _bounds(x, bounds)
        return xp.linspace(cast(as_traced(first), np.float64), last, count + 1)
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
    b = conform(b, (a.shape[0], *b.shape[1:]), "x and y must have the same length.")
    if _length(bins) not in (0, 1, 2):
        bins = [bins, bins]
    hist, (first, second) = histogramdd([a, b], bins, range, density, weights)
    return hist, first, second
