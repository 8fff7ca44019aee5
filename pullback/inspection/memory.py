"""The memory report: the buffers of a call, and how its temporaries share one arena."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np

from pullback.codegen.cpu.matmul.prepack.prepack import prepacked
from pullback.inspection.copies import Copied, copies_of, copy_text
from pullback.inspection.provenance import NUMBERED, Anatomy, dissect, is_forward, members, unmarked
from pullback.inspection.residuals import read_backward
from pullback.inspection.stack_lengths import lengths
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Function, Instruction, Loc, walk
from pullback.ir.core.types import ArrayType, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant as ConstantOp
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.program import Alloc, Free, Launch, Stack
from pullback.ir.shapes.extents import by_value_in, extents_of, value_of
from pullback.programs.call import Call
from pullback.programs.pipeline import reused_parameters, split_outcomes
from pullback.programs.report import Report, counted, location, paragraph, table
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.arena import aligned_bytes
from pullback.runtime.program.plan import Plan
from pullback.tracer import Constant

Role = Literal["input", "constant", "result", "temporary", "stack"]
Part = Literal["residual", "cotangent", "value", "scratch"]
COPIES = frozenset({"pad", "shift", "roll", "concat"})
"""Reindexing ops whose results NumPy has to store; the results of the others are views."""
MOST_SHOWN = 12
"""Number of buffers shown."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """Describe one buffer of a call.

    A temporary is at ``offset`` of the arena, or of the result that it is ``within``, whose memory is not needed yet; it lives
    from launch ``first`` to launch ``last``, counted from 0.

    Attributes
    ----------
    role : str
        What the buffer is for, such as "result" or "temporary".
    name : str
        Its name in the stage lower.
    type : str
        Its type; for a stack, the type of one of its values.
    bytes : int
        Its size; for a stack whose length depends on the data, the size of one value.
    op : str
        The op that computes its contents, if known.
    loc : Loc
        The user's line of that op.
    offset : int or None
        Its position in the arena.
    first : int or None
        The launch that first writes it.
    last : int or None
        The launch that last reads it.
    length : int or None
        The number of values that a stack holds in the end; None if it depends on the data.
    within : str
        The result in whose memory it is; empty if in none.
    part : str or None
        For a temporary: a "residual" is computed by the forward part and read by the backward part, a "cotangent" belongs to the
        backward part, a "value" is any other result of an op, "scratch" is further memory of a kernel or a copy.

    See Also
    --------
    Memory : Holds the buffers of a call.

    Examples
    --------
    >>> report = pb.jit(lambda x: 2 * x).memory(np.ones(1000))
    >>> [(b.role, b.type, b.bytes) for b in report.results]
    [('result', 'f64[1000]', 8000)]
    """

    role: Role
    name: str
    type: str
    bytes: int
    op: str = ""
    loc: Loc = NOWHERE
    offset: int | None = None
    first: int | None = None
    last: int | None = None
    length: int | None = None
    within: str = ""
    part: Part | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Memory(Report):
    """Hold the memory of one call.

    Attributes
    ----------
    function : str
        The function with its transforms.
    inputs : tuple of Buffer
        Arrays of the caller, and read from outside.
    constants : tuple of Buffer
        Arrays that the trace captured.
    results : tuple of Buffer
        Arrays that the call allocates, without those that are arguments, or in their memory.
    temporaries : tuple of Buffer
        Temporaries, some of which share memory with others that are dead, and some with results that are not filled yet.
    arena_bytes : int
        The size of their block, which stays for the next call.
    unshared_bytes : int
        The bytes that they would take with memory of their own.
    stacks : tuple of Buffer
        The values that loops with a computed trip count keep. Where their lengths do not follow from the sizes they grow as the
        loop runs, to at most twice their contents, and are in no sum here.
    unfused_bytes : int
        The memory that the call would allocate if each op ran by itself and its result had a buffer of its own, except views; for
        loops and branches, their results.
    copies : tuple of Copied
        The arrays that are copied, and why.
    extents_by_value : tuple of str
        The extents that values decide. Temporaries with such extents are not in the arena.
    counted_as : int
        What each of them counts as: the largest of the other extents.
    allocated_bytes : int
        The bytes that the call allocates.
    stack_bytes : int
        The bytes of stacks whose lengths follow from the sizes.
    peak_bytes : int
        The largest number of bytes at any time of the call.
    headline : str
        The first line of the text.

    See Also
    --------
    Buffer : One buffer.

    Examples
    --------
    >>> report = pb.grad(lambda w, x: np.sum(np.tanh(x @ w))).memory(np.ones((3, 2)), np.ones((5, 3)))
    >>> report.arena_bytes <= report.unshared_bytes <= report.unfused_bytes
    True
    """

    function: str
    inputs: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    temporaries: tuple[Buffer, ...]
    arena_bytes: int
    unshared_bytes: int
    stacks: tuple[Buffer, ...] = ()
    unfused_bytes: int = 0
    copies: tuple[Copied, ...] = ()
    extents_by_value: tuple[str, ...] = ()
    counted_as: int = 0

    def temporaries_of(self, part: Part) -> tuple[Buffer, ...]:
        """Return the temporaries that are residuals, cotangents, other values, or scratch."""
        return tuple(b for b in self.temporaries if b.part == part)

    @property
    def allocated_bytes(self) -> int:
        """The memory that the call itself takes: results, arena and stacks."""
        return _total(self.results) + self.arena_bytes + self.stack_bytes

    @property
    def stack_bytes(self) -> int:
        """The size of the stacks of known length."""
        return sum(b.bytes for b in self.stacks if b.length is not None)

    @property
    def peak_bytes(self) -> int:
        """The most memory in use at once: everything, since the arena lives as long as the call."""
        return _total(self.inputs) + _total(self.constants) + self.allocated_bytes

    @property
    def headline(self) -> str:
        """The text's first line."""
        return f"{self.function}: peak {self.peak_bytes:,} bytes, of which the call allocates {self.allocated_bytes:,}"

    def __str__(self) -> str:
        parts = [(part, self.temporaries_of(part)) for part in get_args(Part)]
        kinds = ", ".join(counted(len(buffers), part, "scratch" * (part == "scratch")) for part, buffers in parts if buffers)
        has_parts = any(b.part == "cotangent" for b in self.temporaries)
        shared = f" ({kinds})" if has_parts else ""
        shared += f", {self.unshared_bytes:,} bytes without sharing" if self.temporaries else ""
        rows = [
            ("inputs", f"{_total(self.inputs):,}", counted(len(self.inputs), "value")),
            *([("constants", f"{_total(self.constants):,}", counted(len(self.constants), "array"))] if self.constants else []),
            ("results", f"{_total(self.results):,}", counted(len(self.results), "array")),
            ("temporaries", f"{self.arena_bytes:,}", counted(len(self.temporaries), "array") + shared),
        ]
        measured = tuple(b for b in self.stacks if b.length is not None)
        growing = tuple(b for b in self.stacks if b.length is None)
        if measured:
            rows.append(("stacks", f"{_total(measured):,}", counted(len(measured), "stack")))
        if growing:
            rows.append(("stacks", f"{_total(growing):,}+", f"for each run of the loops of {counted(len(growing), 'stack')}"))
        if self.unfused_bytes:
            rows.append(("unfused", f"{self.unfused_bytes:,}", "what ops one by one would allocate, each result a buffer"))
        lines = [*paragraph(self.headline, ""), *table(("memory", "bytes", "of"), rows, right=("bytes",))]
        if self.extents_by_value:
            lines.append(f"values decide {', '.join(self.extents_by_value)}, here counted as {self.counted_as:,}")
        everything = sorted((*self.inputs, *self.constants, *self.results, *self.temporaries), key=lambda b: -b.bytes)
        if everything:
            lines.append("largest buffers:")
            header = ("bytes", "type", "name", "role", "made by")
            shown = everything[:MOST_SHOWN]
            cells = [(f"{b.bytes:,}", b.type, f"%{b.name}", _shown(b), f"{b.op} {location(b.loc)}".strip()) for b in shown]
            lines += table(header, cells, right=("bytes",))
            if len(everything) > len(shown):
                lines.append(f"  and {counted(len(everything) - len(shown), 'smaller one')}")
        if self.copies:
            columns = ("bytes", "times", "type", "why")
            lines += ["copies of arrays:", *table(columns, _copied(self.copies), right=columns[:2])]
        return "\n".join(lines)


