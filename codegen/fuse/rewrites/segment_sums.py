"""segment_sums: turn sums of rows by index, starting from zeros, into the op ``scatter_sum``, which writes each row of the
result once."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Scatter, scatter_sum
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.passes.editing.replay import New, replaced


def segment_sums(function: Function) -> Function:
    """Return the function in which full rows that are added to zeros are summed by ``scatter_sum`` instead.

    Requires: a func without gradient instructions. Keeps: the meaning, and all other instructions.
    """
    producer = {v: i for i in function.instructions for v in i.results}

    def emit(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        shape, axes = i.result.type.shape, tuple(i.params["axes"])
        return b.emit(scatter_sum, tuple(map(new, i.operands[1:])), {"shape": shape, "axes": axes})

    return replaced(function, lambda i: _is_from_zero(i, producer), emit)


def _is_from_zero(i: Instruction, producer: dict[Value, Instruction]) -> bool:
    """Return whether an instruction adds rows to zeros, at indices of the leading axes."""
    if not isinstance(i.op, Scatter) or not i.op.accumulate or not i.operands[1].type.rank:
        return False
    axes = tuple(i.params["axes"])
    if axes != tuple(range(len(axes))) or len(axes) == i.result.type.rank:
        return False
    definition = producer.get(i.operands[0])
    while definition is not None and definition.op is broadcast:
        definition = producer.get(definition.operands[0])
    return definition is not None and isinstance(definition.op, Constant) and definition.params["value"] == 0
