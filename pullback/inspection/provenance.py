"""A call's program taken apart, with the way back from each buffer and each launch to the user's lines.

Locations are in no key, so the passes run here on instructions whose locations are numbers: the program is the one that runs,
and each of its instructions says which instruction it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pullback.codegen.fuse.fuse import fused
from pullback.codegen.fuse.rematerialize import Saving
from pullback.codegen.lower.lower import lower
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc, Module, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.control.regions import Group, Transform
from pullback.ir.ops.program import Alloc, Branch, Launch, Repeat, RepeatWhile
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.size_classes import templated
from pullback.ir.passes.transforms.expand import GradientError, expand, grad
from pullback.ir.shapes.extents import Abstract, value_of
from pullback.ir.text import Printer
from pullback.programs.call import Call
from pullback.programs.pipeline import Outcome, concrete, fused_for, layouts_of, split_outcomes, target_of
from pullback.tracer import TraceError

NUMBERED = "#"
FORWARD = "forward"


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One launch. ``source``: the instruction of ``fused`` that it runs, or that needs the copy it makes; None for a copy of a
    result. ``times``: how often, with ``is_known`` false at least once and nobody knows how often."""

    launch: Instruction
    kernel: Function
    source: Instruction | None
    is_copy: bool
    times: int
    is_known: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Anatomy:
    """``optimised`` and ``fused`` are array IR of named extents, ``sizes`` the values of these; ``locs`` the user's places, by
    the number that stands for each. ``saving`` says why values are stored. ``module`` is the lowered program with its kernels,
    whose steps have for locations the numbers of what they run in ``sources``: the instructions of ``fused``, those of its
    control flow included."""

    found: Abstract
    outcomes: tuple[Outcome, ...]
    optimised: Function
    fused: Function
    saving: Saving
    module: Module
    sources: Sequence[Instruction]
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
        for old, new in zip(walk(function.body), list(walk(shown.body))[count:], strict=True):
            found.update(zip(old.results, new.results, strict=True))
        return {value: printer.names[same] for value, same in found.items()}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The launches of the program, in order, those of its control flow after what comes before it."""
        found: list[Step] = []
        launches = list(self.launches(self.program.body, 1, True))
        for position, (launch, times, is_known) in enumerate(launches):
            source = self.sources[launch.loc.line] if launch.loc.file == NUMBERED else None
            after = launches[position + 1][0].loc if position + 1 < len(launches) else NOWHERE
            is_copy = source is None or isinstance(source.op, Host | Loop | Switch) or after == launch.loc
            kernel = self.module[launch.params["kernel"]]
            found.append(Step(launch=launch, kernel=kernel, source=source, is_copy=is_copy, times=times, is_known=is_known))
        return tuple(found)

    def launches(self, block: Block, times: int, is_known: bool) -> Iterator[tuple[Instruction, int, bool]]:
        """The launches of a block, each with how often it runs."""
        for i in block.instructions:
            if isinstance(i.op, Launch):
                yield i, times, is_known
            length = i.params.get("length", ())
            inside = times * math.prod(value_of(e, self.sizes) for e in length)
            for region in i.regions:
                yield from self.launches(region, inside, is_known and bool(length))

    @cached_property
    def makers(self) -> dict[Value, Instruction | None]:
        """For each buffer that the program allocates, the instruction of ``optimised`` that makes its contents, with its place;
        None for a copy and for scratch memory."""
        found: dict[Value, Instruction | None] = {}
        waiting: list[Instruction] = []
        steps = iter(self.steps)
        for i in walk(self.program.body):
            if isinstance(i.op, Alloc):
                waiting.append(i)
            elif isinstance(i.op, Host):
                source = self.sources[i.loc.line]
                found.update(zip((a.result for a in waiting), makers_of(source)))
                waiting = []
            elif isinstance(i.op, Repeat | RepeatWhile | Branch):
                found.update((a.result, self.sources[i.loc.line]) for a in waiting)
                waiting = []
            elif isinstance(i.op, Launch):
                step = next(steps)
                made = [a for a in waiting if a.result.name != "scratch"]
                found.update((a.result, None) for a in waiting)
                if step.source is not None and not step.is_copy:
                    found.update(_matched(made, step.source))
                waiting = []
        return found


def _matched(allocs: Sequence[Instruction], source: Instruction) -> Iterator[tuple[Value, Instruction | None]]:
    """Each buffer with what makes its contents; results that are written over an operand have none of their own."""
    results = iter(zip(source.results, makers_of(source), strict=True))
    for i in allocs:
        t = i.result.type
        for value, made in results:
            if (value.type.dtype, value.type.shape) == (t.dtype, t.shape):
                yield i.result, made
                break


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
    found = templated(function)
    prepared = run(found.function, BEFORE_GRAD)
    try:
        optimised = run(grad(_marked(prepared)), OPTIMIZE)
    except GradientError as error:
        raise TraceError(str(error), error.loc) from None
    numbered, locs = _numbered(optimised.body)
    optimised = replace(optimised, body=numbered)
    made = fused(optimised, fused_for(call.device))
    groups, saving = made.function, made.saving
    sources: list[Instruction] = []
    layouts, target = layouts_of(call.trace, call.leaves, len(found.constants), call.device), target_of(call.device)
    over = call.over if target == "cpu" else ()
    lowered = lower(replace(groups, body=_sourced(groups.body, sources)), layouts, target, over)
    return Anatomy(
        found=found,
        outcomes=outcomes,
        optimised=optimised,
        fused=groups,
        saving=saving,
        module=lowered,
        sources=sources,
        locs=locs,
    )


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


def _sourced(block: Block, sources: list[Instruction]) -> Block:
    """A block whose instructions, those of its control flow included, have their positions among ``sources`` for locations."""
    made = []
    for i in block.instructions:
        number = Loc(NUMBERED, len(sources))
        sources.append(i)
        inside = tuple(_sourced(r, sources) for r in i.regions) if isinstance(i.op, Loop | Switch) else i.regions
        made.append(replace(i, loc=number, regions=inside))
    return replace(block, instructions=tuple(made))


def _numbered(block: Block) -> tuple[Block, list[Loc]]:
    """A block whose instructions have their positions for locations, and the locations."""
    made = [replace(i, loc=Loc(NUMBERED, k)) for k, i in enumerate(block.instructions)]
    return replace(block, instructions=tuple(made)), [i.loc for i in block.instructions]
