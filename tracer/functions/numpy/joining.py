"""Joining and splitting arrays."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import extents_differ, is_value_size
from pullback.tracer.arrays.arguments import axis_of, existing, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, conform, emit, expand, extent_of, holds_traced, number_of_extent, promote
from pullback.tracer.arrays.replacements import SEQUENCES, twin
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray, has_rows
from pullback.tracer.arrays.value_extents import check_some, is_computed
from pullback.tracer.user_code.errors import TraceError


def arrays_of(values: Any) -> list[TracedArray]:
    """Return the elements of a sequence, or the rows of an array, as traced arrays."""
    return [as_traced(v) for v in values]


def _common(arrays: Sequence[TracedArray], dtype: Any, casting: str) -> list[TracedArray]:
    """Convert the arrays to the dtype in which they are joined."""
    if dtype is None:
        return promote(*arrays)
    target = np.dtype(dtype)
    for a in arrays:
        if not np.can_cast(a.dtype, target, casting):  # type: ignore[arg-type]
            raise TypeError(f"Cannot cast array data from {a.dtype!r} to {target!r} according to the rule '{casting}'")
    return [cast(a, target) for a in arrays]


@implements(np.concatenate)
def concatenate(arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> TracedArray:
    operands = arrays_of(arrays)
    if not operands:
        raise ValueError("need at least one array to concatenate")
    if axis is None:
        operands, axis = [reshaped(a, (a.size,)) for a in operands], 0
    if operands[0].ndim == 0:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    at = axis_of(axis, operands[0].ndim)
    operands = _with_equal_shapes(operands, at)
    operands = _common(operands, dtype, casting)
    starts = [0, *itertools.accumulate(a.shape[at] for a in operands)]
    shape = list(operands[0].shape)
    shape[at] = starts.pop()
    result = emit("concat", *operands, axis=at, starts=tuple(starts), shape=tuple(shape))
    assert isinstance(result, TracedArray)
    return result


def _with_equal_shapes(arrays: Sequence[TracedArray], axis: int) -> list[TracedArray]:
    """Return arrays of equal shapes but for ``axis``. Raises NumPy's ValueError if they are not."""
    first = arrays[0]
    for k, a in enumerate(arrays):
        if a.ndim != first.ndim:
            raise ValueError(
                "all the input arrays must have same number of dimensions, but the array "
                f"at index 0 has {first.ndim} dimension(s) and the array at index {k} has {a.ndim} dimension(s)"
            )
        for d, (n, m) in enumerate(zip(first.shape, a.shape, strict=True)):
            if extents_differ(n, m) and d != axis:
                raise ValueError(
                    "all the input array dimensions except for the concatenation axis must match exactly, but along "
                    f"dimension {d}, the array at index 0 has size {n} and the array at index {k} has size {m}"
                )
    message = "all the input array dimensions except for the concatenation axis must match exactly"
    return [conform(a, [a.shape[d] if d == axis else n for d, n in enumerate(first.shape)], message) for a in arrays]


@implements(np.stack)
def stack(arrays: Any, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind") -> TracedArray:
    operands = arrays_of(arrays)
    if not operands:
        raise ValueError("need at least one array to stack")
    operands = [conform(a, operands[0].shape, "all input arrays must have the same shape") for a in operands]
    at = axis_of(axis, operands[0].ndim + 1)
    return concatenate([expand(a, (at,)) for a in operands], at, dtype=dtype, casting=casting)


@implements(np.vstack)
def vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> TracedArray:
    rows = [xp.atleast_2d(a) for a in arrays_of(tup)]
    return concatenate(rows, 0, dtype=dtype, casting=casting)


@implements(np.hstack)
def hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> TracedArray:
    operands = [xp.atleast_1d(a) for a in arrays_of(tup)]
    return concatenate(operands, 0 if operands and operands[0].ndim == 1 else 1, dtype=dtype, casting=casting)


@implements(np.dstack)
def dstack(tup: Any) -> TracedArray:
    return concatenate([np.atleast_3d(a) for a in arrays_of(tup)], 2)


@implements(np.column_stack)
def column_stack(tup: Any) -> TracedArray:
    columns = arrays_of(tup)
    return concatenate([a if a.ndim >= 2 else reshaped(a, (a.size, 1)) for a in columns], 1)


@implements(np.append)
def append(arr: Any, values: Any, axis: Any = None) -> TracedArray:
    return concatenate([as_traced(arr), as_traced(values)], axis)


# splitting


def _pieces(x: TracedArray, bounds: Sequence[int], axis: int) -> list[TracedArray]:
    """Return the parts between consecutive bounds, counted and clipped as slices are."""
    pieces = []
    for low, high in itertools.pairwise(bounds):
        pieces.append(x[(slice(None),) * axis + (slice(low, high),)])
    return pieces


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[TracedArray]:
    x = as_traced(ary)
    at = axis_of(axis, x.ndim)
    n = x.shape[at]
    if _holds_bounds(indices_or_sections):
        return _pieces(x, [0, *(k if is_computed(k) else extent_of(k) for k in indices_or_sections), n], at)
    sections = operator.index(indices_or_sections) if is_value_size(n) else extent_of(indices_or_sections)
    if sections <= 0:
        raise ValueError("number sections must be larger than 0.")
    if is_value_size(n):
        size: Any = number_of_extent(n)
        each, extra = size // sections, size % sections
        return _pieces(x, [k * each + xp.minimum(k, extra) for k in range(sections + 1)], at)
    each, extra = divmod(n, sections)
    return _pieces(x, [k * each + min(k, extra) for k in range(sections + 1)], at)


def _holds_bounds(indices_or_sections: Any) -> bool:
    """Return whether the argument of a split is a sequence of positions, and not their number."""
    if isinstance(indices_or_sections, list | tuple):
        return True
    return bool(indices_or_sections.ndim if isinstance(indices_or_sections, TracedArray) else np.ndim(indices_or_sections))


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: Any = 0) -> list[TracedArray]:
    x = as_traced(ary)
    n, message = x.shape[axis_of(axis, x.ndim)], "array split does not result in an equal division"
    if not _holds_bounds(indices_or_sections) and is_value_size(n):
        rest: Any = number_of_extent(n) % operator.index(indices_or_sections)
        emit("check", as_traced(rest == 0), error="ValueError", message=message)
    elif not _holds_bounds(indices_or_sections) and n % extent_of(indices_or_sections):
        raise ValueError(message)
    return array_split(x, indices_or_sections, axis)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[TracedArray]:
    x = as_traced(ary)
    if x.ndim == 0:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(x, indices_or_sections, 1 if x.ndim > 1 else 0)


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[TracedArray]:
    x = as_traced(ary)
    if x.ndim < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(x, indices_or_sections, 0)


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[TracedArray]:
    x = as_traced(ary)
    if x.ndim < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(x, indices_or_sections, 2)


