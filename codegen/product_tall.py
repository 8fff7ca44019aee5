"""Plain products of few rows and columns and many terms, as `x.T @ y` of tables has them: threads share the terms.

The terms are cut into parts, by their number alone. Each part has sums of its own, which are added at last, in order. Operands
are read where they lie, by the functions for narrow products of a batch.

Cost: the left operand is read once for each panel of columns, the right one once for each panel of rows, but from near.
"""

from __future__ import annotations

from functools import partial, reduce

from pullback.codegen.processors import Target
from pullback.codegen.product_classes import DEEP, LOW
from pullback.codegen.product_narrow import MOST_WIDE, lies_there
from pullback.codegen.product_parts import FEW, loop, number, parts, serial, shared, when
from pullback.codegen.product_plain import Functions, PlainNarrow, PlainTiles
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Instruction, Value, copied
from pullback.ir.types import BOOL, I64, scalar

PART, MOST_PARTS = 1024, 64
"""A part has so many terms, or more if there would be more parts."""


class Tall(PlainNarrow):
    """A product that may be one of these."""

    def __init__(self, b: Builder, i: Instruction, target: Target, functions: Functions) -> None:
        super().__init__(b, i, target, (number(b, 1), Value(scalar(I64), "of")), functions)
        self.each = i.regions[2]

    def spell(self) -> Value:
        """Spells it out if it is, and tells whether."""
        b, ways = self.b, self.ways()
        fits = reduce(b.bitor, [fits for fits, _ in ways], b.const(False, BOOL))
        is_tall = b.bitand(b.le(self.rows, number(b, LOW)), b.ge(self.terms, number(b, DEEP)))
        found: Value = b.bitand(fits, is_tall)
        when(b, found, lambda b: self.parts(b, ways))
        return found

    def tiles(self, vectors: int, rows: int) -> PlainTiles:
        return PlainTiles(self, vectors, rows)

    def parts(self, b: Builder, ways: list[tuple[Value, PlainTiles]]) -> None:
        one, unit = number(b, 1), number(b, self.shape.terms)
        length = b.maximum(number(b, PART), b.mul(shared(b, shared(b, self.terms, number(b, MOST_PARTS)), unit), unit))
        count = shared(b, self.terms, length)
        sums = b.local(count, dtype=self.dtype, shape=(MOST_PARTS, LOW, MOST_WIDE * 2 * self.shape.lanes))
        columns = number(b, sums.type.shape[-1])
        room = 1, self.shape.terms * max(tiles.wide for _, tiles in ways)

        def chunk(b: Builder, q: Value) -> None:
            packed = None if lies_there(self.right) else b.local(one, dtype=self.dtype, shape=room)
            first = b.mul(q, length)
            terms = b.minimum(length, b.sub(self.terms, first))
            for fits, tiles in ways:
                when(b, fits, partial(self.part, tiles, packed, (first, terms), (b.sub_ref(sums, q), columns)))

        chunks = b.select(b.gt(count, one), b.maximum(count, number(b, FEW)), count)
        loop(b, chunks, lambda b, q: when(b, b.lt(q, count), lambda b: chunk(b, q)), map="core")
        serial(b, self.rows, lambda b, i: self.total(b, sums, count, i))

    def part(
        self, tiles: PlainTiles, packed: Value | None, terms: tuple[Value, Value], sums: tuple[Value, Value], b: Builder
    ) -> None:
        """The sums of some terms."""
        zero, one, (first, count), (own, apart) = number(b, 0), number(b, 1), terms, sums
        left, right, _ = self.access.rows
        turned_left, turned_right = self.access.turned
        begins = [
            left.begin(b, *((first, zero) if turned_left else (zero, first))),
            right.begin(b, *((zero, first) if turned_right else (first, zero))),
            b.emit(OPS["row_ref"], (own, zero, zero), {})[0],
        ]
        distances = [left.apart(b), right.apart(b), apart]
        panels = parts(b, self.rows, tiles.high)
        tiles.call(b, packed, (begins, distances, [zero] * 3), count, (zero, one), (zero, panels))

    def total(self, b: Builder, sums: Value, count: Value, i: Value) -> None:
        """Add a row of all parts, and store it."""
        def element(b: Builder, j: Value) -> None:
            inner, q, before = Builder(b.loc), Value(scalar(I64), "q"), Value(scalar(self.dtype), "sum")
            after = inner.add(before, inner.load(sums, q, i, j))
            params = {"map": "serial"}
            (total,) = b.emit(OPS["for"], (count, b.const(0.0, self.dtype)), params, [inner.block([q, before], [after])])
            b.instructions.extend(copied(self.each, (i, j, total)).instructions)

        loop(b, self.columns, element)
