"""Removes what passes leave of ``tap``, ``stop_gradient`` and ``barrier``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.ir.ops.effect import Barrier, Stop, Tap
from pullback.ir.structure import Block, Function, Instruction, Value


def untap(function: Function) -> Function:
    """Read the operand of each ``tap`` and ``stop_gradient`` in its place.

    Requires: a func without gradient instructions, where no cotangent will arrive any more; other kinds are returned as they are.
    """
    return without(function, Tap | Stop)


def unbarrier(function: Function) -> Function:
    """Read the first operand of each ``barrier`` in its place: the last of the passes that merge what is equal is done."""
    return without(function, Barrier)


def without(function: Function, kinds: Any) -> Function:
    """The function without the ops of these classes, each the same as its first operand."""
    if not any(isinstance(i.op, kinds) for i in function.instructions):
        return function
    source: dict[Value, Value] = {}
    kept: list[Instruction] = []
    for instruction in function.instructions:
        operands = tuple(source.get(v, v) for v in instruction.operands)
        if isinstance(instruction.op, kinds):
            source[instruction.result] = operands[0]
        else:
            kept.append(replace(instruction, operands=operands))
    results = tuple(source.get(v, v) for v in function.results)
    return replace(function, body=Block(function.parameters, tuple(kept), results))
