"""Medians, quantiles and percentiles, with and without NaNs, by all of NumPy's methods.

The methods are the nine of R. Hyndman and Y. Fan, "Sample quantiles in statistical packages" (1996), and four more. After
``numpy/lib/_function_base_impl.py`` and ``_nanfunctions_impl.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.arguments import as_array, as_number, axis_list, or_default, permute, refuse, reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, emit, full, number_of_extent
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_least
from pullback.tracer.functions.numpy.sorting import permutation

Axes = tuple[int, ...]


def _columns(x: TracedArray, axes: Axes) -> Any:
    """Merge the given axes into one and move it to the front."""
    kept = [k for k in range(x.ndim) if k not in axes]
    return reshaped(permute(x, (*axes, *kept)), (math.prod(x.shape[k] for k in axes), *(x.shape[k] for k in kept)))


def _with_nan(rows: Any) -> Any:
    """Return rows with one of NaN appended if their number is by value, so that there is one to read."""
    if not is_value_size(rows.shape[0]):
        return rows
    rows = rows if rows.dtype.kind == "f" else cast(rows, np.float64)
    return xp.concatenate([rows, full((1, *rows.shape[1:]), np.nan, rows.dtype)])


def _axes(x: TracedArray, axis: Any) -> Axes:
    if axis is None:
        return tuple(range(x.ndim))
    axes = axis_list(axis, x.ndim)
    kept = [n for k, n in enumerate(x.shape) if k not in axes]
    if len(axes) != 1 and math.prod(kept) == 0:  # NumPy merges the axes by a reshape, which is ambiguous then
        raise ValueError(f"cannot reshape array of size 0 into shape ({','.join(map(str, kept))},newaxis)")
    return axes


def _with_kept_axes(result: Any, axes: Axes, keepdims: Any, lead: int = 0) -> Any:
    if or_default(keepdims, False) and axes:
        return xp.expand_dims(result, tuple(sorted(a + lead for a in axes)))
    return as_number(result)


# medians


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    x = as_traced(a)
    axes = _axes(x, axis)
    ordered = xp.sort(_columns(x, axes), axis=0)
    n = ordered.shape[0]
    if is_value_size(n):
        return _with_kept_axes(_middle(ordered, number_of_extent(n)), axes, keepdims)
    result = xp.mean(ordered[(n - 1) // 2 : n // 2 + 1] if n else ordered, axis=0)
    if n and x.dtype.kind == "f":
        result = xp.where(xp.isnan(ordered[-1]), ordered[-1], result)
    return _with_kept_axes(result, axes, keepdims)


def _middle(ordered: Any, n: Any) -> Any:
    """Return the medians of sorted columns of a traced number of elements; NaN if there are none, or one is NaN."""
    if ordered.dtype.kind not in "fc":
        ordered = cast(ordered, np.float64)
    padded = xp.concatenate([ordered, full((1, *ordered.shape[1:]), np.nan, ordered.dtype)])
    last = xp.maximum(n - 1, 0)
    pair = [xp.take(padded, k, axis=0) for k in (last // 2, n // 2)]
    result = xp.where(n > 0, xp.mean(xp.stack(pair), axis=0), np.nan)
    return xp.where(xp.isnan(xp.take(padded, last, axis=0)), np.nan, result)


@implements(np.nanmedian)
def nanmedian(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    x = as_traced(a)
    if x.dtype.kind != "f" or not x.size:
        return xp.nanmean(x, axis=axis, keepdims=keepdims) if not x.size else median(x, axis, None, False, keepdims)
    axes = _axes(x, axis)
    ordered = xp.sort(_with_nan(_columns(x, axes)), axis=0)
    count = xp.sum(ordered == ordered, axis=0)
    low, high = (_pick(ordered, xp.maximum(k, 0), ()) for k in ((count - 1) // 2, count // 2))
    high = xp.where(count % 2 == 1, low, high)
    return _with_kept_axes(xp.mean(xp.stack([low, high]), axis=0), axes, keepdims)


# Methods: a function from (n, q) to the quantile's index among n sorted elements, which may be fractional, and a function for
# the interpolation weight between the elements before and after it; None if the index is an integer.


def _between(alpha: float, beta: float) -> Callable[[Any, Any], Any]:
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _rounded(index: Any, rounds_down: Callable[[Any, Any], Any]) -> Any:
    before = xp.floor(index)
    return _integers(xp.maximum(xp.where(rounds_down(index - before, before), before, before + 1), 0))


def _integers(x: Any) -> Any:
    return cast(x, np.int64) if isinstance(x, TracedArray) else np.asarray(x).astype(np.int64)


_Method = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any] | None]
_METHODS: dict[str, _Method] = {
    "inverted_cdf": (lambda n, q: _rounded(n * q - 1, lambda part, before: part == 0), None),
    "averaged_inverted_cdf": (lambda n, q: n * q - 1, lambda part, index: xp.where(part == 0, 0.5, 1.0)),
    "closest_observation": (lambda n, q: _rounded(n * q - 1 - 0.5, lambda part, before: (part == 0) & (before % 2 == 1)), None),
    "interpolated_inverted_cdf": (_between(0, 1), lambda part, index: part),
    "hazen": (_between(0.5, 0.5), lambda part, index: part),
    "weibull": (_between(0, 0), lambda part, index: part),
    "linear": (lambda n, q: (n - 1) * q, lambda part, index: part),
    "median_unbiased": (_between(1 / 3.0, 1 / 3.0), lambda part, index: part),
    "normal_unbiased": (_between(3 / 8.0, 3 / 8.0), lambda part, index: part),
    "lower": (lambda n, q: _integers(xp.floor((n - 1) * q)), None),
    "higher": (lambda n, q: _integers(xp.ceil((n - 1) * q)), None),
    "midpoint": (
        lambda n, q: 0.5 * (xp.floor((n - 1) * q) + xp.ceil((n - 1) * q)),
        lambda part, index: xp.where(index % 1 == 0, 0.0, 0.5),
    ),
    "nearest": (lambda n, q: _integers(xp.around((n - 1) * q)), None),
}


def _pick(ordered: Any, index: Any, shares: tuple[int, ...]) -> Any:
    """Return the elements at an index for each share of q; the index may differ per column."""
    columns = ordered.shape[1:]
    if not columns or index.shape == shares:
        return xp.take(ordered, index, axis=0)
    rows = reshaped(as_traced(index), (math.prod(shares), *columns))
    return reshaped(xp.take_along_axis(ordered, rows, axis=0), (*shares, *columns))


def _interpolated_quantile(ordered: Any, count: Any, q: Any, method: str, is_weak: bool) -> Any:
    """Return the quantiles of sorted columns whose first ``count`` elements are numbers."""
    index_of, weigh = _METHODS[method]
    is_per_column = isinstance(count, TracedArray) and bool(count.ndim or ordered.ndim == 1)
    share = q
    if isinstance(count, TracedArray):
        share = xp.reshape(q, (*q.shape, *(1,) * count.ndim))
        count = cast(count, q.dtype) if q.dtype.kind == "f" else count
    index = index_of(count, share)
    if weigh is None or (method == "linear" and index.dtype.kind in "iu"):
        return _pick(ordered, xp.clip(index, 0, _integers(xp.maximum(count - 1, 0))), q.shape)
    before = xp.floor(index)
    last = xp.maximum(count - 1, 0)
    low, high = (_pick(ordered, _integers(xp.clip(k, 0, last)), q.shape) for k in (before, before + 1))
    part = weigh(index - before, index)
    if not is_per_column:
        part = xp.reshape(part, (*part.shape, *(1,) * (ordered.ndim - 1)))
    step = high - low
    if is_weak:
        part = _cast(part, step.dtype if step.dtype.kind == "f" else np.float64)
    else:
        part = _cast(part, index.dtype)
    result = xp.where(part < 0.5, low + step * part, high - step * (1 - part))
    return cast(as_traced(result), np.result_type(step.dtype, part.dtype))


def _cast(x: Any, dtype: Any) -> Any:
    return cast(as_traced(x), dtype)


def _weighted(x: Any, weights: Any, axes: Axes, q: Any, skips_nan: bool) -> Any:
    """Return quantiles by the cumulated weights of the sorted elements; skipped NaNs have weight 0."""
    rows = _columns(x, axes)
    sorted_weights = _columns(broadcast_to(_aligned(weights, x, axes), x.shape), axes)
    has_numbers: Any = True
    if skips_nan and x.dtype.kind == "f":
        sorted_weights = xp.where(xp.isnan(rows), 0, sorted_weights)
        has_numbers = xp.any(~xp.isnan(rows), axis=0)
    at = permutation(rows, 0)
    ordered, sorted_weights = (xp.take_along_axis(v, at, axis=0) for v in (rows, sorted_weights))
    share = xp.cumsum(sorted_weights, axis=0, dtype=np.float64)
    share = share / share[-1]
    _check(xp.all(~xp.isnan(share[-1]) | (not has_numbers if has_numbers is True else ~has_numbers)), _NO_WEIGHT)
    share = _cast(xp.where(share == 0, -1.0, share), q.dtype if q.dtype.kind == "f" else np.float64)
    flat = xp.reshape(q, (q.size, *(1,) * rows.ndim))
    index = xp.minimum(xp.sum(share < flat, axis=1), rows.shape[0] - 1)
    return xp.reshape(_pick(ordered, xp.reshape(index, (*q.shape, *rows.shape[1:])), q.shape), (*q.shape, *rows.shape[1:]))


_NO_WEIGHT = "Weights included NaN, inf or were all zero."


def _aligned(weights: Any, x: TracedArray, axes: Axes) -> TracedArray:
    """Return weights, of the array's shape or of the reduced axes' shape, in the array's order of axes."""
    w = as_traced(weights)
    if w.shape == x.shape:
        return w
    if len(axes) == x.ndim and axes == tuple(range(x.ndim)) and w.ndim != len(axes):
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if w.shape != tuple(x.shape[k] for k in axes):
        raise ValueError("Shape of weights must be consistent with shape of a along specified axis.")
    transposed = permute(w, sorted(range(len(axes)), key=axes.__getitem__))
    return reshaped(transposed, tuple(n if k in axes else 1 for k, n in enumerate(x.shape)))


