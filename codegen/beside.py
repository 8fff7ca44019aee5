"""beside: arrays that are put side by side along a short last axis are stored together.

Requires: an optimised func without complex values. Keeps: all other instructions. ``np.stack([x, y], axis=-1)`` visited as
elements of the result would choose by the last index at each of them; visited as elements of its parts it computes and stores
all parts of a place, neighbours in memory.
"""

from __future__ import annotations

from pullback.ir.builder import Builder
from pullback.ir.ops.reindex import broadcast, concat
from pullback.ir.passes.replay import New, replaced
from pullback.ir.structure import Function, Instruction, Value

MOST = 8


def beside(function: Function) -> Function:
    """The function with ``interleave`` for each such result of it that it does not read itself."""
    read = {v for i in function.instructions for v in i.operands}
    handed = set(function.results) - read
    producer = {v: i for i in function.instructions for v in i.results}

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        last = i.params["axis"]
        parts = []
        for v in i.operands:
            spread = producer.get(v)
            if spread is not None and spread.op is broadcast and tuple(spread.params["axes"]) == (last,):
                parts.append(new(spread.operands[0]))
            else:
                parts.append(b.squeeze(new(v), axes=(last,)))
        return [b.interleave(*parts)]

    return replaced(function, lambda i: _is_beside(i) and i.result in handed, made)


def _is_beside(i: Instruction) -> bool:
    """Whether an instruction joins few arrays of one place each along the last axis."""
    if i.op is not concat or not 2 <= len(i.operands) <= MOST or i.params["axis"] != i.result.type.rank - 1:
        return False
    return i.result.type.rank > 1 and all(v.type.shape[-1] == 1 for v in i.operands)
