"""Dependencies between the steps of a program: what each reads and writes, and the orders in which they may run.

Steps are the top-level instructions of a program that have an effect: launches, calls of Python, copies, and loops and
branches with everything in them. Two steps depend on each other if one writes a buffer that the other reads or writes. Steps
that can fail, and steps with effects outside, keep their order among themselves, so that the first failure of the program is
the one raised. Steps that overwrite a parameter keep their order with these, so that parameters are unchanged where a program
fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction, Module, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.kernel.kernel import AtomicAdd, Fail, Load, Prefetch, Store, StridedOrCopy
from pullback.ir.ops.library.routines import Library
from pullback.ir.ops.program import (
    Alloc,
    BindExtent,
    Branch,
    Copy,
    Free,
    Launch,
    Repeat,
    RepeatWhile,
    Row,
    Stack,
    StoreStackLength,
    View,
)


@dataclass(frozen=True, eq=False)
class Access:
    """The reads and writes of a step: parameters, and buffers and stacks as they were allocated. ``in_order``: whether it can
    fail or has effects outside. ``parameters``: the program's parameters among them."""

    instruction: Instruction
    reads: frozenset[Value]
    writes: frozenset[Value]
    in_order: bool
    parameters: frozenset[Value]


def kernel_accesses(kernel: Function) -> tuple[frozenset[int], frozenset[int]]:
    """Return the positions of the parameters that a kernel reads, and the positions of the ones that it writes."""
    roots = {p: frozenset([p]) for p in kernel.parameters}
    reads: set[Value] = {p for p in kernel.parameters if not isinstance(p.type, RefType)}
    writes: set[Value] = set()
    for i in walk(kernel.body):
        refs = [v for v in i.operands if v in roots and isinstance(v.type, RefType)]
        if not refs:
            continue
        if i.results and isinstance(i.results[0].type, RefType):
            roots[i.results[0]] = frozenset().union(*(roots[v] for v in refs))
            if isinstance(i.op, StridedOrCopy):
                writes |= roots[refs[1]]
            continue
        match i.op:
            case Load():
                reads |= roots[refs[0]]
            case AtomicAdd():
                reads |= roots[refs[0]]
                writes |= roots[refs[0]]
            case Store():
                writes |= roots[refs[0]]
            case Library():
                reads.update(*(roots.get(i.operands[k], ()) for k in i.op.reads))
                writes.update(*(roots.get(i.operands[k], ()) for k in i.op.writes))
            case Prefetch():
                pass
            case _:
                touched = [roots[v] for v in refs]
                reads.update(*touched)
                writes.update(*touched)
    positions = {p: k for k, p in enumerate(kernel.parameters)}
    return frozenset(positions[v] for v in reads if v in positions), frozenset(positions[v] for v in writes if v in positions)


def can_fail(kernel: Function) -> bool:
    """Return whether a kernel can report a failure in its status."""
    return any(isinstance(i.op, Fail) for i in walk(kernel.body))


def accesses(module: Module) -> list[Access]:
    """Return the steps of a program, which is the first function of the module, in order."""
    program, *kernels = module.functions
    by_name = {kernel.name: (*kernel_accesses(kernel), can_fail(kernel)) for kernel in kernels}
    owner = owners(program)
    steps = [i for i in program.instructions if i.op.effect != "pure" and not isinstance(i.op, Stack | Free)]
    return [_access(program, i, owner, by_name) for i in steps]


def written(
    program: Function,
    step: Instruction,
    owner: Mapping[Value, Value],
    kernels: Mapping[str, tuple[frozenset[int], frozenset[int], bool]],
) -> frozenset[Value]:
    """Return what a step of a program writes, including everything in its regions. ``kernels``: the reads and writes of each
    kernel, and whether it can fail."""
    return _access(program, step, owner, kernels).writes


def owners(program: Function) -> dict[Value, Value]:
    """Return, for each reference of a program, the parameter, buffer or stack that it shows; for a reference that a loop
    carries, the one of the first iteration."""
    shown = {p: p for p in program.parameters}
    for i in walk(program.body):
        if isinstance(i.op, Alloc | Stack):
            shown[i.result] = i.result
        elif isinstance(i.op, Repeat | RepeatWhile):
            carried = i.operands[len(i.operands) - len(i.results) :]
            for region in i.regions:
                parameters = region.parameters[len(region.parameters) - len(carried) :]
                shown.update((p, shown[v]) for p, v in zip(parameters, carried, strict=True))
            shown.update((r, shown[v]) for r, v in zip(i.results, carried, strict=True))
        elif i.results:
            shown[i.result] = shown[i.operands[0]] if i.operands else i.result
    return shown


