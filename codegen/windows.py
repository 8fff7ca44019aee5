"""Windows of matrices: so many columns that 64 rows of them are brought near in the first cache, or more where all have rows."""

from __future__ import annotations

from pullback.codegen.elements import Elements
from pullback.codegen.near import TILE
from pullback.ir.op import OPS
from pullback.ir.structure import Value
from pullback.ir.types import BOOL, I64

LONG = 4
"""The logarithm of how many windows side by side are one where all matrices have rows."""


def neighbours(e: Elements, axis: int) -> Value:
    """Whether in all strided matrices of a group neighbours along an axis are neighbours in memory, and those along the other one
    whole elements apart."""
    b, held = e.b, e.b.const(True, BOOL)
    for value in e.brought:
        size = value.type.dtype.bytes
        along, across = (b.emit(OPS["stride"], (e.refs[value],), {"axis": k})[0] for k in (axis, 1 - axis))
        whole = b.eq(b.bitand(across, b.const(size - 1, I64)), b.const(0, I64))
        held = b.bitand(held, b.bitand(b.eq(along, b.const(size, I64)), whole))
    return held


def windows(e: Elements) -> tuple[Value, Value]:
    """The logarithm of how many columns a window of a group has, and how many windows hold all columns."""
    b = e.b
    least = min(TILE // v.type.dtype.bytes for v in e.brought).bit_length() - 1
    log = b.select(neighbours(e, 1), b.const(least + LONG, I64), b.const(least, I64))
    last = b.sub(b.raw_shl(b.const(1, I64), log), b.const(1, I64))
    return log, b.raw_shr(b.add(b.extent_of(e.space.extents[1]), last), log)
