"""lower: the lowering of fused array IR to a program and its kernels.

Requires: a fused function. Keeps: its meaning. The program allocates, launches, and frees; each group and each op with a
kernel of its own becomes a kernel; the schedule of a group's kernel is selected by ``kernels.groups.registry``. Control flow
becomes loops and branches of the program, see ``control_flow``. Loops say which values they combine, not how they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pullback.codegen.cuda.schedule.loops_into_kernels import loops_into_kernels
from pullback.codegen.kernels.groups.registry import group_draft
from pullback.codegen.kernels.groups.rows import read_in_step
from pullback.codegen.kernels.ops.elementwise_scan import elementwise_scan_kernel
from pullback.codegen.kernels.ops.registry import op_kernel, takes_strided
from pullback.codegen.lower.block import BlockLowering
from pullback.codegen.lower.control_flow import lower_scan, lower_switch, lower_while
from pullback.codegen.lower.copies import ArrayCopy, CopyLog
from pullback.codegen.lower.donated_results import sunk
from pullback.codegen.lower.written_parts import into_part, is_part_update
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, Module
from pullback.ir.core.types import I64, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Reinterpret
from pullback.ir.ops.array.create import DefineExtent
from pullback.ir.ops.array.index import Place, Scatter
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.host import Clock, Host
from pullback.ir.ops.control.loops import ElementwiseScan, Scan, StackLength, Switch, While
from pullback.ir.ops.control.regions import Group
from pullback.ir.ops.program import launch


def lower(
    function: Function, layouts: Sequence[str] = (), target: str = "cpu", over: Sequence[tuple[int, int]] = (),
    copies: list[ArrayCopy] | None = None,
) -> Module:  # fmt: skip
    """Return the program of a fused function and its kernels. ``layouts``: "c" or "strided" for each parameter, or "held" for
    a scalar in memory; ``target``: "cpu" or "cuda", which restricts the schedules. ``over``: pairs of a result and a
    parameter of its type, each in at most one pair, whose memory the result may take. It does so where nothing reads the
    parameter any more and nothing can fail from then on. ``copies``: a list to which the copies of arrays are appended."""
    function = sunk(function, over)
    memory = {}
    for value, layout in zip(function.parameters, layouts or ["c"] * len(function.parameters), strict=True):
        t = value.type
        in_memory = t.shape or t.dtype.is_complex or layout == "held"
        layout = "c" if layout == "held" else layout
        memory[value] = Value(RefType(t.dtype, t.shape, layout), value.name) if in_memory else Value(t, value.name)
    kernels: dict[str, Function] = {}
    work = Lowering(function.body, memory, frozenset(function.parameters), kernels, {}, target, CopyLog(copies))
    work.run(over)
    results = [work.result(v) for v in function.results]
    program = work.b.function(function.name, [memory[v] for v in function.parameters], results, "program")
    module = Module((program, *kernels.values()))
    return loops_into_kernels(module) if target == "cuda" else module


class Lowering(BlockLowering):
    """The lowering of one block, instruction by instruction."""

    def step(self, instruction: Instruction) -> None:
        op = instruction.op
        b = self.b.at(instruction.loc)
        match op:
            case Reindex():
                (result,) = instruction.results
                (operand,) = instruction.operands
                is_parts = isinstance(op, Reinterpret) and not op.to_complex
                source = self.memory[operand] if is_parts else self.dense(b, operand)
                self.memory[result] = self.view_as(b.at(b.loc, result.name), source, result.type)
            case Group() if self.is_written_in_place(b, instruction):
                pass
            case Group():
                layouts = tuple(self.layout(v) for v in instruction.operands)
                over = self.overwritten(instruction)
                places = {instruction.results.index(r): instruction.operands.index(v) for r, v in over.items()}
                draft = group_draft(instruction, layouts, places, self.target)
                self.launch(b, instruction, draft, instruction.operands, over=over)
            case Switch():
                lower_switch(self, b, instruction)
            case ElementwiseScan():
                over = self.continued(instruction)
                places = {instruction.results.index(r): instruction.operands.index(v) for r, v in over.items()}
                draft = elementwise_scan_kernel(instruction, tuple(self.layout(v) for v in instruction.operands), places)
                self.launch(b, instruction, draft, instruction.operands, over=over)
            case Scan():
                lower_scan(self, b, instruction)
            case While():
                lower_while(self, b, instruction)
            case StackLength():
                self.memory[instruction.result] = b.at(b.loc, instruction.result.name).alloc(dtype=I64, shape=())
                b.store_stack_length(self.memory[instruction.operands[0]], self.memory[instruction.result])
            case DefineExtent():
                (count,) = instruction.operands
                self.memory[instruction.result] = self.memory[count]
                self.share_buffer(instruction.result, count)
                b.bind_extent(self.memory[count], extent=instruction.params["extent"])
            case Clock():
                read, *passed = instruction.results
                self.memory[read] = self.buffer(b, read)
                self.memory.update((v, self.memory[own]) for v, own in zip(passed, instruction.operands, strict=True))
                b.append(Instruction(op, (self.memory[read],), (), instruction.params, (), instruction.loc))
            case Host():
                operands = [self.dense(b, v) for v in instruction.operands]
                for value in instruction.results:
                    self.memory[value] = self.buffer(b, value)
                buffers = (*operands, *(self.memory[v] for v in instruction.results))
                b.append(Instruction(op, buffers, (), instruction.params, (), instruction.loc))
            case Place() | Scatter() if instruction in self.written:
                self.memory[instruction.result] = self.memory[instruction.operands[0]]
                self.share_buffer(instruction.result, instruction.operands[0])
            case _:
                in_strided_layout = takes_strided(instruction, self.target)
                operands = [self.memory[v] if in_strided_layout else self.dense(b, v) for v in instruction.operands]
                layouts = tuple(self.layout(v) for v in instruction.operands) if in_strided_layout else ()
                draft = op_kernel(instruction, self.target, layouts)
                base, *others = instruction.operands
                is_unshared = self.holder(base) not in map(self.holder, others)
                ends = self.is_last_use(base, others) or (is_unshared and self.may_overwrite(instruction.results[0], base))
                in_place = draft.updates_first and ends
                self.launch(b, instruction, draft, instruction.operands, operands, {instruction.result: base} if in_place else {})
                if draft.updates_first and not in_place:
                    self.log_copy(b, base)

    def continued(self, instruction: Instruction) -> dict[Value, Value]:
        """Return the results of an elementwise scan that are written over their initial values: each element is read before it is
        written."""
        held = Counter(self.holder(v) for v in instruction.operands)
        first = instruction.op.first(instruction.params)  # type: ignore[attr-defined]
        operand_of: dict[Value, Value] = {}
        states = instruction.operands[first : first + instruction.params["carried"]]
        for result, operand in zip(instruction.results, states, strict=False):
            is_alone = held[self.holder(operand)] == 1 and operand.type == result.type and bool(operand.type.shape)
            is_free = self.is_last_use(operand, ()) and not self.is_home_free(result)
            if is_alone and (is_free or self.may_overwrite(result, operand)):
                operand_of[result] = operand
        return operand_of

    def update_of(self, instruction: Instruction) -> Instruction | None:
        """Return the update in place of which a group computes the value, in memory that nothing else reads or writes until then;
        the other results are scalars."""
        if self.target != "cpu" or sum(bool(v.type.shape) for v in instruction.results) > 1:
            return None
        for value in instruction.results:
            following = self.block.instructions[self.position + 1 : self.last_use[value] + 1]
            is_last = following and value not in self.block.results and self.holder(value) is value
            if is_last and self.is_only_reader(following[-1], value, (instruction, *following[:-1])):
                return following[-1]
        return None

    def is_only_reader(self, update: Instruction, value: Value, before: Sequence[Instruction]) -> bool:
        """Return whether an instruction is an update by a value, the only one that reads it, of memory that is not used between
        the first of the instructions ``before``, which computes the value, and the update. The first one may read the base."""
        if not is_part_update(update) or update.operands.count(value) != 1 or update.operands[-1] is not value:
            return False
        base, own = update.operands[0], self.holder(update.operands[0])
        first, *between = before
        used = [v for i in between for v in (*i.operands, *i.results)]
        others = [*used, *update.operands[1:], *first.results, *(v for v in first.operands if v is not base)]
        is_last = own not in self.fixed and self.last_use.get(own) == self.last_use[value]
        is_known = all(v in self.memory for v in update.operands[:-1]) and first.operands.count(base) < 2
        return is_last and is_known and value not in used and own not in map(self.holder, others)

    def is_written_in_place(self, b: Builder, instruction: Instruction) -> bool:
        """Launch the kernel of a group that updates the part of an array; return whether there is one."""
        update = self.update_of(instruction)
        if update is None or self.layout(update.operands[0]) != "c":
            return False
        base, *indices, value = update.operands
        draft = group_draft(instruction, tuple(self.layout(v) for v in instruction.operands), {}, self.target)
        moved = into_part(draft, instruction, update)
        if moved is None:
            return False
        others = [v for v in instruction.results if v is not value]
        self.memory.update((v, self.result_buffer(b, v)) for v in others)
        values = [*(v for v in instruction.operands if v is not base), *others]
        references = [*(self.memory[v] for v in values), *(self.dense(b, v) for v in indices), self.memory[base]]
        params = {"kernel": self.kernel_name(moved.kernel), "sizes": moved.sizes}
        b.append(Instruction(launch, tuple(references), (), params, (), instruction.loc))
        self.written.add(update)
        del self.last_use[value]
        return True

    def overwritten(self, instruction: Instruction) -> dict[Value, Value]:
        """Return the results of a group that are written over operands: element by element, each read before it is written."""
        (region,) = instruction.regions
        held = Counter(self.holder(v) for v in instruction.operands)
        free: dict[Type, list[Value]] = {}
        candidates: dict[Value, Value] = {}
        in_step = read_in_step(region, instruction.params["space"])
        for operand, parameter in zip(instruction.operands, region.parameters, strict=True):
            if held[self.holder(operand)] != 1 or not operand.type.shape or parameter not in in_step:
                continue
            if self.is_last_use(operand, ()):
                free.setdefault(operand.type, []).append(operand)
            candidates[self.holder(operand)] = operand
        operand_of: dict[Value, Value] = {}
        for result, inner in zip(instruction.results, region.results, strict=True):
            if inner in region.parameters:
                continue
            operand = candidates.get(self.homes.get(result, result), result)
            if operand.type == result.type and self.may_overwrite(result, operand):
                operand_of[result] = operand
            elif free.get(result.type) and not self.is_home_free(result):
                operand_of[result] = free[result.type].pop(0)
        return operand_of
