"""Emit lookups in small tables of constants.

Vectors that fill an x86 register permute tables of one or two registers by the index. A register of 32 bytes holds a table of
only four doubles, and the permutation moves words of half a double. There, lookups of doubles by the same index load pairs
from two interleaved tables, one pair per lane. All other lookups read memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import element, literal, mangled, splat, vector_of
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import F64, DType
from pullback.ir.core.value import Value

LANES, PAIR, LEAST_TABLES = 4, 2, 3
"""Doubles in a register of 32 bytes, doubles in a register of 16 bytes, and the least number of tables that are read in pairs."""


def lookup(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType, width: int) -> str:
    """Return the values at the low bits of ``index``, which holds ``width`` integers of the dtype ``of``."""
    register = width * dtype.bytes
    if dtype.is_float and of.bits == dtype.bits >= 32 and register <= e.target.vector_bytes and len(values) * dtype.bytes <= 128:
        repeated = [*values] * max(1, register // (len(values) * dtype.bytes))
        if register == 64 and len(repeated) <= 2 * width:
            return _permute(e, index, of, repeated, dtype)
        if register == 32 and len(repeated) <= (4 if dtype.bits == 64 else 2) * width:
            return _permute_words(e, index, of, repeated, dtype)
    return _load_from_table(e, index, of, values, dtype, width)


def pairs_of(block: Block) -> dict[Value, Sequence[Instruction]]:
    """Group the lookups of doubles by the same index in pairs, in order; return the pair of each result."""
    by_index: dict[tuple[Value, int], list[Instruction]] = {}
    for i in block.instructions:
        if i.op.name == "lookup" and i.params["dtype"] is F64:
            by_index.setdefault((i.operands[0], len(i.params["values"])), []).append(i)
    pairs: dict[Value, Sequence[Instruction]] = {}
    for same in by_index.values():
        for start in range(0, len(same) if len(same) >= LEAST_TABLES else 0, PAIR):
            pair = same[start : start + PAIR]
            pairs.update((i.result, pair) for i in pair)
    return pairs


def lookup_pair(e: FunctionWriter, index: str, of: DType, tables: Sequence[Sequence[float]]) -> list[str]:
    """Return the values of one or two tables at the low bits of ``index``, which holds four integers."""
    u, row, t = vector_of(element(of), LANES), vector_of("double", PAIR), vector_of("double", LANES)
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
    """Return the name of a constant array, emitted once."""
    name = e.constants.setdefault((t, *rows), f"@table{len(e.constants)}.{e.name}")
    elements = ", ".join(f"{t} {row}" for row in rows)
    e.declared[f"{name} = private unnamed_addr constant [{len(rows)} x {t}] [{elements}], align {align}"] = None
    return name


def _constant(values: Sequence[float], dtype: DType) -> str:
    """Return a constant vector."""
    return "<" + ", ".join(f"{element(dtype)} {literal(v, dtype)}" for v in values) + ">"


def _splat(value: int, dtype: DType, width: int) -> str:
    return splat(element(dtype), str(value), width)


def _permute(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType) -> str:
    """Emit a permutation of one or two registers of 64 bytes."""
    width = 64 // dtype.bytes
    t, u = vector_of(element(dtype), width), vector_of(element(of), width)
    tables = [(t, _constant(values[k : k + width], dtype)) for k in range(0, len(values), width)]
    if len(tables) == 1:
        return e.intrinsic(t, f"llvm.x86.avx512.permvar.{'df' if dtype.bits == 64 else 'sf'}.512", [tables[0], (u, index)])
    suffix = "pd" if dtype.bits == 64 else "ps"
    return e.intrinsic(t, f"llvm.x86.avx512.vpermi2var.{suffix}.512", [tables[0], (u, index), tables[1]])


def _permute_words(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType) -> str:
    """Emit permutations by words of 4 bytes of one or two registers of 32 bytes per half of ``values``, and select between
    them."""
    width = 32 // dtype.bytes
    t, u, words = vector_of(element(dtype), width), vector_of(element(of), width), "<8 x i32>"
    word_index = index
    if dtype.bits == 64:
        low = e.let(f"and {u} {index}, {_splat(3, of, width)}")
        twice = e.let(f"mul {u} {low}, {_splat(2 * (1 + 2**32), of, width)}")
        word_index = e.let(f"bitcast {u} {e.let(f'add {u} {twice}, {_splat(2**32, of, width)}')} to {words}")
    permutations = []
    for start in range(0, len(values), width):
        table = e.let(f"bitcast {t} {_constant(values[start : start + width], dtype)} to <8 x float>")
        permuted = e.intrinsic("<8 x float>", "llvm.x86.avx2.permps", [("<8 x float>", table), (words, word_index)])
        permutations.append(e.let(f"bitcast <8 x float> {permuted} to {t}"))
    bit = width
    while len(permutations) > 1:
        lifted = e.let(f"shl {u} {index}, {_splat(of.bits - bit.bit_length(), of, width)}")
        upper = e.let(f"icmp slt {u} {lifted}, zeroinitializer")
        permutations = [
            e.let(f"select {vector_of('i1', width)} {upper}, {t} {high}, {t} {low}")
            for low, high in zip(permutations[::2], permutations[1::2], strict=True)
        ]
        bit *= 2
    return permutations[0]


def _load_from_table(e: FunctionWriter, index: str, of: DType, values: Sequence[float], dtype: DType, width: int) -> str:
    """Emit a load or gather from a table in memory."""
    name, u = element(dtype), vector_of(element(of), width)
    table = _table(e, name, [literal(v, dtype) for v in values], dtype.bytes)
    masked_index = e.let(f"and {u} {index}, {_splat(len(values) - 1, of, width)}")
    if of.bits < 64:
        masked_index = e.let(f"zext {u} {masked_index} to {vector_of('i64', width)}")
    pointers = e.let(f"getelementptr {name}, ptr {table}, {vector_of('i64', width)} {masked_index}")
    if width == 1:
        return e.let(f"load {name}, ptr {pointers}")
    t, p, c = vector_of(name, width), vector_of("ptr", width), vector_of("i1", width)
    return e.intrinsic(
        t, f"llvm.masked.gather.{mangled(name, width)}.v{width}p0",
        [(p, pointers), ("i32", str(dtype.bytes)), (c, splat("i1", "true", width)), (t, "zeroinitializer")],
    )  # fmt: skip
