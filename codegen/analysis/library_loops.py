"""Loop fission of a kernel that calls a library for each element of a batch, into loops that each do one thing for all
elements.

Requires: loops over the batch around the calls and the instructions between them, and scratch of its own for each element of
the batch, except for work arrays. A GPU has a kernel for the instructions between two calls, and a routine, or a kernel, that
does a call for the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Subview
from pullback.ir.ops.library.routines import Library


def calls_library(i: Instruction) -> bool:
    """Return whether a library is called in an instruction's regions."""
    return any(isinstance(k.op, Library) for r in i.regions for k in walk(r))


def batch_of(loop: Instruction) -> list[Instruction] | None:
    """Return the loops around the call of a library, if they contain nothing else, or None; the list is empty for a call
    without loops."""
    nest: list[Instruction] = []
    while not isinstance(loop.op, Library):
        if not isinstance(loop.op, For) or loop.results:
            return None
        nest.append(loop)
        *others, loop = loop.regions[0].instructions
        if not all(isinstance(i.op, Subview | Extent | Constant) for i in others):
            return None
    return nest


def split_at_calls(kernel: Function, depth: int) -> Function:
    """Return the kernel with its loops over ``depth`` axes of a batch split at the calls in them. A loop stays as it is if
    values, not only memory, would have to be passed from one part to another."""
    instructions: list[Instruction] = []
    for i in kernel.body.instructions:
        instructions.extend(_split(i, depth) if depth and calls_library(i) else [i])
    return replace(kernel, body=replace(kernel.body, instructions=tuple(instructions)))


def _split(loop: Instruction, depth: int) -> list[Instruction]:
    nest = [loop]
    while len(nest) < depth:
        inner = [i for i in nest[-1].regions[0].instructions if i.regions]
        if len(inner) != 1 or not isinstance(inner[0].op, For):
            return [loop]
        nest.append(inner[0])
    parts: list[list[Instruction]] = [[]]
    recomputed = {v: i for level in nest[:-1] for i in level.regions[0].instructions if _is_recomputable(i) for v in i.results}
    computed: set[Value] = set()
    for i in nest[-1].regions[0].instructions:
        if isinstance(i.op, Library):
            parts += [[i], []]
        elif _is_recomputable(i) and computed.isdisjoint(i.operands):
            recomputed.update((v, i) for v in i.results)
        else:
            parts[-1].append(i)
            computed.update(i.results)
    own = [{v for i in part for v in i.results} for part in parts]
    handed = set().union(*own)
    for part, mine in zip(parts, own, strict=True):
        if not _reads(part, recomputed).isdisjoint(handed - mine):
            return [loop]
    return [_nest(nest, part, recomputed) for part in parts if part]


def _is_recomputable(i: Instruction) -> bool:
    """Return whether each part may recompute an instruction for itself, if it can compute the operands."""
    return isinstance(i.op, Subview | Extent | Constant | Elementwise) and not i.regions


def _reads(part: Sequence[Instruction], recomputed: Mapping[Value, Instruction]) -> set[Value]:
    """Return all values that a part needs, including the ones that it recomputes."""
    values: set[Value] = set()
    stack = [v for i in part for k in _with_inner(i) for v in k.operands]
    stack += [v for i in part for k in _with_inner(i) for r in k.regions for v in r.results]
    while stack:
        value = stack.pop()
        if value not in values:
            values.add(value)
            stack.extend(recomputed[value].operands if value in recomputed else ())
    return values


def _with_inner(i: Instruction) -> list[Instruction]:
    return [i, *(k for r in i.regions for k in walk(r))]


def _nest(nest: Sequence[Instruction], part: Sequence[Instruction], recomputed: Mapping[Value, Instruction]) -> Instruction:
    """Return the loops around one part, with values of their own."""
    needed = {recomputed[v] for v in _reads(part, recomputed) if v in recomputed}
    inside: tuple[Instruction, ...] = tuple(part)
    for loop in reversed(nest):
        region = loop.regions[0]
        before = tuple(i for i in region.instructions if i in needed)
        wrapped = replace(loop, regions=(Block(region.parameters, (*before, *inside), ()),))
        inside = (wrapped,)
    return _renamed(inside[0], {})


def _renamed(i: Instruction, env: dict[Value, Value]) -> Instruction:
    operands = tuple(env.get(v, v) for v in i.operands)
    regions = []
    for region in i.regions:
        parameters = tuple(env.setdefault(v, Value(v.type, v.name)) for v in region.parameters)
        instructions = tuple(_renamed(k, env) for k in region.instructions)
        regions.append(Block(parameters, instructions, tuple(env.get(v, v) for v in region.results)))
    results = tuple(env.setdefault(v, Value(v.type, v.name)) for v in i.results)
    return Instruction(i.op, operands, results, i.params, tuple(regions), i.loc)
