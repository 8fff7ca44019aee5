"""Matrix products that read strided arguments directly: matrices with contiguous rows or columns, which may be parts of larger
ones.

Matrices with other strides are copied first: neither rows nor columns are contiguous, or they overlap, or run backwards. The
kernel checks the strides when it runs, so one kernel serves all layouts. Calls return the same bits for all layouts: a library
may have kernels of its own for small transposed matrices, so these are copied too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import is_strided


def strided_product(i: Instruction, layouts: Sequence[str], params: Mapping[str, Any]) -> Draft:
    """Return the kernel of a product of two matrices, some of which are strided; it has scratch buffers for their copies."""
    b = KernelBuilder()
    b.location = i.loc
    types = [RefType(v.type.dtype, v.type.shape) for v in (*i.operands, *i.results)]
    refs = [
        Value(RefType(t.dtype, b.shape(t.shape), layout), f"x{k}")
        for k, (t, layout) in enumerate(zip(types, (*layouts, "c"), strict=True))
    ]
    *operands, out = refs
    strided = {ref: t for ref, t in zip(operands, types, strict=False) if is_strided(ref)}
    copies = {ref: Value(RefType(ref.type.dtype, ref.type.shape), "copy") for ref in strided}
    dense_operands = [b.here("strided_or_copy", ref, copies[ref]) if ref in copies else ref for ref in operands]
    b.here("gemm", *dense_operands, out, **params)
    return Draft(kernel=b.kernel([*refs, *copies.values()]), sizes=b.sizes(), scratch=tuple(strided.values()))
