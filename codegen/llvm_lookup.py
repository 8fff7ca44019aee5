"""Look-ups in small tables of constants in emitted LLVM code.

Vectors that fill a register of x86 permute tables of one or two registers by the index. Anything else reads memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.codegen.lanes import element, literal, mangled, splat, wide
from pullback.ir.types import DType

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter


def lookup(e: Emitter, index: str, of: DType, values: Sequence[float], dtype: DType, width: int) -> str:
    """The values at the low bits of ``index``, which holds ``width`` integers of the dtype ``of``."""
    register = width * dtype.bytes
    if dtype.is_float and of.bits == dtype.bits >= 32 and register <= e.vector_bytes and len(values) * dtype.bytes <= 128:
        repeated = [*values] * max(1, register // (len(values) * dtype.bytes))
        if register == 64 and len(repeated) <= 2 * width:
            return _permuted(e, index, of, repeated, dtype)
        if register == 32 and len(repeated) <= (4 if dtype.bits == 64 else 2) * width:
            return _permuted_by_words(e, index, of, repeated, dtype)
    return _read(e, index, of, values, dtype, width)


def _constant(values: Sequence[float], dtype: DType) -> str:
    return "<" + ", ".join(f"{element(dtype)} {literal(v, dtype)}" for v in values) + ">"


def _splat(value: int, dtype: DType, width: int) -> str:
    return splat(element(dtype), str(value), width)


def _permuted(e: Emitter, index: str, of: DType, values: Sequence[float], dtype: DType) -> str:
    """One or two registers of 64 bytes."""
    width = 64 // dtype.bytes
    t, u = wide(element(dtype), width), wide(element(of), width)
    tables = [(t, _constant(values[k : k + width], dtype)) for k in range(0, len(values), width)]
    if len(tables) == 1:
        return e.intrinsic(t, f"llvm.x86.avx512.permvar.{'df' if dtype.bits == 64 else 'sf'}.512", [tables[0], (u, index)])
    suffix = "pd" if dtype.bits == 64 else "ps"
    return e.intrinsic(t, f"llvm.x86.avx512.vpermi2var.{suffix}.512", [tables[0], (u, index), tables[1]])


def _permuted_by_words(e: Emitter, index: str, of: DType, values: Sequence[float], dtype: DType) -> str:
    """One or two registers of 32 bytes for each half of ``values``, permuted by words of 4 bytes."""
    width = 32 // dtype.bytes
    t, u, words = wide(element(dtype), width), wide(element(of), width), "<8 x i32>"
    place = index
    if dtype.bits == 64:
        low = e.let(f"and {u} {index}, {_splat(3, of, width)}")
        twice = e.let(f"mul {u} {low}, {_splat(2 * (1 + 2**32), of, width)}")
        place = e.let(f"bitcast {u} {e.let(f'add {u} {twice}, {_splat(2**32, of, width)}')} to {words}")
    found = []
    for start in range(0, len(values), width):
        table = e.let(f"bitcast {t} {_constant(values[start : start + width], dtype)} to <8 x float>")
        permuted = e.intrinsic("<8 x float>", "llvm.x86.avx2.permps", [("<8 x float>", table), (words, place)])
        found.append(e.let(f"bitcast <8 x float> {permuted} to {t}"))
    bit = width
    while len(found) > 1:
        lifted = e.let(f"shl {u} {index}, {_splat(of.bits - bit.bit_length(), of, width)}")
        upper = e.let(f"icmp slt {u} {lifted}, zeroinitializer")
        found = [
            e.let(f"select {wide('i1', width)} {upper}, {t} {high}, {t} {low}")
            for low, high in zip(found[::2], found[1::2], strict=True)
        ]
        bit *= 2
    return found[0]


def _read(e: Emitter, index: str, of: DType, values: Sequence[float], dtype: DType, width: int) -> str:
    name, u = element(dtype), wide(element(of), width)
    table = e.constants.setdefault((dtype.name, *values), f"@table{len(e.constants)}.{e.name}")
    numbers = ", ".join(f"{name} {literal(v, dtype)}" for v in values)
    e.declared[f"{table} = private unnamed_addr constant [{len(values)} x {name}] [{numbers}]"] = None
    place = e.let(f"and {u} {index}, {_splat(len(values) - 1, of, width)}")
    if of.bits < 64:
        place = e.let(f"zext {u} {place} to {wide('i64', width)}")
    pointers = e.let(f"getelementptr {name}, ptr {table}, {wide('i64', width)} {place}")
    if width == 1:
        return e.let(f"load {name}, ptr {pointers}")
    t, p, c = wide(name, width), wide("ptr", width), wide("i1", width)
    return e.intrinsic(
        t, f"llvm.masked.gather.{mangled(name, width)}.v{width}p0",
        [(p, pointers), ("i32", str(dtype.bytes)), (c, splat("i1", "true", width)), (t, "zeroinitializer")],
    )  # fmt: skip
