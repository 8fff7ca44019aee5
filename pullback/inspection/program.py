"""The stage program: what runs at a call, step by step, and where each buffer lies meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.analysis.steps import Access, accesses, dependencies, owners
from pullback.inspection.provenance import NUMBERED, Anatomy, members
from pullback.ir.core.structure import Block, Function, Instruction, Module, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.program import Alloc
from pullback.ir.text import print_module
from pullback.programs.pipeline import concrete
from pullback.programs.report import counted, places
from pullback.runtime.program.arena import place_bytes
from pullback.runtime.program.plan import Places, Plan

Notes = dict[Instruction, dict[int | None, str]]


def program_text(anatomy: Anatomy, locations: bool = False) -> str:
    """The program of a call with its kernels. Comments say of each buffer where it lies and from which step to which; of each
    step which steps it needs, what it reads and writes, and the user's lines."""
    shown = concrete(_located(anatomy), anatomy.found)
    new = list(walk(shown.body))
    old = list(walk(anatomy.program.body))
    same = dict(zip(old, new[len(new) - len(old) :], strict=True))
    notes = {same[i]: note for i, note in _Listing(anatomy).notes().items()}
    return print_module(Module((shown, *anatomy.module.functions[1:])), locations, notes)


def _located(anatomy: Anatomy) -> Function:
    """The program, whose failures say the user's lines."""

    def located(i: Instruction) -> Instruction:
        if not i.params.get("failures"):
            return i
        failures = tuple((*words, _place(anatomy, text)) for *words, text in i.params["failures"])
        return replace(i, params={**i.params, "failures": failures})

    def within(block: Block) -> Block:
        made = (replace(located(i), regions=tuple(map(within, i.regions))) for i in block.instructions)
        return replace(block, instructions=tuple(made))

    return replace(anatomy.program, body=within(anatomy.program.body))


def _place(anatomy: Anatomy, text: str) -> str:
    file, _, number = text.partition(":")
    return str(anatomy.locs[int(number)]) if file == NUMBERED and number.isdigit() else text


class _Listing:
    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self.names = anatomy.names(anatomy.program)
        self.plan = Plan(anatomy.program)
        self.places: Places = self.plan.place(anatomy.sizes)
        self.steps = accesses(anatomy.module)
        self.before = dependencies(self.steps)
        self.owner = owners(anatomy.program)
        self.number = {s.instruction: k for k, s in enumerate(self.steps)}
        self.within: dict[Instruction, int] = {
            i: k for k, s in enumerate(self.steps) for region in s.instruction.regions for i in walk(region)
        } | self.number  # fmt: skip
        self.lines = {s.launch: s for s in anatomy.steps}

    def notes(self) -> Notes:
        found: Notes = {}
        lives = self.lives()
        for i in walk(self.anatomy.program.body):
            if isinstance(i.op, Alloc):
                found[i] = {None: self.of_buffer(i.result, lives)}
            elif i in self.number:
                found[i] = {None: self.of_step(self.number[i])}
        first = self.anatomy.program.instructions[0]
        found[first] = {None: "\n".join([*self.summary(), *found.get(first, {}).values()])}
        return found

    def summary(self) -> Iterator[str]:
        chains: list[int] = []
        for needs in self.before:
            chains.append(1 + max((chains[k] for k in needs), default=0))
        longest = max(chains, default=0)
        yield f"{counted(len(self.steps), 'step')} in the order of recording; the longest chain of them has {longest}"
        if self.plan.has_driver:
            yield "they run as one function, in which small buffers are registers or on its stack"
        sizes = [place_bytes(life.bytes) for life in self.places.lives.values()]
        if sizes:
            yield (
                f"{counted(len(sizes), 'temporary', 'temporaries')} of {sum(sizes):,} bytes, {self.places.live_bytes:,} alive at "
                f"once: the arena has {self.places.arena_bytes:,}"
            )

    def lives(self) -> Mapping[Value, tuple[int, int]]:
        """The first and the last step that has a buffer."""
        found: dict[Value, tuple[int, int]] = {}
        for i, number in self.within.items():
            for v in i.operands:
                first, last = found.get(self.owner[v], (number, number))
                found[self.owner[v]] = min(first, number), max(last, number)
        return found

    def of_buffer(self, buffer: Value, lives: Mapping[Value, tuple[int, int]]) -> str:
        first, last = lives.get(buffer, (0, 0))
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        size = f"{self.anatomy.bytes_of(buffer):,} bytes"
        if buffer in self.plan.fresh:
            numbers = [str(k) for k, v in enumerate(self.anatomy.program.results) if self.plan.owner[v] is buffer]
            return f"{size}, result {', '.join(numbers)}, from step {first}"
        offset = self.places.offsets.get(buffer)
        if offset is None:
            return f"{size}, on the stack, {steps}"
        room = self.places.within.get(buffer)
        return f"{size} at {offset:,} of {'the arena' if room is None else f'result %{self.names[room]}'}, {steps}"

    def of_step(self, number: int) -> str:
        step = self.steps[number]
        after = ", ".join(map(str, sorted(self.before[number])))
        both = step.reads & step.writes
        parts = {"reads": step.reads - both, "updates": both, "writes": step.writes - both}
        words = [f"{verb} {self.named(values, step)}" for verb, values in parts.items() if values]
        where = places(self.locs(step.instruction))
        return f"step {number}{f' after {after}' if after else ''}: {'; '.join([*words, *([where] if where else [])])}"

    def named(self, values: Iterable[Value], step: Access) -> str:
        """Names in the order of the operands, without constants, which have none."""
        wanted = {v for v in values if v in self.names}
        inside = (v for i in self.instructions(step) for v in i.operands)
        return ", ".join(dict.fromkeys(f"%{self.names[self.owner[v]]}" for v in inside if self.owner[v] in wanted))

    def instructions(self, step: Access) -> Iterator[Instruction]:
        yield step.instruction
        for region in step.instruction.regions:
            yield from walk(region)

    def locs(self, instruction: Instruction) -> Sequence[Any]:
        """The user's places of all that a step runs."""
        inside = [instruction, *(i for region in instruction.regions for i in walk(region))]
        sources = [self.lines[i].source for i in inside if i in self.lines]
        return [self.anatomy.loc(k) for source in sources if source is not None for k in members(source)]
