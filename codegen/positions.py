"""positions: every ``argmax`` and ``argmin`` becomes one over the last axis of a transposed operand.

Requires: an optimised func. Keeps: all other instructions. A position is known once a row has been read to its end, so the axis
has to be the row.
"""

from __future__ import annotations

from pullback.ir.builder import Builder
from pullback.ir.ops.reduce import Reduce
from pullback.ir.passes.replay import replay
from pullback.ir.structure import Function, Instruction, Value


def positions(function: Function) -> Function:
    """The function with all searches for a position along last axes."""
    if not any(_is_across(i) for i in function.instructions):
        return function
    builder = Builder()
    renamed: dict[Value, Value] = {}
    for i in function.instructions:
        operands = tuple(renamed.get(v, v) for v in i.operands)
        if not _is_across(i):
            renamed.update(zip(i.results, replay(builder, i, operands), strict=True))
            continue
        b, rank, (axis,) = builder.at(i.loc, i.result.name), operands[0].type.rank, i.params["axes"]
        turned = b.transpose(operands[0], perm=tuple(k for k in range(rank) if k != axis) + (axis,))
        renamed[i.result] = b.emit(i.op, (turned,), {"axes": (rank - 1,)})[0]
    return builder.function(function.name, function.parameters, [renamed.get(v, v) for v in function.results], function.kind)


def _is_across(i: Instruction) -> bool:
    """Whether an instruction searches along another axis than the last."""
    return isinstance(i.op, Reduce) and i.op.gives_position and tuple(i.params["axes"]) != (i.operands[0].type.rank - 1,)
