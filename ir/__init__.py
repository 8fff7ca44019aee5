"""The intermediate representation: types, SSA structure, op records, text format, verifier, interpreters and passes."""

from pullback.ir import ops as _ops
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, ZERO, Into, Op, Zero
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc, Module
from pullback.ir.core.types import DTYPES, ArrayType, DType, RefType, dtype_of, scalar
from pullback.ir.core.value import Value

__all__ = [
    "DTYPES", "NOWHERE", "OPS", "OWN_OPS", "ZERO", "ArrayType", "Block", "Builder", "DType", "Function", "Instruction",
    "Into", "Loc", "Module", "Op", "RefType", "Value", "Zero", "dtype_of", "scalar",
]  # fmt: skip
del _ops

OWN_OPS = frozenset(OPS.values())
"""The ops defined by this package. Their semantics are fixed by its sources, whose hash is in the cache keys of programs."""
