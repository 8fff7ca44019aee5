"""Sums of rows that go to the same place, from zeros, as the op ``scatter_sum``, which writes each row of the result once."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Scatter, scatter_sum
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.passes.editing.replay import New, replaced


def scatters_from_zero(function: Function) -> Function:
    """The function in which whole rows that are added to zeros are summed instead.

    Requires: a func without gradient instructions. Keeps: the meaning, and all other instructions."""
    producer = {v: i for i in function.instructions for v in i.results}

    def made(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        shape, axes = i.result.type.shape, tuple(i.params["axes"])
        return b.emit(scatter_sum, tuple(map(new, i.operands[1:])), {"shape": shape, "axes": axes})

    return replaced(function, lambda i: _is_from_zero(i, producer), made)


def _is_from_zero(i: Instruction, producer: dict[Value, Instruction]) -> bool:
    """Whether an instruction adds rows of some length to zeros, at indices of the leading axes."""
    if not isinstance(i.op, Scatter) or not i.op.accumulate or not i.operands[1].type.rank:
        return False
    axes = tuple(i.params["axes"])
    if axes != tuple(range(len(axes))) or len(axes) == i.result.type.rank:
        return False
    made = producer.get(i.operands[0])
    while made is not None and made.op is broadcast:
        made = producer.get(made.operands[0])
    return made is not None and isinstance(made.op, Constant) and made.params["value"] == 0
