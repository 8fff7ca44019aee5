"""Puts functions with custom derivatives in the place of their instructions."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.custom import Custom
from pullback.ir.passes.editing.replay import inline, replay


def uncustom(function: Function) -> Function:
    """Replace each ``custom`` instruction by the instructions of its first region.

    Requires: a func without instructions of transforms, where no derivative will be taken any more; other kinds are returned
    as they are.
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
            made = inline(builder, _inlined(instruction.regions[0]), operands)
        else:
            made = replay(builder, replace(instruction, regions=tuple(map(_inlined, instruction.regions))), operands)
        env.update(zip(instruction.results, made, strict=True))
    return builder.block(block.parameters, [env[v] for v in block.results])
