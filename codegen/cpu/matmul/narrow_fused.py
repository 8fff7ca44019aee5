"""Batches of matrix products with few columns that carry their neighbours: ``product_narrow`` with operands that are computed and
sums that are not only stored.

What is computed of an operand is computed once for a tile, or for a block (``product_left``), the right operand's columns in
panels; what is read as it lies stays there. Sums that are stored and nothing else wait in the result between runs of terms; of
others all terms are added at once, up to ``LONG`` runs, and the sums of a tile go on from registers (``product_after``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.cpu.loops.nest_builder import (
    FEW,
    MOST_CHUNKS,
    Met,
    Stores,
    is_plain,
    is_stored,
    known,
    loop,
    number,
    parts,
    serial,
    shared,
    under,
    when,
    whole,
)  # fmt: skip
from pullback.codegen.cpu.matmul.blocking import GROUP, HELD, Shape, shape_for
from pullback.codegen.cpu.matmul.epilogue import WAITING, After
from pullback.codegen.cpu.matmul.narrow import (
    GROUPS,
    HIGH,
    MOST_TOGETHER,
    MOST_WIDE,
    SHORT_RUN,
    SPLIT,
    lies_there,
    outside,
    reading,
)
from pullback.codegen.cpu.matmul.narrow_left_operand import Left, Piece, element_of
from pullback.codegen.cpu.matmul.narrow_tails import Tail, Tails, tail_for
from pullback.codegen.cpu.matmul.packing import Panels, Span
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load
from pullback.ir.ops.kernel.matmul import COLUMNS

MOST_AFTER = 16
"""What is done with sums in so many instructions is done while they are in registers."""
WIDTHS = 3, 2
"""The vectors of a row of tiles."""
LONG = 8
"""So many runs of terms are added at once where sums cannot wait in the result."""
LIGHT, FEW_TILES = 2, 3
"""A right operand that is one op away from memory is computed by so many panels of rows, each for itself."""


def may_be_carried(i: Instruction) -> bool:
    """Whether a product of a batch, of real numbers, does little with its sums."""
    left, _, each, *_ = i.regions
    is_real = len(left.results) == 1
    return is_real and len(i.operands) == 3 and len(each.instructions) <= MOST_AFTER and all(map(is_plain, each.instructions))


class Carried:
    """A batch of products: ``batch`` is how many, and the value that tells in the regions which."""

    def __init__(self, b: Builder, i: Instruction, target: Target, batch: tuple[Value, Value]) -> None:
        self.b, (self.count, self.which) = b, batch
        self.rows, self.columns, self.terms = i.operands
        left, right, each, *ends = i.regions
        self.along = self.of_batch(ends.pop()) if i.params.get("left_row_sums") else None
        self.left, self.right, self.each = map(self.of_batch, (left, right, each))
        self.given_right = right
        self.dtype = left.results[0].type.dtype
        self.after = After(self.each, i.params.get("row_combine", ()), *map(self.of_batch, ends))
        self.shape: Shape = shape_for(target, self.dtype)
        self.has_fma = target.has_fma
        self.only_stores, self.left_lies = is_stored(each), lies_alone(left) and self.along is None
        self.is_turned = Panels(right, 0, self.columns, 1, 1).is_turned
        self.right_lies = lies_there(right) or (not self.is_turned and is_light(right) and self.has_few_rows())
        self.by_terms = outside(left, 1, self.which)
        self.by_rows = outside(left, 0, self.which) or (not self.left_lies and outside(each, 0, self.which))
        self.length = SHORT_RUN if self.by_terms else self.shape.terms if self.only_stores else LONG * self.shape.terms
        self.near = target.cache // 2 // self.dtype.bytes

    def of_batch(self, region: Block) -> Block:
        return Block((self.which, *region.parameters), region.instructions, region.results)

    def has_few_rows(self) -> bool:
        """Whether products are known to have so few rows that few tiles read a right operand."""
        rows = known(self.b, self.rows)
        return rows is not None and rows <= FEW_TILES * self.shape.high(max(WIDTHS))

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found

    def spell(self) -> Value | None:
        """Spells out those that are narrow, and gives how many are left; None if there cannot be any."""
        b, lanes = self.b, self.shape.lanes
        work = b.mul(b.mul(b.mul(self.rows, self.columns), self.terms), self.count)
        is_long = b.ge(work, number(b, self.shape.worth))
        rest, zero = self.count, number(b, 0)
        is_short = b.le(self.terms, number(b, self.length))
        tail = self.tail()
        if tail is not None:
            _Tiles(self, tail.vectors, tail.high, 1, tail).spell(b, self.count, is_long)
            return None
        for vectors in self.forms():
            fits = b.le(self.columns, number(b, self.widest(vectors)))
            fits = fits if self.only_stores else b.bitand(fits, is_short)
            if vectors == 3:
                fits = b.bitand(fits, b.gt(self.columns, number(b, 2 * lanes)))
            count = b.select(fits, rest, zero)
            rest = b.select(fits, zero, rest)
            _Tiles(self, vectors, self.high(vectors), self.most(vectors)).spell(b, count, b.bitand(is_long, fits))
        return None if self.is_all() else rest

    def most(self, vectors: int) -> int:
        """How many panels of columns at most products have, in tiles so wide."""
        return MOST_WIDE if vectors == 2 and (self.right_lies or not self.is_turned) else 1

    def widest(self, vectors: int) -> int:
        """How many columns."""
        widest = self.most(vectors) * vectors * self.shape.lanes
        return min(widest, COLUMNS) if self.after.across else widest

    def forms(self) -> list[int]:
        """The vectors of a row of tiles: of one, if the columns are a number."""
        lanes, columns = self.shape.lanes, known(self.b, self.columns)
        found = [vectors for vectors in WIDTHS if vectors * lanes % GROUP == 0]
        if columns is None:
            return found
        return [v for v in found if (v < 3 or columns > 2 * lanes) and columns <= self.widest(v)][:1]

    def tail(self) -> Tail | None:
        """What the rows of tiles have in vectors together."""
        rows, columns, forms = known(self.b, self.rows), known(self.b, self.columns), self.forms()
        if not rows or columns is None or not forms or not self.only_stores or self.left_lies or not self.right_lies:
            return None
        vectors, high = forms[0], self.high(forms[0])
        others = -(-rows // high) * high * -(-columns // (vectors * self.shape.lanes)) * vectors
        tail = tail_for(rows, columns, self.shape.lanes, others) if self.shape.sums == HELD else None
        if tail is None:
            return None
        left = _Tiles(self, tail.vectors, tail.high, 1, tail).left
        return tail if left is not None and left.rows is not None and not left.is_by_tile else None

    def is_all(self) -> bool:
        """Whether all products are known to be narrow."""
        columns, terms = known(self.b, self.columns), known(self.b, self.terms)
        return columns is not None and bool(self.forms()) and (self.only_stores or (terms is not None and terms <= self.length))

    def high(self, vectors: int) -> int:
        """How many rows tiles of so many vectors have: whole groups where what is combined along them is turned, and fewer than
        registers hold if the rows of products are a number of which less is then computed in vain."""
        most, count = self.shape.high(vectors), known(self.b, self.rows)
        if self.after.across:
            return most // GROUP * GROUP
        if count is None or not self.only_stores:
            return most
        return -(-count // -(-count // most))


class _Tiles:
    """The same with tiles of ``vectors`` by ``rows``, of ``count`` products, and at most so many panels of columns."""

    def __init__(self, of: Carried, vectors: int, rows: int, most: int, tail: Tail | None = None) -> None:
        self.of, self.shape, self.vectors, self.high, self.most = of, of.shape, vectors, rows, most
        self.tail = tail
        self.tails: Value | None = None
        self.wide = vectors * of.shape.lanes
        self.left = None if of.left_lies else self.left_of(rows)
        self.packed: Value | None = None
        self.waiting: Value | None = None

    def inside(self, b: Builder, columns: Sequence[Value]) -> list[Value]:
        """Which columns of a panel there are."""
        of, lanes = self.of, self.shape.lanes
        known_ = self.wide if self.tail is not None else known(of.b, of.columns)
        whole_ = 0 if known_ is None or known_ > self.wide else known_ // lanes
        return [b.const(True, BOOL) if x < whole_ else b.lt(column, of.columns) for x, column in enumerate(columns)]

    def left_of(self, high: int) -> Left:
        """The left operand, packed."""
        of = self.of
        return Left(of.left, high, HIGH, of.length, MOST_TOGETHER, of.shape.lanes, of.along, known(of.b, of.rows))

    def spell(self, b: Builder, count: Value, is_long: Value) -> None:
        of, one = self.of, number(b, 1)
        panels, threads = parts(b, of.rows, self.high), b.emit(OPS["threads"], (), {})[0]
        several = shared(b, b.mul(threads, number(b, GROUPS)), b.maximum(whole(b, panels, HIGH), one))
        across = parts(b, of.columns, self.wide) if self.most > 1 else one
        terms = b.maximum(b.minimum(of.terms, number(b, of.length)), one)
        together = self.together(b, b.idiv(count, several), b.mul(b.mul(terms, across), number(b, self.wide)))
        groups = shared(b, count, together)
        wanted = b.select(is_long, shared(b, b.mul(threads, number(b, SPLIT)), b.maximum(groups, one)), one)
        high = b.maximum(shared(b, panels, wanted), number(b, HIGH))
        if self.left is not None and not self.left.is_by_tile:
            high = number(b, HIGH)
        down = shared(b, panels, high)
        total = b.mul(groups, down)
        most = b.mul(threads, number(b, MOST_CHUNKS))
        size = b.maximum(b.select(is_long, shared(b, total, most), total), one)
        chunks = shared(b, total, size)
        chunks = b.select(b.gt(chunks, one), b.maximum(chunks, number(b, FEW)), chunks)

        def chunk(b: Builder, c: Value) -> None:
            self.take(b, together, b.mul(b.mul(together, across), terms))
            first = b.mul(c, size)

            def item(b: Builder, k: Value) -> None:
                at = b.add(first, k)
                group = b.idiv(at, down)
                z, r = b.mul(group, together), b.mul(b.sub(at, b.mul(group, down)), high)
                products, rows = b.minimum(together, b.sub(count, z)), b.minimum(high, b.sub(panels, r))
                _Piece(self, (z, products), (r, rows), across).spell(b)

            serial(b, b.minimum(size, b.sub(total, first)), item)

        loop(b, chunks, chunk, map="core")

    def together(self, b: Builder, share: Value, size: Value) -> Value:
        """How many products have their columns packed at a time: of each so many numbers."""
        one = number(b, 1)
        if not (self.of.by_rows or self.of.by_terms):
            return one
        near = b.minimum(b.idiv(number(b, self.of.near), b.maximum(size, one)), number(b, MOST_TOGETHER))
        found: Value = b.maximum(b.minimum(share, near), one)
        return found

    def take(self, b: Builder, together: Value, lines: Value) -> None:
        """Take the memory of a chunk."""
        of = self.of
        if self.left is not None:
            self.left.take(b, together)
        if of.after.across:
            size = len(of.after.across) * self.shape.lanes * self.high
            self.waiting = b.local(dtype=of.dtype, shape=(WAITING * self.most, size))
        if self.tail is not None:
            self.tails = self.tail.local(b, together, of.dtype, MOST_TOGETHER)
        if not of.right_lies:
            most = MOST_TOGETHER * self.most * of.length * self.wide
            self.packed = b.local(b.mul(lines, number(b, self.wide)), dtype=of.dtype, shape=(most,))


class _Piece:
    """Some panels of rows of some products; ``across``: how many panels of columns each has."""

    def __init__(self, tiles: _Tiles, products: Span, panels: Span, across: Value) -> None:
        self.tiles, self.of, self.shape = tiles, tiles.of, tiles.shape
        self.left, self.high, self.wide = tiles.left, tiles.high, tiles.wide
        self.products, self.panels, self.across = products, panels, across

    def spell(self, b: Builder) -> None:
        of, length = self.of, number(b, self.of.length)
        if of.along is not None and self.left is not None:
            self.left.begin(b, self.products)
        if of.only_stores:
            runs = b.maximum(shared(b, of.terms, length), number(b, 1))
            serial(b, runs, lambda b, q: self.run(b, b.mul(q, length), b.eq(q, number(b, 0))))
        else:
            self.run(b, number(b, 0), b.const(True, BOOL))
        if of.along is not None and self.left is not None:
            self.left.end(b, self.products, self.rows(b))

    def rows(self, b: Builder) -> Span:
        """The first row and how many."""
        first = b.mul(self.panels[0], number(b, self.high))
        return first, b.minimum(b.mul(self.panels[1], number(b, self.high)), b.sub(self.of.rows, first))

    def run(self, b: Builder, p0: Value, is_first: Value) -> None:
        of, terms = self.of, (p0, b.minimum(number(b, self.of.length), b.sub(self.of.terms, p0)))
        self.terms, self.is_first = terms, is_first
        if not of.right_lies:
            serial(b, self.products[1], lambda b, z: serial(b, self.across, lambda b, j: self.pack(b, z, j)))
        if self.left is not None:
            self.left.pack_block(b, self.products, terms, self.rows(b))

        def across(b: Builder, r: Value) -> None:
            self.each(b, self.products[1], lambda b, z: (z, r))

        def down(b: Builder, z: Value) -> None:
            self.each(b, self.panels[1], lambda b, r: (z, r))

        serial(b, *((self.panels[1], across) if of.by_rows else (self.products[1], down)))

    def each(self, b: Builder, count: Value, place: Callable[[Builder, Value], tuple[Value, Value]]) -> None:
        """Tiles one after the other, and now and then what is done with rows of theirs."""
        def one(b: Builder, x: Value) -> None:
            self.row(b, *place(b, x), x)
            if self.tiles.waiting is not None:
                sums = self.tiles.waiting, self.high
                self.of.after.together(b, x, count, lambda b, x: self.place(b, *place(b, x)), self.across, sums)

        serial(b, count, one)

    def place(self, b: Builder, z: Value, r: Value) -> tuple[Value, Span]:
        """Which product and which rows a panel is of."""
        i = b.mul(b.add(self.panels[0], r), number(b, self.high))
        return b.add(self.products[0], z), (i, b.minimum(number(b, self.high), b.sub(self.of.rows, i)))

    def begin(self, b: Builder, z: Value, j: Value) -> Value:
        """Where a panel of columns begins."""
        found: Value = b.mul(b.mul(b.add(b.mul(z, self.across), j), self.terms[1]), number(b, self.wide))
        return found

    def pack(self, b: Builder, z: Value, j: Value) -> None:
        """Pack a panel of columns."""
        of, panel, which, start = self.of, self.tiles.packed, b.add(self.products[0], z), self.begin(b, z, j)
        assert panel is not None
        if of.is_turned:
            region = reading(of.given_right, of.which, which)
            _Placed(region, of.columns, self.wide, self.shape.lanes, start).pack(b, panel, self.terms, (number(b, 0), of.columns))
            return
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        first = b.mul(j, number(b, self.wide))
        begins = [inner.add(first, number(inner, x * self.shape.lanes)) for x in range(self.tiles.vectors)]
        columns = [inner.add(begin, lane) for begin in begins]
        inside = self.tiles.inside(inner, columns)
        pieces = [element_of(inner, of.right, (which, None, c), 2, holds) for c, holds in zip(columns, inside, strict=True)]

        def term(b: Builder, p: Value) -> None:
            at, to = b.add(self.terms[0], p), b.add(start, b.mul(p, number(b, self.wide)))
            values = [piece(b, at) for piece in pieces]
            for x, value in enumerate(values):
                b.store(value, panel, b.add(b.add(to, number(b, x * self.shape.lanes)), lane))

        serial(inner, self.terms[1], term)
        b.emit(OPS["for"], (number(b, self.shape.lanes),), self.vector, [inner.block([lane], [])])

    @property
    def vector(self) -> dict[str, object]:
        return {"map": "vector", "multiple": self.shape.lanes}

    def row(self, b: Builder, z: Value, r: Value, nth: Value) -> None:
        """The tiles of a panel of rows. Rows that are not there are the last one again."""
        at, (i, _) = self.place(b, z, r)
        last = b.sub(self.of.rows, number(b, 1))
        rows = [b.minimum(b.add(i, number(b, k)), last) for k in range(self.high)]
        if self.left is not None:
            self.left.pack_tile(b, at, self.terms, rows)
        slot = b.mul(b.bitand(nth, number(b, WAITING - 1)), number(b, self.tiles.most))
        tile = _Tile(self, z, at, rows)
        serial(b, self.across, lambda b, j: tile.spell(b, j, b.add(slot, j)))
        if self.tiles.tail is not None:
            when(b, b.eq(b.add(r, number(b, 1)), self.panels[1]), lambda b: self.tail(b, z, at))

    def tail(self, b: Builder, z: Value, which: Value) -> None:
        """The last columns of a product."""
        of, tiles, left = self.of, self.tiles, self.left
        assert tiles.tail is not None and left is not None

        def right(b: Builder, column: Value) -> Piece:
            return element_of(b, of.right, (which, None, column), 2, None)

        tails = Tails(tiles.tail, b.subview(tiles.tails, z), left, z, which, right, of.multiply_add)
        is_last = b.ge(b.add(*self.terms), of.terms)
        tails.spell(b, self.terms, of.each, of.rows, (self.is_first, is_last))


class _Tile:
    """A tile of sums, or what a run of terms adds to it: ``z`` is the product in its group, ``which`` of all."""

    def __init__(self, piece: _Piece, z: Value, which: Value, rows: list[Value]) -> None:
        self.piece, self.of, self.tiles, self.z, self.which, self.rows = piece, piece.of, piece.tiles, z, which, rows

    def spell(self, b: Builder, j: Value, slot: Value) -> None:
        of, tiles, lanes = self.of, self.tiles, self.piece.shape.lanes
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        first = b.mul(j, number(b, tiles.wide))
        columns = [inner.add(inner.add(first, number(inner, x * lanes)), lane) for x in range(tiles.vectors)]
        inside = self.tiles.inside(inner, columns)
        totals = self.totals(inner, self.piece.begin(b, self.z, j), lane, columns, inside)
        if of.only_stores:
            self.put(inner, columns, inside, totals)
        else:
            sums = None if tiles.waiting is None else b.subview(tiles.waiting, slot)
            of.after.run(inner, self.which, self.rows, list(zip(columns, inside, strict=True)), totals, (sums, lane))
        b.emit(OPS["for"], (number(b, lanes),), self.piece.vector, [inner.block([lane], [])])

    def totals(
        self, b: Builder, begin: Value, lane: Value, columns: list[Value], inside: list[Value]
    ) -> tuple[Value, ...]:  # fmt: skip
        of, tiles, lanes, terms = self.of, self.tiles, self.piece.shape.lanes, self.piece.terms
        step, p, zero = Builder(b.loc), Value(scalar(I64), "p"), b.const(0.0, of.dtype)
        before = [Value(scalar(of.dtype), "sum") for _ in range(tiles.high * tiles.vectors)]
        at = step.add(terms[0], p)
        if tiles.packed is None:
            pairs = zip(columns, inside, strict=True)
            pieces = [element_of(b, of.right, (self.which, None, column), 2, holds) for column, holds in pairs]
            right = [piece(step, at) for piece in pieces]
        else:
            start = step.add(begin, step.mul(p, number(step, tiles.wide)))
            begins = [step.add(start, number(step, x * lanes)) for x in range(tiles.vectors)]
            right = [step.load(tiles.packed, step.add(begin, lane)) for begin in begins]
        if tiles.left is None:
            left = [found for row in self.rows for found in under(step, of.left, (self.which, row, at), 1, None)]
        else:
            left = tiles.left.elements(step, self.z, p, self.rows[0])
            tiles.left.ask_next(step, self.which, at, self.rows[0])
        pairs_ = [(x, y) for x in left for y in right]
        after = [of.multiply_add(step, x, y, total) for (x, y), total in zip(pairs_, before, strict=True)]
        body = step.block([p, *before], after)
        return b.emit(OPS["for"], (terms[1], *[zero] * len(before)), {"map": "serial"}, [body])

    def put(self, b: Builder, columns: list[Value], inside: list[Value], totals: tuple[Value, ...]) -> None:
        """Store sums, all of them after all that was there is read; those of the last row after those that repeat it."""
        stores: Stores = []
        met: Met = {}
        for r in reversed(range(len(self.rows))):
            for x, (column, holds) in enumerate(zip(columns, inside, strict=True)):
                total = totals[r * len(columns) + x]
                under(b, self.of.each, (self.which, self.rows[r], column, total), 2, holds, stores, met)

        def first(b: Builder) -> None:
            for operands in stores:
                b.store_if(*operands)

        def more(b: Builder) -> None:
            sums = [b.add(b.load_if(ref, *rest), total) for total, ref, *rest in stores]
            for total, (_, *rest) in zip(sums, stores, strict=True):
                b.store_if(total, *rest)

        when(b, self.piece.is_first, first)
        when(b, b.bitnot(self.piece.is_first), more)


class _Placed(Panels):
    """Packs a panel that begins somewhere in memory."""

    def __init__(self, region: Block, total: Value, size: int, lanes: int, begin: Value) -> None:
        super().__init__(region, 0, total, size, lanes)
        self.begin = begin

    def place(self, b: Builder, p: Value, k: Value) -> Value:
        found: Value = b.add(self.begin, super().place(b, p, k))
        return found


def is_light(region: Block) -> bool:
    """Whether an operand is one op on few numbers from memory."""
    loads = [i for i in region.instructions if isinstance(i.op, Load)]
    return len(loads) <= LIGHT and len(region.instructions) <= LIGHT + 1


def lies_alone(region: Block) -> bool:
    """Whether an operand is read as it is."""
    (first, *rest) = region.instructions or (None,)
    return not rest and first is not None and isinstance(first.op, Load) and not first.op.masked
