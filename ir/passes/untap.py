"""Removes what the gradient pass leaves of ``tap`` and ``stop_gradient``."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.ops.effect import Stop, Tap
from pullback.ir.structure import Block, Function, Instruction, Value


def untap(function: Function) -> Function:
    """Read the operand of each ``tap`` and ``stop_gradient`` in its place.

    Requires: a func without gradient instructions, where no cotangent will arrive any more; other kinds are returned as they are.
    """
    if not any(isinstance(i.op, Tap | Stop) for i in function.instructions):
        return function
    source: dict[Value, Value] = {}
    kept: list[Instruction] = []
    for instruction in function.instructions:
        operands = tuple(source.get(v, v) for v in instruction.operands)
        if isinstance(instruction.op, Tap | Stop):
            source[instruction.result] = operands[0]
        else:
            kept.append(replace(instruction, operands=operands))
    results = tuple(source.get(v, v) for v in function.results)
    return replace(function, body=Block(function.parameters, tuple(kept), results))
