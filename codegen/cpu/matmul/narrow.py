"""Batches of matrix products with few columns: tiles read the left operand in place and store their sums at once.

Where the result is one tile wide, each element of the left operand is read once, so packing it would cost as much as the
product. The columns of the right operand are packed in one panel for each product. The order of the loops over the batch, rows
and K follows the memory layout: contiguous data is read in sequence, through all products of the batch.

The order of additions follows K, in K blocks whose length depends on K alone. Between K blocks the sums are kept in the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import (
    FEW,
    MOST_CHUNKS,
    ceil_div,
    ceil_div_by,
    constant,
    element,
    floor_div,
    is_contiguous_along,
    is_stored,
    loop,
    serial,
    when,
)
from pullback.codegen.cpu.matmul.blocking import TRANSPOSE_GROUP, Blocking, blocking_for
from pullback.codegen.cpu.matmul.packing import Panels
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copy_block
from pullback.ir.core.types import BOOL, I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Store

SHORT_K_BLOCK = 64
"""Length of a K block if all products of the batch read their K axis from one row of memory; that many rows stay in cache."""
MIN_ROW_PANELS = 8
"""Row panels, at least, that read a packed panel of columns."""
MAX_GROUP = 64
"""Products, at most, whose columns are packed at a time."""
MAX_COLUMN_PANELS = 4
"""Column panels, at most, if they are read in place: the left operand is read once for each."""
SPLIT, GROUPS = 8, 2
"""Blocks per thread, and groups of products per thread if there are few rows."""


def may_be_narrow(i: Instruction) -> bool:
    """Return whether a product's epilogue only stores its sums."""
    return len(i.operands) == 3 and is_stored(i.regions[2])


Address = tuple[Value, Sequence[Value]]
"""A reference and an index."""


