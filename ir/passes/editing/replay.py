"""Copies of instructions and regions on other operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value

New = Callable[[Value], Value]
"""What stands for a value of the function that is replayed."""


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


def replaced(
    function: Function, chosen: Callable[[Instruction], bool], made: Callable[[Builder, Instruction, New], Sequence[Value]]
) -> Function:
    """The function with what ``made(b, instruction, new)`` appends and returns in place of each ``chosen`` instruction; itself if
    none is. Regions are not entered."""
    wanted = {i for i in function.instructions if chosen(i)}
    if not wanted:
        return function
    builder = Builder()
    found: dict[Value, Value] = {}

    def new(value: Value) -> Value:
        return found.get(value, value)

    for i in function.instructions:
        if i in wanted:
            found.update(zip(i.results, made(builder.at(i.loc, i.results[0].name), i, new), strict=True))
            continue
        operands = tuple(map(new, i.operands))
        builder.append(i if operands == i.operands else replace(i, operands=operands))
    return builder.function(function.name, function.parameters, list(map(new, function.results)), function.kind)
