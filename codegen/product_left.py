"""The left operand of a narrow product where it is computed: rows of tiles in memory of the kernel's own.

Where terms lie side by side, the rows of a tile are computed just before it, along their terms. Else those of a block are, for
all products of a group: for each term one product after the other, as memory has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.llvm_addresses import ref_and_index
from pullback.codegen.product_parts import ask, number, parts, serial, under, vector, walks
from pullback.codegen.product_shapes import GROUP, LINE
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.kernel import Load
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import I64, scalar

AHEAD = 2
"""So many terms ahead memory is asked for."""
VECTORS = 3
"""So many vectors of rows are computed at a time."""
Span = tuple[Value, Value]


class Left:
    """``region`` takes the number of the product, a row and a term; tiles have ``high`` rows, blocks at most ``most`` panels of
    rows, runs ``length`` terms, groups at most ``together`` products, vectors ``lanes``."""

    def __init__(self, region: Block, high: int, most: int, length: int, together: int, lanes: int) -> None:
        self.region, self.high, self.most, self.length = region, high, most, length
        self.together, self.lanes = together, lanes
        of_both = _of_both(region)
        self.is_by_tile = walks(of_both, 2, 1) or not walks(of_both, 1, 2)
        self.dtype = region.results[0].type.dtype
        self.memory: Value | None = None
        self.distance: Value | None = None
        self.first: Value | None = None

    def take(self, b: Builder, products: Value) -> None:
        """Take memory for a chunk."""
        if self.is_by_tile:
            # rows begin in different places of a cache
            width = self.length + LINE // self.dtype.bytes
            self.memory = b.local(number(b, self.high), dtype=self.dtype, shape=(self.high, width))
        else:
            width = self.most * self.high + self.lanes
            self.memory = b.local(products, dtype=self.dtype, shape=(self.together, self.length * width))

    def pack_block(self, b: Builder, products: Span, terms: Span, rows: Span) -> None:
        """The rows of a block, of some products, if tiles do not compute their own. Those that are not there are computed from
        zeros."""
        if self.is_by_tile:
            return
        panels = b.mul(parts(b, rows[1], self.high), number(b, self.high))
        distance = b.mul(parts(b, panels, self.lanes), number(b, self.lanes))
        self.distance, self.first = distance, rows[0]
        chunk = VECTORS * self.lanes
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")

        def chunks(b: Builder, c: Value) -> None:
            first = b.mul(c, number(b, chunk))
            begins = [first, *(b.add(first, number(b, x * self.lanes)) for x in range(1, VECTORS))]
            inside = [b.lt(b.add(begin, lane), rows[1]) for begin in begins]
            stored = [b.lt(b.add(begin, lane), distance) for begin in begins]

            def product(b: Builder, p: Value, z: Value) -> None:
                assert self.memory is not None
                which, at, memory = b.add(products[0], z), b.add(terms[0], p), b.sub_ref(self.memory, z)
                start, later = b.mul(p, distance), b.add(at, number(b, AHEAD))
                values: list[Value] = []
                for begin, holds in zip(begins, inside, strict=True):
                    row = b.add(b.add(rows[0], begin), lane)
                    ask(b, self.region, which, row, later)
                    values += under(b, self.region, (which, row, at), 1, holds)
                for value, begin, holds in zip(values, begins, stored, strict=True):
                    b.store_if(value, memory, holds, b.add(b.add(start, begin), lane))

            serial(b, terms[1], lambda b, p: serial(b, products[1], lambda b, z: product(b, p, z)))

        serial(inner, parts(inner, distance, chunk), chunks)
        params = {"map": "vector", "multiple": self.lanes}
        b.emit(OPS["for"], (number(b, self.lanes),), params, [inner.block([lane], [])])

    def pack_tile(self, b: Builder, which: Value, terms: Span, rows: Sequence[Value]) -> None:
        """The rows of a tile, if these compute their own."""
        if not self.is_by_tile:
            return
        for first in range(0, self.high, GROUP):
            pieces = [element_of(b, self.region, (which, row, None), 2, None) for row in rows[first : first + GROUP]]

            def some(b: Builder, p: Value, first: int = first, pieces: Sequence[Piece] = pieces) -> None:
                at = b.add(terms[0], p)
                values = [piece(b, at) for piece in pieces]
                for k, value in enumerate(values, first):
                    b.store(value, self.memory, number(b, k), p)

            vector(b, terms[1], 1, some, few=True)

    def elements(self, b: Builder, z: Value, p: Value, first: Value) -> list[Value]:
        """A term of the rows of a tile, of a product of the group."""
        memory = self.memory
        assert memory is not None
        if self.is_by_tile:
            return [b.load(memory, number(b, k), p) for k in range(self.high)]
        assert self.distance is not None
        start = b.add(b.mul(p, self.distance), b.sub(first, self.first))
        own = b.sub_ref(memory, z)
        return [b.load(own, b.add(start, number(b, k))) for k in range(self.high)]


    def ask_next(self, b: Builder, which: Value, at: Value, row: Value) -> None:
        """Ask for what is packed of a tile's rows in the next run, while a term of this one is multiplied."""
        if not self.is_by_tile:
            ask(b, self.region, which, row, b.add(at, number(b, self.length)))


Piece = Callable[[Builder, Value], Value]


def element_of(b: Builder, region: Block, at: Sequence[Value | None], of: int, inside: Value | None) -> Piece:
    """An element of an operand at a position that is known later, the one that is None: what does not depend on it is computed
    now. The position ``of`` differs from lane to lane; ``inside``: whether it is there, if not all of them are."""
    later = region.parameters[list(at).index(None)]
    depends = {later}
    for i in region.instructions:
        if not depends.isdisjoint(i.operands):
            depends.update(i.results)
    early = tuple(i for i in region.instructions if depends.isdisjoint(i.results))
    late = tuple(i for i in region.instructions if not depends.isdisjoint(i.results))
    known = tuple(v for i in early for v in i.results)
    given = {v: x for v, x in zip(region.parameters, at, strict=True) if x is not None}
    varying = region.parameters[of]
    here = Block(tuple(given), early, known)
    if varying in given:
        found = under(b, here, tuple(given.values()), list(given).index(varying), inside)
    else:
        found = under(b, here, tuple(given.values()), 0, None)
    env = given | dict(zip(known, found, strict=True))
    rest = Block((*env, later), late, region.results)

    def piece(b: Builder, position: Value) -> Value:
        places = (*env, later)
        return under(b, rest, (*env.values(), position), places.index(varying), inside)[0]

    return piece


def _of_both(region: Block) -> Block:
    """A region with no loads but those that go along rows and terms, if there are any."""
    varies = [_varying(region, v) for v in region.parameters[1:]]

    def is_of_both(i: Instruction) -> bool:
        return all(not found.isdisjoint(ref_and_index(i)[1]) for found in varies)

    loads = [i for i in region.instructions if isinstance(i.op, Load)]
    if not any(map(is_of_both, loads)):
        return region
    kept = tuple(i for i in region.instructions if not isinstance(i.op, Load) or is_of_both(i))
    return Block(region.parameters, kept, region.results)


def _varying(region: Block, value: Value) -> set[Value]:
    found = {value}
    for i in region.instructions:
        if not found.isdisjoint(i.operands):
            found.update(i.results)
    return found