def _access(
    program: Function,
    instruction: Instruction,
    owner: Mapping[Value, Value],
    kernels: Mapping[str, tuple[frozenset[int], frozenset[int], bool]],
) -> Access:
    reads: set[Value] = set()
    writes: set[Value] = set()
    in_order = False
    for i in _within(instruction):
        buffers = [owner[v] for v in i.operands]
        match i.op:
            case Launch():
                read, written, fails = kernels[i.params["kernel"]]
                reads.update(buffers[k] for k in read)
                writes.update(buffers[k] for k in written)
                in_order |= fails or bool(i.params.get("failures"))
            case Host():
                outputs = i.op.outputs(i.params)
                reads.update(buffers[: len(buffers) - outputs])
                writes.update(buffers[len(buffers) - outputs :])
                in_order = True
            case Copy() | StoreStackLength():
                reads.add(buffers[0])
                writes.add(buffers[1])
            case View() | Free() | Alloc():
                pass
            case Row() | Branch():
                reads.add(buffers[-1])
            case BindExtent():
                reads.add(buffers[0])
                in_order = True
            case _:
                # Loops write their counters, rotate their carried references, and can be interrupted; stacks grow.
                reads.update(buffers)
                writes.update(buffers)
                in_order = True
    parameters = frozenset(v for v in (*reads, *writes) if v in program.parameters)
    return Access(instruction, frozenset(reads), frozenset(writes), in_order, parameters)


def _within(instruction: Instruction) -> Iterator[Instruction]:
    yield instruction
    for region in instruction.regions:
        yield from walk(region)


def dependencies(steps: Sequence[Access]) -> list[frozenset[int]]:
    """Return, for each step, the earlier steps that must have run before it, except the ones that are implied by another of
    them."""
    direct_dependencies: list[frozenset[int]] = []
    needed: list[int] = []
    writer: dict[Value, int] = {}
    readers: dict[Value, list[int]] = {}
    last_in_order: int | None = None
    over_parameters: list[int] = []
    for index, step in enumerate(steps):
        direct: set[int] = set()
        for v in (*step.reads, *step.writes):
            if v in writer:
                direct.add(writer[v])
        for v in step.writes:
            direct.update(readers.pop(v, ()))
        is_over = any(v in step.parameters for v in step.writes)
        if (step.in_order or is_over) and last_in_order is not None:
            direct.add(last_in_order)
        if step.in_order:
            direct.update(over_parameters)
            over_parameters, last_in_order = [], index
        if is_over:
            over_parameters.append(index)
        for v in step.writes:
            writer[v] = index
        for v in step.reads:
            readers.setdefault(v, []).append(index)
        direct.discard(index)
        indirect = 0
        for k in direct:
            indirect |= needed[k]
        direct_dependencies.append(frozenset(k for k in direct if not indirect >> k & 1))
        needed.append(indirect | sum(1 << k for k in direct))
    return direct_dependencies


def is_schedule(order: Sequence[int], before: Sequence[frozenset[int]]) -> bool:
    """Return whether an order of all steps runs each after the steps that it needs."""
    at = {step: k for k, step in enumerate(order)}
    return sorted(order) == list(range(len(before))) and all(at[b] < at[k] for k, needs in enumerate(before) for b in needs)


def reordered(module: Module, order: Sequence[int]) -> Module:
    """Return the program with its steps in another legal order, with buffers allocated before their first use and freed after
    their last. Raises ValueError if a step would run before one that it needs."""
    program, *kernels = module.functions
    steps = accesses(module)
    if not is_schedule(order, dependencies(steps)):
        raise ValueError("a step would run before one that it needs")
    defining = {v: i for i in program.instructions for v in i.results if not i.regions}
    owner = owners(program)
    freed = {owner[i.operands[0]]: i for i in program.instructions if isinstance(i.op, Free)}
    last: dict[Value, int] = {}
    for position, step_index in enumerate(order):
        for i in _within(steps[step_index].instruction):
            last.update((owner[v], position) for v in i.operands if v in owner)
    instructions: list[Instruction] = []
    defined: set[Value] = set()

    def define(value: Value) -> None:
        """Append the definition of a buffer, or of a view and its operands."""
        if value in defining and value not in defined:
            defined.add(value)
            for v in defining[value].operands:
                define(v)
            instructions.append(defining[value])

    for position, step_index in enumerate(order):
        for i in _within(steps[step_index].instruction):
            for v in i.operands:
                define(v)
        instructions.append(steps[step_index].instruction)
        ending = dict.fromkeys(owner[v] for i in _within(steps[step_index].instruction) for v in i.operands if v in owner)
        instructions += [freed[v] for v in ending if last[v] == position and v in freed]
    for value in program.results:
        define(value)
    return Module((replace(program, body=replace(program.body, instructions=tuple(instructions))), *kernels))
