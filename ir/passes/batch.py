"""Batching: a region for each index of a leading axis of some operands, in one go.

What depends on one of those operands gets the axis, in front of its own; what does not stays as it is. Ops say how they take the
axis (``Op.batch``).
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.builder import Builder
from pullback.ir.op import leading
from pullback.ir.ops.custom import Custom
from pullback.ir.passes.reverse import replay
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import ArrayType


def batch(
    builder: Builder, region: Block, operands: Sequence[Value], batched: Sequence[int], fixed: Sequence[int]
) -> list[Value]:
    """Emit a region on ``operands``, of which those at the positions ``batched`` have the axis; returns its results, which all
    have it but for those at the positions ``fixed``.

    Raises TypeError if one of those depends on a batched operand.
    """
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    rows = reached(region, batched)
    size = operands[batched[0]].type.shape[0]
    for instruction in region.instructions:
        inputs = tuple(env[v] for v in instruction.operands)
        marks = [v in rows for v in instruction.operands]
        if any(marks):
            step = builder.at(instruction.loc, instruction.results[0].name if instruction.results else "")
            if isinstance(instruction.op, Custom):
                made = _custom(step, instruction, inputs, marks)
            else:
                made = instruction.op.batch(step, inputs, marks, instruction.params, size)
        else:
            made = replay(builder, instruction, inputs)
        env.update(zip(instruction.results, made, strict=True))
    if any(region.results[k] in rows for k in fixed):
        raise TypeError("a fixed result depends on a batched operand")
    marks = [v in rows or k in fixed for k, v in enumerate(region.results)]
    return leading(builder, [env[v] for v in region.results], marks, size)


def reached(region: Block, batched: Sequence[int]) -> set[Value]:
    """The values of a region that depend on the parameters at the positions ``batched``."""
    found = {region.parameters[k] for k in batched}
    for instruction in region.instructions:
        if not found.isdisjoint(instruction.operands):
            found.update(instruction.results)
    return found


def _custom(b: Builder, instruction: Instruction, operands: Sequence[Value], marks: Sequence[bool]) -> tuple[Value, ...]:
    """A ``custom`` instruction whose regions are batched. The cotangent of an operand without the axis is summed along it."""
    params = instruction.params
    regions: list[Block] = []
    for region in instruction.regions:
        own = len(region.parameters) - len(operands)
        is_rule = bool(regions)
        is_vjp = len(regions) == 1 and params["vjp"] is not None
        first = len(instruction.results)
        batched = [k < first or is_vjp or marks[params["jvp"][k - first]] for k in range(own)] + list(marks)
        inner = Builder()
        size = operands[list(marks).index(True)].type.shape[0]
        parameters = [
            Value(ArrayType(v.type.dtype, (size, *v.type.shape)) if is_batched else v.type, v.name)
            for v, is_batched in zip(region.parameters, batched, strict=True)
        ]
        found = batch(inner, region, parameters, [k for k, is_batched in enumerate(batched) if is_batched], ())
        if is_rule and is_vjp:
            found = [v if marks[k] else inner.sum(v, axes=(0,)) for k, v in zip(params["vjp"], found, strict=True)]
        regions.append(inner.block(parameters, found))
    return b.emit(instruction.op, operands, dict(params), regions)
