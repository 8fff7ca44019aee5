"""stage_rows: copy rows of strided matrices that loops read to kernel-local buffers, unless the rows are contiguous.

Requires: a kernel for the CPU whose loops are cut in chunks. Keeps: its meaning, to the bit. If columns are contiguous
(Fortran order), the neighbours along a row are on different cache lines, and each of these lines is evicted before the next
row needs its next element. So some rows are first copied to a kernel-local buffer: some columns at a time, transposed in
registers. Matrices with neither contiguous rows nor columns are copied element by element.

Cost: every cache line is read once from memory, and an element is written and read twice in L1 and L2.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.cpu.loops.nest_builder import ceil_div, constant, loop, serial, vector, when
from pullback.codegen.cpu.loops.stage_columns import LONG, StagedReductions, WindowedReductions, staged_reductions, stages_rows
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import StageRows

ROWS = 64
"""Greatest number of rows that are staged at a time."""
LINE = 64
"""Bytes of a cache line."""
TILE_ROW_BYTES = 256
"""Bytes of a row of the tile, which stays in L1."""
UNBOUNDED = 1 << 40
"""The static extent of a buffer whose size is computed by the kernel; larger than any."""


def stage_rows(block: Block, vector_bytes: int = LINE) -> Block:
    """Return a block in which every ``stage_rows`` is emitted. ``vector_bytes``: the bytes of a row that are transposed
    together."""
    instructions: list[Instruction] = []
    for k, i in enumerate(block.instructions):
        if stages_rows(i):
            window = min(TILE_ROW_BYTES // n.operands[0].type.dtype.bytes for n in block.instructions[k:] if stages_rows(n))
            sums = staged_reductions(block.instructions[k:], block.results, vector_bytes, window)
            if sums is not None:
                _emit_windowed(Builder(i.loc, instructions), sums, window, vector_bytes)
                return Block(block.parameters, tuple(instructions), block.results)
        if isinstance(i.op, StageRows):
            _StagedRows(Builder(i.loc, instructions), i, vector_bytes).write()
        else:
            instructions.append(replace(i, regions=tuple(stage_rows(r, vector_bytes) for r in i.regions)) if i.regions else i)
    return Block(block.parameters, tuple(instructions), block.results)


def _emit_windowed(b: Builder, sums: StagedReductions, window: int, vector_bytes: int) -> None:
    """Emit loops over rows: by windows of columns if all matrices have contiguous columns, and many, else with whole rows."""
    for i in sums.others:
        b.append(i)
    rows = [_StagedRows(b, i, vector_bytes) for i in sums.stagings]
    columns = rows[0].columns
    holds = b.gt(columns, constant(b, LONG * window))
    for matrix in rows:
        has_rows, has_columns = matrix.layout_tests()
        holds = b.bitand(holds, b.bitand(has_columns, b.bitxor(has_rows, b.const(True, BOOL))))

    def stage(b: Builder, i: Instruction, left: Value, width: Value) -> Value:
        (old,) = i.results
        result = Value(old.type, old.name)
        tile = _StagedRows(b, Instruction(i.op, (*i.operands, left, width), (result,), {}, (), i.loc), vector_bytes)
        tile.write_tile(b.const(False, BOOL), None, None)
        return result

    def whole(b: Builder) -> None:
        for i in sums.stagings:
            _StagedRows(b, i, vector_bytes).write()
        for r in sums.loops:
            b.append(r.loop)

    when(b, holds, lambda b: WindowedReductions(b, sums, columns, stage, window, ROWS).write())
    when(b, b.bitxor(holds, b.const(True, BOOL)), whole)


class _StagedRows:
    """The staging of some rows of one matrix."""

    def __init__(self, b: Builder, i: Instruction, vector_bytes: int) -> None:
        self.b, self.i = b, i
        self.ref, self.first, self.count, *self.window = i.operands
        self.dtype = self.ref.type.dtype
        self.columns = b.emit(OPS["extent"], (), {"size": self.ref.type.shape[1]})[0]
        self.line, self.tile_width = LINE // self.dtype.bytes, TILE_ROW_BYTES // self.dtype.bytes
        self.group_size = vector_bytes // self.dtype.bytes
        self.row_stride = b.mul(b.bitor(ceil_div(b, self.columns, self.line), constant(b, 1)), constant(b, self.line))

    def layout_tests(self) -> tuple[Value, Value]:
        """Return two i1 values: whether the matrix has contiguous rows, and whether it has contiguous columns."""
        b, size = self.b, constant(self.b, self.dtype.bytes)
        rows, columns = (b.emit(OPS["stride"], (self.ref,), {"axis": axis})[0] for axis in (0, 1))
        zero, remainder_mask = constant(b, 0), constant(b, self.dtype.bytes - 1)
        has_rows = b.bitand(b.eq(columns, size), b.eq(b.bitand(rows, remainder_mask), zero))
        return has_rows, b.bitand(b.eq(rows, size), b.eq(b.bitand(columns, remainder_mask), zero))

    def write(self) -> None:
        """Emit the staging."""
        b, one = self.b, constant(self.b, 1)
        has_rows, has_columns = self.layout_tests()
        copied, others = (b.bitxor(x, b.const(True, BOOL)) for x in (has_rows, has_columns))
        by_columns = b.bitand(copied, has_columns)
        if self.window:
            self.write_tile(has_rows, by_columns, b.bitand(copied, others))
            return
        is_narrow = b.bitand(by_columns, b.le(self.columns, constant(b, self.tile_width)))
        wanted = b.select(b.bitor(has_rows, is_narrow), one, b.mul(self.count, self.row_stride))
        buffer = b.local(wanted, dtype=self.dtype, shape=(UNBOUNDED,))
        tile = b.local(dtype=self.dtype, shape=(ROWS, self.tile_width + self.line))
        when(b, by_columns, lambda b: self.write_transposed(b, buffer, tile, is_narrow))
        when(b, b.bitand(copied, others), lambda b: self.write_elementwise(b, buffer))
        rows = b.emit(OPS["select_rows"], (has_rows, self.ref, buffer, self.first, self.row_stride), {})[0]
        operands = b.bitxor(is_narrow, b.const(True, BOOL)), rows, tile, self.first, constant(b, self.tile_width + self.line)
        b.append(Instruction(OPS["select_rows"], operands, self.i.results, {}, (), self.i.loc))

    def write_tile(self, has_rows: Value, by_columns: Value | None, others: Value | None) -> None:
        """Stage the rows' elements in some columns, at most as many as a tile has; without conditions the columns are
        contiguous."""
        b, (left, width) = self.b, self.window
        tile, lead = (
            b.local(dtype=self.dtype, shape=(ROWS, self.tile_width + self.line)),
            constant(b, self.tile_width + self.line),
        )
        last, size = b.sub(self.columns, constant(b, 1)), constant(b, self.tile_width)
        prefetch_offsets = size, constant(b, 0), last

        def transposed(b: Builder) -> None:
            ref = b.emit(OPS["row_view"], (self.ref,), {"transposed": True})[0]
            groups = ceil_div(b, width, self.group_size)
            serial(
                b, groups, lambda b, g: self.group(b, ref, tile, left, b.mul(g, constant(b, self.group_size)), prefetch_offsets)
            )

        def row(b: Builder, r: Value) -> None:
            at = b.add(self.first, r)
            loop(b, width, lambda b, j: b.store(b.load(self.ref, at, b.add(left, j)), tile, r, j), map="vector", short=True)

        if by_columns is None or others is None:
            transposed(b)
        else:
            when(b, by_columns, transposed)
            when(b, others, lambda b: serial(b, self.count, row))
        operands = has_rows, self.ref, tile, self.first, lead, left
        b.append(Instruction(OPS["select_rows"], operands, self.i.results, {}, (), self.i.loc))

    def write_elementwise(self, b: Builder, buffer: Value) -> None:
        """Copy the rows element by element."""

        def row(b: Builder, r: Value) -> None:
            start, at = b.mul(r, self.row_stride), b.add(self.first, r)
            loop(
                b, self.columns, lambda b, j: b.store(b.load(self.ref, at, j), buffer, b.add(start, j)), map="vector", short=True
            )

        serial(b, self.count, row)

    def write_transposed(self, b: Builder, buffer: Value, tile: Value, is_narrow: Value) -> None:
        """Copy the rows through a transposed tile; if the matrix is narrow, only to the tile."""
        by_columns = b.emit(OPS["row_view"], (self.ref,), {"transposed": True})[0]
        size = constant(b, self.tile_width)
        last = b.sub(self.columns, constant(b, 1))
        prefetch_offsets = b.select(is_narrow, constant(b, 0), size), b.select(is_narrow, constant(b, ROWS), constant(b, 0)), last

        def some(b: Builder, k: Value) -> None:
            left = b.mul(k, size)
            width = b.minimum(b.sub(self.columns, left), size)
            groups = ceil_div(b, width, self.group_size)
            serial(
                b,
                groups,
                lambda b, g: self.group(b, by_columns, tile, left, b.mul(g, constant(b, self.group_size)), prefetch_offsets),
            )
            count = b.select(is_narrow, constant(b, 0), self.count)
            serial(b, count, lambda b, r: row(b, r, left, width))

        def row(b: Builder, r: Value, left: Value, width: Value) -> None:
            start = b.add(b.mul(r, self.row_stride), left)
            whole = b.mul(ceil_div(b, width, self.line), constant(b, self.line))
            vector(b, whole, self.line, lambda b, j: b.store(b.load(tile, r, j), buffer, b.add(start, j)))

        serial(b, ceil_div(b, self.columns, self.tile_width), some)

    def group(
        self, b: Builder, ref: Value, tile: Value, left: Value, c: Value, prefetch_offsets: tuple[Value, Value, Value]
    ) -> None:
        """Transpose a group of columns, from column ``c`` of the tile on.

        ``ref``: the transposed matrix; ``prefetch_offsets``: the distances to the next columns and rows to prefetch, and the
        last column.
        """
        next_columns, next_rows, last = prefetch_offsets
        columns = [b.minimum(b.add(b.add(left, c), constant(b, k)), last) for k in range(self.group_size)]
        prefetched = [b.minimum(b.add(column, next_columns), last) for column in columns]

        def one(b: Builder, v: Value) -> None:
            at = b.add(self.first, v)
            serial(b, constant(b, self.group_size), lambda b, k: single(b, v, at, b.add(c, k)))

        def single(b: Builder, v: Value, at: Value, k: Value) -> None:
            b.store(b.load(ref, b.minimum(b.add(left, k), last), at), tile, v, k)

        def rows(b: Builder, v: Value) -> None:
            at = b.add(self.first, v)
            values = [b.load(ref, column, at) for column in columns]
            tile_columns = [c, *(b.add(c, constant(b, k)) for k in range(1, self.group_size))]
            for value, column_of_tile in zip(values, tile_columns, strict=True):
                b.store(value, tile, v, column_of_tile)
            for column in prefetched:
                b.prefetch(ref, column, b.add(at, next_rows))

        whole = b.bitand(self.count, constant(b, -self.group_size))
        vector(b, whole, self.group_size, rows)
        serial(b, b.sub(self.count, whole), lambda b, v: one(b, b.add(whole, v)))
