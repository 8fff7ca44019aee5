"""Partial results in CUDA C: the variables of a thread that collect what a loop combines, and what they join to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.cuda.source.names import Names, literal, type_name
from pullback.codegen.cuda.source.packs import Packing
from pullback.codegen.cuda.source.scalar_ops import identity, join_text
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, DType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import combined_values


@dataclass(frozen=True)
class Part:
    """A partial result: the variable that collects it."""

    name: str
    text: str
    dtype: DType

    @property
    def is_pair(self) -> bool:
        return self.name.startswith("arg")

    @property
    def is_sum(self) -> bool:
        return self.name == "add" and self.dtype.is_float


class PartTexts(ABC):
    """What a writer says of partial results."""

    names: Names
    texts: dict[Value, str]
    packing: Packing | None

    @abstractmethod
    def line(self, text: str) -> None:
        """A line of the function."""

    @abstractmethod
    def value(self, value: Value) -> str:
        """What stands for a value."""

    @abstractmethod
    def let(self, value: Value, text: str) -> None:
        """A value as a new variable."""

    def accumulators(self, combine: Sequence[str], results: Sequence[Value]) -> list[Part]:
        """Variables that collect what iterations yield."""
        parts = []
        for name, values in combined_values(combine, list(results)):
            dtype = values[0].type.dtype
            part = Part(name, self.names.combined(values[0], name, "part"), dtype)
            t = type_name(dtype)
            if part.is_pair:
                self.line(f"pb_best<{t}> {part.text} = {{{identity(name, dtype)}, -1}};")
            elif part.is_sum:
                self.line(f"pb_sum<{t}> {part.text};")
            else:
                self.line(f"{t} {part.text} = {identity(name, dtype)};")
            parts.append(part)
        return parts

    def take(self, parts: Sequence[Part], texts: Sequence[str]) -> None:
        rest, packing = list(texts), self.packing
        only = packing.guard if packing else ""
        for part in parts:
            text = rest.pop(0)
            if part.is_pair:
                given = f"pb_best<{type_name(part.dtype)}>{{{text}, {rest.pop(0)}}}"
                self.line(f"{only}{part.text} = pb_{part.name}({part.text}, {given});")
            elif part.is_sum and packing:
                self.line(f"{only}{packing.sums[part.text]} += {text};")
            elif part.is_sum:
                self.line(f"{part.text}.add({text});")
            else:
                self.line(f"{only}{part.text} = {join_text(part.name, part.dtype, part.text, text)};")

    def totals(self, parts: Sequence[Part], across: bool) -> list[str]:
        """Each value's result; ``across``: of all threads of the block, which must all come by."""
        found = []
        for part in parts:
            text = f"{part.text}.total()" if part.is_sum else part.text
            if across:
                name, t = self.names.fresh(part.text.replace("_part", "_all")), type_name(part.dtype)
                self.line(f"{f'pb_best<{t}>' if part.is_pair else t} {name} = pb_block<pb_{part.name}<{t}>>({text});")
                text = name
            found += [f"{text}.value", f"{text}.at"] if part.is_pair else [text]
        return found

    def results(self, i: Instruction, totals: Sequence[str]) -> None:
        """Define a combining loop's results: its totals, joined with the initial values that are not without effect."""
        initial = {v: self.value(start) for v, start in zip(i.results, i.operands[1:], strict=True)}
        rest, first = list(totals), len(i.regions[0].parameters) - 1
        for name, values in combined_values(i.params.get("combine") or (), list(i.results[first:])):
            dtype, texts = values[0].type.dtype, [rest.pop(0) for _ in values]
            if len(values) == 2:
                if initial[values[1]] != literal(-1, I64):
                    t, best = type_name(dtype), self.names.fresh("best")
                    pairs = [f"pb_best<{t}>{{{', '.join(pair)}}}" for pair in ([initial[v] for v in values], texts)]
                    self.line(f"pb_best<{t}> {best} = pb_{name}({', '.join(pairs)});")
                    texts = [f"{best}.value", f"{best}.at"]
            elif initial[values[0]] != identity(name, dtype):
                texts = [join_text(name, dtype, initial[values[0]], texts[0])]
            for value, text in zip(values, texts, strict=True):
                if text.isidentifier():
                    self.texts[value] = text
                else:
                    self.let(value, text)
