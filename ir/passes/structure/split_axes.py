"""Rewrite equal slices of an axis as indices along a new short axis.

    z[:, :h], z[:, h:2*h], z[:, 2*h:]   ->   z3 = z.reshape(-1, 3, h); z3[:, 0], z3[:, 1], z3[:, 2]
    tanh(z)[:, :h], tanh(z)[:, h:]      ->   tanh(z[:, :h]), tanh(z[:, h:])

Examples are the gates of a recurrent step, which are slices of one product, and queries, keys and values. A template does not
know whether slices with symbolic starts overlap or leave gaps; indices along an axis of extent 3 it does know. Code computed
from slices gets their shape, functions of the entire array are computed slice by slice in it, and the gradients of the slices
are concatenated instead of added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.scalars import as_int
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.reindex import broadcast, slice_
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.symbolic import is_size

MOST_PARTS = 8
"""Largest number of parts of an axis."""
MOST_COPIED = 64
"""Largest number of instructions that are computed part by part, counted once per part."""


def cuts(function: Function) -> Function:
    """Rewrite equal slices, in regions too.

    Requires: a func whose extents are ints; others are returned unchanged. Keeps: values bit by bit.
    """
    body = _block(function.body)
    return function if body is function.body else replace(function, body=body)


def _block(block: Block) -> Block:
    instructions = []
    for i in block.instructions:
        regions = tuple(map(_block, i.regions))
        is_same = all(new is old for new, old in zip(regions, i.regions, strict=True))
        instructions.append(i if is_same else replace(i, regions=regions))
    if any(new is not old for new, old in zip(instructions, block.instructions, strict=True)):
        block = replace(block, instructions=tuple(instructions))
    if sum(i.op is slice_ for i in instructions) < 2:
        return block
    return _indexed(_SlicePusher(block).run())


@dataclass(frozen=True)
class _Part:
    """A slice of ``extent`` elements from ``start`` along ``axis``; the axis divides into such parts."""

    axis: int
    start: int
    extent: int

    def shape(self, shape: Shape) -> Shape:
        return (*shape[: self.axis], self.extent, *shape[self.axis + 1 :])


def _part_of(i: Instruction) -> _Part | None:
    """Return the part of an array that an instruction slices; None if it is no slice, or not one of a few equal parts of one
    axis. A column is left unchanged: the axes of its parts could not be merged, and its elements would be along an axis of
    extent 1."""
    if i.op is not slice_ or any(step != 1 for step in i.params["step"]):
        return None
    outer, part = i.operands[0].type.shape, i.result.type.shape
    axes = [k for k, (start, e) in enumerate(zip(i.params["start"], part, strict=True)) if start is not None and e != outer[k]]
    if len(axes) != 1:
        return None
    (axis,) = axes
    start, extent, total = i.params["start"][axis], part[axis], outer[axis]
    if not (isinstance(start, int) and isinstance(extent, int) and isinstance(total, int)):
        return None
    if any(is_size(n) for n in (start, extent, total)) or extent < 2 or part[-1] == 1:
        return None
    is_equal = start % extent == 0 and total % extent == 0 and total // extent <= MOST_PARTS
    return _Part(axis, start, extent) if is_equal else None


def _parts_of(readers: Sequence[Instruction]) -> dict[Instruction, _Part]:
    """Return the part that each reader of an array slices, if all readers slice along one axis and there are at least two
    parts."""
    parts = {i: part for i in readers if (part := _part_of(i)) is not None}
    are_split = len(parts) == len(readers) and len(set(parts.values())) > 1
    return parts if are_split and len({(p.axis, p.extent) for p in parts.values()}) == 1 else {}


def _readers(block: Block) -> dict[Value, list[Instruction]]:
    readers: dict[Value, list[Instruction]] = {}
    for i in block.instructions:
        for v in dict.fromkeys(i.operands):
            readers.setdefault(v, []).append(i)
    return readers


class _SlicePusher:
    """Moves slices before elementwise functions, from the end of a block to its start. ``now``: the replacements of the
    slices."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.definitions = {v: i for i in block.instructions for v in i.results}
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
        remaining = [i for some in reversed(kept) for i in some if self.now.keys().isdisjoint(i.results)]
        instructions = tuple(replace(i, operands=tuple(self.now.get(v, v) for v in i.operands)) for i in remaining)
        return replace(self.block, instructions=instructions, results=tuple(self.now.get(v, v) for v in self.block.results))

    def parts_of(self, i: Instruction) -> dict[Instruction, _Part]:
        """Return the parts of a function's result that are read; none if the function is not moved."""
        if not isinstance(i.op, Elementwise) or i.result in self.block.results:
            return {}
        parts = _parts_of(self.readers.get(i.result, ()))
        return parts if parts and (self.has_one_array(i) or self.is_function(i)) else {}

    def has_one_array(self, i: Instruction) -> bool:
        """Return whether all operands of an instruction but one are scalars, broadcast."""
        return sum(not self.is_scalar(v) for v in i.operands) == 1

    def is_scalar(self, value: Value) -> bool:
        """Return whether a value is a scalar, broadcast."""
        producer = self.definitions.get(value)
        return producer is not None and producer.op is broadcast and producer.operands[0].type.rank == 0

    def is_function(self, i: Instruction) -> bool:
        """Return whether an elementwise instruction, or one it is computed from elementwise, is not cheap."""
        stack, seen = [i], {i}
        while stack and len(seen) <= MOST_COPIED:
            current = stack.pop()
            assert isinstance(current.op, Elementwise)
            if not current.op.cheap:
                return True
            makers = [self.definitions[v] for v in current.operands if v in self.definitions]
            new = [k for k in makers if isinstance(k.op, Elementwise) and k not in seen]
            seen.update(new)
            stack += new
        return False

    def by_parts(self, i: Instruction, parts: Mapping[Instruction, _Part]) -> list[Instruction]:
        """Emit an instruction for each part."""
        b = Builder(i.loc, hint=i.result.name)
        results: dict[_Part, Value] = {}
        for reader, part in parts.items():
            if part not in results:
                operands = [self.part(b, v, part) for v in i.operands]
                (results[part],) = b.emit(i.op, operands, dict(i.params))
            self.now[reader.result] = results[part]
        self.copied += len(results)
        self.unread(i)
        for new in b.instructions:
            for v in dict.fromkeys(new.operands):
                self.readers.setdefault(v, []).append(new)
        return b.instructions

    def part(self, b: Builder, value: Value, part: _Part) -> Value:
        """Emit a part of an operand."""
        producer = self.definitions.get(value)
        if producer is not None and producer.op is broadcast and part.axis in producer.params["axes"]:
            repeated: Value = b.broadcast(producer.operands[0], axes=producer.params["axes"], shape=part.shape(value.type.shape))
            return repeated
        start = [part.start if k == part.axis else 0 for k in range(value.type.rank)]
        shape = part.shape(value.type.shape)
        if producer is not None and producer.op is slice_ and all(step == 1 for step in producer.params["step"]):
            start = [n + (first or 0) for n, first in zip(start, producer.params["start"], strict=True)]
            value = producer.operands[0]
        result: Value = b.slice(value, start=tuple(start), step=(1,) * len(start), shape=shape)
        return result

    def unread(self, i: Instruction) -> None:
        for v in dict.fromkeys(i.operands):
            self.readers[v].remove(i)


