"""Recognise rolls: parts of one array that are concatenated in its cyclic order.

    concat x[n - 1:], x[:n - 1]                              ->   roll x by 1
    p = concat x[n - 1:], x, x[:1]; p[:n], p[2:n + 2]        ->   roll x by 1, roll x by -1

The second form is a slice of an array that was extended periodically. A slice of a concatenation is the concatenation of slices
of its operands; it is rewritten if rolls of whole arrays are all that remains, or if the concatenation adds borders to an array:

    p = concat x[:1], x, x[n - 1:]; p[:n], p[1:n + 1]        ->   concat x[:1], x[:n - 1]; x

The template of a program does not know that the lengths of two slices add up to the extent of an axis, so the pass runs before
extents are named.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import concat, slice_
from pullback.ir.passes.editing.dce import dce
from pullback.ir.shapes.symbolic import is_size

MOST_PARTS = 4
"""Largest number of parts of a roll."""
MOST_BORDER = 4
"""Largest extent of a border."""
MOST_LEAVES = 4
"""Largest number of slices into which a slice of an array with borders is split."""
MOST_STEPS = 16
"""Largest number of slices and concatenations through which a slice is followed."""


def rolls(function: Function) -> Function:
    """Rewrite such concatenations and slices of them, in regions too.

    Requires: a func; extents that are not ints are left alone. Keeps: values bit by bit. Cost: linear in the number of
    instructions.
    """
    body = _block(function.body)
    return function if body is function.body else dce(replace(function, body=body))


def _block(block: Block) -> Block:
    instructions = []
    for i in block.instructions:
        regions = tuple(map(_block, i.regions))
        is_same = all(new is old for new, old in zip(regions, i.regions, strict=True))
        instructions.append(i if is_same else replace(i, regions=regions))
    if any(new is not old for new, old in zip(instructions, block.instructions, strict=True)):
        block = replace(block, instructions=tuple(instructions))
    return _Rolls(block).run() if any(i.op is concat for i in instructions) else block


@dataclass(frozen=True)
class _Window:
    """The elements of ``value`` from ``start``, of extents ``shape``."""

    value: Value
    start: tuple[int, ...]
    shape: tuple[Any, ...]

    def is_full(self) -> bool:
        return self.shape == self.value.type.shape

    def along(self, axis: int, start: int, extent: int) -> _Window:
        """Return the window with another range along an axis."""
        starts = (*self.start[:axis], start, *self.start[axis + 1 :])
        return _Window(self.value, starts, (*self.shape[:axis], extent, *self.shape[axis + 1 :]))

    def emit(self, b: Builder, new: Mapping[Value, Value]) -> Value:
        """Emit the slice of the elements."""
        value = new.get(self.value, self.value)
        if self.is_full():
            return value
        result: Value = b.slice(value, start=self.start, step=(1,) * len(self.start), shape=self.shape)
        return result


@dataclass(frozen=True)
class _Roll:
    """A roll: the element at index ``distance`` of an axis moves to its start."""

    axis: int
    extent: int
    distance: int
    operand: _Plan

    def emit(self, b: Builder, new: Mapping[Value, Value]) -> Value:
        """Emit the roll in the shorter direction."""
        backward = 2 * self.distance <= self.extent
        offset = self.distance if backward else self.extent - self.distance
        result: Value = b.roll(self.operand.emit(b, new), axes=(self.axis,), offset=(offset,), backward=backward)
        return result


@dataclass(frozen=True)
class _Join:
    """A concatenation along an axis; all parts but one are short."""

    axis: int
    parts: Sequence[_Plan]

    def emit(self, b: Builder, new: Mapping[Value, Value]) -> Value:
        """Emit the parts and their concatenation."""
        parts = [p.emit(b, new) for p in self.parts]
        starts = [0, *accumulate(p.type.shape[self.axis] for p in parts)]
        first = parts[0].type.shape
        shape = (*first[: self.axis], starts.pop(), *first[self.axis + 1 :])
        result: Value = b.concat(*parts, axis=self.axis, starts=tuple(starts), shape=shape)
        return result


_Plan = _Window | _Roll | _Join
"""How a window of an array is computed."""


class _Rolls:
    """The rewriting of a block. ``definitions``: of its values; ``new``: the replacements of values."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.definitions = {v: i for i in block.instructions for v in i.results}
        self.new: dict[Value, Value] = {}

    def run(self) -> Block:
        """Return the block with rolls for slices and concatenations where possible."""
        result: list[Instruction] = []
        for i in self.block.instructions:
            plan = self.replacement(i) if i.op in (slice_, concat) and _is_static(i) else None
            if plan is not None:
                self.new[i.result] = plan.emit(Builder(i.loc, result, i.result.name), self.new)
                continue
            operands = tuple(self.new.get(v, v) for v in i.operands)
            result.append(i if operands == i.operands else replace(i, operands=operands))
        results = tuple(self.new.get(v, v) for v in self.block.results)
        return replace(self.block, instructions=tuple(result), results=results) if self.new else self.block

    def replacement(self, i: Instruction) -> _Plan | None:
        """Return how to compute an instruction from the operands of concatenations; None if it stays."""
        shape = i.result.type.shape
        window = self.through_slices(_Window(i.result, (0,) * len(shape), shape))
        plan = self.plan(window, MOST_STEPS)
        is_same = plan == window or (i.op is concat and isinstance(plan, _Join))
        return None if plan is None or is_same or _leaf_count(plan) > MOST_LEAVES else plan

    def plan(self, window: _Window, steps: int, is_border: bool = True) -> _Plan | None:
        """Return how to compute a window; None if more is to be emitted than rolls of whole arrays and borders.

        ``is_border``: whether all concatenations so far added borders to an array.
        """
        window = self.through_slices(window)
        i = self.definitions.get(window.value)
        if i is None or i.op is not concat or not _is_static(i) or not steps:
            return window if is_border or window.is_full() else None
        axis = i.params["axis"]
        is_border = is_border and sum(v.type.shape[axis] > MOST_BORDER for v in i.operands) == 1
        parts = [self.through_slices(p) for p in _parts_of(window, i)]
        if len(parts) == 1:
            return self.plan(parts[0], steps - 1, is_border)
        extent = parts[0].value.type.shape[axis] if parts else 0
        if parts and _is_cycle(parts, axis, extent):
            distance = parts[0].start[axis]
            operand = self.plan(parts[0].along(axis, 0, extent), steps - 1, is_border)
            return operand if operand is None or not distance else _Roll(axis, extent, distance, operand)
        plans = [self.plan(p, steps - 1) for p in parts] if is_border else []
        inner = [p for p in plans if p is not None]
        return _Join(axis, inner) if inner and len(inner) == len(parts) else None

    def through_slices(self, window: _Window) -> _Window:
        """Return the window as one of an array that is not itself a slice."""
        definition = self.definitions.get(window.value)
        while definition is not None and definition.op is slice_ and _is_static(definition):
            starts = zip(window.start, definition.params["start"], strict=True)
            window = _Window(definition.operands[0], tuple(s + (first or 0) for s, first in starts), window.shape)
            definition = self.definitions.get(window.value)
        return window


