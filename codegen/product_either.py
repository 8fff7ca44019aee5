"""Operands of a matrix product that lie in memory by rows or by columns, which shows when the kernel runs.

One of two functions packs it. What is in the panels is the same, and so is the order of additions: it goes by the region of the
operand, as if that were dense.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.codegen.product_parts import RowsAt, number
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Block, Value
from pullback.ir.types import I64, scalar


@dataclass(frozen=True)
class Lying:
    """The memory of a strided reference that has rows or columns of neighbours, from its first element on."""

    ref: Value

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        """That memory; the row and the column are the first ones."""
        rows = b.emit(OPS["as_rows"], (self.ref,), {"turned": False})[0]
        return b.emit(OPS["row_ref"], (rows, row, column), {})[0]

    def apart(self, b: Builder) -> Value:
        """How many elements are from one row to the next, or from one column."""
        rows, columns = (b.emit(OPS["stride"], (self.ref,), {"axis": axis})[0] for axis in (0, 1))
        size = self.ref.type.dtype.bytes
        found: Value = b.raw_shr(b.select(self.has_columns(b), columns, rows), number(b, size.bit_length() - 1))
        return found

    def has_columns(self, b: Builder) -> Value:
        apart = b.emit(OPS["stride"], (self.ref,), {"axis": 1})[0]
        found: Value = b.ne(apart, number(b, self.ref.type.dtype.bytes))
        return found


def loading(rows: RowsAt, is_turned: bool) -> Block:
    """The region of an operand that lies in rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    return b.block(at, [b.load(rows.ref, *rows.index(b, *(reversed(at) if is_turned else at)))])
