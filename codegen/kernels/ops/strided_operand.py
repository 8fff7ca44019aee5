"""Matrices that products read as they lie in memory: strided arguments by rows or by columns, which may be parts of longer ones.

Those that lie in another way are copied first: neither rows nor columns are neighbours in memory, or they overlap, or run
backwards. Which of this holds, the strides say when the kernel runs, so all layouts share it. For all of them calls give the same
bits: a library may have kernels of its own for small matrices that are transposed, so it gets copies of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import is_strided


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
    given = [b.here("strided_or_copy", ref, copies[ref]) if ref in copies else ref for ref in operands]
    b.here("gemm", *given, out, **params)
    return Draft(kernel=b.kernel([*refs, *copies.values()]), sizes=b.sizes(), scratch=tuple(strided.values()))
