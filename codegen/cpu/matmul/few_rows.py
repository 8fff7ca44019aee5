"""Blocks of plain products of at most ``ROWS`` rows where there are 16 vector registers: the right operand is read where it lies,
in rows.

To pack its columns takes longer than to multiply so few rows by them. Some terms are read at a time, rows of neighbours of which
those of the next terms are asked for, and added to the sums of some rows, which stay in the first cache; after each run of terms
these go where the results are.

Cost: the right operand is read once, as memory gives it. Of each vector of it, each row of the left one takes a multiply-add, and
a quarter of a sum's load and store. Subnormal numbers are not scaled.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import loop, number, parts, serial, shared, vector, when
from pullback.codegen.cpu.matmul.blocking import Shape
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR

ROWS, GROUP = 8, 4
"""Products have at most so many rows, of which so many take part in what is read of the right operand at a time."""
TERMS = 4
"""So many terms are added to a sum between its load and its store."""
VECTORS = 2
"""Those of each term that are read side by side."""
STRIP = 1 << 11
"""The bytes of a row of a block."""
OPERANDS = ("left", "right", "to")
NUMBERS = ("row", "term", "apart", "to_apart", "rows", "terms", "length", "first", "width")


@dataclass(frozen=True)
class FewRows:
    """The function of a block, of products of a dtype. Its parameters: the operands, from their first element on, and where the
    first result goes; how far apart rows and terms of the left operand are, rows of the right one and of the
    results; how many rows and terms, and how many of these a run has, which is as in panels, so that results have the same bits
    wherever operands lie; the first column, and how many."""

    dtype: DType
    shape: Shape

    @property
    def name(self) -> str:
        return f"few_rows_{self.dtype.name}"

    def is_for(self, target: Target) -> bool:
        """Whether tiles for a machine go through their panels in several passes, since registers are few."""
        return target.has_fma and len(self.shape.passes(self.shape.rows)) > 1

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def fits(self, b: Builder, rows: Value, columns: Value, is_turned: Value) -> Value:
        """Whether a product's blocks are such ones: the right operand is not ``is_turned``, and its rows are long."""
        is_flat = b.bitand(b.le(rows, number(b, ROWS)), b.ge(columns, number(b, VECTORS * self.panel)))
        found: Value = b.bitand(is_flat, b.bitnot(is_turned))
        return found

    @property
    def panel(self) -> int:
        """The columns that are read of a term side by side."""
        return VECTORS * self.shape.lanes

    @property
    def most(self) -> int:
        """The columns of a block, at most."""
        return STRIP // self.dtype.bytes

    def function(self) -> Block:
        types: dict[str, Type] = {
            **dict.fromkeys(OPERANDS, RefType(self.dtype, (FAR,))),
            **dict.fromkeys(NUMBERS, scalar(I64)),
        }
        given = {name: Value(t, name) for name, t in types.items()}
        b, terms = Builder(), given["terms"]
        length = given["length"]
        given["sums"] = b.local(dtype=self.dtype, shape=(ROWS, self.most))

        def run(b: Builder, q: Value) -> None:
            p = b.mul(q, length)
            self.run(b, given, (p, b.minimum(length, b.sub(terms, p))), b.eq(q, number(b, 0)))

        serial(b, b.maximum(shared(b, terms, length), number(b, 1)), run)
        return b.block([given[name] for name in types], [])

    def run(self, b: Builder, given: dict[str, Value], terms: tuple[Value, Value], is_first: Value) -> None:
        """Some terms of all rows, put where the results are or added to what is there."""
        sums, to, width, (p, count) = given["sums"], given["to"], given["width"], terms
        zero, groups = b.const(0.0, self.dtype), parts(b, given["rows"], GROUP)
        serial(b, b.mul(groups, number(b, GROUP)), lambda b, r: loop(b, width, lambda b, c: b.store(zero, sums, r, c)))
        whole = b.raw_shr(count, number(b, TERMS.bit_length() - 1))
        last = b.add(p, b.mul(whole, number(b, TERMS)))

        def some(b: Builder, first: Value, number_of: int) -> None:
            serial(b, groups, lambda b, g: self.group(b, given, b.mul(g, number(b, GROUP)), first, number_of))

        serial(b, whole, lambda b, t: some(b, b.add(p, b.mul(t, number(b, TERMS))), TERMS))
        serial(b, b.sub(b.add(p, count), last), lambda b, t: some(b, b.add(last, t), 1))

        def row(b: Builder, r: Value) -> None:
            at = b.mul(r, given["to_apart"])

            def put(b: Builder, c: Value) -> None:
                b.store(b.load(sums, r, c), to, b.add(at, c))

            def add(b: Builder, c: Value) -> None:
                place = b.add(at, c)
                b.store(b.add(b.load(to, place), b.load(sums, r, c)), to, place)

            when(b, is_first, lambda b: loop(b, width, put))
            when(b, b.bitnot(is_first), lambda b: loop(b, width, add))

        serial(b, given["rows"], row)

    def group(self, b: Builder, given: dict[str, Value], i: Value, first: Value, number_of: int) -> None:
        """What some terms add to the sums of some rows. Rows that are not there are the last one again."""
        lanes, width = self.shape.lanes, given["width"]
        end = b.sub(given["rows"], number(b, 1))
        rows = [b.mul(b.minimum(b.add(i, number(b, k)), end), given["row"]) for k in range(GROUP)]
        terms = [b.mul(b.add(first, number(b, t)), given["term"]) for t in range(number_of)]
        left = [[b.load(given["left"], b.add(row, term)) for term in terms] for row in rows]
        sums = [b.subview(given["sums"], b.add(i, number(b, k))) for k in range(GROUP)]
        begins = [b.add(b.mul(b.add(first, number(b, t)), given["apart"]), given["first"]) for t in range(2 * number_of)]
        right = [b.emit(OPS["ref_at"], (given["right"], begin), {})[0] for begin in begins]

        def element(b: Builder, column: Value) -> None:
            factors = [b.load(row, column) for row in right[:number_of]]
            for row, each in zip(sums, left, strict=True):
                total = b.load(row, column)
                for x, y in zip(each, factors, strict=True):
                    total = b.fma(x, y, total)
                b.store(total, row, column)

        if number_of == 1:
            loop(b, width, element)
            return

        def panel(b: Builder, k: Value) -> None:
            start = b.mul(k, number(b, self.panel))

            def vectors(b: Builder, v: Value) -> None:
                here = b.add(start, v)
                for row in right[number_of:]:
                    b.prefetch(row, here, into_l1=True)
                for x in range(VECTORS):
                    element(b, b.add(here, number(b, x * lanes)) if x else here)

            vector(b, number(b, lanes), lanes, vectors)

        whole = b.idiv(width, number(b, self.panel))
        done = b.mul(whole, number(b, self.panel))
        serial(b, whole, panel)
        rest = b.sub(width, done)
        when(b, b.gt(rest, number(b, 0)), lambda b: loop(b, rest, lambda b, c: element(b, b.add(c, done))))


@functools.cache
def _function(of: FewRows) -> Block:
    return of.function()
