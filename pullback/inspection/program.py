"""The stage program: the steps of a call in order, and the location of each buffer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.analysis.steps import Access, accesses, dependencies, owners
from pullback.inspection.provenance import NUMBERED, SOURCED, Anatomy, members, unmarked
from pullback.ir.core.structure import Block, Function, Instruction, Loc, Module, walk
from pullback.ir.core.value import Value
from pullback.ir.listing import Listing, list_module
from pullback.ir.ops.program import Alloc
from pullback.ir.text import Notes, print_module
from pullback.programs.pipeline import concrete
from pullback.programs.report import counted, places
from pullback.runtime.program.arena import aligned_bytes
from pullback.runtime.program.plan import Placement, Plan


def program_text(anatomy: Anatomy, locations: bool = False) -> str:
    """Return the text of a call's program with its kernels.

    Comments give each buffer's location and its first and last step; for each step, the steps that it depends on, what it
    reads and writes, and the user's lines.
    """
    module, notes = _commented(anatomy)
    return print_module(module, locations, notes)


def program_listing(anatomy: Anatomy) -> Listing:
    """Return the text of ``program_text`` by lines, with the user's locations."""
    return list_module(*_commented(anatomy))


def _commented(anatomy: Anatomy) -> tuple[Module, Notes]:
    """Return a call's program with its kernels, at the user's locations, and the comments on it."""

    def at_users_lines(block: Block) -> Block:
        instructions = (
            replace(i, loc=unmarked(anatomy.loc(i)), regions=tuple(map(at_users_lines, i.regions))) for i in block.instructions
        )
        return replace(block, instructions=tuple(instructions))

    located = concrete(_located(anatomy), anatomy.abstract)
    shown, *kernels = (replace(f, body=at_users_lines(f.body)) for f in (located, *anatomy.module.functions[1:]))
    new = list(walk(shown.body))
    old = list(walk(anatomy.program.body))
    counterparts = dict(zip(old, new[len(new) - len(old) :], strict=True))
    notes: Notes = {counterparts[i]: note for i, note in _Listing(anatomy).notes().items()}
    return Module((shown, *kernels)), notes


def _located(anatomy: Anatomy) -> Function:
    """Return the program with the user's lines in its failures."""

    def located(i: Instruction) -> Instruction:
        if not i.params.get("failures"):
            return i
        failures = tuple((*words, _located_text(anatomy, text)) for *words, text in i.params["failures"])
        return replace(i, params={**i.params, "failures": failures})

    def within(block: Block) -> Block:
        instructions = (replace(located(i), regions=tuple(map(within, i.regions))) for i in block.instructions)
        return replace(block, instructions=tuple(instructions))

    return replace(anatomy.program, body=within(anatomy.program.body))


def _located_text(anatomy: Anatomy, text: str) -> str:
    file, _, position = text.partition(" ")[0].partition(":")
    is_index = file in (NUMBERED, SOURCED) and position.isdigit()
    return str(anatomy.users_loc(Loc(file, int(position)))) if is_index else text


class _Listing:
    """The comments on a program."""

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self.names = anatomy.names(anatomy.program)
        self.plan = Plan(anatomy.program)
        self.memory: Placement = self.plan.placement(anatomy.sizes)
        self.steps = accesses(anatomy.module)
        self.before = dependencies(self.steps)
        self.owner = owners(anatomy.program)
        self.position = {s.instruction: k for k, s in enumerate(self.steps)}
        self.within: dict[Instruction, int] = {
            i: k for k, s in enumerate(self.steps) for region in s.instruction.regions for i in walk(region)
        } | self.position  # fmt: skip
        self.lines = {s.launch: s for s in anatomy.steps}

    def notes(self) -> dict[Instruction, dict[int | None, str]]:
        """Return the comments by instruction."""
        texts: dict[Instruction, dict[int | None, str]] = {}
        lives = self.lives()
        for i in walk(self.anatomy.program.body):
            if isinstance(i.op, Alloc):
                texts[i] = {None: self.of_buffer(i.result, lives)}
            elif i in self.position:
                texts[i] = {None: self.of_step(self.position[i])}
        first = self.anatomy.program.instructions[0]
        texts[first] = {None: "\n".join([*self.summary(), *texts.get(first, {}).values()])}
        return texts

    def summary(self) -> Iterator[str]:
        chains: list[int] = []
        for needs in self.before:
            chains.append(1 + max((chains[k] for k in needs), default=0))
        longest = max(chains, default=0)
        yield f"{counted(len(self.steps), 'step')} in the order of recording; the longest chain of them has {longest}"
        if self.plan.has_driver:
            yield "they run as one function, in which small buffers are registers or on its stack"
        sizes = [aligned_bytes(life.bytes) for life in self.memory.lives.values()]
        if sizes:
            yield (
                f"{counted(len(sizes), 'temporary', 'temporaries')} of {sum(sizes):,} bytes, {self.memory.live_bytes:,} alive at "
                f"once: the arena has {self.memory.arena_bytes:,}"
            )

    def lives(self) -> Mapping[Value, tuple[int, int]]:
        """Return the first and the last step that accesses each buffer."""
        spans: dict[Value, tuple[int, int]] = {}
        for i, position in self.within.items():
            for v in i.operands:
                first, last = spans.get(self.owner[v], (position, position))
                spans[self.owner[v]] = min(first, position), max(last, position)
        return spans

    def of_buffer(self, buffer: Value, lives: Mapping[Value, tuple[int, int]]) -> str:
        first, last = lives.get(buffer, (0, 0))
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        size = f"{self.anatomy.bytes_of(buffer):,} bytes"
        if buffer in self.plan.fresh:
            numbers = [str(k) for k, v in enumerate(self.anatomy.program.results) if self.plan.owner[v] is buffer]
            return f"{size}, result {', '.join(numbers)}, from step {first}"
        offset = self.memory.offsets.get(buffer)
        if offset is None:
            return f"{size}, on the stack, {steps}"
        container = self.memory.within.get(buffer)
        return f"{size} at {offset:,} of {'the arena' if container is None else f'result %{self.names[container]}'}, {steps}"

    def of_step(self, position: int) -> str:
        step = self.steps[position]
        after = ", ".join(map(str, sorted(self.before[position])))
        both = step.reads & step.writes
        parts = {"reads": step.reads - both, "updates": both, "writes": step.writes - both}
        words = [f"{verb} {self.named(values, step)}" for verb, values in parts.items() if values]
        where = places(self.locs(step.instruction))
        return f"step {position}{f' after {after}' if after else ''}: {'; '.join([*words, *([where] if where else [])])}"

    def named(self, values: Iterable[Value], step: Access) -> str:
        """Return the names in the order of the operands, without constants, which have none."""
        wanted = {v for v in values if v in self.names}
        inside = (v for i in self.instructions(step) for v in i.operands)
        return ", ".join(dict.fromkeys(f"%{self.names[self.owner[v]]}" for v in inside if self.owner[v] in wanted))

    def instructions(self, step: Access) -> Iterator[Instruction]:
        yield step.instruction
        for region in step.instruction.regions:
            yield from walk(region)

    def locs(self, instruction: Instruction) -> Sequence[Any]:
        """Return the user's locations of all ops that a step runs."""
        inside = [instruction, *(i for region in instruction.regions for i in walk(region))]
        sources = [self.lines[i].source for i in inside if i in self.lines]
        return [self.anatomy.loc(k) for source in sources if source is not None for k in members(source)]
