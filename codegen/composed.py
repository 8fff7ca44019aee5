"""composed: every op whose gradient alone is its own becomes the ordinary ops that it stands for.

Requires: an optimised func. Keeps: all other instructions.
"""

from __future__ import annotations

from pullback.ir.builder import Builder
from pullback.ir.ops.linalg import Composed
from pullback.ir.passes.replay import replay
from pullback.ir.structure import Function, Value


def composed(function: Function) -> Function:
    """The function without ``Composed`` ops."""
    if not any(isinstance(i.op, Composed) for i in function.instructions):
        return function
    builder = Builder()
    renamed: dict[Value, Value] = {}
    for i in function.instructions:
        operands = tuple(renamed.get(v, v) for v in i.operands)
        if isinstance(i.op, Composed):
            found = i.op.compose(builder.at(i.loc, i.results[0].name), *operands, **i.params)
        else:
            found = replay(builder, i, operands)
        renamed.update(zip(i.results, found, strict=True))
    return builder.function(function.name, function.parameters, [renamed.get(v, v) for v in function.results], function.kind)