def _check(holds: Any, message: str) -> None:
    emit("check", as_traced(holds), error="ValueError", message=message)


def _quantile(
    a: Any, q: Any, is_weak: bool, axis: Any, method: str, keepdims: Any, weights: Any, message: str, skips_nan: bool
) -> Any:
    x = as_traced(a)
    if not isinstance(q, TracedArray):
        q = np.asarray(q)
        if not np.all((q >= 0) & (q <= 1)):
            raise ValueError(message)
    else:
        _check(xp.all((q >= 0) & (q <= 1)), message)
    if method not in _METHODS:
        raise ValueError(f"{method!r} is not a valid method. Use one of: {_METHODS.keys()}")
    if weights is not None and method != "inverted_cdf":
        raise ValueError(f"Only method 'inverted_cdf' supports weights. Got: {method}.")
    if q.ndim > 2:
        raise ValueError("q must be a scalar or 1d")
    if skips_nan and not x.size:
        return xp.nanmean(x, axis=axis, keepdims=keepdims)
    axes = _axes(x, axis)
    if weights is not None:
        _check(xp.all(as_traced(weights) >= 0), "Weights must be non-negative.")
        result = _weighted(x, weights, axes, q, skips_nan)
        ordered = None if skips_nan else xp.max(_columns(x, axes), axis=0)
    else:
        rows = _columns(x, axes)
        is_counted = skips_nan and (x.dtype.kind == "f" or is_value_size(rows.shape[0]))
        rows = xp.sort(_with_nan(rows) if is_counted else rows, axis=0)
        check_least(rows.shape[0], 1, "index -1 is out of bounds for axis 0 with size 0", IndexError)
        count = xp.sum(rows == rows, axis=0) if is_counted else rows.shape[0]
        count = number_of_extent(count) if is_value_size(count) else count
        result = _interpolated_quantile(rows, count, q, method, is_weak)
        ordered = None if skips_nan else rows[-1]
    if ordered is not None and x.dtype.kind == "f":
        result = xp.where(xp.isnan(ordered), _cast(ordered, result.dtype), result)
    result = _with_kept_axes(result, axes, keepdims, q.ndim)
    return result if weights is None else as_array(result)


def _is_weak(q: Any) -> bool:
    return q.weak in ("int", "float") if isinstance(q, TracedArray) else type(q) in (int, float)


def _entry(name: str, skips_nan: bool) -> Callable[..., Any]:
    is_percent = "percentile" in name
    message = "Percentiles must be in the range [0, 100]" if is_percent else "Quantiles must be in the range [0, 1]"

    def quantile(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
        keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
    ) -> Any:  # fmt: skip
        refuse(name, instead="write method=", interpolation=interpolation)
        if np.iscomplexobj(a):
            raise TypeError("a must be an array of real numbers")
        share = xp.true_divide(q, 100) if is_percent else as_traced(q) if isinstance(q, TracedArray) else q
        return _quantile(a, share, _is_weak(q), axis, method, keepdims, weights, message, skips_nan)

    return quantile


for _name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
    implements(getattr(np, _name))(_entry(_name, _name.startswith("nan")))
