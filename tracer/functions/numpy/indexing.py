"""Basic and advanced indexing: parsing keys, and reading by them.

A key is parsed once into a ``Plan``, which records the effect on each axis by NumPy's rules. Ints and slices become slice,
flip and squeeze; index arrays become one gather, with a check that they are in range; static masks become index arrays.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.scalars import as_int
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import proof
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import is_size, lifted, sizes_in
from pullback.ir.shapes.symbolic_arrays import SymbolicArray
from pullback.tracer.arrays.arguments import axis_list, axis_of, permute, positions, remove_axes, shape_of
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_into,
    broadcast_together,
    cast,
    created,
    emit,
    expand,
    extent_of,
    first_failing,
    fresh,
    full,
    holds_traced,
    literal,
    number_of_extent,
    static_array,
    static_ints,
    text_of,
)
from pullback.tracer.arrays.masked import DATA_DEPENDENT
from pullback.tracer.arrays.promotion import shapes_text
from pullback.tracer.arrays.python_ints import GREATEST, LEAST, index_bounds, serves_other_sizes
from pullback.tracer.arrays.strides import Strides
from pullback.tracer.arrays.tables import HOOKS, implements
from pullback.tracer.arrays.traced import Recipe, TracedArray
from pullback.tracer.arrays.value_extents import check_extents, check_greater, is_computed, value_extent
from pullback.tracer.arrays.views import view
from pullback.tracer.user_code.check_messages import OUT_OF_RANGE, Handled
from pullback.tracer.user_code.errors import TraceError


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """The effect of a key on one axis: a slice, an int (``is_int``; its index is ``start``), or an index array (``array``), whose
    elements are positions that are not beyond the end if it is ``in_range``."""

    start: int
    step: int
    count: int
    is_int: bool = False
    array: TracedArray | None = None
    in_range: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A parsed key. ``order`` lists the entries of the key from the left: an axis number, None for a new axis, or ``...``."""

    axes: tuple[_Axis, ...]
    order: tuple[Any, ...]

    @property
    def arrays(self) -> list[int]:
        return [k for k, a in enumerate(self.axes) if a.array is not None]

    @property
    def ints(self) -> list[int]:
        return [k for k, a in enumerate(self.axes) if a.is_int]


class IndexKey:
    """The key of a view at traced indices. Keys of the same objects are equal, unless one of the objects was written between."""

    def __init__(self, key: Any) -> None:
        entries = key if isinstance(key, tuple) else (key,)
        self.kinds = tuple(isinstance(e, slice) for e in entries)
        self.items = [x for e in entries for x in ((e.start, e.stop, e.step) if isinstance(e, slice) else (e,))]
        self.versions = tuple(item.version if isinstance(item, TracedArray) else 0 for item in self.items)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IndexKey) or self.kinds != other.kinds:
            return False
        return self.versions == other.versions and all(a is b for a, b in zip(self.items, other.items, strict=True))

    def __hash__(self) -> int:
        return hash(self.versions)


# scalar bools in a key


def _is_bool(item: Any) -> bool:
    """Return whether an entry of a key is a bool of rank 0."""
    if isinstance(item, TracedArray | np.ndarray):
        return not item.ndim and item.dtype.kind == "b"
    return isinstance(item, bool | np.bool_)


def holds_bool(key: Any) -> bool:
    """Return whether a key is a bool of rank 0, or holds one."""
    return any(map(_is_bool, key)) if isinstance(key, tuple) else _is_bool(key)


def without_bools(x: TracedArray, key: Any) -> tuple[TracedArray, tuple[Any, ...]]:
    """Return a view of an array, and a key for it without the bools of rank 0 of ``key``.

    Such a bool is a mask over no axis: an index array of one element if it is true, of none if it is false. Here it indexes a
    new axis of extent 1. Several of them are one condition.
    """
    items = list(key) if isinstance(key, tuple) else [key]
    index = _index_of_bools(items)
    dots = next((k for k, item in enumerate(items) if item is Ellipsis), None)
    for k, item in enumerate(items):
        if not _is_bool(item):
            continue
        if dots is None or k < dots:
            x = x[(*(slice(None),) * sum(map(_consumes, map(_shaped, items[:k]))), None)]
        else:
            x = x[(Ellipsis, None, *(slice(None),) * sum(0 if _is_bool(i) else _consumes(_shaped(i)) for i in items[k + 1 :]))]
        items[k] = index
    return x, tuple(items)


