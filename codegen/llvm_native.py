"""Calls of native functions in emitted LLVM code: the loops of NumPy's and SciPy's ufuncs, and BLAS.

Their addresses are arguments of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.codegen.lanes import element, literal, wide
from pullback.ir.structure import Instruction
from pullback.ir.types import DType

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter


def native(e: Emitter, *what: object) -> str:
    if what not in e.natives:
        e.natives[what] = e.argument(*what)
    return e.natives[what]


def ufunc(e: Emitter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """A call of a ufunc's loop on all lanes, through the stack."""
    letter = "f" if dtype.name == "f32" else "d"
    types = f"{letter * len(texts)}->{letter}"
    function, data = (native(e, "ufunc", name, types, part) for part in ("function", "data"))
    t = wide(element(dtype), width)
    buffers = [e.slot(t) for _ in range(len(texts) + 1)]
    pointers, steps, count = e.slot(f"[{len(buffers)} x ptr]"), e.slot(f"[{len(buffers)} x i64]"), e.slot("i64")
    for text, buffer in zip(texts, buffers, strict=False):
        e.line(f"store {t} {text}, ptr {buffer}")
    for k, buffer in enumerate(buffers):
        e.line(f"store ptr {buffer}, ptr {e.let(f'getelementptr ptr, ptr {pointers}, i64 {k}')}")
        e.line(f"store i64 {dtype.bytes}, ptr {e.let(f'getelementptr i64, ptr {steps}, i64 {k}')}")
    e.line(f"store i64 {width}, ptr {count}")
    callee, context = (e.let(f"inttoptr i64 {v} to ptr") for v in (function, data))
    e.line(f"call void {callee}(ptr {pointers}, ptr {count}, ptr {steps}, ptr {context})")
    return e.let(f"load {t}, ptr {buffers[-1]}")


def slow(e: Emitter, texts: list[str], dtype: DType, width: int, function: str) -> str:
    """The quick result, unless some lane is slow: then those lanes are NumPy's."""
    t, c = wide(element(dtype), width), wide("i1", width)
    result = e.slot(t)
    e.line(f"store {t} {texts[1]}, ptr {result}")
    condition = texts[0]
    if width > 1:
        condition = e.intrinsic("i1", f"llvm.vector.reduce.or.v{width}i1", [(c, texts[0])])
    e.count += 1
    slow, done = f"slow{e.count}", f"done{e.count}"
    e.line(f"br i1 {condition}, label %{slow}, label %{done}")
    e.label(slow)
    exact = ufunc(e, f"numpy.{function}", [texts[2]], dtype, width)
    e.line(f"store {t} {e.let(f'select {c} {texts[0]}, {t} {exact}, {t} {texts[1]}')}, ptr {result}")
    e.line(f"br label %{done}")
    e.label(done)
    return e.let(f"load {t}, ptr {result}")


def gemm(e: Emitter, i: Instruction) -> None:
    """BLAS is column-major: c^T = op(b)^T op(a)^T."""
    a, b, c = (e.places[v] for v in i.operands)
    dtype = c.type.dtype
    ta, tb = i.params["ta"], i.params["tb"]
    rows, columns = c.extents
    summed = a.extents[0 if ta else 1]
    numbers = [int32(e, v.text) for v in (columns, rows, summed)]
    leads = [int32(e, at_least_one(e, p.extents[1].text)) for p in (b, a, c)]
    t = element(dtype)
    one, zero, plain, crossed = e.slot(t), e.slot(t), e.slot("i8"), e.slot("i8")
    e.line(f"store {t} {literal(1, dtype)}, ptr {one}")
    e.line(f"store {t} {literal(0, dtype)}, ptr {zero}")
    e.line(f"store i8 {ord('N')}, ptr {plain}")
    e.line(f"store i8 {ord('T')}, ptr {crossed}")
    name = {"f64": "blas.dgemm", "f32": "blas.sgemm"}[dtype.name]
    callee = e.let(f"inttoptr i64 {native(e, 'blas', name)} to ptr")
    arguments = [crossed if tb else plain, crossed if ta else plain, *numbers, one, b.pointer, leads[0], a.pointer, leads[1]]
    arguments += [zero, c.pointer, leads[2]]
    e.line(f"call void {callee}({', '.join(f'ptr {p}' for p in arguments)})")


def at_least_one(e: Emitter, text: str) -> str:
    return e.intrinsic("i64", "llvm.smax.i64", [("i64", text), ("i64", "1")])


def int32(e: Emitter, text: str) -> str:
    slot = e.slot("i32")
    e.line(f"store i32 {e.let(f'trunc i64 {text} to i32')}, ptr {slot}")
    return slot
