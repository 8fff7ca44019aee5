"""The left operand of a narrow product where it is computed: rows of tiles in memory of the kernel's own.

Where terms lie side by side, the rows of a tile are computed just before it, along their terms. Else those of a block are, for
all products of a group: for each term one product after the other, as memory has them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.product_parts import ask, element, number, parts, serial, under, vector, walks
from pullback.codegen.product_shapes import GROUP
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Block, Value
from pullback.ir.types import I64, scalar

AHEAD = 2
"""So many terms ahead memory is asked for."""
VECTORS = 3
"""So many vectors of rows are computed at a time."""
Span = tuple[Value, Value]


class Left:
    """``region`` takes the number of the product, a row and a term; tiles have ``high`` rows, blocks at most ``most`` panels of
    rows, runs ``length`` terms, groups at most ``together`` products, vectors
    ``lanes``."""

    def __init__(self, region: Block, high: int, most: int, length: int, together: int, lanes: int) -> None:
        self.region, self.high, self.most, self.length = region, high, most, length
        self.together, self.lanes = together, lanes
        self.is_by_tile = walks(region, 2, 1)
        self.dtype = region.results[0].type.dtype
        self.memory: Value | None = None
        self.distance: Value | None = None
        self.first: Value | None = None

    def take(self, b: Builder, products: Value) -> None:
        """Take memory for a chunk."""
        if self.is_by_tile:
            self.memory = b.local(dtype=self.dtype, shape=(self.high * self.length,))
        else:
            self.memory = b.local(products, dtype=self.dtype, shape=(self.together, self.length * self.most * self.high))

    def pack_block(self, b: Builder, products: Span, terms: Span, rows: Span) -> None:
        """The rows of a block, of some products, if tiles do not compute their own."""
        if self.is_by_tile:
            return
        self.distance, self.first = rows[1], rows[0]

        chunk = VECTORS * self.lanes
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")

        def chunks(b: Builder, c: Value) -> None:
            first = b.mul(c, number(b, chunk))
            begins = [first, *(b.add(first, number(b, x * self.lanes)) for x in range(1, VECTORS))]
            inside = [b.lt(b.add(begin, lane), rows[1]) for begin in begins]

            def product(b: Builder, p: Value, z: Value) -> None:
                assert self.memory is not None
                which, at, memory = b.add(products[0], z), b.add(terms[0], p), b.sub_ref(self.memory, z)
                start, later = b.mul(p, rows[1]), b.add(at, number(b, AHEAD))
                values: list[Value] = []
                for begin, holds in zip(begins, inside, strict=True):
                    row = b.add(b.add(rows[0], begin), lane)
                    ask(b, self.region, which, row, later)
                    values += under(b, self.region, (which, row, at), 1, holds)
                for value, begin, holds in zip(values, begins, inside, strict=True):
                    b.store_if(value, memory, holds, b.add(b.add(start, begin), lane))

            serial(b, terms[1], lambda b, p: serial(b, products[1], lambda b, z: product(b, p, z)))

        serial(inner, parts(inner, rows[1], chunk), chunks)
        params = {"map": "vector", "multiple": self.lanes}
        b.emit(OPS["for"], (number(b, self.lanes),), params, [inner.block([lane], [])])

    def pack_tile(self, b: Builder, which: Value, terms: Span, rows: Sequence[Value]) -> None:
        """The rows of a tile, if these compute their own."""
        if not self.is_by_tile:
            return
        for first in range(0, self.high, GROUP):

            def some(b: Builder, p: Value, first: int = first) -> None:
                at = b.add(terms[0], p)
                values = [element(b, self.region, which, row, at) for row in rows[first : first + GROUP]]
                for k, value in enumerate(values, first):
                    b.store(value, self.memory, b.add(p, number(b, k * self.length)))

            vector(b, terms[1], 1, some, few=True)

    def elements(self, b: Builder, z: Value, p: Value, rows: Sequence[Value]) -> list[Value]:
        """A term of the rows of a tile, of a product of the group."""
        memory = self.memory
        assert memory is not None
        if self.is_by_tile:
            return [b.load(memory, b.add(p, number(b, k * self.length))) for k in range(self.high)]
        assert self.distance is not None
        start = b.sub(b.mul(p, self.distance), self.first)
        return [b.load(b.sub_ref(memory, z), b.add(start, row)) for row in rows]
