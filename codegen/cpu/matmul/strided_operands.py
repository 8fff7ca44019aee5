"""Strided operands of matrix products, which turn out at run time to have contiguous rows or contiguous columns.

One of two functions packs such an operand. The panels are the same, and so is the order of additions, which follows the
operand's region as if it were dense. Operands of plain products that have neither are copied by a function shared by all
kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import FEW, MOST_CHUNKS, RowsAt, ceil_div_by, constant, floor_div, loop
from pullback.codegen.cpu.loops.tile_transposes import copied_nest, transposes
from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED


@dataclass(frozen=True)
class StridedRows:
    """The memory of a strided reference with contiguous rows or columns, from its first element on."""

    ref: Value

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        """Return a reference to that memory; ``row`` and ``column`` are 0."""
        rows = b.emit(OPS["row_view"], (self.ref,), {"transposed": False})[0]
        return b.emit(OPS["ref_at"], (rows, row, column), {})[0]

    def stride(self, b: Builder) -> Value:
        """Return the stride between rows, or between columns, in elements."""
        rows, columns = (b.emit(OPS["stride"], (self.ref,), {"axis": axis})[0] for axis in (0, 1))
        size = self.ref.type.dtype.bytes
        stride: Value = b.raw_shr(b.select(self.has_columns(b), columns, rows), constant(b, size.bit_length() - 1))
        return stride

    def has_columns(self, b: Builder) -> Value:
        """Return whether columns and not rows are contiguous."""
        column_stride = b.emit(OPS["stride"], (self.ref,), {"axis": 1})[0]
        result: Value = b.ne(column_stride, constant(b, self.ref.type.dtype.bytes))
        return result


def loading(rows: RowsAt, is_transposed: bool) -> Block:
    """Build the region of an operand that is loaded by rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    return b.block(at, [b.load(rows.ref, *rows.index(b, *(reversed(at) if is_transposed else at)))])


WORTH = 1 << 17
"""Elements of a copy from which another thread pays for itself."""
ROWS = 64
"""Each thread copies a multiple of this many rows."""


def expand_copy(b: Builder, i: Instruction, functions: dict[str, Instruction]) -> bool:
    """Expand a loop that copies a strided matrix into calls of a shared function; return False for any other loop."""
    nest = copied_nest(i)
    if nest is None or nest[0].operands[1] is not i.regions[0].parameters[0]:
        return False
    load, store, columns = nest
    source, target, (count,) = load.operands[0], store.operands[1], i.operands
    name = f"copy_{source.type.dtype.name}"
    functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (_function(source.type.dtype),))
    zero, one = constant(b, 0), constant(b, 1)
    most = b.mul(b.emit(OPS["threads"], (), {})[0], constant(b, MOST_CHUNKS))
    is_long = b.ge(b.mul(count, columns), constant(b, WORTH))
    size = b.maximum(b.select(is_long, ceil_div_by(b, count, most), count), one)
    size = b.mul(b.add(floor_div(b, b.sub(size, one), ROWS), one), constant(b, ROWS))
    chunks = ceil_div_by(b, count, size)
    chunks = b.select(b.gt(chunks, one), b.maximum(chunks, constant(b, FEW)), chunks)

    def chunk(b: Builder, c: Value) -> None:
        first = b.mul(c, size)
        to = b.emit(OPS["ref_at"], (target, zero, zero), {})[0]
        arguments = source, to, columns, first, b.minimum(size, b.sub(count, first))
        b.emit(OPS["call"], arguments, {"function": name})

    loop(b, chunks, chunk, map="core")
    return True


@functools.cache
def _function(dtype: DType) -> Block:
    """Build the function that copies some rows."""
    source, to = Value(RefType(dtype, (UNBOUNDED, UNBOUNDED), "strided"), "from"), Value(RefType(dtype, (UNBOUNDED,)), "to")
    columns, first, count = (Value(scalar(I64), name) for name in ("columns", "first", "count"))
    b, outer, inner = Builder(), Builder(), Builder()
    target = b.emit(OPS["ref_at"], (to, constant(b, 0), columns), {})[0]
    row, column = Value(scalar(I64), "i"), Value(scalar(I64), "j")
    at = outer.add(first, row)
    inner.store(inner.load(source, at, column), target, at, column)
    outer.emit(OPS["for"], (columns,), {}, [inner.block([column], [])])
    b.emit(OPS["for"], (count,), {}, [outer.block([row], [])])
    return transposes(b.block([source, to, columns, first, count], []))


SMALL = 1 << 25
"""Multiplications up to which a product is small. OpenBLAS has separate kernels for small products on machines with vectors of
``WIDEST`` bytes, whose bits depend on the transposition flags."""


def expand_strided_or_copy(
    b: Builder,
    i: Instruction,
    is_generated: Value | None,
    extents: Sequence[Value],
    machine: Target,
    in_rows: Value | None = None,
) -> None:
    """Expand ``strided_or_copy``: select the strided operand in place or a dense copy. ``is_generated``: whether generated
    code computes the product of the extents (rows, K, columns); None if the library does. ``in_rows``: whether contiguous
    columns do not serve."""
    ref, copy = i.operands
    counts = [b.emit(OPS["extent"], (), {"size": e})[0] for e in ref.type.shape]
    rows, columns = (b.emit(OPS["stride"], (ref,), {"axis": axis})[0] for axis in (0, 1))
    one = b.const(ref.type.dtype.bytes, I64)
    has_rows = b.eq(columns, one)
    stride, extent = b.select(has_rows, rows, columns), b.select(has_rows, counts[1], counts[0])
    is_aligned = b.eq(b.bitand(stride, b.const(ref.type.dtype.bytes - 1, I64)), b.const(0, I64))
    is_in_place = b.bitand(b.bitor(has_rows, b.eq(rows, one)), b.bitand(is_aligned, b.ge(stride, b.mul(extent, one))))
    m, k, n = extents
    small = SMALL if machine.vector_bytes == WIDEST else 0
    allows_columns = b.bitor(has_rows, b.gt(b.mul(b.mul(m, k), n), b.const(small, I64)))
    fits = b.bitand(is_in_place, allows_columns if is_generated is None else b.bitor(is_generated, allows_columns))
    if in_rows is not None:
        fits = b.bitand(fits, b.bitor(has_rows, b.bitnot(in_rows)))

    row, column, inner, outer = Value(scalar(I64), "i"), Value(scalar(I64), "j"), Builder(b.loc), Builder(b.loc)
    inner.store(inner.load(ref, row, column), copy, row, column)
    outer.emit(OPS["for"], (counts[1],), {}, [inner.block([column], [])])
    b.emit(OPS["for"], (b.select(fits, b.const(0, I64), counts[0]),), {}, [outer.block([row], [])])
    b.append(Instruction(OPS["select_ref"], (fits, ref, copy), i.results, {}, (), i.loc))
