"""``pb.find_nan``: where the first value that is not finite comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec

import numpy as np

from pullback.debugging.running import Array, Run, examine, run_straight
from pullback.inspection.report import Report, counted, place
from pullback.ir.interpret import interpret
from pullback.ir.ops.create import Constant
from pullback.ir.ops.reindex import Reindex
from pullback.ir.structure import NOWHERE, Block, Function, Instruction, Loc, Value
from pullback.tracer.source import line_text
from pullback.tree import places

P = ParamSpec("P")
Kind = Literal["nan", "inf"]

# What stands for a value that is not finite when an instruction is run again without it: no op is special there.
ORDINARY = 0.640625


@dataclass(frozen=True, kw_only=True)
class Operand:
    """What an instruction read. ``value`` is the element behind the first bad one, None where there is no single one;
    ``smallest`` and ``largest`` are over the finite elements, None if there are none."""

    name: str
    type: str
    value: Any
    smallest: Any
    largest: Any
    non_finite: int

    def __str__(self) -> str:
        parts = [] if self.value is None else [f"{self.value!s} there"]
        if self.smallest is not None and self.type.partition("[")[2] != "]":
            parts.append(f"from {self.smallest!s} to {self.largest!s}")
        if self.non_finite:
            parts.append(f"{self.non_finite:,} not finite")
        return f"{self.name}, {self.type}: {', '.join(parts) or 'empty'}"


@dataclass(frozen=True, kw_only=True)
class NonFinite:
    """A place where a value that is not finite first appears.

    ``op``: the op that made it of operands without one, empty where an argument or a value from outside has it already, which
    ``name`` says. ``note``: "pullback(op)" where the gradient of an op made it. ``index``: of the first bad element, of ``count``
    among ``size``. ``source``: the user's line ``line`` of ``file``.
    """

    kind: Kind
    op: str
    note: str
    name: str
    file: str
    line: int
    source: str
    index: tuple[int, ...]
    value: Any
    count: int
    size: int
    operands: tuple[Operand, ...]

    @property
    def where(self) -> str:
        """The op with its place, or the argument."""
        made = f"{self.note}, {self.op}" if self.note else self.op
        at = place(Loc(self.file, self.line))
        return f"{made} at {at}" if made and at else made or self.name

    def lines(self) -> list[str]:
        """The text: what, the source line, the operands."""
        text = f"{self.where} {'gives' if self.op else 'has'} {self.value!s}"
        if self.size > 1:
            at = ", ".join(map(str, self.index))
            text += f" at [{at}] ({self.count:,} of {counted(self.size, 'value')})"
        return [text, *([f"    {self.source}"] if self.source else []), *(f"  {operand}" for operand in self.operands)]


@dataclass(frozen=True, kw_only=True, repr=False)
class NonFiniteReport(Report):
    """What ``find_nan`` found; false if every result is finite.

    ``first`` is the earliest place in program order, ``others`` are further ones: independent, or a NaN that the first led to.
    ``results`` names the results that are not finite.
    """

    function: str
    first: NonFinite | None
    others: tuple[NonFinite, ...]
    results: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.first is not None

    def __str__(self) -> str:
        if self.first is None:
            return f"{self.function}: all finite"
        lines = [f"{self.function}: {', '.join(self.results)} not finite", *self.first.lines()]
        for other in self.others:
            lines += ["also", *other.lines()]
        return "\n".join(lines)


def find_nan(f: Callable[P, Any], *, inf: bool = True) -> Callable[P, NonFiniteReport]:
    """A function that runs a call of ``f`` and reports where the first value that is not finite comes from.

        print(pb.find_nan(pb.grad(loss))(w, x, y))

    ``f`` is any function or transformed function. The call is traced and run by the interpreter, one instruction at a time,
    forward and backward and through each turn of a loop, as it is before it is optimised; all its intermediate values are in
    memory at once. From each result that is NaN or infinite the report follows the values that made it so, to an instruction
    that made it of ordinary operands: its op, or "pullback(op)" for a gradient, the line of the source, and the operands there;
    or to the argument that had it already. What no result depends on is not reported, as in a branch of ``where`` that is not
    taken, nor are infinities that the program writes itself where a NaN is made of them. ``inf``: False leaves infinite results
    out, which NumPy gives too.

    The report's ``str`` is its text, its fields say the same; it is false if all results are finite. Raises what the call
    raises.
    """

    def look(*args: P.args, **kwargs: P.kwargs) -> NonFiniteReport:
        call = examine(f, args, kwargs)
        run = run_straight(call)
        search = _Search(run, inf)
        bad = [v for v in run.function.results if search.is_bad(v, "nan") or (inf and search.is_bad(v, "inf"))]
        found = search.events(dict.fromkeys(bad))
        names = [f"result{at}" for at in places(call.trace.out_tree, "")]
        names += [f"argument {call.trace.labels[k]} after the call" for k in call.trace.writes]
        names += [f"{given.describe} after the call" for given in call.trace.outside_writes]
        is_bad = set(bad)
        return NonFiniteReport(
            function=call.title,
            first=found[0] if found else None,
            others=tuple(found[1:]),
            results=tuple(n for n, v in zip(names, run.function.results, strict=True) if v in is_bad),
        )

    return look


class _Search:
    def __init__(self, run: Run, inf: bool) -> None:
        self.run = run
        self.kinds: tuple[Kind, ...] = ("nan", "inf") if inf else ("nan",)
        self.position = {i: k for k, i in enumerate(run.function.instructions)}

    def is_bad(self, value: Value, kind: Kind) -> bool:
        return bool(_bad(self.run.values[value], kind).any())

    def events(self, results: Iterable[Value]) -> list[NonFinite]:
        """Where bad results come from, in program order."""
        origins: dict[tuple[Value, Kind], None] = {}
        for value in results:
            for kind in self.kinds:
                if self.is_bad(value, kind):
                    origins.update(dict.fromkeys(self.origins(value, kind)))
        ordered = sorted(origins, key=lambda found: self.place(found[0]))
        return [self.event(value, kind) for value, kind in ordered]

    def place(self, value: Value) -> int:
        made = self.run.maker.get(value)
        return -1 if made is None else self.position[made]

    def origins(self, value: Value, kind: Kind) -> list[tuple[Value, Kind]]:
        """The values that first were NaN or infinite on the way to one, and the infinities that a NaN was made of.

        Where they are constants alone, the values that took them from there.
        """
        found: list[tuple[Value, Kind]] = []
        taken: list[tuple[Value, Kind]] = []
        seen: set[tuple[Value, Kind]] = set()
        stack: list[tuple[Value, Kind, Value]] = [(value, kind, value)]
        while stack:
            value, kind, reader = stack.pop()
            if (value, kind) in seen:
                continue
            seen.add((value, kind))
            made = self.run.maker.get(value)
            if made is not None and isinstance(made.op, Constant):
                taken.append((reader, kind))
                continue
            causes = [] if made is None else self.causes(made, value, kind)
            if causes:
                is_view = made is not None and isinstance(made.op, Reindex)
                stack += [(v, kind, reader if is_view else value) for v in causes]
                continue
            found.append((value, kind))
            if kind == "nan" and "inf" in self.kinds and made is not None:
                stack += [(v, "inf", value) for v in made.operands if self.is_bad(v, "inf")]
        return found or taken

    def causes(self, made: Instruction, result: Value, kind: Kind) -> list[Value]:
        """The operands that made a result bad; none if the instruction made it of ordinary ones."""
        bad = [v for v in dict.fromkeys(made.operands) if self.is_bad(v, kind)]
        if not bad or self.again(made, result, kind, bad):
            return []
        alone = [v for v in bad if self.again(made, result, kind, [other for other in bad if other is not v])]
        return alone or bad

    def again(self, made: Instruction, result: Value, kind: Kind, without: Sequence[Value]) -> bool:
        """Whether a result is bad when an instruction reads ordinary numbers in place of the bad ones of some operands."""
        parameters = tuple(dict.fromkeys(made.operands))
        values = [self.run.values[v] for v in parameters]
        cleaned = [
            np.where(_bad(x, kind), np.asarray(ORDINARY, x.dtype), x) if v in without else x
            for v, x in zip(parameters, values, strict=True)
        ]
        single = Function("again", Block(parameters, (made,), made.results))
        found = interpret(single, *cleaned, effects=False)[made.results.index(result)]
        return bool(_bad(found, kind).any())

    def event(self, value: Value, kind: Kind) -> NonFinite:
        array = self.run.values[value]
        made = self.run.maker.get(value)
        loc = NOWHERE if made is None else made.loc
        mask = _bad(array, kind)
        index = tuple(int(k) for k in np.argwhere(mask)[0])
        operands = () if made is None else tuple(self.operand(v, array, index) for v in made.operands)
        return NonFinite(
            kind=kind,
            op="" if made is None else made.op.name,
            note=loc.note,
            name=self.run.labels.get(value, ""),
            file=loc.file,
            line=loc.line,
            source=line_text(loc.file, loc.line).strip() if loc else "",
            index=index,
            value=array[index],
            count=int(mask.sum()),
            size=array.size,
            operands=operands,
        )

    def operand(self, value: Value, result: Array, index: tuple[int, ...]) -> Operand:
        array = self.run.values[value]
        there = array[index] if array.shape == result.shape else array.flat[0] if array.size == 1 else None
        finite = array[~(_bad(array, "nan") | _bad(array, "inf"))]
        return Operand(
            name=self.run.title(value),
            type=str(value.type),
            value=there,
            smallest=finite.min() if finite.size else None,
            largest=finite.max() if finite.size else None,
            non_finite=array.size - finite.size,
        )


def _bad(array: Any, kind: Kind) -> Any:
    """Which elements are NaN, or infinite."""
    found = np.asarray(array)
    if found.dtype.kind in "biu":
        return np.zeros(found.shape, bool)
    return np.isnan(found) if kind == "nan" else np.isinf(found)
