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
    """Replace each ``barrier`` by its first operand. Runs after the last pass that merges equal instructions, but for those that
    respect the notes of the instructions behind a barrier (``Loc.part``)."""
    if not any(isinstance(i.op, Barrier) for i in walk(function.body)):
        return function
    return without(replace(function, body=_noted(function.body)), Barrier)


def _noted(block: Block) -> Block:
    """Return a block whose instructions behind barriers have notes: those that depend on the result of a barrier, and on no value
    that a barrier waits for."""
    numbers: dict[Value, int] = {}
    for i in block.instructions:
        if isinstance(i.op, Barrier):
            numbers.setdefault(i.operands[1], len(numbers) + 1)
    late = set(numbers)
    part: dict[Value, int] = {}
    instructions = []
    for i in block.instructions:
        if isinstance(i.op, Barrier):
            part[i.result] = numbers[i.operands[1]]
        elif not late.isdisjoint(i.operands):
            late.update(i.results)
        elif k := max((part.get(v, 0) for v in i.operands), default=0):
            part.update(dict.fromkeys(i.results, k))
            i = replace(i, loc=i.loc.recomputed_in(k))
        instructions.append(replace(i, regions=tuple(map(_noted, i.regions))) if i.regions else i)
    return replace(block, instructions=tuple(instructions))


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
