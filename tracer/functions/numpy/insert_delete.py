"""insert, delete, unravel_index and ravel_multi_index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.ir.shapes.symbolic_arrays import SymbolicArray
from pullback.tracer.arrays.arguments import axis_of, positions, reshaped, shape_of, xp
from pullback.tracer.arrays.make import (
    as_stored,
    as_traced,
    broadcast_into,
    broadcast_together,
    cast,
    emit,
    full,
    holds_traced,
    is_one,
    number_of_extent,
    static_array,
)
from pullback.tracer.arrays.masked import Selection, counted
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_extents, reduced_extent
from pullback.tracer.functions.numpy.indexing import check_range, inside_slice, is_computed_slice, slice_positions
from pullback.tracer.functions.numpy.selection import in_range, index_of, take


def _is_traced_position(obj: Any) -> bool:
    """Return whether ``obj`` is one traced position."""
    return isinstance(obj, TracedArray) and not obj.ndim and obj.dtype.kind in "iu"


def _checked_position(obj: TracedArray, n: int, count: int) -> Any:
    """Return a traced position counted from the front of ``n``, checked to be below ``count``."""
    index: Any = cast(obj, np.int64)
    size = "" if is_value_size(n) or isinstance(n, TracedArray) else f" with size {n}"
    n = as_size(n)
    inside = as_traced((index >= -n) & (index < as_size(count)))
    emit("check", inside, error="IndexError", message=f"index is out of bounds for axis{size}")
    return xp.where(index < 0, index + n, index)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> TracedArray:
    x, obj = as_traced(arr), _position_array(obj)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    at = axis_of(axis, x.ndim)
    n = x.shape[at]
    if not (isinstance(obj, TracedArray) or is_value_size(n) or (isinstance(obj, slice) and is_computed_slice(obj, n))):
        return take(x, np.delete(lifted(np.arange, n), obj), at)
    if isinstance(obj, slice):
        kept = xp.logical_not(inside_slice(obj, n))
    else:
        index = as_traced(obj)
        if _is_traced_position(index):
            kept = lifted(np.arange, reduced_extent(n, 1))
            return take(x, kept + (kept >= _checked_position(index, n, n)), at)
        kept = xp.logical_not(_deleted(index, n))
    return counted(Selection(x, as_traced(kept), at, "np.delete at traced positions"))


def _position_array(obj: Any) -> Any:
    """Return a list of positions as an array; other values unchanged."""
    if isinstance(obj, list | tuple) and not holds_traced(obj):
        return np.asarray(obj, None if obj else np.int64)
    return obj if isinstance(obj, slice) else static_array(as_traced(obj) if holds_traced(obj) else obj)


def _deleted(index: TracedArray, n: int) -> TracedArray:
    """Return the mask of the positions, or the mask, at which elements are deleted."""
    if index.dtype.kind == "b":
        message = f"boolean array argument obj to delete must be one dimensional and match the axis length of {n}"
        if index.ndim != 1 or not (is_value_size(index.shape[0]) or is_value_size(n) or index.shape[0] == n):
            raise ValueError(message)
        check_extents(index.shape[0], n, message)
        return index
    if index.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    index = cast(reshaped(index, (index.size,)), np.int64)
    check_range(index, 0, n)
    true = full(index.shape, True, np.bool_)
    deleted: TracedArray = emit("scatter_set", full((n,), False, np.bool_), index, true, axes=(0,))
    return deleted


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> TracedArray:
    x, new, obj = as_traced(arr), as_stored(values, as_traced(arr).dtype), _position_array(obj)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    at = axis_of(axis, x.ndim)
    n = x.shape[at]
    if isinstance(obj, slice) and not is_computed_slice(obj, n):
        obj = lifted(np.arange, *obj.indices(n))
    if is_value_size(n) or isinstance(obj, slice):
        obj = slice_positions(obj, n) if isinstance(obj, slice) else as_traced(obj)
    if isinstance(obj, TracedArray) and not _is_traced_position(obj):
        return _inserted(x, obj, new, at)
    if not _is_traced_position(obj):
        np.insert(lifted(np.arange, n), obj, 0)  # raises NumPy's IndexError
    is_one = _is_traced_position(obj) or np.size(obj) == 1
    if is_one:
        new = reshaped(new, (1,) * (x.ndim - new.ndim) + new.shape)
        if np.ndim(obj) == 0:
            new = xp.moveaxis(new, 0, at)
        count = new.shape[at]
    else:
        obj = obj if isinstance(obj, SymbolicArray) else np.asarray(obj)
        obj = obj.nonzero()[0] if obj.dtype == bool else obj.astype(np.int64)
        count = obj.size
    new = broadcast_into(new, tuple(count if k == at else m for k, m in enumerate(x.shape)))
    joined = xp.concatenate([x, new], axis=at)
    if _is_traced_position(obj):
        return _with_run(joined, obj, n, count, at)
    if is_one:
        obj = int(np.asarray(obj).reshape(-1)[0])
    return take(joined, np.insert(lifted(np.arange, n), obj, lifted(np.arange, n, n + count)), at)


def _with_run(joined: Any, position: TracedArray, n: int, count: int, at: int) -> TracedArray:
    """Return the first ``n`` of the joined elements with the ``count`` others in a run at a traced position."""
    indices, n, count = lifted(np.arange, n + count), as_size(n), as_size(count)
    first = _checked_position(position, n, n + 1)
    order = xp.where(indices < first, indices, xp.where(indices < first + count, indices - first + n, indices - count))
    return take(joined, order, at)


def _inserted(x: TracedArray, obj: TracedArray, new: TracedArray, at: int) -> TracedArray:
    """Return ``np.insert`` at an array of traced positions."""
    if obj.dtype.kind == "b":
        if obj.ndim != 1:
            raise ValueError("boolean array argument obj to insert must be one dimensional")
        obj = as_traced(xp.flatnonzero(obj))
    if obj.ndim > 1:
        raise ValueError("index array argument obj to insert must be one dimensional or scalar")
    if obj.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if is_one(obj.shape[0]):
        return insert(x, reshaped(obj, ()), xp.moveaxis(_with_rank(new, x.ndim), at, 0) if x.ndim else new, at)
    n, count = x.shape[at], obj.shape[0]
    total = n + count
    new = broadcast_into(new, tuple(count if k == at else m for k, m in enumerate(x.shape)))
    joined = xp.concatenate([x, new], axis=at)
    index: Any = cast(obj, np.int64)
    index = xp.where(index < 0, index + as_size(n), index)
    ranks = positions((count,), 0)
    index = index + emit("scatter_set", full((count,), 0, np.int64), xp.argsort(index, stable=True), ranks, axes=(0,))
    check_range(index, at, total)
    source = emit("scatter_set", full((total,), -1, np.int64), index, ranks, axes=(0,))
    message = "shape mismatch: value array could not be broadcast to indexing result: two inserted values have one position"
    emit("check", as_traced(xp.sum(source >= 0) == as_size(count)), error="ValueError", message=message)
    old = xp.minimum(xp.maximum(xp.cumsum(source < 0) - 1, 0), xp.maximum(as_size(n) - 1, 0))
    return take(joined, xp.where(source < 0, old, source + as_size(n)), at)


def _with_rank(x: TracedArray, rank: int) -> TracedArray:
    return reshaped(x, (1,) * (rank - x.ndim) + x.shape)


def as_size(n: int) -> Any:
    """Return an extent for arithmetic with traced integers."""
    return number_of_extent(n) if is_value_size(n) else n


def _check_order(order: Any) -> None:
    if order not in ("C", "F"):
        raise ValueError("only 'C' or 'F' order is permitted")


@implements(np.unravel_index)
def unravel_index(indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    _check_order(order)
    extents = shape_of(shape)
    remaining: Any = index_of(indices)
    inside = as_traced((remaining >= 0) & (remaining < math.prod(extents)))
    message = "an index is out of bounds for the array with the given shape"
    emit("check", inside, error="ValueError", message=message)
    results: list[Any] = []
    for n in extents[::-1] if order == "C" else extents:
        results.append(remaining % n)
        remaining = remaining // n
    return tuple(results[::-1] if order == "C" else results)


@implements(np.ravel_multi_index)
def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> TracedArray:
    _check_order(order)
    extents = shape_of(dims)
    modes = (mode,) * len(extents) if isinstance(mode, str) else tuple(mode)
    indices = [index_of(k) for k in multi_index]
    if len(indices) != len(extents):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(extents)}")
    if len(modes) != len(extents):
        raise ValueError(f"need one mode for each of {len(extents)} axes")
    flat: Any = 0
    columns = list(zip(broadcast_together(*indices), extents, modes, strict=True))
    for index, n, axis_mode in columns if order == "C" else columns[::-1]:
        at: Any = index
        if axis_mode == "raise":
            emit("check", as_traced((at >= 0) & (at < n)), error="ValueError", message="invalid entry in coordinates array")
        else:
            at = in_range(index, 0, n, axis_mode)
        flat = flat * n + at
    return cast(as_traced(flat), np.int64)
