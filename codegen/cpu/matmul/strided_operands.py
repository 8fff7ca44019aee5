"""Operands of a matrix product that lie in memory by rows or by columns, which shows when the kernel runs.

One of two functions packs it. What is in the panels is the same, and so is the order of additions: it goes by the region of the
operand, as if that were dense.

Operands of plain products that lie neither by rows nor by columns are copied by a function that kernels share.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import FEW, MOST_CHUNKS, RowsAt, loop, number, shared, whole
from pullback.codegen.cpu.loops.tile_transposes import copied_nest, transposes
from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR


@dataclass(frozen=True)
class Lying:
    """The memory of a strided reference that has rows or columns of neighbours, from its first element on."""

    ref: Value

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        """That memory; the row and the column are the first ones."""
        rows = b.emit(OPS["row_view"], (self.ref,), {"transposed": False})[0]
        return b.emit(OPS["ref_at"], (rows, row, column), {})[0]

    def apart(self, b: Builder) -> Value:
        """How many elements are from one row to the next, or from one column."""
        rows, columns = (b.emit(OPS["stride"], (self.ref,), {"axis": axis})[0] for axis in (0, 1))
        size = self.ref.type.dtype.bytes
        found: Value = b.raw_shr(b.select(self.has_columns(b), columns, rows), number(b, size.bit_length() - 1))
        return found

    def has_columns(self, b: Builder) -> Value:
        apart = b.emit(OPS["stride"], (self.ref,), {"axis": 1})[0]
        found: Value = b.ne(apart, number(b, self.ref.type.dtype.bytes))
        return found


def loading(rows: RowsAt, is_turned: bool) -> Block:
    """The region of an operand that lies in rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    return b.block(at, [b.load(rows.ref, *rows.index(b, *(reversed(at) if is_turned else at)))])


WORTH = 1 << 17
"""To copy so many elements is worth another thread."""
ROWS = 64
"""Threads copy a multiple of so many rows."""


def spell_copy(b: Builder, i: Instruction, functions: dict[str, Instruction]) -> bool:
    """Spell out a loop that copies a strided matrix; False if it does something else."""
    found = copied_nest(i)
    if found is None or found[0].operands[1] is not i.regions[0].parameters[0]:
        return False
    load, store, columns = found
    source, target, (count,) = load.operands[0], store.operands[1], i.operands
    name = f"copy_{source.type.dtype.name}"
    functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (_function(source.type.dtype),))
    zero, one = number(b, 0), number(b, 1)
    most = b.mul(b.emit(OPS["threads"], (), {})[0], number(b, MOST_CHUNKS))
    is_long = b.ge(b.mul(count, columns), number(b, WORTH))
    size = b.maximum(b.select(is_long, shared(b, count, most), count), one)
    size = b.mul(b.add(whole(b, b.sub(size, one), ROWS), one), number(b, ROWS))
    chunks = shared(b, count, size)
    chunks = b.select(b.gt(chunks, one), b.maximum(chunks, number(b, FEW)), chunks)

    def chunk(b: Builder, c: Value) -> None:
        first = b.mul(c, size)
        to = b.emit(OPS["ref_at"], (target, zero, zero), {})[0]
        given = source, to, columns, first, b.minimum(size, b.sub(count, first))
        b.emit(OPS["call"], given, {"function": name})

    loop(b, chunks, chunk, map="core")
    return True


@functools.cache
def _function(dtype: DType) -> Block:
    """The function of some rows."""
    source, to = Value(RefType(dtype, (FAR, FAR), "strided"), "from"), Value(RefType(dtype, (FAR,)), "to")
    columns, first, count = (Value(scalar(I64), name) for name in ("columns", "first", "count"))
    b, outer, inner = Builder(), Builder(), Builder()
    target = b.emit(OPS["ref_at"], (to, number(b, 0), columns), {})[0]
    row, column = Value(scalar(I64), "i"), Value(scalar(I64), "j")
    at = outer.add(first, row)
    inner.store(inner.load(source, at, column), target, at, column)
    outer.emit(OPS["for"], (columns,), {}, [inner.block([column], [])])
    b.emit(OPS["for"], (count,), {}, [outer.block([row], [])])
    return transposes(b.block([source, to, columns, first, count], []))


SMALL = 1 << 25
"""Products of at most so many multiplications are small: OpenBLAS has kernels for them on machines with the ``WIDEST``
registers, by which bits go by letters."""


def spell_lying(
    b: Builder, i: Instruction, by_us: Value | None, extents: Sequence[Value], machine: Target, in_rows: Value | None = None
) -> None:
    """Append the lowered form of a ``strided_or_copy``. ``by_us``: whether the product of such rows, terms and columns is not
    a library's; None if it is a library's. ``in_rows``: whether columns do not serve."""
    ref, copy = i.operands
    counts = [b.emit(OPS["extent"], (), {"size": e})[0] for e in ref.type.shape]
    rows, columns = (b.emit(OPS["stride"], (ref,), {"axis": axis})[0] for axis in (0, 1))
    one = b.const(ref.type.dtype.bytes, I64)
    has_rows = b.eq(columns, one)
    apart, long = b.select(has_rows, rows, columns), b.select(has_rows, counts[1], counts[0])
    is_whole = b.eq(b.bitand(apart, b.const(ref.type.dtype.bytes - 1, I64)), b.const(0, I64))
    lies = b.bitand(b.bitor(has_rows, b.eq(rows, one)), b.bitand(is_whole, b.ge(apart, b.mul(long, one))))
    m, k, n = extents
    small = SMALL if machine.vector_bytes == WIDEST else 0
    any_way = b.bitor(has_rows, b.gt(b.mul(b.mul(m, k), n), b.const(small, I64)))
    fits = b.bitand(lies, any_way if by_us is None else b.bitor(by_us, any_way))
    if in_rows is not None:
        fits = b.bitand(fits, b.bitor(has_rows, b.bitnot(in_rows)))

    row, column, inner, outer = Value(scalar(I64), "i"), Value(scalar(I64), "j"), Builder(b.loc), Builder(b.loc)
    inner.store(inner.load(ref, row, column), copy, row, column)
    outer.emit(OPS["for"], (counts[1],), {}, [inner.block([column], [])])
    b.emit(OPS["for"], (b.select(fits, b.const(0, I64), counts[0]),), {}, [outer.block([row], [])])
    b.append(Instruction(OPS["select_ref"], (fits, ref, copy), i.results, {}, (), i.loc))
