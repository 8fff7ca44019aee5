"""Trace values that are not finite back to their origins, in a run whose values are all available."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from pullback.checking.interpreted_run import Array, Run
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reindex import Reindex
from pullback.programs.report import counted, location
from pullback.tracer.user_code.source import line_text

Kind = Literal["nan", "inf", "range"]

# Replaces non-finite values when an instruction is run again without them: no op has a special case at it.
ORDINARY = 0.640625


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand of an instruction that gave a bad value.

    ``value`` is the element at the index of the first bad one, None if there is no single one; ``smallest`` and ``largest``
    are over the finite elements, None if there are none; ``non_finite`` counts the other elements.
    """

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
    """The location where a value that is not finite first appears.

    ``op``: the op that computed it from finite operands; empty if an argument or a captured value (``name``) already contains
    it. ``note``: "pullback(op)" if the gradient of an op computed it. ``index``: the first bad element; ``count`` of ``size``
    elements are bad. ``source``: the user's line ``line`` of ``file``. ``turn``: the iterations of the enclosing loops,
    outermost first, from 0; empty outside loops. A ``kind`` of "range" is a value for which integer arithmetic is undefined.
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
        """Return the op with its source location, or the argument."""
        origin = f"{self.note}, {self.op}" if self.note else self.op
        at = location(Loc(self.file, self.line))
        return f"{origin} at {at}" if origin and at else origin or self.name

    def lines(self) -> list[str]:
        """Return the lines of the report: the value, the source line, the operands."""
        text = f"{self.where} {'gives' if self.op else 'has'} {self.value!s}"
        if self.size > 1:
            at = ", ".join(map(str, self.index))
            text += f" at [{at}] ({self.count:,} of {counted(self.size, 'value')})"
        text += ", out of range" if self.kind == "range" else ""
        text += f", in turn {', '.join(map(str, self.turn))}" if self.turn else ""
        return [text, *([f"    {self.source}"] if self.source else []), *(f"  {operand}" for operand in self.operands)]


class Search:
    """A search for the origins of NaNs and, if ``inf`` is set, of infinities in a run."""

    def __init__(self, run: Run, inf: bool) -> None:
        self.run = run
        self.kinds: tuple[Kind, ...] = ("nan", "inf") if inf else ("nan",)
        self.position = {i: k for k, i in enumerate(run.function.instructions)}

    def is_bad(self, value: Value, kind: Kind) -> bool:
        return bool(is_kind(self.run.values[value], kind).any())

    def events(self, results: Iterable[Value]) -> list[NonFinite]:
        """Return the origins of the bad values in the results, in program order."""
        origins: dict[tuple[Value, Kind], None] = {}
        for value in results:
            for kind in self.kinds:
                if self.is_bad(value, kind):
                    origins.update(dict.fromkeys(self.origins(value, kind)))
        ordered = sorted(origins, key=lambda item: self.position_of(item[0]))
        return [self.event(value, kind) for value, kind in ordered]

    def position_of(self, value: Value) -> int:
        """Return the position of the instruction that computed a value; -1 for a parameter."""
        instruction = self.run.producer.get(value)
        return -1 if instruction is None else self.position[instruction]

    def origins(self, value: Value, kind: Kind) -> list[tuple[Value, Kind]]:
        """Return the values that first became NaN or infinite on the way to ``value``, and the infinities that a NaN was
        computed from.

        If all of these are constants, returns the values that read the constants instead.
        """
        sources: list[tuple[Value, Kind]] = []
        readers: list[tuple[Value, Kind]] = []
        seen: set[tuple[Value, Kind]] = set()
        stack: list[tuple[Value, Kind, Value]] = [(value, kind, value)]
        while stack:
            value, kind, reader = stack.pop()
            if (value, kind) in seen:
                continue
            seen.add((value, kind))
            instruction = self.run.producer.get(value)
            if instruction is not None and isinstance(instruction.op, Constant):
                readers.append((reader, kind))
                continue
            causes = [] if instruction is None else self.causes(instruction, value, kind)
            if causes:
                is_view = instruction is not None and isinstance(instruction.op, Reindex)
                stack += [(v, kind, reader if is_view else value) for v in causes]
                continue
            sources.append((value, kind))
            if kind == "nan" and "inf" in self.kinds and instruction is not None:
                stack += [(v, "inf", value) for v in instruction.operands if self.is_bad(v, "inf")]
        return sources or readers

    def causes(self, instruction: Instruction, result: Value, kind: Kind) -> list[Value]:
        """Return the operands that made a result bad; none if the instruction is bad on ordinary operands."""
        bad = [v for v in dict.fromkeys(instruction.operands) if self.is_bad(v, kind)]
        if not bad or self.is_bad_without(instruction, result, kind, bad):
            return []
        needed = [v for v in bad if self.is_bad_without(instruction, result, kind, [other for other in bad if other is not v])]
        return needed or bad

    def is_bad_without(self, instruction: Instruction, result: Value, kind: Kind, without: Sequence[Value]) -> bool:
        """Return whether a result is still bad when the bad elements of the operands ``without`` are replaced by an ordinary
        number."""
        parameters = tuple(dict.fromkeys(instruction.operands))
        values = [self.run.values[v] for v in parameters]
        cleaned = [
            np.where(is_kind(x, kind), np.asarray(ORDINARY, x.dtype), x) if v in without else x
            for v, x in zip(parameters, values, strict=True)
        ]
        single = Function("again", Block(parameters, (instruction,), instruction.results))
        repeated = interpret(single, *cleaned, effects=False)[instruction.results.index(result)]
        return bool(is_kind(repeated, kind).any())

    def event(self, value: Value, kind: Kind, mask: Array | None = None) -> NonFinite:
        """Return the report on a value. ``mask``: the elements that are reported; all of the kind by default."""
        array = self.run.values[value]
        instruction = self.run.producer.get(value)
        loc = NOWHERE if instruction is None else instruction.loc
        mask = is_kind(array, kind) if mask is None else mask
        index = tuple(int(k) for k in np.argwhere(mask)[0])
        operands = () if instruction is None else tuple(self.operand(v, array, index) for v in instruction.operands)
        return NonFinite(
            kind=kind,
            op="" if instruction is None else instruction.op.name,
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
        element = array[index] if array.shape == result.shape else array.flat[0] if array.size == 1 else None
        finite = array[~(is_kind(array, "nan") | is_kind(array, "inf"))]
        return Operand(
            name=self.run.title(value),
            type=str(value.type),
            value=element,
            smallest=finite.min() if finite.size else None,
            largest=finite.max() if finite.size else None,
            non_finite=array.size - finite.size,
        )


def is_kind(array: Any, kind: Kind) -> Any:
    """Return a mask of the elements that are NaN, or that are infinite."""
    values = np.asarray(array)
    if values.dtype.kind in "biu":
        return np.zeros(values.shape, bool)
    return np.isnan(values) if kind == "nan" else np.isinf(values)
