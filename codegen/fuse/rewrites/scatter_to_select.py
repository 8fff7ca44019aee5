"""row_updates: updates of one element of each row become elementwise, so that groups take them in.

    x[arange(n), labels] += v                x + v where the column is the row's label, else x

Requires: an optimised func, without complex values. Keeps: its meaning. A ``scatter`` whose indices are the positions along all
of their own axes, and something else for other axes, meets each row of its base once. Of a base that is computed for this update
alone, every element is written in any case, so the update becomes a choice for each element: rows then are independent, no
element is read again after it was written, and what follows can be in the same kernel. An array that exists is updated in place.
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


def row_updates(function: Function) -> Function:
    """The function with such updates as choices."""
    if not any(isinstance(i.op, Scatter) for i in function.instructions):
        return function
    producer = {v: i for i in function.instructions for v in i.results}
    uses = use_counts(function.body)
    rows: dict[Instruction, dict[int, int]] = {}
    for i in function.instructions:
        found = _rows(i, producer) if isinstance(i.op, Scatter) and _is_computed(i, producer, uses) else None
        if found is not None:
            rows[i] = found

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        return [_Choice(b, i, list(map(new, i.operands)), rows[i]).made()]

    return replaced(function, rows.__contains__, made)


def _is_computed(i: Instruction, producer: Producers, uses: Mapping[Value, int]) -> bool:
    """Whether all elements of the base are computed, by what a group can take in, for this update alone."""
    base = i.operands[0]
    made = producer.get(base)
    return made is not None and (isinstance(made.op, Elementwise) or made.op is broadcast) and uses[base] == 1


def _rows(i: Instruction, producer: Producers) -> dict[int, int] | None:
    """For each axis of the base that an axis of the indices counts, that axis; None if an element of the base may be met twice,
    or if there is no other axis."""
    base, *indices, _ = i.operands
    rank = indices[0].type.rank
    if tuple(i.params["axes"]) != tuple(range(base.type.rank)) or base.type.dtype.is_complex:
        return None
    found: dict[int, int] = {}
    for axis, index in enumerate(indices):
        line = _line(index, producer)
        if line is not None and line not in found.values():
            found[axis] = line
    counted = {*found.values(), *(k for k in range(rank) if indices[0].type.shape[k] == 1)}
    return found if found and len(counted) == rank and len(found) < base.type.rank else None


def _line(value: Value, producer: Producers) -> int | None:
    """The axis along which a value is the position; None if it is not."""
    made = producer.get(value)
    if made is None:
        return None
    if isinstance(made.op, Iota):
        return int(made.params["axis"])
    if made.op is not broadcast:
        return None
    source = _line(made.operands[0], producer)
    kept = [k for k in range(value.type.rank) if k not in made.params["axes"]]
    return None if source is None else kept[source]


class _Choice:
    """An update as a choice. ``rows``: by axis of the base, the axis of the indices that counts it."""

    def __init__(self, b: Builder, i: Instruction, operands: Sequence[Value], rows: Mapping[int, int]) -> None:
        self.b, self.i, self.rows = b, i, rows
        self.base, *self.indices, self.values = operands
        self.shape = self.base.type.shape

    def made(self) -> Value:
        b, shape = self.b, self.shape
        here = self.inside()
        for axis, (index, extent) in enumerate(zip(self.indices, shape, strict=True)):
            if axis not in self.rows:
                place = self.spread(self.wrapped(index, extent))
                at = b.eq(b.iota(shape=shape, axis=axis, dtype=I64), place)
                here = at if here is None else b.bitand(here, at)
        value = self.spread(self.values)
        assert here is not None and isinstance(self.i.op, Scatter)
        found: Value = b.select(here, b.add(self.base, value) if self.i.op.accumulate else value, self.base)
        return found

    def wrapped(self, index: Value, extent: object) -> Value:
        """Positions, those that count from the end included."""
        b, shape = self.b, index.type.shape
        from_end = b.add(index, b.spread(b.count(shape=(extent,)), shape))
        return b.select(b.lt(index, b.zeros_like(index)), from_end, index)

    def inside(self) -> Value | None:
        """Whether the rows of an element are counted at all; None if all are."""
        if not self.starts(self.values.type.shape):
            return None
        return self.spread(self.b.full(True, ArrayType(BOOL, self.values.type.shape)))

    def starts(self, counted: Shape) -> dict[int, object]:
        """The axes of the indices that, as far as is known, are not as long as the base's, with the base's extents."""
        ends = {line: self.shape[axis] for axis, line in self.rows.items()}
        return {line: ends[line] for line in range(len(counted)) if line in ends and ends[line] != counted[line]}

    def spread(self, value: Value) -> Value:
        """What is of the shape of the indices, over the base."""
        b, longer = self.b, self.starts(value.type.shape)
        if longer:
            shape = tuple(longer.get(k, e) for k, e in enumerate(value.type.shape))
            start = tuple(0 if k in longer else None for k in range(len(shape)))
            value = b.pad(value, start=start, step=(1,) * len(shape), shape=shape)
        lines = sorted(self.rows.values())
        alone = [k for k in range(value.type.rank) if k not in lines]
        if alone:
            value = b.squeeze(value, axes=tuple(alone))
        order = tuple(lines.index(self.rows[axis]) for axis in sorted(self.rows))
        if order != tuple(range(len(order))):
            value = b.transpose(value, perm=order)
        others = tuple(axis for axis in range(len(self.shape)) if axis not in self.rows)
        found: Value = b.broadcast(value, axes=others, shape=self.shape)
        return found
