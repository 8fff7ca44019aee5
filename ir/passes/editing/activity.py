"""Dependence analysis through loops and branches.

``dependents`` follows it forwards from values of a block, ``requisites`` backwards. With ``smooth`` only differentiable
dependence counts: through inexact values and differentiable ops; conditions, counts and indices of branches are ignored. Loops
are iterated to a fixed point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, StackLength, Switch
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of


def dependents(block: Block, sources: Iterable[Value], smooth: bool) -> set[Value]:
    """Return the values of a block that depend on ``sources``, including these."""
    reached = set(sources)
    for instruction in block.instructions:
        if not reached.isdisjoint(instruction.operands):
            marks = dependent_results(instruction, [v in reached for v in instruction.operands], smooth)
            reached.update(v for v, mark in zip(instruction.results, marks, strict=True) if mark)
    return reached


def dependent_results(instruction: Instruction, marks: Sequence[bool], smooth: bool) -> list[bool]:
    """Return which results depend on the marked operands."""
    op, results = instruction.op, instruction.results
    if isinstance(op, Loop):
        return _through_loop(instruction, marks, smooth)
    if isinstance(op, Switch):
        if marks[0] and not smooth:
            return [True] * len(results)
        by_branch = [_through(region, region.parameters, marks[1:], smooth) for region in instruction.regions]
        return [any(branches) for branches in zip(*by_branch, strict=True)]
    if isinstance(op, StackLength):
        return [False]
    if not any(marks) or (smooth and op.nondifferentiable):
        return [False] * len(results)
    return [not smooth or is_smooth(v) for v in results]


def is_smooth(value: Value) -> bool:
    """Return whether a value is differentiable: an array of inexact type."""
    return not isinstance(value.type, RefType) and value.type.dtype.is_inexact


def _through(block: Block, parameters: Sequence[Value], marks: Sequence[bool], smooth: bool) -> list[bool]:
    """Return which results of a block depend on the marked parameters."""
    reached = dependents(block, [p for p, mark in zip(parameters, marks, strict=True) if mark], smooth)
    return [v in reached for v in block.results]


def carries_reached(parts: LoopParts, marks: Sequence[bool], smooth: bool) -> tuple[list[bool], list[bool]]:
    """Return which carried values and result rows depend on the marked operands."""
    carries, sequences, captures = parts.operands(marks)
    if not smooth and parts.first and marks[0]:
        carries = [True] * parts.carried
    while True:
        parameter_marks = [False, *carries, *sequences, *captures]
        new_carries, rows = parts.rows(_through(parts.body, parts.body.parameters, parameter_marks, smooth))
        grown = [old or new for old, new in zip(carries, new_carries, strict=True)]
        if not smooth and parts.condition is not None and is_batched_condition(parts.condition, parameter_marks):
            grown = [True] * parts.carried
        if grown == carries:
            return carries, rows
        carries = grown


def is_batched_condition(condition: Block, marks: Sequence[bool]) -> bool:
    """Return whether the condition of a while depends on the marked parameters."""
    return _through(condition, condition.parameters, marks, False)[0]


def _through_loop(instruction: Instruction, marks: Sequence[bool], smooth: bool) -> list[bool]:
    parts = parts_of(instruction)
    carries, rows = carries_reached(parts, marks, smooth)
    if parts.condition is None:
        return carries + rows
    _, sequences, captures = parts.operands(marks)
    return [*carries, not smooth and is_batched_condition(parts.condition, [False, *carries, *sequences, *captures]), *rows]


def requisites(block: Block, results: Iterable[Value], smooth: bool = True) -> set[Value]:
    """Return the values of a block that ``results``, or with ``smooth`` their derivatives, depend on, including these. Without
    ``smooth``, the operands of instructions that have an effect or can fail are included."""
    needed = set(results)
    for instruction in reversed(block.instructions):
        if not needed.isdisjoint(instruction.results) or (not smooth and not is_pure(instruction)):
            marks = needed_operands(instruction, [v in needed for v in instruction.results], smooth)
            needed.update(v for v, mark in zip(instruction.operands, marks, strict=True) if mark)
    return needed


def is_pure(instruction: Instruction) -> bool:
    """Return whether neither the instruction nor any instruction in its regions can fail or has an effect."""
    return instruction.op.effect == "pure" and all(
        inner.op.effect == "pure" for region in instruction.regions for inner in walk(region)
    )


def needed_operands(instruction: Instruction, marks: Sequence[bool], smooth: bool = True) -> list[bool]:
    """Return which operands the marked results depend on."""
    op, operands = instruction.op, instruction.operands
    if isinstance(op, Loop):
        parts = parts_of(instruction)
        carries, sequences, captures = carries_needed(parts, marks, smooth)
        return [not smooth] * parts.first + carries + sequences + captures
    if isinstance(op, Switch):
        by_branch = [_back(region, marks, smooth) for region in instruction.regions]
        return [not smooth, *(any(branches) for branches in zip(*by_branch, strict=True))]
    return [True] * len(operands)


def _back(block: Block, marks: Sequence[bool], smooth: bool) -> list[bool]:
    """Return which parameters of a block the marked results depend on."""
    needed = requisites(block, [v for v, mark in zip(block.results, marks, strict=True) if mark], smooth)
    return [p in needed for p in block.parameters]


def carries_needed(parts: LoopParts, marks: Sequence[bool], smooth: bool = True) -> tuple[list[bool], list[bool], list[bool]]:
    """Return which carried values, sequences and captures the marked results depend on."""
    carries, rows = parts.results(marks)
    tested = [False] * len(parts.body.parameters)
    if parts.condition is not None and not smooth:
        tested = _back(parts.condition, [True], smooth)
    while True:
        needed_parameters = _back(parts.body, [*carries, *rows], smooth)
        new_carries, slices, captures = parts.parameters([a or b for a, b in zip(needed_parameters, tested, strict=True)])
        grown = [old or new for old, new in zip(carries, new_carries, strict=True)]
        if grown == carries:
            return carries, slices, captures
        carries = grown
