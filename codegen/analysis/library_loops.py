"""A kernel that calls a library for each element of a batch, in loops that each do one thing for all of them.

Requires: loops over the batch around the calls and what stands between them, and memory of its own for each element of the
batch, but for work arrays. A GPU has a kernel for what lies between two calls, and a routine, or a kernel, that does a call for
the whole batch.
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
    """Whether a library is called in an instruction's regions."""
    return any(isinstance(k.op, Library) for r in i.regions for k in walk(r))


def batch_of(loop: Instruction) -> list[Instruction] | None:
    """The loops around the call of a library, if there is nothing else in them; none around a call alone."""
    nest: list[Instruction] = []
    while not isinstance(loop.op, Library):
        if not isinstance(loop.op, For) or loop.results:
            return None
        nest.append(loop)
        *others, loop = loop.regions[0].instructions
        if not all(isinstance(i.op, Subview | Extent | Constant) for i in others):
            return None
    return nest


def apart(kernel: Function, depth: int) -> Function:
    """The kernel with its loops over ``depth`` axes of a batch split at the calls in them; itself where values, not memory alone,
    are handed from one part to another."""
    made: list[Instruction] = []
    for i in kernel.body.instructions:
        made.extend(_split(i, depth) if depth and calls_library(i) else [i])
    return replace(kernel, body=replace(kernel.body, instructions=tuple(made)))


def _split(loop: Instruction, depth: int) -> list[Instruction]:
    nest = [loop]
    while len(nest) < depth:
        inner = [i for i in nest[-1].regions[0].instructions if i.regions]
        if len(inner) != 1 or not isinstance(inner[0].op, For):
            return [loop]
        nest.append(inner[0])
    parts: list[list[Instruction]] = [[]]
    again = {v: i for level in nest[:-1] for i in level.regions[0].instructions if _is_again(i) for v in i.results}
    computed: set[Value] = set()
    for i in nest[-1].regions[0].instructions:
        if isinstance(i.op, Library):
            parts += [[i], []]
        elif _is_again(i) and computed.isdisjoint(i.operands):
            again.update((v, i) for v in i.results)
        else:
            parts[-1].append(i)
            computed.update(i.results)
    own = [{v for i in part for v in i.results} for part in parts]
    handed = set().union(*own)
    for part, mine in zip(parts, own, strict=True):
        if not _reads(part, again).isdisjoint(handed - mine):
            return [loop]
    return [_nest(nest, part, again) for part in parts if part]


def _is_again(i: Instruction) -> bool:
    """Whether each part may compute it for itself, if it can compute the operands."""
    return isinstance(i.op, Subview | Extent | Constant | Elementwise) and not i.regions


def _reads(part: Sequence[Instruction], again: Mapping[Value, Instruction]) -> set[Value]:
    """All values that a part needs, those that it computes again included."""
    found: set[Value] = set()
    stack = [v for i in part for k in _with_inner(i) for v in k.operands]
    stack += [v for i in part for k in _with_inner(i) for r in k.regions for v in r.results]
    while stack:
        value = stack.pop()
        if value not in found:
            found.add(value)
            stack.extend(again[value].operands if value in again else ())
    return found


def _with_inner(i: Instruction) -> list[Instruction]:
    return [i, *(k for r in i.regions for k in walk(r))]


def _nest(nest: Sequence[Instruction], part: Sequence[Instruction], again: Mapping[Value, Instruction]) -> Instruction:
    """The loops with one part in them, of values of their own."""
    needed = {again[v] for v in _reads(part, again) if v in again}
    inside: tuple[Instruction, ...] = tuple(part)
    for loop in reversed(nest):
        region = loop.regions[0]
        before = tuple(i for i in region.instructions if i in needed)
        made = replace(loop, regions=(Block(region.parameters, (*before, *inside), ()),))
        inside = (made,)
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
