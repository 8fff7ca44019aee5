"""positions: every ``argmax`` and ``argmin`` becomes one over the last axis of a transposed operand.

Requires: an optimised func. Keeps: all other instructions. A position is known once a row has been read to its end, so the axis
has to be the row.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.passes.editing.replay import New, replaced


def positions(function: Function) -> Function:
    """The function with all searches for a position along last axes."""
    return replaced(function, _is_across, _along_rows)


def _along_rows(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
    """The same search along the last axis of the transposed operand."""
    x, (axis,) = new(i.operands[0]), i.params["axes"]
    rank = x.type.rank
    turned = b.transpose(x, perm=tuple(k for k in range(rank) if k != axis) + (axis,))
    return b.emit(i.op, (turned,), {"axes": (rank - 1,)})


def _is_across(i: Instruction) -> bool:
    """Whether an instruction searches along another axis than the last."""
    return isinstance(i.op, Reduce) and i.op.gives_position and tuple(i.params["axes"]) != (i.operands[0].type.rank - 1,)
