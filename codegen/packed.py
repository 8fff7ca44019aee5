"""packed: what is put side by side in memory before rows that repeat it, because each of them would have to gather it.

Columns of an array of points, for one: ``x[:, 0][None, :]`` reads every third number, once for each row. So is what many shifted
views read of an array that is joined of parts, as a convolution does of an image that goes on beyond its edges: each would choose
among the parts anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pullback.ir.ops.index import Gather
from pullback.ir.ops.reindex import Reindex, broadcast, concat, flip, reshape, slice_, squeeze, transpose
from pullback.ir.structure import Instruction, Value

MANY = 8
"""So many views of joined parts are worth a copy of them."""


def packed(instructions: Sequence[Instruction]) -> set[Value]:
    """Return the values that a broadcast repeats along other axes than the last, and whose elements along the last lie apart, and
    joined parts of which there are many views."""
    makers = {v: i for i in instructions for v in i.results}
    views = Counter(i.operands[0] for i in instructions if i.op is slice_ and makers.get(i.operands[0]) is not None)
    found = {value for value, count in views.items() if count >= MANY and makers[value].op is concat}
    for i in instructions:
        if i.op is broadcast and i.operands[0].type.shape and i.result.type.rank - 1 not in i.params["axes"]:
            if _lies_apart(i.operands[0], makers):
                found.add(i.operands[0])
    return found


def _lies_apart(value: Value, makers: Mapping[Value, Instruction]) -> bool:
    """Whether neighbours along the last axis are no neighbours in memory."""
    made = makers.get(value)
    while made is not None and isinstance(made.op, Reindex | Gather):
        source = made.operands[0].type
        last = source.rank - 1
        if isinstance(made.op, Gather):
            return last in made.params["axes"]
        if made.op is slice_:
            apart = made.params["step"][last] != 1
        elif made.op is squeeze:
            before = makers.get(made.operands[0])
            is_moved = before is not None and isinstance(before.op, Reindex) and before.op is not reshape
            apart = last in made.params["axes"] and is_moved
        elif made.op is transpose:
            apart = made.params["perm"][last] != last
        elif made.op is flip:
            apart = last in made.params["axes"]
        else:
            return False
        if apart:
            return True
        made = makers.get(made.operands[0])
    return False
