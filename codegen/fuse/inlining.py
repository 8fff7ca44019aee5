"""Determine which instructions are copied into each group that reads them, what a group reads through them, and which values
are packed into contiguous memory first.

A value that rows repeat is packed first if each of them would have to gather it, such as a column of an array of points:
``x[:, 0][None, :]`` reads every third number, once for each row. The same holds for concatenated parts that are read through
many shifted views, as a convolution reads an image that is extended beyond its edges: each view would select among the parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from pullback.codegen.fuse.clusters import Cluster, Read
from pullback.codegen.fuse.joined_parts import joined_parts
from pullback.codegen.fuse.matmul_fusion import is_cheap_operand, is_of_halves, may_fuse
from pullback.codegen.fuse.rewrites.stencils import recomputed_stencil_values
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather, Place, Scatter, ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, concat, flip, reshape, slice_, squeeze, transpose
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import by_value_in, definers, extents_by_value, factor_names, nominal_bytes

MANY_VIEWS = 8
"""Number of views of concatenated parts that justify a copy."""


def packed_values(instructions: Sequence[Instruction]) -> set[Value]:
    """Return the values that a broadcast repeats along other axes than the last and that are not contiguous along the last,
    and the concatenations with many views."""
    makers = {v: i for i in instructions for v in i.results}
    views = Counter(i.operands[0] for i in instructions if i.op is slice_ and makers.get(i.operands[0]) is not None)
    values = {value for value, count in views.items() if count >= MANY_VIEWS and makers[value].op is concat}
    for i in instructions:
        if i.op is broadcast and i.operands[0].type.shape and i.result.type.rank - 1 not in i.params["axes"]:
            if _is_strided(i.operands[0], makers):
                values.add(i.operands[0])
    return values


def _is_strided(value: Value, makers: Mapping[Value, Instruction]) -> bool:
    """Return whether elements adjacent along the last axis are not adjacent in memory."""
    definition = makers.get(value)
    while definition is not None and isinstance(definition.op, Reindex | Gather):
        source = definition.operands[0].type
        last = source.rank - 1
        if isinstance(definition.op, Gather):
            return last in definition.params["axes"]
        if definition.op is slice_:
            is_strided = definition.params["step"][last] != 1
        elif definition.op is squeeze:
            before = makers.get(definition.operands[0])
            is_moved = before is not None and isinstance(before.op, Reindex) and before.op is not reshape
            is_strided = last in definition.params["axes"] and is_moved
        elif definition.op is transpose:
            is_strided = definition.params["perm"][last] != last
        elif definition.op is flip:
            is_strided = last in definition.params["axes"]
        else:
            return False
        if is_strided:
            return True
        definition = makers.get(definition.operands[0])
    return False


MOST_UPDATES = 256
"""Most updates of a block before which reads are stored."""


def read_before_updates(instructions: Sequence[Instruction], fixed: Collection[Value]) -> set[Value]:
    """Return the parts of arrays that are read by instructions that depend on an update of the array: read after the update, they
    would be read from a copy of the array. They are packed before it. ``fixed``: parameters that are not overwritten."""
    root: dict[Value, Value] = {}
    update_of: dict[Value, int] = {}
    after: dict[Value, int] = {}
    packed: set[Value] = set()
    for i in instructions:
        reached = 0
        for v in i.operands:
            reached |= after.get(v, 0)
        if isinstance(i.op, Reindex | Gather):
            root.update(dict.fromkeys(i.results, root.get(i.operands[0], i.operands[0])))
        for v in i.operands if update_of else ():
            source = root.get(v)
            if source in update_of and reached >> update_of[source] & 1 and not isinstance(i.op, Reindex | Gather):
                packed.add(v)
        if isinstance(i.op, Scatter | Place) and len(update_of) < MOST_UPDATES:
            base = root.get(i.operands[0], i.operands[0])
            if base not in fixed and base not in update_of:
                update_of[base] = len(update_of)
                reached |= 1 << update_of[base]
        if reached:
            after.update(dict.fromkeys(i.results, reached))
    return packed


class Paths:
    """The instructions of a function, classified.

    ``extents``: the values that define extents by value. ``home``: the groups of members. ``floating``: scalars of parameters
    and constants alone, with their weights. ``joined``: the values that are computed where they are joined.
    ``memory_operands``: the operands of contractions that are read from memory. ``widened``: 16-bit values converted to float32
    only for such contractions, which convert as they read.
    ``stored_or_multiplied``: values that are results or read at other indices than their own; ``stored``: the same without what
    only contractions in groups read.
    """

    def __init__(self, function: Function, target: str) -> None:
        self.function = function
        self.target = target
        self.producer = {v: i for i in function.instructions for v in i.results}
        self.home: dict[Value, Cluster] = {}
        self.readers: dict[Value, list[Instruction]] = {}
        for i in function.instructions:
            for v in i.operands:
                self.readers.setdefault(v, []).append(i)
        self.extents = definers(function.instructions)
        self.packed = packed_values(function.instructions)
        self.floating: dict[Value, int] = {}
        self.memory_operands: dict[Instruction, list[Value]] = {}
        self.joined = joined_parts(function, self.readers) if target == "cpu" else set[Value]()
        self.shifted = recomputed_stencil_values(function)
        inside = Elementwise | Reduce | Check | Reindex | Gather | ScatterSum
        readers = [i for i in function.instructions if not isinstance(i.op, inside)]
        self.widened = {i.result for i in function.instructions if self._is_widened(i)}
        self.stored_or_multiplied = {*function.results, *(v for i in readers for v in i.operands)}
        self.stored = {*function.results, *(v for i in readers if not may_fuse(i, target, self.producer.get) for v in i.operands)}

    def is_path(self, instruction: Instruction) -> bool:
        """Return whether an instruction is copied into its readers."""
        op = instruction.op
        if not self.packed.isdisjoint(instruction.results):
            return False
        if isinstance(op, Reindex):
            return not self.is_view(instruction)
        if isinstance(op, Constant | Count | Iota | Gather):
            return True
        if not isinstance(op, Elementwise):
            return False
        value = instruction.result
        return value in self.floating or value in self.shifted or value in self.widened or value in self.joined

    def _is_widened(self, instruction: Instruction) -> bool:
        if instruction.op.name != "cast" or instruction.result in self.function.results:
            return False
        readers, maker = self.readers.get(instruction.result, []), self.producer.get
        return bool(readers) and all(is_of_halves(i, self.target, maker) and may_fuse(i, self.target, maker) for i in readers)

    def through(self, value: Value) -> Instruction | None:
        """Return the instruction of a value that is copied into its readers; None for other values."""
        definition = self.producer.get(value)
        return definition if definition is not None and self.is_path(definition) and value not in self.home else None

    def is_view(self, instruction: Instruction) -> bool:
        """Return whether an instruction is a view of a stored value. A squeeze of something copied into its readers is copied
        as well."""
        if not isinstance(instruction.op, Reindex) or not instruction.op.view:
            return False
        definition = self.producer.get(instruction.operands[0])
        return instruction.op is not squeeze or definition is None or not self.is_path(definition)

    def is_floating(self, value: Value) -> bool:
        """Return whether a scalar depends on parameters and constants alone."""
        definition = self.producer.get(value)
        if definition is None:
            return not value.type.shape
        return value in self.floating or isinstance(definition.op, Constant | Count)

    def reads(self, value: Value, packs: bool = False) -> list[Read]:
        """Return the reads of a value's evaluation, through paths; ``packs``: by the group that packs it."""
        definition = self.producer.get(value)
        if value in self.home or definition is None or not (packs or self.is_path(definition)):
            return [Read(value, "same" if value.type.shape else "scalar", value.type.rank)]
        result: list[Read] = []
        stack = [(value, "same", value.type.rank)]
        seen: set[tuple[Value, str]] = set()
        while stack:
            current, way, rank = stack.pop()
            definition = self.producer.get(current)
            is_stored = definition is None or not (self.is_path(definition) or (packs and current is value))
            if definition is None or is_stored or current in self.home:
                result.append(Read(current, "scalar" if not current.type.shape else way, rank))
                continue
            for position, operand in enumerate(definition.operands):
                if isinstance(definition.op, Gather) and not position:
                    result.append(Read(operand, "other", operand.type.rank))
                    continue
                step = "other"
                if definition.op is broadcast and way in ("same", "row"):
                    axes, kept = definition.params["axes"], operand.type.rank
                    step = "row" if tuple(axes) == tuple(range(kept, rank)) and kept else "other"
                elif isinstance(definition.op, Elementwise) or (
                    isinstance(definition.op, Gather) and position and way == "same" and operand.type.rank == current.type.rank
                ):
                    step = way
                if (operand, step) not in seen:
                    seen.add((operand, step))
                    stack.append((operand, step, operand.type.rank))
        return result

    def reads_of(self, instruction: Instruction) -> list[Read]:
        """Return the reads of an instruction, through paths."""
        extents = self.extent_reads(instruction)
        if not isinstance(instruction.op, Contract):
            return [*(r for v in instruction.operands for r in self.reads(v)), *extents]
        in_memory = self.memory_operands.get(instruction, ())
        inlined = [r for v in instruction.operands if v not in in_memory for r in self.reads(v)]
        stored = (Read(self.base(v), "other", v.type.rank) for v in in_memory)
        return [*(Read(r.root, "other", r.rank) for r in (*inlined, *stored)), *extents]

    def extent_reads(self, instruction: Instruction) -> list[Read]:
        """Return the reads of the numbers that define the extents by value of an instruction, also those on the paths of its
        operands."""
        if not self.extents:
            return []
        names = extents_by_value(instruction)
        names.update(dict.fromkeys(name for v in instruction.operands for name in self.extents_on_path(v)))
        return [Read(self.extents[name], "other", 0) for name in names if name in self.extents]

    def extents_on_path(self, value: Value) -> dict[str, None]:
        """Return the extents by value of a value's type, and of the instructions that are copied into its readers with it."""
        names: dict[str, None] = {}
        stack, seen = [value], {value}
        while stack:
            v = stack.pop()
            names.update(dict.fromkeys(n for e in by_value_in(v.type.shape) for n in factor_names(e)))
            path = self.through(v)
            if path is not None:
                names.update(extents_by_value(path))
                stack += [o for o in path.operands if o not in seen]
                seen.update(path.operands)
        return {name: None for name in names if name in self.extents}

    def in_memory(self, instruction: Instruction) -> Sequence[Value]:
        """Return the operands that an instruction of a group reads at computed indices, which therefore must be stored."""
        if isinstance(instruction.op, Gather):
            return instruction.operands[:1]
        if isinstance(instruction.op, ScatterSum):
            return instruction.operands[:-1]
        return self.memory_operands.get(instruction, ())

    def is_inlined_operand(self, value: Value) -> bool:
        """Return whether an operand of a contraction is computed as it is read: it is not stored in any case, and only
        reindexed or computed by few cheap ops."""
        if value in self.stored and self.through(value) is not None:
            return False
        shape = value.type.shape
        roots = [r.root for r in self.reads(value) if r.root.type.shape == shape]
        return is_cheap_operand(value, self.through) and all(is_cheap_operand(v, partial(self.elementwise, shape)) for v in roots)

    def is_cheap_to_recompute(self, value: Value, reader: Instruction) -> bool:
        """Return whether an inlined operand is computed only for its reader and for reductions, which store nothing, or from
        less memory than it has itself. Otherwise other readers would recompute it, from as much memory as they would read."""
        shape, chain, stack = value.type.shape, {reader}, [value]
        sources: list[Value] = []
        while stack:
            current = stack.pop()
            definition = self.elementwise(shape, current)
            if definition is None or current.type.shape != shape:
                sources.append(current)
            elif definition not in chain:
                chain.add(definition)
                stack += definition.operands
        if all(nominal_bytes(v.type) < nominal_bytes(value.type) for v in sources):
            return True
        intermediates = {v for i in chain if i is not reader for v in i.results if v.type.shape == shape}
        return all(i in chain or isinstance(i.op, Reduce) for v in intermediates for i in self.readers.get(v, ()))

    def elementwise(self, shape: Shape, value: Value) -> Instruction | None:
        """Return the elementwise instruction that computes a value of ``shape``, or the instruction that is copied into its
        readers; None otherwise, since the source of a broadcast is stored."""
        definition = self.producer.get(value)
        is_elementwise = definition is not None and isinstance(definition.op, Elementwise) and value.type.shape == shape
        return definition if is_elementwise or self.through(value) is definition else None

    def base(self, value: Value) -> Value:
        """Return the stored value that a view is a view of."""
        definition = self.producer.get(value)
        while definition is not None and self.is_view(definition):
            value = definition.operands[0]
            definition = self.producer.get(value)
        return value
