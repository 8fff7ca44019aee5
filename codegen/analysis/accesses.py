"""The parts of an instruction that reads, writes or prefetches memory."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Prefetch, Store


def ref_and_index(access: Instruction) -> tuple[Value, Sequence[Value]]:
    """Return the reference and the index of a load, a store or a prefetch."""
    assert isinstance(access.op, Load | Store | Prefetch)
    position, masked = int(isinstance(access.op, Store)), not isinstance(access.op, Prefetch) and access.op.masked
    return access.operands[position], access.operands[position + 1 + masked :]