def _parts_of(window: _Window, i: Instruction) -> list[_Window]:
    """Return the windows of the operands of a concatenation that make up a window of it; none if they are many."""
    axis, starts = i.params["axis"], i.params["starts"]
    start, end = window.start[axis], window.start[axis] + window.shape[axis]
    parts: list[_Window] = []
    k = bisect_right(starts, start) - 1
    while k < len(starts) and starts[k] < end:
        if len(parts) == MOST_PARTS:
            return []
        low, high = max(start, starts[k]), min(end, starts[k] + i.operands[k].type.shape[axis])
        if high > low:
            parts.append(replace(window.along(axis, low - starts[k], high - low), value=i.operands[k]))
        k += 1
    return parts


def _is_cycle(parts: Sequence[_Window], axis: int, extent: int) -> bool:
    """Return whether windows are of one array, equal but along an axis, and there all ``extent`` elements in cyclic order."""
    first = parts[0]
    position = first.start[axis]
    for p in parts:
        if p.value is not first.value or p.along(axis, 0, 0) != first.along(axis, 0, 0) or p.start[axis] != position % extent:
            return False
        position += p.shape[axis]
    return position - first.start[axis] == extent


def _is_static(i: Instruction) -> bool:
    """Return whether all extents and offsets of a slice or concatenation are ints, and its steps are 1."""
    offsets = [s for s in i.params["start" if i.op is slice_ else "starts"] if s is not None]
    extents = [e for v in (*i.operands, i.result) for e in v.type.shape]
    is_dense = i.op is not slice_ or all(step == 1 for step in i.params["step"])
    return is_dense and all(isinstance(e, int) and not is_size(e) for e in (*offsets, *extents))


def _leaf_count(plan: _Plan) -> int:
    """Return the number of windows that a plan reads."""
    match plan:
        case _Roll():
            return _leaf_count(plan.operand)
        case _Join():
            return sum(map(_leaf_count, plan.parts))
    return 1
