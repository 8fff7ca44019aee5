"""The residuals report: the values of the forward part that the backward part of a gradient reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from pullback.inspection.provenance import Anatomy, dissect, is_forward, members, producers_of, unmarked
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction, Loc, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import Gradient
from pullback.ir.passes.transforms.min_cut import MOST_EXACT
from pullback.programs.call import Call
from pullback.programs.report import HARD_SPACE, Report, counted, location, paragraph, table

Kept = Literal["memory", "kernel", "recomputed"]
WORDS = {"memory": "in memory", "kernel": "within a kernel", "recomputed": "computed again"}
"""The text of each kind of storage."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Describe one residual: a value of the forward part that the backward part reads.

    Attributes
    ----------
    name : str
        Its name in the stage simplify.
    type : str
        Its type.
    bytes : int
        Its size.
    op : str
        The op that computed it.
    loc : Loc
        The user's line of that op.
    readers : tuple of Loc
        The locations of the instructions of the backward part that read it, with the note "pullback(op)".
    kept : str
        "memory" (stored by one kernel and loaded by another, or a result), "kernel" (it lives within one kernel) or "recomputed"
        (each kernel that reads it recomputes it).
    why : str
        Why a value in memory is not recomputed: the kind of op that computed it, what else needs it in memory, or "fewest bytes",
        the choice of the minimum cut.

    See Also
    --------
    Residuals : Holds those of a call.

    Examples
    --------
    >>> report = pb.grad(lambda w, x: np.sum(np.tanh(x @ w))).residuals(np.ones((3, 2)), np.ones((5, 3)))
    >>> [(r.op, r.type, r.kept) for r in report.residuals]
    [('contract', 'f64[5,2]', 'memory')]
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
    """Describe an input of the program that the backward part reads: kept by the caller, at no cost.

    Attributes
    ----------
    name : str
        Its name.
    type : str
        Its type.
    bytes : int
        Its size.
    readers : tuple of Loc
        The lines that read it.

    See Also
    --------
    Residuals : Holds those of a call.

    Examples
    --------
    >>> report = pb.grad(lambda w, x: np.sum(np.tanh(x @ w))).residuals(np.ones((3, 2)), np.ones((5, 3)))
    >>> [(i.name, i.type) for i in report.inputs]
    [('x', 'f64[5,3]')]
    """

    name: str
    type: str
    bytes: int
    readers: tuple[Loc, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Residuals(Report):
    """Hold the values that the backward part of a gradient reads from the forward part, after all passes.

    Views of entire values (a transpose, a broadcast) count as the value viewed; constants are not residuals. The text has one row
    for equal values.

    Attributes
    ----------
    function : str
        The function with its transforms.
    has_gradient : bool
        Whether there is a backward part.
    residuals : tuple of Residual
        The values.
    inputs : tuple of ReadInput
        The inputs that the backward part reads.
    algorithm : str
        The method by which the stored values were chosen.
    total_bytes : int
        The bytes of all residuals.
    stored_bytes : int
        The bytes of those in memory.
    headline : str
        The first line of the text.

    See Also
    --------
    Residual : One value.

    Examples
    --------
    >>> report = pb.grad(lambda w, x: np.sum(np.tanh(x @ w))).residuals(np.ones((3, 2)), np.ones((5, 3)))
    >>> report.has_gradient, report.stored_bytes <= report.total_bytes
    (True, True)
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
        """The bytes of the residuals in memory."""
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
                key = (r.type, f"{r.op} {location(r.loc)}".strip(), where, _readers(r.readers))
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
    """Return the name of the first value, and the number of further equal ones."""
    return f"%{same[0].name}" + (f" + {len(same) - 1:,}" if len(same) > 1 else "")


def _readers(locs: tuple[Loc, ...]) -> str:
    return ", ".join(dict.fromkeys(f"{loc.note} {location(loc)}".strip().replace(" ", HARD_SPACE) for loc in locs))


def residuals(call: Call) -> Residuals:
    """Return the residuals report of a call."""
    title = call.title
    if not any(isinstance(i.op, Gradient) for i in walk(call.trace.function.body)):
        return Residuals(function=title, has_gradient=False, residuals=(), inputs=())
    anatomy = dissect(call)
    if anatomy is None:
        return Residuals(function=title, has_gradient=True, residuals=(), inputs=())
    return _report(title, anatomy)


def _report(title: str, anatomy: Anatomy) -> Residuals:
    function = anatomy.optimised
    producer = {v: i for i in function.instructions for v in i.results}
    readers = read_backward(anatomy)
    names = anatomy.names(function)
    kept, why = _storage_of(anatomy), _reason_of(anatomy)
    variable = _input_dependent(anatomy)
    stored, inputs = [], []
    for value, locs in readers.items():
        if value not in variable:
            continue
        maker = producer.get(value)
        common = (anatomy.type_text(value), anatomy.bytes_of(value), tuple(dict.fromkeys(locs)))
        if maker is None:
            inputs.append(ReadInput(name=names[value], type=common[0], bytes=common[1], readers=common[2]))
        else:
            stored.append(
                Residual(
                    name=names[value], type=common[0], bytes=common[1], readers=common[2], op=maker.op.name,
                    loc=unmarked(anatomy.loc(maker)), kept=(where := kept(maker)), why=why(maker) if where == "memory" else "",
                )
            )  # fmt: skip
    algorithm = "minimum cut" if anatomy.saving.is_exact else f"minimum cut, approximate above {MOST_EXACT:,} values"
    return Residuals(function=title, has_gradient=True, residuals=tuple(stored), inputs=tuple(inputs), algorithm=algorithm)


def read_backward(anatomy: Anatomy) -> dict[Value, list[Loc]]:
    """Return the values of the forward part of ``optimised`` that the backward part reads, with the locations of the readers."""
    function = anatomy.optimised
    read = _reads_of({v: i for i in function.instructions for v in i.results}, anatomy)
    readers: dict[Value, list[Loc]] = {}
    for instruction in function.instructions:
        loc = anatomy.loc(instruction)
        if is_forward(loc) or isinstance(instruction.op, Reindex):
            continue
        for value in instruction.operands:
            for root in read(value):
                readers.setdefault(root, []).append(unmarked(loc))
    return readers


def _input_dependent(anatomy: Anatomy) -> set[Value]:
    """Return the values that depend on an input."""
    function = anatomy.optimised
    dependent = set(function.parameters[: len(function.parameters) - len(anatomy.abstract.constants)])
    for instruction in function.instructions:
        if any(v in dependent for v in instruction.operands):
            dependent.update(instruction.results)
    return dependent


def _reads_of(producer: dict[Value, Instruction], anatomy: Anatomy) -> Callable[[Value], Iterator[Value]]:
    """Return a function that yields what a reader of a value needs of the forward part: the value, and what is kept to
    recompute it."""
    recomputed = {i.loc.line for i in anatomy.saving.recomputed.values()}

    def needed(value: Value) -> Iterator[Value]:
        stack, seen = [value], set[Value]()
        while stack:
            root = _viewed_value(stack.pop(), producer, anatomy)
            maker = producer.get(root)
            if root in seen or (maker is not None and not is_forward(anatomy.loc(maker))):
                continue
            is_computed = maker is not None and maker.loc.line in recomputed
            if not seen or not is_computed:
                yield root
            seen.add(root)
            if maker is not None and is_computed:
                stack += maker.operands

    return needed


def _viewed_value(value: Value, producer: dict[Value, Instruction], anatomy: Anatomy) -> Value:
    """Return the value of which a view contains every element; a part of a value counts as a value of its own."""
    while (maker := producer.get(value)) is not None and isinstance(maker.op, Reindex) and len(maker.operands) == 1:
        if anatomy.bytes_of(value) < anatomy.bytes_of(maker.operands[0]):
            break
        value = maker.operands[0]
    return value


def _reason_of(anatomy: Anatomy) -> Callable[[Instruction], str]:
    """Return a function that says why the result of an instruction of ``optimised`` is stored: the reason of the choice, or
    the kind of op."""
    reasons = {i.loc.line: text for i, text in anatomy.saving.why.items()}
    return lambda maker: reasons.get(maker.loc.line) or type(maker.op).__name__.lower()


def _storage_of(anatomy: Anatomy) -> Callable[[Instruction], Kept]:
    """Return a function that says where the fused program keeps the result of an instruction of ``optimised``."""
    stored: set[int] = set()
    times: dict[int, int] = {}
    for source in anatomy.fused.instructions:
        stored.update(i.loc.line for i in producers_of(source) if i is not None)
        for i in members(source):
            times[i.loc.line] = times.get(i.loc.line, 0) + 1

    def kept(maker: Instruction) -> Kept:
        if maker.loc.line in stored:
            return "memory"
        return "recomputed" if times.get(maker.loc.line, 0) > 1 else "kernel"

    return kept
