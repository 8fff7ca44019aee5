"""The left operand of a narrow product where it is computed: rows of tiles in memory of the kernel's own.

Where terms lie side by side, the rows of a tile are computed just before it, along their terms. Else those of a block are, for
all products of a group: for each term one product after the other, as memory has them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import ask, loop, number, parts, serial, under, vector, walks
from pullback.codegen.cpu.matmul.blocking import GROUP, LINE
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copied
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load

AHEAD = 2
"""So many terms ahead memory is asked for."""
VECTORS, SOME = 3, 16
"""So many vectors of rows are computed at a time, and so many terms of a product before those of the next one."""
Span = tuple[Value, Value]


class Left:
    """``region`` takes the number of the product, a row and a term; tiles have ``high`` rows, blocks at most ``most`` panels of
    rows, runs ``length`` terms, groups at most ``together`` products, vectors ``lanes``. ``along``: what is done with the sum of
    a row of a product over all terms. ``rows``: how many products have, if that is known and a block has them all."""

    sums: Value | None

    def __init__(
        self, region: Block, high: int, most: int, length: int, together: int, lanes: int, along: Block | None = None,
        rows: int | None = None
    ) -> None:  # fmt: skip
        self.region, self.high, self.most, self.length = region, high, most, length
        self.together, self.lanes = together, lanes
        of_both = _of_both(region)
        self.along, self.sums = along, None
        self.rows = rows if rows is not None and 0 < rows <= most * high else None
        vectors = VECTORS if self.rows is None else -(-(-(-self.rows // high) * high) // lanes)
        self.chunk = vectors * lanes
        self.is_by_tile = along is None and (walks(of_both, 2, 1) or not walks(of_both, 1, 2))
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
            width = self.most * self.high + self.chunk
            self.memory = b.local(products, dtype=self.dtype, shape=(self.together, self.length * width))
            if self.along is not None:
                self.sums = b.local(products, dtype=self.dtype, shape=(self.together, width))

    def pack_block(self, b: Builder, products: Span, terms: Span, rows: Span) -> None:
        """The rows of a block, of some products, if tiles do not compute their own. Those that are not there are computed from
        zeros."""
        if self.is_by_tile:
            return
        panels = b.mul(parts(b, rows[1], self.high), number(b, self.high))
        distance = b.mul(parts(b, panels, self.chunk), number(b, self.chunk))
        self.distance, self.first = distance, rows[0]
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")

        def chunks(b: Builder, c: Value) -> None:
            first = b.mul(c, number(b, self.chunk))
            begins = [first, *(b.add(first, number(b, x)) for x in range(self.lanes, self.chunk, self.lanes))]
            inside = self.inside(b, begins, lane, rows[1])

            def some(b: Builder, g: Value) -> None:
                start = b.mul(g, number(b, SOME))
                few = terms[0], start, b.minimum(number(b, SOME), b.sub(terms[1], start))
                places = [(b.add(begin, lane), holds) for begin, holds in zip(begins, inside, strict=True)]
                serial(b, products[1], lambda b, z: self.pack_terms(b, (products[0], z), few, rows[0], places))

            serial(b, parts(b, terms[1], SOME), some)

        if self.rows is None:
            serial(inner, parts(inner, distance, self.chunk), chunks)
        else:
            chunks(inner, number(inner, 0))
        params = {"map": "vector", "multiple": self.lanes}
        b.emit(OPS["for"], (number(b, self.lanes),), params, [inner.block([lane], [])])

    def inside(self, b: Builder, begins: Sequence[Value], lane: Value, count: Value) -> list[Value | None]:
        """Which rows of some vectors there are; None where all are known to be."""
        if self.rows is None:
            return [b.lt(b.add(begin, lane), count) for begin in begins]
        whole = self.rows // self.lanes
        return [None] * whole + [b.lt(b.add(begin, lane), number(b, self.rows)) for begin in begins[whole:]]

    def pack_terms(
        self, b: Builder, product: Span, terms: tuple[Value, Value, Value], row: Value,
        places: Sequence[tuple[Value, Value | None]]
    ) -> None:  # fmt: skip
        """Some terms of some vectors of rows of a product of the group, which are added to its sums if there are any."""
        (first, z), (p0, start, count) = product, terms
        assert self.memory is not None and self.distance is not None
        which, memory = b.add(first, z), b.subview(self.memory, z)
        zeros = [] if self.sums is None else [b.const(0.0, self.dtype)] * len(places)
        step, p, values = Builder(b.loc), Value(scalar(I64), "p"), list[Value]()
        own = step.add(start, p)
        at, to = step.add(p0, own), step.mul(own, self.distance)
        later = step.add(at, number(step, AHEAD))
        for place, holds in places:
            there = step.add(row, place)
            ask(step, self.region, which, there, later)
            values += under(step, self.region, (which, there, at), 1, holds)
        for value, (place, _) in zip(values, places, strict=True):
            step.store(value, memory, step.add(to, place))
        before = [Value(v.type, "sum") for v in zeros]
        after = [step.add(total, value) for total, value in zip(before, values, strict=False)]
        totals = b.emit(OPS["for"], (count, *zeros), {"map": "serial"}, [step.block([p, *before], after)])
        for total, (place, _) in zip(totals, places, strict=False):
            b.store(b.add(b.load(self.sums, z, place), total), self.sums, z, place)

    def begin(self, b: Builder, products: Span) -> None:
        """Before the first run of a block."""
        if self.sums is None:
            return
        zero, ref = b.const(0.0, self.dtype), self.sums
        width = number(b, self.most * self.high + self.chunk)
        serial(b, products[1], lambda b, z: vector(b, width, 1, lambda b, r: b.store(zero, ref, z, r)))

    def end(self, b: Builder, products: Span, rows: Span) -> None:
        """After the last one."""
        if self.sums is None:
            return
        ref, along = self.sums, self.along
        assert along is not None

        def row(b: Builder, z: Value, r: Value) -> None:
            total = b.load(ref, z, r)
            b.instructions.extend(copied(along, (b.add(products[0], z), b.add(rows[0], r), total)).instructions)

        serial(b, products[1], lambda b, z: vector(b, rows[1], 1, lambda b, r: row(b, z, r)))

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

            vector(b, terms[1], 1, some, short=True)

    def elements(self, b: Builder, z: Value, p: Value, first: Value) -> list[Value]:
        """A term of the rows of a tile, of a product of the group."""
        memory = self.memory
        assert memory is not None
        if self.is_by_tile:
            return [b.load(memory, number(b, k), p) for k in range(self.high)]
        assert self.distance is not None
        start = b.add(b.mul(p, self.distance), b.sub(first, self.first))
        own = b.subview(memory, z)
        return [b.load(own, b.add(start, number(b, k))) for k in range(self.high)]

    def beside(self, b: Builder, z: Value, p: Value, first: int, row: Value) -> Value:
        """A term of the row of a block that is so far behind one of its first."""
        assert self.memory is not None and self.distance is not None
        start = b.add(b.mul(p, self.distance), number(b, first))
        found: Value = b.load(b.subview(self.memory, z), b.add(start, row))
        return found

    def ask_next(self, b: Builder, which: Value, at: Value, row: Value) -> None:
        """Ask for what is packed of a tile's rows in the next run, while a term of this one is multiplied."""
        for k in range(0, 0 if self.is_by_tile else self.high, LINE // self.dtype.bytes):
            ask(b, self.region, which, b.add(row, number(b, k)) if k else row, b.add(at, number(b, self.length)))


Piece = Callable[[Builder, Value], Value]


def add_up(b: Builder, i: Instruction, batch: Span) -> None:
    """Add up the left operands of a batch of products along their terms, beside what else is done."""
    (count, which), (rows, _, terms) = batch, i.operands
    left, ends = (Block((which, *r.parameters), r.instructions, r.results) for r in (i.regions[0], i.regions[-1]))

    def row(b: Builder, z: Value, r: Value) -> None:
        step, p, before = Builder(b.loc), Value(scalar(I64), "p"), Value(left.results[0].type, "sum")
        found = copied(left, (z, r, p))
        step.instructions.extend(found.instructions)
        after = step.add(before, found.results[0])
        zero = b.const(0.0, left.results[0].type.dtype)
        totals = b.emit(OPS["for"], (terms, zero), {"map": "serial"}, [step.block([p, before], [after])])
        b.instructions.extend(copied(ends, (z, r, *totals)).instructions)

    loop(b, count, lambda b, z: vector(b, rows, 1, lambda b, r: row(b, z, r)), map="core")


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
