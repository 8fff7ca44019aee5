"""Matrix products on the CPU: packed, in tiles of registers and blocks of caches (Goto and van de Geijn 2008).

The result is cut into blocks, which threads share out. For each block as many terms as a packed panel has are added at a time:
the right operand's columns are packed in panels as wide as a tile, panel by panel the left operand's rows, and one tile of sums
after the other is computed in registers. Sums wait in memory of the block's own; after the last terms those of a row of tiles go,
element by element, where the product's last region takes them. Where that is a few instructions, those of a tile go at once if
there is one run of terms.

Of few rows, each panel of columns is packed just before its first tile, in short runs of terms: nobody waits for memory while
nothing is multiplied. The order of additions is that of the terms, in runs whose length depends on the numbers of rows, columns
and terms alone.

Memory is asked for while tiles are computed: the sums of a tile when it begins, with each tile its share of the left rows that
are packed next and of where the results go, and with each term of few rows what is packed in the next run.

Cost: an element of the left operand is packed once for each block of columns, one of the right operand once for each block of
rows. Footprint: ``product_shapes`` says which cache holds what.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.codegen.complex_tile import ComplexTile
from pullback.codegen.processors import Target
from pullback.codegen.product_packs import Lies, Pack, operands_of, pack
from pullback.codegen.product_pairs import pairs_of
from pullback.codegen.product_panels import Panels, Span
from pullback.codegen.product_parts import (
    FEW,
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
from pullback.codegen.product_scales import KNOWN, Scales
from pullback.codegen.product_shapes import Shape, shape_for
from pullback.codegen.product_tile import Tile
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.product import COLUMNS, ROWS
from pullback.ir.structure import Instruction, Value, copied
from pullback.ir.types import BOOL, I64, scalar

EACH = 4
"""Of fewer blocks a thread, each gets equally many."""
FLAT, NARROW = 6, 8
"""Blocks of so few panels of rows have at most so many of columns that are packed together: these are read again soon."""
RUN, ROW = 32, 1 << 12
"""Columns of so few rows that lie side by side are packed panel by panel, so many terms and bytes of a row at a time: what comes
next is asked for a run ahead, which is 128 KiB. Runs are longer where rows are shorter."""
TOGETHER = 16
"""Blocks of so many panels of rows begin at a multiple of the rows that a row of a *part* is for: no two blocks share one."""
LIGHT = 4
"""What is done with results in so few instructions is done tile by tile."""


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
        self, b: Builder, i: Instruction, target: Target, functions: dict[str, Instruction], outermost: bool,
        batch: tuple[Value, Value] | None = None,
    ) -> None:  # fmt: skip
        self.b, self.outermost, self.batch = b, outermost, batch
        self.rows, self.columns, self.terms, *self.parts = i.operands
        self.combine, self.across = i.params.get("combine", ()), i.params.get("across", ())
        left, right, self.each, *self.ends = i.regions
        self.dtype = left.results[0].type.dtype
        self.planes = len(left.results)
        self.is_light = not self.parts and not self.across and len(self.each.instructions) <= LIGHT * self.planes
        self.shape: Shape = shape_for(target, self.dtype, self.planes)
        self.apart = COLUMNS // self.shape.columns
        self.most_wide = self.shape.most_wide // self.apart * self.apart if self.across else self.shape.most_wide
        self.tile = (Tile if self.planes == 1 else ComplexTile)(self.dtype, self.shape, target.has_fma)
        functions[self.tile.name] = self.tile.define()
        self.scales = Scales(self.dtype, self.shape.lanes, self.shape.terms * self.planes)
        self.functions = functions
        self.left_lies, self.right_lies = operands_of(i)
        self.left = Panels(left, 1, self.rows, self.shape.rows, self.shape.lanes)
        self.right = Panels(right, 0, self.columns, self.shape.columns, self.shape.lanes)
        self.is_flat = b.le(self.rows, number(b, FLAT * self.shape.rows))
        self.comes_by_row = not self.right.is_turned
        self.goes: Rows | RowsAt | None = rows_of(self.each) if outermost and is_stored(self.each) else None
        comes = rows_of(right) if self.comes_by_row and len(right.instructions) <= LIGHT else None
        self.comes: Rows | RowsAt | None = comes if comes is not None and comes.ref.type.dtype is self.dtype else None
        if self.planes > 1:
            self.goes = pairs_of(self.each) if outermost and self.is_light else None
            self.comes = pairs_of(right) if self.comes_by_row else None

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

        def block(b: Builder, c: Value) -> None:
            column = b.idiv(c, down)
            first = b.mul(b.sub(c, b.mul(column, down)), high)
            left = b.mul(column, wide)
            panels, across = b.minimum(high, b.sub(row_panels, first)), b.minimum(wide, b.sub(column_panels, left))
            self.block(b, (first, panels), (left, across))

        if not self.outermost:
            serial(b, blocks, block)
            return
        if self.batch is not None:
            each_of_batch(b, self.batch, blocks, is_long, block)
            return
        chunks = b.select(b.bitand(is_long, b.gt(blocks, number(b, 1))), b.maximum(blocks, number(b, FEW)), blocks)
        loop(b, chunks, lambda b, c: when(b, b.lt(c, blocks), lambda b: block(b, c)), map="core")

    def number(self, row_panels: Value, column_panels: Value, is_long: Value) -> tuple[Value, Value]:
        """Into how many blocks rows and columns are cut: as many as caches ask for; where there is work for several threads, some
        for each."""
        b, shape, one = self.b, self.shape, number(self.b, 1)
        down = b.maximum(parts(b, row_panels, shape.most_high), one)
        narrow = ROW // (shape.columns * self.planes * self.dtype.bytes) if self.comes_by_row else NARROW
        wide = b.select(self.is_flat, number(b, min(narrow, self.most_wide)), number(b, self.most_wide))
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

    def block(self, b: Builder, row_panels: Span, column_panels: Span) -> None:
        """The block of some panels of rows and of columns."""
        shape, one = self.shape, number(b, 1)
        (first, panels), (left, across) = row_panels, column_panels
        i0, j0 = b.mul(first, number(b, shape.rows)), b.mul(left, number(b, shape.columns))
        width = b.minimum(b.mul(across, number(b, shape.columns)), b.sub(self.columns, j0))
        runs = b.maximum(shared(b, self.terms, self.run_of(b)), one)
        length = b.mul(b.maximum(parts(b, shared(b, self.terms, runs), shape.lanes), one), number(b, shape.lanes))
        # of longer runs there may be fewer
        runs = b.maximum(shared(b, self.terms, length), one)
        several = b.gt(runs, one)
        keeps = b.bitor(b.gt(panels, one), b.bitnot(self.is_flat))
        among = b.add(b.select(keeps, across, one), one)
        self.runs(b, Block(
            rows=(i0, panels), columns=(j0, width), across=across, length=length, runs=runs, several=several, keeps=keeps,
            is_far=self.is_far(b),
            panels=b.local(among, dtype=self.dtype, shape=(shape.most_wide + 1, shape.panel)),
            known=b.local(among, dtype=I64, shape=(shape.most_wide + 1, KNOWN)),
            sums=b.local(b.select(several, panels, one), dtype=self.dtype, shape=(shape.most_high, shape.rows, shape.strip)),
        ))  # fmt: skip

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
        strip = b.sub_ref(block.sums, b.select(block.several, r, zero))
        part = shared(b, b.select(block.is_far, count, zero), block.across)
        ends = b.bitand(block.is_far, run.is_last)
        is_new = b.eq(r, zero)
        is_whole = b.bitand(b.eq(height, number(b, shape.rows)), b.bitnot(block.several))
        moves = b.select(b.bitand(b.bitand(is_new, self.is_flat), b.bitnot(run.is_last)), one, zero)
        apart = self.goes.apart(b) if self.goes else zero
        moved = b.mul(moves, self.comes.apart(b)) if self.comes else zero

        def tile(b: Builder, j: Value) -> None:
            c = b.mul(j, number(b, shape.columns))
            column, k = b.add(j0, c), b.add(b.select(block.keeps, j, zero), one)
            begins = b.bitor(self.is_flat, b.eq(j, zero))
            when(b, b.bitand(is_new, begins), lambda b: self.pack(b, block, run, k, c))
            self.left.ask_for(b, (b.add(p0, b.mul(j, part)), part), b.add(i, number(b, shape.rows)))
            when(b, ends, lambda b: self.ask_results(b, i, column))
            some = b.minimum(number(b, shape.columns), b.sub(width, c))
            goes = b.bitand(is_whole, b.eq(some, number(b, shape.columns))) if self.goes else b.const(False, BOOL)
            sums = b.emit(OPS["row_ref"], (strip, zero, self.place(b, c)), {})[0], number(b, shape.strip)
            ahead = (self.comes.begin(b, b.add(p0, b.mul(count, moves)), column), moved) if self.comes else (sums[0], zero)
            panels = block.panels, block.known, k, count, run.is_first
            when(b, b.bitnot(goes), lambda b: self.tile.call(b, *panels, *sums, *ahead))
            if self.goes:
                out = self.goes.begin(b, i, column), apart
                when(b, goes, lambda b: self.tile.call(b, *panels, *out, *ahead))
            if self.is_light:
                waits = b.bitand(run.is_last, b.bitnot(goes))
                when(b, waits, lambda b: self.finish(b, strip, (i, height), (j0, c, some)))

        serial(b, block.across, tile)
        if not self.is_light:
            when(b, run.is_last, lambda b: self.finish(b, strip, (i, height), (j0, zero, width)))

    def pack_rows(self, b: Builder, block: Block, run: Run, rows: Span) -> None:
        """Pack a panel of rows."""
        zero = number(b, 0)
        if self.left_lies is not None:
            memory = b.sub_ref(block.panels, zero), b.sub_ref(block.known, zero)
            pack(b, self.packing(True, self.left_lies), *memory, self.left_lies, *run.terms, *rows, self.rows)
            return
        self.left.pack(b, b.sub_ref(block.panels, zero), run.terms, rows)
        self.forget(b, block, zero, run.sizes[0])

    def pack(self, b: Builder, block: Block, run: Run, k: Value, c: Value) -> None:
        """Pack the panel of columns that begins at a column of the block, or that one and all others, to a position and those
        behind it."""
        (j0, width), shape = block.columns, self.shape
        number_of = b.select(self.is_flat, number(b, 1), block.across)
        some = b.minimum(b.mul(number_of, number(b, shape.columns)), b.sub(width, c))
        columns = b.add(j0, c), some
        if self.right_lies is not None:
            given = k, *run.terms, *columns, number_of, self.columns
            pack(b, self.packing(False, self.right_lies), block.panels, block.known, self.right_lies, *given)
            return
        self.right.pack_some(b, block.panels, k, run.terms, columns, number_of)
        serial(b, number_of, lambda b, x: self.forget(b, block, b.add(k, x), run.sizes[1]))

    def packing(self, is_left: bool, of: Lies) -> list[Pack]:
        """The functions that pack an operand."""
        ways = (False, True) if of.is_either else (of.is_turned,)
        found = [Pack(self.dtype, is_left, is_turned, self.shape) for is_turned in ways]
        self.functions |= {way.name: way.define() for way in found}
        return found

    def run_of(self, b: Builder) -> Value:
        """How many terms are packed at a time."""
        most = number(b, self.shape.terms)
        if not self.comes_by_row:
            return most
        most_ahead = number(b, RUN * ROW // (self.planes * self.dtype.bytes))
        short = b.maximum(number(b, RUN), b.idiv(most_ahead, b.maximum(self.columns, number(b, 1))))
        found: Value = b.select(self.is_flat, b.minimum(most, short), most)
        return found

    def forget(self, b: Builder, block: Block, k: Value, count: Value) -> None:
        self.scales.forget(b, b.sub_ref(block.panels, k), b.sub_ref(block.known, k), count)

    def is_far(self, b: Builder) -> Value:
        """Whether operands and results are more than the second cache has room for beside what is packed."""
        numbers = b.add(b.mul(self.terms, b.add(self.rows, self.columns)), b.mul(self.rows, self.columns))
        found: Value = b.gt(numbers, number(b, self.shape.near))
        return found

    def ask_results(self, b: Builder, i: Value, j: Value) -> None:
        """Ask for where the results of a tile go, and what they are computed from."""
        def row(b: Builder, r: Value) -> None:
            for c in range(0, self.shape.columns, self.right.line):
                ask(b, self.each, b.add(i, r), b.add(j, number(b, c)))

        serial(b, number(b, self.shape.rows), row)

    def finish(self, b: Builder, strip: Value, rows: Span, columns: tuple[Value, Value, Value]) -> None:
        """What is done with the sums of a row of tiles."""
        i0, height = rows
        j0, first, count = columns
        whole_rows = whole(b, i0, ROWS) if self.parts else i0

        def row(b: Builder, r: Value) -> None:
            i = b.add(i0, r)

            def element(b: Builder, c: Value) -> tuple[Value, ...]:
                j = b.add(j0, c)
                at = self.place(b, c)
                sums = [b.load(strip, r, b.add(at, number(b, k)) if k else at) for k in range(self.planes)]
                found = copied(self.each, (i, j, *sums))
                b.instructions.extend(found.instructions)
                for part, name, value in zip(self.parts, self.combine, found.results, strict=False):
                    b.store(b.emit(OPS[name], (b.load(part, whole_rows, j), value))[0], part, whole_rows, j)
                return found.results[len(self.parts) :]

            def alone(b: Builder, k: Value) -> None:
                element(b, b.add(first, k))

            def run(b: Builder, q: Value) -> None:
                start, inner, k = b.mul(q, number(b, COLUMNS)), Builder(b.loc), Value(scalar(I64))
                yields = element(inner, inner.add(start, k))
                few = b.minimum(number(b, COLUMNS), b.sub(count, start))
                operands = (few, *identities(b, self.across, yields))
                totals = b.emit(OPS["for"], operands, {"combine": self.across}, [inner.block([k], yields)])
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