def _shown(b: Buffer) -> str:
    return b.part if b.part in ("residual", "cotangent") else b.role


def _copied(copies: Sequence[Copied]) -> list[tuple[str, ...]]:
    """Return the rows of the largest copies."""
    ordered = sorted(copies, key=lambda c: -c.bytes * c.times)[:MOST_SHOWN]
    return [(f"{c.bytes:,}", f"{c.times:,}", c.type, copy_text(c)) for c in ordered]


def _total(buffers: tuple[Buffer, ...]) -> int:
    return sum(b.bytes for b in buffers)


def memory(call: Call) -> Memory:
    """Return the memory report of a call."""
    anatomy = dissect(call)
    inputs: list[Buffer] = []
    constants: list[Buffer] = []
    for parameter, source in zip(call.trace.function.parameters, call.trace.inputs, strict=True):
        is_constant = isinstance(source, Constant)
        assert isinstance(parameter.type, ArrayType)
        buffer = _typed("constant" if is_constant else "input", parameter.name, parameter.type)
        (constants if is_constant else inputs).append(buffer)
    results, temporaries, arena_bytes, unshared = _plan_memory(call, anatomy)
    names = () if anatomy is None else tuple(filter(is_by_value, extents_of(anatomy.program)))
    return Memory(
        function=call.title,
        inputs=tuple(inputs),
        constants=tuple(constants),
        results=results,
        temporaries=temporaries,
        arena_bytes=arena_bytes,
        unshared_bytes=unshared,
        stacks=() if anatomy is None else tuple(_stacks(anatomy)),
        unfused_bytes=0 if anatomy is None else _unfused(anatomy),
        copies=() if anatomy is None else copies_of(anatomy),
        extents_by_value=names,
        counted_as=0 if anatomy is None or not names else anatomy.sizes[names[0]],
    )


