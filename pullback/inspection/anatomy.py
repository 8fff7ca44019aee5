"""A call's program taken apart, with the way back from each buffer and each launch to the user's lines.

Locations are in no key, so the passes run here on instructions whose locations are numbers: the program is the one that runs,
and each of its instructions says which instruction it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pullback.codegen.fuse import fuse
from pullback.codegen.lower import lower
from pullback.inspection.call import Call
from pullback.ir.extents import Abstract, abstract, value_of
from pullback.ir.ops.control import Group, Transform
from pullback.ir.ops.host import Host
from pullback.ir.ops.program import Alloc, Launch
from pullback.ir.passes.dce import is_pure
from pullback.ir.passes.grad import GradientError, expand, grad
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.structure import NOWHERE, Block, Function, Instruction, Loc, Module, Value
from pullback.ir.text import Printer
from pullback.pipeline import Outcome, concrete, layouts_of, split_outcomes
from pullback.tracer import TraceError

NUMBERED = "#"
FORWARD = "forward"


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One launch. ``source``: the instruction of ``fused`` that it runs, or that needs the copy it makes; None for a copy of a
    result."""

    launch: Instruction
    kernel: Function
    source: Instruction | None
    is_copy: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Anatomy:
    """``optimised`` and ``fused`` are array IR of named extents, ``sizes`` the values of these; ``locs`` the user's places, by
    the number that stands for each. ``module`` is the lowered program with its kernels."""

    found: Abstract
    outcomes: tuple[Outcome, ...]
    optimised: Function
    fused: Function
    module: Module
    locs: Sequence[Loc]

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.found.sizes

    @property
    def program(self) -> Function:
        return self.module.functions[0]

    def loc(self, instruction: Instruction) -> Loc:
        """The user's place of an instruction of ``optimised`` or of a group of ``fused``."""
        loc = instruction.loc
        return self.locs[loc.line] if loc.file == NUMBERED else loc

    def bytes_of(self, value: Value) -> int:
        """The bytes of an array's elements."""
        total = value.type.dtype.bytes
        for extent in value.type.shape:
            total *= value_of(extent, self.sizes)
        return total

    def type_text(self, value: Value) -> str:
        """A value's type with its extents in numbers."""
        return f"{value.type.dtype}[{','.join(str(value_of(e, self.sizes)) for e in value.type.shape)}]"

    def names(self, function: Function) -> dict[Value, str]:
        """The names that a dump of a func or program prints, but for the instructions of constants."""
        shown = concrete(function, self.found)
        printer = Printer()
        printer.function(shown)
        count = len(self.found.constants)
        found = dict(zip(function.parameters[: len(function.parameters) - count], shown.parameters, strict=True))
        for old, new in zip(function.instructions, shown.instructions[count:], strict=True):
            found.update(zip(old.results, new.results, strict=True))
        return {value: printer.names[same] for value, same in found.items()}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The launches of the program, in order."""
        found: list[Step] = []
        launches = [i for i in self.program.instructions if isinstance(i.op, Launch)]
        for position, launch in enumerate(launches):
            source = self.fused.instructions[launch.loc.line] if launch.loc.file == NUMBERED else None
            after = launches[position + 1].loc if position + 1 < len(launches) else NOWHERE
            is_copy = source is None or isinstance(source.op, Host) or after == launch.loc
            found.append(Step(launch=launch, kernel=self.module[launch.params["kernel"]], source=source, is_copy=is_copy))
        return tuple(found)

    @cached_property
    def makers(self) -> dict[Value, Instruction | None]:
        """For each buffer that the program allocates, the instruction of ``optimised`` that makes its contents, with its place;
        None for a copy and for scratch memory."""
        found: dict[Value, Instruction | None] = {}
        waiting: list[Instruction] = []
        steps = iter(self.steps)
        for i in self.program.instructions:
            if isinstance(i.op, Alloc):
                waiting.append(i)
            elif isinstance(i.op, Host):
                source = self.fused.instructions[i.loc.line]
                found.update(zip((a.result for a in waiting), makers_of(source), strict=True))
                waiting = []
            elif isinstance(i.op, Launch):
                step = next(steps)
                made = [a for a in waiting if a.result.name != "scratch"]
                found.update((a.result, None) for a in waiting)
                if step.source is not None and not step.is_copy:
                    values = makers_of(step.source)
                    found.update(zip((a.result for a in made), values[len(values) - len(made) :], strict=True))
                waiting = []
        return found


def makers_of(source: Instruction) -> list[Instruction | None]:
    """For each result of a fused instruction, the instruction that computes it; None for an operand passed on."""
    if not isinstance(source.op, Group):
        return [source] * len(source.results)
    (region,) = source.regions
    producer = {v: i for i in region.instructions for v in i.results}
    return [producer.get(v) for v in region.results]


def members(source: Instruction) -> Iterator[Instruction]:
    """The instructions of a group, or an instruction that stands alone."""
    if isinstance(source.op, Group):
        yield from source.regions[0].instructions
    else:
        yield source


def dissect(call: Call) -> Anatomy | None:
    """The program of a call; None if there is nothing to compute. Raises TraceError where a gradient cannot be had."""
    function, outcomes = split_outcomes(call.trace)
    if not function.results and all(map(is_pure, function.instructions)):
        return None
    found = abstract(function)
    prepared = run(found.function, BEFORE_GRAD)
    try:
        optimised = run(grad(_marked(prepared)), OPTIMIZE)
    except GradientError as error:
        raise TraceError(str(error), error.loc) from None
    numbered, locs = _numbered(optimised.body)
    optimised = replace(optimised, body=numbered)
    fused = fuse(optimised)
    outer = [replace(i, loc=Loc(NUMBERED, k)) for k, i in enumerate(fused.instructions)]
    layouts = layouts_of(call.trace, call.leaves, len(found.constants))
    lowered = lower(replace(fused, body=replace(fused.body, instructions=tuple(outer))), layouts)
    return Anatomy(found=found, outcomes=outcomes, optimised=optimised, fused=fused, module=lowered, locs=locs)


def is_forward(loc: Loc) -> bool:
    """Whether an instruction is of the forward part of the outermost gradient."""
    return not loc.note.startswith("pullback")


def plain(loc: Loc) -> Loc:
    """A location without the mark of the forward part, and without the place where the gradient was asked for."""
    note = loc.note.removeprefix(FORWARD).strip()
    return Loc(note=note) if note == "pullback" else replace(loc, note=note)


def _marked(function: Function) -> Function:
    """The function with its outermost transforms' forward parts marked as such, transforms inside them expanded."""
    made = []
    for i in function.instructions:
        if isinstance(i.op, Transform):
            inner = expand(i.regions[0])
            marked = tuple(replace(k, loc=replace(k.loc, note=f"{FORWARD} {k.loc.note}".strip())) for k in inner.instructions)
            i = replace(i, regions=(replace(inner, instructions=marked),))
        made.append(i)
    return replace(function, body=replace(function.body, instructions=tuple(made)))


def _numbered(block: Block) -> tuple[Block, list[Loc]]:
    """A block whose instructions have their positions for locations, and the locations."""
    made = [replace(i, loc=Loc(NUMBERED, k)) for k, i in enumerate(block.instructions)]
    return replace(block, instructions=tuple(made)), [i.loc for i in block.instructions]
