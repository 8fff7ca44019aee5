"""Where products of complex numbers read and write memory by rows of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.codegen.llvm_addresses import ref_and_index
from pullback.codegen.product_parts import Rows, number
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.create import Constant
from pullback.ir.ops.kernel import Load, Store
from pullback.ir.structure import Block, Value
from pullback.ir.types import I64, RefType, scalar


@dataclass(frozen=True)
class PairRows(Rows):
    """Rows of pairs of numbers; ``index`` is that of a pair."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        index = (row if k == self.axis else v for k, v in enumerate(self.index[:-1]))
        return b.emit(OPS["row_ref"], (self.ref, *index, column, number(b, 0)), {})[0]

    def pairs(self, b: Builder) -> tuple[Value, Value]:
        """The memory of all pairs, and how many are from one row to the next."""
        zero, two = number(b, 0), number(b, 2)
        index = [zero if k == self.axis else v for k, v in enumerate(self.index[:-1])]
        memory = b.emit(OPS["row_ref"], (self.ref, *index, zero, zero, two), {})[0]
        return memory, b.raw_shr(self.apart(b), number(b, 1))


def loading_pairs(memory: Value, apart: Value, is_turned: bool) -> Block:
    """The region of an operand whose pairs lie in rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    row, column = reversed(at) if is_turned else at
    place = b.add(b.mul(row, apart), column)
    return b.block(at, [b.load(memory, place, number(b, part)) for part in (0, 1)])


def pairs_of(region: Block, row: int = 0, column: int = 1) -> PairRows | None:
    """Where a region loads both parts of a number, or stores both sums, by rows of neighbours along two of its parameters, and
    does nothing else but conjugate; None if it does otherwise."""
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
    return PairRows(ref, index, at[0])