def _unfused(anatomy: Anatomy) -> int:
    ops = [i for i in anatomy.optimised.instructions if not isinstance(i.op, ConstantOp)]
    stored = [i for i in ops if not isinstance(i.op, Reindex) or i.op.name in COPIES]
    return sum(anatomy.bytes_of(v) for i in stored for v in i.results if isinstance(v.type, ArrayType))


def _typed(
    role: Role, name: str, t: ArrayType, op: str = "", loc: Loc = NOWHERE, sizes: Mapping[str, int] = MappingProxyType({})
) -> Buffer:
    total = prod(value_of(e, sizes) for e in t.shape) * t.dtype.bytes
    return Buffer(role=role, name=name, type=str(t), bytes=total, op=op, loc=loc)


def _plan_memory(call: Call, anatomy: Anatomy | None) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...], int, int]:
    """Return the results, the temporaries, the arena's bytes, and the bytes of the temporaries without sharing."""
    if anatomy is None:
        return tuple(_results(call, None, None)), (), 0, 0
    program = anatomy.program
    if call.device == "cpu":
        program = prepacked(anatomy.module, default_engine().host().target).functions[0]
    plan = Plan(program)
    results = _results(call, anatomy, plan)
    placement = plan.placement(anatomy.sizes)
    names = anatomy.names(anatomy.program)
    lives = _live_ranges(program, plan)
    kept = _residual_buffers(anatomy, plan)
    temporaries = []
    own = [i.result for i in walk(program.body) if isinstance(i.op, Alloc) and by_value_in(i.result.type.shape)]
    heap = {v: None for v in own if v not in plan.fresh}
    for value, offset in {**placement.offsets, **heap}.items():
        maker = anatomy.producers.get(value)
        first, last = lives[value]
        temporaries.append(
            Buffer(
                role="temporary", name=names.get(value, value.name), type=anatomy.type_text(value), bytes=anatomy.bytes_of(value),
                op=maker.op.name if maker is not None else "", loc=_loc(anatomy, maker), offset=offset, first=first, last=last,
                within=names.get(w, w.name) if (w := placement.within.get(value)) is not None else "",
                part="residual" if value in kept else _part(anatomy, maker),
            )
        )  # fmt: skip
    return tuple(results), tuple(temporaries), placement.arena_bytes, sum(aligned_bytes(b.bytes) for b in temporaries)