def _shaped(item: Any) -> Any:
    """Return a mask that is a list or traced as an array of its rank, whose axes ``_consumes`` counts."""
    if isinstance(item, list):
        item = as_traced(item) if holds_traced(item) else np.asarray(item)
    return np.empty((0,) * item.ndim, bool) if isinstance(item, TracedArray) and item.dtype.kind == "b" else item


def _index_of_bools(items: Sequence[Any]) -> Any:
    """Return the index array of the bools of rank 0 in a key."""
    condition = functools.reduce(operator.and_, (static_array(i) for i in items if _is_bool(i)))
    if not isinstance(condition, TracedArray):
        return np.zeros(int(bool(condition)), np.int64)
    condition = cast(condition, np.bool_)
    if any(not _is_bool(i) and (isinstance(i, list) or (isinstance(i, TracedArray | np.ndarray) and i.ndim)) for i in items):
        message = "shape mismatch: indexing arrays could not be broadcast together with a bool that is false"
        emit("check", condition, error="IndexError", message=message)
        return full((1,), 0, np.int64)
    return full((value_extent(cast(condition, np.int64), least=0, most=1),), 0, np.int64)


# parsing a key


def _normal(item: Any) -> Any:
    """Return an entry of a key as an int, slice, None, Ellipsis, static array or traced array."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, TracedArray):
        return _normal_traced(item)
    if isinstance(item, list | tuple) and any(isinstance(e, TracedArray) for e in item):
        return _normal_traced(as_traced(list(item)))
    if isinstance(item, int | np.integer):
        index = as_int(item)
        if not is_size(index) and not LEAST <= index <= GREATEST:
            np.empty(1)[item]  # raises NumPy's error of an int that is no index
        return index
    if type(item) is SymbolicArray:
        return _normal_made(item)
    flat: Any = HOOKS["flat"]
    if isinstance(item, flat):
        return _normal(item.copy())
    if isinstance(item, list | tuple | np.ndarray | np.flatiter):
        array = np.asarray(item)
        if array.size == 0 and not isinstance(item, np.ndarray):
            array = array.astype(np.int64)
        if array.dtype.kind in "iu":
            return int(array) if array.ndim == 0 else array
        if array.dtype.kind == "b" and array.ndim:
            return array
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if hasattr(item, "__index__"):
        return operator.index(item)
    raise IndexError(_NO_INDEX)


def _normal_made(item: SymbolicArray) -> Any:
    """Return an integer array that NumPy computed from symbolic sizes unchanged (0-d: as an int); a mask becomes a static
    array."""
    if item.dtype.kind in "iu":
        return as_int(item[()]) if item.ndim == 0 else item
    return _normal(item.pinned())


_NO_INDEX = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or boolean arrays are valid indices"
)


def _normal_traced(item: TracedArray) -> Any:
    if item.dtype.kind == "b":
        mask = static_array(item)
        if isinstance(mask, np.ndarray) and mask.ndim:
            return mask
        raise TraceError(f"an index that is a traced mask: {DATA_DEPENDENT}")
    if item.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type" if item.ndim else _NO_INDEX)
    if item.known is not None and not item.known[1]:
        return _normal(item.known[0])
    if item.literal is not None:
        return as_int(item.literal)
    return item if index_bounds(item) is not None and item.dtype == np.int64 else cast(item, np.int64)


def _unmasked(items: Sequence[Any], shape: Sequence[int], is_scalar: bool = False) -> list[Any]:
    """Expand masks to index arrays, and the ellipsis and missing axes to slices (an Ellipsis that covers no axis stays as a
    marker)."""
    used = sum(_consumes(item) for item in items)
    if used > len(shape):
        if is_scalar:
            raise IndexError("invalid index to scalar variable.")
        raise IndexError(f"too many indices for array: array is {len(shape)}-dimensional, but {used} were indexed")
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if not any(item is Ellipsis for item in items):
        items = [*items, Ellipsis]
    entries: list[Any] = []
    axis = 0
    for item in items:
        if item is Ellipsis:
            missing = len(shape) - used
            entries += [Ellipsis] if not missing else [slice(None)] * missing
            axis += missing
            continue
        if isinstance(item, np.ndarray) and item.dtype.kind == "b":
            check_mask_shape(shape, item.shape, axis)
            entries += item.nonzero()
        else:
            entries.append(item)
        axis += _consumes(item)
    return entries


def check_mask_shape(shape: Sequence[int], mask: Sequence[int], axis: int) -> None:
    """Raise NumPy's IndexError if a mask does not fit the axes from ``axis`` on; emit the check for extents by value."""
    for k, n in enumerate(mask, axis):
        message = f"boolean index did not match indexed array along axis {k}; its length depends on values"
        if is_value_size(shape[k]) or is_value_size(n):
            check_extents(shape[k], n, message, "IndexError")
        elif shape[k] != n:
            raise IndexError(
                f"boolean index did not match indexed array along axis {k}; size of axis is "
                f"{shape[k]} but size of corresponding boolean axis is {n}"
            )


