"""interleave_short_axes: compute arrays that are joined along a short axis together, part by part.

Requires: an optimised func without complex values. Keeps: all other instructions. ``np.stack([x, y], axis=-1)`` iterated over
the elements of the result would select by the last index at each of them; iterated over the elements of its parts, it computes
and stores all parts of an index. The same holds for the gradients of gates, which are slices of an axis, before the product
that reads them. A few cheap elementwise ops on joined arrays are applied to the parts instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.reindex import broadcast, concat, reshape
from pullback.ir.ops.control.loops import Loop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

MOST_PARTS = 8
"""Most parts."""
MOST_OPS = 32
"""Most ops on parts that replace the ops on a joined array: code is duplicated for each part."""
Parts = tuple[Value, ...]
"""The arrays that are joined, without the axis along which they are."""


def interleave_short_axes(function: Function) -> Function:
    """Return the function with ``interleave`` for each joined array that is returned, or that is read only as an array in
    memory."""
    producer = {v: i for i in function.instructions for v in i.results}
    array_reads = _array_read_counts(function)
    joined = _joined(function, producer, array_reads)
    stored = {v for v in joined if v in array_reads}
    inside = _joined_sources(joined, stored)
    parts: dict[Value, Parts] = {}
    axes: dict[Value, int] = {}

    def replacement(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        if i.op is concat:
            axes[i.result] = i.params["axis"]
            parts[i.result] = tuple(_part(b, v, axes[i.result], producer.get(v), new) for v in i.operands)
        else:
            first = next(v for v in i.operands if v in parts)
            axes[i.result], like = axes[first], parts[first]
            sources = {v: producer[v].operands[0] for v in i.operands if v not in parts}
            same = {v: (b.spread(new(k), like[0].type.shape),) * len(like) for v, k in sources.items()}
            each = zip(*(parts[v] if v in parts else same[v] for v in i.operands), strict=True)
            parts[i.result] = tuple(b.emit(i.op, operands, dict(i.params))[0] for operands in each)
        # The other arrays have no readers but those that were split into parts.
        if i.result not in stored:
            return i.results
        axis = axes[i.result]
        return [b.interleave(*parts[i.result], **({} if axis == i.result.type.rank - 1 else {"axis": axis}))]

    return replaced(function, lambda i: not inside.isdisjoint(i.results), replacement)


def _array_read_counts(function: Function) -> Counter[Value]:
    """Return how often each value is a result of the function or read as an array in memory."""
    counts = Counter(function.results)
    for i in function.instructions:
        if i.op is reshape or isinstance(i.op, Contract | Loop):
            counts.update(i.operands)
    return counts


def _joined(
    function: Function, producer: Mapping[Value, Instruction], array_reads: Mapping[Value, int]
) -> dict[Value, Instruction]:
    """Return the instructions that join few arrays, and the cheap functions of joined arrays; only the latter, or only readers
    of the array in memory, may read these."""
    counts, instructions = use_counts(function.body), dict[Value, Instruction]()
    layouts: dict[Value, tuple[int, int]] = {}
    times: dict[Value, int] = {}
    for i in function.instructions:
        if _joins_single_slices(i):
            layouts[i.result], instructions[i.result] = (len(i.operands), i.params["axis"]), i
        elif isinstance(i.op, Elementwise) and i.op.cheap:
            joined_operands = dict.fromkeys(v for v in i.operands if not _is_broadcast_scalar(producer.get(v)))
            operand_layouts = {layouts.get(v, (0, 0)) for v in joined_operands}
            if (
                len(operand_layouts) != 1
                or (0, 0) in operand_layouts
                or any(counts[v] != i.operands.count(v) for v in joined_operands)
            ):
                continue
            times[i.result] = sum(times.get(v, 0) for v in joined_operands) + max(operand_layouts)[0]
            if times[i.result] <= MOST_OPS:
                layouts[i.result], instructions[i.result] = max(operand_layouts), i
    return {v: i for v, i in instructions.items() if array_reads.get(v, 0) in (0, counts[v])}


def _is_broadcast_scalar(i: Instruction | None) -> bool:
    """Return whether a value is a scalar that is broadcast."""
    return i is not None and i.op is broadcast and i.operands[0].type.rank == 0


def _joined_sources(joined: Mapping[Value, Instruction], stored: set[Value]) -> set[Value]:
    """Return the results in ``stored`` and the joined arrays from which they are computed."""
    closure, stack = set[Value](), list(stored)
    while stack:
        v = stack.pop()
        if v not in closure:
            closure.add(v)
            stack += [k for k in joined[v].operands if k in joined] if joined[v].op is not concat else []
    return closure


def _part(b: Builder, v: Value, axis: int, definition: Instruction | None, new: New) -> Value:
    """Return one of the joined arrays, without the axis along which it is joined."""
    if definition is not None and definition.op is broadcast and tuple(definition.params["axes"]) == (axis,):
        return new(definition.operands[0])
    part: Value = b.squeeze(new(v), axes=(axis,))
    return part


def _joins_single_slices(i: Instruction) -> bool:
    """Return whether an instruction joins few arrays whose extent along the axis is one."""
    if i.op is not concat or not 2 <= len(i.operands) <= MOST_PARTS:
        return False
    return i.result.type.rank > 1 and all(v.type.shape[i.params["axis"]] == 1 for v in i.operands)
