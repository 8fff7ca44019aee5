"""Apply the epilogue of a product to the sums of a tile while they are in registers: elements of results, and reductions along
rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.cpu.loops.nest_builder import START, Emitted, Stores, constant, inline_masked, serial, vector, when
from pullback.codegen.cpu.matmul.blocking import TRANSPOSE_GROUP
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, copy_block
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value

Span = tuple[Value, Value]
"""A first index and a count."""
Sums = tuple[Value, int]
"""Memory of row reductions, and how many rows are adjacent in it."""
Tile = Callable[[Builder, Value], tuple[Value, Span]]
"""Returns the product and the row span of a tile, by its number."""
PENDING_TILES = 8
"""Tiles whose row reductions are kept before they are read together: a wide read of memory that was just written in narrow
parts defeats store forwarding."""


class Epilogue:
    """The epilogue of a batch of products. ``each`` and ``ends``: the last regions of a product, which take the product's
    index first. ``across``: combiners of the row reductions."""

    def __init__(self, each: Block, across: Sequence[str], ends: Block | None = None) -> None:
        self.each, self.across, self.ends = each, across, ends

    def finish_pending(self, b: Builder, x: Value, count: Value, tile: Tile, panels: Value, sums: Sums) -> None:
        """After tile ``x`` of ``count``, finish the row reductions of the pending tiles if there are enough of them or none
        follows."""
        pending = b.add(b.bitand(x, constant(b, PENDING_TILES - 1)), constant(b, 1))
        is_last = b.bitor(b.eq(pending, constant(b, PENDING_TILES)), b.eq(b.add(x, constant(b, 1)), count))
        first = b.sub(b.add(x, constant(b, 1)), pending)
        memory, rows_per_tile = sums
        slots = memory.type.shape[0]
        assert isinstance(slots, int)
        slots_per_tile = constant(b, slots // PENDING_TILES)

        def finish(b: Builder, k: Value) -> None:
            z, rows = tile(b, b.add(first, k))
            self.finish_rows(b, z, rows, (memory, b.mul(k, slots_per_tile), rows_per_tile), panels)

        when(b, is_last, lambda b: serial(b, pending, finish))

    def run(
        self, b: Builder, z: Value, rows: Sequence[Value], columns: Sequence[tuple[Value, Value]], totals: Sequence[Value],
        sums: tuple[Value | None, Value]
    ) -> None:  # fmt: skip
        """Emit the elements of a tile, in vectors of columns with their masks; all loads precede all stores. Row reductions
        are combined within each lane and stored lane by lane to ``sums`` at the lane's position. Rows that repeat the last
        one are stored before it."""
        stores: Stores = []
        emitted: Emitted = {}
        reductions: list[list[Value]] = [[] for _ in self.across]
        for r in reversed(range(len(rows))):
            row_totals = totals[r * len(columns) : (r + 1) * len(columns)]
            pairs = zip(columns, row_totals, strict=True)
            inlined = [
                inline_masked(b, self.each, (z, rows[r], c, total), 2, mask, stores, emitted) for (c, mask), total in pairs
            ]
            for k, name in enumerate(self.across):
                start = b.const(START[name], inlined[0][k].type.dtype)
                values = [b.select(mask, v[k], start) for (_, mask), v in zip(columns, inlined, strict=True)]
                total = values[0]
                for value in values[1:]:
                    total = b.emit(OPS[name], (total, value))[0]
                reductions[k].insert(0, total)
        for operands in stores:
            b.store_if(*operands)
        memory, lane = sums
        lane_offset = b.mul(lane, constant(b, len(rows)))
        for k, values in enumerate(reductions):
            assert memory is not None
            before = k * _last_extent(memory) // len(self.across)
            for first in range(0, len(values), TRANSPOSE_GROUP):
                positions = [b.add(lane_offset, constant(b, before + first + x)) for x in range(TRANSPOSE_GROUP)]
                for value, position in zip(values[first : first + TRANSPOSE_GROUP], positions, strict=True):
                    b.store(value, memory, position)

    def finish_rows(self, b: Builder, z: Value, rows: Span, memory: tuple[Value, Value, int], panels: Value) -> None:
        """Finish the reductions along the rows of a tile: combine its lanes and column panels, and inline the last region."""
        ends, (ref, first_slot, rows_per_tile) = self.ends, memory
        assert ends is not None
        size = _last_extent(ref) // len(self.across)

        def row(b: Builder, r: Value) -> None:
            totals: list[Value] = []
            for k, name in enumerate(self.across):
                step, j, before = Builder(b.loc), Value(scalar(I64), "j"), Value(scalar(ref.type.dtype), "sum")
                positions = [step.add(r, constant(step, k * size + lane)) for lane in range(0, size, rows_per_tile)]
                values = [step.load(ref, step.add(first_slot, j), position) for position in positions]
                while len(values) > 1:
                    pairs = zip(values[::2], values[1::2], strict=True)
                    values = [step.emit(OPS[name], pair)[0] for pair in pairs]
                combined = step.emit(OPS[name], (before, values[0]))[0]
                start = b.const(START[name], ref.type.dtype)
                totals += b.emit(OPS["for"], (panels, start), {"map": "serial"}, [step.block([j, before], [combined])])
            inlined = copy_block(ends, (z, b.add(rows[0], r), constant(b, 0), *totals))
            b.instructions.extend(inlined.instructions)

        vector(b, rows[1], 1, row)


def _last_extent(memory: Value) -> int:
    """Return the extent of the last axis of a reference."""
    extent = memory.type.shape[-1]
    assert isinstance(extent, int)
    return extent
