"""Matrices that products read as they lie in memory: strided arguments by rows or by columns, which may be parts of longer ones.

Those that lie in another way are copied first: neither rows nor columns are neighbours in memory, or they overlap, or run
backwards. Which of this holds, the strides say when the kernel runs, so all layouts share it. For all of them calls give the same
bits: a library may have kernels of its own for small matrices that are transposed, so it gets copies of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction, Value
from pullback.ir.core.types import I64, RefType, scalar
from pullback.ir.ops.kernel.kernel import is_strided

SMALL = 1 << 25
"""Products of at most so many multiplications are small: OpenBLAS has kernels for them on machines with the ``WIDEST``
registers, by which bits go by letters."""


def lying_product(i: Instruction, layouts: Sequence[str], params: Mapping[str, Any]) -> Draft:
    """The kernel of a product of two matrices, of which some are strided; it has memory for their copies."""
    b = KernelBuilder()
    b.place = i.loc
    types = [RefType(v.type.dtype, v.type.shape) for v in (*i.operands, *i.results)]
    refs = [
        Value(RefType(t.dtype, b.shape(t.shape), layout), f"x{k}")
        for k, (t, layout) in enumerate(zip(types, (*layouts, "c"), strict=True))
    ]
    *operands, out = refs
    strided = {ref: t for ref, t in zip(operands, types, strict=False) if is_strided(ref)}
    copies = {ref: Value(RefType(ref.type.dtype, ref.type.shape), "copy") for ref in strided}
    given = [b.here("lying", ref, copies[ref]) if ref in copies else ref for ref in operands]
    b.here("gemm", *given, out, **params)
    return Draft(kernel=b.kernel([*refs, *copies.values()]), sizes=b.sizes(), scratch=tuple(strided.values()))


def spell_lying(
    b: Builder, i: Instruction, by_us: Value | None, extents: Sequence[Value], machine: Target, in_rows: Value | None = None
) -> None:
    """Append what a ``lying`` stands for. ``by_us``: whether the product of such rows, terms and columns is not a library's; None
    if it is a library's. ``in_rows``: whether columns do not serve."""
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
    b.append(Instruction(OPS["either"], (fits, ref, copy), i.results, {}, (), i.loc))
