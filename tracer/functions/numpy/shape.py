"""Functions that move elements without computing: shapes, axes, repetition, diagonals.

Where NumPy returns a view, the result is marked by ``view``: without a recipe it can neither be written nor read after a write
to its array.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import extents_differ, holds_value_size, is_value_size, same_extent
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.arguments import (
    as_array,
    axes_of,
    axis_list,
    axis_of,
    choose_where,
    existing,
    new_shape,
    part,
    permute,
    positions,
    reduced_axes,
    refuse,
    reshaped,
    scanned,
    shape_of,
    xp,
)
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_to,
    broadcast_together,
    cast,
    convert,
    created,
    emit,
    extent_of,
    fresh,
    full,
    holds_traced,
    is_one,
    literal,
    number_of_extent,
    static_array,
    strides_of,
)
from pullback.tracer.arrays.strides import Strides, is_column_major, is_row_major, strides_of_reshape
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import Recipe, TracedArray
from pullback.tracer.arrays.value_extents import check_extents, check_greater, reduced_extent, value_extent
from pullback.tracer.arrays.views import view
from pullback.tracer.user_code.errors import TraceError

# shapes


def reshaped_view(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """Return ``x`` in row-major order under another shape: a view, or a copy where NumPy copies.

    If the memory order of ``x`` is unknown, the result may be either: it can neither be written nor read after a write to
    ``x``.
    """
    shape = tuple(shape)
    strides = strides_of(x)
    if strides is not None and strides_of_reshape(x.shape, strides, shape) is None:
        return _copied(x, shape)
    is_view = strides is not None or x.ndim <= 1 or [n for n in x.shape if n != 1] == [n for n in shape if n != 1]
    old = x.shape
    recipe = Recipe(
        take=lambda base: reshaped(base, shape),
        put=lambda base, new: reshaped(new, old),
        strides=lambda strides: strides_of_reshape(old, strides, shape),
        key=("reshape", shape),
    )
    return view(reshaped(x, shape), x, recipe if is_view else None)


def _copied(x: TracedArray, shape: Sequence[int]) -> TracedArray:
    """Return a row-major copy under another shape."""
    result = fresh(reshaped(x, shape))
    result.is_dense = True
    return result


def permuted_view(x: TracedArray, perm: Sequence[int]) -> TracedArray:
    """Return ``x`` with its axes permuted, as a view."""
    perm = tuple(perm)
    back = sorted(range(len(perm)), key=lambda k: perm[k])
    recipe = Recipe(
        take=lambda base: permute(base, perm),
        put=lambda base, new: permute(new, back),
        strides=lambda strides: tuple(strides[k] for k in perm),
        key=("permute", perm),
    )
    return view(permute(x, perm), x, recipe)


def flat_view(x: TracedArray) -> TracedArray:
    """Return all elements in row-major order, as a view that can be written whatever the memory order of ``x``."""
    old = x.shape
    recipe = Recipe(take=lambda base: reshaped(base, (base.size,)), put=lambda base, new: reshaped(new, old), key="flat")
    return view(reshaped(x, (x.size,)), x, recipe)


def _resolve(shape: Any, size: int) -> tuple[int, ...]:
    """Return a new shape with its -1 replaced by the extent that follows from ``size``."""
    sizes = shape_of(shape)
    unknown = [k for k, n in enumerate(sizes) if n < 0]
    if len(unknown) > 1:
        raise ValueError("can only specify one unknown dimension")
    product = math.prod(n for n in sizes if n >= 0)
    if is_value_size(size) or holds_value_size(sizes):
        return _resolve_by_value(sizes, size, product, bool(unknown))
    if unknown and product and size % product == 0:
        sizes = tuple(size // product if n < 0 else n for n in sizes)
    if math.prod(sizes) != size or any(n < 0 for n in sizes):
        raise ValueError(f"cannot reshape array of size {size} into shape {str(shape_of(shape)).replace(' ', '')}")
    return sizes


def _resolve_by_value(sizes: tuple[int, ...], size: int, product: int, is_unknown: bool) -> tuple[int, ...]:
    """Return a new shape with its -1 replaced; the program checks that it has ``size`` elements. ``product``: of the others."""
    text = str(tuple("n" if is_value_size(n) else n for n in sizes)).replace(" ", "").replace("'", "")
    message = f"cannot reshape an array, whose size depends on values, into shape {text}"
    if not is_unknown:
        check_extents(math.prod(sizes), size, message)
        return sizes
    if same_extent(product, 1):
        return tuple(size if same_extent(n, -1) else n for n in sizes)
    divisor = number_of_extent(product)
    if is_value_size(product):
        check_greater(product, 0, message)
    total: Any = number_of_extent(size)
    emit("check", emit("eq", as_traced(total % divisor), literal(0, np.int64)), error="ValueError", message=message)
    missing = value_extent(as_traced(total // divisor), least=0)
    return tuple(missing if same_extent(n, -1) else n for n in sizes)


@implements(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> TracedArray:
    x = as_traced(a)
    new_shape = _resolve(shape, x.size)
    if order == "A":
        order = _memory_order(x, strides_of(x), order)
    if order == "C":
        return reshaped_view(x, new_shape)
    if order != "F":
        raise ValueError(f"order must be one of 'C', 'F' or 'A' (got {order!r})")
    backwards = reshaped_view(permuted_view(x, range(x.ndim)[::-1]), new_shape[::-1])
    return permuted_view(backwards, range(len(new_shape))[::-1])


@register_method("reshape")
def reshape_method(a: TracedArray, *shape: Any, order: str = "C", copy: Any = None) -> TracedArray:
    return reshape(a, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)


@register_method("ravel")
@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> TracedArray:
    x = as_traced(a)
    strides = strides_of(x)
    if order in ("A", "K"):
        order = _memory_order(x, strides, order)
    if order == "K":
        steps = strides or ()
        x = permuted_view(x, sorted(range(x.ndim), key=lambda k: -abs(steps[k])))
    elif order == "F":
        x = permuted_view(x, range(x.ndim)[::-1])
    elif order != "C":
        raise ValueError(f"order must be one of 'C', 'F', 'A', or 'K' (got {order!r})")
    strides = strides_of(x)
    if strides is None:
        return view(reshaped(x, (x.size,)), x)
    return reshaped_view(x, (x.size,)) if is_row_major(x.shape, strides) else _copied(x, (x.size,))


def _memory_order(x: TracedArray, strides: Strides | None, order: str) -> str:
    """Return "C" or "F" for order "A" or "K" if the array has that memory order, else "K" (for "A": "C")."""
    if strides is None:
        raise TraceError(f"order={order!r} of an array whose order in memory is not known; use order='C' or 'F'")
    if is_row_major(x.shape, strides):
        return "C"
    if is_column_major(x.shape, strides):
        return "F"
    return "C" if order == "A" else "K"


@register_method("flatten")
def flatten(a: TracedArray, order: str = "C") -> TracedArray:
    return copy(ravel(a, order))


@implements(np.transpose, np.permute_dims)
def transpose(a: Any, axes: Any = None) -> TracedArray:
    x = as_traced(a)
    if axes is None:
        return permuted_view(x, range(x.ndim)[::-1])
    if len(axes) != x.ndim:
        raise ValueError("axes don't match array")
    perm = [axis_of(k, x.ndim) for k in axes]
    if len(set(perm)) != len(perm):
        raise ValueError("repeated axis in transpose")
    return permuted_view(x, perm)


@register_method("transpose")
def transpose_method(a: TracedArray, *axes: Any) -> TracedArray:
    if not axes:
        return transpose(a)
    return transpose(a, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


@implements(np.matrix_transpose)
def matrix_transpose(x: Any, /) -> TracedArray:
    a = as_traced(x)
    if a.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {a.ndim}")
    return swapaxes(a, -1, -2)


@register_method("swapaxes")
@implements(np.swapaxes)
def swapaxes(a: Any, axis1: Any, axis2: Any) -> TracedArray:
    x = as_traced(a)
    i, j = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim)
    perm = list(range(x.ndim))
    perm[i], perm[j] = perm[j], perm[i]
    return permuted_view(x, perm)


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> TracedArray:
    x = as_traced(a)
    froms, tos = axis_list(source, x.ndim, "source"), axis_list(destination, x.ndim, "destination")
    if len(froms) != len(tos):
        raise ValueError("`source` and `destination` arguments must have the same number of elements")
    order = [k for k in range(x.ndim) if k not in froms]
    for to, start in sorted(zip(tos, froms, strict=True)):
        order.insert(to, start)
    return permuted_view(x, order)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: Any, start: Any = 0) -> TracedArray:
    x = as_traced(a)
    at, to = axis_of(axis, x.ndim), operator.index(start)
    to += x.ndim if to < 0 else 0
    if not 0 <= to <= x.ndim:
        raise np.exceptions.AxisError(f"'start' arg requires {-x.ndim} <= start < {x.ndim + 1}, but {start} was passed in")
    perm = [k for k in range(x.ndim) if k != at]
    perm.insert(to - 1 if at < to else to, at)
    return permuted_view(x, perm)


@register_method("squeeze")
@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> TracedArray:
    x = as_traced(a)
    if axis is None:
        for n in filter(is_value_size, x.shape):
            message = "np.squeeze with an axis whose length depends on values and is 1; give the axes, np.squeeze(x, 0)"
            emit("check", as_traced(number_of_extent(n) != 1), error="ValueError", message=message)
        return reshaped_view(x, _without(x.shape, [k for k, n in enumerate(x.shape) if is_one(n)]))
    axes = reduced_axes(axis, x.ndim)
    message = "cannot select an axis to squeeze out which has size not equal to one"
    if any(extents_differ(x.shape[k], 1) for k in axes):
        raise ValueError(message)
    for k in axes:
        check_extents(x.shape[k], 1, message)
    return reshaped_view(x, _without(x.shape, axes))


def _without(shape: Sequence[int], axes: Sequence[int]) -> list[int]:
    return [n for k, n in enumerate(shape) if k not in axes]


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> TracedArray:
    x = as_traced(a)
    axes = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    shape = list(x.shape)
    for k in sorted(axis_list(axes, x.ndim + len(axes))):
        shape.insert(k, 1)
    return reshaped_view(x, shape)


def _broadcast_view(x: TracedArray, shape: Sequence[int], is_readonly: bool) -> TracedArray:
    """Return ``x`` broadcast to ``shape``, as a view that cannot be written."""
    shape = tuple(shape)
    lead = len(shape) - x.ndim

    def strides(source: Strides) -> Strides:
        return (0,) * lead + tuple(s if n == m else 0 for s, n, m in zip(source, x.shape, shape[lead:], strict=True))

    value = broadcast_to(x, shape)
    recipe = Recipe(take=lambda base: broadcast_to(base, shape), put=None, strides=strides, key=("broadcast", shape))
    result = as_array(view(value, x, recipe))
    if not is_readonly and result.base is not None:
        result.readonly = OVERLAPS
    return result


OVERLAPS = "its elements are those of the array that it was broadcast from; write into that array, or into a copy"
"""The reason that a broadcast view cannot be written, for the error message."""


@implements(np.broadcast_to)
def broadcast_to_shape(array: Any, shape: Any, subok: bool = False) -> TracedArray:
    x = as_traced(array)
    target = new_shape(shape, "all elements of broadcast shape must be non-negative")
    if len(target) < x.ndim:
        raise ValueError("input operand has more dimensions than allowed by the axis remapping")
    return _broadcast_view(x, target, True)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[TracedArray, ...]:
    arrays = [as_traced(a) for a in args]
    shape = broadcast_together(*arrays)[0].shape if arrays else ()
    return tuple(as_array(a) if a.shape == shape else _broadcast_view(a, shape, False) for a in arrays)


def _at_least(rank: int, arrays: Sequence[Any]) -> Any:
    results = []
    for a in arrays:
        x = as_traced(a)
        missing = rank - x.ndim
        before = min(missing, 1) if rank == 3 and x.ndim == 1 else missing
        if missing > 0:
            lead = 0 if rank == 3 and x.ndim == 2 else before
            shape = (1,) * lead + x.shape + (1,) * (missing - lead)
            x = reshaped_view(x, shape)
        results.append(x)
    return results[0] if len(results) == 1 else tuple(results)


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return _at_least(1, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return _at_least(2, arys)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    return _at_least(3, arys)


# order of elements


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> TracedArray:
    x = as_traced(m)
    axes = axes_of(axis, x.ndim)
    if not axes:
        return x[...] if x.ndim else x[()]
    recipe = Recipe(
        take=lambda base: emit("flip", base, axes=axes),
        put=lambda base, new: emit("flip", new, axes=axes),
        strides=lambda strides: tuple(-s if k in axes else s for k, s in enumerate(strides)),
        key=("flip", axes),
    )
    return view(emit("flip", x, axes=axes), x, recipe)


@implements(np.flipud)
def flipud(m: Any) -> TracedArray:
    x = as_traced(m)
    if x.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flip(x, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> TracedArray:
    x = as_traced(m)
    if x.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(x, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> TracedArray:
    x = as_traced(m)
    if len(axes) != 2:
        raise ValueError("len(axes) must be 2.")
    if axes[0] == axes[1] or abs(axes[0] - axes[1]) == x.ndim:
        raise ValueError("Axes must be different.")
    if any(not -x.ndim <= a < x.ndim for a in axes):
        raise ValueError(f"Axes={axes} out of range for array of ndim={x.ndim}.")
    first, second = (axis_of(a, x.ndim) for a in axes)
    match operator.index(k) % 4:
        case 0:
            return x[...]
        case 1:
            return swapaxes(flip(x, second), first, second)
        case 2:
            return flip(x, (first, second))
    return flip(swapaxes(x, first, second), second)


def joined(xs: Sequence[TracedArray], axis: int) -> TracedArray:
    """Concatenate arrays of one dtype along an axis."""
    xs = [x for x in xs if x.shape[axis]] or list(xs[:1])
    if len(xs) == 1:
        return xs[0]
    starts = [0, *itertools.accumulate(x.shape[axis] for x in xs)]
    shape = list(xs[0].shape)
    shape[axis] = starts.pop()
    result = emit("concat", *xs, axis=axis, starts=tuple(starts), shape=tuple(shape))
    assert isinstance(result, TracedArray)
    return result


def _rolled(x: TracedArray, shift: Any, axes: tuple[int, ...]) -> TracedArray:
    """Roll adjacent axes as if they were one."""
    axes = tuple(k for k in axes if x.shape[k] != 1)
    if not axes or 0 in x.shape:
        return x
    n = x.shape[axes[-1]]
    if is_value_size(n):
        return _rolled_by(x, as_traced(shift), axes)
    rows, by = divmod(extent_of(shift), n)
    backward = 2 * by > n
    if axes[:-1]:
        x = _rolled(x, rows + 1 if backward else rows, axes[:-1])
    if not by:
        return x
    axes = tuple(range(axes[0], axes[-1] + 1))
    result = emit("roll", x, axes=axes, offset=(n - by if backward else by,), backward=backward)
    assert isinstance(result, TracedArray)
    return result


def _rolled_by(x: TracedArray, shift: TracedArray, axes: tuple[int, ...]) -> TracedArray:
    """Roll adjacent axes, as if they were one, by a traced number of positions."""
    if 0 in x.shape:
        return x
    rows, by = np.divmod(cast(shift, np.int64), number_of_extent(x.shape[axes[-1]]))
    if axes[:-1]:
        x = _rolled_by(x, as_traced(rows), axes[:-1])
    result = emit("roll_by", x, as_traced(by), axes=axes, backward=False)
    assert isinstance(result, TracedArray)
    return result


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> TracedArray:
    x = as_traced(a)
    if axis is None:
        roll_all = _rolled_by if isinstance(shift, TracedArray) else _rolled
        return copy(roll_all(x, shift, tuple(range(x.ndim)))) if x.ndim else copy(x)
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    shifts = shift if isinstance(shift, tuple | list | np.ndarray) else (shift,)
    pairs = np.broadcast(np.empty(len(axes)), np.empty(len(shifts)))
    if pairs.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    for k in range(pairs.size):
        by, at = shifts[k % len(shifts)], axis_of(axes[k % len(axes)], x.ndim)
        x = (_rolled_by if isinstance(by, TracedArray) else _rolled)(x, by, (at,))
    return copy(x)


@implements(np.tile)
def tile(A: Any, reps: Any) -> TracedArray:
    x = as_traced(A)
    counts = new_shape(reps)
    rank = max(len(counts), x.ndim)
    counts = (1,) * (rank - len(counts)) + counts
    x = reshaped(x, (1,) * (rank - x.ndim) + x.shape)
    axes: list[int] = []
    shape: list[int] = []
    merged: list[int] = []
    for n, count in zip(x.shape, counts, strict=True):
        if is_value_size(count) or count != 1:
            axes.append(len(shape))
            shape.append(count)
        shape.append(n)
        merged.append(n * count)
    if not axes:
        return copy(x)
    return reshaped(emit("broadcast", x, axes=tuple(axes), shape=tuple(shape)), merged)


@register_method("repeat")
@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: Any = None) -> TracedArray:
    x, repeats = as_traced(a), static_array(repeats)
    if isinstance(repeats, list | tuple) and holds_traced(repeats):
        repeats = as_traced(repeats)
    x, at = scanned(x, axis)
    if isinstance(repeats, TracedArray):
        return _repeated_by(x, repeats, at)
    counts = np.asarray(1 if is_size(repeats) else repeats)
    if counts.size == 1:
        count = repeats if is_size(repeats) else operator.index(counts.reshape(())[()])
        if count < 0:
            raise ValueError("repeats may not contain negative values.")
        return _each_repeated(x, count, at)
    if is_value_size(x.shape[at]):
        return _repeated_by(x, as_traced(counts), at)
    return xp.take(x, xp.repeat(xp.arange(x.shape[at]), counts), axis=at)


def _each_repeated(x: TracedArray, count: int, at: int) -> TracedArray:
    shape = [*x.shape[: at + 1], count, *x.shape[at + 1 :]]
    merged = [*x.shape[:at], x.shape[at] * count, *x.shape[at + 1 :]]
    return reshaped(emit("broadcast", x, axes=(at + 1,), shape=tuple(shape)), merged)


def _repeated_by(x: TracedArray, repeats: TracedArray, at: int) -> TracedArray:
    """Return the entries along an axis, each repeated a traced number of times."""
    if not np.can_cast(repeats.dtype, np.int64, "safe"):
        raise TypeError(f"Cannot cast array data from {repeats.dtype!r} to dtype('int64') according to the rule 'safe'")
    if repeats.ndim > 1:
        raise ValueError("object too deep for desired array")
    counts, n = cast(repeats, np.int64), x.shape[at]
    message = "repeats may not contain negative values."
    if not counts.ndim or is_one(counts.shape[0]):
        return _each_repeated(x, value_extent(reshaped(counts, ()), message=message), at)
    if not (is_value_size(n) or is_value_size(counts.shape[0]) or n == counts.shape[0]):
        raise ValueError(f"operands could not be broadcast together with shape ({n},) ({counts.shape[0]},)")
    check_extents(counts.shape[0], n, "operands could not be broadcast together: the repeats are not one for each element")
    emit("check", emit("ge", counts, full(counts.shape, 0, np.int64)), error="ValueError", message=message)
    if not n:
        return copy(x)
    ends = xp.cumsum(counts)
    total = value_extent(as_traced(xp.sum(counts)), least=0)
    marks = emit("scatter_add", full((total + 1,), 0, np.int64), ends, full(counts.shape, 1, np.int64), axes=(0,))
    return xp.take(x, xp.cumsum(part(marks, 0, 0, total)), axis=at)


# diagonals and triangles


@register_method("diagonal")
@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: Any = 0, axis2: Any = 1) -> TracedArray:
    """Return a diagonal, as a view that cannot be written."""
    x = as_traced(a)
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    i, j = axis_of(axis1, x.ndim), axis_of(axis2, x.ndim)
    if i == j:
        raise ValueError("axis1 and axis2 cannot be the same")
    offset = operator.index(offset)
    others = [k for k in range(x.ndim) if k not in (i, j)]
    recipe = Recipe(
        take=lambda base: _diagonal(base, offset, i, j),
        put=None,
        strides=lambda strides: (*(strides[k] for k in others), strides[i] + strides[j]),
        key=("diagonal", offset, i, j),
    )
    return view(_diagonal(x, offset, i, j), x, recipe)


def _diagonal(x: TracedArray, offset: int, i: int, j: int) -> TracedArray:
    x = permute(x, [i, j, *(k for k in range(x.ndim) if k not in (i, j))])
    top, left = max(-offset, 0), max(offset, 0)
    if holds_value_size(x.shape[:2]):
        return permute(_diagonal_by_value(x, top, left), [*range(1, x.ndim - 1), 0])
    count = max(min(x.shape[0] - top, x.shape[1] - left), 0)
    x = part(part(x, 0, top if count else 0, count), 1, left if count else 0, count)
    index = positions((count,), 0)
    result = emit("gather", x, index, index, axes=(0, 1))
    return permute(result, [*range(1, result.ndim), 0])


def _diagonal_by_value(x: TracedArray, top: int, left: int) -> TracedArray:
    """Return a diagonal of the first two axes, as the first axis."""
    rows, columns = (reduced_extent(x.shape[k], by) for k, by in enumerate((top, left)))
    count = rows
    if not same_extent(rows, columns):
        count = value_extent(as_traced(xp.minimum(number_of_extent(rows), number_of_extent(columns))), least=0, most=rows)
    index: Any = positions((count,), 0)
    gathered: TracedArray = emit("gather", x, as_traced(index + top), as_traced(index + left), axes=(0, 1))
    return gathered


@implements(np.diag)
def diag(v: Any, k: int = 0) -> TracedArray:
    x, k = as_traced(v), operator.index(k)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = x.shape[0] + abs(k)
    column = emit("pad", x, start=(max(k, 0),), step=(1,), shape=(n,)) if k else x
    everywhere = emit("broadcast", column, axes=(0,), shape=(n, n))
    return choose_where(band((n, n), k, "eq"), everywhere, full((n, n), 0, x.dtype))


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> TracedArray:
    x = as_traced(v)
    return diag(reshaped(x, (x.size,)), k)


def band(shape: Sequence[int], k: int, comparison: str) -> TracedArray:
    """Return whether column - row compares with ``k``, elementwise over the last two axes of ``shape``."""
    rank = len(shape)
    offset = full(shape, k, np.int64)
    row = positions(shape, rank - 2)
    result = emit(comparison, positions(shape, rank - 1), row + offset if k else row)
    assert isinstance(result, TracedArray)
    return result


def _triangle(m: Any, k: int, comparison: str) -> TracedArray:
    x = as_traced(m)
    if x.ndim == 1:
        x = broadcast_to(x, (x.size, x.size))
    if x.ndim < 2:
        raise TypeError("np.tril and np.triu take an array of at least one dimension")
    return choose_where(band(x.shape, operator.index(k), comparison), x, full(x.shape, 0, x.dtype))


@implements(np.triu)
def triu(m: Any, k: int = 0) -> TracedArray:
    return _triangle(m, k, "ge")


@implements(np.tril)
def tril(m: Any, k: int = 0) -> TracedArray:
    return _triangle(m, k, "le")


@register_method("trace")
@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: Any = 0, axis2: Any = 1, dtype: Any = None, out: Any = None) -> TracedArray:
    return xp.sum(diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype)


# copies and casts


@implements(np.copy)
def copy(a: Any, order: str = "K", subok: bool = False) -> TracedArray:
    x = as_traced(a)
    result = created(x)
    result.is_dense = result.is_dense if order in ("K", "A") else order == "C" or result.ndim < 2
    return result


@register_method("copy")
def copy_method(a: TracedArray, order: str = "C") -> TracedArray:
    return copy(a, order) if a.ndim or a.is_cell else fresh(a)


@implements(*existing("astype"))
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> TracedArray:
    refuse("astype", device=None if device == "cpu" else device)
    array = as_traced(x)
    result = convert(array, dtype)
    return created(result) if array.is_cell else fresh(result)


@register_method("astype")
def astype_method(
    a: TracedArray,
    dtype: Any,
    order: str = "K",
    casting: str = "unsafe",
    subok: bool = True,
    copy: bool = True,
) -> TracedArray:
    target = np.dtype(dtype)
    if not np.can_cast(a.dtype, target, casting):  # type: ignore[arg-type]
        raise TypeError(f"Cannot cast array data from {a.dtype!r} to {target!r} according to the rule '{casting}'")
    result = convert(a, target)
    if a.is_cell:
        return created(result)
    return fresh(result) if copy else result