def _consumes(item: Any) -> int:
    """Return the number of axes that an entry of a key indexes."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def is_static_mask(key: Any) -> bool:
    return isinstance(key, np.ndarray) and key.dtype.kind == "b"


def plan_of(shape: Sequence[int], key: Any, is_scalar: bool = False) -> Plan:
    """Parse a key over an array of ``shape``. ``is_scalar``: the indexed value is a scalar, for which NumPy raises another
    error."""
    items = [_normal(item) for item in (key if isinstance(key, tuple) else (key,))]
    axes: list[_Axis] = []
    order: list[Any] = []
    for item in _unmasked(items, shape, is_scalar):
        if item is None or item is Ellipsis:
            order.append(item)
            continue
        axis = len(axes)
        order.append(axis)
        axes.append(_axis(item, axis, shape[axis]))
    if all(a.array is None or not a.array.ndim for a in axes) and any(a.array is not None for a in axes):
        axes = [_position(a, n) if a.is_int else a for a, n in zip(axes, shape, strict=True)]
    return Plan(axes=tuple(axes), order=tuple(order))


def _position(axis: _Axis, n: int) -> _Axis:
    """Return an int as a computed position, for a key that has others: an element is then written by one update at an index,
    and not as a part of extent 1 of what the computed positions select."""
    if is_size(n) or is_size(axis.start) or is_value_size(n) or is_value_size(axis.start) or serves_other_sizes():
        return axis
    return _Axis(start=0, step=1, count=n, array=literal(axis.start, np.int64), in_range=True)


def _axis(item: Any, axis: int, n: int) -> _Axis:
    if isinstance(item, slice) and is_computed_slice(item, n):
        return _computed_slice(item, n)
    if isinstance(item, slice):
        start, stop, step = _bounds(item, n)
        count = len(range(start, stop, step)) if sizes_in((start, stop)) is None else _count(start, stop, step)
        return _Axis(start=start if count else 0, step=step if step == 1 or count > 1 else 1, count=count)
    if isinstance(item, int) and is_value_size(n):
        message = f"index {item} is out of bounds for axis {axis}, whose size depends on values"
        check_greater(n, item if item >= 0 else -item - 1, message, "IndexError")
        return _Axis(start=item if item >= 0 else item + n, step=1, count=1, is_int=True)
    if isinstance(item, int):
        if not -n <= item < n:
            raise IndexError(f"index {item} is out of bounds for axis {axis} with size {n}")
        return _Axis(start=item if item >= 0 else item + n, step=1, count=1, is_int=True)
    if isinstance(item, np.ndarray) and not is_value_size(n):
        if item.size and not (as_int(item.min()) >= -n and as_int(item.max()) < n):
            outside = item[(item < -n) | (item >= n)]
            raise IndexError(f"index {outside.flat[0]} is out of bounds for axis {axis} with size {n}")
        return _Axis(start=0, step=1, count=n, array=_positions(lifted(_as_index, item)))
    index = as_traced(item)
    bounds = index_bounds(index) or (LEAST, GREATEST)
    check_range(index, axis, n, bounds)
    return _Axis(start=0, step=1, count=n, array=cast(index, np.int64), in_range=_is_in_range(bounds, n))


def _is_in_range(bounds: tuple[int, int], n: int) -> bool:
    """Return whether indices with these bounds are positions along an axis. An export is for other sizes than those of its
    traces."""
    return bounds[0] >= 0 and not is_size(n) and not is_value_size(n) and bounds[1] < n and not serves_other_sizes()


def is_computed_slice(item: slice, n: int) -> bool:
    """Return whether a slice of an axis has a bound, or the axis an extent, that is known only when the program runs."""
    return any(map(is_computed, (n, item.start, item.stop)))


def _slice_bounds(item: slice, n: int) -> tuple[Any, Any, int]:
    """Return start, stop and step of such a slice; the bounds are traced, and clipped as Python does."""
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    size = number_of_extent(n)
    low, high = (literal(0, np.int64), size) if step > 0 else (literal(-1, np.int64), size - 1)
    start, stop = (
        default if end is None else end if step > 0 and _is_position(end, n) else _clipped(end, size, low, high)
        for end, default in ((item.start, low if step > 0 else high), (item.stop, high if step > 0 else low))
    )
    return start, stop, step


def inside_slice(item: slice, n: int) -> Any:
    """Return the mask of the positions along an axis that such a slice selects."""
    start, stop, step = _slice_bounds(item, n)
    index: Any = positions((n,), 0)
    if step < 0:
        return (index <= start) & (index > stop) & ((start - index) % -step == 0)
    return (index >= start) & (index < stop) & ((index - start) % step == 0)


def slice_positions(item: slice, n: int) -> TracedArray:
    """Return the positions along an axis that such a slice selects, in its order."""
    axis = _computed_slice(item, n)
    index: Any = positions((axis.count,), 0)
    return as_traced(index * axis.step + number_of_extent(axis.start))


RECENT = 32
"""Number of instructions before a slice among which those that compute its bounds are looked for."""


def _computed_slice(item: slice, n: int) -> _Axis:
    """Return a slice whose bounds, or whose axis, are known only when the program runs. Equal slices have one extent."""
    frame = frame_of(*(end for end in (item.start, item.stop) if isinstance(end, TracedArray)))
    recent = {v: i for i in frame.builder.instructions[-RECENT:] for v in i.results}
    key = tuple(_formula(size, frame, recent) for size in (item.start, item.stop, item.step, n))
    axis: _Axis = frame.slices.get(key) or _new_slice(item, n)
    frame.slices[key] = axis
    return axis


def _formula(size: Any, frame: Frame, recent: Mapping[Value, Instruction]) -> Any:
    """Return a key of a bound, step or axis of a slice: sizes that are computed in the same way have the same key."""
    if isinstance(size, TracedArray) and size.literal is not None:
        size = size.literal
    if is_size(size):
        return size.sizes.is_by_value, size.key
    if not isinstance(size, TracedArray):
        return repr(size)

    def expanded(value: Value, depth: int) -> Any:
        i = recent.get(value)
        if i is None or not depth or i.regions or not isinstance(i.op, Elementwise | Constant) or len(i.results) != 1:
            return value
        return (i.op.name, repr(i.params), *(expanded(v, depth - 1) for v in i.operands))

    return expanded(frame.lift(size), 3)


def _most_selected(item: slice, n: Any) -> Any:
    """Return an upper bound of the number of elements of an axis of ``n`` that a slice selects: an int if its ends say one."""
    start, stop, step = item.start, item.stop, 1 if item.step is None else item.step
    first = 0 if start is None else start
    last = 0 if stop is None and type(first) is int and first < 0 else stop
    if not all(type(x) is int for x in (first, last, step)) or step <= 0 or (first < 0) != (last < 0 or stop is None):
        return n
    most = -(min(first - last, 0) // step)
    return min(most, n) if type(n) is int else most


def _new_slice(item: slice, n: int) -> _Axis:
    """Return such a slice with extents of its own."""
    start, stop, step = _slice_bounds(item, n)
    first, last = (start, stop) if step > 0 else (stop, start)
    reach = last if as_traced(first).literal == 0 and _is_position(last, n) else last - first
    count: Any = reach if abs(step) == 1 else (reach + (abs(step) - 1)) // abs(step)
    is_all = item.stop is None and (item.start is None or (not is_computed(item.start) and item.start == 0)) and abs(step) == 1
    most = _most_selected(item, n)
    extent = n if is_all else value_extent(as_traced(count if reach is last else np.maximum(count, 0)), least=0, most=most)
    if step > 0:
        is_first = item.start is None or (not is_computed(item.start) and item.start == 0)
        return _Axis(start=0 if is_first else value_extent(as_traced(start), least=0), step=step, count=extent)
    lowest: Any = start + (number_of_extent(extent) - 1) * step
    first = value_extent(as_traced(np.maximum(lowest, 0)), least=0)
    return _Axis(start=first - (extent - 1) * step, step=step, count=extent)


def _is_position(end: Any, n: int) -> bool:
    """Return whether a bound of a slice is proved to be from 0 to the extent of the axis."""
    bounds = index_bounds(end) if isinstance(end, TracedArray) else None
    is_fixed = not is_size(n) and not is_value_size(n) and not serves_other_sizes()
    return bounds is not None and is_fixed and bounds[0] >= 0 and bounds[1] <= n


def _clipped(end: Any, size: Any, low: Any, high: Any) -> Any:
    """Return a bound of a slice counted from the start, between ``low`` and ``high``."""
    if not is_computed(end):
        position = operator.index(end)
        end = literal(position, np.int64) if position >= 0 else size + position
    else:
        end = number_of_extent(end)
        end = np.where(end < 0, end + size, end)
    return np.minimum(np.maximum(end, low), high)


def _bounds(item: slice, n: int) -> tuple[int, int, int]:
    """Return ``item.indices(n)``; ``n`` and the bounds may be symbolic sizes."""
    if not is_size(n) and sizes_in((item.start, item.stop, item.step)) is None:
        return item.indices(n)
    step = 1 if item.step is None else operator.index(item.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (0, n) if step > 0 else (-1, n - 1)
    ends = []
    for end, default in ((item.start, low if step > 0 else high), (item.stop, high if step > 0 else low)):
        if end is None:
            ends.append(default)
            continue
        position = extent_of(end)
        if position < 0:
            position = position + n
            ends.append(position if position >= low else low)
        else:
            ends.append(position if position <= high else high)
    return ends[0], ends[1], step


def _count(start: int, stop: int, step: int) -> int:
    """Return ``len(range(start, stop, step))``; the arguments may be symbolic sizes."""
    reach, stride = (stop - start, step) if step > 0 else (start - stop, -step)
    if reach <= 0:
        return 0
    return reach if stride == 1 else (reach + stride - 1) // stride


def _positions(item: np.ndarray[Any, Any]) -> TracedArray:
    """Return a static index array as a traced one; as a ``positions`` op if it only counts along an axis."""
    axis = frame_of().root.counted_axis(item)
    return as_traced(item) if axis is None else positions(item.shape, axis)


def _as_index(item: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return item.astype(np.int64, copy=False)


def check_range(index: TracedArray, axis: int, n: int, bounds: tuple[int, int] = (LEAST, GREATEST)) -> None:
    """Emit the check that every index is in -n ... n - 1, as far as it does not follow from the ``bounds`` of the indices."""
    if is_value_size(n):
        inside = emit("is_index", index, full(index.shape, n, np.int64))
        emit("check", inside, error="IndexError", message=_out_of_range(index, inside, axis, n))
        return
    is_fixed = not is_size(n) and not is_value_size(n) and not serves_other_sizes()
    sides = [] if is_fixed and bounds[0] >= -n else [("ge", -n)]
    sides += [] if is_fixed and bounds[1] < n else [("lt", n)]
    if bounds[0] >= 0:
        sides = [side for side in sides if side[0] != "ge"]
    if [op for op, _ in sides] == ["lt"]:  # the lower end is known to the tracer alone
        sides = [("is_index", n)]
    conditions = [emit(op, index, full(index.shape, end, np.int64)) for op, end in sides]
    if conditions:
        inside = conditions[0] if len(conditions) == 1 else emit("bitand", *conditions)
        emit("check", inside, error="IndexError", message=_out_of_range(index, inside, axis, n))


def _out_of_range(index: TracedArray, inside: TracedArray, axis: int, n: int) -> Handled:
    """Return the message of the check that indices are ``inside`` an axis with ``n`` elements."""

    def error() -> IndexError:
        size = number_of_extent(n) if is_size(n) or is_value_size(n) else n
        template = f"index {{}} is out of bounds for axis {axis} with size {{}}"
        return IndexError(text_of(template, first_failing(cast(index, np.int64), inside), size))

    return Handled(f"{OUT_OF_RANGE} {axis}", error)


# the part that ints and slices select


def part_of(x: TracedArray, plan: Plan) -> TracedArray:
    """Apply the slices, flips and ints of a plan, but not its index arrays and new axes."""
    start, step, shape, flips = _slices(x.shape, plan)
    if any(start) or any(s != 1 for s in step) or shape != x.shape:
        x = emit("slice", x, start=start, step=step, shape=shape)
    if flips:
        x = emit("flip", x, axes=flips)
    return remove_axes(x, plan.ints)


def part_of_positions(positions: np.ndarray[Any, Any], plan: Plan) -> np.ndarray[Any, Any] | None:
    """Return the part of a NumPy array that a plan without index arrays selects; None if it depends on values."""
    if plan.arrays or any(is_value_size(n) for axis in plan.axes for n in (axis.start, axis.count)):
        return None
    key: list[Any] = []
    for k in plan.order:
        if k is None or k is Ellipsis:
            key += [None] if k is None else []
            continue
        start, step, count = (int(n) for n in (plan.axes[k].start, plan.axes[k].step, plan.axes[k].count))
        stop = start + count * step
        key.append(start if plan.axes[k].is_int else slice(start, stop if stop >= 0 else None, step) if count else slice(0))
    return positions[(*key, ...)]


def _slices(shape: Sequence[int], plan: Plan) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return start, step and shape of the slice op, and the axes to flip after it."""
    first = [a.start if a.step > 0 else a.start + (a.count - 1) * a.step for a in plan.axes]
    flips = tuple(k for k, a in enumerate(plan.axes) if a.step < 0)
    return tuple(first), tuple(abs(a.step) for a in plan.axes), tuple(a.count for a in plan.axes), flips


