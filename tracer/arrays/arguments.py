"""Helpers shared by the tracer's NumPy functions: axes, static arguments, refusals.

Every function takes NumPy's arguments under NumPy's names; an unsupported argument is refused by name, never ignored.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from pullback.ir.shapes.by_value import same_extent, same_shape
from pullback.tracer.arrays.make import cast, created, emit, expand, extent_of, is_one
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError

NOVALUE: Any = np._NoValue
# NumPy, called with traced arrays, which its type stubs do not cover.
xp: Any = np
Axes = tuple[int, ...]


def existing(*names: str) -> list[Any]:
    """Return the named functions that this version of NumPy has."""
    return [getattr(np, name) for name in names if hasattr(np, name)]


def refuse(function: str, instead: str = "leave it out", **arguments: Any) -> None:
    """Raise TraceError if an argument was passed (it is neither None nor NumPy's marker of absence)."""
    for name, value in arguments.items():
        if value is not None and value is not NOVALUE:
            whose = function if function.startswith("scipy.") else f"np.{function}"
            raise TraceError(f"{whose} got {name}={_short(value)}, which cannot be compiled; {instead}")


def _short(value: Any) -> str:
    text = "<array>" if isinstance(value, np.ndarray | TracedArray) else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def or_default(value: Any, default: Any = None) -> Any:
    """Return ``value``, or ``default`` if it is NumPy's marker of absence."""
    return default if value is NOVALUE else value


def axes_of(axis: Any, ndim: int) -> Axes:
    """Return the sorted non-negative axes of a reduction; None means all. Raises AxisError, ValueError, TypeError as NumPy."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple):
        axes = [axis_of(a, ndim) for a in axis]
        if len(set(axes)) != len(axes):
            raise ValueError("duplicate value in 'axis'")
        return tuple(sorted(axes))
    return (axis_of(axis, ndim),)


def reduced_axes(axis: Any, ndim: int) -> Axes:
    """As ``axes_of``, for the reductions that treat a scalar as having one axis."""
    return () if is_scalars_axis(axis, ndim) else axes_of(axis, ndim)


def as_number(x: Any) -> Any:
    """Return a traced array of rank 0 as a read-only scalar, as most functions of NumPy do; other arrays unchanged."""
    return x if x.ndim else x[()]


def as_array(x: TracedArray) -> TracedArray:
    """Return a traced scalar as a writable array of rank 0; other values unchanged."""
    return x if x.ndim or x.is_cell else created(x)


def is_scalars_axis(axis: Any, ndim: int) -> bool:
    """Return whether an axis is the one that NumPy's reductions and scans accept for a scalar."""
    return ndim == 0 and not isinstance(axis, tuple) and axis is not None and operator.index(axis) in (0, -1)


def scanned(x: TracedArray, axis: Any) -> tuple[TracedArray, int]:
    """Return an array and the axis to scan: the flattened array if there is no axis, or for a scalar."""
    if axis is None or is_scalars_axis(axis, x.ndim):
        return reshaped(x, (x.size,)), 0
    return x, axis_of(axis, x.ndim)


def axis_of(axis: Any, ndim: int) -> int:
    """Return an axis as a non-negative one. Raises AxisError outside the rank."""
    return int(normalize_axis_index(operator.index(axis), ndim))


def axis_list(axis: Any, ndim: int, name: str | None = None) -> Axes:
    """Return non-negative distinct axes in the order of the argument."""
    axes = normalize_axis_tuple(axis, ndim, argname=name)
    return tuple(int(a) for a in axes)


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return a shape argument as a tuple of ints."""
    if isinstance(shape, np.ndarray):
        shape = shape.tolist()
    if isinstance(shape, Sequence):
        return tuple(map(extent_of, shape))
    return (extent_of(shape),)


def new_shape(shape: Any, message: str = "negative dimensions are not allowed") -> tuple[int, ...]:
    """Return a shape argument as a tuple of ints. Raises ValueError for a negative one."""
    extents = shape_of(shape)
    if any(type(n) is int and n < 0 for n in extents):
        raise ValueError(message)
    return extents


def positions(shape: Sequence[int], axis: int, dtype: Any = np.int64) -> TracedArray:
    """Return the index along ``axis`` at each element of an array of ``shape``."""
    indices = emit("iota", shape=tuple(shape), axis=axis, dtype=dtype)
    assert isinstance(indices, TracedArray)
    return indices


def part(x: TracedArray, axis: int, start: int, count: int, step: int = 1) -> TracedArray:
    """Return ``count`` elements along one axis from ``start``; a negative step goes backwards."""
    if start == 0 and step == 1 and count == x.shape[axis]:
        return x
    first = start if step > 0 else start + (count - 1) * step
    zeros, ones = [0] * x.ndim, [1] * x.ndim
    shape = list(x.shape)
    zeros[axis], ones[axis], shape[axis] = first if count else 0, abs(step), count
    sliced = emit("slice", x, start=tuple(zeros), step=tuple(ones), shape=tuple(shape))
    return emit("flip", sliced, axes=(axis,)) if step < 0 else sliced


def remove_axes(x: TracedArray, axes: Sequence[int]) -> TracedArray:
    """Remove the axes of extent 1 at the given positions."""
    return emit("squeeze", x, axes=tuple(sorted(axes))) if axes else x


def permute(x: TracedArray, perm: Sequence[int]) -> TracedArray:
    """Transpose the axes."""
    return x if list(perm) == list(range(x.ndim)) else emit("transpose", x, perm=tuple(perm))


def reshaped(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """Reshape ``x`` in row-major order; axes of extent 1 are added and removed without a reshape."""
    shape = tuple(shape)
    if same_shape(shape, x.shape):
        return x
    gone, new = _unit_axes(x.shape, shape)
    if gone is None or new is None:
        return emit("reshape", x, shape=shape)
    return expand(remove_axes(x, gone), new)


def _unit_axes(old: Sequence[int], new: Sequence[int]) -> tuple[list[int] | None, list[int] | None]:
    """Return the axes of extent 1 that ``old`` loses and ``new`` gains; None, None if other axes change too."""
    gone, gained, i, j = [], [], 0, 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and same_extent(old[i], new[j]):
            i, j = i + 1, j + 1
        elif i < len(old) and is_one(old[i]):
            gone.append(i)
            i += 1
        elif j < len(new) and is_one(new[j]):
            gained.append(j)
            j += 1
        else:
            return None, None
    return gone, gained


def as_bool(x: TracedArray) -> TracedArray:
    """Return NumPy's truth of each element."""
    return x if x.dtype == np.bool_ else cast(x, np.bool_)


def choose_where(condition: TracedArray, x: TracedArray, y: TracedArray) -> TracedArray:
    """Return ``x`` where the condition holds, else ``y``, which have equal shapes and dtypes."""
    selected = emit("select", condition, x, y)
    assert isinstance(selected, TracedArray)
    return selected
