"""Where products of complex numbers read and write memory by rows of neighbours, and the products of parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pullback.codegen.llvm_addresses import ref_and_index
from pullback.codegen.product_parts import Rows, RowsAt, number
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.create import Constant
from pullback.ir.ops.kernel import Load, Store
from pullback.ir.structure import Block, Value
from pullback.ir.types import I64, RefType, scalar

PARTS = (0, 1)


@dataclass(frozen=True)
class PairRows(Rows):
    """Rows of pairs of numbers; ``index`` is that of a pair."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        return b.emit(OPS["row_ref"], (self.ref, *self.pair(b, row, column)), {})[0]

    def pair(self, b: Builder, row: Value, column: Value) -> tuple[Value, ...]:
        """Where the first number of a pair is."""
        index = (row if k == self.axis else v for k, v in enumerate(self.index[:-1]))
        return (*index, column, number(b, 0))


@dataclass(frozen=True)
class Pairs(PairRows):
    """The same as a reference to pairs."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        return b.emit(OPS["row_ref"], (self.ref, *self.pair(b, row, column), number(b, 2)), {})[0]

    def apart(self, b: Builder, axis: int | None = None) -> Value:
        """How many pairs are from one row to the next."""
        found: Value = b.raw_shr(super().apart(b, axis), number(b, 1))
        return found


@dataclass(frozen=True)
class PairRowsAt(RowsAt):
    """Rows of pairs of numbers, that begin at a reference to pairs, so many pairs apart."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        return b.emit(OPS["row_ref"], (self.ref, *self.index(b, row, column), number(b, 0)), {})[0]

    def apart(self, b: Builder) -> Value:
        found: Value = b.add(self.distance, self.distance)
        return found


@dataclass(frozen=True)
class PairsAt(RowsAt):
    """The same as references to pairs."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        return b.emit(OPS["row_ref"], (self.ref, *self.index(b, row, column), number(b, 0), number(b, 2)), {})[0]


def load_region(rows: RowsAt, is_turned: bool, is_conjugated: bool) -> Block:
    """The region of an operand."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    index = rows.index(b, *(reversed(at) if is_turned else at))
    re, im = (b.load(rows.ref, *index, number(b, part)) for part in PARTS)
    return b.block(at, [re, b.neg(im) if is_conjugated else im])


def store_region(rows: RowsAt) -> Block:
    """The region of the results."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    index, sums = rows.index(b, *at), [Value(scalar(rows.ref.type.dtype), "sum") for _ in PARTS]
    for part, value in zip(PARTS, sums, strict=True):
        b.store(value, rows.ref, *index, number(b, part))
    return b.block([*at, *sums], [])


def is_conjugated(region: Block) -> bool:
    """Whether a region of ``pairs_of`` changes the sign of imaginary parts."""
    return any(i.op is OPS["neg"] for i in region.instructions)


def pairs_of(region: Block, row: int = 0, column: int = 1) -> Pairs | None:
    """Where a region loads both parts of a number, or stores both sums, by rows along two of its parameters, and does nothing
    else but conjugate; None if it does otherwise."""
    constants = {i.result: i.params["value"] for i in region.instructions if isinstance(i.op, Constant)}
    signs = {i.result: i.operands[0] for i in region.instructions if i.op is OPS["neg"]}
    accesses = [i for i in region.instructions if not isinstance(i.op, Constant) and i.op is not OPS["neg"]]
    if len(accesses) != 2 or not all(isinstance(i.op, Load | Store) and not i.op.masked for i in accesses):
        return None
    values = [i.operands[0] if isinstance(i.op, Store) else i.result for i in accesses]
    if values != [signs.get(v, v) for v in region.parameters[2:] or region.results]:
        return None
    (ref, first), (other, second) = map(ref_and_index, accesses)
    assert isinstance(ref.type, RefType)
    if ref is not other or ref.type.layout != "c" or ref.type.shape[-1] != 2 or tuple(first[:-1]) != tuple(second[:-1]):
        return None
    if (constants.get(first[-1]), constants.get(second[-1])) != (0, 1):
        return None
    index = tuple(first[:-1])
    at = [k for k, v in enumerate(index) if v in region.parameters]
    if len(at) != 2 or (index[at[0]], index[-1]) != (region.parameters[row], region.parameters[column]):
        return None
    return Pairs(ref, index, at[0])


def products_of(
    b: Builder, multiply_add: Any, left: Sequence[Value], right: Sequence[Sequence[Value]], before: Sequence[Value]
) -> list[Value]:
    """Sums of a row with the products of its element by those of some columns added: the real parts, then the imaginary ones."""
    (re, im), (reals, others), vectors = left, right, len(right[0])
    minus = b.neg(im)
    real = [multiply_add(b, re, y, z) for y, z in zip(reals, before[:vectors], strict=True)]
    other = [multiply_add(b, re, y, z) for y, z in zip(others, before[vectors:], strict=True)]
    real = [multiply_add(b, minus, y, z) for y, z in zip(others, real, strict=True)]
    return [*real, *(multiply_add(b, im, y, z) for y, z in zip(reals, other, strict=True))]
