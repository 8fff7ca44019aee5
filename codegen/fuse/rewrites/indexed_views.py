"""indexed_views: read and write at indices through a view of an array, instead of copying the view out of it and back.

    s = x[1:-1]; y = s[:, j]                            y = x[:, j][1:-1]
    s = x[1:-1]; s[:, j] = v; x[1:-1] = s               x[1:-1, j] = v, a ``scatter_set_part``
    s = zeros; s[:, j] += v; x[1:-1] += s               x[1:-1, j] += v, a ``scatter_add_part``

Requires: an optimised func without gradient instructions. Keeps: its meaning; in the last line, a -0.0 that nothing but zeros are
added to stays -0.0. An index into a view becomes an index into the array: it is counted from the end of the view first. An update
then moves the elements that it writes, where the copy moved the view: in a loop that writes a column in each iteration, that is
the difference between an update in place and two copies of the array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import I64, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import (
    Gather,
    Place,
    Scatter,
    gather,
    scatter_add,
    scatter_add_part,
    scatter_set,
    scatter_set_part,
)
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, flip, slice_, squeeze
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.editing.replay import New, replaced

FEW_INDICES = 16
"""Number of indices up to which elements are gathered through any view; more are gathered from a copy of a strided view."""

Producers = Mapping[Value, Instruction]


def indexed_views(function: Function) -> Function:
    """Return the function with such reads and writes."""
    if not any(isinstance(i.op, Gather | Place) for i in function.instructions):
        return function
    written = _write_through(function)
    read = _read_through(written)
    return function if read is function else dce(read)


# writes


@dataclass(frozen=True, eq=False)
class _Part:
    """The part of an array that a chain of updates writes: the array after ``slice_set`` or ``slice_add`` at ``start`` and
    ``step``, whose axes ``squeezed``, of extent one, the chain does not have. ``leaf`` is the value that the chain starts from;
    the array ``base`` replaces it."""

    base: Value
    leaf: Value
    start: tuple[Any, ...]
    step: tuple[int, ...]
    squeezed: tuple[int, ...]
    update: Instruction

    @property
    def is_sum(self) -> bool:
        """Whether the chain starts from zeros and is added to the array."""
        return isinstance(self.update.op, Place) and self.update.op.accumulate

    def kept(self) -> list[int]:
        """Return the axes of the array that the chain has."""
        return [k for k in range(self.base.type.rank) if k not in self.squeezed]


def _write_through(function: Function) -> Function:
    """Return the function in which updates of a view that is written back update the array."""
    producer = {v: i for i in function.instructions for v in i.results}
    part_of: dict[Instruction, _Part] = {}
    closing: dict[Instruction, tuple[_Part, list[Instruction]]] = {}
    for i in function.instructions:
        chain = _chain(i, producer) if isinstance(i.op, Place) else None
        if chain is not None and not any(scatter in part_of for scatter in chain[1]):
            closing[i] = chain
            part_of.update({} if chain[0].is_sum else dict.fromkeys(chain[1], chain[0]))
    if not closing:
        return function
    return _Writer(part_of, closing).run(function)


class _Writer:
    """Emits the updates of chains as updates of the array. ``full``: the array after each update of a chain."""

    def __init__(
        self, part_of: Mapping[Instruction, _Part], closing: Mapping[Instruction, tuple[_Part, list[Instruction]]]
    ) -> None:
        self.part_of, self.closing = part_of, closing
        self.b = Builder()
        self.new: dict[Value, Value] = {}
        self.full: dict[Value, Value] = {}

    def run(self, function: Function) -> Function:
        """Return the function with the updates replaced."""
        for i in function.instructions:
            part = self.part_of.get(i)
            if i in self.closing:
                self.close(i)
            elif part is not None:
                self.update(i, part)
                self.new[i.result] = _view(self.b.at(i.loc, i.result.name), self.full[i.result], part)
            else:
                operands = tuple(self.new.get(v, v) for v in i.operands)
                self.b.append(i if operands == i.operands else replace(i, operands=operands))
        results = [self.new.get(v, v) for v in function.results]
        return self.b.function(function.name, function.parameters, results, function.kind)

    def close(self, i: Instruction) -> None:
        """Replace the write of a view into its array: sums onto zeros go to the array only here, where it is defined."""
        part, scatters = self.closing[i]
        if part.is_sum:
            self.full.pop(part.leaf, None)
            for scatter in reversed(scatters):
                self.update(scatter, part)
        self.new[i.result] = self.full[scatters[0].result]

    def update(self, i: Instruction, part: _Part) -> None:
        """Emit a scatter into a view as one into its array."""
        before = self.full.get(i.operands[0], self.new.get(part.base, part.base))
        operands = [before, *(self.new.get(v, v) for v in i.operands[1:])]
        self.full[i.result] = _scattered(self.b.at(i.loc, i.result.name), i, operands, part)


def _chain(i: Instruction, producer: Producers) -> tuple[_Part, list[Instruction]] | None:
    """Return the part that an update writes with the result of a chain of scatters into it, and the scatters, the last one first;
    None if it writes anything else."""
    base, value = i.operands
    squeezed: tuple[int, ...] = ()
    definition = producer.get(value)
    if definition is not None and definition.op is broadcast and all(value.type.shape[a] == 1 for a in definition.params["axes"]):
        squeezed = tuple(definition.params["axes"])
        value = definition.operands[0]
        definition = producer.get(value)
    scatters: list[Instruction] = []
    while definition is not None and isinstance(definition.op, Scatter):
        scatters.append(definition)
        value = definition.operands[0]
        definition = producer.get(value)
    assert isinstance(i.op, Place)
    part = _Part(base, value, tuple(i.params["start"]), tuple(i.params["step"]), squeezed, i)
    if not scatters or not (_adds_to_zeros(part, scatters, producer) if i.op.accumulate else _is_read(part, producer)):
        return None
    return part, scatters


def _is_read(part: _Part, producer: Producers) -> bool:
    """Return whether the leaf of a chain is the part itself."""
    definition = producer.get(part.leaf)
    if part.squeezed:
        if definition is None or definition.op is not squeeze or tuple(definition.params["axes"]) != part.squeezed:
            return False
        definition = producer.get(definition.operands[0])
    if definition is None or definition.op is not slice_ or definition.operands[0] is not part.base:
        return False
    is_same = tuple(definition.params["start"]) == part.start and tuple(definition.params["step"]) == part.step
    written = part.update.operands[1].type.shape
    return is_same and tuple(definition.params["shape"]) == written


def _adds_to_zeros(part: _Part, scatters: Sequence[Instruction], producer: Producers) -> bool:
    """Return whether a chain adds to zeros, and the array is in memory."""
    if any(i.op is not scatter_add for i in scatters):
        return False
    definition = producer.get(part.leaf)
    if definition is not None and definition.op is broadcast:
        definition = producer.get(definition.operands[0])
    is_zero = definition is not None and isinstance(definition.op, Constant) and definition.params["value"] == 0
    return is_zero and _is_stored(part.base, producer)


def _is_stored(value: Value, producer: Producers) -> bool:
    """Return whether a value is in memory in any case: a parameter, or the result of an op with a kernel of its own."""
    definition = producer.get(value)
    computed = Elementwise | Reduce | Reindex | Gather | Constant | Iota | Count
    return definition is None or not isinstance(definition.op, computed)


def _scattered(b: Builder, i: Instruction, operands: Sequence[Value], part: _Part) -> Value:
    """Emit a scatter into a part as a scatter into the array. ``operands``: the array, the indices and the values."""
    base, *indices, values = operands
    kept, rank = part.kept(), indices[0].type.rank
    extents = part.update.operands[1].type.shape
    axes = tuple(kept[a] for a in i.params["axes"])
    moved = [
        _moved(b, index, extents[axis], part.start[axis], part.step[axis]) for axis, index in zip(axes, indices, strict=True)
    ]
    rest = [k for k in range(base.type.rank) if k not in axes]
    if part.squeezed:
        shape = (*values.type.shape[:rank], *_with_ones(values.type.shape[rank:], rest, part.squeezed))
        values = b.broadcast(values, axes=tuple(rank + rest.index(k) for k in part.squeezed), shape=shape)
    start = tuple(None if k in axes else s for k, s in enumerate(part.start))
    step = tuple(1 if k in axes else s for k, s in enumerate(part.step))
    operands = (base, *moved, values)
    if all(s is None for s in start):
        return b.emit(i.op, operands, {"axes": axes})[0]
    op = scatter_set_part if i.op is scatter_set else scatter_add_part
    return b.emit(op, operands, {"axes": axes, "start": start, "step": step})[0]


def _with_ones(shape: Sequence[Extent], rest: Sequence[int], squeezed: Sequence[int]) -> list[Extent]:
    """Return a shape with extents of one at the axes ``squeezed`` among the axes ``rest``."""
    extents = iter(shape)
    return [1 if k in squeezed else next(extents) for k in rest]


def _view(b: Builder, full: Value, part: _Part) -> Value:
    """Emit the part of the array after an update, as the chain has it."""
    shape = part.update.operands[1].type.shape
    view = b.slice(full, start=part.start, step=part.step, shape=shape)
    result: Value = b.squeeze(view, axes=part.squeezed) if part.squeezed else view
    return result


def _moved(b: Builder, index: Value, extent: Extent, start: Extent | None, step: int, reverse: bool = False) -> Value:
    """Emit the index into an array of an index into its part of ``extent`` elements; ``reverse``: the part is flipped."""
    if start is None and not reverse:
        return index
    shape = index.type.shape
    count = b.spread(b.count(shape=(extent,)), shape)
    moved: Value = b.select(b.lt(index, b.zeros_like(index)), b.add(index, count), index)
    if reverse:
        moved = b.sub(b.sub(count, b.full(1, ArrayType(I64, shape))), moved)
    if step != 1:
        moved = b.mul(moved, b.full(step, ArrayType(I64, shape)))
    return b.add(moved, b.spread(b.count(shape=(start,)), shape)) if start else moved


# reads


def _read_through(function: Function) -> Function:
    """Return the function in which elements of a view of a stored array are gathered from the array."""
    producer = {v: i for i in function.instructions for v in i.results}
    chosen = {i for i in function.instructions if isinstance(i.op, Gather) and _is_gathered_through(i, producer)}

    def emit(b: Builder, i: Instruction, new: New) -> list[Value]:
        return [_gathered(b, i, producer, new)]

    return replaced(function, chosen.__contains__, emit)


def _views(value: Value, producer: Producers) -> list[Instruction]:
    """Return the views through which a gather can read, from a value to an array."""
    views: list[Instruction] = []
    definition = producer.get(value)
    while definition is not None and definition.op in (slice_, squeeze, flip):
        views.append(definition)
        definition = producer.get(definition.operands[0])
    return views


def _is_gathered_through(i: Instruction, producer: Producers) -> bool:
    """Return whether the elements of a view are to be gathered from its array: if they are few, or adjacent in memory."""
    views = _views(i.operands[0], producer)
    if not any(v.op is not squeeze for v in views) or not _is_stored(views[-1].operands[0], producer):
        return False
    shape = i.operands[1].type.shape
    is_few = all(isinstance(e, int) for e in shape) and prod(e for e in shape if isinstance(e, int)) <= FEW_INDICES
    last = i.operands[0].type.rank - 1
    is_adjacent = all(v.op is slice_ and v.params["step"][-1] == 1 for v in views) and last not in i.params["axes"]
    return is_few or is_adjacent


def _gathered(b: Builder, i: Instruction, producer: Producers, new: New) -> Value:
    """Emit a gather from the array of a view."""
    indices = list(map(new, i.operands[1:]))
    axes, rank = tuple(i.params["axes"]), indices[0].type.rank
    undo: list[tuple[Any, dict[str, Any]]] = []
    views = _views(i.operands[0], producer)
    for view in views:
        (source,), params = view.operands, view.params
        extents = view.result.type.shape
        if view.op is squeeze:
            kept = [k for k in range(source.type.rank) if k not in params["axes"]]
            axes = tuple(kept[a] for a in axes)
            rest = [k for k in range(source.type.rank) if k not in axes]
            undo.append((squeeze, {"axes": tuple(rank + rest.index(k) for k in params["axes"])}))
            continue
        rest = [k for k in range(source.type.rank) if k not in axes]
        if view.op is flip:
            indices = [_moved(b, x, extents[a], None, 1, a in params["axes"]) for a, x in zip(axes, indices, strict=True)]
            flipped = tuple(rank + n for n, k in enumerate(rest) if k in params["axes"])
            undo += [(flip, {"axes": flipped})] if flipped else []
            continue
        start, step = params["start"], params["step"]
        indices = [_moved(b, x, extents[a], start[a], step[a]) for a, x in zip(axes, indices, strict=True)]
        if any(start[k] is not None for k in rest):
            lead = indices[0].type.shape
            undo.append(
                (
                    slice_,
                    {
                        "start": ((None,) * rank) + tuple(start[k] for k in rest),
                        "step": ((1,) * rank) + tuple(step[k] for k in rest),
                        "shape": (*lead, *(extents[k] for k in rest)),
                    },
                )
            )
    root = views[-1].operands[0]
    (result,) = b.emit(gather, (new(root), *indices), {"axes": axes})
    for op, params in reversed(undo):
        (result,) = b.emit(op, (result,), params)
    return result
