"""Which steps of a program need which: what each reads and writes, and the orders in which they may run.

Steps are the top-level instructions of a program that do something: launches, calls of Python, copies, and loops and branches
with all that is in them. Two depend on each other if one writes a buffer that the other reads or writes. Steps that can fail,
and those with effects outside, keep their order among themselves, so that the first failure of the program is the one raised; and
what writes over a parameter keeps its order with them, so that parameters are as they were where a program fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.ir.core.structure import Function, Instruction, Module, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.kernel.kernel import AtomicAdd, Fail, Load, Prefetch, Store, StridedOrCopy
from pullback.ir.ops.library.routines import Library
from pullback.ir.ops.program import Alloc, Branch, Copy, Free, Launch, Repeat, RepeatWhile, Row, Stack, StoreStackLength, View


@dataclass(frozen=True, eq=False)
class Access:
    """What a step reads and writes: buffers and stacks as they were made, and parameters. ``in_order``: whether it can fail or
    has effects outside. ``parameters``: those of the program among them."""

    instruction: Instruction
    reads: frozenset[Value]
    writes: frozenset[Value]
    in_order: bool
    parameters: frozenset[Value]


def kernel_accesses(kernel: Function) -> tuple[frozenset[int], frozenset[int]]:
    """The positions of the parameters that a kernel reads, and of those that it writes."""
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
    """Whether a kernel's status may say that it failed."""
    return any(isinstance(i.op, Fail) for i in walk(kernel.body))


def accesses(module: Module) -> list[Access]:
    """The steps of a program, which comes first in the module, in order."""
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
    """What a step of a program writes, with all that is in it. ``kernels``: what each reads, and writes, and whether it fails."""
    return _access(program, step, owner, kernels).writes


def owners(program: Function) -> dict[Value, Value]:
    """For each reference of a program the parameter, buffer or stack that it shows; in loops, one that it shows at first."""
    found = {p: p for p in program.parameters}
    for i in walk(program.body):
        if isinstance(i.op, Alloc | Stack):
            found[i.result] = i.result
        elif isinstance(i.op, Repeat | RepeatWhile):
            carried = i.operands[len(i.operands) - len(i.results) :]
            for region in i.regions:
                given = region.parameters[len(region.parameters) - len(carried) :]
                found.update((p, found[v]) for p, v in zip(given, carried, strict=True))
            found.update((r, found[v]) for r, v in zip(i.results, carried, strict=True))
        elif i.results:
            found[i.result] = found[i.operands[0]] if i.operands else i.result
    return found


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
        given = [owner[v] for v in i.operands]
        match i.op:
            case Launch():
                read, written, fails = kernels[i.params["kernel"]]
                reads.update(given[k] for k in read)
                writes.update(given[k] for k in written)
                in_order |= fails or bool(i.params.get("failures"))
            case Host():
                outputs = i.op.outputs(i.params)
                reads.update(given[: len(given) - outputs])
                writes.update(given[len(given) - outputs :])
                in_order = True
            case Copy() | StoreStackLength():
                reads.add(given[0])
                writes.add(given[1])
            case View() | Free() | Alloc():
                pass
            case Row() | Branch():
                reads.add(given[-1])
            case _:
                # Loops write their counters, hand references round, and can be interrupted; stacks grow.
                reads.update(given)
                writes.update(given)
                in_order = True
    parameters = frozenset(v for v in (*reads, *writes) if v in program.parameters)
    return Access(instruction, frozenset(reads), frozenset(writes), in_order, parameters)


def _within(instruction: Instruction) -> Iterator[Instruction]:
    yield instruction
    for region in instruction.regions:
        yield from walk(region)


def dependencies(steps: Sequence[Access]) -> list[frozenset[int]]:
    """For each step, the earlier steps that must have run before it; without those that one of these needs anyway."""
    found: list[frozenset[int]] = []
    needed: list[int] = []
    writer: dict[Value, int] = {}
    readers: dict[Value, list[int]] = {}
    last_in_order: int | None = None
    over_parameters: list[int] = []
    for number, step in enumerate(steps):
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
            over_parameters, last_in_order = [], number
        if is_over:
            over_parameters.append(number)
        for v in step.writes:
            writer[v] = number
        for v in step.reads:
            readers.setdefault(v, []).append(number)
        direct.discard(number)
        indirect = 0
        for k in direct:
            indirect |= needed[k]
        found.append(frozenset(k for k in direct if not indirect >> k & 1))
        needed.append(indirect | sum(1 << k for k in direct))
    return found


def is_schedule(order: Sequence[int], before: Sequence[frozenset[int]]) -> bool:
    """Whether an order of all steps runs each after those that it needs."""
    at = {step: k for k, step in enumerate(order)}
    return sorted(order) == list(range(len(before))) and all(at[b] < at[k] for k, needs in enumerate(before) for b in needs)


def reordered(module: Module, order: Sequence[int]) -> Module:
    """The program with its steps in another legal order, buffers made before the first step that has them, and freed after the
    last. Raises ValueError if a step would run before one that it needs."""
    program, *kernels = module.functions
    steps = accesses(module)
    if not is_schedule(order, dependencies(steps)):
        raise ValueError("a step would run before one that it needs")
    made = {v: i for i in program.instructions for v in i.results if not i.regions}
    owner = owners(program)
    freed = {owner[i.operands[0]]: i for i in program.instructions if isinstance(i.op, Free)}
    last: dict[Value, int] = {}
    for place, number in enumerate(order):
        for i in _within(steps[number].instruction):
            last.update((owner[v], place) for v in i.operands if v in owner)
    instructions: list[Instruction] = []
    there: set[Value] = set()

    def define(value: Value) -> None:
        """Make a buffer, or a view and what it is of."""
        if value in made and value not in there:
            there.add(value)
            for v in made[value].operands:
                define(v)
            instructions.append(made[value])

    for place, number in enumerate(order):
        for i in _within(steps[number].instruction):
            for v in i.operands:
                define(v)
        instructions.append(steps[number].instruction)
        ending = dict.fromkeys(owner[v] for i in _within(steps[number].instruction) for v in i.operands if v in owner)
        instructions += [freed[v] for v in ending if last[v] == place and v in freed]
    for value in program.results:
        define(value)
    return Module((replace(program, body=replace(program.body, instructions=tuple(instructions))), *kernels))
