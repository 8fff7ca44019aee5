"""Batching of ``scan``, ``while`` and ``switch``.

If the condition of a ``while`` depends on the row, the loop runs as long as any row is active; a scan whose trip count depends
on the row runs for the largest one. Finished rows keep their values. A switch whose index depends on the row runs all
branches, and each row selects one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import with_leading_axis
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, Extent, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Scan, StackLength, Switch, While
from pullback.ir.passes.editing.activity import carries_reached, dependent_results, is_batched_condition
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of, scan
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.transforms.batch import STRUCTURED, broadcast_mask, emit_batched, with_axis


def batch_scan(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """Batch a ``scan``."""
    loop = parts_of(instruction)
    carries, sequences, captures = loop.operands(inputs)
    starts, sliced, captured = loop.operands(marks)
    carried, rows = carries_reached(loop, marks, smooth=False)
    extra: list[Value] = [] if mask is None else [mask]
    count, has_counts = None, bool(loop.first) and marks[0]
    if loop.first:
        (count,) = inputs[:1]
        if mask is not None:
            on = broadcast_mask(b, mask, count, has_counts)
            count = b.select(on, count, b.zeros_like(count))
        if has_counts:
            extra = [count]
            count = b.maximum(b.max(count, axes=(0,)), b.const(0, I64))
    inner = Builder(b.loc, hint=b.hint)
    index = Value(scalar(I64), "i")
    parameter_marks = [*carried, *sliced, *captured]
    own = with_axis(loop.body.parameters[1:], parameter_marks, size)
    further = [Value(v.type, v.name) for v in extra]
    on_rows = further[0] if further else None
    if has_counts:
        on_rows = inner.lt(inner.spread(index, (size,)), further[0])
    results, has_axis = emit_batched(inner, loop.body, [index, *own], [False, *parameter_marks], size, on_rows)
    ends = with_leading_axis(inner, results[: loop.carried], [f or not c for f, c in zip(has_axis, carried, strict=False)], size)
    if has_counts and on_rows is not None:
        ends = _keep_finished(inner, on_rows, ends, own[: loop.carried])
    body = inner.block([index, *own, *further], [*ends, *results[loop.carried :]])
    outputs = scan(
        b,
        body,
        _initial_carries(b, carries, starts, carried, size),
        [_swap_leading_axes(b, v) if mark and loop.length else v for v, mark in zip(sequences, sliced, strict=True)],
        [*captures, *extra],
        loop.length,
        count,
        loop.reverse,
        instruction.params.get("checkpoint"),
    )
    finals, sequences_out = loop.results(outputs)
    return finals + [_swap_leading_axes(b, v) if mark and loop.length else v for v, mark in zip(sequences_out, rows, strict=True)]


def _swap_leading_axes(b: Builder, v: Value) -> Value:
    """Exchange the first two axes of a sequence: the batch axis and the iteration axis."""
    result: Value = b.transpose(v, perm=(1, 0, *range(2, v.type.rank)))
    return result


def _initial_carries(b: Builder, inits: Sequence[Value], have: Sequence[bool], need: Sequence[bool], size: Extent) -> list[Value]:
    """Return initial carried values, with the axis where they need it."""
    return with_leading_axis(b, inits, [h or not n for h, n in zip(have, need, strict=True)], size)


def _keep_finished(b: Builder, on: Value, new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    """Emit new values for active rows, old values for finished ones."""
    return [b.select(broadcast_mask(b, on, x, True), x, y) for x, y in zip(new, old, strict=True)]


def batch_while(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """Batch a ``while``."""
    loop = parts_of(instruction)
    condition = loop.condition
    assert condition is not None
    carries, _, captures = loop.operands(inputs)
    starts, _, captured = loop.operands(marks)
    carried, _ = carries_reached(loop, marks, smooth=False)
    inits = _initial_carries(b, carries, starts, carried, size)
    parameter_marks = [*carried, *captured]
    if is_batched_condition(condition, [False, *parameter_marks]):
        return _by_row(b, instruction, loop, [*inits, *captures], parameter_marks, size, mask)
    extra = [] if mask is None else [mask]
    regions = []
    for region in (condition, loop.body):
        inner = Builder(b.loc, hint=b.hint)
        index, own = Value(scalar(I64), "i"), with_axis(region.parameters[1:], parameter_marks, size)
        further = [Value(v.type, v.name) for v in extra]
        results, has_axis = emit_batched(inner, region, [index, *own], [False, *parameter_marks], size, *further)
        if region is condition and further:
            results = [inner.bitand(results[0], inner.any(further[0], axes=(0,)))]
        if region is loop.body:
            results[: loop.carried] = with_leading_axis(
                inner, results[: loop.carried], [f or not c for f, c in zip(has_axis, carried, strict=False)], size
            )
        regions.append(inner.block([index, *own, *further], results))
    return list(b.emit(instruction.op, [*inits, *captures, *extra], dict(instruction.params), regions))


def _by_row(
    b: Builder, instruction: Instruction, loop: LoopParts, operands: Sequence[Value], marks: Sequence[bool], size: Extent,
    mask: Value | None,
) -> list[Value]:  # fmt: skip
    """Batch a ``while`` whose condition depends on the row: it also carries the active rows and their trip counts."""
    condition, count = loop.condition, loop.carried
    assert condition is not None
    inits, captures = list(operands[:count]), list(operands[count:])

    def active_rows(to: Builder, index: Value, values: Sequence[Value], on: Value | None) -> Value:
        results, has_axis = emit_batched(to, condition, [index, *values], [False, *marks], size, on)
        (rows,) = with_leading_axis(to, results, has_axis, size)
        return rows if on is None else to.bitand(rows, on)

    first = active_rows(b, b.const(0, I64), operands, mask)
    trips = b.full(0, ArrayType(I64, (size,)))
    regions = []
    for region in (condition, loop.body):
        inner = Builder(b.loc, hint=b.hint)
        index, own = Value(scalar(I64), "i"), with_axis(region.parameters[1:], marks, size)
        on, trip_counts = Value(ArrayType(BOOL, (size,)), "on"), Value(trips.type, "trips")
        results = [inner.any(on, axes=(0,))]
        if region is loop.body:
            results, has_axis = emit_batched(inner, region, [index, *own], [False, *marks], size, on)
            ends = _keep_finished(inner, on, with_leading_axis(inner, results[:count], has_axis[:count], size), own[:count])
            on_next = active_rows(inner, inner.add(index, inner.const(1, I64)), [*ends, *own[count:]], on)
            results = [*ends, on_next, inner.add(trip_counts, inner.cast(on, dtype=I64)), *results[count:]]
        regions.append(inner.block([index, *own[:count], on, trip_counts, *own[count:]], results))
    params = {**instruction.params, "carried": count + 2}
    outputs = b.emit(instruction.op, [*inits, first, trips, *captures], params, regions)
    return [*outputs[:count], outputs[count + 1], *outputs[count + 3 :]]


def batch_switch(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """Batch a ``switch``."""
    index, *captures = inputs
    if marks[0]:
        return _each_branch(b, instruction, inputs, marks, size, mask)
    needed = dependent_results(instruction, marks, smooth=False)
    extra = [] if mask is None else [mask]
    regions: list[Block] = []
    for region in instruction.regions:
        inner = Builder(b.loc, hint=b.hint)
        own, further = with_axis(region.parameters, marks[1:], size), [Value(v.type, v.name) for v in extra]
        results, has_axis = emit_batched(inner, region, own, marks[1:], size, *further)
        results = with_leading_axis(inner, results, [f or not n for f, n in zip(has_axis, needed, strict=True)], size)
        regions.append(inner.block([*own, *further], results))
    return list(b.emit(instruction.op, [index, *captures, *extra], dict(instruction.params), regions))


def _each_branch(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """Emit all branches, and select the results by row."""
    index, *captures = inputs
    chosen: list[Value] = []
    for branch, region in enumerate(instruction.regions):
        taken = b.eq(index, b.full(branch, index.type))
        on = taken if mask is None else b.bitand(taken, mask)
        results, has_axis = emit_batched(b, region, captures, marks[1:], size, on)
        rows = with_leading_axis(b, results, has_axis, size)
        chosen = (
            rows if not chosen else [b.select(broadcast_mask(b, taken, x, True), x, y) for x, y in zip(rows, chosen, strict=True)]
        )
    return chosen


STRUCTURED[Scan] = batch_scan
STRUCTURED[While] = batch_while
STRUCTURED[Switch] = batch_switch
STRUCTURED[StackLength] = lambda b, instruction, inputs, marks, size, mask: replay(b, instruction, inputs)
