"""insert, delete, unravel_index and ravel_multi_index."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.ir.shapes.symbolic_arrays import SymbolicArray
from pullback.tracer.arrays.arguments import axis_of, reshaped, shape_of, xp
from pullback.tracer.arrays.make import as_stored, as_traced, broadcast_into, broadcast_together, cast, emit, static_array
from pullback.tracer.arrays.masked import DATA_DEPENDENT
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.selection import in_range, index_of, take
from pullback.tracer.user_code.errors import TraceError


def _is_traced_position(obj: Any) -> bool:
    """Return whether ``obj`` is one traced position."""
    return isinstance(obj, TracedArray) and not obj.ndim and obj.dtype.kind in "iu"


def _checked_position(obj: TracedArray, n: int, count: int) -> Any:
    """Return a traced position counted from the front of ``n``, checked to be below ``count``."""
    index: Any = cast(obj, np.int64)
    inside = as_traced((index >= -n) & (index < count))
    emit("check", inside, error="IndexError", message=f"index is out of bounds for axis with size {n}")
    return xp.where(index < 0, index + n, index)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: Any = None) -> TracedArray:
    x, obj = as_traced(arr), static_array(obj)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    at = axis_of(axis, x.ndim)
    n = x.shape[at]
    if _is_traced_position(obj):
        kept = lifted(np.arange, max(n - 1, 0))
        return take(x, kept + (kept >= _checked_position(obj, n, n)), at)
    if isinstance(obj, TracedArray):
        raise TraceError(f"np.delete at traced positions: {DATA_DEPENDENT}")
    return take(x, np.delete(lifted(np.arange, n), obj), at)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> TracedArray:
    x, new, obj = as_traced(arr), as_stored(values, as_traced(arr).dtype), static_array(obj)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    at = axis_of(axis, x.ndim)
    n = x.shape[at]
    if isinstance(obj, TracedArray) and not _is_traced_position(obj):
        raise TraceError("np.insert at several traced positions is not supported; give known ones, or insert one after the other")
    if isinstance(obj, slice):
        obj = lifted(np.arange, *obj.indices(n))
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
        indices = lifted(np.arange, n + count)
        first = _checked_position(obj, n, n + 1)
        order = xp.where(indices < first, indices, xp.where(indices < first + count, indices - first + n, indices - count))
        return take(joined, order, at)
    if is_one:
        obj = int(np.asarray(obj).reshape(-1)[0])
    return take(joined, np.insert(lifted(np.arange, n), obj, lifted(np.arange, n, n + count)), at)


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
