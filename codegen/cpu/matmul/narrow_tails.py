"""Narrow products whose last columns do not fill a vector: several rows share one.

Of 20 columns of float64 the last four of two rows form a vector. A lane holds the row ``lane % rows`` and the column ``lane //
rows``. The last columns of all rows of a product form one tile of such vectors, after the other tiles. Its sums are kept in
scratch memory in register layout, and are stored after the last K block.
"""

from __future__ import annotations

from collections.abc import Callable

from pullback.codegen.cpu.loops.nest_builder import Stores, constant, inline_masked, when
from pullback.codegen.cpu.matmul.narrow_left_operand import LeftOperand, Loader
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block
from pullback.ir.core.types import I64, DType, scalar
from pullback.ir.core.value import Value

MAX_ROWS = {1: 20, 2: 12, 3: 8}
"""Rows of tiles, by their vectors per row."""
LEAST, MOST = 8, 20
"""Fewest sums that hide the latency of multiply-adds, and most sums that fit in registers."""
WORTH = 0.9
"""Largest fraction of the other tiles' multiply-adds at which the extra stores pay."""


@dataclass(frozen=True)
class Tail:
    """Each row has ``vectors`` full vectors of ``lanes``, in tiles of ``high`` rows; ``rows`` rows share one more vector, in
    ``groups`` groups."""

    vectors: int
    tile_rows: int
    rows: int
    groups: int
    lanes: int

    def local(self, b: Builder, products: Value, dtype: DType, most: int) -> Value:
        """Allocate the kept sums of some products."""
        memory: Value = b.local(products, dtype=dtype, shape=(most, self.groups * self.lanes))
        return memory


def tail_for(rows: int, columns: int, lanes: int, cost_without: int) -> Tail | None:
    """Return the tail of products of a shape for which other tiles cost ``cost_without`` multiply-adds per K iteration; None
    if there is none or it does not pay."""
    vectors, remainder = divmod(columns, lanes)
    if vectors not in MAX_ROWS or not remainder or remainder & (remainder - 1) or not rows:
        return None
    rows_per_vector = lanes // remainder
    tiles = -(-rows // MAX_ROWS[vectors])
    tail = Tail(vectors, -(-rows // tiles), rows_per_vector, -(-rows // rows_per_vector), lanes)
    work = tiles * tail.tile_rows * vectors + max(tail.groups, LEAST)
    return tail if tail.groups <= MOST and work <= WORTH * cost_without else None


@dataclass(frozen=True)
class Tails:
    """The tail tile of a product. ``waiting``: its kept sums; ``left``: its packed rows, from the block's first on; ``z``: the
    product's index in its group, ``which``: in the batch; ``right``: returns the loader of a column of the right operand."""

    tail: Tail
    kept_sums: Value
    left: LeftOperand
    z: Value
    product: Value
    right: Callable[[Builder, Value], Loader]
    multiply_add: Callable[[Builder, Value, Value, Value], Value]

    def expand(self, b: Builder, k_span: tuple[Value, Value], epilogue: Block, rows: Value, ends: tuple[Value, Value]) -> None:
        """Emit one K block; ``ends`` says whether it is the first and the last one."""
        tail, dtype = self.tail, self.left.dtype
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        row = inner.bitand(lane, constant(inner, tail.rows - 1))
        shift = constant(inner, tail.rows.bit_length() - 1)
        column = inner.add(constant(inner, tail.vectors * tail.lanes), inner.raw_shr(lane, shift))
        load_right, zero = self.right(inner, column), inner.const(0.0, dtype)
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(dtype), "sum") for _ in range(tail.groups)]
        right_element = load_right(step, step.add(k_span[0], p))
        left = [self.left.element_at_row(step, self.z, p, g * tail.rows, row) for g in range(tail.groups)]
        after = [self.multiply_add(step, x, right_element, total) for x, total in zip(left, before, strict=True)]
        body = step.block([p, *before], after)
        totals = inner.emit(OPS["for"], (k_span[1], *[zero] * tail.groups), {"map": "serial"}, [body])
        self.put(inner, lane, (row, column), epilogue, totals, rows, ends)
        params = {"map": "vector", "multiple": tail.lanes}
        b.emit(OPS["for"], (constant(b, tail.lanes),), params, [inner.block([lane], [])])

    def put(
        self, b: Builder, lane: Value, position: tuple[Value, Value], epilogue: Block, totals: tuple[Value, ...], rows: Value,
        ends: tuple[Value, Value]
    ) -> None:  # fmt: skip
        """Add the sums to the kept ones, and store them after the last K block."""
        tail, (is_first, is_last), zero = self.tail, ends, b.const(0.0, self.left.dtype)
        stores: Stores = []
        end = Builder(b.loc)
        for g, total in enumerate(totals):
            at = b.add(constant(b, g * tail.lanes), lane)
            total_sum = b.add(total, b.select(is_first, zero, b.load(self.kept_sums, at)))
            b.store(total_sum, self.kept_sums, at)
            row = end.add(constant(end, g * tail.rows), position[0])
            inline_masked(end, epilogue, (self.product, row, position[1], total_sum), 2, end.lt(row, rows), stores)

        def store(b: Builder) -> None:
            b.instructions.extend(end.instructions)
            for operands in stores:
                b.store_if(*operands)

        when(b, is_last, store)
