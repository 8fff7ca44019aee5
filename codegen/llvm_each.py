"""Positions of lanes that repeat, or that some neighbouring lanes share: the index of a vector loop modulo a power of two, or
divided by one. What is loaded there is a part of a vector, of which each lane takes its element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes, stored
from pullback.ir.structure import Instruction

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter
    from pullback.codegen.llvm_accesses import Accesses, Place


def of_each(e: Emitter, i: Instruction, operands: Sequence[Lanes]) -> Lanes | None:
    """Such a position; None for other values. Vectors begin at multiples of their width."""
    if e.width == 1 or e.index is None or i.operands[0] is not e.index:
        return None
    number = operands[1].literal if len(operands) == 2 else None
    if number is None or number < 0:
        return None
    if i.op.name == "bitand" and number & (number + 1) == 0 and number < e.width:
        return Lanes("0", None, tuple(k & number for k in range(e.width)))
    if i.op.name == "raw_shr" and 1 << number <= e.width:
        first = e.let(f"ashr i64 {operands[0].text}, {number}")
        return Lanes(first, None, tuple(k >> number for k in range(e.width)))
    return None


def load_each(e: Accesses, place: Place, offset: Lanes, t: str) -> str:
    """The elements at such positions."""
    name, count = stored(place.type.dtype), max(offset.each) + 1
    part = f"<{count} x {name}>"
    found = e.let(f"load {part}, ptr {e.pointers(place, Lanes(offset.text))}, align {place.type.dtype.bytes}")
    order = ", ".join(f"i32 {k}" for k in offset.each)
    return e.let(f"shufflevector {part} {found}, {part} poison, <{e.width} x i32> <{order}>")
