"""Removes what passes leave of ``cotangent_tap``, ``stop_gradient``, ``saved`` and ``barrier``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.markers import Barrier, CotangentTap, Saved, Stop


def untap(function: Function) -> Function:
    """Replace each ``cotangent_tap`` and ``stop_gradient`` by its operand, and each ``saved`` by the saved value.

    Requires: a func without gradient instructions, where no cotangent will arrive any more; other kinds are returned as they are.
    """
    return without(function, CotangentTap | Stop | Saved)


def unbarrier(function: Function) -> Function:
    """Read the first operand of each ``barrier`` in its place: the last of the passes that merge what is equal is done."""
    return without(function, Barrier)


def without(function: Function, kinds: Any) -> Function:
    """The function without the ops of these classes, each the same as an operand; regions too."""
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
