"""write_through: update an array at indices through a view of it, instead of copying the view out of it and back.

    s = x[1:-1]; s[:, j] = v; x[1:-1] = s               x[1:-1, j] = v, a ``scatter_set_part``
    s = x.T; s[i] = v; x = s.T                          x[:, i] = v
    s = zeros; s[:, j] += v; x[1:-1] += s               x[1:-1, j] += v, a ``scatter_add_part``

Such an update moves the elements that it writes, where the copies move the view. In a loop that writes a column in each
iteration, that is the difference between an update in place and two copies of the array. An index into the view becomes an index
into the array: it is counted from the end of the view first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import I64, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import (
    Gather,
    Place,
    Scatter,
    scatter_add,
    scatter_add_part,
    scatter_set,
    scatter_set_part,
    slice_set,
)
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, flip, slice_, squeeze, transpose
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.dce import live
from pullback.ir.shapes.symbolic import key_of

Producers = Mapping[Value, Instruction]
PerAxis = tuple[Any, ...]
MOST_VIEWS = 8
"""Most views of views through which an array is written."""


def write_through(function: Function) -> Function:
    """Return the function with such updates.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit, except that a -0.0 to which only zeros are
    added stays -0.0.
    """
    if function.kind != "func" or not any(isinstance(i.op, Scatter) for i in walk(function.body)):
        return function
    body = _block(function.body)
    return function if body is function.body else replace(function, body=live(body))


def _block(block: Block) -> Block:
    instructions = list(block.instructions)
    for k, i in enumerate(instructions):
        regions = tuple(map(_block, i.regions))
        if any(a is not b for a, b in zip(regions, i.regions, strict=True)):
            instructions[k] = replace(i, regions=regions)
    if instructions != list(block.instructions):
        block = replace(block, instructions=tuple(instructions))
    finder = _Finder(block)
    return _Writer(finder.chains, finder.chain_of).run(block) if finder.chains else block


# finding chains


@dataclass(frozen=True, eq=False)
class _Chain:
    """Updates, ``top`` the last of them, of a view of ``base`` that is written back. ``views``: the ops from the array to the
    view. The updates start from ``leaf``: the view itself or, if ``is_sum``, zeros. ``scatters``: the updates that no other
    chain has, the last one first."""

    base: Value
    leaf: Value
    views: tuple[_View, ...]
    scatters: tuple[Instruction, ...]
    top: Instruction
    is_sum: bool


@dataclass(frozen=True)
class _View:
    """A view. ``shape`` of what it is a view of."""

    op: Reindex
    params: Mapping[str, Any]
    shape: PerAxis

    @property
    def key(self) -> Any:
        """Return a key that views of an array share if they show the same elements."""
        return self.op.name, tuple((name, key_of(tuple(entries))) for name, entries in self.params.items())


class _Finder:
    """The chains of a block, by the instruction that writes a view back, and the chain of each update of a view. ``before``: by
    array with a part written, the array before that part was written the first time."""

    def __init__(self, block: Block) -> None:
        self.producer = {v: i for i in block.instructions for v in i.results}
        self.chains: dict[Instruction, _Chain] = {}
        self.chain_of: dict[Instruction, _Chain] = {}
        self.before: dict[Value, Value] = {}
        for i in block.instructions:
            if i.op is slice_set:
                self.before[i.result] = self.array_before(i)
        for i in reversed(block.instructions):
            chain = self.chain(i) if isinstance(i.op, Place | Reindex) else None
            if chain is not None:
                self.chains[i] = chain
                self.chain_of.update({} if chain.is_sum else dict.fromkeys(chain.scatters, chain))

    def array_before(self, i: Instruction) -> Value:
        """Return the array before an instruction, and the ones before it, set the same part of it."""
        earlier = self.producer.get(i.operands[0])
        is_same = earlier is not None and earlier.op is slice_set and _part_key(earlier) == _part_key(i)
        return self.before[i.operands[0]] if is_same else i.operands[0]

    def chain(self, i: Instruction) -> _Chain | None:
        """Return the updates of a view that an instruction writes back; None if it writes anything else. Updates that are in a
        chain already are not repeated in it."""
        views, value = self.undone_by(i)
        definition = self.producer.get(value) if views else None
        scatters: list[Instruction] = []
        while definition is not None and isinstance(definition.op, Scatter) and definition not in self.chain_of:
            scatters.append(definition)
            value = definition.operands[0]
            definition = self.producer.get(value)
        known = None if definition is None else self.chain_of.get(definition)
        if not scatters and known is None:
            return None
        is_sum = isinstance(i.op, Place) and i.op.accumulate
        top = self.producer[value] if not scatters else scatters[0]
        if known is not None:
            if is_sum or not _are_same(known.views, views) or (i.op is slice_set and self.before[i.result] is not known.base):
                return None
            chain = replace(known, scatters=tuple(scatters), top=top)
        else:
            base = i.operands[0] if is_sum else self.viewed(value, views)
            if base is None or (i.op is slice_set and self.before[i.result] is not base):
                return None
            if is_sum and not self.adds_to_zeros(base, value, scatters):
                return None
            chain = _Chain(base, value, tuple(views), tuple(scatters), top, is_sum)
        return chain if all(_part_in_array(scatter, chain) is not None for scatter in scatters) else None

    def undone_by(self, i: Instruction) -> tuple[list[_View], Value]:
        """Return the views that an instruction, and those before it, write back, and the value that they write."""
        views: list[_View] = []
        value = i.result
        definition: Instruction | None = i
        while definition is not None and len(views) < MOST_VIEWS and (view := _undone(definition)) is not None:
            views.append(view)
            value = definition.operands[-1]
            definition = self.producer.get(value)
        return views, value

    def viewed(self, leaf: Value, views: Sequence[_View]) -> Value | None:
        """Return the array of which ``leaf`` is this view, None if it is none."""
        for view in reversed(views):
            definition = self.producer.get(leaf)
            if definition is None or definition.op is not view.op:
                return None
            if replace(view, params={name: definition.params[name] for name in view.params}).key != view.key:
                return None
            leaf = definition.operands[0]
        return leaf

    def adds_to_zeros(self, base: Value, leaf: Value, scatters: Sequence[Instruction]) -> bool:
        """Return whether a chain adds to zeros, and the array is in memory."""
        definition = self.producer.get(leaf)
        if definition is not None and definition.op is broadcast:
            definition = self.producer.get(definition.operands[0])
        is_zero = definition is not None and isinstance(definition.op, Constant) and definition.params["value"] == 0
        return is_zero and all(i.op in (scatter_add, scatter_add_part) for i in scatters) and is_stored(base, self.producer)


def _part_key(i: Instruction) -> Any:
    """Return a key of the part of an array that a ``slice_set`` writes."""
    return key_of((tuple(i.params["start"]), tuple(i.params["step"]), tuple(i.operands[1].type.shape)))


def _are_same(views: Sequence[_View], others: Sequence[_View]) -> bool:
    """Return whether two views select the same elements of an array."""
    return [v.key for v in views] == [v.key for v in others]


def _undone(i: Instruction) -> _View | None:
    """Return the view of an instruction's result that is its last operand, None if there is none: a transpose undoes another
    one, a write of a slice undoes the slice."""
    if not isinstance(i.op, Place | Reindex):
        return None
    shape, params = i.result.type.shape, i.params
    if isinstance(i.op, Place):
        part = {"start": tuple(params["start"]), "step": tuple(params["step"]), "shape": i.operands[1].type.shape}
        return _View(slice_, part, shape)
    if i.op is flip:
        return _View(flip, {"axes": tuple(params["axes"])}, shape)
    if i.op is transpose:
        return _View(transpose, {"perm": tuple(params["perm"].index(k) for k in range(len(shape)))}, shape)
    if i.op is broadcast and all(isinstance(shape[a], int) and shape[a] == 1 for a in params["axes"]):
        return _View(squeeze, {"axes": tuple(params["axes"])}, shape)
    return None


def is_stored(value: Value, producer: Producers) -> bool:
    """Return whether a value is in memory in any case: a parameter, or the result of an op with a kernel of its own."""
    definition = producer.get(value)
    while definition is not None and isinstance(definition.op, Reindex) and definition.op.view and definition.op is not squeeze:
        definition = producer.get(definition.operands[0])
    computed = Elementwise | Reduce | Reindex | Gather | Constant | Iota | Count
    return definition is None or not isinstance(definition.op, computed)


# the part of the array that an update writes


@dataclass(frozen=True)
class _Part:
    """What an update writes: ``axes`` are indexed, the others from ``start`` with ``step``, ``counts`` elements."""

    axes: tuple[int, ...]
    start: PerAxis
    step: PerAxis
    counts: PerAxis


def _part_of(i: Instruction) -> _Part:
    """Return the part that an update writes; an indexed axis counts as written in full."""
    shape, axes = i.result.type.shape, tuple(i.params["axes"])
    counts = iter(i.operands[-1].type.shape[i.operands[1].type.rank :])
    full = (None,) * len(shape), (1,) * len(shape)
    start, step = (tuple(i.params[name]) for name in ("start", "step")) if "start" in i.params else full
    return _Part(axes, start, step, tuple(e if k in axes else next(counts) for k, e in enumerate(shape)))


def _part_in_array(i: Instruction, chain: _Chain) -> _Part | None:
    """Return the part of the array that an update of a view writes; None if that would need sums of named offsets."""
    part: _Part | None = _part_of(i)
    for view in reversed(chain.views):
        part = None if part is None else _part_in(part, view)
    return part


def _part_in(part: _Part, view: _View) -> _Part | None:
    """Return the part of what a view shows that a part of the view is, its axes in the same order."""
    if view.op is squeeze:
        kept = [k for k in range(len(view.shape)) if k not in view.params["axes"]]

        def spread(entries: PerAxis, other: Any) -> PerAxis:
            values = iter(entries)
            return tuple(next(values) if k in kept else other for k in range(len(view.shape)))

        axes = tuple(kept[a] for a in part.axes)
        return _Part(axes, spread(part.start, None), spread(part.step, 1), spread(part.counts, 1))
    if view.op is transpose:
        perm = view.params["perm"]
        order = [perm.index(k) for k in range(len(perm))]
        start, step, counts = (tuple(x[k] for k in order) for x in (part.start, part.step, part.counts))
        return _Part(tuple(perm[a] for a in part.axes), start, step, counts)
    if view.op is flip:
        return None if any(part.start[a] is not None for a in view.params["axes"]) else part
    starts, steps = [], []
    for s, d, first, stride in zip(part.start, part.step, view.params["start"], view.params["step"], strict=True):
        if s is not None and first is not None and (isinstance(s, str) or isinstance(first, str)):
            return None
        starts.append(first if s is None else s if first is None else first + s * stride)
        steps.append(d * stride)
    return _Part(part.axes, tuple(starts), tuple(steps), part.counts)


# writing


class _Writer:
    """Emits the updates of chains as updates of the array. ``full``: the array after each update of a chain."""

    def __init__(self, chains: Mapping[Instruction, _Chain], chain_of: Mapping[Instruction, _Chain]) -> None:
        self.chains, self.chain_of = chains, chain_of
        self.b = Builder()
        self.new: dict[Value, Value] = {}
        self.full: dict[Value, Value] = {}

    def run(self, block: Block) -> Block:
        """Return the block with the updates replaced."""
        for i in block.instructions:
            if i in self.chains:
                self.close(i, self.chains[i])
            elif i in self.chain_of:
                self.update(i, self.chain_of[i])
                self.new[i.result] = self.view(i, self.chain_of[i])
            else:
                operands = tuple(self.new.get(v, v) for v in i.operands)
                self.b.append(i if operands == i.operands else replace(i, operands=operands))
        return Block(block.parameters, tuple(self.b.instructions), tuple(self.new.get(v, v) for v in block.results))

    def close(self, i: Instruction, chain: _Chain) -> None:
        """Replace the write of a view into its array: sums onto zeros go to the array only here, where it is defined."""
        if chain.is_sum:
            self.full.pop(chain.leaf, None)
            for scatter in reversed(chain.scatters):
                self.update(scatter, chain)
        self.new[i.result] = self.full[chain.top.result]

    def view(self, i: Instruction, chain: _Chain) -> Value:
        """Emit the view of the array after an update."""
        b, result = self.b.at(i.loc, i.result.name), self.full[i.result]
        for view in chain.views:
            (result,) = b.emit(view.op, (result,), dict(view.params))
        return result

    def update(self, i: Instruction, chain: _Chain) -> None:
        """Emit an update of a view as one of its array."""
        b = self.b.at(i.loc, i.result.name)
        before = self.full.get(i.operands[0], self.new.get(chain.base, chain.base))
        indices = [self.new.get(v, v) for v in i.operands[1:-1]]
        values = self.new.get(i.operands[-1], i.operands[-1])
        part = _part_of(i)
        for view in reversed(chain.views):
            inner = _part_in(part, view)
            assert inner is not None
            indices, values = _moved(b, view, part, indices, values)
            order = sorted(range(len(inner.axes)), key=inner.axes.__getitem__)
            part = replace(inner, axes=tuple(inner.axes[k] for k in order))
            indices = [indices[k] for k in order]
        params: dict[str, Any] = {"axes": part.axes}
        op = scatter_add if i.op in (scatter_add, scatter_add_part) else scatter_set
        if any(s is not None for s in part.start):
            op = scatter_add_part if op is scatter_add else scatter_set_part
            start = tuple(None if k in part.axes else s for k, s in enumerate(part.start))
            params |= {"start": start, "step": tuple(1 if k in part.axes else d for k, d in enumerate(part.step))}
        self.full[i.result] = b.emit(op, (before, *indices, values), params)[0]


def _moved(b: Builder, view: _View, part: _Part, indices: Sequence[Value], values: Value) -> tuple[list[Value], Value]:
    """Emit the indices and the values of an update of a view for what it is a view of."""
    rank, axes = indices[0].type.rank, part.axes
    rest = [k for k in range(len(part.counts)) if k not in axes]
    if view.op is slice_:
        first, step = view.params["start"], view.params["step"]
        shape = view.params["shape"]
        return [moved_index(b, v, shape[a], first[a], step[a]) for a, v in zip(axes, indices, strict=True)], values
    if view.op is flip:
        flipped = view.params["axes"]
        moved = [moved_index(b, v, part.counts[a], None, 1, a in flipped) for a, v in zip(axes, indices, strict=True)]
        inside = tuple(rank + n for n, k in enumerate(rest) if k in flipped)
        return moved, b.flip(values, axes=inside) if inside else values
    if view.op is transpose:
        targets = [view.params["perm"][k] for k in rest]
        order = sorted(range(len(rest)), key=targets.__getitem__)
        perm = (*range(rank), *(rank + n for n in order))
        return list(indices), values if perm == tuple(range(len(perm))) else b.transpose(values, perm=perm)
    removed = view.params["axes"]
    kept = [k for k in range(len(view.shape)) if k not in removed]
    indexed = {kept[a] for a in axes}
    others = [k for k in range(len(view.shape)) if k not in indexed]
    extents = iter(values.type.shape[rank:])
    shape = (*values.type.shape[:rank], *(1 if k in removed else next(extents) for k in others))
    return list(indices), b.broadcast(values, axes=tuple(rank + others.index(k) for k in removed), shape=shape)


def moved_index(
    b: Builder, index: Value, extent: Extent, start: Extent | None, step: int, reverse: bool = False, is_proved: bool = False
) -> Value:
    """Emit the index into an array of an index into its part of ``extent`` elements; ``reverse``: the part is flipped;
    ``is_proved``: the index is in range, and so the result is."""
    if start is None and step == 1 and not reverse:
        return index
    shape = index.type.shape
    count = b.spread(b.count(shape=(extent,)), shape)
    moved: Value = index if is_proved else b.select(b.lt(index, b.zeros_like(index)), b.add(index, count), index)
    if reverse:
        moved = b.sub(b.sub(count, b.full(1, ArrayType(I64, shape))), moved)
    if step != 1:
        moved = b.mul(moved, b.full(step, ArrayType(I64, shape)))
    if start is None or (isinstance(start, int) and start == 0):
        return moved
    return b.add(moved, b.spread(b.count(shape=(start,)), shape))
