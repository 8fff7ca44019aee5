"""Memory of which each second element is meant, such as the real parts of complex numbers: read and written as whole vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes, mangled, stored, wide
from pullback.ir.ops.kernel import Store
from pullback.ir.structure import Instruction

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter
    from pullback.codegen.llvm_accesses import Accesses, Place


def every_other(e: Accesses, place: Place, offset: Lanes, t: str) -> str:
    """A vector of elements two places apart, from two vectors that begin with the first of them and end with the last."""
    dtype, width = place.type.dtype, e.width
    starts = (Lanes(offset.text), e.add(Lanes(offset.text), Lanes(str(width - 1))))
    parts = [e.let(f"load {t}, ptr {e.pointers(place, start)}, align {dtype.bytes}") for start in starts]
    return _shuffled(e, parts, [2 * k if 2 * k < width else 2 * k + 1 for k in range(width)], t)


def is_part(place: Place, index: Sequence[Lanes]) -> bool:
    """Whether an access is of one place of a last axis of two, for neighbours of the axis before."""
    return place.extents[-1:] == (Lanes("2"),) and len(index) > 1 and index[-1].literal in (0, 1)


def part(e: Accesses, place: Place, index: Sequence[Lanes], t: str, mask: str | None) -> str:
    """A vector of one of both places, in the lanes of the mask. The loads are those of the other place, so that whoever reads
    both loads once."""
    dtype, width, which = place.type.dtype, e.width, index[-1].literal or 0
    start = Lanes(e.offset(place, [*index[:-1], Lanes("0")]).text)
    pointers = [e.pointers(place, start if not k else e.add(start, Lanes(str(width)))) for k in range(2)]
    if mask is None:
        parts = [e.let(f"load {t}, ptr {pointer}, align {dtype.bytes}") for pointer in pointers]
    else:
        c = wide("i1", width)
        parts = []
        for k, pointer in enumerate(pointers):
            order = ", ".join(f"i32 {(k * width + lane) // 2}" for lane in range(width))
            both = e.let(f"shufflevector {c} {mask}, {c} poison, <{width} x i32> <{order}>")
            given = [("ptr", pointer), ("i32", str(dtype.bytes)), (c, both), (t, "zeroinitializer")]
            parts.append(e.intrinsic(t, f"llvm.masked.load.{mangled(stored(dtype), width)}.p0", given))
    return _shuffled(e, parts, [2 * k + which for k in range(width)], t)


def _shuffled(e: Accesses, parts: Sequence[str], order: Sequence[int], t: str) -> str:
    """Elements of two vectors."""
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.let(f"shufflevector {t} {parts[0]}, {t} {parts[1]}, <{len(order)} x i32> <{mask}>")


def are_pair(e: Emitter, i: Instruction, after: Instruction) -> bool:
    """Whether two stores of a full vector fill the two places of a last axis."""
    if e.width == 1 or e.mask is not None or not isinstance(i.op, Store) or after.op is not i.op or i.op.masked:
        return False
    ref, *index = i.operands[1:]
    other, *next_index = after.operands[1:]
    if ref is not other or not index or index[:-1] != next_index[:-1] or e.places[ref].extents[-1:] != (Lanes("2"),):
        return False
    place, at = e.places[ref], [e.env[v] for v in index]
    ends = at[-1].literal, e.env[next_index[-1]].literal
    return ends == (0, 1) and not place.strides and not place.type.dtype.is_bool and _step_of(e, place, at) == 2


def _step_of(e: Emitter, place: Place, index: Sequence[Lanes]) -> int | None:
    """How far apart the elements of neighbouring lanes are, where only the axis before the last moves."""
    *outer, inner, last = index if len(index) > 1 else (*index, Lanes("0"), Lanes("0"))
    if any(not i.is_scalar for i in (*outer, last)) or inner.step is None:
        return None
    return inner.step * (place.extents[-1].literal or 0)


def store_pair(e: Emitter, i: Instruction, after: Instruction) -> None:
    """Two stores as two stretches of memory."""
    place, width = e.places[i.operands[1]], e.width
    dtype = place.type.dtype
    t = wide(stored(dtype), width)
    offset = e.offset(place, [e.env[v] for v in i.operands[2:]])
    parts = [e.vector(e.env[s.operands[0]], dtype) for s in (i, after)]
    order = [k // 2 + (k % 2) * width for k in range(2 * width)]
    for first in (0, width):
        text = _shuffled(e, parts, order[first : first + width], t)
        pointer = e.pointers(place, e.add(Lanes(offset.text), Lanes(str(first))))
        e.line(f"store {t} {text}, ptr {pointer}, align {dtype.bytes}")
