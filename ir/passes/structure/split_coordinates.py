"""Unroll short shared axes of pairs: the coordinates of points become separate arrays.

    d = x[:, None, :] - y[None, :, :]; sum(d * d, axis=2)      of f64[n,3] and f64[m,3] becomes
    d0 = x0[:, None] - y0[None, :]; ...; d0 * d0 + d1 * d1 + d2 * d2

The remaining values have only the axes of the pairs: reductions over them share one pass, and no value is repeated along a
third axis.

The same is done with elementwise functions of arrays that are joined along a short axis, and of those that are read index by
index, if reductions or single indices of them are read:

    c = stack([a, b], 1); sum(c * w)                           becomes sum(a * w[:, 0] + b * w[:, 1])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Iota
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, concat, slice_, squeeze
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.simplify.rewrite import Rewriter, without_axes
from pullback.ir.passes.structure.pairs import shared_axes

MOST_UNROLLED = 32
"""Largest extent of an axis that is unrolled."""

CHAINED = 8
"""Fewer terms than this are added in sequence, as NumPy does; more are added pairwise."""

MOST_JOINED = 16
"""Largest extent of an axis along which arrays are joined or read index by index that is unrolled."""
MOST_COPIES = 512
"""Largest weight of the functions of joined arrays that are unrolled, counted once for each index."""
FUNCTION_WEIGHT = 30
"""Weight of a function that is not cheap; other elementwise ops weigh 1."""

Makers = Mapping[Value, Instruction]
Readers = Mapping[Value, Sequence[Instruction | None]]


def components(function: Function) -> Function:
    """Replace elementwise values of pairs by one value for each index along a short axis of known extent.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit, up to the order in which a sum over the
    axis adds.
    """
    return replace(function, body=_unrolled(function.body)) if function.kind == "func" else function


def _unrolled(block: Block) -> Block:
    """Return the block, and its regions, without short axes of pairs. One axis of a value is unrolled at a time."""
    instructions = [replace(i, regions=tuple(map(_unrolled, i.regions))) if i.regions else i for i in block.instructions]
    block = block if instructions == list(block.instructions) else Block(block.parameters, tuple(instructions), block.results)
    while chosen := _chosen(block):
        block = _Unroller(block, chosen).run()
    return block


def _chosen(block: Block) -> dict[Value, int]:
    """Return the values to unroll, each with its axis: values of pairs and elementwise results of them, if only reductions
    read the last of them and no array of their size is read."""
    makers = {v: i for i in block.instructions for v in i.results}
    readers: dict[Value, list[Instruction | None]] = {v: [None] for v in block.results}
    for i in block.instructions:
        for v in i.operands:
            readers.setdefault(v, []).append(i)
    chosen: dict[Value, int] = {}
    seen: set[Value] = set()
    for value, axes in shared_axes(block).items():
        short = [a for a in axes if _is_short(value.type.shape, a)]
        if not short or value.type.rank < 3 or value in seen:
            continue
        group = _elementwise_group(value, makers, readers)
        seen |= group
        if all(_is_never_stored(v, short[-1], group, makers, readers) for v in group):
            chosen.update(dict.fromkeys(group, short[-1]))
    return {**chosen, **_joined_groups(block, seen, makers, readers)}


def _joined_groups(block: Block, seen: set[Value], makers: Makers, readers: Readers) -> dict[Value, int]:
    """Return the values to unroll, each with its axis, that are functions of joined arrays, or read index by index. ``seen``:
    the values of other groups."""
    chosen: dict[Value, int] = {}
    for i in block.instructions:
        axis = _joined_axis(i) if i.op is concat else _index_axis(i)
        value = i.result if i.op is concat else i.operands[0] if axis is not None else None
        if value is None or axis is None or value in seen or value.type.rank < 2 or value not in makers:
            continue
        group = _elementwise_group(value, makers, readers, with_joins=True)
        work = [makers[v] for v in group if isinstance(makers[v].op, Elementwise)]
        joins = {v for v in group if makers[v].op is concat and _joined_axis(makers[v]) == axis}
        seen |= group
        weight = sum(1 if isinstance(k.op, Elementwise) and k.op.cheap else FUNCTION_WEIGHT for k in work)
        extent = value.type.shape[axis]
        if not isinstance(extent, int) or weight * extent > MOST_COPIES or not (work or joins):
            continue
        members = {*joins, *(k.result for k in work)}
        reads = [k for v in members for k in readers.get(v, ()) if k is None or not isinstance(k.op, Elementwise)]
        is_read = any(k is not None and (work or k.op is not slice_) for k in reads)
        if is_read and all(k is None or _reads_parts(k, axis) for k in reads):
            chosen.update(dict.fromkeys(members, axis))
    return chosen


def _joined_axis(i: Instruction) -> int | None:
    """Return the axis along which a concat joins few arrays of extent 1; None if it is no such concat."""
    if i.op is not concat or len(i.operands) > MOST_JOINED:
        return None
    axis: int = i.params["axis"]
    return axis if all(v.type.shape[axis] == 1 for v in i.operands) else None


def _index_axis(i: Instruction) -> int | None:
    """Return the first short axis along which an instruction reads one index of a value; None if there is none."""
    if i.op is not slice_:
        return None
    outer, part = i.operands[0].type.shape, i.result.type.shape
    for axis, (start, e, f) in enumerate(zip(i.params["start"], part, outer, strict=True)):
        if isinstance(start, int) and e == 1 and isinstance(f, int) and 1 < f <= MOST_JOINED:
            return axis
    return None


def _reads_parts(reader: Instruction, axis: int) -> bool:
    """Return whether an instruction reduces its operand or reads one index along an axis."""
    return not reader.op.gives_position if isinstance(reader.op, Reduce) else _is_index(reader, axis)


def _is_index(i: Instruction, axis: int) -> bool:
    """Return whether an instruction reads one index along an axis."""
    return i.op is slice_ and i.result.type.shape[axis] == 1 and isinstance(i.params["start"][axis], int)


def _elementwise_group(value: Value, makers: Makers, readers: Readers, with_joins: bool = False) -> set[Value]:
    """Return the values connected to ``value`` by elementwise ops; ``with_joins``: also the joined arrays that these read."""
    group: set[Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current not in group:
            group.add(current)
            stack += [k.result for k in readers.get(current, ()) if k is not None and isinstance(k.op, Elementwise)]
            operands = makers[current].operands if not with_joins or isinstance(makers[current].op, Elementwise) else ()
            sources = [makers[v] for v in operands if v in makers]
            stack += [k.result for k in sources if isinstance(k.op, Elementwise) or (with_joins and _joined_axis(k) is not None)]
    return group


def _is_never_stored(value: Value, axis: int, group: set[Value], makers: Makers, readers: Readers) -> bool:
    """Return whether a value reads no array of its size, and only reductions and values of the same group read it."""
    sources = [makers.get(v) for v in makers[value].operands if v not in group]
    is_made = all(i is not None and (i.op is broadcast or isinstance(i.op, Iota)) for i in sources)
    is_reduced = all(k is not None and _takes_parts(k, axis) for k in readers.get(value, ()))
    return is_made and is_reduced and not value.type.dtype.is_complex


def _takes_parts(reader: Instruction, axis: int) -> bool:
    """Return whether an instruction can be computed from the components of its operand."""
    if isinstance(reader.op, Reduce):
        return not reader.op.gives_position
    return isinstance(reader.op, Elementwise) or (reader.op is squeeze and axis in reader.params["axes"])


def _is_short(shape: Shape, axis: int) -> bool:
    extent = shape[axis]
    return isinstance(extent, int) and 1 <= extent <= MOST_UNROLLED


class _Unroller:
    """Rewrites one block. ``parts``: the components of the unrolled values; ``new``: the replacements of all other values."""

    def __init__(self, block: Block, chosen: dict[Value, int]) -> None:
        self.block, self.chosen = block, chosen
        self.b = Rewriter()
        self.definitions = {v: i for i in block.instructions for v in i.results}
        self.parts: dict[tuple[Value, int], tuple[Value, ...]] = {}
        self.new: dict[Value, Value] = {v: v for v in block.parameters}

    def run(self) -> Block:
        for i in self.block.instructions:
            self.b.loc, self.b.hint = i.loc, i.results[0].name if i.results else ""
            if i.results and i.results[0] in self.chosen:
                (self.element if isinstance(i.op, Elementwise) else self.separated)(i, self.chosen[i.result])
            elif isinstance(i.op, Reduce) and i.operands[0] in self.chosen and not i.op.gives_position:
                self.new[i.result] = self.reduced(i, self.chosen[i.operands[0]])
            elif i.op is squeeze and i.operands[0] in self.chosen and self.chosen[i.operands[0]] in i.params["axes"]:
                self.new[i.result] = self.squeezed(i, self.chosen[i.operands[0]])
            elif i.op is slice_ and i.operands[0] in self.chosen and _is_index(i, self.chosen[i.operands[0]]):
                self.new[i.result] = self.at_index(i, self.chosen[i.operands[0]])
            else:
                operands = list(map(self.stored, i.operands))
                self.new.update(zip(i.results, self.b.emit(i.op, operands, dict(i.params), i.regions, i), strict=True))
        results = tuple(map(self.stored, self.block.results))
        return Block(self.block.parameters, tuple(self.b.instructions), results)

    def stored(self, value: Value) -> Value:
        """Return the replacement of a value; an unrolled value is joined again."""
        if value not in self.new:
            self.new[value] = self.stacked(self.parts[value, self.chosen[value]], self.chosen[value])
        return self.new[value]

    def separated(self, i: Instruction, axis: int) -> None:
        """Emit the arrays that an instruction joins, without the axis."""
        self.parts[i.result, axis] = tuple(self.b.squeeze(self.stored(v), axes=(axis,)) for v in i.operands)

    def at_index(self, i: Instruction, axis: int) -> Value:
        """Emit a slice of one component."""
        part = self.parts_of(i.operands[0], axis)[i.params["start"][axis]]
        start, step, shape = (without_axes(i.params[name], (axis,)) for name in ("start", "step", "shape"))
        part = self.b.slice(part, start=start, step=step, shape=shape)
        return self.spread(part, (axis,), i.result.type.shape)

    def element(self, i: Instruction, axis: int) -> None:
        """Emit each component of an elementwise instruction."""
        operands = [self.parts_of(v, axis) for v in i.operands]
        self.parts[i.result, axis] = tuple(self.b.emit(i.op, each, dict(i.params))[0] for each in zip(*operands, strict=True))

    def reduced(self, i: Instruction, axis: int) -> Value:
        """Emit a reduction of components: along the unrolled axis they are combined, and one reduction covers the other axes."""
        parts, axes = self.parts_of(i.operands[0], axis), tuple(i.params["axes"])
        other_axes = tuple(a - (a > axis) for a in axes if a != axis)
        if axis in axes:
            assert isinstance(i.op, Reduce)
            joined = self.joined(i.op.combine, parts)
            return self.b.emit(i.op, (joined,), {**i.params, "axes": other_axes})[0] if other_axes else joined
        results = [self.b.emit(i.op, (part,), {**i.params, "axes": other_axes})[0] for part in parts]
        return self.stacked(results, axis - sum(1 for a in axes if a < axis))

    def squeezed(self, i: Instruction, axis: int) -> Value:
        """Return the only component of an axis of extent 1."""
        (part,) = self.parts_of(i.operands[0], axis)
        other_axes = tuple(a - (a > axis) for a in i.params["axes"] if a != axis)
        result: Value = self.b.squeeze(part, axes=other_axes) if other_axes else part
        return result

    def joined(self, combine: str, parts: Sequence[Value]) -> Value:
        """Combine the components by the op ``combine``."""
        if len(parts) < CHAINED:
            total = parts[0]
            for part in parts[1:]:
                total = getattr(self.b, combine)(total, part)
            return total
        half = len(parts) // 2
        combined: Value = getattr(self.b, combine)(self.joined(combine, parts[:half]), self.joined(combine, parts[half:]))
        return combined

    # conversions between values and components

    def parts_of(self, value: Value, axis: int) -> tuple[Value, ...]:
        """Return the components of a value along an axis."""
        if (value, axis) not in self.parts:
            count = value.type.shape[axis]
            assert isinstance(count, int)
            self.parts[value, axis] = tuple(self.part(value, axis, k) for k in range(count))
        return self.parts[value, axis]

    def part(self, value: Value, axis: int, at: int) -> Value:
        """Return the component of a value at an index along an axis."""
        producer = self.definitions.get(value)
        shape = without_axes(value.type.shape, (axis,))
        if producer is not None and isinstance(producer.op, Iota):
            along, dtype = producer.params["axis"], producer.params["dtype"]
            if along == axis:
                return self.b.full(at, replace(value.type, shape=shape))
            return self.b.iota(shape=shape, axis=along - (along > axis), dtype=dtype)
        if producer is not None and producer.op is broadcast:
            source, axes = producer.operands[0], producer.params["axes"]
            other_axes = tuple(a - (a > axis) for a in axes if a != axis)
            if axis in axes:
                return self.spread(self.stored(source), other_axes, shape)
            return self.spread(self.parts_of(source, axis - sum(1 for a in axes if a < axis))[at], other_axes, shape)
        return self.picked(self.stored(value), axis, at)

    def spread(self, value: Value, axes: tuple[int, ...], shape: Shape) -> Value:
        return self.b.broadcast(value, axes=axes, shape=shape) if axes else value

    def picked(self, value: Value, axis: int, at: int) -> Value:
        """Emit the selection of one index along an axis of a value."""
        shape = value.type.shape
        start: list[Any] = [None] * len(shape)
        part = value
        if shape[axis] != 1:
            start[axis] = at
            one = tuple(1 if k == axis else e for k, e in enumerate(shape))
            part = self.b.slice(value, start=tuple(start), step=(1,) * len(shape), shape=one)
        return self.b.squeeze(part, axes=(axis,))

    def stacked(self, parts: Sequence[Value], axis: int) -> Value:
        """Emit the concatenation of components along a new axis."""
        shape = parts[0].type.shape
        one = (*shape[:axis], 1, *shape[axis:])
        rows = [self.b.broadcast(part, axes=(axis,), shape=one) for part in parts]
        if len(rows) == 1:
            return rows[0]
        full_shape = (*shape[:axis], len(rows), *shape[axis:])
        return self.b.concat(*rows, axis=axis, starts=tuple(range(len(rows))), shape=full_shape)