def with_part(x: TracedArray, plan: Plan, value: TracedArray) -> TracedArray:
    """Return ``x`` with the part that ``part_of`` returns replaced by ``value``."""
    start, step, shape, flips = _slices(x.shape, plan)
    value = expand(value, plan.ints)
    if flips:
        value = emit("flip", value, axes=flips)
    if shape == x.shape:
        return value
    result: TracedArray = emit("slice_set", x, value, start=start, step=step)
    return result


@dataclass(frozen=True, kw_only=True)
class _Gather:
    """Index arrays over a part: their axes in it, the broadcast arrays, and how the gather's axes map to those of the result.
    ``in_range``: the axes whose indices are proved to be in range."""

    axes: tuple[int, ...]
    in_range: tuple[int, ...]
    indices: list[TracedArray]
    perm: tuple[int, ...]
    new: tuple[int, ...]


def gather_of(plan: Plan) -> _Gather:
    """Return the gather of a plan. NumPy's rule: adjacent index arrays leave their axes where they are, separated ones put
    them first."""
    arrays = plan.arrays
    index_arrays = [array for k in arrays if (array := plan.axes[k].array) is not None]
    try:
        indices = broadcast_together(*index_arrays)
    except ValueError:
        shapes = shapes_text([a.shape for a in index_arrays])
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together with shapes {shapes} ") from None
    kept = [k for k in range(len(plan.axes)) if k not in plan.ints]
    fancy = [p for p, k in enumerate(plan.order) if isinstance(k, int) and (k in arrays or k in plan.ints)]
    rank = indices[0].ndim
    is_adjacent = fancy == list(range(fancy[0], fancy[-1] + 1))
    stays = [k for k in plan.order if k is None or (k is not Ellipsis and k in kept and k not in arrays)]
    split = sum(k is None or (k is not Ellipsis and k in kept) for k in plan.order[: fancy[0]]) if is_adjacent else 0
    before, after = stays[:split], stays[split:]
    tokens = [*before, *[Ellipsis] * rank, *after]
    count = sum(k is not None for k in before)
    trailing = len(kept) - len(arrays)
    perm = [*range(rank, rank + count), *range(rank), *range(rank + count, rank + trailing)]
    return _Gather(
        axes=tuple(kept.index(k) for k in arrays),
        in_range=tuple(kept.index(k) for k in arrays if plan.axes[k].in_range),
        indices=indices,
        perm=tuple(perm),
        new=tuple(p for p, k in enumerate(tokens) if k is None),
    )


