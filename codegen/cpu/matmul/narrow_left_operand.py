"""Compute the left operand of narrow products into scratch memory.

Where K is contiguous, the rows of a tile are computed just before the tile, along K. Otherwise the rows of a block are
computed for all products of a group: for each K index one product after the other, in memory order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import (
    ceil_div,
    constant,
    inline_masked,
    is_contiguous_along,
    loop,
    prefetch,
    serial,
    vector,
)
from pullback.codegen.cpu.matmul.blocking import LINE, TRANSPOSE_GROUP
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copy_block
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load

PREFETCH_DISTANCE = 2
"""K iterations by which memory is prefetched."""
VECTORS, SOME = 3, 16
"""Vectors of rows computed at a time, and K iterations of one product before the next one."""
Span = tuple[Value, Value]
"""A first index and a count."""


class LeftOperand:
    """The left operand of narrow products. ``region`` takes the product's index, a row and a K index; tiles have ``high``
    rows, blocks at most ``most`` row panels, K blocks ``length`` iterations, groups at most ``together`` products, vectors
    ``lanes``. ``along``: epilogue of the sum of a row over K. ``rows``: the row count if it is a constant and a block has
    all rows."""

    sums: Value | None

    def __init__(
        self, region: Block, high: int, most: int, length: int, together: int, lanes: int, along: Block | None = None,
        rows: int | None = None
    ) -> None:  # fmt: skip
        self.region, self.row_count, self.max_panels, self.length = region, high, most, length
        self.max_group, self.lanes = together, lanes
        of_both = _varying_along_both(region)
        self.row_sums, self.sums = along, None
        self.rows = rows if rows is not None and 0 < rows <= most * high else None
        vectors = VECTORS if self.rows is None else -(-(-(-self.rows // high) * high) // lanes)
        self.chunk = vectors * lanes
        self.is_by_tile = along is None and (is_contiguous_along(of_both, 2, 1) or not is_contiguous_along(of_both, 1, 2))
        self.dtype = region.results[0].type.dtype
        self.memory: Value | None = None
        self.distance: Value | None = None
        self.first: Value | None = None

    def allocate(self, b: Builder, products: Value) -> None:
        """Allocate the scratch memory of a chunk."""
        if self.is_by_tile:
            # the padding makes rows begin in different cache sets
            width = self.length + LINE // self.dtype.bytes
            self.memory = b.local(constant(b, self.row_count), dtype=self.dtype, shape=(self.row_count, width))
        else:
            width = self.max_panels * self.row_count + self.chunk
            self.memory = b.local(products, dtype=self.dtype, shape=(self.max_group, self.length * width))
            if self.row_sums is not None:
                self.sums = b.local(products, dtype=self.dtype, shape=(self.max_group, width))

    def pack_block(self, b: Builder, products: Span, k_span: Span, rows: Span) -> None:
        """Compute the rows of a block of some products, unless tiles compute their own. Rows beyond the end are computed from
        zeros."""
        if self.is_by_tile:
            return
        panels = b.mul(ceil_div(b, rows[1], self.row_count), constant(b, self.row_count))
        distance = b.mul(ceil_div(b, panels, self.chunk), constant(b, self.chunk))
        self.distance, self.first = distance, rows[0]
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")

        def chunks(b: Builder, c: Value) -> None:
            first = b.mul(c, constant(b, self.chunk))
            starts = [first, *(b.add(first, constant(b, x)) for x in range(self.lanes, self.chunk, self.lanes))]
            inside = self.inside(b, starts, lane, rows[1])

            def some(b: Builder, g: Value) -> None:
                start = b.mul(g, constant(b, SOME))
                k_run = k_span[0], start, b.minimum(constant(b, SOME), b.sub(k_span[1], start))
                positions = [(b.add(begin, lane), mask) for begin, mask in zip(starts, inside, strict=True)]
                serial(b, products[1], lambda b, z: self.pack_k_run(b, (products[0], z), k_run, rows[0], positions))

            serial(b, ceil_div(b, k_span[1], SOME), some)

        if self.rows is None:
            serial(inner, ceil_div(inner, distance, self.chunk), chunks)
        else:
            chunks(inner, constant(inner, 0))
        params = {"map": "vector", "multiple": self.lanes}
        b.emit(OPS["for"], (constant(b, self.lanes),), params, [inner.block([lane], [])])

    def inside(self, b: Builder, starts: Sequence[Value], lane: Value, count: Value) -> list[Value | None]:
        """Return the masks of existing rows of some vectors; None for vectors that are known to be full."""
        if self.rows is None:
            return [b.lt(b.add(start, lane), count) for start in starts]
        full = self.rows // self.lanes
        return [None] * full + [b.lt(b.add(start, lane), constant(b, self.rows)) for start in starts[full:]]

    def pack_k_run(
        self, b: Builder, product: Span, k_run: tuple[Value, Value, Value], row: Value,
        positions: Sequence[tuple[Value, Value | None]]
    ) -> None:  # fmt: skip
        """Compute some K iterations of some vectors of rows of a product, and add them to the row sums if there are any."""
        (first, z), (p0, start, count) = product, k_run
        assert self.memory is not None and self.distance is not None
        product_index, memory = b.add(first, z), b.subview(self.memory, z)
        zeros = [] if self.sums is None else [b.const(0.0, self.dtype)] * len(positions)
        step, p, values = Builder(b.loc), Value(scalar(I64), "p"), list[Value]()
        own = step.add(start, p)
        at, to = step.add(p0, own), step.mul(own, self.distance)
        later = step.add(at, constant(step, PREFETCH_DISTANCE))
        for position, mask in positions:
            row_index = step.add(row, position)
            prefetch(step, self.region, product_index, row_index, later)
            values += inline_masked(step, self.region, (product_index, row_index, at), 1, mask)
        for value, (position, _) in zip(values, positions, strict=True):
            step.store(value, memory, step.add(to, position))
        before = [Value(v.type, "sum") for v in zeros]
        after = [step.add(total, value) for total, value in zip(before, values, strict=False)]
        totals = b.emit(OPS["for"], (count, *zeros), {"map": "serial"}, [step.block([p, *before], after)])
        for total, (position, _) in zip(totals, positions, strict=False):
            b.store(b.add(b.load(self.sums, z, position), total), self.sums, z, position)

    def begin(self, b: Builder, products: Span) -> None:
        """Clear the row sums before the first K block."""
        if self.sums is None:
            return
        zero, ref = b.const(0.0, self.dtype), self.sums
        width = constant(b, self.max_panels * self.row_count + self.chunk)
        serial(b, products[1], lambda b, z: vector(b, width, 1, lambda b, r: b.store(zero, ref, z, r)))

    def end(self, b: Builder, products: Span, rows: Span) -> None:
        """Apply the epilogue of the row sums after the last K block."""
        if self.sums is None:
            return
        ref, epilogue = self.sums, self.row_sums
        assert epilogue is not None

        def row(b: Builder, z: Value, r: Value) -> None:
            total = b.load(ref, z, r)
            b.instructions.extend(copy_block(epilogue, (b.add(products[0], z), b.add(rows[0], r), total)).instructions)

        serial(b, products[1], lambda b, z: vector(b, rows[1], 1, lambda b, r: row(b, z, r)))

    def pack_tile(self, b: Builder, product: Value, k_span: Span, rows: Sequence[Value]) -> None:
        """Compute the rows of a tile, if tiles compute their own."""
        if not self.is_by_tile:
            return
        for first in range(0, self.row_count, TRANSPOSE_GROUP):
            loaders = [loader_of(b, self.region, (product, row, None), 2, None) for row in rows[first : first + TRANSPOSE_GROUP]]

            def some(b: Builder, p: Value, first: int = first, loaders: Sequence[Loader] = loaders) -> None:
                at = b.add(k_span[0], p)
                values = [load(b, at) for load in loaders]
                for k, value in enumerate(values, first):
                    b.store(value, self.memory, constant(b, k), p)

            vector(b, k_span[1], 1, some, short=True)

    def elements(self, b: Builder, z: Value, p: Value, first: Value) -> list[Value]:
        """Load one K iteration of the rows of a tile."""
        memory = self.memory
        assert memory is not None
        if self.is_by_tile:
            return [b.load(memory, constant(b, k), p) for k in range(self.row_count)]
        assert self.distance is not None
        start = b.add(b.mul(p, self.distance), b.sub(first, self.first))
        memory_of_product = b.subview(memory, z)
        return [b.load(memory_of_product, b.add(start, constant(b, k))) for k in range(self.row_count)]

    def element_at_row(self, b: Builder, z: Value, p: Value, first: int, row: Value) -> Value:
        """Load one K iteration of the row of a block that is ``row`` behind row ``first``."""
        assert self.memory is not None and self.distance is not None
        start = b.add(b.mul(p, self.distance), constant(b, first))
        element: Value = b.load(b.subview(self.memory, z), b.add(start, row))
        return element

    def prefetch_next(self, b: Builder, product: Value, at: Value, row: Value) -> None:
        """Emit prefetches of what is packed of a tile's rows in the next K block."""
        for k in range(0, 0 if self.is_by_tile else self.row_count, LINE // self.dtype.bytes):
            prefetch(b, self.region, product, b.add(row, constant(b, k)) if k else row, b.add(at, constant(b, self.length)))


Loader = Callable[[Builder, Value], Value]
"""Loads the element at an index that was left open."""


def add_row_sums(b: Builder, i: Instruction, batch: Span) -> None:
    """Emit the sums of the left operands of a batch over K."""
    (count, product), (rows, _, depth) = batch, i.operands
    left, ends = (Block((product, *r.parameters), r.instructions, r.results) for r in (i.regions[0], i.regions[-1]))

    def row(b: Builder, z: Value, r: Value) -> None:
        step, p, before = Builder(b.loc), Value(scalar(I64), "p"), Value(left.results[0].type, "sum")
        inlined = copy_block(left, (z, r, p))
        step.instructions.extend(inlined.instructions)
        after = step.add(before, inlined.results[0])
        zero = b.const(0.0, left.results[0].type.dtype)
        totals = b.emit(OPS["for"], (depth, zero), {"map": "serial"}, [step.block([p, before], [after])])
        b.instructions.extend(copy_block(ends, (z, r, *totals)).instructions)

    loop(b, count, lambda b, z: vector(b, rows, 1, lambda b, r: row(b, z, r)), map="core")


def loader_of(b: Builder, region: Block, index: Sequence[Value | None], of: int, inside: Value | None) -> Loader:
    """Inline the part of a region that does not depend on the one index that is None; return a loader that inlines the rest.
    Position ``varying`` of the index differs from lane to lane; ``inside``: its mask, if lanes may be outside."""
    open_parameter = region.parameters[list(index).index(None)]
    depends = {open_parameter}
    for i in region.instructions:
        if not depends.isdisjoint(i.operands):
            depends.update(i.results)
    early = tuple(i for i in region.instructions if depends.isdisjoint(i.results))
    late = tuple(i for i in region.instructions if not depends.isdisjoint(i.results))
    early_results = tuple(v for i in early for v in i.results)
    bound = {v: x for v, x in zip(region.parameters, index, strict=True) if x is not None}
    varying_parameter = region.parameters[of]
    early_block = Block(tuple(bound), early, early_results)
    if varying_parameter in bound:
        early_values = inline_masked(b, early_block, tuple(bound.values()), list(bound).index(varying_parameter), inside)
    else:
        early_values = inline_masked(b, early_block, tuple(bound.values()), 0, None)
    env = bound | dict(zip(early_results, early_values, strict=True))
    late_block = Block((*env, open_parameter), late, region.results)

    def piece(b: Builder, position: Value) -> Value:
        parameters = (*env, open_parameter)
        return inline_masked(b, late_block, (*env.values(), position), parameters.index(varying_parameter), inside)[0]

    return piece


def _varying_along_both(region: Block) -> Block:
    """Return a region without its loads that do not vary along both rows and K, if others do."""
    varies = [_dependents(region, v) for v in region.parameters[1:]]

    def is_of_both(i: Instruction) -> bool:
        return all(not varying.isdisjoint(ref_and_index(i)[1]) for varying in varies)

    loads = [i for i in region.instructions if isinstance(i.op, Load)]
    if not any(map(is_of_both, loads)):
        return region
    kept = tuple(i for i in region.instructions if not isinstance(i.op, Load) or is_of_both(i))
    return Block(region.parameters, kept, region.results)


def _dependents(region: Block, value: Value) -> set[Value]:
    """Return the values of a region that depend on a value."""
    varying = {value}
    for i in region.instructions:
        if not varying.isdisjoint(i.operands):
            varying.update(i.results)
    return varying
