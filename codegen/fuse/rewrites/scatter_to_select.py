"""scatter_to_select: turn updates of one element of each row into elementwise selects, so that they can be fused.

    x[arange(n), labels] += v                x + v where the column is the row's label, else x

Requires: an optimised func, without complex values. Keeps: its meaning. A ``scatter`` whose indices are, for some axes, the
positions along all of their own axes, and anything for the other axes, updates each row of its base once. If the base is
computed for this update alone, every element is written in any case, so the update becomes a select for each element: rows are
then independent, no element is read after it was written, and later ops can be in the same kernel. An array that exists in
memory is updated in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.types import BOOL, I64, ArrayType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Iota
from pullback.ir.ops.array.index import Scatter
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

Producers = Mapping[Value, Instruction]


def scatter_to_select(function: Function) -> Function:
    """Return the function with such updates as selects."""
    if not any(isinstance(i.op, Scatter) for i in function.instructions):
        return function
    producer = {v: i for i in function.instructions for v in i.results}
    uses = use_counts(function.body)
    rows: dict[Instruction, dict[int, int]] = {}
    for i in function.instructions:
        mapping = _row_axes(i, producer) if isinstance(i.op, Scatter) and _is_computed(i, producer, uses) else None
        if mapping is not None:
            rows[i] = mapping

    def emit(b: Builder, i: Instruction, new: New) -> list[Value]:
        return [_Select(b, i, list(map(new, i.operands)), rows[i]).emit()]

    return replaced(function, rows.__contains__, emit)


def _is_computed(i: Instruction, producer: Producers, uses: Mapping[Value, int]) -> bool:
    """Return whether all elements of the base are computed by fusible ops, for this update alone."""
    base = i.operands[0]
    definition = producer.get(base)
    return definition is not None and (isinstance(definition.op, Elementwise) or definition.op is broadcast) and uses[base] == 1


def _row_axes(i: Instruction, producer: Producers) -> dict[int, int] | None:
    """Return, for each axis of the base that an axis of the indices counts, that axis; None if an element of the base may be
    updated twice, or if there is no other axis."""
    base, *indices, _ = i.operands
    rank = indices[0].type.rank
    if tuple(i.params["axes"]) != tuple(range(base.type.rank)) or base.type.dtype.is_complex:
        return None
    axis_map: dict[int, int] = {}
    for axis, index in enumerate(indices):
        line = _iota_axis(index, producer)
        if line is not None and line not in axis_map.values():
            axis_map[axis] = line
    counted = {*axis_map.values(), *(k for k in range(rank) if indices[0].type.shape[k] == 1)}
    return axis_map if axis_map and len(counted) == rank and len(axis_map) < base.type.rank else None


def _iota_axis(value: Value, producer: Producers) -> int | None:
    """Return the axis along which a value is the index; None if there is none."""
    definition = producer.get(value)
    if definition is None:
        return None
    if isinstance(definition.op, Iota):
        return int(definition.params["axis"])
    if definition.op is not broadcast:
        return None
    source = _iota_axis(definition.operands[0], producer)
    kept = [k for k in range(value.type.rank) if k not in definition.params["axes"]]
    return None if source is None else kept[source]


class _Select:
    """An update as a select. ``rows``: by axis of the base, the axis of the indices that counts it."""

    def __init__(self, b: Builder, i: Instruction, operands: Sequence[Value], rows: Mapping[int, int]) -> None:
        self.b, self.i, self.rows = b, i, rows
        self.base, *self.indices, self.values = operands
        self.shape = self.base.type.shape

    def emit(self) -> Value:
        """Emit the select."""
        b, shape = self.b, self.shape
        condition = self.inside()
        for axis, (index, extent) in enumerate(zip(self.indices, shape, strict=True)):
            if axis not in self.rows:
                target = self.spread(self.wrapped(index, extent))
                at = b.eq(b.iota(shape=shape, axis=axis, dtype=I64), target)
                condition = at if condition is None else b.bitand(condition, at)
        value = self.spread(self.values)
        assert condition is not None and isinstance(self.i.op, Scatter)
        result: Value = b.select(condition, b.add(self.base, value) if self.i.op.accumulate else value, self.base)
        return result

    def wrapped(self, index: Value, extent: object) -> Value:
        """Emit the indices with negative ones counted from the end."""
        b, shape = self.b, index.type.shape
        from_end = b.add(index, b.spread(b.count(shape=(extent,)), shape))
        return b.select(b.lt(index, b.zeros_like(index)), from_end, index)

    def inside(self) -> Value | None:
        """Emit the mask of elements whose rows are updated at all; None if all are."""
        if not self.shorter_axes(self.values.type.shape):
            return None
        return self.spread(self.b.full(True, ArrayType(BOOL, self.values.type.shape)))

    def shorter_axes(self, counted: Shape) -> dict[int, object]:
        """Return the axes of the indices that may be shorter than the base's, with the base's extents."""
        ends = {line: self.shape[axis] for axis, line in self.rows.items()}
        return {line: ends[line] for line in range(len(counted)) if line in ends and ends[line] != counted[line]}

    def spread(self, value: Value) -> Value:
        """Broadcast a value of the indices' shape over the base."""
        b, longer = self.b, self.shorter_axes(value.type.shape)
        if longer:
            shape = tuple(longer.get(k, e) for k, e in enumerate(value.type.shape))
            start = tuple(0 if k in longer else None for k in range(len(shape)))
            value = b.pad(value, start=start, step=(1,) * len(shape), shape=shape)
        lines = sorted(self.rows.values())
        single = [k for k in range(value.type.rank) if k not in lines]
        if single:
            value = b.squeeze(value, axes=tuple(single))
        order = tuple(lines.index(self.rows[axis]) for axis in sorted(self.rows))
        if order != tuple(range(len(order))):
            value = b.transpose(value, perm=order)
        others = tuple(axis for axis in range(len(self.shape)) if axis not in self.rows)
        result: Value = b.broadcast(value, axes=others, shape=self.shape)
        return result
