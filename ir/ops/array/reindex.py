"""Reindex ops: each element of the result is one element of an operand, or zero. They move data and compute nothing.

``access(b, index, types, params, extent)`` emits kernel IR that locates the source of the element at ``index``: a list of
alternatives ``(operand, its index, condition)``; the first whose condition holds (``None``: always) gives the element, and if
none holds the element is zero. ``extent(e)`` is the kernel value of an extent. Offsets are params because the sizes of a
program template are not known when passes run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Into, Op, Region, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, ArrayType, Shape, Type
from pullback.ir.core.value import Value

Access = Callable[..., list[tuple[int, list[Value], Value | None]]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Reindex(Op):
    """An op that moves elements. ``shape(types, params, same)`` is the type rule; any dtype is accepted.

    ``view``: on dense row-major memory the result is the operand's memory, whatever its extents. ``settled(types, params)``
    gives the params in their canonical form.
    """

    shape: Callable[[Sequence[ArrayType], Mapping[str, Any], Same], Shape]
    access: Access
    view: bool = False
    linear: bool = True
    settled: Callable[[Sequence[Any], dict[str, Any]], dict[str, Any]] = lambda types, params: params

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        return self.settled(types, params)

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        arrays = [t for t in types if isinstance(t, ArrayType)]
        if not arrays or len(arrays) != len(types):
            raise TypeError("takes arrays")
        if any(a.dtype is not arrays[0].dtype for a in arrays):
            raise TypeError("operands must have one dtype")
        return (arrays[0].with_shape(self.shape(arrays, params, same)),)


def _any_or_sum(b: Any, ct: Any, axes: tuple[int, ...]) -> Value:
    result: Value = (b.any if ct.type.dtype.is_bool else b.sum)(ct, axes=axes) if axes else ct
    return result


# broadcast: new axes


def _broadcast_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    (x,), axes, shape = types, params["axes"], tuple(params["shape"])
    if len(shape) != x.rank + len(axes) or any(not 0 <= a < len(shape) for a in axes) or list(axes) != sorted(set(axes)):
        raise TypeError(f"axes {list(axes)} do not extend rank {x.rank} to rank {len(shape)}")
    kept = [e for k, e in enumerate(shape) if k not in axes]
    for a, e in zip(x.shape, kept, strict=True):
        same(a, e)
    return shape


def _broadcast(x: Any, axes: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(np.expand_dims(x, axes), shape)


broadcast = Reindex(
    name="broadcast", reference=_broadcast, typed=("shape",), extents=("shape",), shape=_broadcast_shape,
    access=lambda b, index, types, params, extent: [(0, [i for k, i in enumerate(index) if k not in params["axes"]], None)],
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [_any_or_sum(b, cts[0], tuple(params["axes"]))],
)  # fmt: skip


# squeeze: drops axes of extent 1


def _squeeze_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    (x,), axes = types, params["axes"]
    if any(not 0 <= a < x.rank for a in axes):
        raise TypeError("an axis is outside the operand")
    for a in axes:
        same(x.shape[a], 1)
    return tuple(e for k, e in enumerate(x.shape) if k not in axes)


def _squeeze_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    full = list(index)
    for axis in sorted(params["axes"]):
        full.insert(axis, extent(0))
    return [(0, full, None)]


squeeze = Reindex(
    name="squeeze", reference=lambda x, axes: np.squeeze(x, tuple(axes)), shape=_squeeze_shape, access=_squeeze_access, view=True,
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [
        b.broadcast(cts[0], axes=tuple(params["axes"]), shape=inputs[0].type.shape)
    ],
)  # fmt: skip


# transpose


def _transpose_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    (x,), perm = types, params["perm"]
    if sorted(perm) != list(range(x.rank)):
        raise TypeError(f"{list(perm)} is not a permutation of {x.rank} axes")
    return tuple(x.shape[p] for p in perm)


def _inverse(perm: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(perm)), key=lambda k: perm[k]))


transpose = Reindex(
    name="transpose", reference=lambda x, perm: np.transpose(x, perm), shape=_transpose_shape,
    access=lambda b, index, types, params, extent: [(0, [index[k] for k in _inverse(params["perm"])], None)],
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [b.transpose(cts[0], perm=_inverse(params["perm"]))],
)  # fmt: skip


# reshape


def _reshape_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    x, shape = types[0], tuple(params["shape"])
    if all(isinstance(e, int) for e in (*x.shape, *shape)) and math.prod(x.shape) != math.prod(shape):
        raise TypeError(f"{x} has not the number of elements of shape {list(shape)}")
    return shape


def _reshape_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    flat = extent(0)
    for i, e in zip(index, params["shape"], strict=True):
        flat = b.add(b.mul(flat, extent(e)), i)
    source: list[Value] = []
    for e in reversed(types[0].shape[1:]):
        quotient = b.idiv(flat, extent(e))
        source.insert(0, b.sub(flat, b.mul(quotient, extent(e))))
        flat = quotient
    return [(0, [flat, *source] if types[0].shape else [], None)]


reshape = Reindex(
    name="reshape", reference=lambda x, shape: np.reshape(x, shape), typed=("shape",), extents=("shape",), view=True,
    shape=_reshape_shape, access=_reshape_access,
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [b.reshape(cts[0], shape=inputs[0].type.shape)],
)  # fmt: skip


# slice and pad: a regular part of an array, and an array that is zero but for a regular part. The start of an axis that is
# taken in full is None; other starts are offsets.


PerAxis = Sequence[Any]
"""The start or the step of a regular part, one entry for each axis."""


def same_part(inner: Shape, outer: Shape, start: PerAxis, step: PerAxis, same: Same) -> None:
    """Check the types of a regular part: axes taken in full (start None) have equal extents. Raises TypeError."""
    if not len(inner) == len(outer) == len(start) == len(step):
        raise TypeError(
            f"the part, the whole, start and step must have one rank, found {len(inner)}, {len(outer)}, {len(start)}, {len(step)}"
        )
    for e, f, first, stride in zip(inner, outer, start, step, strict=True):
        if stride < 1 or (isinstance(first, int) and first < 0):
            raise TypeError("starts are not negative and steps are positive")
        if first is None:
            same(e, f)
        elif isinstance(e, int) and isinstance(f, int) and isinstance(first, int) and e and first + (e - 1) * stride >= f:
            raise TypeError(f"{e} elements from {first} with step {stride} do not fit in {f}")


def settle_part(inner: Shape, outer: Shape, params: dict[str, Any]) -> dict[str, Any]:
    """Return params in which the start of each axis that is taken in full is None."""
    if not len(inner) == len(outer) == len(params["start"]) == len(params["step"]):
        return params
    axes = zip(inner, outer, params["start"], params["step"], strict=True)
    return {**params, "start": tuple(None if start == 0 and step == 1 and e == f else start for e, f, start, step in axes)}


def _slice_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    same_part(tuple(params["shape"]), types[0].shape, params["start"], params["step"], same)
    return tuple(params["shape"])


def _pad_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    same_part(types[0].shape, tuple(params["shape"]), params["start"], params["step"], same)
    return tuple(params["shape"])


def slices(start: PerAxis, step: PerAxis, count: Sequence[int]) -> tuple[slice, ...]:
    """Return the regular part as NumPy slices."""
    return tuple(
        slice(None) if s is None else slice(s, s + (n - 1) * d + 1 if n else s, d)
        for s, d, n in zip(start, step, count, strict=True)
    )


def offsets_into_literal(types: Sequence[Type], params: Mapping[str, Any]) -> Mapping[str, Sequence[bool]]:
    """Return which offsets stay literal: those into an axis of the first operand whose extent is literal."""
    return {"start": [isinstance(e, int) for e in types[0].shape]}


def _slice(x: Any, start: Any, step: Any, shape: Any, final: int = 0, initial: int = 0) -> Any:
    return x[slices(start, step, shape)]


def _pad(x: Any, start: Any, step: Any, shape: Any) -> Any:
    out = np.zeros(shape, x.dtype)
    out[slices(start, step, x.shape)] = x
    return out


def _slice_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    source = []
    for i, start, step in zip(index, params["start"], params["step"], strict=True):
        scaled = i if step == 1 else b.mul(i, extent(step))
        source.append(scaled if start in (None, 0) else b.add(scaled, extent(start)))
    return [(0, source, None)]


def inside_slice(b: Any, index: list[Value], inner: Shape, params: Any, extent: Any) -> Any:
    """Return the index into the part, and the condition that ``index`` of the outer array is in the part (None: always true)."""
    source, condition = [], None
    for i, start, step, e in zip(index, params["start"], params["step"], inner, strict=True):
        if start is None:
            source.append(i)
            continue
        offset = i if start == 0 else b.sub(i, extent(start))
        position = offset if step == 1 else b.idiv(offset, extent(step))
        tests = [b.ge(offset, extent(0)), b.lt(position, extent(e))]
        if step != 1:
            tests.append(b.eq(b.mul(position, extent(step)), offset))
        for test in tests:
            condition = test if condition is None else b.bitand(condition, test)
        source.append(position)
    return source, condition


def _pad_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    source, condition = inside_slice(b, index, types[0].shape, params, extent)
    return [(0, source, condition)]


def _slice_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    part = {"start": params["start"], "step": params["step"]}
    shape = inputs[0].type.shape
    return [
        Into(
            add=lambda base: b.slice_add(base, cts[0], **part),
            dense=lambda: b.pad(cts[0], **part, shape=shape),
        )
    ]


slice_ = Reindex(
    name="slice", reference=_slice, typed=("shape",), extents=("start", "shape"), shape=_slice_shape, access=_slice_access,
    literal=offsets_into_literal,
    settled=lambda types, params: settle_part(params["shape"], types[0].shape, params), pullback=_slice_rule,
)  # fmt: skip
pad = Reindex(
    name="pad", reference=_pad, typed=("shape",), extents=("start", "shape"), shape=_pad_shape, access=_pad_access,
    settled=lambda types, params: settle_part(types[0].shape, params["shape"], params),
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [
        b.slice(cts[0], start=params["start"], step=params["step"], shape=inputs[0].type.shape)
    ],
)  # fmt: skip


# flip


def _flip_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    last = [b.sub(extent(e), extent(1)) if k in params["axes"] else None for k, e in enumerate(types[0].shape)]
    return [(0, [i if top is None else b.sub(top, i) for i, top in zip(index, last, strict=True)], None)]


flip = Reindex(
    name="flip", reference=lambda x, axes: np.flip(x, tuple(axes)), access=_flip_access,
    shape=lambda types, params, same: types[0].shape,
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [b.flip(cts[0], axes=params["axes"])],
)  # fmt: skip


# shift: the element ``offset`` positions before (after, if negative) along an axis, zero where there is none


def _shift(x: Any, axis: int, offset: int) -> Any:
    out = np.zeros_like(x)
    count = max(x.shape[axis] - abs(offset), 0)
    to, source = (max(offset, 0), max(-offset, 0))
    index = [slice(None)] * x.ndim
    out[(*index[:axis], slice(to, to + count))] = x[(*index[:axis], slice(source, source + count))]
    return out


def _shift_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    axis, offset = params["axis"], params["offset"]
    source = list(index)
    source[axis] = b.sub(index[axis], extent(offset))
    inside = b.ge(source[axis], extent(0)) if offset > 0 else b.lt(source[axis], extent(types[0].shape[axis]))
    return [(0, source, inside)]


shift = Reindex(
    name="shift", reference=_shift, access=_shift_access, shape=lambda types, params, same: types[0].shape,
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [b.shift(cts[0], axis=params["axis"], offset=-params["offset"])],
)  # fmt: skip


# roll: the elements along an axis, or along several adjacent axes as if they were one, moved by ``offset`` positions to higher
# indices or (``backward``) to lower ones; those moved beyond an end come in at the other. The offset is at most half the extent
# of the last of these axes, so that most elements are at one distance.


def _roll_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    (x,), axes, (offset,) = types, tuple(params["axes"]), params["offset"]
    check_roll_axes(x, axes)
    extent = x.shape[axes[-1]]
    if isinstance(offset, int) and (offset < 0 or (isinstance(extent, int) and offset > extent)):
        raise TypeError(f"{extent} elements are not rolled by {offset}")
    return x.shape


def rolled(x: Any, axes: Sequence[int], by: int) -> Any:
    """Return an array rolled along adjacent axes as if they were one."""
    shape, first = x.shape, axes[0]
    merged = x.reshape(*shape[:first], math.prod(shape[k] for k in axes), *shape[axes[-1] + 1 :])
    return np.roll(merged, by, first).reshape(shape)


def check_roll_axes(x: ArrayType, axes: Sequence[int]) -> None:
    """Raise TypeError unless these are adjacent axes of an array."""
    if not axes or list(axes) != list(range(axes[0], axes[-1] + 1)) or axes[0] < 0 or axes[-1] >= x.rank:
        raise TypeError(f"axes {list(axes)} are not adjacent axes of rank {x.rank}")


def _roll(x: Any, axes: tuple[int, ...], offset: tuple[int], backward: bool) -> Any:
    return rolled(x, axes, -offset[0] if backward else offset[0])


def roll_index(b: Any, position: Value, by: Value, extent: Value, backward: bool) -> tuple[Value, Value]:
    """Return the index of the element that a roll moves to ``position``, and whether it does not come in at the other end."""
    last = b.sub(extent, by)
    if backward:
        inside = b.lt(position, last)
        return b.select(inside, b.add(position, by), b.sub(position, last)), inside
    inside = b.ge(position, by)
    return b.select(inside, b.sub(position, by), b.add(position, last)), inside


def roll_source(b: Any, index: Sequence[Value], extents: Sequence[Value], axes: Sequence[int], by: Value, backward: bool) -> Any:
    """Locate the source of a roll by ``by`` positions: along the last axis, and along each other axis the neighbour if the
    element comes in at the end of all axes behind it. The positions may be scalars of a kernel, or arrays."""
    source, stays = list(index), None
    for axis in reversed(axes):
        by = by if stays is None else b.full(1, index[axis].type)
        moved, inside = roll_index(b, index[axis], by, extents[axis], backward)
        source[axis] = moved if stays is None else b.select(stays, index[axis], moved)
        stays = inside if stays is None else b.bitor(stays, inside)
    return source


def _roll_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    extents = [extent(e) for e in types[0].shape]
    return [(0, roll_source(b, index, extents, params["axes"], extent(params["offset"][0]), params["backward"]), None)]


roll = Reindex(
    name="roll", reference=_roll, extents=("offset",), access=_roll_access, shape=_roll_shape,
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [
        b.roll(cts[0], axes=params["axes"], offset=params["offset"], backward=not params["backward"])
    ],
)  # fmt: skip


# concatenate; ``starts`` are the offsets of the operands along the axis


def _concat_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    axis, shape, starts = params["axis"], tuple(params["shape"]), params["starts"]
    if len(starts) != len(types):
        raise TypeError("one start an operand")
    for t in types:
        if t.rank != len(shape):
            raise TypeError("operands and result must have one rank")
        for k, (e, f) in enumerate(zip(t.shape, shape, strict=True)):
            if k != axis:
                same(e, f)
    for t, start, end in zip(types, starts, (*starts[1:], shape[axis])):
        if isinstance(start, int) and isinstance(end, int):
            same(t.shape[axis], end - start)
    if starts[-1] == 0:
        same(types[-1].shape[axis], shape[axis])
    return shape


def _concat_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    axis, alternatives = params["axis"], []
    named = [k for k, t in enumerate(types) if not isinstance(t.shape[axis], int)]
    if len(named) == 1 and len(types) > 1:
        return _bordered_access(b, index, types, params, extent, named[0])
    for k, start in enumerate(params["starts"]):
        source = list(index)
        source[axis] = b.sub(index[axis], extent(start))
        last = k + 1 == len(types)
        alternatives.append((k, source, None if last else b.lt(index[axis], extent(params["starts"][k + 1]))))
    return alternatives


def _bordered_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any, middle: int) -> Any:
    """Return the alternatives of a concatenation in which all operands but one are borders of constant extent. That one comes
    first, so that its condition is the one that holds for most elements."""
    axis, count = params["axis"], len(types)
    position, total = index[axis], extent(params["shape"][axis])
    extents = [t.shape[axis] for t in types]
    starts = [
        extent(sum(extents[:k])) if k <= middle else b.sub(total, extent(sum(extents[k:]))) for k in range(count)
    ]  # fmt: skip
    inside = [b.ge(position, starts[middle])] if middle else []
    inside += [b.lt(position, starts[middle + 1])] if middle + 1 < count else []
    order = [middle, *range(middle), *range(middle + 1, count)]
    conditions = [inside[0] if len(inside) == 1 else b.bitand(*inside)]
    conditions += [b.lt(position, starts[k + 1]) for k in order[1:-1]]
    sources = [[*index[:axis], b.sub(position, starts[k]), *index[axis + 1 :]] for k in order]
    return list(zip(order, sources, [*conditions, None], strict=True))


def _concat_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    contributions: list[Contribution] = []
    for x, start, want in zip(inputs, params["starts"], wants, strict=True):
        starts = tuple(start if k == params["axis"] else 0 for k in range(x.type.rank))
        part = b.slice(cts[0], start=starts, step=(1,) * x.type.rank, shape=x.type.shape) if want else ZERO
        contributions.append(part)
    return contributions


def _concat_literal(types: Sequence[Type], params: Mapping[str, Any]) -> Mapping[str, Sequence[bool]]:
    """Mark starts and the joined extent as literal when all operands have extent 1 or literal extents."""
    axis, count = params["axis"], len(types)
    ones = count > 1 and tuple(params["starts"]) == tuple(range(count)) and params["shape"][axis] == count
    is_literal = ones or all(isinstance(t.shape[axis], int) for t in types)
    return {"starts": [is_literal] * count, "shape": [is_literal and k == axis for k in range(len(params["shape"]))]}


concat = Reindex(
    name="concat", reference=lambda *xs, axis, starts, shape: np.concatenate(xs, axis),
    typed=("shape",), extents=("starts", "shape"), literal=_concat_literal,
    shape=_concat_shape, access=_concat_access, pullback=_concat_rule,
)  # fmt: skip


# windows: the elements that start at each position along an axis become an axis after it; its extent is small or symbolic


MAX_LITERAL_WINDOW = 16
"""The largest window extent that is kept literal, so that the gradient emits one slice for each element of a window."""


def _windows_shape(types: Sequence[ArrayType], params: Mapping[str, Any], same: Same) -> Shape:
    (x,), axis, shape = types, params["axis"], tuple(params["shape"])
    if not 0 <= axis < x.rank or len(shape) != x.rank + 1:
        raise TypeError(f"axis {axis} and shape {list(shape)} are not of windows of rank {x.rank}")
    for e, f in zip((*x.shape[:axis], *x.shape[axis + 1 :]), (*shape[:axis], *shape[axis + 2 :]), strict=True):
        same(e, f)
    count, size, whole = shape[axis], shape[axis + 1], x.shape[axis]
    if isinstance(count, int) and isinstance(size, int) and isinstance(whole, int) and count + size != whole + 1:
        raise TypeError(f"{whole} elements do not have {count} windows of {size}")
    return shape


def _windows(x: Any, axis: int, shape: tuple[int, ...]) -> Any:
    return np.moveaxis(np.lib.stride_tricks.sliding_window_view(x, shape[axis + 1], axis), -1, axis + 1)


def _windows_access(b: Any, index: list[Value], types: Any, params: Any, extent: Any) -> Any:
    axis = params["axis"]
    return [(0, [*index[:axis], b.add(index[axis], index[axis + 1]), *index[axis + 2 :]], None)]


def _windows_literal(types: Sequence[Type], params: Mapping[str, Any]) -> Mapping[str, Sequence[bool]]:
    return {"shape": [k == params["axis"] + 1 and e <= MAX_LITERAL_WINDOW for k, e in enumerate(params["shape"])]}


def _windows_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Add each element of the windows to its source position: one pad and add for each if the extent is literal, else a
    scatter."""
    (x,), (ct,), axis = inputs, cts, params["axis"]
    count, size = ct.type.shape[axis], ct.type.shape[axis + 1]
    if not isinstance(size, int):
        positions = [b.iota(axis=k, shape=(count, size), dtype=I64) for k in (0, 1)]
        parts = b.transpose(ct, perm=(axis, axis + 1, *(k for k in range(ct.type.rank) if k not in (axis, axis + 1))))
        return [b.scatter_add(b.zeros_like(x), b.add(*positions), parts, axes=(axis,))]
    total = None
    slice_shape = tuple(1 if k == axis + 1 else e for k, e in enumerate(ct.type.shape))
    for offset in range(size):
        start = tuple(offset if k == axis + 1 else None for k in range(ct.type.rank))
        part = b.squeeze(b.slice(ct, start=start, step=(1,) * ct.type.rank, shape=slice_shape), axes=(axis + 1,))
        start = tuple(offset if k == axis else None for k in range(x.type.rank))
        part = b.pad(part, start=start, step=(1,) * x.type.rank, shape=x.type.shape)
        total = part if total is None else b.add(total, part)
    return [ZERO if total is None else total]


windows = Reindex(
    name="windows", reference=_windows, typed=("shape",), extents=("shape",), literal=_windows_literal,
    shape=_windows_shape, access=_windows_access, pullback=_windows_rule,
)  # fmt: skip
