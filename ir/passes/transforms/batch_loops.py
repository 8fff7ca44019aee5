"""Batching of ``scan``, ``while`` and ``switch``.

A loop carries rows. If the condition of a ``while`` depends on the row it runs as long as any row goes on, and a scan whose count
does runs as often as the largest says; rows that are done keep their values. Of a switch whose index depends on the row all
branches run, and each row takes its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import leading
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, Extent, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Scan, StackLength, Switch, While
from pullback.ir.passes.editing.activity import carries_reached, flow, is_batched_condition
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of, scan
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.transforms.batch import STRUCTURED, along, spread_mask, with_axis


def batch_scan(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """The rule of ``scan``."""
    loop = parts_of(instruction)
    carries, sequences, captures = loop.operands(inputs)
    starts, sliced, captured = loop.operands(marks)
    carried, rows = carries_reached(loop, marks, smooth=False)
    extra: list[Value] = [] if mask is None else [mask]
    count, has_counts = None, bool(loop.first) and marks[0]
    if loop.first:
        (count,) = inputs[:1]
        if mask is not None:
            on = spread_mask(b, mask, count, has_counts)
            count = b.select(on, count, b.zeros_like(count))
        if has_counts:
            extra = [count]
            count = b.maximum(b.max(count, axes=(0,)), b.const(0, I64))
    inner = Builder(b.loc, hint=b.hint)
    index = Value(scalar(I64), "i")
    given = [*carried, *sliced, *captured]
    own = with_axis(loop.body.parameters[1:], given, size)
    further = [Value(v.type, v.name) for v in extra]
    on_rows = further[0] if further else None
    if has_counts:
        on_rows = inner.lt(inner.spread(index, (size,)), further[0])
    results, found = along(inner, loop.body, [index, *own], [False, *given], size, on_rows)
    ends = leading(inner, results[: loop.carried], [f or not c for f, c in zip(found, carried, strict=False)], size)
    if has_counts and on_rows is not None:
        ends = _frozen(inner, on_rows, ends, own[: loop.carried])
    body = inner.block([index, *own, *further], [*ends, *results[loop.carried :]])
    outputs = scan(
        b,
        body,
        _started(b, carries, starts, carried, size),
        [_rows_inside(b, v) if mark and loop.length else v for v, mark in zip(sequences, sliced, strict=True)],
        [*captures, *extra],
        loop.length,
        count,
        loop.reverse,
        instruction.params.get("checkpoint"),
    )
    finals, made = loop.results(outputs)
    return finals + [_rows_inside(b, v) if mark and loop.length else v for v, mark in zip(made, rows, strict=True)]


def _rows_inside(b: Builder, v: Value) -> Value:
    """A sequence with its first two axes exchanged: that of the batch, and that of the runs."""
    found: Value = b.transpose(v, perm=(1, 0, *range(2, v.type.rank)))
    return found


def _started(b: Builder, inits: Sequence[Value], have: Sequence[bool], need: Sequence[bool], size: Extent) -> list[Value]:
    """Carried values, with the axis where they get it."""
    return leading(b, inits, [h or not n for h, n in zip(have, need, strict=True)], size)


def _frozen(b: Builder, on: Value, new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    """New values of the rows that go on, old ones of those that are done."""
    return [b.select(spread_mask(b, on, x, True), x, y) for x, y in zip(new, old, strict=True)]


def batch_while(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """The rule of ``while``."""
    loop = parts_of(instruction)
    condition = loop.condition
    assert condition is not None
    carries, _, captures = loop.operands(inputs)
    starts, _, captured = loop.operands(marks)
    carried, _ = carries_reached(loop, marks, smooth=False)
    inits = _started(b, carries, starts, carried, size)
    given = [*carried, *captured]
    if is_batched_condition(condition, [False, *given]):
        return _by_row(b, instruction, loop, [*inits, *captures], given, size, mask)
    extra = [] if mask is None else [mask]
    regions = []
    for region in (condition, loop.body):
        inner = Builder(b.loc, hint=b.hint)
        index, own = Value(scalar(I64), "i"), with_axis(region.parameters[1:], given, size)
        further = [Value(v.type, v.name) for v in extra]
        results, found = along(inner, region, [index, *own], [False, *given], size, *further)
        if region is condition and further:
            results = [inner.bitand(results[0], inner.any(further[0], axes=(0,)))]
        if region is loop.body:
            results[: loop.carried] = leading(
                inner, results[: loop.carried], [f or not c for f, c in zip(found, carried, strict=False)], size
            )
        regions.append(inner.block([index, *own, *further], results))
    return list(b.emit(instruction.op, [*inits, *captures, *extra], dict(instruction.params), regions))


def _by_row(
    b: Builder, instruction: Instruction, loop: LoopParts, operands: Sequence[Value], marks: Sequence[bool], size: Extent,
    mask: Value | None,
) -> list[Value]:  # fmt: skip
    """A ``while`` whose condition depends on the row: it also carries which rows go on, and their counts."""
    condition, count = loop.condition, loop.carried
    assert condition is not None
    inits, captures = list(operands[:count]), list(operands[count:])

    def goes_on(to: Builder, index: Value, values: Sequence[Value], on: Value | None) -> Value:
        found, has_axis = along(to, condition, [index, *values], [False, *marks], size, on)
        (rows,) = leading(to, found, has_axis, size)
        return rows if on is None else to.bitand(rows, on)

    first = goes_on(b, b.const(0, I64), operands, mask)
    trips = b.full(0, ArrayType(I64, (size,)))
    regions = []
    for region in (condition, loop.body):
        inner = Builder(b.loc, hint=b.hint)
        index, own = Value(scalar(I64), "i"), with_axis(region.parameters[1:], marks, size)
        on, number = Value(ArrayType(BOOL, (size,)), "on"), Value(trips.type, "trips")
        results = [inner.any(on, axes=(0,))]
        if region is loop.body:
            results, found = along(inner, region, [index, *own], [False, *marks], size, on)
            ends = _frozen(inner, on, leading(inner, results[:count], found[:count], size), own[:count])
            on_next = goes_on(inner, inner.add(index, inner.const(1, I64)), [*ends, *own[count:]], on)
            results = [*ends, on_next, inner.add(number, inner.cast(on, dtype=I64)), *results[count:]]
        regions.append(inner.block([index, *own[:count], on, number, *own[count:]], results))
    params = {**instruction.params, "carried": count + 2}
    outputs = b.emit(instruction.op, [*inits, first, trips, *captures], params, regions)
    return [*outputs[:count], outputs[count + 1], *outputs[count + 3 :]]


def batch_switch(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """The rule of ``switch``."""
    index, *captures = inputs
    if marks[0]:
        return _each_branch(b, instruction, inputs, marks, size, mask)
    needed = flow(instruction, marks, smooth=False)
    extra = [] if mask is None else [mask]
    regions: list[Block] = []
    for region in instruction.regions:
        inner = Builder(b.loc, hint=b.hint)
        own, further = with_axis(region.parameters, marks[1:], size), [Value(v.type, v.name) for v in extra]
        results, found = along(inner, region, own, marks[1:], size, *further)
        results = leading(inner, results, [f or not n for f, n in zip(found, needed, strict=True)], size)
        regions.append(inner.block([*own, *further], results))
    return list(b.emit(instruction.op, [index, *captures, *extra], dict(instruction.params), regions))


def _each_branch(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], marks: Sequence[bool], size: Extent, mask: Value | None
) -> list[Value]:
    """The results of all branches, of which each row takes its own."""
    index, *captures = inputs
    chosen: list[Value] = []
    for number, region in enumerate(instruction.regions):
        taken = b.eq(index, b.full(number, index.type))
        on = taken if mask is None else b.bitand(taken, mask)
        results, found = along(b, region, captures, marks[1:], size, on)
        rows = leading(b, results, found, size)
        chosen = (
            rows if not chosen else [b.select(spread_mask(b, taken, x, True), x, y) for x, y in zip(rows, chosen, strict=True)]
        )
    return chosen


STRUCTURED[Scan] = batch_scan
STRUCTURED[While] = batch_while
STRUCTURED[Switch] = batch_switch
STRUCTURED[StackLength] = lambda b, instruction, inputs, marks, size, mask: replay(b, instruction, inputs)
