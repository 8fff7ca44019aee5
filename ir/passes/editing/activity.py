"""What depends on what, through loops and branches.

``dependents`` goes forward from values of a block, ``requisites`` backward. With ``smooth`` only what has a derivative counts:
inexact values, through ops that are differentiable; conditions, counts and choices of branches do not. Loops are walked until
nothing is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, StackLength, Switch
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of


def dependents(block: Block, sources: Iterable[Value], smooth: bool) -> set[Value]:
    """The values of a block that depend on ``sources``, those among them."""
    found = set(sources)
    for instruction in block.instructions:
        if not found.isdisjoint(instruction.operands):
            marks = flow(instruction, [v in found for v in instruction.operands], smooth)
            found.update(v for v, mark in zip(instruction.results, marks, strict=True) if mark)
    return found


def flow(instruction: Instruction, marks: Sequence[bool], smooth: bool) -> list[bool]:
    """Which results depend on the marked operands."""
    op, results = instruction.op, instruction.results
    if isinstance(op, Loop):
        return _through_loop(instruction, marks, smooth)
    if isinstance(op, Switch):
        if marks[0] and not smooth:
            return [True] * len(results)
        found = [_through(region, region.parameters, marks[1:], smooth) for region in instruction.regions]
        return [any(branches) for branches in zip(*found, strict=True)]
    if isinstance(op, StackLength):
        return [False]
    if not any(marks) or (smooth and op.nondifferentiable):
        return [False] * len(results)
    return [not smooth or is_smooth(v) for v in results]


def is_smooth(value: Value) -> bool:
    """Whether a value has derivatives."""
    return not isinstance(value.type, RefType) and value.type.dtype.is_inexact


def _through(block: Block, parameters: Sequence[Value], marks: Sequence[bool], smooth: bool) -> list[bool]:
    found = dependents(block, [p for p, mark in zip(parameters, marks, strict=True) if mark], smooth)
    return [v in found for v in block.results]


def carries_reached(parts: LoopParts, marks: Sequence[bool], smooth: bool) -> tuple[list[bool], list[bool]]:
    """Which carried values and result rows depend on the marked operands."""
    carries, sequences, captures = parts.operands(marks)
    if not smooth and parts.first and marks[0]:
        carries = [True] * parts.carried
    while True:
        given = [False, *carries, *sequences, *captures]
        again, rows = parts.rows(_through(parts.body, parts.body.parameters, given, smooth))
        grown = [old or new for old, new in zip(carries, again, strict=True)]
        if not smooth and parts.condition is not None and is_batched_condition(parts.condition, given):
            grown = [True] * parts.carried
        if grown == carries:
            return carries, rows
        carries = grown


def is_batched_condition(condition: Block, marks: Sequence[bool]) -> bool:
    """Whether the condition of a while depends on the marked parameters."""
    return _through(condition, condition.parameters, marks, False)[0]


def _through_loop(instruction: Instruction, marks: Sequence[bool], smooth: bool) -> list[bool]:
    parts = parts_of(instruction)
    carries, rows = carries_reached(parts, marks, smooth)
    if parts.condition is None:
        return carries + rows
    _, sequences, captures = parts.operands(marks)
    return [*carries, not smooth and is_batched_condition(parts.condition, [False, *carries, *sequences, *captures]), *rows]


def requisites(block: Block, results: Iterable[Value], smooth: bool = True) -> set[Value]:
    """The values of a block that ``results`` need, or whose derivatives theirs may need; those among them. What has an effect or
    can fail needs what it reads."""
    found = set(results)
    for instruction in reversed(block.instructions):
        if not found.isdisjoint(instruction.results) or (not smooth and not is_pure(instruction)):
            marks = back(instruction, [v in found for v in instruction.results], smooth)
            found.update(v for v, mark in zip(instruction.operands, marks, strict=True) if mark)
    return found


def is_pure(instruction: Instruction) -> bool:
    """Whether neither the instruction nor anything in its regions can fail or has an effect."""
    return instruction.op.effect == "pure" and all(
        inner.op.effect == "pure" for region in instruction.regions for inner in walk(region)
    )


def back(instruction: Instruction, marks: Sequence[bool], smooth: bool = True) -> list[bool]:
    """Which operands the marked results need."""
    op, operands = instruction.op, instruction.operands
    if isinstance(op, Loop):
        parts = parts_of(instruction)
        carries, sequences, captures = carries_needed(parts, marks, smooth)
        return [not smooth] * parts.first + carries + sequences + captures
    if isinstance(op, Switch):
        found = [_back(region, marks, smooth) for region in instruction.regions]
        return [not smooth, *(any(branches) for branches in zip(*found, strict=True))]
    return [True] * len(operands)


def _back(block: Block, marks: Sequence[bool], smooth: bool) -> list[bool]:
    found = requisites(block, [v for v, mark in zip(block.results, marks, strict=True) if mark], smooth)
    return [p in found for p in block.parameters]


def carries_needed(parts: LoopParts, marks: Sequence[bool], smooth: bool = True) -> tuple[list[bool], list[bool], list[bool]]:
    """Which carried values, sequences and captures the marked results need."""
    carries, rows = parts.results(marks)
    tested = [False] * len(parts.body.parameters)
    if parts.condition is not None and not smooth:
        tested = _back(parts.condition, [True], smooth)
    while True:
        given = _back(parts.body, [*carries, *rows], smooth)
        again, slices, captures = parts.parameters([a or b for a, b in zip(given, tested, strict=True)])
        grown = [old or new for old, new in zip(carries, again, strict=True)]
        if grown == carries:
            return carries, slices, captures
        carries = grown
