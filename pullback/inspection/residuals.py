"""residuals: the values of the forward part that the backward part of a gradient reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from pullback.inspection.provenance import Anatomy, dissect, is_forward, makers_of, members, plain
from pullback.ir.core.structure import Instruction, Loc, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import Gradient
from pullback.ir.passes.transforms.min_cut import MOST_EXACT
from pullback.programs.call import Call
from pullback.programs.report import HARD_SPACE, Report, counted, paragraph, place, table

Kept = Literal["memory", "kernel", "recomputed"]
WORDS = {"memory": "in memory", "kernel": "within a kernel", "recomputed": "computed again"}


@dataclass(frozen=True, kw_only=True)
class Residual:
    """One value. ``name`` is its name in the stage simplify, ``op`` and ``loc`` say what made it, ``readers`` which instructions
    of the backward part read it, as places with the note "pullback(op)".

    ``kept``: "memory" (stored by one kernel and loaded by another, or a result), "kernel" (it lives within one kernel) or
    "recomputed" (each kernel that reads it computes it again). ``why`` says why a value in memory is not computed again: the kind
    of op that made it, what else needs it in memory, or "fewest bytes", the choice of the minimum cut.
    """

    name: str
    type: str
    bytes: int
    op: str
    loc: Loc
    readers: tuple[Loc, ...]
    kept: Kept
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class ReadInput:
    """An input of the program that the backward part reads: kept by the caller, at no cost."""

    name: str
    type: str
    bytes: int
    readers: tuple[Loc, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Residuals(Report):
    """What the backward part of ``function`` reads of the forward part, after all passes.

    Views of whole values (a transpose, a broadcast) count as what they show; constants are no residuals. ``algorithm`` says how
    it was chosen what is kept. The text has one row for values that are alike.
    """

    function: str
    has_gradient: bool
    residuals: tuple[Residual, ...]
    inputs: tuple[ReadInput, ...]
    algorithm: str = ""

    @property
    def total_bytes(self) -> int:
        """The bytes of all residuals."""
        return sum(r.bytes for r in self.residuals)

    @property
    def stored_bytes(self) -> int:
        """The bytes of the residuals that are in memory."""
        return sum(r.bytes for r in self.residuals if r.kept == "memory")

    @property
    def headline(self) -> str:
        """The text's first line."""
        if not self.has_gradient:
            return f"{self.function}: no gradient is taken, so nothing is kept for one"
        count = counted(len(self.residuals), "residual")
        return f"{self.function}: {count}, {self.total_bytes:,} bytes, of which {self.stored_bytes:,} in memory"

    def __str__(self) -> str:
        lines = paragraph(self.headline, "")
        if self.residuals:
            header = ("value", "type", "bytes", "made by", "kept", "read by")
            alike: dict[tuple[str, ...], list[Residual]] = {}
            for r in self.residuals:
                where = WORDS[r.kept] + (f": {r.why}" if r.why else "")
                key = (r.type, f"{r.op} {place(r.loc)}".strip(), where, _readers(r.readers))
                alike.setdefault(key, []).append(r)
            sums = [(sum(r.bytes for r in same), _names(same), key) for key, same in alike.items()]
            rows = [(names, key[0], f"{total:,}", *key[1:]) for total, names, key in sorted(sums, key=lambda s: -s[0])]
            lines += table(header, rows, right=("bytes",))
        if self.inputs:
            lines += ["inputs that the backward part reads, which the caller keeps:"]
            lines += table(("input", "type", "read by"), [(f"%{i.name}", i.type, _readers(i.readers)) for i in self.inputs])
        if self.residuals:
            lines += [f"chosen by: {self.algorithm}"]
        return "\n".join(lines)


def _names(same: list[Residual]) -> str:
    """The name of the first value, and how many more are like it."""
    return f"%{same[0].name}" + (f" + {len(same) - 1:,}" if len(same) > 1 else "")


def _readers(locs: tuple[Loc, ...]) -> str:
    return ", ".join(dict.fromkeys(f"{loc.note} {place(loc)}".strip().replace(" ", HARD_SPACE) for loc in locs))


def residuals(call: Call) -> Residuals:
    """The report on a call."""
    title = call.title
    if not any(isinstance(i.op, Gradient) for i in walk(call.trace.function.body)):
        return Residuals(function=title, has_gradient=False, residuals=(), inputs=())
    anatomy = dissect(call)
    if anatomy is None:
        return Residuals(function=title, has_gradient=True, residuals=(), inputs=())
    return _found(title, anatomy)


