"""Batches of matrix products with few columns: tiles that read the left operand where it lies and store their sums at once.

Of results that are one tile wide each element of the left operand is read once, so packing it would take as long as to multiply.
The right operand's columns are packed, in one panel for each product. Which of the loops over the batch, over rows and over terms
is outside, says the memory: what lies side by side is read one after the other, through all products of the batch.

The order of additions is that of the terms, in runs whose length depends on their number alone. Sums wait in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import (
    FEW,
    MOST_CHUNKS,
    element,
    is_stored,
    loop,
    number,
    parts,
    serial,
    shared,
    walks,
    when,
    whole,
)
from pullback.codegen.cpu.matmul.blocking import GROUP, Shape, shape_for
from pullback.codegen.cpu.matmul.packing import Panels
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copied
from pullback.ir.core.types import BOOL, I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Store

SHORT_RUN = 64
"""The terms of a run if all products of the batch read their terms from one row of memory: so many rows stay near."""
HIGH = 8
"""At least so many panels of rows read a packed panel of columns."""
MOST_TOGETHER = 64
"""So many products at most have their columns packed at a time."""
MOST_WIDE = 4
"""So many panels of columns at most, if they are read where they lie: the left operand is read once for each."""
SPLIT, GROUPS = 8, 2
"""So many blocks a thread, of as many groups of products if there are few rows."""


def may_be_narrow(i: Instruction) -> bool:
    """Whether a product stores its sums and does nothing else with them."""
    return len(i.operands) == 3 and is_stored(i.regions[2])


Place = tuple[Value, Sequence[Value]]


class Narrow:
    """A batch of products: ``batch`` is how many, and the value that tells in the regions which."""

    def __init__(self, b: Builder, i: Instruction, target: Target, batch: tuple[Value, Value]) -> None:
        self.b, (self.count, self.which) = b, batch
        self.rows, self.columns, self.terms = i.operands
        left, self.right, _ = self.regions = i.regions
        self.lies = lies_there(self.right)
        self.dtype = left.results[0].type.dtype
        self.shape: Shape = shape_for(target, self.dtype)
        self.has_fma = target.has_fma
        self.by_rows, self.by_terms = outside(left, 0, self.which), outside(left, 1, self.which)
        self.run_length = self.run_of(self.by_terms)
        near = target.cache // 2 // (self.shape.terms * 3 * self.shape.lanes * self.dtype.bytes)
        self.together = max(1, min(MOST_TOGETHER, near)) if self.by_rows or self.by_terms else 1

    def spell(self) -> Value:
        """Spells out those that are narrow, and gives how many are left."""
        b, lanes, zero = self.b, self.shape.lanes, number(self.b, 0)
        forms = [vectors for vectors in (3, 2) if vectors * lanes % GROUP == 0]
        ways = [(fits := self.fits(vectors), self.tiles(vectors, self.shape.high(vectors), fits)) for vectors in forms]
        fits = reduce(b.bitor, [fits for fits, _ in ways], b.const(False, BOOL))
        self.share(b.select(fits, self.count, zero), ways)
        found: Value = b.select(fits, zero, self.count)
        return found

    def fits(self, vectors: int) -> Value:
        """Whether tiles so wide serve: three vectors for results that fill them, two for others, of one panel or some."""
        b, lanes = self.b, self.shape.lanes
        fills = b.bitand(b.gt(self.columns, number(b, 2 * lanes)), b.le(self.columns, number(b, 3 * lanes)))
        if vectors == 3:
            return fills
        several = self.lies
        is_low = b.le(self.columns, number(b, (MOST_WIDE if several else 1) * vectors * lanes))
        return b.bitand(is_low, b.bitnot(fills)) if several and 3 * lanes % GROUP == 0 else is_low

    def share(self, count: Value, ways: list[tuple[Value, Tiles]]) -> None:
        """Share out panels of rows of so many products among threads."""
        b, one = self.b, number(self.b, 1)
        work = b.mul(b.mul(b.mul(self.rows, self.columns), self.terms), self.count)
        is_long = b.ge(work, number(b, self.shape.worth))
        panels, threads = number(b, 0), b.emit(OPS["threads"], (), {})[0]
        for fits, tiles in ways:
            panels = b.select(fits, parts(b, self.rows, tiles.high), panels)
        several = shared(b, b.mul(threads, number(b, GROUPS)), b.maximum(whole(b, panels, HIGH), one))
        together = b.minimum(b.maximum(b.idiv(count, several), one), number(b, self.together))
        groups = shared(b, count, together)
        wanted = b.select(is_long, shared(b, b.mul(threads, number(b, SPLIT)), b.maximum(groups, one)), one)
        high = b.maximum(shared(b, panels, wanted), number(b, HIGH))
        down = shared(b, panels, high)
        total = b.mul(groups, down)
        most = b.mul(threads, number(b, MOST_CHUNKS))
        size = b.maximum(b.select(is_long, shared(b, total, most), total), one)
        chunks = shared(b, total, size)
        chunks = b.select(b.gt(chunks, one), b.maximum(chunks, number(b, FEW)), chunks)
        room = (self.together, self.shape.terms * max(tiles.wide for _, tiles in ways))

        def chunk(b: Builder, c: Value) -> None:
            packed = None if self.lies else b.local(together, dtype=self.dtype, shape=room)
            first = b.mul(c, size)

            def item(b: Builder, k: Value) -> None:
                at = b.add(first, k)
                group = b.idiv(at, down)
                z, r = b.mul(group, together), b.mul(b.sub(at, b.mul(group, down)), high)
                products, rows = b.minimum(together, b.sub(count, z)), b.minimum(high, b.sub(panels, r))
                for fits, tiles in ways:
                    when(b, fits, partial(tiles.block, packed=packed, products=(z, products), panels=(r, rows)))

            serial(b, b.minimum(size, b.sub(total, first)), item)

        loop(b, chunks, chunk, map="core")

    def run_of(self, by_terms: bool) -> int:
        return SHORT_RUN if by_terms else self.shape.terms

    def tiles(self, vectors: int, rows: int, fits: Value) -> Tiles:
        """Those of products that fit."""
        return Tiles(self, vectors, rows)


class Tiles:
    """The same with tiles of ``vectors`` by ``rows``, of ``count`` products."""

    def __init__(self, of: Narrow, vectors: int, rows: int) -> None:
        self.of, self.shape, self.vectors, self.high = of, of.shape, vectors, rows
        self.wide = vectors * of.shape.lanes
        self.lies = of.lies

    def block(self, b: Builder, packed: Value | None, products: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """Some panels of rows of some products."""
        of, length = self.of, number(b, self.of.run_length)
        runs = b.maximum(shared(b, of.terms, length), number(b, 1))

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, length)
            terms = b.minimum(length, b.sub(of.terms, p0))
            is_first = b.eq(q, number(b, 0))

            def pack(b: Builder, z: Value) -> None:
                assert packed is not None
                right = Panels(self.regions(b, b.add(products[0], z))[1], 0, of.columns, self.wide, of.shape.lanes)
                right.pack(b, b.subview(packed, z), (p0, terms), (number(b, 0), of.columns))

            def tile(b: Builder, z: Value, r: Value) -> None:
                i = b.mul(b.add(panels[0], r), number(b, self.high))
                at = b.add(products[0], z)
                if packed is not None:
                    self.tile(b, b.subview(packed, z), at, (i, number(b, 0)), (p0, terms), is_first)
                    return
                across, wide = parts(b, of.columns, self.wide), number(b, self.wide)
                serial(b, across, lambda b, j: self.tile(b, None, at, (i, b.mul(j, wide)), (p0, terms), is_first))

            if packed is not None:
                serial(b, products[1], pack)
            if of.by_rows:
                serial(b, panels[1], lambda b, r: serial(b, products[1], lambda b, z: tile(b, z, r)))
            else:
                serial(b, products[1], lambda b, z: serial(b, panels[1], lambda b, r: tile(b, z, r)))

        serial(b, runs, run)

    def tile(
        self, b: Builder, panel: Value | None, z: Value, place: tuple[Value, Value], terms: tuple[Value, Value], is_first: Value
    ) -> None:
        """A tile of sums, or what a run of terms adds to it. Rows that are not there are the last one again."""
        of, (i, j) = self.of, place
        from_left, from_right, each = self.regions(b, z)
        last = b.sub(of.rows, number(b, 1))
        rows = [b.minimum(b.add(i, number(b, r)), last) for r in range(self.high)]
        left_of = self.left_of(b, from_left, rows)
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        lanes, columns, inside = self.across(inner, lane, j)
        zero = inner.const(0.0, of.dtype)
        places = [(r, x) for r in range(self.high) for x in range(self.vectors)]
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(of.dtype), "sum") for _ in places]
        at, start, after = step.add(terms[0], p), step.mul(p, number(step, self.wide)), []
        if panel is None:
            right = [self.lying(step, from_right, at, *place) for place in zip(columns, inside, strict=True)]
        else:
            right = [step.load(panel, step.add(start, v)) for v in lanes]
        for r in range(self.high):
            left = left_of(step, r, at)
            after += [self.multiply_add(step, left, right[x], before[r * self.vectors + x]) for x in range(self.vectors)]
        totals = inner.emit(
            OPS["for"], (terms[1], *[zero] * len(places)), {"map": "serial"}, [step.block([p, *before], after)]
        )
        sums = b.local(dtype=of.dtype, shape=(self.high, self.wide))
        is_later = b.bitnot(is_first)

        def put(b: Builder) -> None:
            for r, row in enumerate(rows):
                begin = self.out_of(b, each, row, j)
                for x in range(self.vectors):
                    ref, index = begin(b, lanes[x], columns[x])
                    b.store_if(totals[r * self.vectors + x], ref, inside[x], *index)

        def keep(b: Builder) -> None:
            for (r, x), total in zip(places, totals, strict=True):
                b.store(total, sums, number(b, r), lanes[x])

        when(inner, is_first, put)
        when(inner, is_later, keep)
        self.lanes(b, lane, inner)
        height = b.minimum(b.select(is_first, number(b, 0), number(b, self.high)), b.sub(of.rows, i))
        serial(b, height, lambda b, r: self.add(b, each, (b.add(i, r), j), b.subview(sums, r)))

    def across(self, b: Builder, lane: Value, first: Value) -> tuple[list[Value], ...]:
        """Of the columns that a lane has of a tile: how far they are from the first one, which they are, and whether they are
        there."""
        lanes = [lane, *(b.add(lane, number(b, x * self.shape.lanes)) for x in range(1, self.vectors))]
        columns = [b.add(first, v) for v in lanes]
        return lanes, columns, [b.lt(column, self.of.columns) for column in columns]

    def lanes(self, b: Builder, lane: Value, body: Builder) -> None:
        """All lanes of a vector."""
        params = {"map": "vector", "multiple": self.shape.lanes}
        b.emit(OPS["for"], (number(b, self.shape.lanes),), params, [body.block([lane], [])])

    def add(self, b: Builder, each: Block, place: tuple[Value, Value], sums: Value) -> None:
        """Add the sums of a row of a tile to what is there."""
        begin = self.out_of(b, each, *place)
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        lanes, columns, inside = self.across(inner, lane, place[1])
        at = [begin(inner, v, column) for v, column in zip(lanes, columns, strict=True)]
        places = [(ref, holds, *index) for (ref, index), holds in zip(at, inside, strict=True)]
        after = [inner.add(inner.load_if(*there), inner.load(sums, v)) for there, v in zip(places, lanes, strict=True)]
        for total, there in zip(after, places, strict=True):
            inner.store_if(total, *there)
        self.lanes(b, lane, inner)

    def regions(self, b: Builder, z: Value) -> tuple[Block, ...]:
        """The regions of one product."""
        return tuple(reading(region, self.of.which, z) for region in self.of.regions)

    def lying(self, b: Builder, region: Block, p: Value, column: Value, inside: Value) -> Value:
        """An element of the right operand where it lies, if it is there."""
        (found,) = copied(region, (p, column)).instructions
        ref, index = ref_and_index(found)
        value: Value = b.load_if(ref, inside, *index)
        return value

    def left_of(self, b: Builder, region: Block, rows: list[Value]) -> Callable[[Builder, int, Value], Value]:
        """What gives a term of one of some rows."""
        return lambda step, r, at: element(step, region, rows[r], at)

    def out_of(self, b: Builder, each: Block, row: Value, first: Value) -> Callable[[Builder, Value, Value], Place]:
        """What gives the place of an element of a row: in a lane of those from a column on, and which column that is."""
        def place(b: Builder, lane: Value, column: Value) -> Place:
            found = copied(each, (row, column, b.const(0.0, self.of.dtype))).instructions[0]
            return ref_and_index(found)

        return place

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.of.has_fma else b.add(b.mul(x, y), z)
        return found


def lies_there(region: Block) -> bool:
    """Whether the right operand is read as it is, and its columns lie side by side."""
    return not walks(region, 0, 1) and [type(i.op) for i in region.instructions] == [Load]


def outside(region: Block, position: int, which: Value) -> bool:
    """Whether memory goes through all products of a batch before it goes on along a parameter of a region."""
    for i in region.instructions:
        if isinstance(i.op, Load | Store):
            _, index = ref_and_index(i)
            own = region.parameters[position]
            if which in index and own in index:
                return list(index).index(own) < list(index).index(which)
    return False


def reading(region: Block, old: Value, new: Value) -> Block:
    """A region that reads another value of its surroundings."""
    parameters = tuple(Value(v.type, v.name) for v in region.parameters)
    found = copied(Block((old, *region.parameters), region.instructions, region.results), (new, *parameters))
    return Block(parameters, tuple(found.instructions), tuple(found.results))
