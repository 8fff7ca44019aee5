"""Look-ups in small tables of constants in emitted LLVM code.

Vectors that fill a register of x86 permute tables of one or two registers by the index. Where a register holds four doubles, a
table takes four, and a permutation moves words of half a double: look-ups by the same index read pairs of two tables instead, one
a lane. Anything else reads memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import element, literal, mangled, splat, wide
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import F64, DType
from pullback.ir.core.value import Value

LANES, PAIR, LEAST_TABLES = 4, 2, 3
"""Doubles in a register of 32 bytes, in one of 16, and from how many tables on pairs of them are read."""


def lookup(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType, width: int) -> str:
    """The values at the low bits of ``index``, which holds ``width`` integers of the dtype ``of``."""
    register = width * dtype.bytes
    if dtype.is_float and of.bits == dtype.bits >= 32 and register <= e.target.vector_bytes and len(values) * dtype.bytes <= 128:
        repeated = [*values] * max(1, register // (len(values) * dtype.bytes))
        if register == 64 and len(repeated) <= 2 * width:
            return _permuted(e, index, of, repeated, dtype)
        if register == 32 and len(repeated) <= (4 if dtype.bits == 64 else 2) * width:
            return _permuted_by_words(e, index, of, repeated, dtype)
    return _read(e, index, of, values, dtype, width)


def pairs_of(block: Block) -> dict[Value, Sequence[Instruction]]:
    """The look-ups of doubles in a block by the same index, in order, two at a time; by the result of each."""
    by_index: dict[tuple[Value, int], list[Instruction]] = {}
    for i in block.instructions:
        if i.op.name == "lookup" and i.params["dtype"] is F64:
            by_index.setdefault((i.operands[0], len(i.params["values"])), []).append(i)
    found: dict[Value, Sequence[Instruction]] = {}
    for same in by_index.values():
        for start in range(0, len(same) if len(same) >= LEAST_TABLES else 0, PAIR):
            pair = same[start : start + PAIR]
            found.update((i.result, pair) for i in pair)
    return found


def lookup_pair(e: FunctionWriter, index: str, of: DType, tables: Sequence[Sequence[float]]) -> list[str]:
    """The values of one or two tables at the low bits of ``index``, which holds four integers."""
    u, row, t = wide(element(of), LANES), wide("double", PAIR), wide("double", LANES)
    pairs = list(zip(*tables, strict=True)) if len(tables) == PAIR else [(v, 0.0) for v in tables[0]]
    name = _table(e, row, [_constant(pair, F64) for pair in pairs], PAIR * F64.bytes)
    low = e.let(f"and {u} {index}, {_splat(len(pairs) - 1, of, LANES)}")
    offsets = e.let(f"mul {u} {low}, {_splat(PAIR * F64.bytes, of, LANES)}")
    read = []
    for lane in range(LANES):
        offset = e.let(f"extractelement {u} {offsets}, i32 {lane}")
        read.append(e.let(f"load {row}, ptr {e.let(f'getelementptr i8, ptr {name}, i64 {offset}')}, align {PAIR * F64.bytes}"))

    def mixed(of: str, a: str, b: str, *lanes: int) -> str:
        return e.let(f"shufflevector {of} {a}, {of} {b}, <{LANES} x i32> <{', '.join(f'i32 {k}' for k in lanes)}>")

    even, odd = (mixed(row, read[k], read[k + 2], 0, 1, 2, 3) for k in range(PAIR))
    return [mixed(t, even, odd, k, k + LANES, k + PAIR, k + PAIR + LANES) for k in range(len(tables))]


def _table(e: FunctionWriter, t: str, rows: Sequence[str], align: int) -> str:
    """The name of a constant array, written once."""
    name = e.constants.setdefault((t, *rows), f"@table{len(e.constants)}.{e.name}")
    elements = ", ".join(f"{t} {row}" for row in rows)
    e.declared[f"{name} = private unnamed_addr constant [{len(rows)} x {t}] [{elements}], align {align}"] = None
    return name


def _constant(values: Sequence[float], dtype: DType) -> str:
    return "<" + ", ".join(f"{element(dtype)} {literal(v, dtype)}" for v in values) + ">"


def _splat(value: int, dtype: DType, width: int) -> str:
    return splat(element(dtype), str(value), width)


def _permuted(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType) -> str:
    """One or two registers of 64 bytes."""
    width = 64 // dtype.bytes
    t, u = wide(element(dtype), width), wide(element(of), width)
    tables = [(t, _constant(values[k : k + width], dtype)) for k in range(0, len(values), width)]
    if len(tables) == 1:
        return e.intrinsic(t, f"llvm.x86.avx512.permvar.{'df' if dtype.bits == 64 else 'sf'}.512", [tables[0], (u, index)])
    suffix = "pd" if dtype.bits == 64 else "ps"
    return e.intrinsic(t, f"llvm.x86.avx512.vpermi2var.{suffix}.512", [tables[0], (u, index), tables[1]])


def _permuted_by_words(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType) -> str:
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


def _read(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType, width: int) -> str:
    name, u = element(dtype), wide(element(of), width)
    table = _table(e, name, [literal(v, dtype) for v in values], dtype.bytes)
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
