"""Calls of NumPy's pocketfft in emitted LLVM code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.codegen.lanes import element, literal
from pullback.codegen.llvm_native import stored
from pullback.ir.ops.library import Library
from pullback.ir.structure import Instruction

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter


def fourier_lines(e: Emitter, i: Instruction) -> None:
    """A call of a loop of pocketfft, a generalized ufunc of values, a factor (1) and results: ``(n),()->(m)``."""
    places, routine, axis = [e.places[v] for v in i.operands], i.params["routine"], i.params["axis"]
    dtype = places[0].type.dtype
    real, whole = ("f", "F") if dtype.name == "f32" else ("d", "D")
    letters = (real if routine[0] == "r" else whole, real if routine == "irfft" else whole)
    kind = f"{letters[0]}{real}->{letters[1]}"
    assert isinstance(i.op, Library)
    function, data = (e.native("ufunc", i.op.routine.format(routine), kind, part) for part in ("function", "data"))
    lengths, across, along, count = [], [], [], "1"
    for place, letter in zip(places, letters, strict=True):
        extents = [x.text for x in place.extents[: place.type.rank - (letter == whole)]]
        size = str(dtype.bytes * (2 if letter == whole else 1))
        is_first, count = axis == 0 and len(extents) > 1, "1"
        for extent in extents[1:] if is_first else extents[:-1]:
            count = e.let(f"mul i64 {count}, {extent}")
        lengths.append(extents[axis])
        across.append(size if is_first else e.let(f"mul i64 {extents[axis]}, {size}"))
        along.append(e.let(f"mul i64 {count}, {size}") if is_first else size)
    one = stored(e, element(dtype), literal(1.0, dtype))
    pointers = table(e, "ptr", [places[0].pointer, one, places[1].pointer])
    dimensions = table(e, "i64", [count, *lengths])
    steps = table(e, "i64", [across[0], "0", across[1], *along])
    callee, context = (e.let(f"inttoptr i64 {v} to ptr") for v in (function, data))
    e.line(f"call void {callee}(ptr {pointers}, ptr {dimensions}, ptr {steps}, ptr {context})")


def table(e: Emitter, t: str, texts: list[str]) -> str:
    """Values side by side on the stack; their address."""
    slot = e.slot(f"[{len(texts)} x {t}]")
    for k, text in enumerate(texts):
        e.line(f"store {t} {text}, ptr {e.let(f'getelementptr {t}, ptr {slot}, i64 {k}')}")
    return slot
