"""cuts: equal parts that an array is cut into become places of a short axis.

    z[:, :h], z[:, h:2*h], z[:, 2*h:]   ->   z3 = z.reshape(-1, 3, h); z3[:, 0], z3[:, 1], z3[:, 2]
    tanh(z)[:, :h], tanh(z)[:, h:]      ->   tanh(z[:, :h]), tanh(z[:, h:])

So are the gates of a recurrent step parts of one product, and queries, keys and values. Of parts that begin at named places a
template does not know whether they are apart and leave nothing out; of the places of an axis of three it does. What is computed
from parts has their shape, functions of the whole are computed part by part beside it, and the gradients of the parts are put
side by side instead of added up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.scalars import as_int
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.reindex import broadcast, slice_
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.symbolic import is_size

MOST_PARTS = 8
MOST_COPIED = 64
"""So many instructions that are computed part by part, for each part."""


def cuts(function: Function) -> Function:
    """Rewrite what is cut into equal parts, in regions too.

    Requires: a func whose extents are ints; others are returned as they are. Keeps: values bit by bit.
    """
    body = _block(function.body)
    return function if body is function.body else replace(function, body=body)


def _block(block: Block) -> Block:
    made = []
    for i in block.instructions:
        regions = tuple(map(_block, i.regions))
        is_same = all(new is old for new, old in zip(regions, i.regions, strict=True))
        made.append(i if is_same else replace(i, regions=regions))
    if any(new is not old for new, old in zip(made, block.instructions, strict=True)):
        block = replace(block, instructions=tuple(made))
    if sum(i.op is slice_ for i in made) < 2:
        return block
    return _placed(_Pushing(block).run())


@dataclass(frozen=True)
class _Part:
    """The elements of an array from ``start`` on, ``extent`` of them along an axis, of as many parts as the array has."""

    axis: int
    start: int
    extent: int

    def shape(self, whole: Shape) -> Shape:
        return (*whole[: self.axis], self.extent, *whole[self.axis + 1 :])


def _part_of(i: Instruction) -> _Part | None:
    """The part of an array that an instruction reads; None if it is no slice, or not one of a few equal parts of one axis. A
    column is left as it is: the axes of its parts could not become one, and its elements lie along an axis of one."""
    if i.op is not slice_ or any(step != 1 for step in i.params["step"]):
        return None
    whole, part = i.operands[0].type.shape, i.result.type.shape
    axes = [k for k, (start, e) in enumerate(zip(i.params["start"], part, strict=True)) if start is not None and e != whole[k]]
    if len(axes) != 1:
        return None
    (axis,) = axes
    start, extent, total = i.params["start"][axis], part[axis], whole[axis]
    if not (isinstance(start, int) and isinstance(extent, int) and isinstance(total, int)):
        return None
    if any(is_size(n) for n in (start, extent, total)) or extent < 2 or part[-1] == 1:
        return None
    is_equal = start % extent == 0 and total % extent == 0 and total // extent <= MOST_PARTS
    return _Part(axis, start, extent) if is_equal else None


def _parts_of(readers: Sequence[Instruction]) -> dict[Instruction, _Part]:
    """The parts that the readers of an array read, if all of them read parts along one axis, and several."""
    found = {i: part for i in readers if (part := _part_of(i)) is not None}
    several = len(found) == len(readers) and len(set(found.values())) > 1
    return found if several and len({(p.axis, p.extent) for p in found.values()}) == 1 else {}


def _readers(block: Block) -> dict[Value, list[Instruction]]:
    found: dict[Value, list[Instruction]] = {}
    for i in block.instructions:
        for v in dict.fromkeys(i.operands):
            found.setdefault(v, []).append(i)
    return found


class _Pushing:
    """Parts of what functions give become functions of parts, from the end of a block on. ``now``: what stands for a part."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.makers = {v: i for i in block.instructions for v in i.results}
        self.readers = _readers(block)
        self.now: dict[Value, Value] = {}
        self.copied = 0

    def run(self) -> Block:
        kept: list[list[Instruction]] = []
        for i in reversed(self.block.instructions):
            parts = self.parts_of(i)
            if i.op is slice_ and not self.readers.get(i.result) and i.result not in self.block.results:
                self.unread(i)
            elif parts and self.copied + len(parts) <= MOST_COPIED:
                kept.append(self.by_parts(i, parts))
            else:
                kept.append([i])
        if not self.now:
            return self.block
        found = [i for some in reversed(kept) for i in some if self.now.keys().isdisjoint(i.results)]
        made = tuple(replace(i, operands=tuple(self.now.get(v, v) for v in i.operands)) for i in found)
        return replace(self.block, instructions=made, results=tuple(self.now.get(v, v) for v in self.block.results))

    def parts_of(self, i: Instruction) -> dict[Instruction, _Part]:
        """The parts that are read of what functions give."""
        if not isinstance(i.op, Elementwise) or i.result in self.block.results:
            return {}
        parts = _parts_of(self.readers.get(i.result, ()))
        return parts if parts and (self.is_of_one(i) or self.is_function(i)) else {}

    def is_of_one(self, i: Instruction) -> bool:
        """Whether an instruction computes with one array, and else with numbers."""
        return sum(not self.is_number(v) for v in i.operands) == 1

    def is_number(self, value: Value) -> bool:
        made = self.makers.get(value)
        return made is not None and made.op is broadcast and made.operands[0].type.rank == 0

    def is_function(self, i: Instruction) -> bool:
        """Whether an elementwise instruction is a function, or computed elementwise from one."""
        stack, seen = [i], {i}
        while stack and len(seen) <= MOST_COPIED:
            current = stack.pop()
            assert isinstance(current.op, Elementwise)
            if not current.op.cheap:
                return True
            makers = [self.makers[v] for v in current.operands if v in self.makers]
            new = [k for k in makers if isinstance(k.op, Elementwise) and k not in seen]
            seen.update(new)
            stack += new
        return False

    def by_parts(self, i: Instruction, parts: Mapping[Instruction, _Part]) -> list[Instruction]:
        """An instruction for each part."""
        b = Builder(i.loc, hint=i.result.name)
        made: dict[_Part, Value] = {}
        for reader, part in parts.items():
            if part not in made:
                operands = [self.part(b, v, part) for v in i.operands]
                (made[part],) = b.emit(i.op, operands, dict(i.params))
            self.now[reader.result] = made[part]
        self.copied += len(made)
        self.unread(i)
        for new in b.instructions:
            for v in dict.fromkeys(new.operands):
                self.readers.setdefault(v, []).append(new)
        return b.instructions

    def part(self, b: Builder, value: Value, part: _Part) -> Value:
        """A part of an operand."""
        made = self.makers.get(value)
        if made is not None and made.op is broadcast and part.axis in made.params["axes"]:
            whole: Value = b.broadcast(made.operands[0], axes=made.params["axes"], shape=part.shape(value.type.shape))
            return whole
        start = [part.start if k == part.axis else 0 for k in range(value.type.rank)]
        shape = part.shape(value.type.shape)
        if made is not None and made.op is slice_ and all(step == 1 for step in made.params["step"]):
            start = [n + (first or 0) for n, first in zip(start, made.params["start"], strict=True)]
            value = made.operands[0]
        found: Value = b.slice(value, start=tuple(start), step=(1,) * len(start), shape=shape)
        return found

    def unread(self, i: Instruction) -> None:
        for v in dict.fromkeys(i.operands):
            self.readers[v].remove(i)