def _part(anatomy: Anatomy, maker: Instruction | None) -> Part:
    if maker is None:
        return "scratch"
    return "value" if is_forward(anatomy.loc(maker)) else "cotangent"


def _residual_buffers(anatomy: Anatomy, plan: Plan) -> set[Value]:
    """Return the buffers of residuals: computed by the forward part, and read by a launch of the backward part alone, or by
    the backward part of a launch that has both."""
    read = set(read_backward(anatomy))
    residuals = set()
    for buffer, maker in anatomy.producers.items():
        if maker is not None and maker.loc.file == NUMBERED and is_forward(anatomy.loc(maker)):
            if not read.isdisjoint(anatomy.optimised.instructions[maker.loc.line].results):
                residuals.add(buffer)
    for step in anatomy.steps:
        if step.source is not None and not any(is_forward(anatomy.loc(i)) for i in members(step.source) if anatomy.loc(i)):
            residuals.update(plan.owner[v] for v in step.launch.operands if v in plan.owner)
    return {v for v in residuals if (maker := anatomy.producers.get(v)) is not None and is_forward(anatomy.loc(maker))}


def _stacks(anatomy: Anatomy) -> Iterator[Buffer]:
    names = anatomy.names(anatomy.program)
    stacks = [i.result for i in walk(anatomy.program.body) if isinstance(i.op, Stack)]
    parameters = anatomy.fused.parameters[len(anatomy.fused.parameters) - len(anatomy.abstract.constants) :]
    constants = {p: np.asarray(c, p.type.dtype.numpy) for p, c in zip(parameters, anatomy.abstract.constants, strict=True)}
    for value, length in zip(stacks, lengths(anatomy.fused, anatomy.sizes, constants), strict=True):
        yield Buffer(
            role="stack", name=names[value], type=anatomy.type_text(value), length=length,
            bytes=anatomy.bytes_of(value) * (1 if length is None else length),
        )  # fmt: skip


def _results(call: Call, anatomy: Anatomy | None, plan: Plan | None) -> list[Buffer]:
    """Return the results that the call allocates, in order: those that are an argument, or in the memory of one, are left out."""
    results = []
    sizes = {} if anatomy is None else anatomy.sizes
    names = {} if anatomy is None else anatomy.names(anatomy.program)
    home = {} if anatomy is None else reused_parameters(anatomy.module, call.over)
    outcomes = anatomy.outcomes if anatomy is not None else split_outcomes(call.trace)[1]
    for outcome, value in zip(outcomes, call.trace.function.results, strict=True):
        assert isinstance(value.type, ArrayType)
        if outcome.source == "leaf" or (outcome.source == "result" and outcome.index in home):
            continue
        name, maker = value.name or "argument", None
        if outcome.source in ("result", "repeat") and anatomy is not None and plan is not None:
            shown = anatomy.program.results[outcome.index]
            maker = anatomy.producers.get(plan.owner[shown])
            name = names[shown]
        op = maker.op.name if maker is not None else ""
        results.append(_typed("result", name, value.type, op, _loc(anatomy, maker), sizes))
    return results


def _loc(anatomy: Anatomy | None, maker: Instruction | None) -> Loc:
    return NOWHERE if anatomy is None or maker is None else unmarked(anatomy.loc(maker))


def _live_ranges(program: Function, plan: Plan) -> dict[Value, tuple[int, int]]:
    """Return the first and the last launch in the live range of each buffer that the program allocates."""
    lives: dict[Value, tuple[int, int]] = {}
    count = 0
    for i in walk(program.body):
        match i.op:
            case Alloc():
                lives[i.result] = (count, -1)
            case Launch():
                count += 1
            case Free() if i.operands[0] in plan.owner:
                owner = plan.owner[i.operands[0]]
                lives[owner] = (lives[owner][0], count - 1)
    return {v: (first, last if last >= 0 else count - 1) for v, (first, last) in lives.items()}
