"""Partial results in CUDA C: variables in which a thread accumulates the values that a loop combines, and their totals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from pullback.codegen.cuda.source.names import Names, literal, type_name
from pullback.codegen.cuda.source.packs import Packing
from pullback.codegen.cuda.source.scalar_ops import combine_expression, identity
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, DType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import combined_values


@dataclass(frozen=True)
class PartialResult:
    """A partial result: its combiner and the variable that accumulates it."""

    name: str
    text: str
    dtype: DType

    @property
    def is_pair(self) -> bool:
        return self.name.startswith("arg")

    @property
    def is_sum(self) -> bool:
        return self.name == "add" and self.dtype.is_float


class PartialResultText(ABC):
    """Writes the accumulation of partial results."""

    names: Names
    texts: dict[Value, str]
    packing: Packing | None

    @abstractmethod
    def line(self, text: str) -> None:
        """Append a line to the function."""

    @abstractmethod
    def value(self, value: Value) -> str:
        """Return the C expression of a value."""

    @abstractmethod
    def let(self, value: Value, text: str) -> None:
        """Declare a variable for a value."""

    def accumulators(self, combine: Sequence[str], results: Sequence[Value]) -> list[PartialResult]:
        """Declare variables that accumulate the values combined by iterations."""
        parts = []
        for name, values in combined_values(combine, list(results)):
            dtype = values[0].type.dtype
            part = PartialResult(name, self.names.combined(values[0], name, "part"), dtype)
            t = type_name(dtype)
            if part.is_pair:
                self.line(f"pb_best<{t}> {part.text} = {{{identity(name, dtype)}, -1}};")
            elif part.is_sum:
                self.line(f"pb_sum<{t}> {part.text};")
            else:
                self.line(f"{t} {part.text} = {identity(name, dtype)};")
            parts.append(part)
        return parts

    def accumulate(self, parts: Sequence[PartialResult], texts: Sequence[str]) -> None:
        """Accumulate one iteration's values."""
        remaining, packing = list(texts), self.packing
        guard = packing.guard if packing else ""
        for part in parts:
            text = remaining.pop(0)
            if part.is_pair:
                pair = f"pb_best<{type_name(part.dtype)}>{{{text}, {remaining.pop(0)}}}"
                self.line(f"{guard}{part.text} = pb_{part.name}({part.text}, {pair});")
            elif part.is_sum and packing:
                self.line(f"{guard}{packing.sums[part.text]} += {text};")
            elif part.is_sum:
                self.line(f"{part.text}.add({text});")
            else:
                self.line(f"{guard}{part.text} = {combine_expression(part.name, part.dtype, part.text, text)};")

    def totals(self, parts: Sequence[PartialResult], across: bool) -> list[str]:
        """Return the expression of each value's total; ``across``: over all threads of the block, all of which must reach this
        point."""
        texts = []
        for part in parts:
            text = f"{part.text}.total()" if part.is_sum else part.text
            if across:
                name, t = self.names.fresh(part.text.replace("_part", "_all")), type_name(part.dtype)
                self.line(f"{f'pb_best<{t}>' if part.is_pair else t} {name} = pb_block<pb_{part.name}<{t}>>({text});")
                text = name
            texts += [f"{text}.value", f"{text}.at"] if part.is_pair else [text]
        return texts

    def results(self, i: Instruction, totals: Sequence[str]) -> None:
        """Define a combining loop's results: its totals, combined with the initial values other than the combiner's identity."""
        initial = {v: self.value(start) for v, start in zip(i.results, i.operands[1:], strict=True)}
        remaining, first = list(totals), len(i.regions[0].parameters) - 1
        for name, values in combined_values(i.params.get("combine") or (), list(i.results[first:])):
            dtype, texts = values[0].type.dtype, [remaining.pop(0) for _ in values]
            if len(values) == 2:
                if initial[values[1]] != literal(-1, I64):
                    t, best = type_name(dtype), self.names.fresh("best")
                    pairs = [f"pb_best<{t}>{{{', '.join(pair)}}}" for pair in ([initial[v] for v in values], texts)]
                    self.line(f"pb_best<{t}> {best} = pb_{name}({', '.join(pairs)});")
                    texts = [f"{best}.value", f"{best}.at"]
            elif initial[values[0]] != identity(name, dtype):
                texts = [combine_expression(name, dtype, initial[values[0]], texts[0])]
            for value, text in zip(values, texts, strict=True):
                if text.isidentifier():
                    self.texts[value] = text
                else:
                    self.let(value, text)
