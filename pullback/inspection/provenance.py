"""Rebuild a call's program with a mapping from each buffer and each launch back to the user's lines.

Locations are in no cache key, so the passes are run here on instructions whose locations are indices: the program is the one
that runs, and each of its instructions names the instruction it came from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from weakref import WeakKeyDictionary

from pullback.codegen.fuse.fuse import Fused, fuse_with_decisions
from pullback.codegen.fuse.rematerialize import Rematerialization
from pullback.codegen.lower.copies import ArrayCopy
from pullback.codegen.lower.lower import lower
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc, Module, walk
from pullback.ir.core.types import is_by_value
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.control.regions import Group, Transform
from pullback.ir.ops.program import Alloc, Branch, Launch, Repeat, RepeatWhile
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.size_classes import templated
from pullback.ir.passes.transforms.expand import GradientError, expanded_region, grad
from pullback.ir.shapes.extents import NOMINAL, Abstract, by_value_in, extents_of, value_of
from pullback.ir.text import Printer
from pullback.programs.call import Call
from pullback.programs.pipeline import Outcome, concrete, fusion_target, layouts_of, split_outcomes, target_of
from pullback.tracer import TraceError

NUMBERED = "#"
"""File name of the locations that are indices."""
SOURCED = "#step"
"""File name of the locations in a lowered program that are indices of what it runs."""
FORWARD = "forward"
"""Prefix of the note of instructions in the forward part of a gradient."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One launch. ``source``: the instruction of ``fused`` that it runs, or that needs the copy it makes; None for the copy of
    a result. ``times``: the number of runs; if ``is_known`` is false the number is unknown."""

    launch: Instruction
    kernel: Function
    source: Instruction | None
    is_copy: bool
    times: int
    is_known: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class Anatomy:
    """The stages of a call's program.

    ``optimised`` and ``fused`` are array IR of named extents, ``sizes`` the values of the extents; ``locs`` the user's
    locations, by their indices. ``fusion`` says why values are stored, and why kernels are not fused. ``module`` is the lowered
    program with its kernels; the locations of its steps are the indices of what they run in ``sources``: the instructions of
    ``fused``, including those of its control flow. ``copies``: the copies of arrays, some of which may not be in the program.
    """

    abstract: Abstract
    outcomes: tuple[Outcome, ...]
    optimised: Function
    fusion: Fused
    module: Module
    sources: Sequence[Instruction]
    locs: Sequence[Loc]
    copies: Sequence[ArrayCopy] = ()

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The values of the extents; those by value, which the program computes, count as the largest of the others."""
        names = extents_of(self.program)
        most = max(self.abstract.sizes.values(), default=NOMINAL)
        return {**self.abstract.sizes, **{name: most for name in names if is_by_value(name)}}

    @property
    def program(self) -> Function:
        return self.module.functions[0]

    @property
    def fused(self) -> Function:
        return self.fusion.function

    @cached_property
    def saving(self) -> Rematerialization:
        return self.fusion.rematerialization

    def loc(self, instruction: Instruction) -> Loc:
        """Return the user's location of an instruction of ``optimised``, ``fused`` or ``module``."""
        return self.users_loc(instruction.loc)

    def users_loc(self, loc: Loc) -> Loc:
        """Return the user's location for one that is an index; others are returned unchanged."""
        if loc.file == SOURCED:
            loc = self.sources[loc.line].loc
        return self.locs[loc.line] if loc.file == NUMBERED else loc

    def bytes_of(self, value: Value) -> int:
        """Return the size of an array in bytes."""
        total = value.type.dtype.bytes
        for extent in value.type.shape:
            total *= value_of(extent, self.sizes)
        return total

    def type_text(self, value: Value) -> str:
        """Return a value's type with concrete extents; those by value keep their names."""
        extents = (e if by_value_in((e,)) else value_of(e, self.sizes) for e in value.type.shape)
        return f"{value.type.dtype}[{','.join(map(str, extents))}]"

    def names(self, function: Function) -> dict[Value, str]:
        """Return the names that a dump of a func or program prints, except those of the instructions of constants."""
        shown = concrete(function, self.abstract)
        printer = Printer()
        printer.function(shown)
        count = len(self.abstract.constants)
        shown_values = dict(zip(function.parameters[: len(function.parameters) - count], shown.parameters, strict=True))
        for old, new in zip(walk(function.body), list(walk(shown.body))[count:], strict=True):
            shown_values.update(zip(old.results, new.results, strict=True))
        return {value: printer.names[same] for value, same in shown_values.items()}

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The launches of the program, in order, those of its control flow after what comes before it."""
        result: list[Step] = []
        launches = list(self.launches(self.program.body, 1, True))
        for position, (launch, times, is_known) in enumerate(launches):
            source = self.sources[launch.loc.line] if launch.loc.file == SOURCED else None
            after = launches[position + 1][0].loc if position + 1 < len(launches) else NOWHERE
            is_copy = source is None or isinstance(source.op, Host | Loop | Switch) or after == launch.loc
            kernel = self.module[launch.params["kernel"]]
            result.append(Step(launch=launch, kernel=kernel, source=source, is_copy=is_copy, times=times, is_known=is_known))
        return tuple(result)

    def launches(self, block: Block, times: int, is_known: bool) -> Iterator[tuple[Instruction, int, bool]]:
        """Yield the launches of a block, each with its number of runs and whether that is known."""
        for i in block.instructions:
            if isinstance(i.op, Launch):
                yield i, times, is_known
            length = i.params.get("length", ())
            inside = times * math.prod(value_of(e, self.sizes) for e in length)
            for region in i.regions:
                yield from self.launches(region, inside, is_known and bool(length))

    @cached_property
    def producers(self) -> dict[Value, Instruction | None]:
        """For each buffer that the program allocates, the instruction of ``optimised`` that computes its contents, with its
        location; None for a copy and for scratch memory."""
        result: dict[Value, Instruction | None] = {}
        pending: list[Instruction] = []
        steps = iter(self.steps)
        for i in walk(self.program.body):
            if isinstance(i.op, Alloc):
                pending.append(i)
            elif isinstance(i.op, Host):
                source = self.sources[i.loc.line]
                result.update(zip((a.result for a in pending), producers_of(source)))
                pending = []
            elif isinstance(i.op, Repeat | RepeatWhile | Branch):
                result.update((a.result, self.sources[i.loc.line]) for a in pending)
                pending = []
            elif isinstance(i.op, Launch):
                step = next(steps)
                buffers = [a for a in pending if a.result.name != "scratch"]
                result.update((a.result, None) for a in pending)
                if step.source is not None and not step.is_copy:
                    result.update(_matched(buffers, step.source))
                pending = []
        return result


def _matched(allocs: Sequence[Instruction], source: Instruction) -> Iterator[tuple[Value, Instruction | None]]:
    """Yield each buffer with the instruction that computes it; results written over an operand have no buffer of their own."""
    results = iter(zip(source.results, producers_of(source), strict=True))
    for i in allocs:
        t = i.result.type
        for value, maker in results:
            if (value.type.dtype, value.type.shape) == (t.dtype, t.shape):
                yield i.result, maker
                break


def producers_of(source: Instruction) -> list[Instruction | None]:
    """Return for each result of a fused instruction the instruction that computes it; None for an operand passed on."""
    if not isinstance(source.op, Group):
        return [source] * len(source.results)
    (region,) = source.regions
    producer = {v: i for i in region.instructions for v in i.results}
    return [producer.get(v) for v in region.results]


def members(source: Instruction) -> Iterator[Instruction]:
    """Yield the instructions of a group, or a single instruction itself."""
    if isinstance(source.op, Group):
        yield from source.regions[0].instructions
    else:
        yield source


_ANATOMIES: WeakKeyDictionary[Call, Anatomy | None] = WeakKeyDictionary()
"""The programs of the calls on which reports are being made."""


def dissect(call: Call) -> Anatomy | None:
    """Rebuild the program of a call, once; None if there is nothing to compute. Raises TraceError if a gradient cannot be
    computed."""
    if call not in _ANATOMIES:
        _ANATOMIES[call] = _dissected(call)
    return _ANATOMIES[call]


def _dissected(call: Call) -> Anatomy | None:
    function, outcomes = split_outcomes(call.trace)
    if not function.results and all(map(is_pure, function.instructions)):
        return None
    abstract = templated(function)
    prepared = run(abstract.function, BEFORE_GRAD)
    try:
        optimised = run(grad(_marked(prepared)), OPTIMIZE)
    except GradientError as error:
        raise TraceError(str(error), error.loc) from None
    numbered, locs = _numbered(optimised.body)
    optimised = replace(optimised, body=numbered)
    fusion = fuse_with_decisions(optimised, fusion_target(call.device))
    groups = fusion.function
    sources: list[Instruction] = []
    layouts, target = layouts_of(call.trace, call.leaves, len(abstract.constants), call.device), target_of(call.device)
    over = call.over if target == "cpu" else ()
    copies: list[ArrayCopy] = []
    lowered = lower(replace(groups, body=_sourced(groups.body, sources)), layouts, target, over, copies)
    return Anatomy(
        abstract=abstract,
        outcomes=outcomes,
        optimised=optimised,
        fusion=fusion,
        module=lowered,
        sources=sources,
        locs=locs,
        copies=copies,
    )


def is_forward(loc: Loc) -> bool:
    """Return whether an instruction belongs to the forward part of the outermost gradient."""
    return not loc.note.startswith("pullback")


def unmarked(loc: Loc) -> Loc:
    """Return a location without the mark of the forward part, and without the line that requested the gradient."""
    note = loc.note.removeprefix(FORWARD).strip()
    return Loc(note=note) if note == "pullback" else replace(loc, note=note)


def _marked(function: Function) -> Function:
    """Mark the instructions in the forward parts of the outermost transforms, with transforms inside them expanded."""
    instructions = []
    for i in function.instructions:
        if isinstance(i.op, Transform):
            inner = expanded_region(i)
            marked = tuple(replace(k, loc=replace(k.loc, note=f"{FORWARD} {k.loc.note}".strip())) for k in inner.instructions)
            i = replace(i, regions=(replace(inner, instructions=marked),))
        instructions.append(i)
    return replace(function, body=replace(function.body, instructions=tuple(instructions)))


def _sourced(block: Block, sources: list[Instruction]) -> Block:
    """Append the instructions of a block and of its control flow to ``sources``, and set their locations to the indices there."""
    instructions = []
    for i in block.instructions:
        index = Loc(SOURCED, len(sources))
        sources.append(i)
        inside = tuple(_sourced(r, sources) for r in i.regions) if isinstance(i.op, Loop | Switch) else i.regions
        instructions.append(replace(i, loc=index, regions=inside))
    return replace(block, instructions=tuple(instructions))


def _numbered(block: Block) -> tuple[Block, list[Loc]]:
    """Return a block whose instructions have their positions as locations, with their notes, and the original locations."""
    instructions = [replace(i, loc=Loc(NUMBERED, k, i.loc.note)) for k, i in enumerate(block.instructions)]
    return replace(block, instructions=tuple(instructions)), [i.loc for i in block.instructions]
