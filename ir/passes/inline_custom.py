"""Replace instructions with custom derivatives by the functions that they hold."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.custom import Custom
from pullback.ir.passes.editing.replay import inline, replay


def uncustom(function: Function) -> Function:
    """Replace each ``custom`` instruction by the instructions of its first region.

    Requires: a func without transform instructions, of which no further derivative is taken; other kinds are returned
    unchanged.
    """
    if not any(isinstance(i.op, Custom) for i in walk(function.body)):
        return function
    return replace(function, body=_inlined(function.body))


def _inlined(block: Block) -> Block:
    builder = Builder()
    env: dict[Value, Value] = {v: v for v in block.parameters}
    for instruction in block.instructions:
        operands = [env[v] for v in instruction.operands]
        if isinstance(instruction.op, Custom):
            results = inline(builder, _inlined(instruction.regions[0]), operands)
        else:
            results = replay(builder, replace(instruction, regions=tuple(map(_inlined, instruction.regions))), operands)
        env.update(zip(instruction.results, results, strict=True))
    return builder.block(block.parameters, [env[v] for v in block.results])
