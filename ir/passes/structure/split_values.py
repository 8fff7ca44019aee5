"""Replay a function with some values split into parts along short axes.

    %z: f64[3] = add %x, %y                  %z0: f64[] = add %x0, %y0; %z1: f64[] = add %x1, %y1; ...

The parts of a value are in row-major order of their positions. A value that an op needs complete is joined from its parts
where it is first needed, and parts of a complete value are slices of it. Carried values, captures and results of loops and
branches are split as well, so that a loop carries the parts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType, Shape, StackType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Iota
from pullback.ir.ops.array.index import Place
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, concat, flip, pad, reshape, roll, shift, slice_, squeeze
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.passes.editing.loop_editor import Carry, Draft, Input, Output, draft_of
from pullback.ir.passes.simplify.rewrite import Rewriter, without_axes
from pullback.ir.passes.structure.axis_maps import mapped_axes, regular_part, reshape_groups

CHAINED = 8
"""Fewer terms than this are added in sequence, as NumPy does; more are added pairwise."""

Axes = tuple[int, ...]
Position = tuple[int, ...]


def split_values(block: Block, chosen: Mapping[Value, Axes]) -> Block:
    """Return a block whose values are split along the ``chosen`` axes, whose extents are ints. Keeps: values bit by bit, up to
    the order in which a reduction over a split axis combines."""
    splitter = _Splitter(chosen)
    for value in block.parameters:
        splitter.new[value] = value
    return splitter.run(block)


def extent_of(value: Value, axis: int) -> int:
    extent = value.type.shape[axis]
    assert isinstance(extent, int)
    return extent


def positions(value: Value, axes: Axes) -> list[Position]:
    """Return the positions of the parts of a value."""
    return list(itertools.product(*(range(extent_of(value, a)) for a in axes)))


def after_removal(axes: Sequence[int], removed: Sequence[int]) -> Axes:
    """Return the axes that are not removed, as axes of a value without the removed ones."""
    return tuple(a - sum(r < a for r in removed) for a in axes if a not in removed)


def rolled_from(at: Mapping[int, int], axes: Axes, extents: Sequence[int], params: Mapping[str, Any]) -> dict[int, int]:
    """Return the position, along the axes of a roll, of the element that it moves to the position ``at``."""
    flat = 0
    for axis, extent in zip(axes, extents, strict=True):
        flat = flat * extent + at[axis]
    (offset,) = params["offset"]
    flat = (flat + (offset if params["backward"] else -offset)) % math.prod(extents)
    source: dict[int, int] = {}
    for axis, extent in reversed(list(zip(axes, extents, strict=True))):
        flat, source[axis] = divmod(flat, extent)
    return source


class _Splitter:
    """Rewrites one block. ``new``: the complete replacements of values; ``parts``: their parts, with the axes of these."""

    def __init__(self, chosen: Mapping[Value, Axes]) -> None:
        self.chosen = chosen
        self.b = Rewriter()
        self.definitions: dict[Value, Instruction] = {}
        self.new: dict[Value, Value] = {}
        self.parts: dict[Value, tuple[Axes, tuple[Value, ...]]] = {}
        self.taken: dict[tuple[Value, Axes], tuple[Value, ...]] = {}

    def run(self, block: Block) -> Block:
        self.replay(block)
        results = tuple(self.complete(v) for v in block.results)
        return Block(block.parameters, tuple(self.b.instructions), results)

    def replay(self, block: Block) -> None:
        for i in block.instructions:
            self.definitions.update((v, i) for v in i.results)
            self.b.loc, self.b.hint = i.loc, i.results[0].name if i.results else ""
            if isinstance(i.op, Loop | Switch):
                self.control(i)
            elif not self.is_split(i):
                self.unsplit(i)

    def axes(self, value: Value) -> Axes:
        """Return the axes along which a value is split."""
        return self.parts[value][0] if value in self.parts else self.chosen.get(value, ())

    def define(self, value: Value, axes: Axes, parts: Sequence[Value]) -> bool:
        """Bind a value to its parts, or to the one part that it is."""
        if axes:
            self.parts[value] = axes, tuple(parts)
        else:
            (self.new[value],) = parts
        return True

    # values and parts

    def complete(self, value: Value) -> Value:
        """Return a value, joined from its parts if need be."""
        if value not in self.new:
            axes, parts = self.parts[value]
            self.new[value] = self.joined(parts, axes, value.type.shape)
        return self.new[value]

    def joined(self, parts: Sequence[Value], axes: Axes, shape: Shape) -> Value:
        """Emit the value with these parts: scalars in one concatenation, other parts axis by axis."""
        if len(axes) == len(shape) > 1:
            flat = self.joined(parts, (0,), (len(parts),))
            result: Value = self.b.reshape(flat, shape=shape)
            return result
        if len(set(parts)) == 1:
            return self.spread(parts[0], axes, shape)
        groups, rest = list(parts), list(axes)
        while rest:
            axis = rest.pop()
            count = shape[axis]
            assert isinstance(count, int)
            at = axis - len(rest)
            groups = [self.stacked(groups[k : k + count], at) for k in range(0, len(groups), count)]
        (result,) = groups
        return result

    def stacked(self, parts: Sequence[Value], axis: int) -> Value:
        """Emit the concatenation of parts along a new axis."""
        shape = parts[0].type.shape
        one = (*shape[:axis], 1, *shape[axis:])
        rows = [self.b.broadcast(part, axes=(axis,), shape=one) for part in parts]
        if len(rows) == 1:
            return rows[0]
        full_shape = (*shape[:axis], len(rows), *shape[axis:])
        result: Value = self.b.concat(*rows, axis=axis, starts=tuple(range(len(rows))), shape=full_shape)
        return result

    def parts_of(self, value: Value, axes: Axes) -> tuple[Value, ...]:
        """Return the parts of a value along some axes."""
        if not axes:
            return (self.complete(value),)
        if value in self.parts and self.parts[value][0] == axes:
            return self.parts[value][1]
        if (value, axes) not in self.taken:
            self.taken[value, axes] = tuple(self.part(value, axes, at) for at in positions(value, axes))
        return self.taken[value, axes]

    def part(self, value: Value, axes: Axes, at: Position) -> Value:
        """Emit the part of a value at a position along some axes."""
        producer = self.definitions.get(value)
        shape = without_axes(value.type.shape, axes)
        if producer is not None and isinstance(producer.op, Iota):
            along, dtype = producer.params["axis"], producer.params["dtype"]
            if along in axes:
                return self.b.full(at[axes.index(along)], replace(value.type, shape=shape))
            result: Value = self.b.iota(shape=shape, axis=along - sum(a < along for a in axes), dtype=dtype)
            return result
        if producer is not None and producer.op is broadcast and value not in self.parts:
            return self.part_of_broadcast(producer, axes, at)
        return self.picked(self.complete(value), axes, at)

    def part_of_broadcast(self, producer: Instruction, axes: Axes, at: Position) -> Value:
        """Emit a part of a broadcast value: a part of its operand, broadcast."""
        (operand,), added = producer.operands, producer.params["axes"]
        mapping = mapped_axes(producer)
        assert mapping is not None
        inner = tuple(mapping[a] for a in axes if a in mapping)
        inner_at = tuple(k for a, k in zip(axes, at, strict=True) if a in mapping)
        part = self.parts_of(operand, inner)[positions(operand, inner).index(inner_at)]
        return self.spread(part, after_removal(added, axes), without_axes(producer.result.type.shape, axes))

    def spread(self, value: Value, axes: Axes, shape: Shape) -> Value:
        result: Value = self.b.broadcast(value, axes=axes, shape=shape) if axes else value
        return result

    def picked(self, value: Value, axes: Axes, at: Position) -> Value:
        """Emit the selection of one position along some axes of a value."""
        shape = value.type.shape
        start: list[Any] = [None] * len(shape)
        one = list(shape)
        for axis, k in zip(axes, at, strict=True):
            if shape[axis] != 1:
                start[axis], one[axis] = k, 1
        part = value
        if tuple(one) != shape:
            part = self.b.slice(value, start=tuple(start), step=(1,) * len(shape), shape=tuple(one))
        result: Value = self.b.squeeze(part, axes=axes)
        return result

    # instructions

    def unsplit(self, i: Instruction) -> None:
        """Emit an instruction that takes complete values."""
        regions = tuple(self.inner(region).run(region) for region in i.regions)
        operands = [self.complete(v) for v in i.operands]
        self.new.update(zip(i.results, self.b.emit(i.op, operands, dict(i.params), regions, i), strict=True))

    def inner(self, region: Block) -> _Splitter:
        """Return the splitter of a region whose parameters stay complete."""
        splitter = _Splitter(self.chosen)
        splitter.new.update((v, v) for v in region.parameters)
        return splitter

    def is_split(self, i: Instruction) -> bool:
        """Emit an instruction part by part; return whether that is possible and any of its values is split."""
        if len(i.results) != 1 or not (self.axes(i.result) or any(map(self.axes, i.operands))):
            return False
        if i.op in (slice_, pad):
            return self.sliced(i) if i.op is slice_ else self.padded(i)
        if isinstance(i.op, Place):
            return self.placed(i)
        if i.op is concat:
            return self.concatenated(i)
        if i.op is reshape:
            return self.reshaped(i)
        if isinstance(i.op, Iota):
            axes = self.axes(i.result)
            return self.define(i.result, axes, [self.part(i.result, axes, at) for at in positions(i.result, axes)])
        mapping = mapped_axes(i)
        if i.op is roll and not self.rolls_parts(i):
            return False
        return mapping is not None and self.mapped(i, mapping)

    def rolls_parts(self, i: Instruction) -> bool:
        """Return whether a roll moves entire parts, or elements within parts."""
        split = [a in self.axes(i.result) for a in i.params["axes"]]
        return not any(split) or (all(split) and isinstance(i.params["offset"][0], int))

    def mapped(self, i: Instruction, mapping: Mapping[int, int]) -> bool:
        """Emit an instruction whose result has the axes of its operands."""
        result, params = i.result, i.params
        axes = tuple(a for a in self.axes(result) if a in mapping or i.op is broadcast)
        removed = params.get("axes", ()) if isinstance(i.op, Reduce) or i.op is squeeze else ()
        gone = tuple(a for a in removed if a in self.axes(i.operands[0]))
        if not (axes or gone):
            return False
        inner = tuple(sorted((*(mapping[a] for a in axes if a in mapping), *gone)))
        sources = [dict(zip(positions(v, inner), self.parts_of(v, inner), strict=True)) for v in i.operands]
        parts = []
        for at in positions(result, axes):
            fixed = {mapping[a]: k for a, k in zip(axes, at, strict=True) if a in mapping}
            if i.op in (flip, roll, shift):
                parts.append(self.moved(i, axes, inner, fixed, sources[0]))
                continue
            where = [tuple(p[gone.index(a)] if a in gone else fixed[a] for a in inner) for p in positions(i.operands[0], gone)]
            parts.append(self.computed(i, axes, inner, [[s[p] for s in sources] for p in where]))
        return self.define(result, axes, parts)

    def moved(
        self, i: Instruction, axes: Axes, inner: Axes, fixed: Mapping[int, int], sources: Mapping[Position, Value]
    ) -> Value:
        """Return a part of the result of a ``flip``, a ``roll`` or a ``shift``."""
        operand, params = i.operands[0], i.params
        at = dict(fixed)
        if i.op is flip:
            flipped = after_removal(params["axes"], axes)
            at.update((a, extent_of(operand, a) - 1 - at[a]) for a in params["axes"] if a in at)
            part = sources[tuple(at[a] for a in inner)]
            return self.b.flip(part, axes=flipped) if flipped else part
        moved = params["axes"] if i.op is roll else (params["axis"],)
        if moved[0] not in at:
            part = sources[tuple(at[a] for a in inner)]
            rest = tuple(a - sum(k < a for k in axes) for a in moved)
            return self.b.emit(i.op, (part,), {**params, **({"axes": rest} if i.op is roll else {"axis": rest[0]})})[0]
        if i.op is roll:
            at.update(rolled_from(at, moved, [extent_of(operand, a) for a in moved], params))
        else:
            at[moved[0]] -= params["offset"]
        position = tuple(at[a] for a in inner)
        return sources[position] if position in sources else self.b.zeros_like(next(iter(sources.values())))

    def computed(self, i: Instruction, axes: Axes, inner: Axes, operands: Sequence[Sequence[Value]]) -> Value:
        """Return a part of a result from the parts of the operands that it depends on: one list of them, or for a removed axis
        one for each position along it."""
        op, params = i.op, dict(i.params)
        if op is broadcast:
            added = after_removal(params["axes"], axes)
            return self.spread(operands[0][0], added, without_axes(i.result.type.shape, axes))
        if op is squeeze:
            (part,) = operands[0]
            others = after_removal(params["axes"], inner)
            return self.b.squeeze(part, axes=others) if others else part
        if isinstance(op, Reduce):
            part = self.combined(op.combine, [p[0] for p in operands])
            others = after_removal(params["axes"], inner)
            return self.b.emit(op, (part,), {**params, "axes": others})[0] if others else part
        if "perm" in params:
            kept = [p for k, p in enumerate(params["perm"]) if k not in axes]
            perm = tuple(p - sum(a < p for a in inner) for p in kept)
            return self.b.transpose(operands[0][0], perm=perm)
        return self.b.emit(op, operands[0], params)[0]

    def combined(self, combine: str, parts: Sequence[Value]) -> Value:
        """Combine parts by the op ``combine``."""
        if len(parts) < CHAINED:
            total = parts[0]
            for part in parts[1:]:
                total = getattr(self.b, combine)(total, part)
            return total
        half = len(parts) // 2
        result: Value = getattr(self.b, combine)(self.combined(combine, parts[:half]), self.combined(combine, parts[half:]))
        return result

    # parts of regular parts

    def _inside(self, i: Instruction, outer: Value, axes: Axes) -> list[tuple[int, ...]] | None:
        """Return, for each axis, the positions along it of the part that a slice, a pad or an update is of; None if they are not
        constant."""
        result = []
        for a in axes:
            extent = outer.type.shape[a]
            part = regular_part(i, a, lambda e: e if isinstance(e, int) else None)
            if part is None or not isinstance(extent, int):
                return None
            result.append(part)
        return result

    def rest(self, i: Instruction, axes: Axes) -> dict[str, Any]:
        """Return the start and the step of a regular part along the axes that are not split."""
        return {name: without_axes(i.params[name], axes) for name in ("start", "step")}

    def sliced(self, i: Instruction) -> bool:
        (operand,), result = i.operands, i.result
        axes = self.axes(operand)
        inside = self._inside(i, operand, axes)
        if not axes or inside is None or not all(inside):
            return False
        sources = dict(zip(positions(operand, axes), self.parts_of(operand, axes), strict=True))
        parts = [sources[at] for at in itertools.product(*inside)]
        rest, shape = self.rest(i, axes), without_axes(result.type.shape, axes)
        if any(s is not None for s in rest["start"]):
            parts = [self.b.slice(part, **rest, shape=shape) for part in parts]
        return self.define(result, axes, parts)

    def padded(self, i: Instruction) -> bool:
        (operand,), result = i.operands, i.result
        axes = self.axes(result)
        inside = self._inside(i, result, axes)
        if not axes or inside is None:
            return False
        sources = dict(zip(itertools.product(*inside), self.parts_of(operand, axes), strict=True))
        rest, shape = self.rest(i, axes), without_axes(result.type.shape, axes)
        parts = []
        for at in positions(result, axes):
            part = sources.get(at)
            if part is None:
                part = self.b.full(0, replace(result.type, shape=shape))
            elif any(s is not None for s in rest["start"]):
                part = self.b.pad(part, **rest, shape=shape)
            parts.append(part)
        return self.define(result, axes, parts)

    def placed(self, i: Instruction) -> bool:
        (base, value), result = i.operands, i.result
        axes = self.axes(result)
        inside = self._inside(i, result, axes)
        if not axes or inside is None:
            return False
        assert isinstance(i.op, Place)
        sources = dict(zip(itertools.product(*inside), self.parts_of(value, axes), strict=True))
        rest = self.rest(i, axes)
        is_entire = all(s is None for s in rest["start"])
        parts = []
        for at, old in zip(positions(result, axes), self.parts_of(base, axes), strict=True):
            part = sources.get(at)
            if part is None:
                part = old
            elif not is_entire:
                part = self.b.emit(i.op, (old, part), rest)[0]
            elif i.op.accumulate:
                part = self.b.add(old, part) if not part.type.dtype.is_bool else self.b.bitor(old, part)
            parts.append(part)
        return self.define(result, axes, parts)

    def concatenated(self, i: Instruction) -> bool:
        result, axis = i.result, i.params["axis"]
        axes = self.axes(result)
        if not axes:
            return False
        if axis in axes and not all(isinstance(v.type.shape[axis], int) for v in i.operands):
            return False
        parts: dict[Position, Value] = {}
        lists = [dict(zip(positions(v, axes), self.parts_of(v, axes), strict=True)) for v in i.operands]
        if axis in axes:
            k, start = axes.index(axis), 0
            for v, some in zip(i.operands, lists, strict=True):
                parts.update(((*at[:k], at[k] + start, *at[k + 1 :]), part) for at, part in some.items())
                start += extent_of(v, axis)
        else:
            params = {"axis": axis - sum(a < axis for a in axes), "shape": without_axes(result.type.shape, axes)}
            for at in positions(result, axes):
                parts[at] = self.b.concat(*(some[at] for some in lists), **params, starts=i.params["starts"])
        return self.define(result, axes, [parts[at] for at in positions(result, axes)])

    def reshaped(self, i: Instruction) -> bool:
        (operand,), result = i.operands, i.result
        axes = self.axes(result)
        groups = reshape_groups(operand.type.shape, result.type.shape, lambda e: e if isinstance(e, int) else None)
        inner: list[int] = []
        for before, after in groups:
            if any(a in axes for a in after) or any(a in self.axes(operand) for a in before):
                if len(after) > 1 and not set(after) <= set(axes):
                    return False
                inner += before
        outer = tuple(a for _, after in groups for a in after if a in axes)
        if outer != axes or not all(isinstance(operand.type.shape[a], int) for a in inner):
            return False
        parts = self.parts_of(operand, tuple(sorted(inner)))
        if len(parts) != len(positions(result, axes)):
            return False
        shape = without_axes(result.type.shape, axes)
        return self.define(result, axes, [self.b.reshape(part, shape=shape) for part in parts])

    # loops and branches

    def control(self, i: Instruction) -> None:
        """Emit a loop or a switch whose carried values, captures and results are split."""
        draft = draft_of(i)
        inners = [_Splitter(self.chosen) for _ in i.regions]
        for k, inner in enumerate(inners):
            inner.new.update((v, v) for v in draft.indices[k : k + 1])
        draft.counted = [self.complete(v) for v in draft.counted]
        split_carries = [self.input(c, inners) for c in draft.carries]
        sequences = [taken for s in draft.sequences for taken in self.input(s, inners)]
        captures = [taken for c in draft.captures for taken in self.input(c, inners)]
        for k, (inner, region) in enumerate(zip(inners, i.regions, strict=True)):
            inner.replay(replace(region, instructions=tuple(draft.bodies[k])))
        carries = []
        for old, taken in zip(draft.carries, split_carries, strict=True):
            axes = self.input_axes(old)
            following = inners[-1].parts_of(old.following, axes)
            results = [Value(t.operand.type, old.result.name) for t in taken] if axes else [old.result]
            self.define(old.result, axes, results)
            carries += [Carry(t.operand, t.parameters, f, r) for t, f, r in zip(taken, following, results, strict=True)]
        outputs = [new for old in draft.outputs for new in self.output(old, inners)]
        draft.test = [inners[0].complete(v) for v in draft.test]
        draft.carries, draft.sequences, draft.captures, draft.outputs = carries, sequences, captures, outputs
        for v in draft.trips:
            self.new[v] = v
        draft.bodies = [inner.b.instructions for inner in inners]
        self.append(draft)

    def append(self, draft: Draft) -> None:
        instruction = draft.done()
        self.b.instructions.append(instruction)
        self.b.definitions.update((v, instruction) for v in instruction.results)

    def input_axes(self, taken: Input) -> Axes:
        return self.axes(taken.parameters[-1])

    def input(self, taken: Input, inners: Sequence[_Splitter]) -> list[Input]:
        """Return an operand and its parameters, split."""
        axes = self.input_axes(taken)
        operand, is_row = taken.operand, taken.operand.type.shape != taken.parameters[-1].type.shape
        is_complete = is_row or (isinstance(operand.type, StackType) and self.parts.get(operand, ((), ()))[0] != axes)
        if is_complete or not axes:
            for inner, parameter in zip(inners, taken.parameters, strict=True):
                inner.new[parameter] = parameter
            return [Input(self.complete(operand), taken.parameters)]
        operands = self.parts_of(operand, axes)
        kind = ArrayType(operands[0].type.dtype, operands[0].type.shape)
        columns = [[Value(kind, p.name) for _ in operands] for p in taken.parameters]
        for inner, parameter, column in zip(inners, taken.parameters, columns, strict=True):
            inner.parts[parameter] = axes, tuple(column)
        return [Input(v, [column[k] for column in columns]) for k, v in enumerate(operands)]

    def output(self, old: Output, inners: Sequence[_Splitter]) -> list[Output]:
        """Return a result and the values that the regions yield for it, split."""
        axes = self.axes(old.result) if old.result.type.shape == old.values[0].type.shape else ()
        pairs = list(zip(inners[-len(old.values) :], old.values, strict=True))
        if not axes:
            self.new[old.result] = old.result
            return [Output([inner.complete(v) for inner, v in pairs], old.result)]
        columns = [inner.parts_of(v, axes) for inner, v in pairs]
        results = [Value(self.part_type(old.result.type, part), old.result.name) for part in columns[0]]
        self.define(old.result, axes, results)
        return [Output([column[k] for column in columns], r) for k, r in enumerate(results)]

    def part_type(self, t: Type, part: Value) -> Type:
        return StackType(part.type.dtype, part.type.shape) if isinstance(t, StackType) else part.type