def new_axes(plan: Plan) -> list[int]:
    """Return the positions of new axes in the result of a key without index arrays."""
    tokens = [k for k in plan.order if k is None or (k is not Ellipsis and k not in plan.ints)]
    return [p for p, k in enumerate(tokens) if k is None]


def getitem(x: TracedArray, key: Any) -> TracedArray:
    """Return ``x[key]`` for a key without a traced mask. Raises IndexError as NumPy does."""
    plan = plan_of(x.shape, key, is_scalar=not x.is_cell and not x.ndim)
    has_rest = any(item is Ellipsis for item in (key if isinstance(key, tuple) else (key,)))
    if not plan.arrays:
        result = _basic(x, plan)
        known = None if x.known is None or x.known[1] else x.known[0][key]
        if not (result.ndim or has_rest):
            if known is not None:
                return literal(known, x.dtype)
            return fresh(result) if result is x else result
        if known is not None:
            result.known = (known, frozenset())
        recipe = Recipe(
            take=lambda base: _basic(base, plan),
            put=lambda base, new: with_basic(base, plan, new),
            strides=lambda strides: _basic_strides(strides, plan),
            key=plan,
            index=IndexKey(key),
        )
        shown = view(result, x, recipe)
        return shown if shown.ndim or shown.is_cell else created(shown)
    result = _gathered(x, plan)
    if any(a.array is not None and a.array.ndim for a in plan.axes) or not (result.ndim or has_rest):
        return result
    recipe = Recipe(
        take=lambda base: _gathered(base, plan),
        put=lambda base, new: scattered("scatter_set", base, plan, new),
        key=IndexKey(key),
    )
    return view(result, x, recipe)


