"""Emit the accumulators of a combining loop: its iterations, lanes and tiers are reduced to one value."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.independence import IDENTITIES
from pullback.codegen.cpu.llvm.casts import half_to_float
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, vector_of
from pullback.ir.core.op import OPS
from pullback.ir.core.types import DType
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import combined_values


class Accumulators:
    """The partial results of a combining loop.

    Sums of floats have three tiers of partial sums; other combinations, and ``short`` loops, have one. The lowest tier has
    ``parts`` independent accumulators per value, so that consecutive vectors do not depend on each other.
    """

    def __init__(
        self,
        emitter: FunctionWriter,
        combine: Sequence[str],
        dtypes: Sequence[DType],
        width: int,
        parts: int = 1,
        short: bool = False,
    ) -> None:
        self.e, self.width = emitter, width
        self.groups = combined_values(combine, list(range(len(dtypes))))
        self.dtypes = list(dtypes)
        self.types = [vector_of(element(d), width) for d in dtypes]
        self.sums = [p for name, positions in self.groups for p in positions if self.is_sum(name, p) and not short]
        self.lowest: list[list[str]] = []
        self.upper: list[list[str]] = []
        for name, positions in self.groups:
            for part, position in enumerate(positions):
                start = self.identity(name, part, position)
                self.lowest.append([self.accumulator_slot(position, start) for _ in range(parts)])
                self.upper.append([self.accumulator_slot(position, start) for _ in range(2 if position in self.sums else 0)])

    def accumulator_slot(self, position: int, start: str) -> str:
        """Allocate a stack slot for the value at ``position`` and store its start value."""
        slot = self.e.slot(self.types[position])
        self.e.line(f"store {self.types[position]} {start}, ptr {slot}")
        return slot

    def is_sum(self, name: str, position: int) -> bool:
        """Return whether a value is a sum of floats of more than 16 bits, which has three tiers."""
        return name == "add" and self.dtypes[position].is_float and self.dtypes[position].bits > 16

    def identity(self, name: str, part: int, position: int) -> str:
        """Return the identity of a combiner as text, in all lanes; the position of an argmax or argmin (part 1) starts at -1."""
        dtype = self.dtypes[position]
        if name.startswith("arg"):
            value: object = -1 if part else IDENTITIES[name](dtype)
        else:
            value = IDENTITIES[name](dtype)
        text = literal(value, dtype)
        return self.e.broadcast(Lanes(text), element(dtype), self.width) if self.width > 1 else text

    def combine(self, values: list[str], mask: str | None, part: int = 0) -> None:
        """Combine the values of one iteration with the accumulators of a part, lane by lane; lanes outside the mask stay
        unchanged."""
        c = vector_of("i1", self.width)
        for name, positions in self.groups:
            before = [self.e.let(f"load {self.types[p]}, ptr {self.lowest[p][part]}") for p in positions]
            operands = [values[p] for p in positions]
            after = self.combined(name, before, operands, positions, self.width)
            for position, old, new in zip(positions, before, after, strict=True):
                t = self.types[position]
                kept = new if mask is None else self.e.let(f"select {c} {mask}, {t} {new}, {t} {old}")
                self.e.line(f"store {t} {kept}, ptr {self.lowest[position][part]}")

    def flush(self, tier: int) -> None:
        """Add the partial sums of floats of a tier to the next tier and reset the tier to zero."""
        joined = self.joined_parts() if not tier else []
        for p in self.sums:
            t, below = self.types[p], self.lowest[p] if not tier else self.upper[p][:1]
            target = self.upper[p][tier]
            moved = joined[p] if not tier else self.e.let(f"load {t}, ptr {below[0]}")
            before = self.e.let(f"load {t}, ptr {target}")
            self.e.line(f"store {t} {self.e.let(f'fadd {t} {before}, {moved}')}, ptr {target}")
            for slot in below:
                self.e.line(f"store {t} {self.identity('add', 0, p)}, ptr {slot}")

    def joined_parts(self) -> list[str]:
        """Combine the parts of the lowest tier pairwise; return one vector per value."""
        rows = [
            [self.e.let(f"load {t}, ptr {slots[k]}") for t, slots in zip(self.types, self.lowest, strict=True)]
            for k in range(len(self.lowest[0]))
        ]
        while len(rows) > 1:
            half = len(rows) // 2
            rows = [self.join(low, high, self.width) for low, high in zip(rows[:half], rows[half:], strict=True)]
        return rows[0]

    def total(self) -> list[str]:
        """Combine the tiers; return one vector per value."""
        totals = self.joined_parts() if self.lowest else []
        for p in self.sums:
            t = self.types[p]
            high, middle = (self.e.let(f"load {t}, ptr {slot}") for slot in reversed(self.upper[p]))
            totals[p] = self.e.let(f"fadd {t} {self.e.let(f'fadd {t} {high}, {middle}')}, {totals[p]}")
        return totals

    def across(self, values: list[str]) -> list[str]:
        """Reduce the lanes of each vector to one value, adding the upper half to the lower half until one lane is left."""
        width = self.width
        while width > 1:
            half = width // 2
            low, high = (self.part(values, width, start, half) for start in (0, half))
            values = self.join(low, high, half)
            width = half
        return values

    def part(self, values: list[str], width: int, start: int, half: int) -> list[str]:
        """Return ``half`` lanes of each vector, from lane ``start`` on."""
        parts = []
        for text, dtype in zip(values, self.dtypes, strict=True):
            t = vector_of(element(dtype), width)
            if half == 1:
                parts.append(self.e.let(f"extractelement {t} {text}, i64 {start}"))
                continue
            picked = ", ".join(f"i32 {k}" for k in range(start, start + half))
            parts.append(self.e.let(f"shufflevector {t} {text}, {t} poison, <{half} x i32> <{picked}>"))
        return parts

    def join(self, left: list[str], right: list[str], width: int) -> list[str]:
        """Combine two sets of values of ``width`` lanes."""
        results: list[str] = []
        for name, positions in self.groups:
            results += self.combined(name, [left[p] for p in positions], [right[p] for p in positions], positions, width)
        return results

    def combined(self, name: str, a: list[str], b: list[str], positions: Sequence[int], width: int) -> list[str]:
        """Emit one combination of a group of values: an elementwise op, or a comparison for argmax and argmin."""
        if name.startswith("arg"):
            return self.better(name, a, b, positions, width)
        op = OPS[name]
        assert isinstance(op, Elementwise)
        dtype = self.dtypes[positions[0]]
        return [self.e.emit_elementwise(op, op.template("llvm", dtype.kind), [a[0], b[0]], dtype, width)]

    def better(self, name: str, a: list[str], b: list[str], positions: Sequence[int], width: int) -> list[str]:
        """Emit argmax or argmin: return the larger (smaller) value and its position.

        NaN beats all other values, the first position wins a tie, and position -1 stands for an empty operand.
        """
        dtype, let = self.dtypes[positions[0]], self.e.let
        t, i, c = vector_of(element(dtype), width), vector_of("i64", width), vector_of("i1", width)
        (x, at), (y, other) = a, b
        chosen = t
        if dtype.is_float and dtype.bits == 16:
            x, y = (half_to_float(self.e, v, dtype, width) for v in (x, y))
            t = vector_of("float", width)
        earlier = let(f"icmp ult {i} {at}, {other}")
        kind = "o" if dtype.is_float else "s" if dtype.kind == "i" else "u"
        verb, way = ("fcmp" if dtype.is_float else "icmp"), ("gt" if name == "argmax" else "lt")
        above = let(f"{verb} {kind}{way} {t} {x}, {y}")
        level = let(f"{verb} {'oeq' if dtype.is_float else 'eq'} {t} {x}, {y}")
        if dtype.is_float:
            x_nan, y_nan = (let(f"fcmp uno {t} {v}, {v}") for v in (x, y))
            both = let(f"and {c} {x_nan}, {y_nan}")
            level = let(f"or {c} {level}, {both}")
            not_y = let(f"xor {c} {y_nan}, {self.e.broadcast(Lanes('true'), 'i1', width) if width > 1 else 'true'}")
            only = let(f"and {c} {x_nan}, {not_y}")
            above = let(f"or {c} {above}, {only}")
        tie = let(f"and {c} {level}, {earlier}")
        first = let(f"or {c} {above}, {tie}")
        none = self.e.broadcast(Lanes("-1"), "i64", width) if width > 1 else "-1"
        a_none, b_none = (let(f"icmp eq {i} {v}, {none}") for v in (at, other))
        first = let(f"select {c} {a_none}, {c} {'zeroinitializer' if width > 1 else 'false'}, {c} {first}")
        first = let(f"or {c} {first}, {b_none}")
        return [let(f"select {c} {first}, {chosen} {a[0]}, {chosen} {b[0]}"), let(f"select {c} {first}, {i} {at}, {i} {other}")]


def combined_with(
    e: FunctionWriter, combine: Sequence[str], dtypes: Sequence[DType], start: list[str], values: list[str]
) -> list[str]:
    """Emit the results of a combining loop of one iteration: its start values, combined with the values that it yields."""
    partial = Accumulators(e, combine, dtypes, 1, short=True)
    partial.combine(values, None)
    return partial.join(start, partial.total(), 1)
