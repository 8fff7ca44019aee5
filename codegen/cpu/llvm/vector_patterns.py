"""Emits vector loads and stores of access patterns that are not contiguous.

Reversed: memory walked from its end is read and written as whole vectors, whose lanes are reversed. Interleaved: of memory whose
every second element is accessed, such as the real parts of complex numbers, whole vectors are read and written. Repeated: where
lanes share an index, the loop variable modulo a power of two or divided by one, a part of a vector is loaded, of which each lane
takes its element.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.addresses import lowest
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import Lanes, mangled, stored, wide
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.kernel.kernel import Store


def load_backwards(e: FunctionWriter, place: Place, offset: Lanes, mask: str | None, is_guarded: bool) -> str:
    """A vector whose first lane is the element at an offset, the others those before it."""
    name, align = stored(place.type.dtype), place.type.dtype.bytes
    t, first = wide(name, e.width), lowest(e, offset)
    if mask is None:
        pointer = e.beside(place, place.pointer, first.text, -1)
        if e.streams is not None:
            e.streams.ahead(pointer, place.type.dtype, e.part, -1)
        return _turned(e, e.let(f"load {t}, ptr {pointer}, align {align}"), t)
    pointer = e.pointers(place, first)
    if is_guarded:
        pointer = e.near(pointer, place, mask)
    c = wide("i1", e.width)
    given = [("ptr", pointer), ("i32", str(align)), (c, _turned(e, mask, c)), (t, "zeroinitializer")]
    return _turned(e, e.intrinsic(t, f"llvm.masked.load.{mangled(name, e.width)}.p0", given), t)


def store_backwards(e: FunctionWriter, text: str, place: Place, offset: Lanes, mask: str | None) -> None:
    """Write the first lane at an offset, the others before it."""
    name, align = stored(place.type.dtype), place.type.dtype.bytes
    t, c = wide(name, e.width), wide("i1", e.width)
    turned = _turned(e, text, t)
    if mask is None:
        pointer = e.beside(place, place.pointer, lowest(e, offset).text, -1)
        if e.streams is None or not e.streams.store(turned, t, pointer, place.pointer, place.type.dtype):
            e.line(f"store {t} {turned}, ptr {pointer}, align {align}")
        return
    given = [(t, turned), ("ptr", e.pointers(place, lowest(e, offset))), ("i32", str(align)), (c, _turned(e, mask, c))]
    e.intrinsic("void", f"llvm.masked.store.{mangled(name, e.width)}.p0", given)


def _turned(e: FunctionWriter, text: str, t: str) -> str:
    lanes = ", ".join(f"i32 {k}" for k in reversed(range(e.width)))
    return e.let(f"shufflevector {t} {text}, {t} poison, <{e.width} x i32> <{lanes}>")


def every_other(e: FunctionWriter, place: Place, offset: Lanes, t: str) -> str:
    """A vector of elements two places apart, from two vectors that begin with the first of them and end with the last."""
    dtype, width = place.type.dtype, e.width
    starts = (Lanes(offset.text), e.add(Lanes(offset.text), Lanes(str(width - 1))))
    parts = [e.let(f"load {t}, ptr {e.pointers(place, start)}, align {dtype.bytes}") for start in starts]
    return _shuffled(e, parts, [2 * k if 2 * k < width else 2 * k + 1 for k in range(width)], t)


def is_part(place: Place, index: Sequence[Lanes]) -> bool:
    """Whether an access is of one place of a last axis of two, for neighbours of the axis before."""
    return place.extents[-1:] == (Lanes("2"),) and len(index) > 1 and index[-1].literal in (0, 1)


def part(e: FunctionWriter, place: Place, index: Sequence[Lanes], t: str, mask: str | None) -> str:
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


def _shuffled(e: FunctionWriter, parts: Sequence[str], order: Sequence[int], t: str) -> str:
    """Elements of two vectors."""
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.let(f"shufflevector {t} {parts[0]}, {t} {parts[1]}, <{len(order)} x i32> <{mask}>")


def are_pair(e: FunctionWriter, i: Instruction, after: Instruction) -> bool:
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


def _step_of(e: FunctionWriter, place: Place, index: Sequence[Lanes]) -> int | None:
    """How far apart the elements of neighbouring lanes are, where only the axis before the last moves."""
    *outer, inner, last = index if len(index) > 1 else (*index, Lanes("0"), Lanes("0"))
    if any(not i.is_scalar for i in (*outer, last)) or inner.step is None:
        return None
    return inner.step * (place.extents[-1].literal or 0)


def store_pair(e: FunctionWriter, i: Instruction, after: Instruction) -> None:
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


def of_each(e: FunctionWriter, i: Instruction, operands: Sequence[Lanes]) -> Lanes | None:
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


def load_each(e: FunctionWriter, place: Place, offset: Lanes, t: str) -> str:
    """The elements at such positions."""
    name, count = stored(place.type.dtype), max(offset.each) + 1
    part = f"<{count} x {name}>"
    found = e.let(f"load {part}, ptr {e.pointers(place, Lanes(offset.text))}, align {place.type.dtype.bytes}")
    order = ", ".join(f"i32 {k}" for k in offset.each)
    return e.let(f"shufflevector {part} {found}, {part} poison, <{e.width} x i32> <{order}>")
