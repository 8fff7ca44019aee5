"""bands: run the inside of a stencil's rows without conditions, and the ends of several rows together.

Requires: a loop over rows, each of which is one loop that ``borders`` can split, and little else. Keeps: its meaning, to the
bit. Rows that are outside, such as the first and last ones, run in one general loop. Of the other rows, ``BAND_ROWS`` at a
time first run their inside; then each of their two ends runs column by column, so that the conditions of a column are computed
once for these rows.

Cost: one copy of the body more than a single split row has. Cache lines at the ends are read twice, shortly after one another.
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
"""Logarithm of ``BAND_ROWS``."""
BAND_ROWS = 1 << SHIFT
"""Rows per band."""


class Bands:
    """A loop ``i`` over rows that is split into bands; ``pieces``: the pieces of a row's loop, ``rows``: those of the loop
    over rows."""

    def __init__(self, i: Instruction, pieces: Pieces, rows: Pieces) -> None:
        self.loop, self.pieces, self.rows = i, pieces, rows
        *self.before, self.row = i.regions[0].instructions
        (self.count,), (self.width,) = i.operands, self.row.operands
        self.varying = set(rows.varying)
        for k in pieces.instructions:
            if not self.varying.isdisjoint(k.operands):
                self.varying.update(k.results)
        self.row_comparisons, self.invariant_conditions = list[Instruction](), list[Value]()
        self.is_applicable = self.width not in self.varying and self.classify_conditions()

    def classify_conditions(self) -> bool:
        """Classify the conditions of the inside as row comparisons or invariant; return False if that is not possible."""
        if any(k.result in self.varying for k in self.pieces.comparisons):
            return False
        for condition in self.pieces.inside or ():
            producer = self.rows.inner.get(condition)
            if condition not in self.varying:
                if condition not in self.pieces.inner:
                    self.invariant_conditions.append(condition)
            elif producer is None:
                return False
            elif producer in self.rows.comparisons:
                self.row_comparisons.append(producer)
            elif producer.op.name != "bitand":
                return False
        return bool(self.row_comparisons) or any(self.pieces.is_index_select(k) for k in self.pieces.choices)

    # writing

    def write(self, b: Builder) -> None:
        """Emit the loop as one general loop and a loop over bands."""
        for k in self.before:
            if k.results and k.result not in self.varying:
                b.append(k)
        zero, one = b.const(0, I64), b.const(1, I64)
        columns = [self.pieces.inner[v] for v in self.pieces.inside or () if v in self.pieces.inner]
        left, right = self.pieces.align_bounds(b, *self.bounds(b, self.pieces, columns, zero, self.width))
        low, high = self.bounds(b, self.rows, self.row_comparisons, zero, self.count)
        all_hold = b.bitand(b.lt(left, right), b.lt(low, high))
        for condition in self.invariant_conditions:
            all_hold = b.bitand(all_hold, condition)
        low, high = b.select(all_hold, low, self.count), b.select(all_hold, high, self.count)
        part, inside = Value(scalar(I64)), Builder(b.loc)
        is_first = inside.lt(part, one)
        start = inside.select(is_first, zero, high)
        self.general(inside, start, inside.select(is_first, low, inside.sub(self.count, high)))
        b.emit(OPS["for"], (b.const(2, I64),), {}, (inside.block((part,), ()),))
        bands = b.raw_shr(b.add(b.sub(high, low), b.const(BAND_ROWS - 1, I64)), b.const(SHIFT, I64))
        band, inside = Value(scalar(I64)), Builder(b.loc)
        first = inside.add(low, inside.raw_shl(band, inside.const(SHIFT, I64)))
        count = inside.minimum(inside.const(BAND_ROWS, I64), inside.sub(high, first))
        self.inner(inside, first, count, left, inside.sub(right, left))
        self.ends(inside, first, count, left, right)
        b.emit(OPS["for"], (bands,), {}, (inside.block((band,), ()),))

    def bounds(
        self, b: Builder, pieces: Pieces, comparisons: Sequence[Instruction], low: Value, high: Value
    ) -> tuple[Value, Value]:
        """Emit the range of indices in which all comparisons hold."""
        for k in comparisons:
            position = pieces.change_position(b, k)
            low, high = (b.maximum(low, position), high) if pieces.is_rising(k) else (low, b.minimum(high, position))
        return low, high

    def general(self, b: Builder, start: Value, count: Value) -> None:
        """Emit rows with all conditions."""
        row, inside = Value(scalar(I64), self.rows.index.name), Builder(b.loc)
        env = self.row_env(inside, inside.add(row, start))
        Part(self.pieces, inside, inside.const(0, I64), env, {}).write(self.width, short=True)
        self.rows_loop(b, row, count, inside)

    def inner(self, b: Builder, first: Value, count: Value, left: Value, width: Value) -> None:
        """Emit the inside of rows, where all conditions hold."""
        row, inside = Value(scalar(I64), self.rows.index.name), Builder(b.loc)
        env = self.row_env(inside, inside.add(row, first))
        known = dict.fromkeys(self.pieces.implied(), True)
        Part(self.pieces, inside, left, env, known).write(width, multiple=self.pieces.lanes())
        self.rows_loop(b, row, count, inside)

    def ends(self, b: Builder, first: Value, count: Value, left: Value, right: Value) -> None:
        """Emit the ends of rows, column by column."""
        part, inside = Value(scalar(I64)), Builder(b.loc)
        is_first = inside.lt(part, inside.const(1, I64))
        start = inside.select(is_first, inside.const(0, I64), right)
        width = inside.select(is_first, left, inside.sub(self.width, right))
        row, row_body = Value(scalar(I64), self.rows.index.name), Builder(b.loc)
        env = self.row_env(row_body, row_body.add(row, first))
        known = {v: True for v in self.pieces.implied() if v not in self.pieces.inner}
        column = Part(self.pieces, row_body, start, env, known)
        column.copy_body()
        kept = used([*row_body.instructions, *column.b.instructions])
        of_rows, of_columns = _split_by_row(kept, row)
        rows = Instruction(OPS["for"], (count,), (), {"ordered": True}, (Block((row,), tuple(of_rows), ()),), b.loc)
        body = Block((column.at,), (*of_columns, rows), ())
        inside.append(Instruction(self.row.op, (width,), (), {**self.row.params, "short": True}, (body,), self.row.loc))
        b.emit(OPS["for"], (b.const(2, I64),), {}, (inside.block((part,), ()),))

    def row_env(self, b: Builder, row: Value) -> Env:
        """Emit the values that vary from row to row, for one row."""
        env: Env = {self.rows.index: row}
        for k in self.before:
            if k.results and k.result in self.varying:
                results = b.at(k.loc, k.result.name).emit(k.op, tuple(env.get(v, v) for v in k.operands), dict(k.params))
                env.update(zip(k.results, results, strict=True))
        return env

    def rows_loop(self, b: Builder, row: Value, count: Value, inside: Builder) -> None:
        """Emit a loop over rows."""
        body = Block((row,), tuple(used(inside.instructions)), ())
        b.append(Instruction(self.loop.op, (count,), (), self.loop.params, (body,), self.loop.loc))


def bands(i: Instruction, outer: Mapping[Value, Instruction], parameters: frozenset[Value]) -> Bands | None:
    """Return a loop over rows as bands; None if it does not have that form."""
    if not isinstance(i.op, For) or i.results or len(i.operands) != 1 or i.params.get("ordered") or i.params.get("map"):
        return None
    *before, last = i.regions[0].instructions or (i,)
    if not all(isinstance(k.op, Elementwise | Extent | Constant | Load) for k in before) or not is_plain_loop(last):
        return None
    if last.results:
        return None
    producers = {**outer, **{v: k for k in before for v in k.results}}
    pieces = Pieces(last, producers, parameters)
    if pieces.choose_writer() != pieces.write_three_loops:
        return None
    result = Bands(i, pieces, Pieces(i, outer, parameters))
    return result if result.is_applicable else None


def _split_by_row(instructions: Sequence[Instruction], row: Value) -> tuple[list[Instruction], list[Instruction]]:
    """Split instructions into those that access memory or vary with the row, and the others."""
    varying = {row}
    parts: tuple[list[Instruction], list[Instruction]] = ([], [])
    for k in instructions:
        is_of_row = isinstance(k.op, Load | Store) or not varying.isdisjoint(k.operands)
        if is_of_row:
            varying.update(k.results)
        parts[not is_of_row].append(k)
    return parts
