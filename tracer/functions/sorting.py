"""Order: sort, argsort, median, quantiles, as compositions.

The position of an element is the number of those that come before it. It is counted within blocks; sorted blocks are merged, the
position of each element in the other half being found by binary search. Equal elements keep their order, NaN is last. The
derivative of a sorted array goes to the elements where they came from.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.tracer.array import TracedArray, as_traced, cast, emit, fresh, full, implements, register_method, update
from pullback.tracer.errors import TraceError
from pullback.tracer.functions.common import axis_list, axis_of, given, positions, refuse, reshaped, xp

BLOCK = 256
"""Rows of up to so many elements are sorted by counting."""


def _before(a: Any, b: Any, ties: Any) -> Any:
    """Whether a comes before b in rising order, NaN last; ``ties`` for equal elements."""
    if a.dtype.kind != "f":
        return (a < b) | ((a == b) & ties)
    a_is_nan, b_is_nan = a != a, b != b
    same = (a == b) | (a_is_nan & b_is_nan)
    return (a < b) | (b_is_nan & ~a_is_nan) | (same & ties)


def _order(rows: TracedArray) -> Any:
    """The permutation that sorts each row of a matrix, stably."""
    count, n = rows.shape
    size = min(n, BLOCK)
    blocks = -(-n // size)
    blocks = 1 << (blocks - 1).bit_length()
    whole = blocks * size
    keys: Any = rows if whole == n else xp.concatenate([rows, _last(rows, whole - n)], axis=1)
    keys = reshaped(keys, (count * blocks, size))
    space = (count * blocks, size, size)
    left, right = (emit("broadcast", keys, axes=(axis,), shape=space) for axis in (2, 1))
    earlier = positions(space, 2) < positions(space, 1)
    rank = xp.sum(_before(right, left, earlier), axis=-1)
    place = emit(
        "scatter_set", full(keys.shape, 0, np.int64), positions(keys.shape, 0), rank, positions(keys.shape, 1), axes=(0, 1)
    )
    while place.shape[1] < whole:
        keys, place = _merged(keys, place)
    return place[:, :n]


def _last(rows: TracedArray, width: int) -> TracedArray:
    """Elements that come after all others."""
    kind = rows.dtype.kind
    value = math.nan if kind == "f" else True if kind == "b" else int(np.iinfo(rows.dtype).max)
    return full((rows.shape[0], width), value, rows.dtype)


def _merged(keys: Any, place: Any) -> tuple[Any, Any]:
    """Pairs of neighbouring rows as one, given the permutation that sorts each."""
    count, size = keys.shape[0] // 2, keys.shape[1]
    shape = (count, 2, size)
    keys, place = reshaped(keys, shape), reshaped(place, shape)
    ordered = xp.take_along_axis(keys, place, axis=2)
    other = xp.flip(ordered, axis=1)
    is_second = positions(shape, 1) == 1
    found: Any = full(shape, 0, np.int64)
    step = 1 << (size.bit_length() - 1)
    row, half = positions(shape, 0), positions(shape, 1)
    while step:
        next_ = found + step
        entry = emit("gather", other, row, half, cast(xp.minimum(next_, size) - 1, np.int64), axes=(0, 1, 2))
        found = xp.where((next_ <= size) & _before(entry, ordered, is_second), next_, found)
        step >>= 1
    rank = reshaped(found + positions(shape, 2), (count, 2 * size))
    moved = reshaped(place + xp.where(is_second, size, 0), (count, 2 * size))
    merged = emit("scatter_set", full(moved.shape, 0, np.int64), positions(moved.shape, 0), rank, moved, axes=(0, 1))
    return reshaped(keys, (count, 2 * size)), merged


def order(x: TracedArray, axis: int) -> Any:
    """The permutation along an axis that sorts it."""
    rows: Any = xp.moveaxis(x, axis, -1)
    shape, n = rows.shape, rows.shape[-1]
    if n < 2 or not rows.size:
        return xp.moveaxis(full(shape, 0, np.int64), -1, axis)
    return xp.moveaxis(reshaped(_order(reshaped(rows, (rows.size // n, n))), shape), -1, axis)


def _prepared(name: str, a: Any, axis: Any, kind: Any, order: Any, stable: Any) -> tuple[TracedArray, int]:
    refuse(name, order=order)
    if kind not in (None, "quicksort", "heapsort", "mergesort", "stable"):
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")
    x = as_traced(a)
    if axis is None:
        return reshaped(x, (x.size,)), 0
    return x, axis_of(axis, x.ndim)


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return _order_along(*_prepared("argsort", a, axis, kind, order, stable))


_order_along = order


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, at = _prepared("sort", a, axis, kind, order, stable)
    return fresh(x) if x.shape[at] < 2 else xp.take_along_axis(x, _order_along(x, at), axis=at)


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """A sorted array, in which every position is where a partition would put it."""
    return sort(a, axis, None, order)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    return argsort(a, axis, None, order)


@register_method("argsort")
def argsort_method(a: TracedArray, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return argsort(a, axis, kind, order, stable=stable)


@register_method("sort")
def sort_method(a: TracedArray, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    update(a, sort(a, axis, kind, order))


# medians and quantiles


def _rows(x: TracedArray, axis: Any) -> tuple[Any, tuple[int, ...]]:
    """The reduced axes as the last one, and which they were."""
    axes = tuple(range(x.ndim)) if axis is None else axis_list(axis, x.ndim)
    kept = [k for k in range(x.ndim) if k not in axes]
    moved = xp.transpose(x, (*kept, *axes))
    return reshaped(moved, (*(x.shape[k] for k in kept), math.prod(x.shape[k] for k in axes))), axes


def _float(a: Any) -> TracedArray:
    x = as_traced(a)
    return cast(x, x.dtype if x.dtype.kind == "f" else np.float64)


def _kept(found: Any, axes: tuple[int, ...], keepdims: Any, lead: int = 0) -> Any:
    return xp.expand_dims(found, tuple(sorted(a + lead for a in axes))) if given(keepdims, False) and axes else found


@implements(np.median)
def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    refuse("median", out=out)
    rows, axes = _rows(_float(a), axis)
    n = rows.shape[-1]
    ordered = sort(rows)
    if not n:
        return _kept(xp.mean(ordered, axis=-1), axes, keepdims)
    middle = xp.mean(ordered[..., (n - 1) // 2 : n // 2 + 1], axis=-1)
    found = xp.where(xp.isnan(ordered[..., -1]), ordered[..., -1], middle)
    return _kept(found, axes, keepdims)


@implements(np.quantile)
def quantile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    refuse("quantile", out=out, weights=weights, interpolation=interpolation)
    if method not in ("linear", "lower", "higher", "midpoint", "nearest"):
        raise TraceError(f"np.quantile of traced arrays with method={method!r} is not supported; leave it out")
    rows, axes = _rows(_float(a), axis)
    share = cast(as_traced(q), np.float64)
    if not isinstance(q, TracedArray) and not np.all((np.asarray(q) >= 0) & (np.asarray(q) <= 1)):
        raise ValueError("Quantiles must be in the range [0, 1]")
    emit("check", as_traced((share >= 0) & (share <= 1)), error="ValueError", message="Quantiles must be in the range [0, 1]")
    n = rows.shape[-1]
    ordered: Any = xp.moveaxis(sort(rows), -1, 0)
    place: Any = share * (n - 1)
    low, high = (cast(f(place), np.int64) for f in (xp.floor, xp.ceil))
    spread = reshaped(place, (*place.shape, *(1,) * (rows.ndim - 1)))
    is_plain = (
        method in ("lower", "higher", "nearest") or isinstance(q, int | float) or (isinstance(q, TracedArray) and bool(q.weak))
    )
    wide = ordered.dtype if is_plain else np.result_type(ordered.dtype, np.float64)
    part: Any = cast(spread - xp.floor(spread), wide)
    match method:
        case "lower":
            found = xp.take(ordered, low, axis=0)
        case "higher":
            found = xp.take(ordered, high, axis=0)
        case "nearest":
            found = xp.take(ordered, cast(xp.rint(place), np.int64), axis=0)
        case _:
            first, last = xp.take(ordered, low, axis=0), xp.take(ordered, high, axis=0)
            weight = xp.where(part > 0, 0.5, 0.0) if method == "midpoint" else part
            found = xp.where(weight < 0.5, first + (last - first) * weight, last - (last - first) * (1.0 - weight))
    found = xp.where(xp.isnan(ordered[-1]), ordered[-1], cast(found, wide))
    return _kept(found, axes, keepdims, share.ndim)


@implements(np.percentile)
def percentile(
    a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, method: str = "linear",
    keepdims: Any = False, *, weights: Any = None, interpolation: Any = None,
) -> Any:  # fmt: skip
    share = cast(as_traced(q), np.float64) / 100 if isinstance(q, TracedArray) else np.true_divide(q, 100)
    if not isinstance(q, TracedArray) and not np.all((share >= 0) & (share <= 1)):
        raise ValueError("Percentiles must be in the range [0, 100]")
    return quantile(a, share, axis, out, overwrite_input, method, keepdims, weights=weights, interpolation=interpolation)
