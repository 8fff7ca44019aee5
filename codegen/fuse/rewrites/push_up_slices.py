"""divided: what is read place by place of a short axis that a reshape makes is computed place by place, if it is cheap.

    z = a + b; z4 = z.reshape(n, 4, h); z4[:, 0], z4[:, 1], …   ->   a4[:, 0] + b4[:, 0], a4[:, 1] + b4[:, 1], …

Requires: an optimised func. Keeps: values bit by bit. A reshape needs what it shows in memory: gates would be read from there.
So they share the kernel with what they are computed from.
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

MOST = 8
"""So many cheap operations are done place by place."""


def divided(function: Function) -> Function:
    """The function with such operations on the places that are read of their operands."""
    if not any(i.op is reshape for i in function.instructions):
        return function
    makers = {v: i for i in function.instructions for v in i.results}
    counts = use_counts(function.body)
    places = _places(function, counts)
    trees = {i: tree for i in places if (tree := _tree(i.operands[0], makers, counts))}
    chosen = {place: i for i in trees for place in places[i]}

    def made(b: Builder, place: Instruction, new: New) -> Sequence[Value]:
        whole = chosen[place]
        part = makers[place.operands[0]]
        axis = place.params["axes"][0]
        at = _Place(b, new, whole.result.type.shape[axis : axis + 2], axis, part.params["start"][axis])
        done: dict[Value, Value] = {}
        for i in trees[whole]:
            operands = [done[v] if v in done else at.of(v, makers) for v in i.operands]
            (done[i.result],) = b.emit(i.op, operands, dict(i.params))
        return [done[whole.operands[0]]]

    return replaced(function, chosen.__contains__, made)


def _places(function: Function, counts: Mapping[Value, int]) -> dict[Instruction, list[Instruction]]:
    """The reshapes that make one axis two, and of which single places along the first of them are all that is read."""
    slices: dict[Value, list[Instruction]] = {}
    single: dict[Value, Instruction] = {}
    for i in function.instructions:
        if i.op is slice_:
            slices.setdefault(i.operands[0], []).append(i)
        elif i.op is squeeze and counts[i.operands[0]] == 1:
            single[i.operands[0]] = i
    found = {}
    for i in function.instructions:
        axis = _axis(i) if i.op is reshape else None
        read = slices.get(i.result, []) if axis is not None else []
        places = [single[s.result] for s in read if s.result in single and single[s.result].params["axes"] == (axis,)]
        if axis is not None and len(places) == counts.get(i.result) and all(_is_place(s, axis) for s in read):
            found[i] = places
    return found


def _axis(i: Instruction) -> int | None:
    """The axis that a reshape makes, of a number of places, of one before it."""
    whole, shape = i.operands[0].type.shape, i.result.type.shape
    for k in range(len(whole)):
        is_split = len(shape) == len(whole) + 1 and shape[:k] == whole[:k] and shape[k + 2 :] == whole[k + 1 :]
        if is_split and isinstance(shape[k], int):
            return k
    return None


def _is_place(i: Instruction, axis: int) -> bool:
    return all(k == axis or (start is None and step == 1) for k, (start, step) in enumerate(_starts(i)))


def _starts(i: Instruction) -> list[tuple[Extent | None, int]]:
    return list(zip(i.params["start"], i.params["step"], strict=True))


def _tree(value: Value, makers: Mapping[Value, Instruction], counts: Mapping[Value, int]) -> list[Instruction]:
    """The cheap operations that a value is computed by and that nothing else needs, in order."""
    tree: list[Instruction] = []
    stack = [value]
    while stack:
        made = makers.get(stack.pop())
        if made is None or not isinstance(made.op, Elementwise) or not made.op.cheap or counts[made.result] != 1:
            continue
        tree.append(made)
        stack += made.operands
    return tree[::-1] if len(tree) <= MOST else []


class _Place:
    """One place along ``axis`` of what is seen with two axes of the extents ``shape`` for one."""

    def __init__(self, b: Builder, new: New, shape: Sequence[Extent], axis: int, at: Extent) -> None:
        self.b, self.new, self.shape, self.axis, self.at = b, new, tuple(shape), axis, at

    def of(self, value: Value, makers: Mapping[Value, Instruction]) -> Value:
        made, axis = makers.get(value), self.axis
        if made is None or made.op is not broadcast:
            return self.cut(self.new(value), axis)
        axes, source = made.params["axes"], self.new(made.operands[0])
        whole = value.type.shape
        part = source if axis in axes else self.cut(source, axis - sum(a < axis for a in axes))
        found: Value = self.b.broadcast(part, axes=axes, shape=(*whole[:axis], self.shape[1], *whole[axis + 1 :]))
        return found

    def cut(self, value: Value, axis: int) -> Value:
        b, shape = self.b, value.type.shape
        seen = b.reshape(value, shape=(*shape[:axis], *self.shape, *shape[axis + 1 :]))
        start = tuple(self.at if k == axis else None for k in range(seen.type.rank))
        one = tuple(1 if k == axis else e for k, e in enumerate(seen.type.shape))
        found: Value = b.squeeze(b.slice(seen, start=start, step=(1,) * seen.type.rank, shape=one), axes=(axis,))
        return found
