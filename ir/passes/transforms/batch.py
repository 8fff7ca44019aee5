"""Batching (vmap): emit a region for each index of a leading axis of some operands, in one pass.

Values that depend on such an operand get the axis, before their own axes; others stay as they are. Each op defines its
batching rule (``Op.batch``). Rows that do not execute code that other rows execute (a finished loop, a branch not taken) are
computed and discarded: under a mask of the active rows, checks pass and indices are 0 for inactive rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import NoDerivative, Op, with_leading_axis
from pullback.ir.core.structure import Block, Instruction, Loc
from pullback.ir.core.types import BOOL, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Gather, Scatter
from pullback.ir.ops.control.custom import Custom
from pullback.ir.ops.control.regions import Check
from pullback.ir.passes.editing.activity import dependents
from pullback.ir.passes.editing.replay import replay

Structured = Callable[[Builder, Instruction, Sequence[Value], Sequence[bool], Extent, Value | None], Sequence[Value]]

STRUCTURED: dict[type[Op], Structured] = {}
"""Batching of ops with regions: ``rule(builder, instruction, operands, marks, size, mask)`` returns the results. Those that
depend on a marked operand (``activity.dependent_results``) have the axis."""


class NoBatch(Exception):
    """A region cannot be mapped: the instruction at ``loc`` is not defined for rows; the message gives the reason."""

    def __init__(self, message: str, loc: Loc) -> None:
        super().__init__(message)
        self.loc = loc


def batch(
    builder: Builder, region: Block, operands: Sequence[Value], batched: Sequence[int], fixed: Sequence[int]
) -> list[Value]:
    """Emit a region on ``operands``, of which those at the positions ``batched`` have the axis. Returns the results, which all
    have it except those at the positions ``fixed``.

    Raises TypeError if one of those depends on a batched operand.
    """
    size = operands[batched[0]].type.shape[0]
    results, rows = emit_batched(builder, region, operands, [k in batched for k in range(len(operands))], size)
    if any(rows[k] for k in fixed):
        raise TypeError("a fixed result depends on a batched operand")
    return with_leading_axis(builder, results, [row or k in fixed for k, row in enumerate(rows)], size)


def emit_batched(
    builder: Builder,
    region: Block,
    operands: Sequence[Value],
    marks: Sequence[bool],
    size: Extent,
    mask: Value | None = None,
) -> tuple[list[Value], list[bool]]:
    """Emit a region on ``operands``, of which the marked ones have the axis. Returns the results, and which of them have it.
    ``mask``: the active rows."""
    env: dict[Value, Value] = dict(zip(region.parameters, operands, strict=True))
    rows = dependents(region, [p for p, mark in zip(region.parameters, marks, strict=True) if mark], smooth=False)
    for instruction in region.instructions:
        inputs = [env[v] for v in instruction.operands]
        has_axis = [v in rows for v in instruction.operands]
        step = builder.at(instruction.loc, instruction.results[0].name if instruction.results else "")
        structured = STRUCTURED.get(type(instruction.op))
        if mask is not None:
            inputs = _safe_operands(step, instruction.op, inputs, has_axis, mask)
        if structured is not None and (any(has_axis) or mask is not None):
            results = structured(step, instruction, inputs, has_axis, size, mask)
        elif any(has_axis):
            try:
                results = instruction.op.batch(step, inputs, has_axis, instruction.params, size)
            except NoDerivative as error:
                raise NoBatch(str(error), instruction.loc) from None
        else:
            results = replay(builder, instruction, inputs)
        env.update(zip(instruction.results, results, strict=True))
    return [env[v] for v in region.results], [v in rows for v in region.results]


def with_axis(values: Sequence[Value], marks: Sequence[bool], size: Extent) -> list[Value]:
    """Return fresh values of the same types; the marked ones get the axis."""
    return [
        Value(type(v.type)(v.type.dtype, (size, *v.type.shape)) if mark else v.type, v.name)
        for v, mark in zip(values, marks, strict=True)
    ]


def broadcast_mask(b: Builder, mask: Value, value: Value, has_axis: bool) -> Value:
    """Emit a row mask broadcast to a value; for a value without the axis, whether any row is active."""
    shape = value.type.shape
    if not has_axis:
        return b.spread(b.any(mask, axes=(0,)), shape)
    axes = tuple(range(1, len(shape)))
    result: Value = b.broadcast(mask, axes=axes, shape=shape) if axes else mask
    return result


def _safe_operands(b: Builder, op: Op, operands: Sequence[Value], marks: Sequence[bool], mask: Value) -> list[Value]:
    """Return the operands of a check or an indexed access, made safe for inactive rows."""
    safe = list(operands)
    if isinstance(op, Check):
        off = b.bitnot(broadcast_mask(b, mask, safe[0], marks[0]))
        safe[0] = b.bitor(safe[0], off)
    elif isinstance(op, Gather | Scatter):
        for k in range(1, len(safe) - isinstance(op, Scatter)):
            on = broadcast_mask(b, mask, safe[k], marks[k])
            safe[k] = b.select(on, safe[k], b.zeros_like(safe[k]))
    return safe


def _custom(
    b: Builder, instruction: Instruction, operands: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> tuple[Value, ...]:
    """Emit a ``custom`` instruction with batched regions. The cotangent of an operand without the axis is summed along it."""
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
        results, rows = emit_batched(inner, region, parameters, batched, size, *on)
        results = with_leading_axis(inner, results, rows, size)
        if is_rule and is_vjp:
            results = [v if marks[k] else inner.sum(v, axes=(0,)) for k, v in zip(params["vjp"], results, strict=True)]
        regions.append(inner.block([*parameters, *on], results))
    return b.emit(instruction.op, [*operands, *([] if mask is None else [mask])], dict(params), regions)


STRUCTURED[Custom] = _custom
