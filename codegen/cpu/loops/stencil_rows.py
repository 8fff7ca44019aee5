"""bands: rows of a stencil that all lie inside but for their ends run without conditions, and their ends some rows at a time.

Requires: a loop over rows, of which each is one loop that ``borders`` can run in parts, and does little else. Keeps: its meaning,
to the bit. What is outside by its row, such as the first and last rows, is one general loop. Of the rows between, ``TOGETHER`` at
a time first run inside; then each of their two ends does, column by column: what a column's conditions are is computed once for
the rows together.

Cost: a copy of the body more than a row by itself has. Ends are lines of the cache read again, soon after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.loops.index_set_pieces import Env, Part, Pieces, is_plain_loop, used
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, Store

SHIFT = 5
TOGETHER = 1 << SHIFT


class Bands:
    """A loop over rows ``i``; ``pieces``: of a row's loop."""

    def __init__(self, i: Instruction, pieces: Pieces, rows: Pieces) -> None:
        self.loop, self.pieces, self.rows = i, pieces, rows
        *self.before, self.row = i.regions[0].instructions
        (self.count,), (self.width,) = i.operands, self.row.operands
        self.varies = set(rows.varies)
        for k in pieces.instructions:
            if not self.varies.isdisjoint(k.operands):
                self.varies.update(k.results)
        self.turns, self.steady = list[Instruction](), list[Value]()
        self.fits = self.width not in self.varies and self.find()

    def find(self) -> bool:
        """Sort out what holds inside; whether it says where rows and columns are."""
        if any(k.result in self.varies for k in self.pieces.turns):
            return False
        for condition in self.pieces.inside or ():
            made = self.rows.inner.get(condition)
            if condition not in self.varies:
                if condition not in self.pieces.inner:
                    self.steady.append(condition)
            elif made is None:
                return False
            elif made in self.rows.turns:
                self.turns.append(made)
            elif made.op.name != "bitand":
                return False
        return bool(self.turns)

    # writing

    def write(self, b: Builder) -> None:
        for k in self.before:
            if k.results and k.result not in self.varies:
                b.append(k)
        zero, one = b.const(0, I64), b.const(1, I64)
        columns = [self.pieces.inner[v] for v in self.pieces.inside or () if v in self.pieces.inner]
        left, right = self.pieces.in_vectors(b, *self.bounds(b, self.pieces, columns, zero, self.width))
        low, high = self.bounds(b, self.rows, self.turns, zero, self.count)
        whole = b.bitand(b.lt(left, right), b.lt(low, high))
        for condition in self.steady:
            whole = b.bitand(whole, condition)
        low, high = b.select(whole, low, self.count), b.select(whole, high, self.count)
        part, inside = Value(scalar(I64)), Builder(b.loc)
        is_first = inside.lt(part, one)
        start = inside.select(is_first, zero, high)
        self.general(inside, start, inside.select(is_first, low, inside.sub(self.count, high)))
        b.emit(OPS["for"], (b.const(2, I64),), {}, (inside.block((part,), ()),))
        bands = b.raw_shr(b.add(b.sub(high, low), b.const(TOGETHER - 1, I64)), b.const(SHIFT, I64))
        band, inside = Value(scalar(I64)), Builder(b.loc)
        first = inside.add(low, inside.raw_shl(band, inside.const(SHIFT, I64)))
        count = inside.minimum(inside.const(TOGETHER, I64), inside.sub(high, first))
        self.inner(inside, first, count, left, inside.sub(right, left))
        self.ends(inside, first, count, left, right)
        b.emit(OPS["for"], (bands,), {}, (inside.block((band,), ()),))

    def bounds(self, b: Builder, of: Pieces, turns: Sequence[Instruction], low: Value, high: Value) -> tuple[Value, Value]:
        """Between which indices all turns hold."""
        for k in turns:
            place = of.place(b, k)
            low, high = (b.maximum(low, place), high) if of.is_rising(k) else (low, b.minimum(high, place))
        return low, high

    def general(self, b: Builder, start: Value, count: Value) -> None:
        """Rows with all conditions."""
        row, inside = Value(scalar(I64), self.rows.index.name), Builder(b.loc)
        env = self.row_env(inside, inside.add(row, start))
        Part(self.pieces, inside, inside.const(0, I64), env, {}).write(self.width, short=True)
        self.rows_loop(b, row, count, inside)

    def inner(self, b: Builder, first: Value, count: Value, left: Value, width: Value) -> None:
        """Rows where all conditions hold."""
        row, inside = Value(scalar(I64), self.rows.index.name), Builder(b.loc)
        env = self.row_env(inside, inside.add(row, first))
        known = dict.fromkeys(self.pieces.implied(), True)
        Part(self.pieces, inside, left, env, known).write(width, multiple=self.pieces.lanes())
        self.rows_loop(b, row, count, inside)

    def ends(self, b: Builder, first: Value, count: Value, left: Value, right: Value) -> None:
        """Columns where the conditions of rows hold."""
        part, inside = Value(scalar(I64)), Builder(b.loc)
        is_first = inside.lt(part, inside.const(1, I64))
        start = inside.select(is_first, inside.const(0, I64), right)
        width = inside.select(is_first, left, inside.sub(self.width, right))
        row, all_of_it = Value(scalar(I64), self.rows.index.name), Builder(b.loc)
        env = self.row_env(all_of_it, all_of_it.add(row, first))
        known = {v: True for v in self.pieces.implied() if v not in self.pieces.inner}
        column = Part(self.pieces, all_of_it, start, env, known)
        column.copies()
        kept = used([*all_of_it.instructions, *column.b.instructions])
        of_rows, of_columns = _apart(kept, row)
        rows = Instruction(OPS["for"], (count,), (), {"ordered": True}, (Block((row,), tuple(of_rows), ()),), b.loc)
        body = Block((column.at,), (*of_columns, rows), ())
        inside.append(Instruction(self.row.op, (width,), (), {**self.row.params, "short": True}, (body,), self.row.loc))
        b.emit(OPS["for"], (b.const(2, I64),), {}, (inside.block((part,), ()),))

    def row_env(self, b: Builder, row: Value) -> Env:
        """What varies from row to row, at one of them."""
        env: Env = {self.rows.index: row}
        for k in self.before:
            if k.results and k.result in self.varies:
                found = b.at(k.loc, k.result.name).emit(k.op, tuple(env.get(v, v) for v in k.operands), dict(k.params))
                env.update(zip(k.results, found, strict=True))
        return env

    def rows_loop(self, b: Builder, row: Value, count: Value, inside: Builder) -> None:
        body = Block((row,), tuple(used(inside.instructions)), ())
        b.append(Instruction(self.loop.op, (count,), (), self.loop.params, (body,), self.loop.loc))


def bands(i: Instruction, outer: Mapping[Value, Instruction], given: frozenset[Value]) -> Bands | None:
    """A loop over rows as bands; None if it is none."""
    if not isinstance(i.op, For) or i.results or len(i.operands) != 1 or i.params.get("ordered") or i.params.get("map"):
        return None
    *before, last = i.regions[0].instructions or (i,)
    if not all(isinstance(k.op, Elementwise | Extent | Constant | Load) for k in before) or not is_plain_loop(last):
        return None
    if last.results:
        return None
    makers = {**outer, **{v: k for k in before for v in k.results}}
    pieces = Pieces(last, makers, given)
    if pieces.way() != pieces.in_three:
        return None
    found = Bands(i, pieces, Pieces(i, outer, given))
    return found if found.fits else None


def _apart(instructions: Sequence[Instruction], row: Value) -> tuple[list[Instruction], list[Instruction]]:
    """What touches memory or varies with the row, and the rest."""
    varies = {row}
    found: tuple[list[Instruction], list[Instruction]] = ([], [])
    for k in instructions:
        is_of_row = isinstance(k.op, Load | Store) or not varies.isdisjoint(k.operands)
        if is_of_row:
            varies.update(k.results)
        found[not is_of_row].append(k)
    return found
