"""Read final elements from the array after a loop or branch, where a reverse would read them from the array before.

``loops/final_elements.py`` marks reads and writes whose elements are not overwritten later. For the reverse of a loop

    scan: e = gather a, i {final=1}                     reverse scan: e = gather A, i
          scatter_set a, j, v {final=1}                               v = gather A, j

where A is the array after the loop: neither ``a`` nor ``e`` nor ``v`` is a residual.

A loop inside, whose length values decide, is executed again by the reverse. There its final elements are read from A too, and its
initial elements from the array before it, of which a part is saved:

    scan: scan ... a: e = gather a, j, i {initial=1}        reverse scan: p = gather a, i {axes=[1]}
                                                                          scan ...: e = gather p, j
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather, Place, RollBy, Scatter, gather_written, proof
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.passes.editing.loop_view import parts_of
from pullback.ir.passes.editing.updates import update_steps
from pullback.ir.passes.loops.final_elements import is_read, with_marks


@dataclass(eq=False)
class FinalReads:
    """The reads of a reverse from arrays after its loop or branch. ``versions``: by the values of an array in the body, the array
    after it; ``is_loop``: whether the body is that of a loop; ``parameters``: those of the reverse that stand for an array, for
    the reads that are final for a number of loops; ``views``: slices of them; ``parts``: by the loops in the body, the
    instructions that read parts of arrays before them."""

    versions: Mapping[Value, Value]
    is_loop: bool
    parameters: dict[tuple[Value, int], Value] = field(default_factory=dict)
    views: list[Value] = field(default_factory=list)
    parts: dict[Instruction, list[Instruction]] = field(default_factory=dict)

    def parameter(self, version: Value, levels: int) -> Value:
        """Return the parameter for reads from a version of an array."""
        outside = self.versions[version]
        return self.parameters.setdefault((outside, levels), Value(outside.type, outside.name))

    def pairs(self) -> list[tuple[Value, Value]]:
        """Return the parameters, each with the array that it stands for."""
        return [(p, outside) for (outside, _), p in self.parameters.items()]

    def free(self) -> set[Value]:
        """Return the values that the reverse has without saving them."""
        return {*self.parameters.values(), *self.views}

    def left(self, i: Instruction) -> Instruction:
        """Return a read that is marked for the loops that are left."""
        return with_marks(i, i.params["final"] - self.is_loop)

    def forward(self, block: Block) -> Block:
        """Return the forward part with the parts of arrays that the reverse may read instead of an array."""
        if not self.parts:
            return block
        return replace(block, instructions=tuple(new for i in block.instructions for new in (*self.parts.get(i, ()), i)))

    # the forward part, as the reverse executes it again

    def rerun(self, block: Block) -> Block:
        """Return the forward part with its final reads, and the values that it writes to final elements, read afterwards."""
        definitions = {v: i for i in block.instructions for v in i.results}
        stored: dict[Value, Instruction] = {}
        for i in block.instructions:
            if isinstance(i.op, Scatter | Place) and "final" in i.params and i.result in self.versions:
                value = i.operands[-1]
                if value in definitions and len(definitions[value].results) == 1:
                    stored.setdefault(value, i)
        instructions: list[Instruction] = []
        for i in block.instructions:
            if is_read(i) and "final" in i.params:
                instructions += self._read(i, definitions) or [i]
            elif isinstance(i.op, Loop) and any(isinstance(v.type, StackType) for v in i.results):
                instructions += self._loop_again(i)
            elif len(i.results) == 1 and i.result in stored and not isinstance(i.op, Constant):
                instructions += self._read_back(i.result, stored[i.result])
            else:
                instructions.append(i)
        return replace(block, instructions=_in_order(instructions) if stored else tuple(instructions))

    def _read(self, i: Instruction, definitions: Mapping[Value, Instruction]) -> list[Instruction]:
        """Return the instructions that read the same elements afterwards; none if that is not known."""
        slices: list[Instruction] = []
        x = i.operands[0]
        while x not in self.versions and x in definitions and definitions[x].op is OPS["slice"]:
            slices.insert(0, definitions[x])
            x = slices[0].operands[0]
        if x not in self.versions:
            return []
        array = self.parameter(x, i.params["final"])
        copies: list[Instruction] = []
        for s in slices:
            copies.append(replace(with_marks(s, 0), operands=(array,), results=(Value(s.result.type, s.result.name),)))
            array = copies[-1].result
            self.views.append(array)
        return [*copies, self.left(replace(i, operands=(array, *i.operands[1:])))]

    def _read_back(self, value: Value, write: Instruction) -> list[Instruction]:
        """Return the instructions that read a value from the elements that it is written to."""
        b = Builder(write.loc)
        array = self.parameter(write.result, write.params["final"])
        if isinstance(write.op, Place):
            b.slice(array, start=write.params["start"], step=write.params["step"], shape=value.type.shape)
        else:
            gather_written(b, array, write.operands[1:-1], value, write.params)
        self.views += [v for i in b.instructions[:-1] for v in i.results]
        last = replace(b.instructions[-1], results=(value,))
        final = {**last.params, "final": write.params["final"]}
        return [*b.instructions[:-1], self.left(replace(last, params=final))]

    def _loop_again(self, i: Instruction) -> list[Instruction]:
        """Return the instructions of a loop that is executed again, with its final and initial elements read from arrays that it
        does not carry."""
        loop, b = parts_of(i), Builder(i.loc)
        inits, _, captures = loop.operands(i.operands)
        outside = dict(zip(loop.parameters(loop.body.parameters)[2], captures, strict=True))
        added: list[tuple[Value, Value]] = []
        new: dict[Instruction, Instruction] = {}
        for k, init in enumerate(inits):
            start = loop.body.parameters[1 + k]
            versions = versions_of(loop.body, [(start, loop.body.results[k], start)])
            for read in loop.body.instructions:
                if not isinstance(read.op, Gather) or isinstance(read.op, RollBy) or read.operands[0] not in versions:
                    continue
                final = read.params.get("final", 0)
                if final > 1 and init in self.versions:
                    array, own = self.parameter(init, final), Value(init.type, init.name)
                    new[read] = with_marks(replace(read, operands=(own, *read.operands[1:])), final - 1 - self.is_loop)
                    added.append((own, array))
                elif "initial" in read.params and (part := _part_before(b, read, init, outside)) is not None:
                    own, new[read] = part[1], part[2]
                    added.append((own, part[0]))
        if not added:
            return [i]
        self.parts[i] = list(b.instructions)
        regions = []
        for region in i.regions:
            parameters = [v if region is loop.body else Value(v.type, v.name) for v, _ in added]
            instructions = tuple(new.get(j, j) for j in region.instructions)
            regions.append(replace(region, parameters=(*region.parameters, *parameters), instructions=instructions))
        return [*b.instructions, replace(i, operands=(*i.operands, *(v for _, v in added)), regions=tuple(regions))]

    # the backward part

    def backward(self, instructions: Iterable[Instruction]) -> list[Instruction]:
        """Return the backward part with captures that are read at final elements replaced by the arrays after the body."""
        return [self._captures(i) if isinstance(i.op, Loop | Switch) else i for i in instructions]

    def _captures(self, i: Instruction) -> Instruction:
        operands, regions = list(i.operands), list(i.regions)
        for position, parameters in _captured(i):
            version = operands[position]
            if version not in self.versions:
                continue
            reads = [_reads(region, p) for region, p in zip(regions, parameters, strict=True)]
            levels = {r.params["final"] for rs in reads for r in rs or ()}
            if any(rs is None for rs in reads) or len(levels) != 1:
                continue
            operands[position] = self.parameter(version, levels.pop())
            marked = {r for rs in reads for r in rs or ()}
            regions = [_with(region, lambda r: self.left(r) if r in marked else r) for region in regions]  # noqa: B023
        return replace(i, operands=tuple(operands), regions=tuple(regions))


def versions_of(block: Block, arrays: Iterable[tuple[Value | None, Value, Value]]) -> dict[Value, Value]:
    """Return the values that arrays have in a body, by each the array after it. ``arrays``: the values before and after the
    updates of the body, None for none, and the array after it."""
    versions: dict[Value, Value] = {}
    for start, end, outside in arrays:
        steps = update_steps(block, end, through_loops=True)
        values = [s.base for s in steps] + [end]
        if values[0] is start:
            versions.update(dict.fromkeys(values, outside))
    return versions


def _part_before(
    b: Builder, read: Instruction, array: Value, outside: Mapping[Value, Value]
) -> tuple[Value, Value, Instruction] | None:
    """Emit the part of an array at the indices of a read that a loop does not change. Returns the part, a parameter for it, and
    the read from the parameter; None if all indices change, or none. ``outside``: the values of captures."""
    axes, indices = read.params["axes"], read.operands[1:]
    if any(v.type.shape for v in indices):
        return None
    fixed = [(a, outside[v]) for a, v in zip(axes, indices, strict=True) if v in outside]
    others = [(a, v) for a, v in zip(axes, indices, strict=True) if v not in outside]
    if not fixed or not others:
        return None
    part = b.gather(array, *(v for _, v in fixed), axes=tuple(a for a, _ in fixed))
    own = Value(part.type, array.name)
    position = {a: a - sum(f < a for f, _ in fixed) for a in range(array.type.rank)}
    proved = [position[a] for a, _ in others if a in read.params.get("in_range", ())]
    params = {"axes": tuple(position[a] for a, _ in others), **proof(proved)}
    return part, own, replace(read, operands=(own, *(v for _, v in others)), params=params)


def _captured(i: Instruction) -> Iterable[tuple[int, list[Value]]]:
    """Return the positions of the operands that the regions of a loop or branch read and do not change, with the parameters."""
    if isinstance(i.op, Switch):
        return [(1 + k, [region.parameters[k] for region in i.regions]) for k in range(len(i.operands) - 1)]
    first = i.op.first(i.params)  # type: ignore[attr-defined]
    held = i.params["carried"] + i.params.get("sliced", 0)
    return [(k, [r.parameters[1 + k - first] for r in i.regions]) for k in range(first + held, len(i.operands))]


def _reads(block: Block, array: Value) -> list[Instruction] | None:
    """Return the reads of an array in a region, all of final elements; None if there are other uses."""
    if array in block.results:
        return None
    reads: list[Instruction] = []
    for i in block.instructions:
        if array not in i.operands:
            continue
        if is_read(i) and i.operands.count(array) == 1:
            if "final" in i.params:
                reads.append(i)
                continue
            inner = _reads(block, i.result) if i.op is OPS["slice"] else None
        elif isinstance(i.op, Loop | Switch):
            captured = dict(_captured(i))
            inner = []
            for k, operand in enumerate(i.operands):
                if operand is not array:
                    continue
                if k not in captured:
                    return None
                for region, p in zip(i.regions, captured[k], strict=True):
                    own = _reads(region, p)
                    if own is None:
                        return None
                    inner += own
        else:
            inner = None
        if inner is None:
            return None
        reads += inner
    return reads


def _with(block: Block, new: Callable[[Instruction], Instruction]) -> Block:
    """Return a block with instructions replaced, in its regions too."""
    instructions = []
    for i in block.instructions:
        i = replace(i, regions=tuple(_with(region, new) for region in i.regions)) if i.regions else new(i)
        instructions.append(i)
    return replace(block, instructions=tuple(instructions))


def _in_order(instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """Return instructions in an order in which each value is defined before it is used."""
    definitions = {v: i for i in instructions for v in i.results}
    ordered: dict[Instruction, None] = {}
    for start in instructions:
        stack = [start]
        while stack:
            i = stack[-1]
            missing = [definitions[v] for v in i.operands if v in definitions and definitions[v] not in ordered]
            if i in ordered or not missing:
                ordered[stack.pop()] = None
            else:
                stack += missing
    return tuple(ordered)