class Narrow:
    """Expands a batch of products, given as a count and the value that holds the product's index in the regions."""

    def __init__(self, b: Builder, i: Instruction, target: Target, batch: tuple[Value, Value]) -> None:
        self.b, (self.count, self.product) = b, batch
        self.rows, self.columns, self.depth = i.operands
        left, self.right, _ = self.regions = i.regions
        self.is_in_place = is_loaded_by_columns(self.right)
        self.dtype = left.results[0].type.dtype
        self.shape: Blocking = blocking_for(target, self.dtype)
        self.has_fma = target.has_fma
        self.rows_outermost, self.k_outermost = is_outside_batch(left, 0, self.product), is_outside_batch(left, 1, self.product)
        self.k_block = self.k_block_for(self.k_outermost)
        group_in_l2 = target.cache // 2 // (self.shape.k_block * 3 * self.shape.lanes * self.dtype.bytes)
        self.max_group = max(1, min(MAX_GROUP, group_in_l2)) if self.rows_outermost or self.k_outermost else 1

    def expand(self) -> Value:
        """Expand the products if they are narrow; return how many are left."""
        b, lanes, zero = self.b, self.shape.lanes, constant(self.b, 0)
        forms = [vectors for vectors in (3, 2) if vectors * lanes % TRANSPOSE_GROUP == 0]
        tilings = [
            (fits := self.fits(vectors), self.make_tiles(vectors, self.shape.rows_in_registers(vectors), fits))
            for vectors in forms
        ]
        fits = reduce(b.bitor, [fits for fits, _ in tilings], b.const(False, BOOL))
        self.divide(b.select(fits, self.count, zero), tilings)
        remaining: Value = b.select(fits, zero, self.count)
        return remaining

    def fits(self, vectors: int) -> Value:
        """Return whether tiles of ``vectors`` vectors serve: three for results that fill them, two for others, of one panel or a
        few."""
        b, lanes = self.b, self.shape.lanes
        fills = b.bitand(b.gt(self.columns, constant(b, 2 * lanes)), b.le(self.columns, constant(b, 3 * lanes)))
        if vectors == 3:
            return fills
        allows_panels = self.is_in_place
        is_low = b.le(self.columns, constant(b, (MAX_COLUMN_PANELS if allows_panels else 1) * vectors * lanes))
        return b.bitand(is_low, b.bitnot(fills)) if allows_panels and 3 * lanes % TRANSPOSE_GROUP == 0 else is_low

    def divide(self, count: Value, tilings: list[tuple[Value, Tiles]]) -> None:
        """Divide the row panels of ``count`` products among threads."""
        b, one = self.b, constant(self.b, 1)
        work = b.mul(b.mul(b.mul(self.rows, self.columns), self.depth), self.count)
        is_long = b.ge(work, constant(b, self.shape.parallel_threshold))
        panels, threads = constant(b, 0), b.emit(OPS["threads"], (), {})[0]
        for fits, tiles in tilings:
            panels = b.select(fits, ceil_div(b, self.rows, tiles.row_count), panels)
        groups_wanted = ceil_div_by(b, b.mul(threads, constant(b, GROUPS)), b.maximum(floor_div(b, panels, MIN_ROW_PANELS), one))
        group_size = b.minimum(b.maximum(b.idiv(count, groups_wanted), one), constant(b, self.max_group))
        groups = ceil_div_by(b, count, group_size)
        wanted = b.select(is_long, ceil_div_by(b, b.mul(threads, constant(b, SPLIT)), b.maximum(groups, one)), one)
        block_panels = b.maximum(ceil_div_by(b, panels, wanted), constant(b, MIN_ROW_PANELS))
        row_blocks = ceil_div_by(b, panels, block_panels)
        total = b.mul(groups, row_blocks)
        most = b.mul(threads, constant(b, MOST_CHUNKS))
        size = b.maximum(b.select(is_long, ceil_div_by(b, total, most), total), one)
        chunks = ceil_div_by(b, total, size)
        chunks = b.select(b.gt(chunks, one), b.maximum(chunks, constant(b, FEW)), chunks)
        packed_shape = (self.max_group, self.shape.k_block * max(tiles.column_count for _, tiles in tilings))

        def chunk(b: Builder, c: Value) -> None:
            packed = None if self.is_in_place else b.local(group_size, dtype=self.dtype, shape=packed_shape)
            first = b.mul(c, size)

            def item(b: Builder, k: Value) -> None:
                at = b.add(first, k)
                group = b.idiv(at, row_blocks)
                z, r = b.mul(group, group_size), b.mul(b.sub(at, b.mul(group, row_blocks)), block_panels)
                products, rows = b.minimum(group_size, b.sub(count, z)), b.minimum(block_panels, b.sub(panels, r))
                for fits, tiles in tilings:
                    when(b, fits, partial(tiles.block, packed=packed, products=(z, products), panels=(r, rows)))

            serial(b, b.minimum(size, b.sub(total, first)), item)

        loop(b, chunks, chunk, map="core")

    def k_block_for(self, k_outermost: bool) -> int:
        """Return the length of a K block."""
        return SHORT_K_BLOCK if k_outermost else self.shape.k_block

    def make_tiles(self, vectors: int, rows: int, fits: Value) -> Tiles:
        """Return the tiles for the products that fit."""
        return Tiles(self, vectors, rows)


