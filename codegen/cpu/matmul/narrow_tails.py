"""Narrow products whose last columns fill no vector: some rows have theirs in one together.

Of 20 columns of float64 the last four of two rows are a vector. A lane of it has a row, its number modulo that of the rows, and a
column, its number divided by it. The last columns of all rows of a product are a tile of such vectors, after the tiles of the
others. Its sums wait in memory of the kernel's own, as they are in registers, and go where they belong after the last run of
terms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import Stores, number, under, when
from pullback.codegen.cpu.matmul.narrow_left_operand import Left, Piece
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block
from pullback.ir.core.types import I64, DType, scalar
from pullback.ir.core.value import Value

HIGHEST = {1: 20, 2: 12, 3: 8}
"""The rows of tiles of so many vectors."""
LEAST, MOST = 8, 20
"""So many sums keep a processor busy; so many have room in registers."""
WORTH = 0.9
"""So much of the multiply-adds of other tiles is worth the stores."""


@dataclass(frozen=True)
class Tail:
    """``vectors`` whole ones of ``lanes`` for each row, in tiles of ``high`` rows; ``rows`` together have one more, in so many
    ``groups``."""

    vectors: int
    high: int
    rows: int
    groups: int
    lanes: int

    def local(self, b: Builder, products: Value, dtype: DType, most: int) -> Value:
        """Memory for the sums of so many products that wait."""
        found: Value = b.local(products, dtype=dtype, shape=(most, self.groups * self.lanes))
        return found


def tail_for(rows: int, columns: int, lanes: int, others: int) -> Tail | None:
    """The tail of products of so many rows and columns, of which other tiles take so many multiply-adds a term; None if there is
    none, or it is worth nothing."""
    vectors, rest = divmod(columns, lanes)
    if vectors not in HIGHEST or not rest or rest & (rest - 1) or not rows:
        return None
    together = lanes // rest
    tiles = -(-rows // HIGHEST[vectors])
    found = Tail(vectors, -(-rows // tiles), together, -(-rows // together), lanes)
    work = tiles * found.high * vectors + max(found.groups, LEAST)
    return found if found.groups <= MOST and work <= WORTH * others else None


@dataclass(frozen=True)
class Tails:
    """The tile of a product: ``waiting`` is where its sums are, ``left`` its packed rows, which begin with the block's; ``z`` is
    the product in its group, ``which`` of all; ``right`` gives an element of the right operand of a column."""

    tail: Tail
    waiting: Value
    left: Left
    z: Value
    which: Value
    right: Callable[[Builder, Value], Piece]
    multiply_add: Callable[[Builder, Value, Value, Value], Value]

    def spell(self, b: Builder, terms: tuple[Value, Value], each: Block, rows: Value, run: tuple[Value, Value]) -> None:
        """A run of terms, of which it is known whether it is the first and the last one."""
        tail, dtype = self.tail, self.left.dtype
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        row = inner.bitand(lane, number(inner, tail.rows - 1))
        shift = number(inner, tail.rows.bit_length() - 1)
        column = inner.add(number(inner, tail.vectors * tail.lanes), inner.raw_shr(lane, shift))
        piece, zero = self.right(inner, column), inner.const(0.0, dtype)
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(dtype), "sum") for _ in range(tail.groups)]
        found = piece(step, step.add(terms[0], p))
        left = [self.left.beside(step, self.z, p, g * tail.rows, row) for g in range(tail.groups)]
        after = [self.multiply_add(step, x, found, total) for x, total in zip(left, before, strict=True)]
        body = step.block([p, *before], after)
        totals = inner.emit(OPS["for"], (terms[1], *[zero] * tail.groups), {"map": "serial"}, [body])
        self.put(inner, lane, (row, column), each, totals, rows, run)
        params = {"map": "vector", "multiple": tail.lanes}
        b.emit(OPS["for"], (number(b, tail.lanes),), params, [inner.block([lane], [])])

    def put(
        self, b: Builder, lane: Value, place: tuple[Value, Value], each: Block, totals: tuple[Value, ...], rows: Value,
        run: tuple[Value, Value]
    ) -> None:  # fmt: skip
        """Add the sums to those that wait, and store them in the end."""
        tail, (is_first, is_last), zero = self.tail, run, b.const(0.0, self.left.dtype)
        stores: Stores = []
        end = Builder(b.loc)
        for g, total in enumerate(totals):
            at = b.add(number(b, g * tail.lanes), lane)
            now = b.add(total, b.select(is_first, zero, b.load(self.waiting, at)))
            b.store(now, self.waiting, at)
            row = end.add(number(end, g * tail.rows), place[0])
            under(end, each, (self.which, row, place[1], now), 2, end.lt(row, rows), stores)

        def store(b: Builder) -> None:
            b.instructions.extend(end.instructions)
            for operands in stores:
                b.store_if(*operands)

        when(b, is_last, store)
