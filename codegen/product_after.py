"""What is done with the sums of a tile while they are in registers: elements of results, and what is combined along rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.product_parts import START, Stores, number, serial, under, vector, when
from pullback.codegen.product_shapes import GROUP
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Block, Value, copied

Span = tuple[Value, Value]
Tile = Callable[[Builder, Value], tuple[Value, Span]]
Sums = tuple[Value, int]
"""Memory of what is combined along rows, and how many rows of it lie side by side."""
WAITING = 8
"""What is combined along the rows of so many tiles waits until it is read: a processor reads nothing wide of what was written in
parts just before."""


class After:
    """``each`` and ``ends``: the last regions of a product, which take the number of the product of a batch first."""

    def __init__(self, each: Block, across: Sequence[str], ends: Block | None = None) -> None:
        self.each, self.across, self.ends = each, across, ends

    def together(self, b: Builder, x: Value, count: Value, tile: Tile, sums: Sums) -> None:
        """After tile ``x`` of ``count``, what is done with the rows of those that wait: ``tile`` gives the product of one, its
        first row and how many."""
        memory, high = sums
        waiting = b.add(b.bitand(x, number(b, WAITING - 1)), number(b, 1))
        is_last = b.bitor(b.eq(waiting, number(b, WAITING)), b.eq(b.add(x, number(b, 1)), count))
        first = b.sub(b.add(x, number(b, 1)), waiting)

        def one(b: Builder, k: Value) -> None:
            z, rows = tile(b, b.add(first, k))
            self.end(b, z, rows, (b.sub_ref(memory, k), high))

        when(b, is_last, lambda b: serial(b, waiting, one))

    def run(
        self, b: Builder, z: Value, rows: Sequence[Value], columns: Sequence[Value], totals: Sequence[Value],
        inside: Mapping[Value, Value], sums: tuple[Value | None, Value]
    ) -> None:  # fmt: skip
        """The elements of a tile in vectors of columns, all of them read before any is written. What is combined along a row is
        combined in each lane, and lies row beside row of a lane in memory: ``sums``, with the lane."""
        stores: Stores = []
        joined: list[list[Value]] = [[] for _ in self.across]
        for r, row in enumerate(rows):
            sums_of_row = totals[r * len(columns) : (r + 1) * len(columns)]
            places = [(z, row, c, total) for c, total in zip(columns, sums_of_row, strict=True)]
            found = [under(b, self.each, at, 2, inside[at[2]], stores) for at in places]
            for k, name in enumerate(self.across):
                start = b.const(START[name], found[0][k].type.dtype)
                values = [b.select(inside[c], v[k], start) for c, v in zip(columns, found, strict=True)]
                total = values[0]
                for value in values[1:]:
                    total = b.emit(OPS[name], (total, value))[0]
                joined[k].append(total)
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

    def end(self, b: Builder, z: Value, rows: Span, sums: Sums) -> None:
        """What is done with what is combined along the rows of a tile: the first one and how many; the memory, and how many
        rows of it lie side by side."""
        memory, high = sums
        ends, lanes = self.ends, _size(memory) // (high * len(self.across))
        assert ends is not None

        def row(b: Builder, r: Value) -> None:
            totals = []
            for k, name in enumerate(self.across):
                places = [b.add(r, number(b, (k * lanes + lane) * high)) for lane in range(lanes)]
                values = [b.load(memory, place) for place in places]
                while len(values) > 1:
                    pairs = zip(values[::2], values[1::2], strict=True)
                    values = [b.emit(OPS[name], pair)[0] for pair in pairs]
                totals += values
            found = copied(ends, (z, b.add(rows[0], r), number(b, 0), *totals))
            b.instructions.extend(found.instructions)

        vector(b, rows[1], 1, row)


def _size(memory: Value) -> int:
    (extent,) = memory.type.shape
    assert isinstance(extent, int)
    return extent
