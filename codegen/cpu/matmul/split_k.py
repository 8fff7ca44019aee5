"""Plain products of few rows and columns and many terms, as `x.T @ y` of tables has them: threads share the terms.

The terms are cut into parts, by their number alone. Each part has sums of its own, which are added at last, in order. Operands
are read where they lie, by the functions for narrow products of a batch.

Cost: the left operand is read once for each panel of columns, the right one once for each panel of rows, but from near.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import FEW, RowsAt, loop, number, parts, serial, shared, when
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.narrow import MOST_WIDE
from pullback.codegen.cpu.matmul.shape_classes import DEEP, LOW
from pullback.codegen.cpu.matmul.shared_blocks import PlainNarrow, PlainTiles, access
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR

PART, MOST_PARTS = 1024, 64
"""A part has so many terms, or more if there would be more parts."""
VECTORS = 2
"""Those of its tiles."""


def is_tall(b: Builder, shape: tuple[Value, Value, Value], lanes: int) -> Value:
    """Whether a product of such rows, terms and columns is tall, for vectors of so many lanes."""
    rows, terms, columns = shape
    few = b.bitand(b.le(rows, number(b, LOW)), b.le(columns, number(b, MOST_WIDE * VECTORS * lanes)))
    return b.bitand(few, b.ge(terms, number(b, DEEP)))


class Tall:
    """A plain product that may be one of these. Strided operands have rows of neighbours if it is."""

    def __init__(self, b: Builder, i: Instruction, target: Target, functions: Functions) -> None:
        found = access(i)
        assert found is not None
        self.b, self.access, self.functions = b, found, functions
        self.rows, self.columns, self.terms = i.operands
        batch = number(b, 1), Value(scalar(I64), "of")
        of = PlainNarrow(b, i, target, batch, functions)
        self.of, self.shape, self.dtype = of, of.shape, of.dtype

        some = b.gt(self.rows, number(b, 0))
        self.found: Value = b.bitand(some, is_tall(b, (self.rows, self.terms, self.columns), self.shape.lanes))
        """Whether it is. One without rows, as that of a library is here, asks nothing of threads."""

    def spell(self) -> None:
        """Spells it out if it is."""
        with self.functions.under(self.b, self.found):
            self.tiles = PlainTiles(self.of, VECTORS, self.shape.high(VECTORS))
            when(self.b, self.found, self.parts)

    def parts(self, b: Builder) -> None:
        """All parts, and their sums."""
        unit = number(b, self.shape.terms)
        length = b.maximum(number(b, PART), b.mul(shared(b, shared(b, self.terms, number(b, MOST_PARTS)), unit), unit))
        count = shared(b, self.terms, length)
        sums = b.local(count, dtype=self.dtype, shape=(MOST_PARTS, LOW, MOST_WIDE * self.tiles.wide))
        memory = [RowsAt(begin, apart) for begin, apart in zip(self.access.begins(b), self.access.distances(b), strict=True)]

        def chunk(b: Builder, q: Value) -> None:
            first = b.mul(q, length)
            self.part(b, memory[:2], (first, b.minimum(length, b.sub(self.terms, first))), b.subview(sums, q))

        chunks = b.select(b.gt(count, number(b, 1)), b.maximum(count, number(b, FEW)), count)
        loop(b, chunks, lambda b, q: when(b, b.lt(q, count), lambda b: chunk(b, q)), map="core")
        name = f"add_parts_{self.dtype.name}_{self.tiles.wide}"
        self.functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (_adding(self.dtype, sums.type),))
        out = self.access.begins(b)[2], self.access.out.apart(b)
        b.emit(OPS["call"], (sums, count, *out, self.rows, self.columns), {"function": name})

    def part(self, b: Builder, memory: Sequence[RowsAt], terms: tuple[Value, Value], sums: Value) -> None:
        """The sums of some terms: all columns where these lie side by side, else as many as are packed."""
        zero, one, tiles, (first, count) = number(b, 0), number(b, 1), self.tiles, terms
        left, right = memory
        turned_left, turned_right = tiles.of.kind.turned
        room = 1, self.shape.terms * tiles.wide
        packed = b.local(one, dtype=self.dtype, shape=room) if turned_right else None
        wide = number(b, tiles.wide) if turned_right else self.columns
        distances = [left.distance, right.distance, number(b, MOST_WIDE * tiles.wide)]

        def panel(b: Builder, k: Value) -> None:
            j = b.mul(k, wide)
            begins = [
                left.begin(b, *((first, zero) if turned_left else (zero, first))),
                right.begin(b, *((j, first) if turned_right else (first, j))),
                b.emit(OPS["ref_at"], (sums, zero, j), {})[0],
            ]
            extents = self.rows, b.minimum(wide, b.sub(self.columns, j)), count
            panels = zero, parts(b, self.rows, tiles.high)
            tiles.call(b, packed, (begins, distances, [zero] * 3), extents, (zero, one), panels)

        serial(b, parts(b, self.columns, tiles.wide) if turned_right else one, panel)


@functools.cache
def _adding(dtype: DType, of: RefType) -> Block:
    """The function that adds the parts, and stores what comes of it."""
    sums, to = Value(of, "sums"), Value(RefType(dtype, (FAR,)), "to")
    count, apart, rows, columns = (Value(scalar(I64), name) for name in ("count", "apart", "rows", "columns"))

    def row(b: Builder, i: Value) -> None:
        def element(b: Builder, j: Value) -> None:
            inner, q, before = Builder(b.loc), Value(scalar(I64), "q"), Value(scalar(dtype), "sum")
            after = inner.add(before, inner.load(sums, q, i, j))
            params = {"map": "serial"}
            (total,) = b.emit(OPS["for"], (count, b.const(0.0, dtype)), params, [inner.block([q, before], [after])])
            b.store(total, to, b.add(b.mul(i, apart), j))

        loop(b, columns, element)

    b = Builder()
    serial(b, rows, row)
    return b.block([sums, count, to, apart, rows, columns], [])
