"""Emit vector loads and stores of access patterns that are not contiguous.

- Reversed: memory that is accessed from its end is loaded and stored as whole vectors with reversed lanes.
- Interleaved: if one component of contiguous rows of constant length is accessed, such as the real parts of complex numbers or
  a channel of an image, whole vectors are loaded and stored, and shuffled.
- Repeated: if lanes share an index (the loop variable modulo a power of two or divided by one), a part of a vector is loaded
  and its elements are distributed to the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    order = ", ".join(f"i32 {2 * k if 2 * k < width else 2 * k + 1}" for k in range(width))
    return e.let(f"shufflevector {t} {parts[0]}, {t} {parts[1]}, <{width} x i32> <{order}>")


MOST_COMPONENTS = 16
"""Greatest number of elements of a row whose components are loaded and stored by whole vectors and shuffles."""


class Component(NamedTuple):
    """A position in contiguous rows of ``length`` elements, which are the last ``axes`` axes of an array."""

    length: int
    position: int
    axes: int


def component_of(memref: MemRef, index: Sequence[Lanes]) -> Component | None:
    """Return the component that an access reads or writes in consecutive rows, one a lane; None if it has no such form. The
    extents of the axes of a row are constants, and so are the indices along them."""
    axis, count, position = len(index), 1, 0
    while axis and (at := index[axis - 1].literal) is not None and (extent := memref.extents[axis - 1].literal) is not None:
        if not 0 <= at < extent:
            return None
        position += at * count
        count *= extent
        axis -= 1
    if not axis or index[axis - 1].step != 1 or not all(i.is_scalar for i in index[: axis - 1]) or memref.strides:
        return None
    return Component(count, position, len(index) - axis) if 1 < count <= MOST_COMPONENTS else None


def load_interleaved(
    e: FunctionWriter, memref: MemRef, index: Sequence[Lanes], t: str, mask: str | None, component: Component
) -> str:
    """Load one component of contiguous rows, in the lanes of the mask. The same loads serve all components, so that code that
    uses several loads once."""
    dtype, count = memref.type.dtype, component.length
    start = e.pointers(memref, Lanes(e.offset(memref, _first_of_row(index, component)).text))
    key = f"rows of {count} {t} at {start} in {mask} after {e.write_count} writes"
    if key not in e.available:
        parts = []
        for k in range(count):
            pointer = e.let(f"getelementptr {stored(dtype)}, ptr {start}, i64 {k * e.width}") if k else start
            if mask is None:
                parts.append(e.let(f"load {t}, ptr {pointer}, align {dtype.bytes}"))
                continue
            operands = [("ptr", pointer), ("i32", str(dtype.bytes)), _mask_of_rows(e, mask, count, k), (t, "zeroinitializer")]
            parts.append(e.intrinsic(t, f"llvm.masked.load.{mangled(stored(dtype), e.width)}.p0", operands))
        e.available[key] = " ".join(_deinterleaved(e, parts, t))
    return e.available[key].split()[component.position]


def _first_of_row(index: Sequence[Lanes], component: Component) -> list[Lanes]:
    """Return the index of the first element of a row."""
    return [*index[: len(index) - component.axes], *[Lanes("0")] * component.axes]


def _mask_of_rows(e: FunctionWriter, mask: str, count: int, k: int) -> tuple[str, str]:
    """Return the mask of vector ``k`` of rows of ``count`` elements, from the mask of the rows, with its type."""
    c = vector_of("i1", e.width)
    order = ", ".join(f"i32 {(k * e.width + lane) // count}" for lane in range(e.width))
    return c, e.let(f"shufflevector {c} {mask}, {c} poison, <{e.width} x i32> <{order}>")


def _least_factor(count: int) -> int:
    """Return the least prime factor."""
    return next(p for p in range(2, count + 1) if count % p == 0)


def _deinterleaved(e: FunctionWriter, vectors: Sequence[str], t: str) -> list[str]:
    """Return the components of rows that consecutive vectors hold: component ``c`` of row ``r`` is element ``r * count + c``."""
    count, width = len(vectors), e.width
    if count == 1:
        return list(vectors)
    step = _least_factor(count)
    components = [""] * count
    for first in range(step):
        elements = [range(first + k * step * width, (k + 1) * step * width, step) for k in range(count // step)]
        every = [_picked(e, vectors, [divmod(n, width) for n in some], t) for some in elements]
        components[first::step] = _deinterleaved(e, every, t)
    return components


def _interleaved(e: FunctionWriter, components: Sequence[str], t: str) -> list[str]:
    """Return the consecutive vectors of rows with the given components."""
    count, width = len(components), e.width
    if count == 1:
        return list(components)
    step = _least_factor(count)
    every = [_interleaved(e, components[first::step], t) for first in range(step)]
    vectors = []
    for k in range(count):
        vector, part = divmod(k, step)
        order = [(n % step, n // step) for n in range(part * width, (part + 1) * width)]
        vectors.append(_picked(e, [sequence[vector] for sequence in every], order, t))
    return vectors


def _picked(e: FunctionWriter, vectors: Sequence[str], order: Sequence[tuple[int, int]], t: str) -> str:
    """Return a vector of elements of several vectors. ``order``: for each lane, a vector and a lane of it."""
    first, *others = sorted({k for k, _ in order})
    picked, lanes = vectors[first], [lane if k == first else None for k, lane in order]
    for other in others:
        lanes = [e.width + lane if k == other else at for (k, lane), at in zip(order, lanes, strict=True)]
        mask = ", ".join("i32 poison" if at is None else f"i32 {at}" for at in lanes)
        picked = e.let(f"shufflevector {t} {picked}, {t} {vectors[other]}, <{e.width} x i32> <{mask}>")
        lanes = [None if at is None else n for n, at in enumerate(lanes)]
    return picked


def interleaved_group(e: FunctionWriter, stores: Sequence[Instruction]) -> Sequence[Instruction]:
    """Return the first stores if they fill all components of contiguous rows, in order, else none."""
    first = stores[0]
    if e.width == 1 or not isinstance(first.op, Store) or first.op.masked or first in e.bases:
        return ()
    ref, *index = first.operands[1:]
    memref = e.memrefs[ref]
    component = component_of(memref, [e.env[v] for v in index])
    if component is None or component.position or 0 in memref.type.shape:
        return ()
    group = stores[: component.length]
    outer = [ref, *index[: len(index) - component.axes]]
    for position, i in enumerate(group):
        if i.op is not first.op or i in e.bases or [*i.operands[1 : len(outer) + 1]] != outer:
            return ()
        if component_of(memref, [e.env[v] for v in i.operands[2:]]) != component._replace(position=position):
            return ()
    return group if len(group) == component.length else ()


def store_interleaved(e: FunctionWriter, group: Sequence[Instruction]) -> None:
    """Store all components of rows as contiguous vectors."""
    memref = e.memrefs[group[0].operands[1]]
    dtype = memref.type.dtype
    t = vector_of(stored(dtype), e.width)
    start = e.pointers(memref, Lanes(e.offset(memref, [e.env[v] for v in group[0].operands[2:]]).text))
    components = [e.vector(e.env[i.operands[0]], dtype) for i in group]
    if dtype.is_bool:
        components = [e.let(f"zext {vector_of('i1', e.width)} {text} to {t}") for text in components]
    for k, text in enumerate(_interleaved(e, components, t)):
        pointer = e.let(f"getelementptr {stored(dtype)}, ptr {start}, i64 {k * e.width}") if k else start
        if e.mask is None:
            e.line(f"store {t} {text}, ptr {pointer}, align {dtype.bytes}")
            continue
        operands = [(t, text), ("ptr", pointer), ("i32", str(dtype.bytes)), _mask_of_rows(e, e.mask, len(group), k)]
        e.intrinsic("void", f"llvm.masked.store.{mangled(stored(dtype), e.width)}.p0", operands)


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
