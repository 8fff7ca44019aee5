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

from pullback.codegen.processors import Target
from pullback.codegen.product_either import panels_of
from pullback.codegen.product_panels import Span
from pullback.codegen.product_parts import FEW, ask, each_of_batch, is_plain, loop, number, parts, serial, shared, when, whole
from pullback.codegen.product_scales import KNOWN, Scales
from pullback.codegen.product_shapes import LINE, Shape, shape_for
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.product import ROWS
from pullback.ir.structure import Instruction, Value, copied
from pullback.ir.types import BOOL, I64, scalar

NEXT = 16
"""So many terms ahead a panel of the right operand is asked for, from the second cache into the first."""
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


@dataclass(frozen=True)
class Packed:
    """The two panels of a tile, how many terms they have, what its sums are multiplied by, and what is asked for meanwhile of the
    right operand: from which term and column on, and whether (0 or 1) each term of the tile asks for another one."""

    left: Value
    right: Value
    count: Value
    scale: Value
    ahead: tuple[Value, Value, Value]


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of the result: its first row and how many panels of rows, its first column and how many columns, in how many panels
    (``across``); whether there are ``several`` runs of terms, whether panels of columns are kept for another panel of rows, and
    whether memory is far. Its own memory: the left panel, then those of the right operand, what is known of each, and sums."""

    rows: Span
    columns: Span
    across: Value
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
        self, b: Builder, i: Instruction, target: Target, outermost: bool, batch: tuple[Value, Value] | None = None
    ) -> None:
        self.b, self.outermost, self.batch = b, outermost, batch
        self.rows, self.columns, self.terms, *self.parts = i.operands
        self.combine = i.params.get("combine", ())
        left, right, self.each = i.regions
        self.dtype = left.results[0].type.dtype
        self.is_light = not self.parts and len(self.each.instructions) <= LIGHT
        self.is_plain = self.is_light and all(map(is_plain, self.each.instructions))
        self.has_fma = target.has_fma
        self.shape: Shape = shape_for(target, self.dtype)
        self.scales = Scales(self.dtype, self.shape.lanes, self.shape.terms)
        lies = i.params.get("lies", ())
        self.left = panels_of(b, left, 0 in lies, 1, self.rows, self.shape.rows, self.shape.lanes)
        self.right = panels_of(b, right, 1 in lies, 0, self.columns, self.shape.columns, self.shape.lanes)
        self.is_flat = b.le(self.rows, number(b, FLAT * self.shape.rows))
        self.comes_by_row = not self.right.is_turned
        self.may_ask = self.comes_by_row and len(right.instructions) <= LIGHT

    def spell(self) -> None:
        b, shape = self.b, self.shape
        row_panels, column_panels = parts(b, self.rows, shape.rows), parts(b, self.columns, shape.columns)
        work = b.mul(b.mul(self.rows, self.columns), self.terms)
        is_long = b.ge(work if self.batch is None else b.mul(work, self.batch[0]), number(b, shape.worth))
        down, along = self.number(row_panels, column_panels, is_long)
        high, wide = shared(b, row_panels, down), shared(b, column_panels, along)
        if self.parts:
            high = b.mul(parts(b, high, TOGETHER), number(b, TOGETHER))
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
        narrow = ROW // (shape.columns * self.dtype.bytes) if self.comes_by_row else NARROW
        wide = b.select(self.is_flat, number(b, min(narrow, shape.most_wide)), number(b, shape.most_wide))
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
        block = Block(
            rows=(i0, panels), columns=(j0, width), across=across, several=several, keeps=keeps, is_far=self.is_far(b),
            panels=b.local(among, dtype=self.dtype, shape=(shape.most_wide + 1, shape.panel)),
            known=b.local(among, dtype=I64, shape=(shape.most_wide + 1, KNOWN)),
            sums=b.local(b.select(several, panels, one), dtype=self.dtype, shape=(shape.most_high, shape.rows, shape.strip)),
        )  # fmt: skip

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, length)
            count = b.minimum(length, b.sub(self.terms, p0))
            sizes = b.mul(count, number(b, shape.rows)), b.mul(count, number(b, shape.columns))
            found = Run(terms=(p0, count), is_first=b.eq(q, number(b, 0)), is_last=b.eq(b.add(q, one), runs), sizes=sizes)
            serial(b, panels, lambda b, r: self.row(b, block, found, r))

        serial(b, runs, run)

    def row(self, b: Builder, block: Block, run: Run, r: Value) -> None:
        """A panel of rows of a block, over a run of terms."""
        shape, zero, one = self.shape, number(b, 0), number(b, 1)
        (i0, _), (j0, width), (p0, count) = block.rows, block.columns, run.terms
        i = b.add(i0, b.mul(r, number(b, shape.rows)))
        height = b.minimum(number(b, shape.rows), b.sub(self.rows, i))
        packed = b.sub_ref(block.panels, zero)
        self.left.pack(b, packed, run.terms, (i, height))
        self.forget(b, block, zero, run.sizes[0])
        strip = b.sub_ref(block.sums, b.select(block.several, r, zero))
        part = shared(b, b.select(block.is_far, count, zero), block.across)
        ends = b.bitand(block.is_far, run.is_last)
        is_new = b.eq(r, zero)
        is_plain = b.const(self.is_plain, BOOL)
        is_whole = b.bitand(is_plain, b.bitand(b.eq(height, number(b, shape.rows)), b.bitnot(block.several)))
        moves = b.select(b.bitand(b.bitand(is_new, self.is_flat), b.bitnot(run.is_last)), one, zero)

        def tile(b: Builder, j: Value) -> None:
            c = b.mul(j, number(b, shape.columns))
            column, k = b.add(j0, c), b.add(b.select(block.keeps, j, zero), one)
            begins = b.bitor(self.is_flat, b.eq(j, zero))
            when(b, b.bitand(is_new, begins), lambda b: self.pack(b, block, run, k, c))
            self.left.ask_for(b, (b.add(p0, b.mul(j, part)), part), b.add(i, number(b, shape.rows)))
            when(b, ends, lambda b: self.ask_results(b, i, column))
            scale = self.scales.settle(b, block.panels, block.known, k, run.sizes)
            ahead = b.add(p0, b.mul(count, moves)), column, moves
            some = b.minimum(number(b, shape.columns), b.sub(width, c))
            goes = b.bitand(is_whole, b.eq(some, number(b, shape.columns)))
            source = Packed(packed, b.sub_ref(block.panels, k), count, scale, ahead)
            self.tile(b, source, strip, c, run.is_first, (goes, i, column))
            if self.is_light:
                waits = b.bitand(run.is_last, b.bitnot(goes))
                when(b, waits, lambda b: self.finish(b, strip, (i, height), (j0, c, some)))

        serial(b, block.across, tile)
        if not self.is_light:
            when(b, run.is_last, lambda b: self.finish(b, strip, (i, height), (j0, zero, width)))

    def pack(self, b: Builder, block: Block, run: Run, k: Value, c: Value) -> None:
        """Pack the panel of columns that begins at a column of the block, or that one and all others, to a position and those
        behind it."""
        (j0, width), shape = block.columns, self.shape
        number_of = b.select(self.is_flat, number(b, 1), block.across)
        some = b.minimum(b.mul(number_of, number(b, shape.columns)), b.sub(width, c))
        self.right.pack_some(b, block.panels, k, run.terms, (b.add(j0, c), some), number_of)
        serial(b, number_of, lambda b, x: self.forget(b, block, b.add(k, x), run.sizes[1]))

    def run_of(self, b: Builder) -> Value:
        """How many terms are packed at a time."""
        most = number(b, self.shape.terms)
        if not self.comes_by_row:
            return most
        most_ahead = number(b, RUN * ROW // self.dtype.bytes)
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
            for c in range(0, self.shape.columns, LINE // self.dtype.bytes):
                ask(b, self.each, b.add(i, r), b.add(j, number(b, c)))

        serial(b, number(b, self.shape.rows), row)

    def finish(self, b: Builder, strip: Value, rows: Span, columns: tuple[Value, Value, Value]) -> None:
        """What is done with the sums of a row of tiles."""
        i0, height = rows
        j0, first, count = columns
        whole_rows = whole(b, i0, ROWS) if self.parts else i0

        def row(b: Builder, r: Value) -> None:
            i = b.add(i0, r)

            def element(b: Builder, k: Value) -> None:
                c = b.add(first, k)
                j = b.add(j0, c)
                found = copied(self.each, (i, j, b.load(strip, r, c)))
                b.instructions.extend(found.instructions)
                for part, name, value in zip(self.parts, self.combine, found.results, strict=True):
                    b.store(b.emit(OPS[name], (b.load(part, whole_rows, j), value))[0], part, whole_rows, j)

            loop(b, count, element)

        serial(b, height, row)

    def tile(
        self, b: Builder, packed: Packed, strip: Value, j: Value, is_first: Value, goes: tuple[Value, Value, Value]
    ) -> None:
        """A tile of sums, in registers while its terms are added; then they are put into their strip at a column, or added to it,
        each multiplied by a scale; or they go at once where the last region takes them: whether, and its row and column."""
        shape, panel, scale = self.shape, packed.right, packed.scale
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        numbers = [number(inner, r) for r in range(shape.rows)]
        lanes = [lane, *(inner.add(lane, number(inner, x * shape.lanes)) for x in range(1, shape.vectors))]
        zero = inner.const(0.0, self.dtype)
        places = [(r, x) for r in range(shape.rows) for x in range(shape.vectors)]
        at = [inner.add(j, lane) for lane in lanes]
        for r, x in places:
            inner.prefetch(strip, numbers[r], at[x], near=True)
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(self.dtype), "sum") for _ in places]
        from_row, from_panel = (step.mul(p, number(step, size)) for size in (shape.rows, shape.columns))
        right = [step.load(panel, step.add(from_panel, lane)) for lane in lanes]
        after = []
        for r in range(shape.rows):
            left = step.load(packed.left, step.add(from_row, numbers[r]))
            after += [self.multiply_add(step, left, right[x], before[r * shape.vectors + x]) for x in range(shape.vectors)]
        for lane_ in lanes:
            step.prefetch(panel, step.add(step.add(from_panel, number(step, NEXT * shape.columns)), lane_), near=True)
        if self.may_ask:
            term, column, moves = packed.ahead
            for lane_ in lanes:
                self.right.ask(step, step.add(term, step.mul(p, moves)), step.add(column, lane_))
        body = step.block([p, *before], after)
        totals = inner.emit(OPS["for"], (packed.count, *[zero] * len(places)), {"map": "serial"}, [body])

        def put(b: Builder) -> None:
            for (r, x), total in zip(places, totals, strict=True):
                b.store(b.mul(total, scale), strip, numbers[r], at[x])

        def add(b: Builder) -> None:
            before = [b.load(strip, numbers[r], at[x]) for r, x in places]
            sums = [self.multiply_add(b, t, scale, s) for t, s in zip(totals, before, strict=True)]
            for (r, x), total in zip(places, sums, strict=True):
                b.store(total, strip, numbers[r], at[x])

        def finish(b: Builder) -> None:
            for (r, x), total in zip(places, totals, strict=True):
                at = b.add(row, numbers[r]), b.add(column, lanes[x])
                b.instructions.extend(copied(self.each, (*at, b.mul(total, scale))).instructions)

        at_once, row, column = goes
        puts, adds = is_first, inner.bitnot(is_first)
        if self.is_plain:
            when(inner, at_once, finish)
            puts = inner.bitand(is_first, inner.bitnot(at_once))
        when(inner, puts, put)
        when(inner, adds, add)
        params = {"map": "vector", "multiple": shape.lanes}
        b.emit(OPS["for"], (number(b, shape.lanes),), params, [inner.block([lane], [])])

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found