def _found(title: str, anatomy: Anatomy) -> Residuals:
    function = anatomy.optimised
    producer = {v: i for i in function.instructions for v in i.results}
    readers = read_backward(anatomy)
    names = anatomy.names(function)
    kept, why = _kept(anatomy), _why(anatomy)
    variable = _variable(anatomy)
    found, inputs = [], []
    for value, locs in readers.items():
        if value not in variable:
            continue
        made = producer.get(value)
        common = (anatomy.type_text(value), anatomy.bytes_of(value), tuple(dict.fromkeys(locs)))
        if made is None:
            inputs.append(ReadInput(name=names[value], type=common[0], bytes=common[1], readers=common[2]))
        else:
            found.append(
                Residual(
                    name=names[value], type=common[0], bytes=common[1], readers=common[2], op=made.op.name,
                    loc=plain(anatomy.loc(made)), kept=(where := kept(made)), why=why(made) if where == "memory" else "",
                )
            )  # fmt: skip
    algorithm = "minimum cut" if anatomy.saving.is_exact else f"minimum cut, approximate above {MOST_EXACT:,} values"
    return Residuals(function=title, has_gradient=True, residuals=tuple(found), inputs=tuple(inputs), algorithm=algorithm)


def read_backward(anatomy: Anatomy) -> dict[Value, list[Loc]]:
    """The values of ``optimised`` of the forward part that the backward part reads, and the places where it does."""
    function = anatomy.optimised
    read = _needed({v: i for i in function.instructions for v in i.results}, anatomy)
    readers: dict[Value, list[Loc]] = {}
    for instruction in function.instructions:
        loc = anatomy.loc(instruction)
        if is_forward(loc) or isinstance(instruction.op, Reindex):
            continue
        for value in instruction.operands:
            for root in read(value):
                readers.setdefault(root, []).append(plain(loc))
    return readers


def _variable(anatomy: Anatomy) -> set[Value]:
    """The values that depend on an input."""
    function = anatomy.optimised
    found = set(function.parameters[: len(function.parameters) - len(anatomy.found.constants)])
    for instruction in function.instructions:
        if any(v in found for v in instruction.operands):
            found.update(instruction.results)
    return found


def _needed(producer: dict[Value, Instruction], anatomy: Anatomy) -> Callable[[Value], Iterator[Value]]:
    """What a reader of a value needs of the forward part: the value, and what is kept to compute it again."""
    again = {i.loc.line for i in anatomy.saving.again.values()}

    def needed(value: Value) -> Iterator[Value]:
        stack, seen = [value], set[Value]()
        while stack:
            root = _shown(stack.pop(), producer, anatomy)
            made = producer.get(root)
            if root in seen or (made is not None and not is_forward(anatomy.loc(made))):
                continue
            is_computed = made is not None and made.loc.line in again
            if not seen or not is_computed:
                yield root
            seen.add(root)
            if made is not None and is_computed:
                stack += made.operands

    return needed


def _shown(value: Value, producer: dict[Value, Instruction], anatomy: Anatomy) -> Value:
    """The value of which a view shows every element; a part of a value is a value of its own."""
    while (made := producer.get(value)) is not None and isinstance(made.op, Reindex) and len(made.operands) == 1:
        if anatomy.bytes_of(value) < anatomy.bytes_of(made.operands[0]):
            break
        value = made.operands[0]
    return value


def _why(anatomy: Anatomy) -> Callable[[Instruction], str]:
    """Why the result of an instruction of ``optimised`` is stored: what the choice says, or the kind of op."""
    known = {i.loc.line: text for i, text in anatomy.saving.why.items()}
    return lambda made: known.get(made.loc.line) or type(made.op).__name__.lower()


def _kept(anatomy: Anatomy) -> Callable[[Instruction], Kept]:
    """Where the result of an instruction of ``optimised`` is, seen from the fused program."""
    stored: set[int] = set()
    times: dict[int, int] = {}
    for source in anatomy.fused.instructions:
        stored.update(i.loc.line for i in makers_of(source) if i is not None)
        for i in members(source):
            times[i.loc.line] = times.get(i.loc.line, 0) + 1

    def kept(made: Instruction) -> Kept:
        if made.loc.line in stored:
            return "memory"
        return "recomputed" if times.get(made.loc.line, 0) > 1 else "kernel"

    return kept
