"""Batches of narrow matrix products with fused neighbours: operands that are computed, and epilogues that do more than store.

A computed operand is evaluated once for a tile or a block (``narrow_left_operand``), the columns of the right operand in
panels; what is only loaded is read in place. Sums that are only stored are kept in the result between K blocks; for any other
epilogue the whole K axis, up to ``LONG`` blocks, is accumulated at once, and the epilogue starts from registers
(``epilogue``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.cpu.loops.nest_builder import (
    FEW,
    MOST_CHUNKS,
    Emitted,
    Stores,
    ceil_div,
    ceil_div_by,
    constant,
    constant_value,
    floor_div,
    inline_masked,
    is_plain,
    is_stored,
    loop,
    serial,
    when,
)  # fmt: skip
from pullback.codegen.cpu.matmul.blocking import ACCUMULATORS_OF_32, TRANSPOSE_GROUP, Blocking, blocking_for
from pullback.codegen.cpu.matmul.epilogue import PENDING_TILES, Epilogue
from pullback.codegen.cpu.matmul.narrow import (
    GROUPS,
    MAX_COLUMN_PANELS,
    MAX_GROUP,
    MIN_ROW_PANELS,
    SHORT_K_BLOCK,
    SPLIT,
    is_loaded_by_columns,
    is_outside_batch,
    with_capture,
)
from pullback.codegen.cpu.matmul.narrow_left_operand import LeftOperand, Loader, loader_of
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

MAX_EPILOGUE = 16
"""Most instructions of an epilogue that runs while the sums are in registers."""
WIDTHS = 3, 2
"""Vectors in a row of a tile."""
LONG_K = 8
"""K blocks accumulated at once where sums cannot be kept in the result."""
LIGHT, FEW_TILES = 2, 3
"""A right operand of at most this many loads and one op is computed by up to ``FEW_TILES`` row panels, each for itself."""


def may_be_narrow_fused(i: Instruction) -> bool:
    """Return whether a real product of a batch has an epilogue light enough for registers."""
    left, _, epilogue, *_ = i.regions
    is_real = len(left.results) == 1
    return (
        is_real
        and len(i.operands) == 3
        and len(epilogue.instructions) <= MAX_EPILOGUE
        and all(map(is_plain, epilogue.instructions))
    )


class NarrowFused:
    """Expands a batch of products, given as a count and the value that holds the product's index in the regions."""

    def __init__(self, b: Builder, i: Instruction, target: Target, batch: tuple[Value, Value]) -> None:
        self.b, (self.count, self.product) = b, batch
        self.rows, self.columns, self.depth = i.operands
        left, right, epilogue, *ends = i.regions
        self.row_sums = self.with_product(ends.pop()) if i.params.get("left_row_sums") else None
        self.left, self.right, self.each = map(self.with_product, (left, right, epilogue))
        self.right_region = right
        self.dtype = left.results[0].type.dtype
        self.epilogue = Epilogue(self.each, i.params.get("row_combine", ()), *map(self.with_product, ends))
        self.shape: Blocking = blocking_for(target, self.dtype)
        self.has_fma = target.has_fma
        self.only_stores, self.left_is_in_place = is_stored(epilogue), is_only_loaded(left) and self.row_sums is None
        self.right_is_transposed = Panels(right, 0, self.columns, 1, 1).is_transposed
        self.right_is_in_place = is_loaded_by_columns(right) or (
            not self.right_is_transposed and is_light(right) and self.has_few_rows()
        )
        self.k_outermost = is_outside_batch(left, 1, self.product)
        self.rows_outermost = is_outside_batch(left, 0, self.product) or (
            not self.left_is_in_place and is_outside_batch(epilogue, 0, self.product)
        )
        self.length = (
            SHORT_K_BLOCK if self.k_outermost else self.shape.k_block if self.only_stores else LONG_K * self.shape.k_block
        )
        self.l2_elements = target.cache // 2 // self.dtype.bytes

    def with_product(self, region: Block) -> Block:
        """Return a region that takes the product's index first."""
        return Block((self.product, *region.parameters), region.instructions, region.results)

    def has_few_rows(self) -> bool:
        """Return whether the row count is a constant so small that few tiles read a right operand."""
        rows = constant_value(self.b, self.rows)
        return rows is not None and rows <= FEW_TILES * self.shape.rows_in_registers(max(WIDTHS))

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        """Emit ``x * y + z``, fused where the machine has FMA."""
        total: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return total

    def expand(self) -> Value | None:
        """Expand the narrow products; return how many are left, or None if none can be."""
        b, lanes = self.b, self.shape.lanes
        work = b.mul(b.mul(b.mul(self.rows, self.columns), self.depth), self.count)
        is_long = b.ge(work, constant(b, self.shape.parallel_threshold))
        remaining, zero = self.count, constant(b, 0)
        is_short = b.le(self.depth, constant(b, self.length))
        tail = self.tail()
        if tail is not None:
            _Tiles(self, tail.vectors, tail.tile_rows, 1, tail).expand(b, self.count, is_long)
            return None
        for vectors in self.widths():
            fits = b.le(self.columns, constant(b, self.max_columns(vectors)))
            fits = fits if self.only_stores else b.bitand(fits, is_short)
            if vectors == 3:
                fits = b.bitand(fits, b.gt(self.columns, constant(b, 2 * lanes)))
            count = b.select(fits, remaining, zero)
            remaining = b.select(fits, zero, remaining)
            _Tiles(self, vectors, self.row_count(vectors), self.max_panels(vectors)).expand(b, count, b.bitand(is_long, fits))
        return None if self.covers_all() else remaining

    def max_panels(self, vectors: int) -> int:
        """Return the largest number of column panels for tiles of ``vectors`` vectors."""
        return MAX_COLUMN_PANELS if vectors == 2 and (self.right_is_in_place or not self.right_is_transposed) else 1

    def max_columns(self, vectors: int) -> int:
        """Return the largest number of columns."""
        widest = self.max_panels(vectors) * vectors * self.shape.lanes
        return min(widest, COLUMNS) if self.epilogue.across else widest

    def widths(self) -> list[int]:
        """Return the tile widths in vectors; one of them if the column count is a constant."""
        lanes, columns = self.shape.lanes, constant_value(self.b, self.columns)
        widths = [vectors for vectors in WIDTHS if vectors * lanes % TRANSPOSE_GROUP == 0]
        if columns is None:
            return widths
        return [v for v in widths if (v < 3 or columns > 2 * lanes) and columns <= self.max_columns(v)][:1]

    def tail(self) -> Tail | None:
        """Return how the last columns of several rows share a vector; None if they do not."""
        rows, columns, forms = constant_value(self.b, self.rows), constant_value(self.b, self.columns), self.widths()
        if (
            not rows
            or columns is None
            or not forms
            or not self.only_stores
            or self.left_is_in_place
            or not self.right_is_in_place
        ):
            return None
        vectors, row_count = forms[0], self.row_count(forms[0])
        cost_without = -(-rows // row_count) * row_count * -(-columns // (vectors * self.shape.lanes)) * vectors
        tail = tail_for(rows, columns, self.shape.lanes, cost_without) if self.shape.accumulators == ACCUMULATORS_OF_32 else None
        if tail is None:
            return None
        left = _Tiles(self, tail.vectors, tail.tile_rows, 1, tail).left
        return tail if left is not None and left.rows is not None and not left.is_by_tile else None

    def covers_all(self) -> bool:
        """Return whether constants show that every product is narrow."""
        columns, terms = constant_value(self.b, self.columns), constant_value(self.b, self.depth)
        return columns is not None and bool(self.widths()) and (self.only_stores or (terms is not None and terms <= self.length))

    def row_count(self, vectors: int) -> int:
        """Return the rows of tiles of ``vectors`` vectors: a multiple of the transpose group where rows are reduced, and fewer
        than registers hold where a constant row count then wastes less work."""
        max_rows, count = self.shape.rows_in_registers(vectors), constant_value(self.b, self.rows)
        if self.epilogue.across:
            return max_rows // TRANSPOSE_GROUP * TRANSPOSE_GROUP
        if count is None or not self.only_stores:
            return max_rows
        return -(-count // -(-count // max_rows))


class _Tiles:
    """The loops over tiles of ``vectors`` by ``rows``, with at most ``most`` column panels."""

    def __init__(self, of: NarrowFused, vectors: int, rows: int, most: int, tail: Tail | None = None) -> None:
        self.batch, self.shape, self.vectors, self.row_count, self.max_panels = of, of.shape, vectors, rows, most
        self.tail = tail
        self.tails: Value | None = None
        self.column_count = vectors * of.shape.lanes
        self.left = None if of.left_is_in_place else self.make_left(rows)
        self.packed: Value | None = None
        self.pending: Value | None = None

    def inside(self, b: Builder, columns: Sequence[Value]) -> list[Value]:
        """Return the masks of the existing columns of a panel."""
        batch, lanes = self.batch, self.shape.lanes
        constant_columns = self.column_count if self.tail is not None else constant_value(batch.b, batch.columns)
        full_vectors = 0 if constant_columns is None or constant_columns > self.column_count else constant_columns // lanes
        return [b.const(True, BOOL) if x < full_vectors else b.lt(column, batch.columns) for x, column in enumerate(columns)]

    def make_left(self, rows: int) -> LeftOperand:
        """Return the packed left operand."""
        batch = self.batch
        return LeftOperand(
            batch.left,
            rows,
            MIN_ROW_PANELS,
            batch.length,
            MAX_GROUP,
            batch.shape.lanes,
            batch.row_sums,
            constant_value(batch.b, batch.rows),
        )

    def expand(self, b: Builder, count: Value, is_long: Value) -> None:
        """Divide the row panels of ``count`` products among threads."""
        batch, one = self.batch, constant(b, 1)
        panels, threads = ceil_div(b, batch.rows, self.row_count), b.emit(OPS["threads"], (), {})[0]
        groups_wanted = ceil_div_by(b, b.mul(threads, constant(b, GROUPS)), b.maximum(floor_div(b, panels, MIN_ROW_PANELS), one))
        across = ceil_div(b, batch.columns, self.column_count) if self.max_panels > 1 else one
        k_extent = b.maximum(b.minimum(batch.depth, constant(b, batch.length)), one)
        group_size = self.group_size(
            b, b.idiv(count, groups_wanted), b.mul(b.mul(k_extent, across), constant(b, self.column_count))
        )
        groups = ceil_div_by(b, count, group_size)
        wanted = b.select(is_long, ceil_div_by(b, b.mul(threads, constant(b, SPLIT)), b.maximum(groups, one)), one)
        block_panels = b.maximum(ceil_div_by(b, panels, wanted), constant(b, MIN_ROW_PANELS))
        if self.left is not None and not self.left.is_by_tile:
            block_panels = constant(b, MIN_ROW_PANELS)
        row_blocks = ceil_div_by(b, panels, block_panels)
        total = b.mul(groups, row_blocks)
        most = b.mul(threads, constant(b, MOST_CHUNKS))
        size = b.maximum(b.select(is_long, ceil_div_by(b, total, most), total), one)
        chunks = ceil_div_by(b, total, size)
        chunks = b.select(b.gt(chunks, one), b.maximum(chunks, constant(b, FEW)), chunks)

        def chunk(b: Builder, c: Value) -> None:
            self.allocate(b, group_size, b.mul(b.mul(group_size, across), k_extent))
            first = b.mul(c, size)

            def item(b: Builder, k: Value) -> None:
                at = b.add(first, k)
                group = b.idiv(at, row_blocks)
                z, r = b.mul(group, group_size), b.mul(b.sub(at, b.mul(group, row_blocks)), block_panels)
                products, rows = b.minimum(group_size, b.sub(count, z)), b.minimum(block_panels, b.sub(panels, r))
                _Block(self, (z, products), (r, rows), across).expand(b)

            serial(b, b.minimum(size, b.sub(total, first)), item)

        loop(b, chunks, chunk, map="core")

    def group_size(self, b: Builder, share: Value, size: Value) -> Value:
        """Return how many products have their columns packed at a time, each in ``size`` numbers."""
        one = constant(b, 1)
        if not (self.batch.rows_outermost or self.batch.k_outermost):
            return one
        limit = b.minimum(b.idiv(constant(b, self.batch.l2_elements), b.maximum(size, one)), constant(b, MAX_GROUP))
        result: Value = b.maximum(b.minimum(share, limit), one)
        return result

    def allocate(self, b: Builder, group: Value, lines: Value) -> None:
        """Allocate the scratch memory of a chunk."""
        batch = self.batch
        if self.left is not None:
            self.left.allocate(b, group)
        if batch.epilogue.across:
            size = len(batch.epilogue.across) * self.shape.lanes * self.row_count
            self.pending = b.local(dtype=batch.dtype, shape=(PENDING_TILES * self.max_panels, size))
        if self.tail is not None:
            self.tails = self.tail.local(b, group, batch.dtype, MAX_GROUP)
        if not batch.right_is_in_place:
            most = MAX_GROUP * self.max_panels * batch.length * self.column_count
            self.packed = b.local(b.mul(lines, constant(b, self.column_count)), dtype=batch.dtype, shape=(most,))


class _Block:
    """Some row panels of some products, each with ``across`` column panels."""

    def __init__(self, tiles: _Tiles, products: Span, panels: Span, across: Value) -> None:
        self.tiles, self.batch, self.shape = tiles, tiles.batch, tiles.shape
        self.left, self.row_count, self.column_count = tiles.left, tiles.row_count, tiles.column_count
        self.products, self.panels, self.across = products, panels, across

    def expand(self, b: Builder) -> None:
        """Emit the loop over K blocks."""
        batch, length = self.batch, constant(b, self.batch.length)
        if batch.row_sums is not None and self.left is not None:
            self.left.begin(b, self.products)
        if batch.only_stores:
            k_blocks = b.maximum(ceil_div_by(b, batch.depth, length), constant(b, 1))
            serial(b, k_blocks, lambda b, q: self.run(b, b.mul(q, length), b.eq(q, constant(b, 0))))
        else:
            self.run(b, constant(b, 0), b.const(True, BOOL))
        if batch.row_sums is not None and self.left is not None:
            self.left.end(b, self.products, self.rows(b))

    def rows(self, b: Builder) -> Span:
        """Return the row span."""
        first = b.mul(self.panels[0], constant(b, self.row_count))
        return first, b.minimum(b.mul(self.panels[1], constant(b, self.row_count)), b.sub(self.batch.rows, first))

    def run(self, b: Builder, p0: Value, is_first: Value) -> None:
        """Emit one K block."""
        batch, k_span = self.batch, (p0, b.minimum(constant(b, self.batch.length), b.sub(self.batch.depth, p0)))
        self.k_span, self.is_first = k_span, is_first
        if not batch.right_is_in_place:
            serial(b, self.products[1], lambda b, z: serial(b, self.across, lambda b, j: self.pack(b, z, j)))
        if self.left is not None:
            self.left.pack_block(b, self.products, k_span, self.rows(b))

        def across(b: Builder, r: Value) -> None:
            self.emit_tiles(b, self.products[1], lambda b, z: (z, r))

        def down(b: Builder, z: Value) -> None:
            self.emit_tiles(b, self.panels[1], lambda b, r: (z, r))

        serial(b, *((self.panels[1], across) if batch.rows_outermost else (self.products[1], down)))

    def emit_tiles(self, b: Builder, count: Value, locate: Callable[[Builder, Value], tuple[Value, Value]]) -> None:
        """Emit tiles in sequence; pending row reductions are finished in between."""

        def body(b: Builder, x: Value) -> None:
            self.row(b, *locate(b, x), x)
            if self.tiles.pending is not None:
                sums = self.tiles.pending, self.row_count
                self.batch.epilogue.finish_pending(b, x, count, lambda b, x: self.locate(b, *locate(b, x)), self.across, sums)

        serial(b, count, body)

    def locate(self, b: Builder, z: Value, r: Value) -> tuple[Value, Span]:
        """Return the product of a row panel and its row span."""
        i = b.mul(b.add(self.panels[0], r), constant(b, self.row_count))
        return b.add(self.products[0], z), (i, b.minimum(constant(b, self.row_count), b.sub(self.batch.rows, i)))

    def panel_offset(self, b: Builder, z: Value, j: Value) -> Value:
        """Return the offset of a packed panel of columns."""
        offset: Value = b.mul(b.mul(b.add(b.mul(z, self.across), j), self.k_span[1]), constant(b, self.column_count))
        return offset

    def pack(self, b: Builder, z: Value, j: Value) -> None:
        """Pack a panel of columns."""
        batch, panel, product, start = self.batch, self.tiles.packed, b.add(self.products[0], z), self.panel_offset(b, z, j)
        assert panel is not None
        if batch.right_is_transposed:
            region = with_capture(batch.right_region, batch.product, product)
            _PanelsAt(region, batch.columns, self.column_count, self.shape.lanes, start).pack(
                b, panel, self.k_span, (constant(b, 0), batch.columns)
            )
            return
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        first = b.mul(j, constant(b, self.column_count))
        starts = [inner.add(first, constant(inner, x * self.shape.lanes)) for x in range(self.tiles.vectors)]
        columns = [inner.add(begin, lane) for begin in starts]
        inside = self.tiles.inside(inner, columns)
        loaders = [loader_of(inner, batch.right, (product, None, c), 2, mask) for c, mask in zip(columns, inside, strict=True)]

        def term(b: Builder, p: Value) -> None:
            at, to = b.add(self.k_span[0], p), b.add(start, b.mul(p, constant(b, self.column_count)))
            values = [piece(b, at) for piece in loaders]
            for x, value in enumerate(values):
                b.store(value, panel, b.add(b.add(to, constant(b, x * self.shape.lanes)), lane))

        serial(inner, self.k_span[1], term)
        b.emit(OPS["for"], (constant(b, self.shape.lanes),), self.vector, [inner.block([lane], [])])

    @property
    def vector(self) -> dict[str, object]:
        """The parameters of a loop over the lanes of a vector."""
        return {"map": "vector", "multiple": self.shape.lanes}

    def row(self, b: Builder, z: Value, r: Value, tile_index: Value) -> None:
        """Emit the tiles of a row panel. Rows beyond the end repeat the last one."""
        product, (i, _) = self.locate(b, z, r)
        last = b.sub(self.batch.rows, constant(b, 1))
        rows = [b.minimum(b.add(i, constant(b, k)), last) for k in range(self.row_count)]
        if self.left is not None:
            self.left.pack_tile(b, product, self.k_span, rows)
        slot = b.mul(b.bitand(tile_index, constant(b, PENDING_TILES - 1)), constant(b, self.tiles.max_panels))
        tile = _Tile(self, z, product, rows)
        serial(b, self.across, lambda b, j: tile.expand(b, j, b.add(slot, j)))
        if self.tiles.tail is not None:
            when(b, b.eq(b.add(r, constant(b, 1)), self.panels[1]), lambda b: self.tail(b, z, product))

    def tail(self, b: Builder, z: Value, product: Value) -> None:
        """Emit the last columns of a product."""
        batch, tiles, left = self.batch, self.tiles, self.left
        assert tiles.tail is not None and left is not None

        def right(b: Builder, column: Value) -> Loader:
            return loader_of(b, batch.right, (product, None, column), 2, None)

        tails = Tails(tiles.tail, b.subview(tiles.tails, z), left, z, product, right, batch.multiply_add)
        is_last = b.ge(b.add(*self.k_span), batch.depth)
        tails.expand(b, self.k_span, batch.each, batch.rows, (self.is_first, is_last))


class _Tile:
    """One tile over a K block. ``z``: the product's index in its group, ``which``: its index in the batch."""

    def __init__(self, block: _Block, z: Value, product: Value, rows: list[Value]) -> None:
        self.block, self.batch, self.tiles, self.z, self.product, self.rows = block, block.batch, block.tiles, z, product, rows

    def expand(self, b: Builder, j: Value, slot: Value) -> None:
        """Emit the K loop and the epilogue."""
        batch, tiles, lanes = self.batch, self.tiles, self.block.shape.lanes
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        first = b.mul(j, constant(b, tiles.column_count))
        columns = [inner.add(inner.add(first, constant(inner, x * lanes)), lane) for x in range(tiles.vectors)]
        inside = self.tiles.inside(inner, columns)
        totals = self.totals(inner, self.block.panel_offset(b, self.z, j), lane, columns, inside)
        if batch.only_stores:
            self.put(inner, columns, inside, totals)
        else:
            sums = None if tiles.pending is None else b.subview(tiles.pending, slot)
            batch.epilogue.run(inner, self.product, self.rows, list(zip(columns, inside, strict=True)), totals, (sums, lane))
        b.emit(OPS["for"], (constant(b, lanes),), self.block.vector, [inner.block([lane], [])])

    def totals(
        self, b: Builder, panel_offset: Value, lane: Value, columns: list[Value], inside: list[Value]
    ) -> tuple[Value, ...]:  # fmt: skip
        """Emit the K loop; return the sums."""
        batch, tiles, lanes, k_span = self.batch, self.tiles, self.block.shape.lanes, self.block.k_span
        step, p, zero = Builder(b.loc), Value(scalar(I64), "p"), b.const(0.0, batch.dtype)
        before = [Value(scalar(batch.dtype), "sum") for _ in range(tiles.row_count * tiles.vectors)]
        at = step.add(k_span[0], p)
        if tiles.packed is None:
            pairs = zip(columns, inside, strict=True)
            loaders = [loader_of(b, batch.right, (self.product, None, column), 2, mask) for column, mask in pairs]
            right = [piece(step, at) for piece in loaders]
        else:
            start = step.add(panel_offset, step.mul(p, constant(step, tiles.column_count)))
            starts = [step.add(start, constant(step, x * lanes)) for x in range(tiles.vectors)]
            right = [step.load(tiles.packed, step.add(panel_offset, lane)) for panel_offset in starts]
        if tiles.left is None:
            left = [element for row in self.rows for element in inline_masked(step, batch.left, (self.product, row, at), 1, None)]
        else:
            left = tiles.left.elements(step, self.z, p, self.rows[0])
            tiles.left.prefetch_next(step, self.product, at, self.rows[0])
        pairs_ = [(x, y) for x in left for y in right]
        after = [batch.multiply_add(step, x, y, total) for (x, y), total in zip(pairs_, before, strict=True)]
        body = step.block([p, *before], after)
        return b.emit(OPS["for"], (k_span[1], *[zero] * len(before)), {"map": "serial"}, [body])

    def put(self, b: Builder, columns: list[Value], inside: list[Value], totals: tuple[Value, ...]) -> None:
        """Store the sums, or add them to earlier ones: all loads precede all stores, and the last row is stored after the rows
        that repeat it."""
        stores: Stores = []
        emitted: Emitted = {}
        for r in reversed(range(len(self.rows))):
            for x, (column, mask) in enumerate(zip(columns, inside, strict=True)):
                total = totals[r * len(columns) + x]
                inline_masked(b, self.batch.each, (self.product, self.rows[r], column, total), 2, mask, stores, emitted)

        def first(b: Builder) -> None:
            for operands in stores:
                b.store_if(*operands)

        def more(b: Builder) -> None:
            sums = [b.add(b.load_if(ref, *rest), total) for total, ref, *rest in stores]
            for total, (_, *rest) in zip(sums, stores, strict=True):
                b.store_if(total, *rest)

        when(b, self.block.is_first, first)
        when(b, b.bitnot(self.block.is_first), more)


class _PanelsAt(Panels):
    """Packs a panel that begins at an offset of its memory."""

    def __init__(self, region: Block, total: Value, size: int, lanes: int, begin: Value) -> None:
        super().__init__(region, 0, total, size, lanes)
        self.start = begin

    def offset(self, b: Builder, p: Value, k: Value) -> Value:
        offset: Value = b.add(self.start, super().offset(b, p, k))
        return offset


def is_light(region: Block) -> bool:
    """Return whether an operand is one op on few loads."""
    loads = [i for i in region.instructions if isinstance(i.op, Load)]
    return len(loads) <= LIGHT and len(region.instructions) <= LIGHT + 1


def is_only_loaded(region: Block) -> bool:
    """Return whether an operand is only loaded."""
    (first, *rest) = region.instructions or (None,)
    return not rest and first is not None and isinstance(first.op, Load) and not first.op.masked
