"""Expand matrix products on the CPU into packed panels, register tiles and cache blocks (Goto and van de Geijn 2008).

The result is divided into blocks, which are divided among threads. A block loops over K blocks, each as long as a packed
panel: the columns of the right operand are packed in panels as wide as a tile, then, panel by panel, the rows of the left
operand, and the microkernel computes one tile after the other. Between K blocks the sums are kept in scratch memory of the
block. After the last K block the sums of a row of tiles are passed, element by element, to the product's last region; if that
takes few instructions and there is one K block, it follows each tile at once.

For few rows, each panel of columns is packed just before its first tile, in short K blocks, so that packing overlaps
arithmetic. This is not done where registers hold only half of a tile's sums, because such tiles start and end too often for
short K blocks. The order of additions follows K, in blocks whose length depends on the extents alone.

The microkernel prefetches the sums of its tile at the start, and in each iteration a share of the left rows packed next and of
the result's memory; for few rows also the columns packed for the next K block.

Cost: an element of the left operand is packed once for each block of columns, an element of the right operand once for each
block of rows. Footprint: ``blocking`` says which cache holds what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pullback.codegen.cpu.loops.nest_builder import (
    FEW,
    Body,
    Rows,
    RowsAt,
    ceil_div,
    ceil_div_by,
    constant,
    each_of_batch,
    floor_div,
    identities,
    is_stored,
    loop,
    prefetch,
    rows_of,
    serial,
    when,
)  # fmt: skip
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.blocking import Blocking, blocking_for
from pullback.codegen.cpu.matmul.complex_numbers import ComplexMicrokernel, pairs_of
from pullback.codegen.cpu.matmul.microkernel import Microkernel
from pullback.codegen.cpu.matmul.packing import Panels, Span
from pullback.codegen.cpu.matmul.shared_packing import PackFunction, PlainOperand, operands_of, pack, plain_complex_operand
from pullback.codegen.cpu.matmul.subnormals import MARKS, Scales
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction, copy_block
from pullback.ir.core.types import BOOL, I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.matmul import COLUMNS, ROWS

BLOCKS_PER_THREAD = 4
"""Blocks per thread below which every thread gets the same number of blocks."""
FLAT, NARROW = 6, 8
"""``FLAT``: row panels up to which a block is flat. ``NARROW``: column panels that a flat block packs together at most, since
they are soon read again."""
RUN, ROW = 32, 1 << 12
"""K iterations and bytes of a row packed at a time for flat blocks with contiguous columns. The next K block is prefetched
while this one is computed: 128 KiB ahead. K blocks are longer where rows are shorter."""
PANEL_MULTIPLE = 16
"""Row panels to a multiple of which the rows of a block are rounded where results are combined over rows, so that no two
blocks share a row of a partial result."""
SHARE_SCALE = 1 << 16
"""Resolution, a power of two, of the fraction of left rows prefetched per tile."""
LIGHT = 4
"""Most instructions of a last region that is applied tile by tile."""


PrefetchPlan = tuple[Value, Callable[[Builder, Value], tuple[Value, Value]]]
"""The prefetch stride per iteration, and a function that returns the first row and column prefetched for a tile, in memory
order."""
PrefetchFor = Callable[[Builder, Value, tuple[Value, Value]], tuple[Value, Value]]
"""Returns the prefetch address and stride of a tile, given its number and the address of its sums."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of the result: first row and count of row panels, first column and count of columns, which form ``across``
    panels; length and number of K blocks.

    ``several``: there is more than one K block. ``keeps``: column panels are kept for the next panel of rows. ``is_far``:
    operands and results exceed L2. ``panels``, ``known``, ``sums``: its scratch memory: the left panel followed by the right
    ones, their marks, and the sums.
    """

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
class KBlock:
    """A K block: its span, whether it is the first or the last one, and the numbers in a left and a right panel."""

    span: Span
    is_first: Value
    is_last: Value
    sizes: tuple[Value, Value]


class BlockedMatmul:
    """Expands one product, or a batch given as a count and the value that holds the product's index in the regions."""

    def __init__(
        self, b: Builder, i: Instruction, target: Target, functions: Functions, outermost: bool,
        batch: tuple[Value, Value] | None = None,
    ) -> None:  # fmt: skip
        self.b, self.outermost, self.batch = b, outermost, batch
        self.rows, self.columns, self.depth, *self.parts = i.operands
        self.combine, self.across = i.params.get("combine", ()), i.params.get("row_combine", ())
        left, right, self.epilogue, *self.ends = i.regions
        self.dtype = left.results[0].type.dtype
        self.planes = len(left.results)
        self.is_light = not self.parts and not self.across and len(self.epilogue.instructions) <= LIGHT * self.planes
        self.shape: Blocking = blocking_for(target, self.dtype, self.planes)
        self.partial_panels = COLUMNS // self.shape.columns
        self.max_column_panels = (
            self.shape.max_column_panels // self.partial_panels * self.partial_panels
            if self.across
            else self.shape.max_column_panels
        )
        self.microkernel = (Microkernel if self.planes == 1 else ComplexMicrokernel)(self.dtype, self.shape, target.has_fma)
        self.functions = functions
        self.packed = operands_of(i) if self.planes == 1 else (plain_complex_operand(left), plain_complex_operand(right))
        for operand, is_left in zip(self.packed, (True, False), strict=True):
            if operand is not None and operand.packed_by is None:
                self.pack_functions(
                    operand, is_left
                )  # defined before the larger microkernels, so that a background compile can start on them at once
        functions[self.microkernel.name] = self.microkernel.define()
        self.short_kernels = [replace(self.microkernel, short=rows) for rows in self.shape.short_rows]
        self.short_addresses: list[Value] | None = None
        self.short_pays = [b.le(self.rows, constant(b, self.shape.max_rows_for_short(rows))) for rows in self.shape.short_rows]
        for kernel, is_worth in zip(self.short_kernels, self.short_pays, strict=True):
            with functions.under(b, is_worth):
                functions[kernel.name] = kernel.define()
        self.scales = Scales.of_shape(self.dtype, self.shape)
        self.left = Panels(left, 1, self.rows, self.shape.rows, self.shape.lanes)
        self.right = Panels(right, 0, self.columns, self.shape.columns, self.shape.lanes)
        self.is_flat = b.le(self.rows, constant(b, FLAT * self.shape.rows))
        is_whole = len(self.shape.passes(self.shape.rows)) == 1
        self.by_panel = self.is_flat if is_whole else b.const(False, BOOL)
        self.right_is_by_rows = not self.right.is_transposed
        self.out_rows: Rows | RowsAt | None = rows_of(self.epilogue) if outermost and is_stored(self.epilogue) else None
        right_rows = rows_of(right) if is_whole and self.right_is_by_rows and len(right.instructions) <= LIGHT else None
        self.right_rows: Rows | RowsAt | None = (
            right_rows if right_rows is not None and right_rows.ref.type.dtype is self.dtype else None
        )
        if self.planes > 1:
            self.out_rows = pairs_of(self.epilogue) if outermost and self.is_light else None
            self.right_rows = pairs_of(right) if is_whole and self.right_is_by_rows else None

    @property
    def plain_left(self) -> PlainOperand | None:
        """The left operand if it is plain and real: microkernels prefetch its next rows."""
        return self.packed[0] if self.planes == 1 else None

    def expand(self) -> None:
        """Emit the loops over blocks."""
        b, shape = self.b, self.shape
        row_panels, column_panels = ceil_div(b, self.rows, shape.rows), ceil_div(b, self.columns, shape.columns)
        work = b.mul(b.mul(self.rows, self.columns), self.depth)
        is_long = b.ge(work if self.batch is None else b.mul(work, self.batch[0]), constant(b, shape.parallel_threshold))
        row_blocks, column_blocks = self.block_counts(row_panels, column_panels, is_long)
        block_row_panels, block_column_panels = (
            ceil_div_by(b, row_panels, row_blocks),
            ceil_div_by(b, column_panels, column_blocks),
        )
        if self.parts:
            block_row_panels = b.mul(ceil_div(b, block_row_panels, PANEL_MULTIPLE), constant(b, PANEL_MULTIPLE))
        if self.across:
            block_column_panels = b.mul(ceil_div(b, block_column_panels, self.partial_panels), constant(b, self.partial_panels))
        block_row_panels, block_column_panels = (
            b.maximum(block_row_panels, constant(b, 1)),
            b.maximum(block_column_panels, constant(b, 1)),
        )
        row_blocks = ceil_div_by(b, row_panels, block_row_panels)
        blocks = b.mul(row_blocks, ceil_div_by(b, column_panels, block_column_panels))
        invariants = self.invariants(b)

        def begin(b: Builder) -> Body:
            """Allocate the scratch memory that blocks reuse; return the emitter of a block."""
            memory = self.memory(b, invariants["several"], block_row_panels, block_column_panels)

            def block(b: Builder, c: Value) -> None:
                column = b.idiv(c, row_blocks)
                first = b.mul(b.sub(c, b.mul(column, row_blocks)), block_row_panels)
                left = b.mul(column, block_column_panels)
                panels, across = (
                    b.minimum(block_row_panels, b.sub(row_panels, first)),
                    b.minimum(block_column_panels, b.sub(column_panels, left)),
                )
                self.block(b, (first, panels), (left, across), {**invariants, **memory})

            return block

        if not self.outermost:
            serial(b, blocks, begin(b))
            return
        if self.batch is not None:
            each_of_batch(b, self.batch, blocks, is_long, begin)
            return
        chunks = b.select(b.bitand(is_long, b.gt(blocks, constant(b, 1))), b.maximum(blocks, constant(b, FEW)), blocks)
        loop(b, chunks, lambda b, c: when(b, b.lt(c, blocks), lambda b: begin(b)(b, c)), map="core")

    def block_counts(self, row_panels: Value, column_panels: Value, is_long: Value) -> tuple[Value, Value]:
        """Return the number of blocks along rows and along columns: as many as the caches require, and, where there is work
        for several threads, a multiple that keeps all of them busy."""
        b, shape, one = self.b, self.shape, constant(self.b, 1)
        row_blocks = b.maximum(ceil_div(b, row_panels, shape.max_row_panels), one)
        flat_panels = ROW // (shape.columns * self.planes * self.dtype.bytes) if self.right_is_by_rows else NARROW
        most_panels = b.select(
            self.by_panel, constant(b, min(flat_panels, self.max_column_panels)), constant(b, self.max_column_panels)
        )
        column_blocks = b.maximum(ceil_div_by(b, column_panels, most_panels), one)
        if not self.outermost:
            return row_blocks, column_blocks
        threads = b.emit(OPS["threads"], (), {})[0]
        blocks = (
            b.mul(row_blocks, column_blocks) if self.batch is None else b.mul(b.mul(row_blocks, column_blocks), self.batch[0])
        )
        are_few = b.lt(blocks, b.mul(threads, constant(b, BLOCKS_PER_THREAD)))
        wanted = b.select(b.bitand(are_few, is_long), threads, one)
        by_columns = b.bitand(self.is_flat, b.ge(column_panels, wanted))
        by_rows = b.bitand(b.ge(row_panels, wanted), b.bitnot(by_columns))
        row_multiple, column_multiple = b.select(by_rows, wanted, one), b.select(by_rows, one, wanted)
        return b.mul(ceil_div_by(b, row_blocks, row_multiple), row_multiple), b.mul(
            ceil_div_by(b, column_blocks, column_multiple), column_multiple
        )

    def invariants(self, b: Builder) -> dict[str, Value]:
        """Emit what is invariant over all blocks: the length and number of K blocks, and whether memory is beyond L2."""
        one, lanes = constant(b, 1), self.shape.lanes
        runs = b.maximum(ceil_div_by(b, self.depth, self.k_block_length(b)), one)
        length = b.mul(b.maximum(ceil_div(b, ceil_div_by(b, self.depth, runs), lanes), one), constant(b, lanes))
        # longer K blocks may be fewer
        runs = b.maximum(ceil_div_by(b, self.depth, length), one)
        return {"length": length, "runs": runs, "several": b.gt(runs, one), "is_far": self.is_far(b)}

    def memory(self, b: Builder, several: Value, panels: Value, across: Value) -> dict[str, Value]:
        """Allocate the scratch memory of a block of ``panels`` row panels and ``across`` column panels."""
        shape, one = self.shape, constant(b, 1)
        panel_count = b.add(b.select(self.keeps(b, panels), across, one), one)
        return {
            "panels": b.local(panel_count, dtype=self.dtype, shape=(shape.max_column_panels + 1, shape.panel_stride)),
            "known": b.local(panel_count, dtype=I64, shape=(shape.max_column_panels + 1, MARKS)),
            "sums": b.local(
                b.select(several, panels, one), dtype=self.dtype, shape=(shape.max_row_panels, shape.rows, shape.sums_stride)
            ),
        }

    def keeps(self, b: Builder, panels: Value) -> Value:
        """Return whether a block keeps its column panels from one panel of rows to the next."""
        is_kept: Value = b.bitor(b.gt(panels, constant(b, 1)), b.bitnot(self.by_panel))
        return is_kept

    def block(self, b: Builder, row_panels: Span, column_panels: Span, shared_values: Mapping[str, Value]) -> None:
        """Emit the block of some row and column panels."""
        (first, panels), (left, across) = row_panels, column_panels
        rows, columns = constant(b, self.shape.rows), constant(b, self.shape.columns)
        i0, j0 = b.mul(first, rows), b.mul(left, columns)
        width = b.minimum(b.mul(across, columns), b.sub(self.columns, j0))
        self.runs(b, Block(rows=(i0, panels), columns=(j0, width), across=across, keeps=self.keeps(b, panels), **shared_values))

    def runs(self, b: Builder, block: Block) -> None:
        """Emit the loop over K blocks."""
        one, (_, panels) = constant(b, 1), block.rows

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, block.length)
            count = b.minimum(block.length, b.sub(self.depth, p0))
            sizes = b.mul(count, constant(b, self.left.numbers)), b.mul(count, constant(b, self.right.numbers))
            k_block = KBlock(
                span=(p0, count), is_first=b.eq(q, constant(b, 0)), is_last=b.eq(b.add(q, one), block.runs), sizes=sizes
            )
            serial(b, panels, lambda b, r: self.row(b, block, k_block, r))

        serial(b, block.runs, run)

    def row(self, b: Builder, block: Block, run: KBlock, r: Value) -> None:
        """Emit one panel of rows over a K block."""
        shape, zero, one = self.shape, constant(b, 0), constant(b, 1)
        (i0, _), (j0, width), (p0, count) = block.rows, block.columns, run.span
        i = b.add(i0, b.mul(r, constant(b, shape.rows)))
        height = b.minimum(constant(b, shape.rows), b.sub(self.rows, i))
        self.pack_rows(b, block, run, (i, height))
        strip = b.subview(block.sums, b.select(block.several, r, zero))
        is_new = b.eq(r, zero)
        call_kernel, kernel_rows = self.kernel_for(b, height)
        is_whole = b.bitand(b.eq(height, kernel_rows), run.is_last)
        left_share = ceil_div_by(b, b.select(block.is_far, count, zero), block.across) if self.plain_left is None else zero
        prefetches_out = b.bitand(block.is_far, run.is_last)
        left_ahead = self.left_prefetch(b, block, run, r, i)

        def tile(b: Builder, j: Value) -> None:
            c = b.mul(j, constant(b, shape.columns))
            column, k = b.add(j0, c), b.add(b.select(block.keeps, j, zero), one)
            is_packed_now = b.bitor(self.by_panel, b.eq(j, zero))
            when(b, b.bitand(is_new, is_packed_now), lambda b: self.pack(b, block, run, k, c))
            if self.plain_left is None:
                self.left.prefetch_block(b, (b.add(p0, b.mul(j, left_share)), left_share), b.add(i, constant(b, shape.rows)))
            some = b.minimum(constant(b, shape.columns), b.sub(width, c))
            stores_directly = (
                b.bitand(is_whole, b.eq(some, constant(b, shape.columns))) if self.out_rows else b.const(False, BOOL)
            )
            keeps_sums = b.bitnot(stores_directly)
            when(b, b.bitand(prefetches_out, keeps_sums), lambda b: self.prefetch_results(b, i, column))
            sums = self.sums_at(b, strip, j)
            panel_arguments = block.panels, block.known, k, count, run.is_first, *sums
            prefetch_arguments = *self.next_sums(b, block, run, r, j), *left_ahead(b, j, sums)
            prefetches_columns = b.bitand(self.prefetches_right(b), keeps_sums)
            when(
                b,
                b.bitand(keeps_sums, b.bitnot(prefetches_columns)),
                lambda b: call_kernel(b, *panel_arguments, *sums, *prefetch_arguments),
            )
            if self.right_rows:
                when(
                    b,
                    prefetches_columns,
                    lambda b: call_kernel(b, *panel_arguments, *sums, *self.right_prefetch(b, run, r, block.rows[1], column)),
                )
            if self.out_rows:
                out = self.out_rows.begin(b, i, column), self.out_rows.stride(b)
                when(b, stores_directly, lambda b: call_kernel(b, *panel_arguments, *out, *prefetch_arguments))
            if self.is_light:
                tile_sums = b.emit(OPS["ref_at"], (sums[0], zero, sums[1]), {})[0]
                when(b, b.bitand(run.is_last, keeps_sums), lambda b: self.finish(b, tile_sums, (i, height), (column, some)))

        serial(b, block.across, tile)
        if not self.is_light:
            when(b, run.is_last, lambda b: self.finish(b, strip, (i, height), (j0, width)))

    def short_kernel_addresses(self, b: Builder) -> list[Value]:
        """Return the addresses of the short microkernels; 0 for those that do not pay."""
        pairs = zip(self.short_kernels, self.short_pays, strict=True)
        return [b.emit(OPS["function_address"], (is_worth,), {"function": tile.name})[0] for tile, is_worth in pairs]

    def kernel_for(self, b: Builder, height: Value) -> tuple[Callable[..., None], Value]:
        """Return a function that calls the microkernel for a panel of ``height`` rows, and the rows for which that has
        accumulators."""
        rows = constant(b, self.shape.rows)
        if not self.short_kernels:
            return self.microkernel.call, rows
        address = b.emit(OPS["function_address"], (), {"function": self.microkernel.name})[0]
        for short_rows, short_address in zip(
            self.shape.short_rows, self.short_addresses or self.short_kernel_addresses(b), strict=True
        ):
            fits = b.bitand(b.le(height, constant(b, short_rows)), b.ne(short_address, constant(b, 0)))
            address, rows = b.select(fits, short_address, address), b.select(fits, constant(b, short_rows), rows)
        return lambda b, *arguments: b.emit(OPS["call_indirect"], (address, *arguments), {}), rows

    # scratch for sums, and prefetch addresses

    def sums_at(self, b: Builder, strip: Value, j: Value) -> tuple[Value, Value]:
        """Return the address of a tile's sums and their row stride. They are contiguous if results leave tile by tile."""
        width = self.shape.columns * self.planes
        size, stride = (self.shape.rows * width, width) if self.is_light else (width, self.shape.sums_stride)
        return b.emit(OPS["ref_at"], (strip, constant(b, 0), b.mul(j, constant(b, size))), {})[0], constant(b, stride)

    def next_sums(self, b: Builder, block: Block, run: KBlock, r: Value, j: Value) -> tuple[Value, Value]:
        """Return the address and stride by which the sums of the next tile are prefetched, if the sums of a tile are
        contiguous."""
        one, zero = constant(b, 1), constant(b, 0)
        if not self.is_light:
            return self.sums_at(b, b.subview(block.sums, zero), zero)[0], zero
        size = self.shape.rows * self.shape.columns * self.planes
        is_end = b.eq(b.add(j, one), block.across)
        row = b.select(block.several, b.add(r, b.select(is_end, one, zero)), zero)
        next_, _ = self.sums_at(b, b.subview(block.sums, row), b.select(is_end, zero, b.add(j, one)))
        return next_, b.mul(ceil_div_by(b, constant(b, size), b.maximum(run.span[1], one)), constant(b, self.shape.k_unroll))

    def left_prefetch(self, b: Builder, block: Block, run: KBlock, r: Value, i: Value) -> PrefetchFor:
        """Return the prefetch of the left rows packed next, if operands exceed L2."""
        zero, operand = constant(b, 0), self.plain_left
        if operand is None:
            return lambda b, j, sums: (sums[0], zero)
        tile = b.mul(r, block.across), b.add(i, constant(b, self.shape.rows))
        if operand.transposed_at_run_time is None:
            by, position = (self.prefetch_transposed_left if operand.is_transposed else self.prefetch_left_rows)(
                b, block, run, *tile
            )
            return lambda b, j, sums: (operand.rows.begin(b, *position(b, j)), by)
        is_turned = operand.transposed_at_run_time
        (by_terms, of_terms), (by_rows, of_rows) = (
            plan(b, block, run, *tile) for plan in (self.prefetch_transposed_left, self.prefetch_left_rows)
        )
        by = b.select(is_turned, by_terms, by_rows)

        def tell(b: Builder, j: Value, sums: tuple[Value, Value]) -> tuple[Value, Value]:
            pairs = zip(of_terms(b, j), of_rows(b, j), strict=True)
            return operand.rows.begin(b, *(b.select(is_turned, *pair) for pair in pairs)), by

        return tell

    def prefetch_transposed_left(self, b: Builder, block: Block, run: KBlock, before: Value, next_: Value) -> PrefetchPlan:
        """Plan the prefetch of a left operand that is contiguous along its rows: every other K iteration."""
        assert self.plain_left is not None
        p0, one = run.span[0], constant(b, 1)
        by = b.select(block.is_far, b.mul(constant(b, self.shape.k_unroll), self.plain_left.rows.stride(b)), constant(b, 0))
        return by, lambda b, j: (b.add(p0, b.bitand(b.add(before, j), one)), next_)

    def prefetch_left_rows(self, b: Builder, block: Block, run: KBlock, before: Value, next_: Value) -> PrefetchPlan:
        """Plan the prefetch of a left operand that is contiguous along K: one row per tile, from end to end; where tiles are
        few, two lines of each of many rows."""
        assert self.plain_left is not None
        (p0, count), rows, elements = run.span, constant(b, self.shape.rows), constant(b, self.microkernel.prefetched_elements)
        zero, one, at_once = constant(b, 0), constant(b, 1), constant(b, self.shape.k_unroll)
        has_few_tiles = b.lt(block.across, rows)
        of = b.maximum(ceil_div(b, count, self.microkernel.prefetched_elements), one)
        first = b.add(p0, b.mul(b.sub(before, b.mul(b.idiv(before, of), of)), elements))
        end, wrap = b.add(p0, b.mul(of, elements)), b.mul(of, elements)
        by = b.select(block.is_far, b.select(has_few_tiles, self.plain_left.rows.stride(b), at_once), zero)
        share = b.select(has_few_tiles, zero, b.idiv(b.mul(rows, constant(b, SHARE_SCALE)), block.across))
        step = b.select(has_few_tiles, elements, zero)
        start = b.select(has_few_tiles, first, p0)

        def position(b: Builder, j: Value) -> tuple[Value, Value]:
            k_index = b.add(start, b.mul(j, step))
            k_index = b.select(b.lt(k_index, end), k_index, b.sub(k_index, wrap))
            return b.add(next_, floor_div(b, b.mul(j, share), SHARE_SCALE)), k_index

        return by, position

    def prefetches_right(self, b: Builder) -> Value:
        """Return whether microkernels prefetch the columns packed for the next K block."""
        if self.right_rows is None:
            return b.const(False, BOOL)
        is_transposed = None if self.packed[1] is None else self.packed[1].transposed_at_run_time
        return self.by_panel if is_transposed is None else b.bitand(self.by_panel, b.bitnot(is_transposed))

    def right_prefetch(self, b: Builder, run: KBlock, r: Value, panels: Value, column: Value) -> tuple[Value, ...]:
        """Return the prefetch addresses and strides of the columns packed for the next K block; tiles of two panels of rows
        prefetch alternate K iterations."""
        assert self.right_rows
        zero, one, at_once = constant(b, 0), constant(b, 1), constant(b, self.shape.k_unroll)
        k_step = b.select(b.bitand(b.lt(r, constant(b, 2)), b.bitnot(run.is_last)), one, zero)
        next_k, stride = b.add(run.span[0], b.mul(run.span[1], k_step)), b.mul(b.mul(k_step, at_once), self.right_rows.stride(b))
        half = constant(b, self.microkernel.prefetched_elements // self.planes)
        alone = b.eq(panels, one)
        first = b.add(next_k, b.select(b.bitand(b.eq(r, one), b.ne(k_step, zero)), one, zero))
        second = b.add(next_k, b.bitand(k_step, b.select(alone, one, r)))
        second_position = (next_k, b.add(column, half)) if self.shape.k_unroll == 1 else (second, column)
        return self.right_rows.begin(b, first, column), stride, self.right_rows.begin(b, *second_position), stride

    def pack_rows(self, b: Builder, block: Block, run: KBlock, rows: Span) -> None:
        """Pack a panel of rows."""
        zero = constant(b, 0)
        operand = self.packed[0]
        if operand is not None:
            memory = b.subview(block.panels, zero), b.subview(block.known, zero)
            pack(b, self.pack_address(b, operand, True), *memory, operand, *run.span, *rows, self.rows)
            return
        self.left.pack(b, b.subview(block.panels, zero), run.span, rows)
        self.reset_marks(b, block, zero, run.sizes[0])

    def pack(self, b: Builder, block: Block, run: KBlock, k: Value, c: Value) -> None:
        """Pack the panel of columns that begins at column ``c`` of the block, or that and all following ones, at position
        ``k``."""
        (j0, width), shape = block.columns, self.shape
        panel_count = b.select(self.by_panel, constant(b, 1), block.across)
        some = b.minimum(b.mul(panel_count, constant(b, shape.columns)), b.sub(width, c))
        columns = b.add(j0, c), some
        operand = self.packed[1]
        if operand is not None:
            arguments = k, *run.span, *columns, panel_count, self.columns
            pack(b, self.pack_address(b, operand, False), block.panels, block.known, operand, *arguments)
            return
        self.right.pack_some(b, block.panels, k, run.span, columns, panel_count)
        serial(b, panel_count, lambda b, x: self.reset_marks(b, block, b.add(k, x), run.sizes[1]))

    def pack_address(self, b: Builder, operand: PlainOperand, is_left: bool) -> Value:
        """Return the address of the function that packs a plain operand."""
        if operand.packed_by is not None:
            return operand.packed_by
        direct, *transposed = [
            b.emit(OPS["function_address"], (), {"function": function.name})[0]
            for function in self.pack_functions(operand, is_left)
        ]
        address: Value = b.select(operand.transposed(b), *transposed, direct) if transposed else direct
        return address

    def pack_functions(self, operand: PlainOperand, is_left: bool) -> list[PackFunction]:
        """Define the functions that may pack a plain operand: two if its order is known only at run time, the second for the
        transposed one."""
        orders = (False, True) if operand.is_either else (operand.is_transposed,)
        functions = [PackFunction(self.dtype, is_left, is_transposed, self.shape) for is_transposed in orders]
        self.functions |= {function.name: function.define() for function in functions}
        return functions

    def k_block_length(self, b: Builder) -> Value:
        """Return the length of a K block."""
        most = constant(b, self.shape.k_block)
        if not self.right_is_by_rows:
            return most
        most_ahead = constant(b, RUN * ROW // (self.planes * self.dtype.bytes))
        short = b.maximum(constant(b, RUN), b.idiv(most_ahead, b.maximum(self.columns, constant(b, 1))))
        length: Value = b.select(self.by_panel, b.minimum(most, short), most)
        return length

    def reset_marks(self, b: Builder, block: Block, k: Value, count: Value) -> None:
        self.scales.reset(b, b.subview(block.panels, k), b.subview(block.known, k), count)

    def is_far(self, b: Builder) -> Value:
        """Return whether operands and results exceed the part of L2 that the panels leave free."""
        elements = b.add(b.mul(self.depth, b.add(self.rows, self.columns)), b.mul(self.rows, self.columns))
        exceeds: Value = b.gt(elements, constant(b, self.shape.l2_elements))
        return exceeds

    def prefetch_results(self, b: Builder, i: Value, j: Value) -> None:
        """Emit prefetches of the memory that the epilogue of a tile reads and writes."""
        inner, r = Builder(b.loc), Value(scalar(I64))
        for c in range(0, self.shape.columns, self.right.line):
            prefetch(inner, self.epilogue, inner.add(i, r), inner.add(j, constant(inner, c)))
        if any(k.op is OPS["prefetch"] for k in inner.instructions):
            params = {"map": "serial", "ordered": True}
            b.emit(OPS["for"], (constant(b, self.shape.rows),), params, [inner.block([r], [])])

    def finish(self, b: Builder, sums: Value, rows: Span, columns: Span) -> None:
        """Apply the epilogue to the sums of a row of tiles, or of one tile."""
        i0, height = rows
        j0, count = columns
        partial_row = floor_div(b, i0, ROWS) if self.parts else i0

        def row(b: Builder, r: Value) -> None:
            i = b.add(i0, r)

            def element(b: Builder, c: Value) -> tuple[Value, ...]:
                j = b.add(j0, c)
                at = self.sum_offset(b, c)
                sums_loaded = [b.load(sums, r, b.add(at, constant(b, k)) if k else at) for k in range(self.planes)]
                results = copy_block(self.epilogue, (i, j, *sums_loaded))
                b.instructions.extend(results.instructions)
                for part, name, value in zip(self.parts, self.combine, results.results, strict=False):
                    b.store(b.emit(OPS[name], (b.load(part, partial_row, j), value))[0], part, partial_row, j)
                return results.results[len(self.parts) :]

            def alone(b: Builder, k: Value) -> None:
                element(b, k)

            def run(b: Builder, q: Value) -> None:
                start, inner, k = b.mul(q, constant(b, COLUMNS)), Builder(b.loc), Value(scalar(I64))
                yields = element(inner, inner.add(start, k))
                length = b.minimum(constant(b, COLUMNS), b.sub(count, start))
                operands = (length, *identities(b, self.across, yields))
                params = {"combine": self.across, "max_trip_count": COLUMNS}
                totals = b.emit(OPS["for"], operands, params, [inner.block([k], yields)])
                at = b.add(b.idiv(j0, constant(b, COLUMNS)), q)
                b.instructions.extend(copy_block(self.ends[0], (i, at, *totals)).instructions)

            if self.across:
                serial(b, ceil_div(b, count, COLUMNS), run)
            else:
                loop(b, count, alone)

        serial(b, height, row)

    def sum_offset(self, b: Builder, column: Value) -> Value:
        """Return the offset of a column within a row of sums."""
        return column if self.planes == 1 else b.mul(column, constant(b, self.planes))