def _placed(block: Block) -> Block:
    """The block with a short axis more in arrays that are cut into parts."""
    readers = _readers(block)
    chosen: dict[Instruction, tuple[Value, _Part]] = {}
    made: list[Instruction] = []
    for i in block.instructions:
        if i in chosen:
            whole, part = chosen[i]
            made += _place(Builder(i.loc, hint=i.result.name), whole, part, i.result)
            continue
        made.append(i)
        parts = _parts_of(readers.get(i.results[0], ())) if isinstance(i.op, Contract | Elementwise) else {}
        if parts:
            b = Builder(i.loc, hint=i.result.name)
            first = next(iter(parts.values()))
            shape = i.result.type.shape
            number = as_int(shape[first.axis]) // first.extent
            whole = b.reshape(i.result, shape=(*shape[: first.axis], number, first.extent, *shape[first.axis + 1 :]))
            made += b.instructions
            chosen.update((reader, (whole, part)) for reader, part in parts.items())
    return replace(block, instructions=tuple(made)) if chosen else block


def _place(b: Builder, whole: Value, part: _Part, result: Value) -> list[Instruction]:
    """One place of the short axis, which stands for a part."""
    axis, rank = part.axis, whole.type.rank
    start = tuple(part.start // part.extent if k == axis else 0 for k in range(rank))
    shape = tuple(1 if k == axis else e for k, e in enumerate(whole.type.shape))
    b.squeeze(b.slice(whole, start=start, step=(1,) * rank, shape=shape), axes=(axis,))
    *others, last = b.instructions
    return [*others, replace(last, results=(result,))]
