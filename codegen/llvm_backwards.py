"""Memory that is walked from its end: read and written as whole vectors, whose lanes are turned round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes, mangled, stored, wide
from pullback.codegen.llvm_addresses import lowest

if TYPE_CHECKING:
    from pullback.codegen.llvm_accesses import Accesses, Place


def load_backwards(e: Accesses, place: Place, offset: Lanes, mask: str | None, is_guarded: bool) -> str:
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


def store_backwards(e: Accesses, text: str, place: Place, offset: Lanes, mask: str | None) -> None:
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


def _turned(e: Accesses, text: str, t: str) -> str:
    lanes = ", ".join(f"i32 {k}" for k in reversed(range(e.width)))
    return e.let(f"shufflevector {t} {text}, {t} poison, <{e.width} x i32> <{lanes}>")
