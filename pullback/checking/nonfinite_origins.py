"""Where values that are not finite come from, in a run whose values are all known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pullback.checking.interpreted_run import Array, Run
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reindex import Reindex
from pullback.programs.report import counted, place
from pullback.tracer.user_code.source import line_text

Kind = Literal["nan", "inf", "range"]

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
    among ``size``. ``source``: the user's line ``line`` of ``file``. ``turn``: in which turns of loops, the outermost first,
    counted from 0; empty outside of loops. A ``kind`` of "range" is a number that arithmetic on integers has no value for.
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
    turn: tuple[int, ...] = ()

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
        text += ", out of range" if self.kind == "range" else ""
        text += f", in turn {', '.join(map(str, self.turn))}" if self.turn else ""
        return [text, *([f"    {self.source}"] if self.source else []), *(f"  {operand}" for operand in self.operands)]


class Search:
    """``inf``: whether infinities are looked for too."""

    def __init__(self, run: Run, inf: bool) -> None:
        self.run = run
        self.kinds: tuple[Kind, ...] = ("nan", "inf") if inf else ("nan",)
        self.position = {i: k for k, i in enumerate(run.function.instructions)}

    def is_bad(self, value: Value, kind: Kind) -> bool:
        return bool(is_kind(self.run.values[value], kind).any())

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
            np.where(is_kind(x, kind), np.asarray(ORDINARY, x.dtype), x) if v in without else x
            for v, x in zip(parameters, values, strict=True)
        ]
        single = Function("again", Block(parameters, (made,), made.results))
        found = interpret(single, *cleaned, effects=False)[made.results.index(result)]
        return bool(is_kind(found, kind).any())

    def event(self, value: Value, kind: Kind, mask: Array | None = None) -> NonFinite:
        """What there is to say of a value. ``mask``: of its elements that are meant, if not all of the kind."""
        array = self.run.values[value]
        made = self.run.maker.get(value)
        loc = NOWHERE if made is None else made.loc
        mask = is_kind(array, kind) if mask is None else mask
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
        finite = array[~(is_kind(array, "nan") | is_kind(array, "inf"))]
        return Operand(
            name=self.run.title(value),
            type=str(value.type),
            value=there,
            smallest=finite.min() if finite.size else None,
            largest=finite.max() if finite.size else None,
            non_finite=array.size - finite.size,
        )


def is_kind(array: Any, kind: Kind) -> Any:
    """Which elements are NaN, or infinite."""
    found = np.asarray(array)
    if found.dtype.kind in "biu":
        return np.zeros(found.shape, bool)
    return np.isnan(found) if kind == "nan" else np.isinf(found)
