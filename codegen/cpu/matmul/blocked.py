"""Matrix products on the CPU: packed, in tiles of registers and blocks of caches (Goto and van de Geijn 2008).

The result is cut into blocks, which threads share out. For each block as many terms as a packed panel has are added at a time:
the right operand's columns are packed in panels as wide as a tile, panel by panel the left operand's rows, and one tile of sums
after the other is computed in registers. Sums wait in memory of the block's own; after the last terms those of a row of tiles go,
element by element, where the product's last region takes them. Where that is a few instructions, those of a tile go at once if
there is one run of terms.

Of few rows, each panel of columns is packed just before its first tile, in short runs of terms: nobody waits for memory while
nothing is multiplied. Not so where registers hold the sums of half a tile, which begins and ends too often for short runs. The
order of additions is that of the terms, in runs whose length depends on the numbers of rows, columns and terms alone.

Memory is asked for while tiles are computed: the sums of a tile when it begins, with each tile its share of the left rows that
are packed next and of where the results go, and with each term of few rows what is packed in the next run.

Cost: an element of the left operand is packed once for each block of columns, one of the right operand once for each block of
rows. Footprint: ``product_shapes`` says which cache holds what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pullback.codegen.cpu.loops.nest_builder import (
    FEW,
    Body,
    Rows,
    RowsAt,
    ask,
    each_of_batch,
    identities,
    is_stored,
    loop,
    number,
    parts,
    rows_of,
    serial,
    shared,
    when,
    whole,
)  # fmt: skip
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.blocking import Shape, shape_for
from pullback.codegen.cpu.matmul.complex_numbers import ComplexTile, pairs_of
from pullback.codegen.cpu.matmul.microkernel import Tile
from pullback.codegen.cpu.matmul.packing import Panels, Span
from pullback.codegen.cpu.matmul.shared_packing import Lies, Pack, operands_of, pack, pairs_lie
from pullback.codegen.cpu.matmul.subnormals import KNOWN, Scales
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction, copied
from pullback.ir.core.types import BOOL, I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.matmul import COLUMNS, ROWS

EACH = 4
"""Of fewer blocks a thread, each gets equally many."""
FLAT, NARROW = 6, 8
"""Blocks of so few panels of rows have at most so many of columns that are packed together: these are read again soon."""
RUN, ROW = 32, 1 << 12
"""Columns of so few rows that lie side by side are packed panel by panel, so many terms and bytes of a row at a time: what comes
next is asked for a run ahead, which is 128 KiB. Runs are longer where rows are shorter."""
TOGETHER = 16
"""Blocks of so many panels of rows begin at a multiple of the rows that a row of a *part* is for: no two blocks share one."""
FINE = 1 << 16
"""Parts of a row of tiles are told so finely."""
LIGHT = 4
"""What is done with results in so few instructions is done tile by tile."""


Somewhere = tuple[Value, Callable[[Builder, Value], tuple[Value, Value]]]
"""How far one is from the next of what is asked for, and what tells a tile's first row and column, as they lie."""
Ahead = Callable[[Builder, Value, tuple[Value, Value]], tuple[Value, Value]]
"""What the terms of a tile ask for, and how far behind that of the terms before: of its number, and where its sums are."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of the result: its first row and how many panels of rows, its first column and how many columns, in how many panels
    (``across``); how long a run of terms is, and how many there are; whether there are ``several``, whether panels of columns are
    kept for another panel of rows, and whether memory is far. Its own memory: the left panel, then those of the right operand,
    what is known of each, and sums."""

    rows: Span
    columns: Span
    across: Value
    length: Value
    runs: Value
    several: Value
    keeps: Value
    is_far: Value
    panels: Value
    known: Value
    sums: Value


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of terms: its first one, how many, whether it is the first or the last run, and how many numbers are in panels."""

    terms: Span
    is_first: Value
    is_last: Value
    sizes: tuple[Value, Value]


class Blocks:
    """One product, or a batch of them: how many, and the value that tells in the regions which."""

    def __init__(
        self, b: Builder, i: Instruction, target: Target, functions: Functions, outermost: bool,
        batch: tuple[Value, Value] | None = None,
    ) -> None:  # fmt: skip
        self.b, self.outermost, self.batch = b, outermost, batch
        self.rows, self.columns, self.terms, *self.parts = i.operands
        self.combine, self.across = i.params.get("combine", ()), i.params.get("row_combine", ())
        left, right, self.each, *self.ends = i.regions
        self.dtype = left.results[0].type.dtype
        self.planes = len(left.results)
        self.is_light = not self.parts and not self.across and len(self.each.instructions) <= LIGHT * self.planes
        self.shape: Shape = shape_for(target, self.dtype, self.planes)
        self.apart = COLUMNS // self.shape.columns
        self.most_wide = self.shape.most_wide // self.apart * self.apart if self.across else self.shape.most_wide
        self.tile = (Tile if self.planes == 1 else ComplexTile)(self.dtype, self.shape, target.has_fma)
        self.functions = functions
        self.packed = operands_of(i) if self.planes == 1 else (pairs_lie(left), pairs_lie(right))
        for of, is_left in zip(self.packed, (True, False), strict=True):
            if of is not None and of.packed_by is None:
                self.ways(of, is_left)  # shorter than tiles, so that a thread has something to compile at once
        functions[self.tile.name] = self.tile.define()
        self.lower = [replace(self.tile, low=rows) for rows in self.shape.lows]
        self.lows: list[Value] | None = None
        self.is_worth = [b.le(self.rows, number(b, self.shape.most_rows(rows))) for rows in self.shape.lows]
        for tile, is_worth in zip(self.lower, self.is_worth, strict=True):
            with functions.under(b, is_worth):
                functions[tile.name] = tile.define()
        self.scales = Scales.of_shape(self.dtype, self.shape)
        self.left = Panels(left, 1, self.rows, self.shape.rows, self.shape.lanes)
        self.right = Panels(right, 0, self.columns, self.shape.columns, self.shape.lanes)
        self.is_flat = b.le(self.rows, number(b, FLAT * self.shape.rows))
        is_whole = len(self.shape.passes(self.shape.rows)) == 1
        self.by_panel = self.is_flat if is_whole else b.const(False, BOOL)
        self.comes_by_row = not self.right.is_turned
        self.goes: Rows | RowsAt | None = rows_of(self.each) if outermost and is_stored(self.each) else None
        comes = rows_of(right) if is_whole and self.comes_by_row and len(right.instructions) <= LIGHT else None
        self.comes: Rows | RowsAt | None = comes if comes is not None and comes.ref.type.dtype is self.dtype else None
        if self.planes > 1:
            self.goes = pairs_of(self.each) if outermost and self.is_light else None
            self.comes = pairs_of(right) if is_whole and self.comes_by_row else None

    @property
    def left_lies(self) -> Lies | None:
        """Where the left operand lies of which tiles ask for the next rows: one of real numbers."""
        return self.packed[0] if self.planes == 1 else None

    def spell(self) -> None:
        b, shape = self.b, self.shape
        row_panels, column_panels = parts(b, self.rows, shape.rows), parts(b, self.columns, shape.columns)
        work = b.mul(b.mul(self.rows, self.columns), self.terms)
        is_long = b.ge(work if self.batch is None else b.mul(work, self.batch[0]), number(b, shape.worth))
        down, along = self.number(row_panels, column_panels, is_long)
        high, wide = shared(b, row_panels, down), shared(b, column_panels, along)
        if self.parts:
            high = b.mul(parts(b, high, TOGETHER), number(b, TOGETHER))
        if self.across:
            wide = b.mul(parts(b, wide, self.apart), number(b, self.apart))
        high, wide = b.maximum(high, number(b, 1)), b.maximum(wide, number(b, 1))
        down = shared(b, row_panels, high)
        blocks = b.mul(down, shared(b, column_panels, wide))
        same = self.same(b)

        def begin(b: Builder) -> Body:
            """Take the memory of one block after the other; gives what spells out a block."""
            memory = self.memory(b, same["several"], high, wide)

            def block(b: Builder, c: Value) -> None:
                column = b.idiv(c, down)
                first = b.mul(b.sub(c, b.mul(column, down)), high)
                left = b.mul(column, wide)
                panels, across = b.minimum(high, b.sub(row_panels, first)), b.minimum(wide, b.sub(column_panels, left))
                self.block(b, (first, panels), (left, across), {**same, **memory})

            return block

        if not self.outermost:
            serial(b, blocks, begin(b))
            return
        if self.batch is not None:
            each_of_batch(b, self.batch, blocks, is_long, begin)
            return
        chunks = b.select(b.bitand(is_long, b.gt(blocks, number(b, 1))), b.maximum(blocks, number(b, FEW)), blocks)
        loop(b, chunks, lambda b, c: when(b, b.lt(c, blocks), lambda b: begin(b)(b, c)), map="core")

    def number(self, row_panels: Value, column_panels: Value, is_long: Value) -> tuple[Value, Value]:
        """Into how many blocks rows and columns are cut: as many as caches ask for; where there is work for several threads, some
        for each."""
        b, shape, one = self.b, self.shape, number(self.b, 1)
        down = b.maximum(parts(b, row_panels, shape.most_high), one)
        narrow = ROW // (shape.columns * self.planes * self.dtype.bytes) if self.comes_by_row else NARROW
        wide = b.select(self.by_panel, number(b, min(narrow, self.most_wide)), number(b, self.most_wide))
        along = b.maximum(shared(b, column_panels, wide), one)
        if not self.outermost:
            return down, along
        threads = b.emit(OPS["threads"], (), {})[0]
        blocks = b.mul(down, along) if self.batch is None else b.mul(b.mul(down, along), self.batch[0])
        few = b.lt(blocks, b.mul(threads, number(b, EACH)))
        wanted = b.select(b.bitand(few, is_long), threads, one)
        by_columns = b.bitand(self.is_flat, b.ge(column_panels, wanted))
        by_rows = b.bitand(b.ge(row_panels, wanted), b.bitnot(by_columns))
        of_rows, of_columns = b.select(by_rows, wanted, one), b.select(by_rows, one, wanted)
        return b.mul(shared(b, down, of_rows), of_rows), b.mul(shared(b, along, of_columns), of_columns)

    def same(self, b: Builder) -> dict[str, Value]:
        """What all blocks have in common."""
        one, lanes = number(b, 1), self.shape.lanes
        runs = b.maximum(shared(b, self.terms, self.run_of(b)), one)
        length = b.mul(b.maximum(parts(b, shared(b, self.terms, runs), lanes), one), number(b, lanes))
        # of longer runs there may be fewer
        runs = b.maximum(shared(b, self.terms, length), one)
        return {"length": length, "runs": runs, "several": b.gt(runs, one), "is_far": self.is_far(b)}

    def memory(self, b: Builder, several: Value, panels: Value, across: Value) -> dict[str, Value]:
        """The memory of a block of so many panels of rows and of columns."""
        shape, one = self.shape, number(b, 1)
        among = b.add(b.select(self.keeps(b, panels), across, one), one)
        return {
            "panels": b.local(among, dtype=self.dtype, shape=(shape.most_wide + 1, shape.panel)),
            "known": b.local(among, dtype=I64, shape=(shape.most_wide + 1, KNOWN)),
            "sums": b.local(b.select(several, panels, one), dtype=self.dtype, shape=(shape.most_high, shape.rows, shape.strip)),
        }

    def keeps(self, b: Builder, panels: Value) -> Value:
        """Whether a block of so many panels of rows keeps those of columns."""
        found: Value = b.bitor(b.gt(panels, number(b, 1)), b.bitnot(self.by_panel))
        return found

    def block(self, b: Builder, row_panels: Span, column_panels: Span, given: Mapping[str, Value]) -> None:
        """The block of some panels of rows and of columns."""
        (first, panels), (left, across) = row_panels, column_panels
        rows, columns = number(b, self.shape.rows), number(b, self.shape.columns)
        i0, j0 = b.mul(first, rows), b.mul(left, columns)
        width = b.minimum(b.mul(across, columns), b.sub(self.columns, j0))
        self.runs(b, Block(rows=(i0, panels), columns=(j0, width), across=across, keeps=self.keeps(b, panels), **given))

    def runs(self, b: Builder, block: Block) -> None:
        """The runs of terms of a block, whose memory is there."""
        one, (_, panels) = number(b, 1), block.rows

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, block.length)
            count = b.minimum(block.length, b.sub(self.terms, p0))
            sizes = b.mul(count, number(b, self.left.numbers)), b.mul(count, number(b, self.right.numbers))
            found = Run(terms=(p0, count), is_first=b.eq(q, number(b, 0)), is_last=b.eq(b.add(q, one), block.runs), sizes=sizes)
            serial(b, panels, lambda b, r: self.row(b, block, found, r))

        serial(b, block.runs, run)

    def row(self, b: Builder, block: Block, run: Run, r: Value) -> None:
        """A panel of rows of a block, over a run of terms."""
        shape, zero, one = self.shape, number(b, 0), number(b, 1)
        (i0, _), (j0, width), (p0, count) = block.rows, block.columns, run.terms
        i = b.add(i0, b.mul(r, number(b, shape.rows)))
        height = b.minimum(number(b, shape.rows), b.sub(self.rows, i))
        self.pack_rows(b, block, run, (i, height))
        strip = b.subview(block.sums, b.select(block.several, r, zero))
        is_new = b.eq(r, zero)
        tile_of, of_tile = self.tile_of(b, height)
        is_whole = b.bitand(b.eq(height, of_tile), run.is_last)
        part = shared(b, b.select(block.is_far, count, zero), block.across) if self.left_lies is None else zero
        ends = b.bitand(block.is_far, run.is_last)
        left_ahead = self.left_ahead(b, block, run, r, i)

        def tile(b: Builder, j: Value) -> None:
            c = b.mul(j, number(b, shape.columns))
            column, k = b.add(j0, c), b.add(b.select(block.keeps, j, zero), one)
            begins = b.bitor(self.by_panel, b.eq(j, zero))
            when(b, b.bitand(is_new, begins), lambda b: self.pack(b, block, run, k, c))
            if self.left_lies is None:
                self.left.ask_for(b, (b.add(p0, b.mul(j, part)), part), b.add(i, number(b, shape.rows)))
            some = b.minimum(number(b, shape.columns), b.sub(width, c))
            goes = b.bitand(is_whole, b.eq(some, number(b, shape.columns))) if self.goes else b.const(False, BOOL)
            waits = b.bitnot(goes)
            when(b, b.bitand(ends, waits), lambda b: self.ask_results(b, i, column))
            sums = self.sums_of(b, strip, j)
            given = block.panels, block.known, k, count, run.is_first, *sums
            ahead = *self.sums_ahead(b, block, run, r, j), *left_ahead(b, j, sums)
            moves = b.bitand(self.comes_now(b), waits)
            when(b, b.bitand(waits, b.bitnot(moves)), lambda b: tile_of(b, *given, *sums, *ahead))
            if self.comes:
                when(b, moves, lambda b: tile_of(b, *given, *sums, *self.right_ahead(b, run, r, block.rows[1], column)))
            if self.goes:
                out = self.goes.begin(b, i, column), self.goes.apart(b)
                when(b, goes, lambda b: tile_of(b, *given, *out, *ahead))
            if self.is_light:
                there = b.emit(OPS["ref_at"], (sums[0], zero, sums[1]), {})[0]
                when(b, b.bitand(run.is_last, waits), lambda b: self.finish(b, there, (i, height), (column, some)))

        serial(b, block.across, tile)
        if not self.is_light:
            when(b, run.is_last, lambda b: self.finish(b, strip, (i, height), (j0, width)))

    def low_tiles(self, b: Builder) -> list[Value]:
        """Where the lower tiles are; 0 for those that are not worth it."""
        pairs = zip(self.lower, self.is_worth, strict=True)
        return [b.emit(OPS["function_address"], (is_worth,), {"function": tile.name})[0] for tile, is_worth in pairs]

    def tile_of(self, b: Builder, height: Value) -> tuple[Callable[..., None], Value]:
        """What calls the tile for a panel of so many rows, and of how many rows that has sums."""
        rows = number(b, self.shape.rows)
        if not self.lower:
            return self.tile.call, rows
        found = b.emit(OPS["function_address"], (), {"function": self.tile.name})[0]
        for of_low, low in zip(self.shape.lows, self.lows or self.low_tiles(b), strict=True):
            fits = b.bitand(b.le(height, number(b, of_low)), b.ne(low, number(b, 0)))
            found, rows = b.select(fits, low, found), b.select(fits, number(b, of_low), rows)
        return lambda b, *given: b.emit(OPS["call_indirect"], (found, *given), {}), rows

    # where sums wait, and what the terms of a tile ask for meanwhile

    def sums_of(self, b: Builder, strip: Value, j: Value) -> tuple[Value, Value]:
        """Where the sums of a tile wait, and how far apart its rows are. A tile's lie side by side if they leave by tiles."""
        width = self.shape.columns * self.planes
        size, apart = (self.shape.rows * width, width) if self.is_light else (width, self.shape.strip)
        return b.emit(OPS["ref_at"], (strip, number(b, 0), b.mul(j, number(b, size))), {})[0], number(b, apart)

    def sums_ahead(self, b: Builder, block: Block, run: Run, r: Value, j: Value) -> tuple[Value, Value]:
        """The sums of the next tile, if they lie side by side, and those of a panel of rows one after the other."""
        one, zero = number(b, 1), number(b, 0)
        if not self.is_light:
            return self.sums_of(b, b.subview(block.sums, zero), zero)[0], zero
        size = self.shape.rows * self.shape.columns * self.planes
        is_end = b.eq(b.add(j, one), block.across)
        row = b.select(block.several, b.add(r, b.select(is_end, one, zero)), zero)
        next_, _ = self.sums_of(b, b.subview(block.sums, row), b.select(is_end, zero, b.add(j, one)))
        return next_, b.mul(shared(b, number(b, size), b.maximum(run.terms[1], one)), number(b, self.shape.at_once))

    def left_ahead(self, b: Builder, block: Block, run: Run, r: Value, i: Value) -> Ahead:
        """Of the left rows that are packed next, if memory is far: what tells it of a tile."""
        zero, of = number(b, 0), self.left_lies
        if of is None:
            return lambda b, j, sums: (sums[0], zero)
        tile = b.mul(r, block.across), b.add(i, number(b, self.shape.rows))
        if of.known is None:
            by, place = (self.terms_ahead if of.is_turned else self.rows_ahead)(b, block, run, *tile)
            return lambda b, j, sums: (of.rows.begin(b, *place(b, j)), by)
        is_turned = of.known
        (by_terms, of_terms), (by_rows, of_rows) = (way(b, block, run, *tile) for way in (self.terms_ahead, self.rows_ahead))
        by = b.select(is_turned, by_terms, by_rows)

        def tell(b: Builder, j: Value, sums: tuple[Value, Value]) -> tuple[Value, Value]:
            pairs = zip(of_terms(b, j), of_rows(b, j), strict=True)
            return of.rows.begin(b, *(b.select(is_turned, *pair) for pair in pairs)), by

        return tell

    def terms_ahead(self, b: Builder, block: Block, run: Run, before: Value, next_: Value) -> Somewhere:
        """Where rows lie side by side: every other term of some."""
        assert self.left_lies is not None
        p0, one = run.terms[0], number(b, 1)
        by = b.select(block.is_far, b.mul(number(b, self.shape.at_once), self.left_lies.rows.apart(b)), number(b, 0))
        return by, lambda b, j: (b.add(p0, b.bitand(b.add(before, j), one)), next_)

    def rows_ahead(self, b: Builder, block: Block, run: Run, before: Value, next_: Value) -> Somewhere:
        """One row a tile, from end to end; or if tiles are few, two lines of each of many rows."""
        assert self.left_lies is not None
        (p0, count), rows, asked = run.terms, number(b, self.shape.rows), number(b, self.tile.asked)
        zero, one, at_once = number(b, 0), number(b, 1), number(b, self.shape.at_once)
        few = b.lt(block.across, rows)
        of = b.maximum(parts(b, count, self.tile.asked), one)
        first = b.add(p0, b.mul(b.sub(before, b.mul(b.idiv(before, of), of)), asked))
        end, turn = b.add(p0, b.mul(of, asked)), b.mul(of, asked)
        by = b.select(block.is_far, b.select(few, self.left_lies.rows.apart(b), at_once), zero)
        share = b.select(few, zero, b.idiv(b.mul(rows, number(b, FINE)), block.across))
        step = b.select(few, asked, zero)
        start = b.select(few, first, p0)

        def place(b: Builder, j: Value) -> tuple[Value, Value]:
            term = b.add(start, b.mul(j, step))
            term = b.select(b.lt(term, end), term, b.sub(term, turn))
            return b.add(next_, whole(b, b.mul(j, share), FINE)), term

        return by, place

    def comes_now(self, b: Builder) -> Value:
        """Whether tiles ask for the columns that are packed in the next run."""
        if self.comes is None:
            return b.const(False, BOOL)
        is_turned = None if self.packed[1] is None else self.packed[1].known
        return self.by_panel if is_turned is None else b.bitand(self.by_panel, b.bitnot(is_turned))

    def right_ahead(self, b: Builder, run: Run, r: Value, panels: Value, column: Value) -> tuple[Value, ...]:
        """The columns that are packed in the next run, every other term of them with the tiles of each of two panels of rows."""
        assert self.comes
        zero, one, at_once = number(b, 0), number(b, 1), number(b, self.shape.at_once)
        moves = b.select(b.bitand(b.lt(r, number(b, 2)), b.bitnot(run.is_last)), one, zero)
        term, apart = b.add(run.terms[0], b.mul(run.terms[1], moves)), b.mul(b.mul(moves, at_once), self.comes.apart(b))
        half = number(b, self.tile.asked // self.planes)
        alone = b.eq(panels, one)
        first = b.add(term, b.select(b.bitand(b.eq(r, one), b.ne(moves, zero)), one, zero))
        second = b.add(term, b.bitand(moves, b.select(alone, one, r)))
        beside = (term, b.add(column, half)) if self.shape.at_once == 1 else (second, column)
        return self.comes.begin(b, first, column), apart, self.comes.begin(b, *beside), apart

    def pack_rows(self, b: Builder, block: Block, run: Run, rows: Span) -> None:
        """Pack a panel of rows."""
        zero = number(b, 0)
        of = self.packed[0]
        if of is not None:
            memory = b.subview(block.panels, zero), b.subview(block.known, zero)
            pack(b, self.packing(b, of, True), *memory, of, *run.terms, *rows, self.rows)
            return
        self.left.pack(b, b.subview(block.panels, zero), run.terms, rows)
        self.forget(b, block, zero, run.sizes[0])

    def pack(self, b: Builder, block: Block, run: Run, k: Value, c: Value) -> None:
        """Pack the panel of columns that begins at a column of the block, or that one and all others, to a position and those
        behind it."""
        (j0, width), shape = block.columns, self.shape
        number_of = b.select(self.by_panel, number(b, 1), block.across)
        some = b.minimum(b.mul(number_of, number(b, shape.columns)), b.sub(width, c))
        columns = b.add(j0, c), some
        of = self.packed[1]
        if of is not None:
            given = k, *run.terms, *columns, number_of, self.columns
            pack(b, self.packing(b, of, False), block.panels, block.known, of, *given)
            return
        self.right.pack_some(b, block.panels, k, run.terms, columns, number_of)
        serial(b, number_of, lambda b, x: self.forget(b, block, b.add(k, x), run.sizes[1]))

    def packing(self, b: Builder, of: Lies, is_left: bool) -> Value:
        """Where the function is that packs an operand which is read as it lies."""
        if of.packed_by is not None:
            return of.packed_by
        straight, *turned = [b.emit(OPS["function_address"], (), {"function": way.name})[0] for way in self.ways(of, is_left)]
        found: Value = b.select(of.turned(b), *turned, straight) if turned else straight
        return found

    def ways(self, of: Lies, is_left: bool) -> list[Pack]:
        """The functions that may: two if it shows when the kernel runs whether the operand is turned, the second if it is."""
        turns = (False, True) if of.is_either else (of.is_turned,)
        found = [Pack(self.dtype, is_left, is_turned, self.shape) for is_turned in turns]
        self.functions |= {way.name: way.define() for way in found}
        return found

    def run_of(self, b: Builder) -> Value:
        """How many terms are packed at a time."""
        most = number(b, self.shape.terms)
        if not self.comes_by_row:
            return most
        most_ahead = number(b, RUN * ROW // (self.planes * self.dtype.bytes))
        short = b.maximum(number(b, RUN), b.idiv(most_ahead, b.maximum(self.columns, number(b, 1))))
        found: Value = b.select(self.by_panel, b.minimum(most, short), most)
        return found

    def forget(self, b: Builder, block: Block, k: Value, count: Value) -> None:
        self.scales.forget(b, b.subview(block.panels, k), b.subview(block.known, k), count)

    def is_far(self, b: Builder) -> Value:
        """Whether operands and results are more than the second cache has room for beside what is packed."""
        numbers = b.add(b.mul(self.terms, b.add(self.rows, self.columns)), b.mul(self.rows, self.columns))
        found: Value = b.gt(numbers, number(b, self.shape.near))
        return found

    def ask_results(self, b: Builder, i: Value, j: Value) -> None:
        """Ask for where the results of a tile go, and what they are computed from."""
        inner, r = Builder(b.loc), Value(scalar(I64))
        for c in range(0, self.shape.columns, self.right.line):
            ask(inner, self.each, inner.add(i, r), inner.add(j, number(inner, c)))
        if any(k.op is OPS["prefetch"] for k in inner.instructions):
            params = {"map": "serial", "ordered": True}
            b.emit(OPS["for"], (number(b, self.shape.rows),), params, [inner.block([r], [])])

    def finish(self, b: Builder, sums: Value, rows: Span, columns: Span) -> None:
        """What is done with the sums of a row of tiles, or of one."""
        i0, height = rows
        j0, count = columns
        whole_rows = whole(b, i0, ROWS) if self.parts else i0

        def row(b: Builder, r: Value) -> None:
            i = b.add(i0, r)

            def element(b: Builder, c: Value) -> tuple[Value, ...]:
                j = b.add(j0, c)
                at = self.place(b, c)
                found_ = [b.load(sums, r, b.add(at, number(b, k)) if k else at) for k in range(self.planes)]
                found = copied(self.each, (i, j, *found_))
                b.instructions.extend(found.instructions)
                for part, name, value in zip(self.parts, self.combine, found.results, strict=False):
                    b.store(b.emit(OPS[name], (b.load(part, whole_rows, j), value))[0], part, whole_rows, j)
                return found.results[len(self.parts) :]

            def alone(b: Builder, k: Value) -> None:
                element(b, k)

            def run(b: Builder, q: Value) -> None:
                start, inner, k = b.mul(q, number(b, COLUMNS)), Builder(b.loc), Value(scalar(I64))
                yields = element(inner, inner.add(start, k))
                few = b.minimum(number(b, COLUMNS), b.sub(count, start))
                operands = (few, *identities(b, self.across, yields))
                params = {"combine": self.across, "max_trip_count": COLUMNS}
                totals = b.emit(OPS["for"], operands, params, [inner.block([k], yields)])
                at = b.add(b.idiv(j0, number(b, COLUMNS)), q)
                b.instructions.extend(copied(self.ends[0], (i, at, *totals)).instructions)

            if self.across:
                serial(b, parts(b, count, COLUMNS), run)
            else:
                loop(b, count, alone)

        serial(b, height, row)

    def place(self, b: Builder, column: Value) -> Value:
        """Where a row of sums has those of a column."""
        return column if self.planes == 1 else b.mul(column, number(b, self.planes))
