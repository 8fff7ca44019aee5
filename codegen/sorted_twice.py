"""sorted_twice: where both the order of an array and its sorted elements are wanted, as with a gradient, the elements are
gathered in that order.

Requires: a func without gradient instructions. Keeps: the meaning, and all other instructions. One sort is left of two.
"""

from __future__ import annotations

from pullback.ir.builder import Builder
from pullback.ir.ops.linalg import position
from pullback.ir.ops.sort import argsort, sort
from pullback.ir.passes.replay import New, replaced
from pullback.ir.structure import Function, Instruction, Value


def sorted_twice(function: Function) -> Function:
    """The function in which no array is both sorted and argsorted."""
    ordered = {i.operands[0] for i in function.instructions if i.op is argsort}
    twice = ordered & {i.operands[0] for i in function.instructions if i.op is sort}
    places: dict[Value, Value] = {}

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        x = new(i.operands[0])
        if x not in places:
            places[x] = b.argsort(x)
        axes = tuple(range(x.type.rank))
        rows = [position(b, x.type.shape, k) for k in axes[:-1]]
        return [places[x] if i.op is argsort else b.gather(x, *rows, places[x], axes=axes)]

    return replaced(function, lambda i: i.op in (sort, argsort) and i.operands[0] in twice, made)
