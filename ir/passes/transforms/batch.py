"""Batching: a region for each index of a leading axis of some operands, in one go.

What depends on one of those operands gets the axis, in front of its own; what does not stays as it is. Ops say how they take the
axis (``Op.batch``). Rows that do not run something that others run (a loop that is done, a branch not taken) are computed like
the others and not used: under a mask of the rows that count, checks hold and indices are 0 where no row counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import Op, leading
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Gather, Scatter
from pullback.ir.ops.control.custom import Custom
from pullback.ir.ops.control.regions import Check
from pullback.ir.passes.editing.activity import dependents
from pullback.ir.passes.editing.replay import replay

Structured = Callable[[Builder, Instruction, Sequence[Value], Sequence[bool], Extent, Value | None], Sequence[Value]]

STRUCTURED: dict[type[Op], Structured] = {}
"""Batching of ops with regions: ``rule(builder, instruction, operands, marks, size, mask)`` gives the results, with the axis
those that depend on an operand with it (``activity.flow``)."""


def batch(
    builder: Builder, region: Block, operands: Sequence[Value], batched: Sequence[int], fixed: Sequence[int]
) -> list[Value]:
    """Emit a region on ``operands``, of which those at the positions ``batched`` have the axis; returns its results, which all
    have it but for those at the positions ``fixed``.

    Raises TypeError if one of those depends on a batched operand.
    """
    size = operands[batched[0]].type.shape[0]
    found, rows = along(builder, region, operands, [k in batched for k in range(len(operands))], size)
    if any(rows[k] for k in fixed):
        raise TypeError("a fixed result depends on a batched operand")
    return leading(builder, found, [row or k in fixed for k, row in enumerate(rows)], size)


def along(
    builder: Builder,
    region: Block,
    operands: Sequence[Value],
    marks: Sequence[bool],
    size: Extent,
    mask: Value | None = None,
) -> tuple[list[Value], list[bool]]:
    """Emit a region on ``operands``, of which the marked ones have the axis; its results, and which of them have it. ``mask``:
    which rows count."""
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    rows = dependents(region, [p for p, mark in zip(region.parameters, marks, strict=True) if mark], smooth=False)
    for instruction in region.instructions:
        inputs = [env[v] for v in instruction.operands]
        has_axis = [v in rows for v in instruction.operands]
        step = builder.at(instruction.loc, instruction.results[0].name if instruction.results else "")
        structured = STRUCTURED.get(type(instruction.op))
        if mask is not None:
            inputs = _harmless(step, instruction.op, inputs, has_axis, mask)
        if structured is not None and (any(has_axis) or mask is not None):
            made = structured(step, instruction, inputs, has_axis, size, mask)
        elif any(has_axis):
            made = instruction.op.batch(step, inputs, has_axis, instruction.params, size)
        else:
            made = replay(builder, instruction, inputs)
        env.update(zip(instruction.results, made, strict=True))
    return [env[v] for v in region.results], [v in rows for v in region.results]


def with_axis(values: Sequence[Value], marks: Sequence[bool], size: Extent) -> list[Value]:
    """Fresh values of the same types, the marked ones with the axis."""
    return [
        Value(type(v.type)(v.type.dtype, (size, *v.type.shape)) if mark else v.type, v.name)
        for v, mark in zip(values, marks, strict=True)
    ]


def spread_mask(b: Builder, mask: Value, value: Value, has_axis: bool) -> Value:
    """A mask of rows for each element of a value; of one without the axis, whether any row counts."""
    shape = value.type.shape
    if not has_axis:
        return b.spread(b.any(mask, axes=(0,)), shape)
    axes = tuple(range(1, len(shape)))
    found: Value = b.broadcast(mask, axes=axes, shape=shape) if axes else mask
    return found


def _harmless(b: Builder, op: Op, operands: Sequence[Value], marks: Sequence[bool], mask: Value) -> list[Value]:
    """The operands of an op that fails, or reads where there is nothing, only for rows that count."""
    found = list(operands)
    if isinstance(op, Check):
        off = b.bitnot(spread_mask(b, mask, found[0], marks[0]))
        found[0] = b.bitor(found[0], off)
    elif isinstance(op, Gather | Scatter):
        for k in range(1, len(found) - isinstance(op, Scatter)):
            on = spread_mask(b, mask, found[k], marks[k])
            found[k] = b.select(on, found[k], b.zeros_like(found[k]))
    return found


def _custom(
    b: Builder, instruction: Instruction, operands: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> tuple[Value, ...]:
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
        parameters = with_axis(region.parameters, batched, size)
        on = [] if mask is None else [Value(ArrayType(BOOL, (size,)), "on")]
        found, rows = along(inner, region, parameters, batched, size, *on)
        found = leading(inner, found, rows, size)
        if is_rule and is_vjp:
            found = [v if marks[k] else inner.sum(v, axes=(0,)) for k, v in zip(params["vjp"], found, strict=True)]
        regions.append(inner.block([*parameters, *on], found))
    return b.emit(instruction.op, [*operands, *([] if mask is None else [mask])], dict(params), regions)


STRUCTURED[Custom] = _custom