def _indexed(block: Block) -> Block:
    """Return the block with a reshape to a short axis for arrays that are read in parts."""
    readers = _readers(block)
    chosen: dict[Instruction, tuple[Value, _Part]] = {}
    instructions: list[Instruction] = []
    for i in block.instructions:
        if i in chosen:
            reshaped, part = chosen[i]
            instructions += _select_part(Builder(i.loc, hint=i.result.name), reshaped, part, i.result)
            continue
        instructions.append(i)
        parts = _parts_of(readers.get(i.results[0], ())) if isinstance(i.op, Contract | Elementwise) else {}
        if parts:
            b = Builder(i.loc, hint=i.result.name)
            first = next(iter(parts.values()))
            shape = i.result.type.shape
            count = as_int(shape[first.axis]) // first.extent
            reshaped = b.reshape(i.result, shape=(*shape[: first.axis], count, first.extent, *shape[first.axis + 1 :]))
            instructions += b.instructions
            chosen.update((reader, (reshaped, part)) for reader, part in parts.items())
    return replace(block, instructions=tuple(instructions)) if chosen else block


def _select_part(b: Builder, reshaped: Value, part: _Part, result: Value) -> list[Instruction]:
    """Emit the selection of one index along the short axis, which replaces a slice."""
    axis, rank = part.axis, reshaped.type.rank
    start = tuple(part.start // part.extent if k == axis else 0 for k in range(rank))
    shape = tuple(1 if k == axis else e for k, e in enumerate(reshaped.type.shape))
    b.squeeze(b.slice(reshaped, start=start, step=(1,) * rank, shape=shape), axes=(axis,))
    *others, last = b.instructions
    return [*others, replace(last, results=(result,))]
