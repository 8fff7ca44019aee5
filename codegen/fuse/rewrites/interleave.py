"""interleave_short_axes: compute arrays that are joined along a short axis together, part by part.

Requires: an optimised func without complex values. Keeps: all other instructions. ``np.stack([x, y], axis=-1)`` iterated over
the elements of the result would select by the last index at each of them; iterated over the elements of its parts, it computes
and stores all parts of an index; joined arrays of joined arrays, such as matrices of components, are one list of parts. The same
holds for the gradients of gates, which are slices of an axis, before the product
that reads them. A few cheap elementwise ops on joined arrays are applied to the parts instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.reindex import broadcast, concat, reshape
from pullback.ir.ops.control.loops import Loop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

MOST_PARTS = 128
"""Most parts along the last axis: their vectors are interleaved by shuffles and transposes, in code that grows with them."""
MOST_RUNS = 8
"""Most parts along other axes. Each is written to memory of its own; many have a loop each instead."""
MOST_OPS = 32
"""Most ops on parts that replace the ops on a joined array: code is duplicated for each part."""
Parts = tuple[Value, ...]
"""The arrays that are joined, without the axes along which they are."""


class _Layout(NamedTuple):
    """The neighbouring axes along which arrays are joined, in order, and their extents."""

    axes: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def part_count(self) -> int:
        return math.prod(self.extents)


class _Joined(NamedTuple):
    """An array that is joined of parts, or a cheap function of such arrays. ``parts``: what a concat joins, else none."""

    instruction: Instruction
    layout: _Layout
    parts: Parts = ()


def interleave_short_axes(function: Function) -> Function:
    """Return the function with ``interleave`` for each joined array that is returned, or that is read only as an array in
    memory."""
    producer = {v: i for i in function.instructions for v in i.results}
    array_reads = _array_read_counts(function)
    joined = _joined(function, producer, array_reads)
    stored = {v for v in joined if v in array_reads}
    inside = _joined_sources(joined, stored)
    parts: dict[Value, Parts] = {}

    def replacement(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        _, layout, sources = joined[i.result]
        if sources:
            parts[i.result] = tuple(_part(b, v, layout.axes, producer.get(v), new) for v in sources)
        else:
            like = parts[next(v for v in i.operands if v in parts)]
            scalars = {v: producer[v].operands[0] for v in i.operands if v not in parts}
            same = {v: (b.spread(new(k), like[0].type.shape),) * len(like) for v, k in scalars.items()}
            each = zip(*(parts[v] if v in parts else same[v] for v in i.operands), strict=True)
            parts[i.result] = tuple(b.emit(i.op, operands, dict(i.params))[0] for operands in each)
        # The other arrays have no readers but those that were split into parts.
        if i.result not in stored:
            return i.results
        axis = layout.axes[0]
        result = b.interleave(*parts[i.result], **({} if axis == parts[i.result][0].type.rank else {"axis": axis}))
        return [b.reshape(result, shape=i.result.type.shape) if len(layout.axes) > 1 else result]

    return replaced(function, lambda i: not inside.isdisjoint(i.results), replacement)


def _array_read_counts(function: Function) -> Counter[Value]:
    """Return how often each value is a result of the function or read as an array in memory."""
    counts = Counter(function.results)
    for i in function.instructions:
        if i.op is reshape or isinstance(i.op, Contract | Loop):
            counts.update(i.operands)
    return counts


def _joined(function: Function, producer: Mapping[Value, Instruction], array_reads: Mapping[Value, int]) -> dict[Value, _Joined]:
    """Return the arrays that are joined of few, and the cheap functions of joined arrays; only the latter, or only readers of
    the array in memory, may read these."""
    counts, joined = use_counts(function.body), dict[Value, _Joined]()
    times: dict[Value, int] = {}
    for i in function.instructions:
        if _joins_single_slices(i):
            joined[i.result] = _joined_of_joined(i, joined, counts) or _Joined(
                i, _Layout((i.params["axis"],), (len(i.operands),)), i.operands
            )
        elif isinstance(i.op, Elementwise) and i.op.cheap:
            operands = dict.fromkeys(v for v in i.operands if not _is_broadcast_scalar(producer.get(v)))
            layouts = {joined[v].layout if v in joined else None for v in operands}
            layout = layouts.pop() if len(layouts) == 1 else None
            if layout is None or any(counts[v] != i.operands.count(v) for v in operands):
                continue
            times[i.result] = sum(times.get(v, 0) for v in operands) + layout.part_count
            if times[i.result] <= MOST_OPS:
                joined[i.result] = _Joined(i, layout)
    return {v: i for v, i in joined.items() if array_reads.get(v, 0) in (0, counts[v])}


def _joined_of_joined(i: Instruction, joined: Mapping[Value, _Joined], counts: Mapping[Value, int]) -> _Joined | None:
    """Return a concat of joined arrays, read only by it, as one list of parts; None if it is no such concat, or if there are
    too many parts or axes between."""
    inner = [joined.get(v) for v in i.operands]
    layouts = {None if k is None or not k.parts else k.layout for k in inner}
    layout = layouts.pop() if len(layouts) == 1 else None
    if layout is None or any(counts[v] != 1 for v in i.operands):
        return None
    axis, rows = i.params["axis"], [k.parts for k in inner if k is not None]
    is_last = axis + 1 == i.result.type.rank or layout.axes[-1] + 1 == i.result.type.rank
    if len(rows) * layout.part_count > (MOST_PARTS if is_last else MOST_RUNS):
        return None
    if axis == layout.axes[0] - 1:
        parts = [v for row in rows for v in row]
        return _Joined(i, _Layout((axis, *layout.axes), (len(rows), *layout.extents)), tuple(parts))
    if axis == layout.axes[-1] + 1:
        parts = [v for column in zip(*rows, strict=True) for v in column]
        return _Joined(i, _Layout((*layout.axes, axis), (*layout.extents, len(rows))), tuple(parts))
    return None


def _is_broadcast_scalar(i: Instruction | None) -> bool:
    """Return whether a value is a scalar that is broadcast."""
    return i is not None and i.op is broadcast and i.operands[0].type.rank == 0


def _joined_sources(joined: Mapping[Value, _Joined], stored: set[Value]) -> set[Value]:
    """Return the results in ``stored`` and the joined arrays from which they are computed."""
    closure, stack = set[Value](), list(stored)
    while stack:
        v = stack.pop()
        if v not in closure:
            closure.add(v)
            stack += [] if joined[v].parts else [k for k in joined[v].instruction.operands if k in joined]
    return closure


def _part(b: Builder, v: Value, axes: Sequence[int], definition: Instruction | None, new: New) -> Value:
    """Return one of the joined arrays, without the axes along which it is joined."""
    if definition is not None and definition.op is broadcast and set(axes) <= set(definition.params["axes"]):
        others = [a - sum(k < a for k in axes) for a in definition.params["axes"] if a not in axes]
        shape = tuple(e for k, e in enumerate(v.type.shape) if k not in axes)
        source = new(definition.operands[0])
        return b.broadcast(source, axes=tuple(others), shape=shape) if others else source
    part: Value = b.squeeze(new(v), axes=tuple(axes))
    return part


def _joins_single_slices(i: Instruction) -> bool:
    """Return whether an instruction joins few arrays whose extent along the axis is one."""
    if i.op is not concat:
        return False
    is_last = i.params["axis"] + 1 == i.result.type.rank
    if not 2 <= len(i.operands) <= (MOST_PARTS if is_last else MOST_RUNS):
        return False
    return i.result.type.rank > 1 and all(v.type.shape[i.params["axis"]] == 1 for v in i.operands)
