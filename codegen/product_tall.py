"""Plain products of few rows and columns and many terms, as `x.T @ y` of tables has them: threads share the terms.

The terms are cut into parts, by their number alone. Each part has sums of its own, which are added at last, in order. Operands
are read where they lie, by the functions for narrow products of a batch.

Cost: the left operand is read once for each panel of columns, the right one once for each panel of rows, but from near.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial, reduce

from pullback.codegen.processors import Target
from pullback.codegen.product_classes import DEEP, LOW
from pullback.codegen.product_narrow import MOST_WIDE, Tiles
from pullback.codegen.product_parts import FEW, RowsAt, loop, number, parts, serial, shared, when
from pullback.codegen.product_plain import Functions, PlainNarrow, PlainTiles, access
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Instruction, Value, copied
from pullback.ir.types import BOOL, I64, scalar

PART, MOST_PARTS = 1024, 64
"""A part has so many terms, or more if there would be more parts."""


class Tall:
    """A plain product that may be one of these. Of strided operands it shows when the kernel runs whether they are turned."""

    def __init__(self, b: Builder, i: Instruction, target: Target, functions: Functions) -> None:
        found = access(i)
        assert found is not None
        self.b, self.access, self.each = b, found, i.regions[2]
        batch = number(b, 1), Value(scalar(I64), "of")
        self.rows, self.columns, self.terms = i.operands
        orders = itertools.product(*((False, True) if t is None else (t,) for t in found.turned))
        self.orders = {(left, right): PlainNarrow(b, i, target, batch, functions, (left, right)) for left, right in orders}

    def spell(self) -> Value:
        """Spells it out if it is, and tells whether."""
        b = self.b
        choices = dict(zip((k for k, t in enumerate(self.access.turned) if t is None), self.access.choices(b), strict=True))
        is_tall = b.bitand(b.le(self.rows, number(b, LOW)), b.ge(self.terms, number(b, DEEP)))
        found = b.const(False, BOOL)
        for order, of in self.orders.items():
            ways, lies = of.ways(), is_tall
            for k, choice in choices.items():
                lies = b.bitand(lies, choice if order[k] else b.bitnot(choice))
            lies = b.bitand(lies, reduce(b.bitor, [fits for fits, _ in ways], b.const(False, BOOL)))
            when(b, lies, partial(self.parts, of, ways))
            found = b.bitor(found, lies)
        return found

    def parts(self, of: PlainNarrow, ways: Sequence[tuple[Value, Tiles]], b: Builder) -> None:
        """All parts, and their sums."""
        one, unit = number(b, 1), number(b, of.shape.terms)
        length = b.maximum(number(b, PART), b.mul(shared(b, shared(b, self.terms, number(b, MOST_PARTS)), unit), unit))
        count = shared(b, self.terms, length)
        sums = b.local(count, dtype=of.dtype, shape=(MOST_PARTS, LOW, MOST_WIDE * 2 * of.shape.lanes))
        room = 1, of.shape.terms * max(tiles.wide for _, tiles in ways)
        memory = [RowsAt(begin, apart) for begin, apart in zip(self.access.begins(b), self.access.distances(b), strict=True)]

        def chunk(b: Builder, q: Value) -> None:
            packed = b.local(one, dtype=of.dtype, shape=room) if of.kind.turned[1] else None
            first = b.mul(q, length)
            terms = first, b.minimum(length, b.sub(self.terms, first))
            for fits, tiles in ways:
                assert isinstance(tiles, PlainTiles)
                when(b, fits, partial(part, tiles, packed, memory[:2], terms, b.sub_ref(sums, q)))

        chunks = b.select(b.gt(count, one), b.maximum(count, number(b, FEW)), count)
        loop(b, chunks, lambda b, q: when(b, b.lt(q, count), lambda b: chunk(b, q)), map="core")
        serial(b, self.rows, lambda b, i: self.total(b, sums, count, i))

    def total(self, b: Builder, sums: Value, count: Value, i: Value) -> None:
        """Add a row of all parts, and store it."""
        dtype = sums.type.dtype

        def element(b: Builder, j: Value) -> None:
            inner, q, before = Builder(b.loc), Value(scalar(I64), "q"), Value(scalar(dtype), "sum")
            after = inner.add(before, inner.load(sums, q, i, j))
            params = {"map": "serial"}
            (total,) = b.emit(OPS["for"], (count, b.const(0.0, dtype)), params, [inner.block([q, before], [after])])
            b.instructions.extend(copied(self.each, (i, j, total)).instructions)

        loop(b, self.columns, element)


def part(
    tiles: PlainTiles, packed: Value | None, memory: Sequence[RowsAt], terms: tuple[Value, Value], sums: Value, b: Builder
) -> None:
    """The sums of some terms."""
    zero, one, (first, count) = number(b, 0), number(b, 1), terms
    left, right = memory
    turned_left, turned_right = tiles.of.kind.turned
    begins = [
        left.begin(b, *((first, zero) if turned_left else (zero, first))),
        right.begin(b, *((zero, first) if turned_right else (first, zero))),
        b.emit(OPS["row_ref"], (sums, zero, zero), {})[0],
    ]
    distances = [left.distance, right.distance, number(b, MOST_WIDE * 2 * tiles.of.shape.lanes)]
    panels = parts(b, tiles.of.rows, tiles.high)
    tiles.call(b, packed, (begins, distances, [zero] * 3), count, (zero, one), (zero, panels))
