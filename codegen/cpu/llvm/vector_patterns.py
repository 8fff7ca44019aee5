"""Emit vector loads and stores of access patterns that are not contiguous.

- Reversed: memory that is accessed from its end is loaded and stored as whole vectors with reversed lanes.
- Interleaved: if every second element is accessed, as with the real parts of complex numbers, whole vectors are loaded and
  stored.
- Repeated: if lanes share an index (the loop variable modulo a power of two or divided by one), a part of a vector is loaded
  and its elements are distributed to the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.addresses import lowest_lane_offset
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import Lanes, mangled, stored, vector_of
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.kernel.kernel import Store


def load_reversed(e: FunctionWriter, memref: MemRef, offset: Lanes, mask: str | None, is_guarded: bool) -> str:
    """Load a vector whose first lane is the element at ``offset`` and whose further lanes are the elements before it."""
    name, align = stored(memref.type.dtype), memref.type.dtype.bytes
    t, first = vector_of(name, e.width), lowest_lane_offset(e, offset)
    if mask is None:
        pointer = e.contiguous_address(memref, memref.pointer, first.text, -1)
        if e.streams is not None:
            e.streams.prefetch_ahead(pointer, memref.type.dtype, e.part, -1)
        return _reversed(e, e.let(f"load {t}, ptr {pointer}, align {align}"), t)
    pointer = e.pointers(memref, first)
    if is_guarded:
        pointer = e.readable_address(pointer, memref, mask)
    c = vector_of("i1", e.width)
    operands = [("ptr", pointer), ("i32", str(align)), (c, _reversed(e, mask, c)), (t, "zeroinitializer")]
    return _reversed(e, e.intrinsic(t, f"llvm.masked.load.{mangled(name, e.width)}.p0", operands), t)


def store_reversed(e: FunctionWriter, text: str, memref: MemRef, offset: Lanes, mask: str | None) -> None:
    """Store the first lane at ``offset`` and the further lanes before it."""
    name, align = stored(memref.type.dtype), memref.type.dtype.bytes
    t, c = vector_of(name, e.width), vector_of("i1", e.width)
    reversed_vector = _reversed(e, text, t)
    if mask is None:
        pointer = e.contiguous_address(memref, memref.pointer, lowest_lane_offset(e, offset).text, -1)
        if e.streams is None or not e.streams.store(reversed_vector, t, pointer, memref.pointer, memref.type.dtype):
            e.line(f"store {t} {reversed_vector}, ptr {pointer}, align {align}")
        return
    operands = [
        (t, reversed_vector),
        ("ptr", e.pointers(memref, lowest_lane_offset(e, offset))),
        ("i32", str(align)),
        (c, _reversed(e, mask, c)),
    ]
    e.intrinsic("void", f"llvm.masked.store.{mangled(name, e.width)}.p0", operands)


def _reversed(e: FunctionWriter, text: str, t: str) -> str:
    """Reverse the lanes of a vector."""
    lanes = ", ".join(f"i32 {k}" for k in reversed(range(e.width)))
    return e.let(f"shufflevector {t} {text}, {t} poison, <{e.width} x i32> <{lanes}>")


def every_other(e: FunctionWriter, memref: MemRef, offset: Lanes, t: str) -> str:
    """Load every second element, by two vectors: one that begins with the first element and one that ends with the last."""
    dtype, width = memref.type.dtype, e.width
    starts = (Lanes(offset.text), e.add(Lanes(offset.text), Lanes(str(width - 1))))
    parts = [e.let(f"load {t}, ptr {e.pointers(memref, start)}, align {dtype.bytes}") for start in starts]
    return _shuffled(e, parts, [2 * k if 2 * k < width else 2 * k + 1 for k in range(width)], t)


def is_interleaved(memref: MemRef, index: Sequence[Lanes]) -> bool:
    """Return whether an access has one constant index on a last axis of extent 2 and is contiguous along the axis before."""
    return memref.extents[-1:] == (Lanes("2"),) and len(index) > 1 and index[-1].literal in (0, 1)


def load_interleaved(e: FunctionWriter, memref: MemRef, index: Sequence[Lanes], t: str, mask: str | None) -> str:
    """Load one of two interleaved vectors, in the lanes of the mask.

    The same loads serve both vectors, so that code that uses both loads once.
    """
    dtype, width, part_index = memref.type.dtype, e.width, index[-1].literal or 0
    start = Lanes(e.offset(memref, [*index[:-1], Lanes("0")]).text)
    pointers = [e.pointers(memref, start if not k else e.add(start, Lanes(str(width)))) for k in range(2)]
    if mask is None:
        parts = [e.let(f"load {t}, ptr {pointer}, align {dtype.bytes}") for pointer in pointers]
    else:
        c = vector_of("i1", width)
        parts = []
        for k, pointer in enumerate(pointers):
            order = ", ".join(f"i32 {(k * width + lane) // 2}" for lane in range(width))
            pair_mask = e.let(f"shufflevector {c} {mask}, {c} poison, <{width} x i32> <{order}>")
            operands = [("ptr", pointer), ("i32", str(dtype.bytes)), (c, pair_mask), (t, "zeroinitializer")]
            parts.append(e.intrinsic(t, f"llvm.masked.load.{mangled(stored(dtype), width)}.p0", operands))
    return _shuffled(e, parts, [2 * k + part_index for k in range(width)], t)


def _shuffled(e: FunctionWriter, parts: Sequence[str], order: Sequence[int], t: str) -> str:
    """Return elements of two vectors in the given order."""
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.let(f"shufflevector {t} {parts[0]}, {t} {parts[1]}, <{len(order)} x i32> <{mask}>")


def are_pair(e: FunctionWriter, i: Instruction, after: Instruction) -> bool:
    """Return whether two stores of full vectors fill the two interleaved parts of a last axis."""
    if e.width == 1 or e.mask is not None or not isinstance(i.op, Store) or after.op is not i.op or i.op.masked:
        return False
    ref, *index = i.operands[1:]
    other, *next_index = after.operands[1:]
    if ref is not other or not index or index[:-1] != next_index[:-1] or e.memrefs[ref].extents[-1:] != (Lanes("2"),):
        return False
    memref, lanes = e.memrefs[ref], [e.env[v] for v in index]
    ends = lanes[-1].literal, e.env[next_index[-1]].literal
    return ends == (0, 1) and not memref.strides and not memref.type.dtype.is_bool and _step_of(e, memref, lanes) == 2


def _step_of(e: FunctionWriter, memref: MemRef, index: Sequence[Lanes]) -> int | None:
    """Return the distance in elements from lane to lane; None if an axis other than the second to last varies."""
    *outer, inner, last = index if len(index) > 1 else (*index, Lanes("0"), Lanes("0"))
    if any(not i.is_scalar for i in (*outer, last)) or inner.step is None:
        return None
    return inner.step * (memref.extents[-1].literal or 0)


def store_pair(e: FunctionWriter, i: Instruction, after: Instruction) -> None:
    """Store two interleaved vectors as two contiguous vectors."""
    memref, width = e.memrefs[i.operands[1]], e.width
    dtype = memref.type.dtype
    t = vector_of(stored(dtype), width)
    offset = e.offset(memref, [e.env[v] for v in i.operands[2:]])
    parts = [e.vector(e.env[s.operands[0]], dtype) for s in (i, after)]
    order = [k // 2 + (k % 2) * width for k in range(2 * width)]
    for first in (0, width):
        text = _shuffled(e, parts, order[first : first + width], t)
        pointer = e.pointers(memref, e.add(Lanes(offset.text), Lanes(str(first))))
        e.line(f"store {t} {text}, ptr {pointer}, align {dtype.bytes}")


def repeated_position(e: FunctionWriter, i: Instruction, operands: Sequence[Lanes]) -> Lanes | None:
    """Return a repeated position (``i & mask`` or ``i >> shift`` of the loop's index) as lanes; None for other values.

    Vectors begin at multiples of their width.
    """
    if e.width == 1 or e.index is None or i.operands[0] is not e.index:
        return None
    literal = operands[1].literal if len(operands) == 2 else None
    if literal is None or literal < 0:
        return None
    if i.op.name == "bitand" and literal & (literal + 1) == 0 and literal < e.width:
        return Lanes("0", None, tuple(k & literal for k in range(e.width)))
    if i.op.name == "raw_shr" and 1 << literal <= e.width:
        first = e.let(f"ashr i64 {operands[0].text}, {literal}")
        return Lanes(first, None, tuple(k >> literal for k in range(e.width)))
    return None


def load_repeated(e: FunctionWriter, memref: MemRef, offset: Lanes, t: str) -> str:
    """Load the elements at a repeated position."""
    name, count = stored(memref.type.dtype), max(offset.per_lane) + 1
    part = f"<{count} x {name}>"
    loaded = e.let(f"load {part}, ptr {e.pointers(memref, Lanes(offset.text))}, align {memref.type.dtype.bytes}")
    order = ", ".join(f"i32 {k}" for k in offset.per_lane)
    return e.let(f"shufflevector {part} {loaded}, {part} poison, <{e.width} x i32> <{order}>")
