"""Copies of instructions and regions on other operands."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.builder import Builder
from pullback.ir.structure import Block, Instruction, Value


def inline(builder: Builder, region: Block, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Append the instructions of a region on ``operands``; its results."""
    env = dict(zip(region.parameters, operands, strict=True))
    for instruction in region.instructions:
        made = replay(builder, instruction, [env[v] for v in instruction.operands])
        env.update(zip(instruction.results, made, strict=True))
    return tuple(env[v] for v in region.results)


def replay(builder: Builder, instruction: Instruction, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Append a copy of an instruction that reads other operands."""
    results = tuple(Value(v.type, v.name) for v in instruction.results)
    builder.append(
        Instruction(instruction.op, tuple(operands), results, instruction.params, instruction.regions, instruction.loc)
    )
    return results
