"""push_up_slices: compute a cheap expression slice by slice if it is only read in slices of a short axis that a reshape
creates.

    z = a + b; z4 = z.reshape(n, 4, h); z4[:, 0], z4[:, 1], …   ->   a4[:, 0] + b4[:, 0], a4[:, 1] + b4[:, 1], …

Requires: an optimised func. Keeps: values bit by bit. A reshape needs its operand in memory: gates would be read from there.
With this rewrite they share the kernel that computes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.types import Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import broadcast, reshape, slice_, squeeze
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

MOST_OPS = 8
"""Most cheap ops that are computed slice by slice."""


def push_up_slices(function: Function) -> Function:
    """Return the function with such ops applied to the slices of their operands."""
    if not any(i.op is reshape for i in function.instructions):
        return function
    makers = {v: i for i in function.instructions for v in i.results}
    counts = use_counts(function.body)
    slices = _sliced_reshapes(function, counts)
    trees = {i: tree for i in slices if (tree := _tree(i.operands[0], makers, counts))}
    chosen = {single_slice: i for i in trees for single_slice in slices[i]}

    def emit(b: Builder, single_slice: Instruction, new: New) -> Sequence[Value]:
        viewed = chosen[single_slice]
        part = makers[single_slice.operands[0]]
        axis = single_slice.params["axes"][0]
        at = _Slice(b, new, viewed.result.type.shape[axis : axis + 2], axis, part.params["start"][axis])
        done: dict[Value, Value] = {}
        for i in trees[viewed]:
            operands = [done[v] if v in done else at.of(v, makers) for v in i.operands]
            (done[i.result],) = b.emit(i.op, operands, dict(i.params))
        return [done[viewed.operands[0]]]

    return replaced(function, chosen.__contains__, emit)


def _sliced_reshapes(function: Function, counts: Mapping[Value, int]) -> dict[Instruction, list[Instruction]]:
    """Return the reshapes that split an axis, with the single slices along the first of the two axes, if nothing else is read."""
    slices: dict[Value, list[Instruction]] = {}
    single: dict[Value, Instruction] = {}
    for i in function.instructions:
        if i.op is slice_:
            slices.setdefault(i.operands[0], []).append(i)
        elif i.op is squeeze and counts[i.operands[0]] == 1:
            single[i.operands[0]] = i
    result = {}
    for i in function.instructions:
        axis = _split_axis(i) if i.op is reshape else None
        read = slices.get(i.result, []) if axis is not None else []
        slices_of = [single[s.result] for s in read if s.result in single and single[s.result].params["axes"] == (axis,)]
        if axis is not None and len(slices_of) == counts.get(i.result) and all(_is_slice_along(s, axis) for s in read):
            result[i] = slices_of
    return result


def _split_axis(i: Instruction) -> int | None:
    """Return the position of the axis of constant extent that a reshape creates by splitting an axis in two; None if it does
    anything else."""
    source, shape = i.operands[0].type.shape, i.result.type.shape
    for k in range(len(source)):
        is_split = len(shape) == len(source) + 1 and shape[:k] == source[:k] and shape[k + 2 :] == source[k + 1 :]
        if is_split and isinstance(shape[k], int):
            return k
    return None


def _is_slice_along(i: Instruction, axis: int) -> bool:
    return all(k == axis or (start is None and step == 1) for k, (start, step) in enumerate(_starts(i)))


def _starts(i: Instruction) -> list[tuple[Extent | None, int]]:
    return list(zip(i.params["start"], i.params["step"], strict=True))


def _tree(value: Value, makers: Mapping[Value, Instruction], counts: Mapping[Value, int]) -> list[Instruction]:
    """Return the cheap ops by which a value is computed and that have no other reader, in order; an empty list if there are
    too many."""
    tree: list[Instruction] = []
    stack = [value]
    while stack:
        maker = makers.get(stack.pop())
        if maker is None or not isinstance(maker.op, Elementwise) or not maker.op.cheap or counts[maker.result] != 1:
            continue
        tree.append(maker)
        stack += maker.operands
    return tree[::-1] if len(tree) <= MOST_OPS else []


class _Slice:
    """One slice along ``axis`` of an array in which that axis is viewed as two, of the extents ``shape``."""

    def __init__(self, b: Builder, new: New, shape: Sequence[Extent], axis: int, at: Extent) -> None:
        self.b, self.new, self.shape, self.axis, self.at = b, new, tuple(shape), axis, at

    def of(self, value: Value, makers: Mapping[Value, Instruction]) -> Value:
        """Emit the slice of a value; a broadcast is emitted after slicing its operand."""
        definition, axis = makers.get(value), self.axis
        if definition is None or definition.op is not broadcast:
            return self.cut(self.new(value), axis)
        axes, source = definition.params["axes"], self.new(definition.operands[0])
        shape = value.type.shape
        part = source if axis in axes else self.cut(source, axis - sum(a < axis for a in axes))
        result: Value = self.b.broadcast(part, axes=axes, shape=(*shape[:axis], self.shape[1], *shape[axis + 1 :]))
        return result

    def cut(self, value: Value, axis: int) -> Value:
        """Emit the slice of a value in memory."""
        b, shape = self.b, value.type.shape
        seen = b.reshape(value, shape=(*shape[:axis], *self.shape, *shape[axis + 1 :]))
        start = tuple(self.at if k == axis else None for k in range(seen.type.rank))
        slice_shape = tuple(1 if k == axis else e for k, e in enumerate(seen.type.shape))
        result: Value = b.squeeze(b.slice(seen, start=start, step=(1,) * seen.type.rank, shape=slice_shape), axes=(axis,))
        return result