class Tiles:
    """The loops over tiles of ``vectors`` by ``rows``."""

    def __init__(self, of: Narrow, vectors: int, rows: int) -> None:
        self.batch, self.shape, self.vectors, self.row_count = of, of.shape, vectors, rows
        self.column_count = vectors * of.shape.lanes
        self.is_in_place = of.is_in_place

    def block(self, b: Builder, packed: Value | None, products: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        """Emit some row panels of some products."""
        batch, length = self.batch, constant(b, self.batch.k_block)
        k_blocks = b.maximum(ceil_div_by(b, batch.depth, length), constant(b, 1))

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, length)
            k_extent = b.minimum(length, b.sub(batch.depth, p0))
            is_first = b.eq(q, constant(b, 0))

            def pack(b: Builder, z: Value) -> None:
                assert packed is not None
                right = Panels(self.regions(b, b.add(products[0], z))[1], 0, batch.columns, self.column_count, batch.shape.lanes)
                right.pack(b, b.subview(packed, z), (p0, k_extent), (constant(b, 0), batch.columns))

            def tile(b: Builder, z: Value, r: Value) -> None:
                i = b.mul(b.add(panels[0], r), constant(b, self.row_count))
                at = b.add(products[0], z)
                if packed is not None:
                    self.tile(b, b.subview(packed, z), at, (i, constant(b, 0)), (p0, k_extent), is_first)
                    return
                across, panel_columns = ceil_div(b, batch.columns, self.column_count), constant(b, self.column_count)
                serial(b, across, lambda b, j: self.tile(b, None, at, (i, b.mul(j, panel_columns)), (p0, k_extent), is_first))

            if packed is not None:
                serial(b, products[1], pack)
            if batch.rows_outermost:
                serial(b, panels[1], lambda b, r: serial(b, products[1], lambda b, z: tile(b, z, r)))
            else:
                serial(b, products[1], lambda b, z: serial(b, panels[1], lambda b, r: tile(b, z, r)))

        serial(b, k_blocks, run)

    def tile(
        self,
        b: Builder,
        panel: Value | None,
        z: Value,
        position: tuple[Value, Value],
        k_span: tuple[Value, Value],
        is_first: Value,
    ) -> None:
        """Emit one tile over a K block. Rows beyond the end repeat the last one."""
        batch, (i, j) = self.batch, position
        from_left, from_right, epilogue = self.regions(b, z)
        last = b.sub(batch.rows, constant(b, 1))
        rows = [b.minimum(b.add(i, constant(b, r)), last) for r in range(self.row_count)]
        load_left = self.left_loader(b, from_left, rows)
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        lanes, columns, inside = self.across(inner, lane, j)
        zero = inner.const(0.0, batch.dtype)
        positions = [(r, x) for r in range(self.row_count) for x in range(self.vectors)]
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(batch.dtype), "sum") for _ in positions]
        at, start, after = step.add(k_span[0], p), step.mul(p, constant(step, self.column_count)), []
        if panel is None:
            right = [self.load_in_place(step, from_right, at, *position) for position in zip(columns, inside, strict=True)]
        else:
            right = [step.load(panel, step.add(start, v)) for v in lanes]
        for r in range(self.row_count):
            left = load_left(step, r, at)
            after += [self.multiply_add(step, left, right[x], before[r * self.vectors + x]) for x in range(self.vectors)]
        totals = inner.emit(
            OPS["for"], (k_span[1], *[zero] * len(positions)), {"map": "serial"}, [step.block([p, *before], after)]
        )
        sums = b.local(dtype=batch.dtype, shape=(self.row_count, self.column_count))
        is_later = b.bitnot(is_first)

        def put(b: Builder) -> None:
            for r, row in enumerate(rows):
                begin = self.result_address(b, epilogue, row, j)
                for x in range(self.vectors):
                    ref, index = begin(b, lanes[x], columns[x])
                    b.store_if(totals[r * self.vectors + x], ref, inside[x], *index)

        def keep(b: Builder) -> None:
            for (r, x), total in zip(positions, totals, strict=True):
                b.store(total, sums, constant(b, r), lanes[x])

        when(inner, is_first, put)
        when(inner, is_later, keep)
        self.lanes(b, lane, inner)
        height = b.minimum(b.select(is_first, constant(b, 0), constant(b, self.row_count)), b.sub(batch.rows, i))
        serial(b, height, lambda b, r: self.add_to_result(b, epilogue, (b.add(i, r), j), b.subview(sums, r)))

    def across(self, b: Builder, lane: Value, first: Value) -> tuple[list[Value], ...]:
        """Return, for the vectors of a row of a tile, each lane's offset from the first column, its column, and the mask of
        existing columns."""
        lanes = [lane, *(b.add(lane, constant(b, x * self.shape.lanes)) for x in range(1, self.vectors))]
        columns = [b.add(first, v) for v in lanes]
        return lanes, columns, [b.lt(column, self.batch.columns) for column in columns]

    def lanes(self, b: Builder, lane: Value, body: Builder) -> None:
        """Emit a vector loop over the lanes."""
        params = {"map": "vector", "multiple": self.shape.lanes}
        b.emit(OPS["for"], (constant(b, self.shape.lanes),), params, [body.block([lane], [])])

    def add_to_result(self, b: Builder, epilogue: Block, position: tuple[Value, Value], sums: Value) -> None:
        """Add the sums of a row of a tile to the result."""
        address_of = self.result_address(b, epilogue, *position)
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        lanes, columns, inside = self.across(inner, lane, position[1])
        addresses = [address_of(inner, v, column) for v, column in zip(lanes, columns, strict=True)]
        masked_addresses = [(ref, mask, *index) for (ref, index), mask in zip(addresses, inside, strict=True)]
        after = [
            inner.add(inner.load_if(*address), inner.load(sums, v)) for address, v in zip(masked_addresses, lanes, strict=True)
        ]
        for total, address in zip(after, masked_addresses, strict=True):
            inner.store_if(total, *address)
        self.lanes(b, lane, inner)

    def regions(self, b: Builder, z: Value) -> tuple[Block, ...]:
        """Return the regions of one product."""
        return tuple(with_capture(region, self.batch.product, z) for region in self.batch.regions)

    def load_in_place(self, b: Builder, region: Block, p: Value, column: Value, inside: Value) -> Value:
        """Load an element of the right operand in place, under a mask."""
        (load,) = copy_block(region, (p, column)).instructions
        ref, index = ref_and_index(load)
        element: Value = b.load_if(ref, inside, *index)
        return element

    def left_loader(self, b: Builder, region: Block, rows: list[Value]) -> Callable[[Builder, int, Value], Value]:
        """Return a loader of an element of one of the rows."""
        return lambda step, r, at: element(step, region, rows[r], at)

    def result_address(self, b: Builder, epilogue: Block, row: Value, first: Value) -> Callable[[Builder, Value, Value], Address]:
        """Return a function that returns the address of an element of a row: for a lane counted from ``first`` on, and its
        column."""

        def address_of(b: Builder, lane: Value, column: Value) -> Address:
            store = copy_block(epilogue, (row, column, b.const(0.0, self.batch.dtype))).instructions[0]
            return ref_and_index(store)

        return address_of

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        """Emit ``x * y + z``, fused where the machine has FMA."""
        total: Value = b.fma(x, y, z) if self.batch.has_fma else b.add(b.mul(x, y), z)
        return total


def is_loaded_by_columns(region: Block) -> bool:
    """Return whether the right operand is only loaded, and contiguous along its columns."""
    return not is_contiguous_along(region, 0, 1) and [type(i.op) for i in region.instructions] == [Load]


def is_outside_batch(region: Block, position: int, product: Value) -> bool:
    """Return whether the memory order runs through all products of a batch before it advances along a parameter of a region."""
    for i in region.instructions:
        if isinstance(i.op, Load | Store):
            _, index = ref_and_index(i)
            parameter = region.parameters[position]
            if product in index and parameter in index:
                return list(index).index(parameter) < list(index).index(product)
    return False


def with_capture(region: Block, old: Value, new: Value) -> Block:
    """Return a region with a captured value replaced."""
    parameters = tuple(Value(v.type, v.name) for v in region.parameters)
    inlined = copy_block(Block((old, *region.parameters), region.instructions, region.results), (new, *parameters))
    return Block(parameters, tuple(inlined.instructions), tuple(inlined.results))
