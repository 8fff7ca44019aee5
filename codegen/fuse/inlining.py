"""Says what is copied into each group that reads it, what a group reads through it, and what is stored contiguously before.

What rows repeat is stored contiguously first where each of them would have to gather it. Columns of an array of points, for one:
``x[:, 0][None, :]`` reads every third number, once for each row. So is what many shifted views read of an array that is joined of
parts, as a convolution does of an image that goes on beyond its edges: each would choose among the parts anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from pullback.codegen.fuse.clusters import Cluster, Read
from pullback.codegen.fuse.matmul_fusion import carries, is_near, is_of_halves
from pullback.codegen.fuse.rewrites.stencils import shifted
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather, ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, concat, flip, reshape, slice_, squeeze, transpose
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import nominal_bytes

MANY = 8
"""So many views of joined parts are worth a copy of them."""


def packed(instructions: Sequence[Instruction]) -> set[Value]:
    """Return the values that a broadcast repeats along other axes than the last, and whose elements along the last lie apart, and
    joined parts of which there are many views."""
    makers = {v: i for i in instructions for v in i.results}
    views = Counter(i.operands[0] for i in instructions if i.op is slice_ and makers.get(i.operands[0]) is not None)
    found = {value for value, count in views.items() if count >= MANY and makers[value].op is concat}
    for i in instructions:
        if i.op is broadcast and i.operands[0].type.shape and i.result.type.rank - 1 not in i.params["axes"]:
            if _lies_apart(i.operands[0], makers):
                found.add(i.operands[0])
    return found


def _lies_apart(value: Value, makers: Mapping[Value, Instruction]) -> bool:
    """Whether neighbours along the last axis are no neighbours in memory."""
    made = makers.get(value)
    while made is not None and isinstance(made.op, Reindex | Gather):
        source = made.operands[0].type
        last = source.rank - 1
        if isinstance(made.op, Gather):
            return last in made.params["axes"]
        if made.op is slice_:
            apart = made.params["step"][last] != 1
        elif made.op is squeeze:
            before = makers.get(made.operands[0])
            is_moved = before is not None and isinstance(before.op, Reindex) and before.op is not reshape
            apart = last in made.params["axes"] and is_moved
        elif made.op is transpose:
            apart = made.params["perm"][last] != last
        elif made.op is flip:
            apart = last in made.params["axes"]
        else:
            return False
        if apart:
            return True
        made = makers.get(made.operands[0])
    return False


class Paths:
    """The instructions of a function by what becomes of them.

    ``home``: the groups of members. ``floating``: scalars of parameters and constants alone, with what they weigh. ``far``: the
    operands of contractions that are read from memory. ``widened``: what is made float32 of 16 bits for such contractions alone,
    which make it as they read. ``whole``: what is read at other places than where it is computed, or is a result; ``stored``: so,
    but not what contractions of groups read alone."""

    def __init__(self, function: Function, target: str) -> None:
        self.function = function
        self.target = target
        self.producer = {v: i for i in function.instructions for v in i.results}
        self.home: dict[Value, Cluster] = {}
        self.readers: dict[Value, list[Instruction]] = {}
        for i in function.instructions:
            for v in i.operands:
                self.readers.setdefault(v, []).append(i)
        self.packed = packed(function.instructions)
        self.floating: dict[Value, int] = {}
        self.far: dict[Instruction, list[Value]] = {}
        self.shifted = shifted(function)
        inside = Elementwise | Reduce | Check | Reindex | Gather | ScatterSum
        readers = [i for i in function.instructions if not isinstance(i.op, inside)]
        self.widened = {i.result for i in function.instructions if self._is_widened(i)}
        self.whole = {*function.results, *(v for i in readers for v in i.operands)}
        self.stored = {*function.results, *(v for i in readers if not carries(i, target, self.producer.get) for v in i.operands)}

    def is_path(self, instruction: Instruction) -> bool:
        """Whether an instruction is copied into its readers."""
        op = instruction.op
        if not self.packed.isdisjoint(instruction.results):
            return False
        if isinstance(op, Reindex):
            return not self.is_view(instruction)
        if isinstance(op, Constant | Count | Iota | Gather):
            return True
        copied = self.floating, self.shifted, self.widened
        return isinstance(op, Elementwise) and any(instruction.result in each for each in copied)

    def _is_widened(self, instruction: Instruction) -> bool:
        if instruction.op.name != "cast" or instruction.result in self.function.results:
            return False
        readers, maker = self.readers.get(instruction.result, []), self.producer.get
        return bool(readers) and all(is_of_halves(i, self.target, maker) and carries(i, self.target, maker) for i in readers)

    def through(self, value: Value) -> Instruction | None:
        """The instruction of a value that is copied into its readers."""
        made = self.producer.get(value)
        return made if made is not None and self.is_path(made) and value not in self.home else None

    def is_view(self, instruction: Instruction) -> bool:
        """Whether an instruction is a view of a stored value. A squeeze of what is copied into its readers is copied, too."""
        if not isinstance(instruction.op, Reindex) or not instruction.op.view:
            return False
        made = self.producer.get(instruction.operands[0])
        return instruction.op is not squeeze or made is None or not self.is_path(made)

    def is_loose(self, value: Value) -> bool:
        """Whether a scalar depends on parameters and constants alone."""
        made = self.producer.get(value)
        if made is None:
            return not value.type.shape
        return value in self.floating or isinstance(made.op, Constant | Count)

    def reads(self, value: Value, packs: bool = False) -> list[Read]:
        """What the evaluation of a value reads, through paths; ``packs``: by the group that packs it."""
        found: list[Read] = []
        stack = [(value, "same", value.type.rank)]
        seen: set[tuple[Value, str]] = set()
        while stack:
            current, way, rank = stack.pop()
            made = self.producer.get(current)
            is_stored = made is None or not (self.is_path(made) or (packs and current is value))
            if made is None or is_stored or current in self.home:
                found.append(Read(current, "scalar" if not current.type.shape else way, rank))
                continue
            for position, operand in enumerate(made.operands):
                if isinstance(made.op, Gather) and not position:
                    found.append(Read(operand, "other", operand.type.rank))
                    continue
                step = "other"
                if made.op is broadcast and way in ("same", "row"):
                    axes, kept = made.params["axes"], operand.type.rank
                    step = "row" if tuple(axes) == tuple(range(kept, rank)) and kept else "other"
                elif isinstance(made.op, Elementwise) or (
                    isinstance(made.op, Gather) and position and way == "same" and operand.type.rank == current.type.rank
                ):
                    step = way
                if (operand, step) not in seen:
                    seen.add((operand, step))
                    stack.append((operand, step, operand.type.rank))
        return found

    def reads_of(self, instruction: Instruction) -> list[Read]:
        """What an instruction reads, through paths."""
        if not isinstance(instruction.op, Contract):
            return [r for v in instruction.operands for r in self.reads(v)]
        far = self.far.get(instruction, ())
        near = [r for v in instruction.operands if v not in far for r in self.reads(v)]
        return [Read(r.root, "other", r.rank) for r in (*near, *(Read(self.base(v), "other", v.type.rank) for v in far))]

    def in_memory(self, instruction: Instruction) -> Sequence[Value]:
        """What an instruction of a group reads at places that are computed, and so must be stored."""
        if isinstance(instruction.op, Gather):
            return instruction.operands[:1]
        if isinstance(instruction.op, ScatterSum):
            return instruction.operands[:-1]
        return self.far.get(instruction, ())

    def is_near(self, value: Value) -> bool:
        """Whether an operand of a contraction is computed as it is read: if it is not in memory anyway, and only moved or made by
        few cheap ops."""
        if value in self.stored and self.through(value) is not None:
            return False
        shape = value.type.shape
        roots = [r.root for r in self.reads(value) if r.root.type.shape == shape]
        return is_near(value, self.through) and all(is_near(v, partial(self.elementwise, shape)) for v in roots)

    def is_cheap_again(self, value: Value, reader: Instruction) -> bool:
        """Whether an operand that is near is computed for its reader alone, beside reductions, which store nothing, or from less
        than it has: others would compute it again, from as much as they would read."""
        shape, chain, stack = value.type.shape, {reader}, [value]
        sources: list[Value] = []
        while stack:
            current = stack.pop()
            made = self.elementwise(shape, current)
            if made is None or current.type.shape != shape:
                sources.append(current)
            elif made not in chain:
                chain.add(made)
                stack += made.operands
        if all(nominal_bytes(v.type) < nominal_bytes(value.type) for v in sources):
            return True
        made_here = {v for i in chain if i is not reader for v in i.results if v.type.shape == shape}
        return all(i in chain or isinstance(i.op, Reduce) for v in made_here for i in self.readers.get(v, ()))

    def elementwise(self, shape: Shape, value: Value) -> Instruction | None:
        """The elementwise instruction that makes a value of a shape, or what makes one for its readers: what is repeated by a
        broadcast is stored."""
        made = self.producer.get(value)
        is_made = made is not None and isinstance(made.op, Elementwise) and value.type.shape == shape
        return made if is_made or self.through(value) is made else None

    def base(self, value: Value) -> Value:
        """What a view is a view of."""
        made = self.producer.get(value)
        while made is not None and self.is_view(made):
            value = made.operands[0]
            made = self.producer.get(value)
        return value