def _gathered(x: TracedArray, plan: Plan) -> TracedArray:
    """Return ``x[key]`` for a key with index arrays."""
    gather = gather_of(plan)
    result = emit("gather", part_of(x, plan), *gather.indices, axes=gather.axes, **proof(gather.in_range))
    return expand(permute(result, gather.perm), gather.new)


def _basic(x: TracedArray, plan: Plan) -> TracedArray:
    """Return ``x[key]`` for a key without index arrays."""
    return expand(part_of(x, plan), new_axes(plan))


def _basic_strides(strides: Strides, plan: Plan) -> Strides:
    kept = [k for k in plan.order if k is None or (k is not Ellipsis and not plan.axes[k].is_int)]
    return tuple(0 if k is None else strides[k] * plan.axes[k].step for k in kept)


def with_basic(x: TracedArray, plan: Plan, value: TracedArray) -> TracedArray:
    """Return ``x`` with ``_basic(x, plan)`` replaced by a value of its shape."""
    return with_part(x, plan, remove_axes(value, new_axes(plan)))


def scattered(op: str, x: TracedArray, plan: Plan, value: TracedArray) -> TracedArray:
    """Return ``x`` with a value written or added (``op``) at index arrays."""
    gather = gather_of(plan)
    trailing = tuple(a.count for a in plan.axes if a.array is None and not a.is_int)
    gathered = gather.indices[0].shape + trailing
    target = shape_with([gathered[k] for k in gather.perm], gather.new)
    back = sorted(range(len(gather.perm)), key=lambda k: gather.perm[k])
    try:
        value = broadcast_into(value, target)
    except ValueError:
        shape, wanted = shapes_text([value.shape]), shapes_text([target])
        raise ValueError(
            f"shape mismatch: value array of shape {shape} could not be broadcast to indexing result of shape {wanted}"
        ) from None
    value = permute(remove_axes(value, gather.new), back)
    return _part_scattered(op, x, plan, gather, value)


