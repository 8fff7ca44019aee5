"""Copy instructions and regions, with other operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value

New = Callable[[Value], Value]
"""Maps a value of the replayed function to its replacement."""


def inline(builder: Builder, region: Block, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Append the instructions of a region, applied to ``operands``, and return its results."""
    env = dict(zip(region.parameters, operands, strict=True))
    for instruction in region.instructions:
        results = replay(builder, instruction, [env[v] for v in instruction.operands])
        env.update(zip(instruction.results, results, strict=True))
    return tuple(env[v] for v in region.results)


def replay(builder: Builder, instruction: Instruction, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Append a copy of an instruction with other operands and return its results."""
    results = tuple(Value(v.type, v.name) for v in instruction.results)
    builder.append(
        Instruction(instruction.op, tuple(operands), results, instruction.params, instruction.regions, instruction.loc)
    )
    return results


def replaced(
    function: Function, chosen: Callable[[Instruction], bool], emit: Callable[[Builder, Instruction, New], Sequence[Value]]
) -> Function:
    """Return the function with each ``chosen`` instruction replaced by the instructions that ``emit(b, instruction, new)``
    appends, whose return values become its results; ``function`` itself if none is chosen. Regions are not entered."""
    wanted = {i for i in function.instructions if chosen(i)}
    if not wanted:
        return function
    builder = Builder()
    replacements: dict[Value, Value] = {}

    def new(value: Value) -> Value:
        return replacements.get(value, value)

    for i in function.instructions:
        if i in wanted:
            replacements.update(zip(i.results, emit(builder.at(i.loc, i.results[0].name), i, new), strict=True))
            continue
        operands = tuple(map(new, i.operands))
        builder.append(i if operands == i.operands else replace(i, operands=operands))
    return builder.function(function.name, function.parameters, list(map(new, function.results)), function.kind)
