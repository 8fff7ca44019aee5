"""argreductions_over_last_axis: turn every ``argmax`` and ``argmin`` into one over the last axis of a transposed operand.

Requires: an optimised func. Keeps: all other instructions. The index is known only at the end of a row, so the axis has to be
that of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.passes.editing.replay import New, replaced


def argreductions_over_last_axis(function: Function) -> Function:
    """Return the function with every argument reduction along a last axis."""
    return replaced(function, _is_over_other_axis, _over_last_axis)


def _over_last_axis(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
    """Emit the same argument reduction along the last axis of the transposed operand."""
    x, (axis,) = new(i.operands[0]), i.params["axes"]
    rank = x.type.rank
    transposed = b.transpose(x, perm=tuple(k for k in range(rank) if k != axis) + (axis,))
    return b.emit(i.op, (transposed,), {"axes": (rank - 1,)})


def _is_over_other_axis(i: Instruction) -> bool:
    """Return whether an instruction is an argument reduction along another axis than the last."""
    return isinstance(i.op, Reduce) and i.op.gives_position and tuple(i.params["axes"]) != (i.operands[0].type.rank - 1,)