def _part_scattered(op: str, x: TracedArray, plan: Plan, gather: _Gather, value: TracedArray) -> TracedArray:
    """Return ``x`` with a value of the shape of the gather written or added at index arrays and in the part of the other axes."""
    start, step, shape, flips = _slices(x.shape, plan)
    axes = plan.arrays
    proved = proof([k for k in axes if plan.axes[k].in_range])
    rank = gather.indices[0].ndim
    rest = [k for k in range(x.ndim) if k not in axes]
    value = expand(value, [rank + rest.index(k) for k in plan.ints])
    if flips:
        value = emit("flip", value, axes=tuple(rank + rest.index(k) for k in flips))
    if shape == x.shape:
        return emit(op, x, *gather.indices, value, axes=tuple(axes), **proved)
    written: TracedArray = emit(f"{op}_part", x, *gather.indices, value, axes=tuple(axes), start=start, step=step, **proved)
    return written


def shape_with(shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    result = list(shape)
    for axis in new:
        result.insert(axis, 1)
    return tuple(result)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> TracedArray:
    """Return a read-only view of all windows."""
    if writeable:
        raise TraceError("a sliding_window_view with writeable=True: its elements overlap; write into the array itself")
    a = as_traced(x)
    sizes = shape_of(window_shape)
    if axis is None:
        axes = list(range(a.ndim))
        if len(sizes) != a.ndim:
            raise ValueError(
                "Since axis is `None`, must provide window_shape for all dimensions of `x`; "
                f"got {len(sizes)} window_shape elements and `x.ndim` is {a.ndim}."
            )
    else:
        axis = static_ints(axis)
        axes = [axis_of(axis, a.ndim)] if isinstance(axis, int) else list(axis_list(axis, a.ndim))
        if len(sizes) != len(axes):
            raise ValueError(
                "Must provide matching length window_shape and axis; "
                f"got {len(sizes)} window_shape elements and {len(axes)} axes elements."
            )
    if any(n < 0 for n in sizes):
        raise ValueError("`window_shape` cannot contain negative values")
    counts = list(a.shape)
    for k, n in zip(axes, sizes, strict=True):
        if counts[k] < n:
            raise ValueError("window shape cannot be larger than input array shape")
        counts[k] -= n - 1
    recipe = Recipe(
        take=lambda base: _windows(base, axes, sizes),
        put=None,
        strides=lambda strides: (*strides, *(strides[k] for k in axes)),
        key=("windows", sizes, tuple(axes)),
    )
    return view(_windows(a, axes, sizes), a, recipe)


def _windows(x: TracedArray, axes: Sequence[int], sizes: Sequence[int]) -> TracedArray:
    """Extract the windows along one axis after another."""
    for k, n in zip(axes, sizes, strict=True):
        windows = emit("windows", x, axis=k, shape=(*x.shape[:k], x.shape[k] - n + 1, n, *x.shape[k + 1 :]))
        x = permute(windows, [*(a for a in range(windows.ndim) if a != k + 1), k + 1])
    return x
