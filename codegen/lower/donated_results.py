"""sinking: sink results that are to be written over a parameter below every other reader of the parameter.

Requires: a fused function. Keeps: its meaning; instructions that can fail or have effects keep their order. An instruction
whose result may take the memory of a parameter is moved, with the instructions that use its result, behind the last other
reader of that parameter and behind the last instruction that can fail, unless one of these uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.loops import Loop
from pullback.ir.passes.editing.activity import is_pure


def fails(instruction: Instruction) -> bool:
    """Return whether a run may end in an instruction, or its effects are visible outside. Loops can be interrupted."""
    return isinstance(instruction.op, Loop) or not is_pure(instruction)


def sunk(function: Function, over: Sequence[tuple[int, int]]) -> Function:
    """Return the function with such instructions sunk. ``over``: pairs of a result and the parameter whose memory it may take."""
    order = list(function.instructions)
    for result, parameter in over:
        order = _behind(order, function.results[result], function.parameters[parameter])
    return replace(function, body=replace(function.body, instructions=tuple(order)))


def _behind(order: list[Instruction], result: Value, parameter: Value) -> list[Instruction]:
    maker = {v: k for k, i in enumerate(order) for v in i.results}
    while result in maker and isinstance(order[maker[result]].op, Reindex):
        result = order[maker[result]].operands[0]
    if result not in maker:
        return order
    start = maker[result]
    shown = {parameter}
    last = start
    for k, i in enumerate(order):
        if isinstance(i.op, Reindex) and i.operands[0] in shown:
            shown.update(i.results)
        elif k > start and (fails(i) or not shown.isdisjoint(i.operands)):
            last = k
    moving: list[Instruction] = []
    needed: set[Value] = set()
    for i in order[start : last + 1]:
        if i is order[start] or not needed.isdisjoint(i.operands):
            moving.append(i)
            needed.update(i.results)
    if last == start or order[last] in moving or any(map(fails, moving)):
        return order
    moved = set(moving)
    staying = [i for i in order[start : last + 1] if i not in moved]
    return [*order[:start], *staying, *moving, *order[last + 1 :]]
