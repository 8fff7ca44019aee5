"""Chains of updates that lead from an array to its value after them."""

from __future__ import annotations

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Place, Scatter
from pullback.ir.ops.control.loops import Loop, Switch

MOST_STEPS = 64
"""Largest number of updates in a chain that is followed."""


@dataclass(frozen=True, eq=False)
class Step:
    """An update, or a branch whose sides may update, of the array ``base``, with the ``result``."""

    instruction: Instruction
    base: Value
    result: Value


def update_steps(block: Block, end: Value, through_loops: bool = False) -> list[Step]:
    """Return the updates and branches that lead to ``end`` from the value that other ops compute, or from a parameter.
    ``through_loops``: loops that carry the array are updates, too."""
    definitions = {v: i for i in block.instructions for v in i.results}
    steps: list[Step] = []
    value: Value = end
    while value in definitions and len(steps) <= MOST_STEPS:
        i = definitions[value]
        base = updated_operand(i, value, through_loops)
        if base is None:
            break
        steps.append(Step(i, base, value))
        value = base
    return steps[::-1]


def updated_operand(i: Instruction, result: Value, through_loops: bool = False) -> Value | None:
    """Return the operand that an instruction updates in one of its results; None if it does something else."""
    if isinstance(i.op, Scatter | Place):
        return i.operands[0]
    if through_loops and isinstance(i.op, Loop):
        position = i.results.index(result)
        return i.operands[i.op.first(i.params) + position] if position < i.params["carried"] else None
    if not isinstance(i.op, Switch):
        return None
    bases: set[Value | None] = set()
    for region in i.regions:
        end = region.results[i.results.index(result)]
        steps = update_steps(region, end, through_loops)
        start = steps[0].base if steps else end
        bases.add(i.operands[1:][region.parameters.index(start)] if start in region.parameters else None)
    return bases.pop() if len(bases) == 1 else None
