"""Undo the writes of a loop's iterations, so that an array that is updated in place is no residual of its gradient.

The reverse of a loop may read a carried array as it was in each iteration. Where an iteration writes few of its elements, the
forward loop saves what these were before, and the reverse carries the array itself, from its final value back:

    scan: a1 = scatter_set a, i, v      saved: old = gather a, i
    reverse scan:                       a = scatter_set a1, i, old

That is what tapes of overwritten values do (Griewank and Walther, Evaluating Derivatives, 2008). The writes of all
sides of a branch are undone, whichever was taken: an element that was not written has its old value anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count
from pullback.ir.ops.array.index import Place, gather_written, part_params
from pullback.ir.ops.control.loops import Switch
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.editing.updates import Step, update_steps
from pullback.ir.shapes.extents import by_value_in, extents_by_value, nominal_bytes

LEAST_RATIO = 4
"""Least ratio of the bytes of an array to those that an iteration writes of it, for which writes are undone. Each element costs a
read and a write in either direction, where a residual costs a copy of the array in either."""
MOST_WRITES = 64
"""Largest number of writes in an iteration that are undone one by one."""
Lift = Callable[[Value], Value | None]


@dataclass(frozen=True, eq=False)
class Write:
    """A write in an iteration. ``instruction``: the scatter or the update of a regular part; ``old``: what the elements at
    ``indices`` were before it."""

    instruction: Instruction
    indices: tuple[Value, ...]
    old: Value

    def undone(self, b: Builder, after: Value, indices: Sequence[Value]) -> Value:
        """Emit the array before the write."""
        params = part_params(self.instruction.params)
        result: Value
        if isinstance(self.instruction.op, Place):
            result = b.slice_set(after, self.old, **params)
        elif "start" in params:
            result = b.scatter_set_part(after, *indices, self.old, **params)
        else:
            result = b.scatter_set(after, *indices, self.old, **params)
        return result


@dataclass(frozen=True, eq=False)
class Undone:
    """An array that the reverse carries. ``array``: the parameter of the body; ``after``: its value after the iteration;
    ``writes`` in order; ``saved``: the values of the body that undoing them reads."""

    array: Value
    after: Value
    writes: tuple[Write, ...]
    saved: tuple[Value, ...]
    copied: tuple[Instruction, ...]

    def instructions(self) -> list[Instruction]:
        """Return the instructions that define the array from its value after the iteration."""
        b = Builder()
        env: dict[Value, Value] = {}
        for i in self.copied:
            env.update(zip(i.results, replay(b, i, [env.get(v, v) for v in i.operands]), strict=True))
        array = self.after
        for write in reversed(self.writes):
            array = write.undone(b, array, [env.get(v, v) for v in write.indices])
        return [*b.instructions[:-1], replace(b.instructions[-1], results=(self.array,))]


def undo_writes(block: Block, arrays: Sequence[tuple[Value, Value]], free: Collection[Value]) -> tuple[Block, list[Undone]]:
    """Return the body of a loop with the values that undoing its writes reads, and the arrays whose writes are undone.

    ``arrays``: the carried arrays that the reverse would save, each with its value after an iteration; ``free``: the parameters
    that the reverse has.
    """
    finder = _Finder(block)
    written = [(array, writes) for array, end in arrays if (writes := finder.writes(array, end))]
    if not written:
        return block, []
    instructions = [new for k, i in enumerate(block.instructions) for new in (*finder.added.get(k, ()), i)]
    block = replace(block, instructions=tuple(instructions))
    definitions = {v: i for i in instructions for v in i.results}
    undone = []
    for array, writes in written:
        copied: dict[Instruction, None] = {}
        saved = [w.old for w in writes]
        for index in dict.fromkeys(v for w in writes for v in w.indices):
            chain = _recomputed(index, definitions, free)
            saved += [index] if chain is None else []
            copied.update(dict.fromkeys(chain or ()))
        order = tuple(i for i in instructions if i in copied)
        undone.append(Undone(array, Value(array.type, array.name), tuple(writes), tuple(saved), order))
    return block, undone


class _Finder:
    """Finds the writes into the carried arrays of a body. ``added``: the instructions to insert, by the position of the one that
    they precede."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.added: dict[int, list[Instruction]] = {}

    def writes(self, array: Value, end: Value) -> list[Write]:
        """Return the writes that lead from an array to its value after the iteration; none if they are not undone."""
        steps = update_steps(self.block, end)
        if not steps or steps[0].base is not array:
            return []
        before = dict(self.added)
        writes: list[Write] = []
        positions = {i: k for k, i in enumerate(self.block.instructions)}
        for step in steps:
            b = Builder(step.instruction.loc)
            one = _overwritten(b, step, step.base, lambda v: v)
            if one is None:
                self.added = before
                return []
            writes += one
            k = positions[step.instruction]
            self.added = {**self.added, k: [*self.added.get(k, ()), *b.instructions]}
        total = sum(nominal_bytes(w.old.type) for w in writes)
        if len(writes) > MOST_WRITES or LEAST_RATIO * total > nominal_bytes(array.type):
            self.added = before
            return []
        return writes