@implements(*existing("unstack"))
def unstack(x: Any, /, *, axis: Any = 0) -> tuple[TracedArray, ...]:
    a = as_traced(x)
    if a.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    at = axis_of(axis, a.ndim)
    return tuple(a[(slice(None),) * at + (k,)] for k in range(a.shape[at]))


# of lists whose elements are rows of an array


def stacked_rows(array: Any, axis: int = 0) -> Any:
    """Return ``np.stack`` of the rows of an array."""
    check_some(array.shape[0], "need at least one array to stack")
    return np.moveaxis(array, 0, axis)


def concatenated_rows(array: Any, axis: int | None = 0) -> Any:
    """Return ``np.concatenate`` of the rows of an array."""
    check_some(array.shape[0], "need at least one array to concatenate")
    if axis is None:
        return array.reshape(-1)
    if array.ndim == 1:
        raise ValueError("zero-dimensional arrays cannot be concatenated")
    axis = axis_of(axis, array.ndim - 1)
    moved = np.moveaxis(array, 0, axis)
    return moved.reshape(*moved.shape[:axis], -1, *moved.shape[axis + 2 :])


def vertical_rows(array: Any) -> Any:
    """Return ``np.vstack`` of the rows of an array."""
    check_some(array.shape[0], "need at least one array to concatenate")
    if array.ndim > 2:
        return concatenated_rows(array)
    return array[:, None] if array.ndim == 1 else array


def horizontal_rows(array: Any) -> Any:
    """Return ``np.hstack`` of the rows of an array."""
    return concatenated_rows(array[:, None] if array.ndim == 1 else array, 0 if array.ndim < 3 else 1)


def columns_of_rows(array: Any) -> Any:
    """Return ``np.column_stack`` of the rows of an array."""
    if array.ndim > 2:
        return concatenated_rows(array, 1)
    check_some(array.shape[0], "need at least one array to concatenate")
    return array[None, :] if array.ndim == 1 else array.T


def unsupported_rows(array: Any, *args: Any, **kwargs: Any) -> Any:
    """Raise TraceError."""
    raise TraceError("this function of a list of a number of arrays that values decide is not supported; use np.concatenate")


SEQUENCES.update({np.stack: stacked_rows, np.concatenate: concatenated_rows, np.vstack: vertical_rows})
SEQUENCES.update({np.hstack: horizontal_rows, np.column_stack: columns_of_rows})
SEQUENCES.update(dict.fromkeys((np.dstack, np.block), unsupported_rows))


def _of_arrays(function: Any) -> Any:
    """Return a function that calls another one, with arrays in place of lists of traced numbers among what it joins."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if args and function is not np.block and isinstance(args[0], list | tuple) and not has_rows(args[0]):
            parts = [as_traced(x) if isinstance(x, list | tuple) and holds_traced(x) else x for x in args[0]]
            if any(new is not old for new, old in zip(parts, args[0], strict=True)):
                args = (parts, *args[1:])
        return function(*args, **kwargs)

    return call


for _function in SEQUENCES:
    twin(_function)(_of_arrays(_function))
