"""What is done with the sums of a tile while they are in registers: elements of results, and what is combined along rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.cpu.loops.nest_builder import START, Met, Stores, number, serial, under, vector, when
from pullback.codegen.cpu.matmul.blocking import GROUP
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, copied
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value

Span = tuple[Value, Value]
Sums = tuple[Value, int]
"""Memory of what is combined along rows, and how many rows of it lie side by side."""
Tile = Callable[[Builder, Value], tuple[Value, Span]]
WAITING = 8
"""What is combined along the rows of so many tiles waits until it is read: a processor reads nothing wide of what was written in
parts just before."""


class After:
    """``each`` and ``ends``: the last regions of a product, which take the number of the product of a batch first."""

    def __init__(self, each: Block, across: Sequence[str], ends: Block | None = None) -> None:
        self.each, self.across, self.ends = each, across, ends

    def together(self, b: Builder, x: Value, count: Value, tile: Tile, panels: Value, sums: Sums) -> None:
        """After the tiles of row ``x`` of ``count``, what is done with the rows of those that wait: ``tile`` gives the product,
        the first row and how many; there are so many ``panels`` of columns."""
        waiting = b.add(b.bitand(x, number(b, WAITING - 1)), number(b, 1))
        is_last = b.bitor(b.eq(waiting, number(b, WAITING)), b.eq(b.add(x, number(b, 1)), count))
        first = b.sub(b.add(x, number(b, 1)), waiting)
        memory, high = sums
        slots = memory.type.shape[0]
        assert isinstance(slots, int)
        most = number(b, slots // WAITING)

        def one(b: Builder, k: Value) -> None:
            z, rows = tile(b, b.add(first, k))
            self.end(b, z, rows, (memory, b.mul(k, most), high), panels)

        when(b, is_last, lambda b: serial(b, waiting, one))

    def run(
        self, b: Builder, z: Value, rows: Sequence[Value], columns: Sequence[tuple[Value, Value]], totals: Sequence[Value],
        sums: tuple[Value | None, Value]
    ) -> None:  # fmt: skip
        """The elements of a tile in vectors of columns, each with whether it is there, all of them read before any is written.
        What is combined along a row is combined in each lane, and lies row beside row of a lane in memory: ``sums``, with the
        lane. Rows that repeat the last one are stored before it."""
        stores: Stores = []
        met: Met = {}
        joined: list[list[Value]] = [[] for _ in self.across]
        for r in reversed(range(len(rows))):
            own = totals[r * len(columns) : (r + 1) * len(columns)]
            pairs = zip(columns, own, strict=True)
            found = [under(b, self.each, (z, rows[r], c, total), 2, holds, stores, met) for (c, holds), total in pairs]
            for k, name in enumerate(self.across):
                start = b.const(START[name], found[0][k].type.dtype)
                values = [b.select(holds, v[k], start) for (_, holds), v in zip(columns, found, strict=True)]
                total = values[0]
                for value in values[1:]:
                    total = b.emit(OPS[name], (total, value))[0]
                joined[k].insert(0, total)
        for operands in stores:
            b.store_if(*operands)
        memory, lane = sums
        behind = b.mul(lane, number(b, len(rows)))
        for k, values in enumerate(joined):
            assert memory is not None
            before = k * _size(memory) // len(self.across)
            for first in range(0, len(values), GROUP):
                where = [b.add(behind, number(b, before + first + x)) for x in range(GROUP)]
                for value, place in zip(values[first : first + GROUP], where, strict=True):
                    b.store(value, memory, place)

    def end(self, b: Builder, z: Value, rows: Span, memory: tuple[Value, Value, int], panels: Value) -> None:
        """What is done with what is combined along the rows of tiles: the first row and how many; where in memory they begin."""
        ends, (ref, begin, high) = self.ends, memory
        assert ends is not None
        size = _size(ref) // len(self.across)

        def row(b: Builder, r: Value) -> None:
            totals: list[Value] = []
            for k, name in enumerate(self.across):
                step, j, before = Builder(b.loc), Value(scalar(I64), "j"), Value(scalar(ref.type.dtype), "sum")
                places = [step.add(r, number(step, k * size + lane)) for lane in range(0, size, high)]
                values = [step.load(ref, step.add(begin, j), place) for place in places]
                while len(values) > 1:
                    pairs = zip(values[::2], values[1::2], strict=True)
                    values = [step.emit(OPS[name], pair)[0] for pair in pairs]
                joined = step.emit(OPS[name], (before, values[0]))[0]
                start = b.const(START[name], ref.type.dtype)
                totals += b.emit(OPS["for"], (panels, start), {"map": "serial"}, [step.block([j, before], [joined])])
            found = copied(ends, (z, b.add(rows[0], r), number(b, 0), *totals))
            b.instructions.extend(found.instructions)

        vector(b, rows[1], 1, row)


def _size(memory: Value) -> int:
    """How many numbers are side by side in memory."""
    extent = memory.type.shape[-1]
    assert isinstance(extent, int)
    return extent
