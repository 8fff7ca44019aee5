"""Rules for joined arrays, and for arrays that are written index by index along short axes, which become joined arrays.
tests/golden/passes holds one example of each rule, under its name.

A write copies the array and selects at each element; a joined array is computed part by part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from pullback.ir.core.op import Op
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.passes.simplify.rewrite import Rewriter, constant_like, rule

MOST_SLICES = 16
"""Largest number of slices that are concatenated."""
Axes = tuple[int, ...]


class _Write(NamedTuple):
    """A write of a value at one position along some axes: added to or, if not ``adds``, in the place of the elements there."""

    axes: Axes
    position: tuple[int, ...]
    value: Value
    adds: bool


def _write_of(i: Instruction | None, shape: Shape) -> _Write | None:
    """Return the write that a ``pad``, ``slice_add`` or ``slice_set`` is, None if it covers more along short axes."""
    return None if i is None else _write(shape, i.operands[-1], i.params["start"], i.op)


def _write(shape: Shape, value: Value, start: Shape, op: Op) -> _Write | None:
    """Return the write of a value into an array of a shape, None if it covers more than one index along an axis."""
    axes = tuple(k for k, first in enumerate(start) if first is not None)
    index = tuple(first for first in start if isinstance(first, int))
    extents = [e for k, e in enumerate(shape) if k in axes and isinstance(e, int)]
    is_single = all(value.type.shape[k] == 1 for k in axes) and len(axes) == len(index) == len(extents)
    if not axes or not is_single or math.prod(extents) > MOST_SLICES:
        return None
    return _Write(axes, index, value, op.name != "slice_set")


@rule("slice_add", "slice_set")
def written_index_by_index(b: Rewriter, base: Value, value: Value, op: Op, start: Shape, **_: Any) -> Value | None:
    # slices written at most indices of an axis of a constant, or set at all of them = their concat, except for the sign of zeros
    shape = base.type.shape
    last = _write(shape, value, start, op)
    if last is None:
        return None
    writes, default = [last], b.constant(base)
    producer = b.producer(base, "slice_add", "slice_set", "pad")
    while producer is not None and b.reads.get(producer.result) == 1 and len(writes) < MOST_SLICES:
        write = _write_of(producer, shape)
        if write is None or write.axes != last.axes:
            return None
        writes.append(write)
        default = 0 if producer.op.name == "pad" else b.constant(producer.operands[0])
        producer = None if default is not None else b.producer(producer.operands[0], "slice_add", "slice_set", "pad")
    extents = [shape[k] for k in last.axes]
    indices = list(product(*(range(e) for e in extents if isinstance(e, int))))
    first = {write.position: write for write in writes}
    if default is None and (len(first) < len(indices) or any(write.adds for write in first.values())):
        return None
    if 2 * len(first) < len(indices):
        return None
    parts: dict[tuple[int, ...], Value] = {}
    for index in indices:
        part = None if default is None else constant_like(b, default, value)
        for write in reversed(writes):
            if write.position == index:
                part = written(b, part, write)
        assert part is not None
        parts[index] = part
    return _joined(b, parts, last.axes, shape)


def written(b: Rewriter, part: Value | None, write: _Write) -> Value:
    """Emit a part after a write to it; zero plus a value is the value."""
    if part is None or not write.adds or b.constant(part) == 0:
        return write.value
    result: Value = b.add(part, write.value)
    return result


def _joined(b: Rewriter, parts: Mapping[tuple[int, ...], Value], axes: Axes, shape: Shape) -> Value:
    """Emit the concat of parts, by their indices along axes, to an array of a shape."""
    axis, *others = axes
    result: Value
    if not others:
        result = b.concat(*parts.values(), axis=axis, starts=tuple(range(len(parts))), shape=shape)
        return result
    indices = list(dict.fromkeys(first for first, *_ in parts))
    inside = tuple(1 if k == axis else e for k, e in enumerate(shape))
    rows = [
        _joined(b, {index[1:]: part for index, part in parts.items() if index[0] == first}, tuple(others), inside)
        for first in indices
    ]
    result = b.concat(*rows, axis=axis, starts=tuple(indices), shape=shape)
    return result


@rule("slice_add", "slice_set")
def written_into_concat(b: Rewriter, base: Value, value: Value, op: Op, start: Shape, step: Axes, **_: Any) -> Value | None:
    # (concat x, y) with v written at one index = concat x, v
    producer = b.producer(base, "concat")
    if producer is None or b.reads.get(base, 1) != 1 or not _joins_single_slices(producer):
        return None
    axis = producer.params["axis"]
    at = start[axis]
    if not isinstance(at, int) or value.type.shape[axis] != 1:
        return None
    remaining = tuple(None if k == axis else first for k, first in enumerate(start))
    parts = list(producer.operands)
    if any(first is not None for first in remaining):
        (parts[at],) = b.emit(op, (parts[at], value), {"start": remaining, "step": step})
    else:
        parts[at] = written(b, parts[at], _Write((axis,), (at,), value, op.name == "slice_add"))
    result: Value = b.concat(*parts, axis=axis, starts=producer.params["starts"], shape=base.type.shape)
    return result


def _joins_single_slices(i: Instruction) -> bool:
    """Return whether a concat joins few arrays, each of extent 1 along the axis."""
    return len(i.operands) <= MOST_SLICES and all(v.type.shape[i.params["axis"]] == 1 for v in i.operands)


@rule("concat")
def concat_of_one(b: Rewriter, *operands: Value, **_: Any) -> Value | None:
    # concat x = x
    return operands[0] if len(operands) == 1 else None


@rule("slice")
def slice_of_concat(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # (concat x, y)[the range of y] = y, and of it the slice along other axes
    producer = b.producer(x, "concat")
    if producer is None or step[producer.params["axis"]] != 1:
        return None
    axis = producer.params["axis"]
    for operand, offset in zip(producer.operands, producer.params["starts"]):
        if (start[axis] or 0) == offset and shape[axis] == operand.type.shape[axis]:
            remaining = tuple(None if k == axis else first for k, first in enumerate(start))
            result: Value = b.slice(operand, start=remaining, step=step, shape=shape)
            return result
    return None


@rule("transpose")
def transpose_of_concat(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose (concat x, y) = concat (transpose x), (transpose y) for arrays of extent 1
    producer = b.producer(x, "concat")
    if producer is None or b.reads.get(x, 1) != 1 or not _joins_single_slices(producer):
        return None
    parts = [b.transpose(v, perm=perm) for v in producer.operands]
    axis, shape = tuple(perm).index(producer.params["axis"]), tuple(x.type.shape[p] for p in perm)
    result: Value = b.concat(*parts, axis=axis, starts=producer.params["starts"], shape=shape)
    return result
