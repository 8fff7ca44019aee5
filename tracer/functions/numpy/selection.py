"""Functions that select elements, such as where, select and take; functions whose result's shape depends on values are
refused."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import NOVALUE, as_bool, axis_of, choose_where, positions, reshaped, scanned, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_shapes,
    broadcast_to,
    broadcast_together,
    cast,
    created,
    emit,
    fresh,
    full,
    holds_traced,
    promote,
    promote_wrapping,
    static_array,
    static_ints,
)
from pullback.tracer.arrays.masked import FUNCTIONS, Selection, gathered, masked_or_gathered
from pullback.tracer.arrays.promotion import shapes_text
from pullback.tracer.arrays.replacements import library_twin, twin
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_extents
from pullback.tracer.functions.numpy.indexing import check_range
from pullback.tracer.functions.numpy.masks import compressed, where_of


@twin(np.where)
@implements(np.where)
def where(condition: Any, x: Any = NOVALUE, y: Any = NOVALUE, /) -> Any:
    if x is NOVALUE and y is NOVALUE:
        condition = gathered(condition)
    if any(isinstance(v, Selection) for v in (condition, x, y)):
        return masked_or_gathered(lambda: FUNCTIONS[np.where](condition, x, y), where, condition, x, y)
    if not any(holds_traced(v) for v in (condition, x, y)):
        return np.where(condition) if x is NOVALUE and y is NOVALUE else np.where(condition, x, y)
    if x is NOVALUE and y is NOVALUE:
        return where_of(condition)
    if x is NOVALUE or y is NOVALUE:
        raise ValueError("either both or neither of x and y should be given")
    x, y = as_traced(x), as_traced(y)
    a, b = promote_wrapping(x, y) if _WHERE_WRAPS else promote(x, y)
    result = choose_where(*broadcast_together(as_bool(as_traced(condition)), a, b))
    return result if result.ndim else created(result)


def _where_wraps() -> bool:
    """Return whether ``where`` of the installed NumPy wraps a Python int that is out of the dtype's bounds, as up to NumPy
    2.4."""
    try:
        np.where(True, 300, np.zeros((), np.uint8))
    except OverflowError:
        return False
    return True


_WHERE_WRAPS = _where_wraps()


@implements(np.select)
def select(condlist: Any, choicelist: Any, default: Any = 0) -> TracedArray:
    if len(condlist) != len(choicelist):
        raise ValueError("list of cases must be same length as list of conditions")
    if len(condlist) == 0:
        raise ValueError("select with an empty condition list is not possible")
    conditions = [as_traced(c) for c in condlist]
    for k, c in enumerate(conditions):
        if c.dtype != np.bool_:
            raise TypeError(f"invalid entry {k} in condlist: should be boolean ndarray")
    choices = promote_wrapping(*(as_traced(c) for c in choicelist), as_traced(default))
    broadcast = broadcast_together(*conditions, *choices)
    conditions, (*values, result) = broadcast[: len(conditions)], broadcast[len(conditions) :]
    for c, value in zip(reversed(conditions), reversed(values), strict=True):
        result = choose_where(c, value, result)
    return created(result)


def index_of(indices: Any, kind: type[Exception] = TypeError, message: str = "") -> TracedArray:
    index = as_traced(indices)
    if index.dtype.kind not in "iub" or (index.dtype.kind == "b" and index.ndim):
        raise kind(message or f"Cannot cast array data from {index.dtype!r} to dtype('int64') according to the rule 'safe'")
    return cast(index, np.int64)


def in_range(index: TracedArray, axis: int, n: int, mode: str) -> TracedArray:
    """Return indices brought into ``0 ... n - 1`` by ``mode``; for "raise", emit the check that they are in range."""
    match mode:
        case "raise":
            check_range(index, axis, n)
            return index
        case "wrap":
            return xp.mod(index, n)
        case "clip":
            return xp.clip(index, 0, n - 1)
    raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")


@register_method("take")
@implements(np.take)
def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> TracedArray:
    x, at = scanned(as_traced(a), axis)
    if mode == "raise" and 0 in (*x.shape[:at], *x.shape[at + 1 :]):
        return full((*x.shape[:at], *index_of(indices).shape, *x.shape[at + 1 :]), 0, x.dtype)
    if mode == "raise" and not isinstance(indices, TracedArray) and x.shape[at]:
        return fresh(x[(slice(None),) * at + (indices,)])
    index = index_of(indices)
    if not x.shape[at] and index.size:
        message = "cannot do a non-empty take from an empty axes."
        if not is_value_size(index.size):
            raise IndexError(message)
        check_extents(index.size, 0, message, "IndexError")
        return full((*x.shape[:at], *index.shape, *x.shape[at + 1 :]), 0, x.dtype)
    index = in_range(index, at, x.shape[at], mode)
    result = emit("gather", x, index, axes=(at,))
    rank = index.ndim
    perm = [*range(rank, rank + at), *range(rank), *range(rank + at, result.ndim)]
    return xp.transpose(result, perm)


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: Any = NOVALUE) -> TracedArray:
    x, index = as_traced(arr), index_of(indices, IndexError, "`indices` must be an integer array")
    axis = -1 if axis is NOVALUE else axis
    if axis is None:
        if index.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        x, axis = reshaped(x, (x.size,)), 0
    at = axis_of(axis, x.ndim)
    if x.ndim != index.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    others = [k for k in range(x.ndim) if k != at]
    if any(x.shape[k] != index.shape[k] and 1 not in (x.shape[k], index.shape[k]) for k in others):
        grids = [tuple(n if j == k else 1 for j in range(x.ndim)) for k, n in enumerate(x.shape)]
        shapes = shapes_text([index.shape if k == at else grid for k, grid in enumerate(grids)])
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes} ")
    shape = tuple(index.shape[k] if k == at else broadcast_shapes((x.shape[k],), (index.shape[k],))[0] for k in range(x.ndim))
    x = broadcast_to(x, tuple(x.shape[k] if k == at else shape[k] for k in range(x.ndim)))
    index = broadcast_to(index, shape)
    check_range(index, at, x.shape[at])
    grid_indices = {k: positions(shape, k) for k in others}
    return emit("gather", x, *(index if k == at else grid_indices[k] for k in range(x.ndim)), axes=tuple(range(x.ndim)))


@implements(np.choose)
def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> TracedArray:
    values = promote_wrapping(*(as_traced(c) for c in choices))
    if as_traced(a).dtype == np.uint64:
        raise TypeError("Cannot cast array data from dtype('uint64') to dtype('int64') according to the rule 'safe'")
    index = index_of(a) if mode == "raise" else in_range(index_of(a), 0, len(values), mode)
    index, *values = broadcast_together(index, *values)
    if mode == "raise":
        low, high = full(index.shape, 0, np.int64), full(index.shape, len(values), np.int64)
        valid = emit("bitand", emit("ge", index, low), emit("lt", index, high))
        emit("check", valid, error="ValueError", message="invalid entry in choice array")
    result = values[0]
    for k, value in enumerate(values[1:], 1):
        result = choose_where(emit("eq", index, full(index.shape, k, np.int64)), value, result)
    return fresh(result)


@register_method("choose")
def choose_method(a: TracedArray, choices: Any, out: Any = None, mode: str = "raise") -> TracedArray:
    return choose(a, choices, out, mode)


@implements(np.compress)
def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    condition = static_array(condition)
    if isinstance(condition, TracedArray):
        return compressed("np.compress of a traced condition", as_bool(condition), a, axis)
    mask = np.asarray(condition, bool)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return take(a, mask.nonzero()[0], axis)


@register_method("compress")
def compress_method(a: TracedArray, condition: Any, axis: Any = None, out: Any = None) -> TracedArray:
    return compress(condition, a, axis, out)


@implements(np.extract)
def extract(condition: Any, arr: Any) -> Any:
    condition = static_array(condition)
    if isinstance(condition, TracedArray):
        return compressed("np.extract of a traced condition", reshaped(as_bool(condition), (condition.size,)), arr, None)
    return take(arr, np.asarray(condition, bool).ravel().nonzero()[0])


@implements(np.tril_indices_from)
def tril_indices_from(arr: Any, k: int = 0) -> Any:
    x = as_traced(arr)
    return library_twin(np.tril_indices)(x.shape[-2], k=operator.index(k), m=x.shape[-1])


@implements(np.triu_indices_from)
def triu_indices_from(arr: Any, k: int = 0) -> Any:
    x = as_traced(arr)
    return library_twin(np.triu_indices)(x.shape[-2], k=operator.index(k), m=x.shape[-1])


@implements(np.diag_indices_from)
def diag_indices_from(arr: Any) -> Any:
    x = as_traced(arr)
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return library_twin(np.diag_indices)(x.shape[0], x.ndim)


@implements(np.mask_indices)
def mask_indices(n: Any, mask_func: Any, k: Any = 0) -> Any:
    return lifted(np.mask_indices, static_ints(n), mask_func, static_ints(k))


@implements(np.ix_)
def ix_(*args: Any) -> tuple[Any, ...]:
    if not any(map(holds_traced, args)):
        return np.ix_(*args)
    results = []
    for k, sequence in enumerate(args):
        x = as_traced(sequence)
        if x.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if x.dtype.kind == "b":
            x = as_traced(gathered(xp.flatnonzero(x)))
        results.append(reshaped(x, (1,) * k + x.shape + (1,) * (len(args) - k - 1)))
    return tuple(results)
