"""sorted_twice: where both the order of an array and its sorted elements are wanted, as with a gradient, the elements are
gathered in that order.

Requires: a func without gradient instructions. Keeps: the meaning, and all other instructions. One sort is left of two.
"""

from __future__ import annotations

from pullback.ir.builder import Builder
from pullback.ir.ops.linalg import position
from pullback.ir.ops.sort import argsort, sort
from pullback.ir.passes.replay import replay
from pullback.ir.structure import Function, Value


def sorted_twice(function: Function) -> Function:
    """The function in which no array is both sorted and argsorted."""
    ordered = {i.operands[0] for i in function.instructions if i.op is argsort}
    twice = ordered & {i.operands[0] for i in function.instructions if i.op is sort}
    if not twice:
        return function
    builder = Builder()
    renamed: dict[Value, Value] = {}
    places: dict[Value, Value] = {}
    for i in function.instructions:
        operands = tuple(renamed.get(v, v) for v in i.operands)
        if i.op not in (sort, argsort) or i.operands[0] not in twice:
            renamed.update(zip(i.results, replay(builder, i, operands), strict=True))
            continue
        b, (x,) = builder.at(i.loc, i.result.name), operands
        if x not in places:
            places[x] = b.argsort(x)
        axes = tuple(range(x.type.rank))
        rows = [position(b, x.type.shape, k) for k in axes[:-1]]
        renamed[i.result] = places[x] if i.op is argsort else b.gather(x, *rows, places[x], axes=axes)
    return builder.function(function.name, function.parameters, [renamed.get(v, v) for v in function.results], function.kind)
