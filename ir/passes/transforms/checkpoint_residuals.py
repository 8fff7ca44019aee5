"""Determine which values a gradient of straight-line code holds in memory until it reads them.

The code is differentiated. Ops that are not elementwise store their results, and operands other than views of stored values.
A stored value that the reverse part reads is held; any other that it reads is recomputed from held ones or stored as well, by a
minimum cut over bytes (``residuals.choose``). The forward part of a loop returns the residuals of its iterations, which are
held too. Of a function's value and argument only the argument is held where ``rematerialize`` computes the value again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import NOWHERE, Block, Instruction, walk
from pullback.ir.core.types import StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.loops import Loop
from pullback.ir.ops.control.regions import Transform
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_view import parts_of
from pullback.ir.passes.editing.replay import inline
from pullback.ir.passes.loops.final_elements import mark_final
from pullback.ir.passes.transforms.checkpoint_segments import Residual, is_work
from pullback.ir.passes.transforms.expand import GradientError, expand
from pullback.ir.passes.transforms.rematerialize import pairs_of
from pullback.ir.passes.transforms.residuals import CHEAP, choose
from pullback.ir.passes.transforms.reverse import differentiate
from pullback.ir.shapes.extents import nominal_bytes

FUNCTION = 24
"""The cost of computing a byte by a function, relative to ``UNIT`` for moving it, in straight-line code."""


Size = Callable[[Value], int]


def residuals_of(block: Block, wrt: Sequence[int], of: Sequence[int], size: Size) -> dict[Value, Residual]:
    """Return the values that the gradient of the results at ``of`` by the parameters at ``wrt`` holds: values of ``block``, and
    the sequences that its loops save. ``size`` returns the bytes of a value. If there is no such gradient, return all results
    that are expensive to recompute."""
    try:
        return _residuals(block, wrt, of, size) if wrt and of else {}
    except GradientError:
        work = ((k, v) for k, i in enumerate(block.instructions) if is_work(i) for v in i.results)
        return {v: Residual(position=k, bytes=size(v), is_read_by_own_rule=True) for k, v in work}


def _residuals(block: Block, wrt: Sequence[int], of: Sequence[int], size: Size) -> dict[Value, Residual]:
    region, names = _expanded(block)
    own = [v for i in block.instructions for v in i.results]
    values = dict.fromkeys([*(block.results[k] for k in of), *own])
    results = tuple(names.get(v, v) for v in values)
    positions = [k for k, v in enumerate(values) if v in {block.results[k] for k in of}]
    seeds = [Value(results[k].type) for k in positions]
    b = Builder()
    parameters = block.parameters
    emitted = differentiate(b, replace(region, results=results), parameters, wrt, NOWHERE, positions, seeds)
    by_emitted = dict(zip(emitted, values, strict=False))
    outputs = [emitted[k] for k in positions]
    code = live(Block((*parameters, *seeds), tuple(b.instructions), (*outputs, *emitted[len(results) :])))
    early = {v for i in live(Block(parameters, tuple(b.instructions), tuple(by_emitted))).instructions for v in i.results}
    forward = tuple(i for i in code.instructions if not early.isdisjoint(i.results))
    backward = [i for i in code.instructions if early.isdisjoint(i.results)]
    kept = _held(code, forward, backward, parameters)
    places = _positions(forward, {v: k for k, i in enumerate(block.instructions) for v in i.results}, by_emitted)
    held = _of_chunks(block, size)
    for v in kept:
        maker, k = places[v]
        rule = f"pullback({maker.op.name})"
        is_own = any(i.loc.note == rule and v in i.operands for i in backward)
        rows = _trip_count(block.instructions[k]) if isinstance(v.type, StackType) else 1
        is_own |= v not in by_emitted
        held[by_emitted.get(v, v)] = Residual(position=k, bytes=rows * size(v), is_read_by_own_rule=is_own)
    return held


def _of_chunks(block: Block, size: Size) -> dict[Value, Residual]:
    """Return the residuals of one chunk of each loop with the param ``checkpoint=sqrt``: the values that are carried, and results
    that are expensive to recompute."""
    held = {}
    for k, i in enumerate(block.instructions):
        if isinstance(i.op, Loop) and i.params.get("checkpoint") == "sqrt":
            loop = parts_of(i)
            inside = [v for j in loop.body.instructions if is_work(j) for v in j.results]
            for v in (*loop.parameters(loop.body.parameters)[0], *inside):
                if v.type.dtype.is_inexact:
                    row = _trip_count(i) * size(v)
                    held[Value(v.type, v.name)] = Residual(position=k, bytes=row, is_read_by_own_rule=True)
    return held


def _trip_count(loop: Instruction) -> int:
    """Return how many rows the stacks of a loop in chunks have: about the square root of its trip count, 1 if that is unknown."""
    length = loop.params.get("length")
    return math.isqrt(length[0] - 1) + 1 if length and isinstance(length[0], int) and length[0] > 1 else 1


def _expanded(block: Block) -> tuple[Block, dict[Value, Value]]:
    """Return the block with its transforms expanded and its loops marked, and the names of its values there."""
    names: dict[Value, Value] = {}
    if any(isinstance(i.op, Transform) for i in walk(block)):
        b = Builder()
        for i in block.instructions:
            inner = [Value(v.type, v.name) for v in i.operands]
            expanded = expand(Block(tuple(inner), (replace(i, operands=tuple(inner)),), i.results))
            names.update(zip(i.results, inline(b, expanded, [names.get(v, v) for v in i.operands]), strict=True))
        block = b.block(block.parameters, [names.get(v, v) for v in block.results])
    marked = mark_final(block)
    again = {
        v: w
        for i, j in zip(block.instructions, marked.instructions, strict=True)
        for v, w in zip(i.results, j.results, strict=True)
        if v is not w
    }
    if again:
        names = {**again, **{v: again.get(w, w) for v, w in names.items()}}
    return marked, names


def _held(code: Block, forward: Sequence[Instruction], backward: Sequence[Instruction], free: Collection[Value]) -> list[Value]:
    """Return the values of the forward part that are held for the backward part."""
    defined = {v for i in forward for v in i.results}
    late = {v for pair in pairs_of(code) for v in (pair.value.result,) if pair.late}
    required = dict.fromkeys(v for i in backward for v in i.operands if v in defined and v not in late)
    return choose(Block(tuple(free), tuple(forward), ()), required, free, _stored(forward), FUNCTION)


def _stored(instructions: Sequence[Instruction]) -> set[Value]:
    """Return the values that are in memory: results and operands of ops that are not elementwise. A view is read in the memory of
    its source."""
    makers = {v: i for i in instructions for v in i.results}
    stored: set[Value] = set()

    def store(values: Iterable[Value]) -> None:
        for v in values:
            maker = makers.get(v)
            while maker is not None and isinstance(maker.op, Reindex) and len(maker.operands) == 1:
                if nominal_bytes(maker.operands[0].type) < nominal_bytes(v.type):
                    break
                (v,) = maker.operands
                maker = makers.get(v)
            stored.add(v)

    for i in instructions:
        if not isinstance(i.op, CHEAP):
            store(i.results)
            if not isinstance(i.op, Reduce):
                store(i.operands)
    return stored


def _positions(
    forward: Sequence[Instruction], positions: dict[Value, int], by_emitted: dict[Value, Value]
) -> dict[Value, tuple[Instruction, int]]:
    """Return, for the values of the forward part, the instruction and the position in the block: that of the next instruction
    that computes a value of the block."""
    places: dict[Value, tuple[Instruction, int]] = {}
    k = max(positions.values(), default=0)
    for i in reversed(forward):
        k = next((positions[by_emitted[v]] for v in i.results if by_emitted.get(v) in positions), k)
        places.update(dict.fromkeys(i.results, (i, k)))
    return places
