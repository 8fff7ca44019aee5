"""Remove the markers ``cotangent_tap``, ``stop_gradient``, ``saved`` and ``barrier`` after the passes that read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.markers import Barrier, CotangentTap, Saved, Stop


def untap(function: Function) -> Function:
    """Replace each ``cotangent_tap`` and ``stop_gradient`` by its operand, and each ``saved`` by the saved value.

    Requires: a func without gradient instructions, of which no further derivative is taken; other kinds are returned
    unchanged.
    """
    return without(function, CotangentTap | Stop | Saved)


def unbarrier(function: Function) -> Function:
    """Replace each ``barrier`` by its first operand. Runs after the last pass that merges equal instructions."""
    return without(function, Barrier)


def without(function: Function, kinds: Any) -> Function:
    """Return the function, its regions included, with each op of these classes replaced by the operand that it forwards."""
    if not any(isinstance(i.op, kinds) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body, kinds))


def _block(block: Block, kinds: Any) -> Block:
    source: dict[Value, Value] = {}
    kept: list[Instruction] = []
    for instruction in block.instructions:
        operands = tuple(source.get(v, v) for v in instruction.operands)
        if isinstance(instruction.op, kinds):
            source[instruction.result] = operands[1 if isinstance(instruction.op, Saved) else 0]
        else:
            regions = tuple(_block(region, kinds) for region in instruction.regions)
            kept.append(replace(instruction, operands=operands, regions=regions))
    return Block(block.parameters, tuple(kept), tuple(source.get(v, v) for v in block.results))
