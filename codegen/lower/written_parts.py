"""Kernels of groups that write into an array: the group computes each element where an update would copy it to.

The value of an update is then not stored elsewhere first, which costs a buffer, and another kernel, in each iteration of a loop.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.elements import wrapped
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, substitute_values, walk
from pullback.ir.core.types import I64, Extent, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Place, Scatter
from pullback.ir.ops.kernel.kernel import Load, Store
from pullback.ir.shapes.extents import renamed_extent


def is_part_update(i: Instruction) -> bool:
    """Return whether an instruction updates a part of an array: a regular one, at single indices of the other axes."""
    if not isinstance(i.op, Place | Scatter) or i.operands[-1].type.dtype.is_complex:
        return False
    return not any(v.type.shape for v in i.operands[1:-1])


def into_part(draft: Draft, group: Instruction, update: Instruction) -> Draft | None:
    """Return the kernel of a group that computes the value of an update, with the indices of the update as further operands, and
    its base in the place of that result: it updates the part. The base is no operand of its own then. None if the kernel reads
    what it has written, or counts the elements in another way."""
    base, value = update.operands[0], update.operands[-1]
    if draft.scratch or draft.failures or not all(isinstance(e, int | str) for e in draft.sizes):
        return None
    out = draft.kernel.parameters[len(group.operands) + group.results.index(value)]
    names = {f"s{k}": e for k, e in enumerate(draft.sizes)}
    if tuple(renamed_extent(e, names) for e in out.type.shape) != value.type.shape:
        return None
    users = [i for i in walk(draft.kernel.body) if out in i.operands]
    if not all(type(i.op) is Store and not i.op.masked and i.operands.index(out) == 1 for i in users):
        return None
    own = draft.kernel.parameters[group.operands.index(base)] if base in group.operands else None
    moved = _Moved(draft, update, out, own)
    return moved.draft() if own is None or moved.reads_before_it_writes(draft.kernel.body) else None


class _Moved:
    """The kernel of a group whose stores to ``old`` are moved to a part of an array. ``own``: the parameter by which the kernel
    reads the array, if it does."""

    def __init__(self, draft: Draft, update: Instruction, old: Value, own: Value | None) -> None:
        self.update = update
        self.kernel = draft.kernel
        self.names: dict[Extent, str] = {e: f"s{k}" for k, e in enumerate(draft.sizes)}
        self.head = Builder(update.loc)
        self.old, self.own = old, own
        base, *indices, _ = update.operands
        self.out = Value(RefType(base.type.dtype, tuple(map(self.size, base.type.shape))), self.old.name)
        self.indices = [Value(RefType(v.type.dtype, ()), "at") for v in indices]
        at = dict(zip(update.params.get("axes", ()), self.indices, strict=True))
        rank = len(base.type.shape)
        start, step = update.params.get("start", (None,) * rank), update.params.get("step", (1,) * rank)
        self.axes: list[Value | tuple[Value | None, Value | None]] = [
            self.position(at[k], k) if k in at else (self.extent_number(step[k], 1), self.extent_number(start[k], 0))
            for k in range(rank)
        ]
        """For each axis of the array, the index at which the update writes, or the step and the start of the part."""

    def size(self, extent: Extent) -> Extent:
        """Return the kernel's name of a program extent."""
        if isinstance(extent, int):
            return extent
        return self.names.setdefault(extent, f"s{len(self.names)}")

    def extent_number(self, extent: Extent | None, neutral: int) -> Value | None:
        """Return the number of a program extent in the kernel; None for one that changes no index."""
        if extent is None or extent == neutral:
            return None
        if isinstance(extent, int):
            return self.head.const(extent, I64)
        return self.size_number(extent)

    def size_number(self, extent: Extent) -> Value:
        """Return the number of a program extent in the kernel."""
        result: Value = self.head.extent(size=self.size(extent))
        return result

    def position(self, index: Value, axis: int) -> Value:
        """Return the index along an axis at which the update writes."""
        position: Value = self.head.load(index)
        if axis in self.update.params.get("in_range", ()):
            return position
        return wrapped(self.head, position, self.size_number(self.update.operands[0].type.shape[axis]))

    def draft(self) -> Draft:
        """Return the kernel and how to launch it."""
        body = self.block(self.kernel.body)
        if self.own is not None:
            body = substitute_values(body, {self.own: self.out})
        others = [v for v in body.parameters if v not in (self.old, self.own)]
        parameters = (*others, *self.indices, self.out)
        whole = Block(parameters, (*self.head.instructions, *body.instructions), body.results)
        return Draft(kernel=Function(self.kernel.name, whole, self.kernel.kind), sizes=tuple(self.names))

    def block(self, block: Block) -> Block:
        """Return a block with its stores moved."""
        instructions: list[Instruction] = []
        for i in block.instructions:
            if self.old in i.operands:
                b = Builder(i.loc, instructions)
                value, _, *index = i.operands
                moved = self.moved(b, index)
                if self.update.op.accumulate:  # type: ignore[attr-defined]
                    value = b.add(b.load(self.out, *moved), value)
                instructions.append(replace(i, operands=(value, self.out, *moved)))
            else:
                instructions.append(replace(i, regions=tuple(map(self.block, i.regions))) if i.regions else i)
        return replace(block, instructions=tuple(instructions))

    def moved(self, b: Builder, index: list[Value]) -> list[Value]:
        """Return the index of the array of an index of the value."""
        rest, result = list(index), []
        for axis in self.axes:
            if isinstance(axis, Value):
                result.append(axis)
                continue
            step, start = axis
            position = rest.pop(0)
            scaled = position if step is None else b.mul(position, step)
            result.append(scaled if start is None else b.add(scaled, start))
        return result

    def reads_before_it_writes(self, block: Block) -> bool:
        """Return whether a kernel reads the array only at the elements that it writes, each before it writes it."""
        definitions = {v: i for i in (*self.head.instructions, *walk(block)) for v in i.results}
        return self._reads_before_it_writes(block, definitions)

    def _reads_before_it_writes(self, block: Block, definitions: dict[Value, Instruction]) -> bool:
        written: list[tuple[Any, ...]] = []
        read: list[tuple[Any, ...]] = []
        for i in block.instructions:
            if self.own in i.operands:
                if type(i.op) is not Load or i.op.masked or written:
                    return False
                read.append(tuple(_expression(v, definitions) for v in i.operands[1:]))
            elif self.old in i.operands:
                b = Builder()
                index = self.moved(b, list(i.operands[2:]))
                known = {**definitions, **{v: k for k in b.instructions for v in k.results}}
                written.append(tuple(_expression(v, known) for v in index))
            elif not all(self._reads_before_it_writes(region, definitions) for region in i.regions):
                return False
        return not read or (len(written) == 1 and all(index == written[0] for index in read))


def _expression(value: Value, definitions: dict[Value, Instruction]) -> Any:
    """Return what equal indices have in common: their definition, down to parameters and the indices of loops."""
    i = definitions.get(value)
    if i is None or i.op.name not in ("add", "mul", "extent", "const"):
        return value
    operands = [_expression(v, definitions) for v in i.operands]
    return i.op.name, tuple(sorted(i.params.items(), key=str)), frozenset(operands), len(operands)
