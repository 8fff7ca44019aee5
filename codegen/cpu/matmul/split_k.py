"""Split-K: plain products of few rows and columns and a long K, such as ``x.T @ y`` of tables, divide K among threads.

K is divided into parts whose number depends on K alone. Each part has its own sums, which are added at the end, in order.
Operands are read in place by the functions of narrow batches.

Cost: the left operand is read once for each panel of columns, the right one once for each panel of rows, but from cache.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import FEW, RowsAt, ceil_div, ceil_div_by, constant, loop, serial, when
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.narrow import MAX_COLUMN_PANELS
from pullback.codegen.cpu.matmul.shape_classes import DEEP, LOW
from pullback.codegen.cpu.matmul.shared_blocks import PlainNarrow, PlainTiles, access
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED

PART, MOST_PARTS = 1024, 64
"""Least K extent of a part, and largest number of parts; parts are longer where there would be more."""
VECTORS = 2
"""Vectors in a row of a tile."""


def is_tall(b: Builder, shape: tuple[Value, Value, Value], lanes: int) -> Value:
    """Return whether a product of extents (rows, K, columns) uses split-K, for vectors of ``lanes``."""
    rows, depth, columns = shape
    few = b.bitand(b.le(rows, constant(b, LOW)), b.le(columns, constant(b, MAX_COLUMN_PANELS * VECTORS * lanes)))
    return b.bitand(few, b.ge(depth, constant(b, DEEP)))


class SplitK:
    """A plain product that may use split-K. A strided operand has contiguous rows if it does."""

    def __init__(self, b: Builder, i: Instruction, target: Target, functions: Functions) -> None:
        memory = access(i)
        assert memory is not None
        self.b, self.access, self.functions = b, memory, functions
        self.rows, self.columns, self.depth = i.operands
        batch = constant(b, 1), Value(scalar(I64), "of")
        narrow = PlainNarrow(b, i, target, batch, functions)
        self.narrow, self.shape, self.dtype = narrow, narrow.shape, narrow.dtype

        some = b.gt(self.rows, constant(b, 0))
        self.applies: Value = b.bitand(some, is_tall(b, (self.rows, self.depth, self.columns), self.shape.lanes))
        """Whether split-K applies; false without rows, as for a product left to the library."""

    def expand(self) -> None:
        """Emit the product under the condition that it uses split-K."""
        with self.functions.under(self.b, self.applies):
            self.tiles = PlainTiles(self.narrow, VECTORS, self.shape.rows_in_registers(VECTORS))
            when(self.b, self.applies, self.emit_parts)

    def emit_parts(self, b: Builder) -> None:
        """Emit all parts, and the addition of their sums."""
        unit = constant(b, self.shape.k_block)
        length = b.maximum(
            constant(b, PART), b.mul(ceil_div_by(b, ceil_div_by(b, self.depth, constant(b, MOST_PARTS)), unit), unit)
        )
        count = ceil_div_by(b, self.depth, length)
        sums = b.local(count, dtype=self.dtype, shape=(MOST_PARTS, LOW, MAX_COLUMN_PANELS * self.tiles.column_count))
        memory = [RowsAt(start, stride) for start, stride in zip(self.access.starts(b), self.access.distances(b), strict=True)]

        def chunk(b: Builder, q: Value) -> None:
            first = b.mul(q, length)
            self.emit_part(b, memory[:2], (first, b.minimum(length, b.sub(self.depth, first))), b.subview(sums, q))

        chunks = b.select(b.gt(count, constant(b, 1)), b.maximum(count, constant(b, FEW)), count)
        loop(b, chunks, lambda b, q: when(b, b.lt(q, count), lambda b: chunk(b, q)), map="core")
        name = f"add_parts_{self.dtype.name}_{self.tiles.column_count}"
        self.functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (_add_parts(self.dtype, sums.type),))
        out = self.access.starts(b)[2], self.access.out.stride(b)
        b.emit(OPS["call"], (sums, count, *out, self.rows, self.columns), {"function": name})

    def emit_part(self, b: Builder, memory: Sequence[RowsAt], k_span: tuple[Value, Value], sums: Value) -> None:
        """Emit one part: all columns at once where they are contiguous, else one packed panel of columns after the other."""
        zero, one, tiles, (first, count) = constant(b, 0), constant(b, 1), self.tiles, k_span
        left, right = memory
        left_transposed, right_transposed = tiles.batch.kind.transposed
        panel_shape = 1, self.shape.k_block * tiles.column_count
        packed = b.local(one, dtype=self.dtype, shape=panel_shape) if right_transposed else None
        panel_columns = constant(b, tiles.column_count) if right_transposed else self.columns
        distances = [left.distance, right.distance, constant(b, MAX_COLUMN_PANELS * tiles.column_count)]

        def panel(b: Builder, k: Value) -> None:
            j = b.mul(k, panel_columns)
            begins = [
                left.begin(b, *((first, zero) if left_transposed else (zero, first))),
                right.begin(b, *((j, first) if right_transposed else (first, j))),
                b.emit(OPS["ref_at"], (sums, zero, j), {})[0],
            ]
            extents = self.rows, b.minimum(panel_columns, b.sub(self.columns, j)), count
            panels = zero, ceil_div(b, self.rows, tiles.row_count)
            tiles.call(b, packed, (begins, distances, [zero] * 3), extents, (zero, one), panels)

        serial(b, ceil_div(b, self.columns, tiles.column_count) if right_transposed else one, panel)


@functools.cache
def _add_parts(dtype: DType, sums_type: RefType) -> Block:
    """Build the function that adds the parts and stores the result."""
    sums, to = Value(sums_type, "sums"), Value(RefType(dtype, (UNBOUNDED,)), "to")
    count, stride, rows, columns = (Value(scalar(I64), name) for name in ("count", "apart", "rows", "columns"))

    def row(b: Builder, i: Value) -> None:
        def element(b: Builder, j: Value) -> None:
            inner, q, before = Builder(b.loc), Value(scalar(I64), "q"), Value(scalar(dtype), "sum")
            after = inner.add(before, inner.load(sums, q, i, j))
            params = {"map": "serial"}
            (total,) = b.emit(OPS["for"], (count, b.const(0.0, dtype)), params, [inner.block([q, before], [after])])
            b.store(total, to, b.add(b.mul(i, stride), j))

        loop(b, columns, element)

    b = Builder()
    serial(b, rows, row)
    return b.block([sums, count, to, stride, rows, columns], [])