def _overwritten(b: Builder, step: Step, array: Value, lift: Lift) -> list[Write] | None:
    """Emit what a step may overwrite of ``array``; None if its indices or its extents are not known there. ``lift`` returns the
    value where it is emitted of one where the step is."""
    i = step.instruction
    if isinstance(i.op, Switch):
        return _overwritten_by_sides(b, step, array, lift)
    values = i.operands[-1]
    if extents_by_value(i) or by_value_in(values.type.shape):
        return None
    if isinstance(i.op, Place):
        return [Write(i, (), b.slice(array, start=i.params["start"], step=i.params["step"], shape=values.type.shape))]
    indices = [lift(v) for v in i.operands[1:-1]]
    known = [v for v in indices if v is not None]
    if len(known) < len(indices):
        return None
    return [Write(i, tuple(known), gather_written(b, array, known, values, i.params))]


def _overwritten_by_sides(b: Builder, step: Step, array: Value, lift: Lift) -> list[Write] | None:
    """Emit what the sides of a branch may overwrite of an array."""
    i, position = step.instruction, step.instruction.results.index(step.result)
    writes: list[Write] = []
    for region in i.regions:
        inside = _lifted(b, region, i.operands[1:], lift)
        for inner in update_steps(region, region.results[position]):
            one = _overwritten(b, inner, array, inside)
            if one is None:
                return None
            writes += one
    return writes


def _lifted(b: Builder, region: Block, operands: Sequence[Value], outer: Lift) -> Lift:
    """Return a function that emits a scalar of a region outside it, if that takes operations on scalars alone."""
    env = {p: outer(v) for p, v in zip(region.parameters, operands, strict=True)}
    definitions = {v: k for k in region.instructions for v in k.results}

    def lift(value: Value) -> Value | None:
        if value in env:
            return env[value]
        i = definitions[value]
        if not _is_scalar(i):
            return None
        inside = [lift(v) for v in i.operands]
        known = [v for v in inside if v is not None]
        if len(known) < len(inside):
            return None
        env.update(zip(i.results, replay(b, i, known), strict=True))
        return env[value]

    return lift


def _is_scalar(i: Instruction) -> bool:
    """Return whether an instruction is an operation on scalars that can be executed again, or anywhere."""
    if not isinstance(i.op, Elementwise | Constant | Count) or i.op.effect != "pure":
        return False
    return all(isinstance(v.type, ArrayType) and not v.type.shape for v in (*i.operands, *i.results))


def _recomputed(value: Value, definitions: dict[Value, Instruction], free: Collection[Value]) -> list[Instruction] | None:
    """Return the operations on scalars that compute a value from ``free`` ones; None if there are others."""
    chain: list[Instruction] = []
    stack = [value]
    while stack:
        v = stack.pop()
        if v in free:
            continue
        i = definitions.get(v)
        if i is None or not _is_scalar(i):
            return None
        chain.append(i)
        stack += i.operands
    return chain
