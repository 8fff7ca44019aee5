"""Simplify loops and branches with facts about their operands, and hoist loop-invariant code.

For each ``scan``, ``while`` and ``switch``, innermost last, then outwards:

- constants among the operands are rematerialised in the regions; a row of a broadcast along the leading axis becomes a capture;
- a carried value that no iteration changes becomes a capture; equal captures and equal sequences are merged;
- code that depends on captures only is hoisted before the loop if it is work: not a constant, a rearrangement, or a cheap op on
  scalars or with a result larger than its inputs. A rearranged capture that products read is work too, since it is stored in
  every iteration, and so are joined captures of which elements are picked, which branches leave to the code around them. Only
  code that cannot fail is hoisted: a loop may have a trip count of 0;
- a row that is the same in every iteration is broadcast after the loop;
- a switch whose index is a constant is replaced by its region.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, copy_block, walk, with_contents, with_regions
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reindex import Reindex, broadcast, concat
from pullback.ir.ops.control.loops import Loop, Scan, Switch
from pullback.ir.ops.control.markers import Barrier, Stop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.cse import key
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_editor import Draft, Input, draft_of
from pullback.ir.passes.simplify.rewrite import simplified
from pullback.ir.shapes.extents import definers, extents_by_value, nominal_bytes

PATHS = (Reindex, Constant, Iota, Count, Gather, Stop)
"""Ops that are cheap enough to stay in a loop and need no memory there."""


def regions(function: Function) -> Function:
    """Rewrite loops and branches.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit, the order of instructions that can fail or
    have an effect.
    """
    if function.kind != "func" or not any(isinstance(i.op, Loop | Switch) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    out: list[Instruction] = []
    names: dict[Value, Value] = {}
    definitions: dict[Value, Instruction] = {}
    for instruction in block.instructions:
        operands = tuple(names.get(v, v) for v in instruction.operands)
        if isinstance(instruction.op, Loop | Switch):
            replacements = _rewritten(with_regions(instruction, instruction.regions, operands), definitions, names)
        else:
            replacements = [with_regions(instruction, map(_block, instruction.regions), operands)]
        for i in replacements:
            out.append(i)
            definitions.update((v, i) for v in i.results)
    return with_contents(block, out, [names.get(v, v) for v in block.results])


def _rewritten(instruction: Instruction, definitions: dict[Value, Instruction], names: dict[Value, Value]) -> list[Instruction]:
    """Return the replacement of a loop or switch; the replacements of its results are added to ``names``."""
    draft = draft_of(instruction)
    before: list[Instruction] = []
    after = Builder(instruction.loc)
    if isinstance(instruction.op, Scan):
        _take_repeated_rows(draft, definitions, before)
    _hold_constant_carries(draft, names)
    _take_constants(draft, definitions)
    _merge_equal(draft)
    draft = _simplified(draft)
    if isinstance(instruction.op, Switch):
        chosen = definitions.get(draft.counted[0])
        if chosen is not None and isinstance(chosen.op, Constant):
            return _inlined(draft, int(chosen.params["value"]), names)
        _hoist(draft, before)
        return [*before, draft.done()]
    _hoist(draft, before)
    _spread_constant_rows(draft, after, names)
    return [*before, draft.done(), *after.instructions]


def _simplified(draft: Draft) -> Draft:
    """Return the draft with its regions simplified and rewritten by this pass."""
    instruction = draft.done()
    inner = [_block(simplified(region)) for region in instruction.regions]
    return draft_of(replace(instruction, regions=tuple(map(live, inner))))


def _take_repeated_rows(draft: Draft, definitions: dict[Value, Instruction], before: list[Instruction]) -> None:
    """Turn sequences that are broadcasts along the leading axis into captures."""
    for taken in list(draft.sequences):
        maker = definitions.get(taken.operand)
        if maker is None or maker.op is not broadcast or 0 not in maker.params["axes"]:
            continue
        axes = tuple(a - 1 for a in maker.params["axes"] if a)
        row = maker.operands[0]
        if axes:
            b = Builder(maker.loc, before, hint=taken.operand.name)
            row = b.broadcast(row, axes=axes, shape=taken.operand.type.shape[1:])
            definitions[row] = before[-1]
        draft.sequences.remove(taken)
        draft.captures.append(Input(row, taken.parameters))


def _hold_constant_carries(draft: Draft, names: dict[Value, Value]) -> None:
    """Turn carried values that no iteration changes into captures."""
    for carry in list(draft.carries):
        if carry.following is carry.parameters[-1]:
            draft.carries.remove(carry)
            draft.captures.append(Input(carry.operand, carry.parameters))
            names[carry.result] = carry.operand


def _take_constants(draft: Draft, definitions: dict[Value, Instruction]) -> None:
    """Rematerialise captured constants in the regions."""
    for taken in list(draft.captures):
        makers = _constant_instructions(taken.operand, definitions)
        if makers is None:
            continue
        draft.captures.remove(taken)
        for k, parameter in enumerate(taken.parameters):
            block = copy_block(Block((), makers, (taken.operand,)))
            draft.bodies[k] = [*block.instructions, *draft.bodies[k]]
            draft.substitute(k, {parameter: block.results[0]})


def _constant_instructions(value: Value, definitions: dict[Value, Instruction]) -> tuple[Instruction, ...] | None:
    """Return the instructions that define a constant, or a broadcast of one; None for other values."""
    maker = definitions.get(value)
    if maker is None or not isinstance(maker.op, Constant):
        inner = None if maker is None or maker.op is not broadcast else definitions.get(maker.operands[0])
        return None if maker is None or inner is None or not isinstance(inner.op, Constant) else (inner, maker)
    return (maker,)


def _merge_equal(draft: Draft) -> None:
    """Merge inputs with the same operand."""
    for taken in (draft.sequences, draft.captures):
        first: dict[Value, Input] = {}
        for item in list(taken):
            same = first.setdefault(item.operand, item)
            if same is not item:
                taken.remove(item)
                for k, (old, new) in enumerate(zip(item.parameters, same.parameters, strict=True)):
                    draft.substitute(k, {old: new})


def _inlined(draft: Draft, index: int, names: dict[Value, Value]) -> list[Instruction]:
    """Return the instructions of the region at an index, which is in range."""
    draft.substitute(index, {t.parameters[index]: t.operand for t in draft.captures})
    names.update((g.result, g.values[index]) for g in draft.outputs)
    return draft.bodies[index]


def _hoist(draft: Draft, before: list[Instruction]) -> None:
    """Hoist work that depends on captures only."""
    hoisted: dict[tuple[Any, ...], tuple[Value, ...]] = {}
    for k, body in enumerate(draft.bodies):
        env = {t.parameters[k]: t.operand for t in draft.captures}
        is_loop = isinstance(draft.instruction.op, Loop)
        stored = _picked(body) | (_multiplied(body) if is_loop else set[Value]())
        held, moved = _invariant(body, env, stored)
        if not is_loop:
            moved = {i: None for i in moved if stored.intersection(i.results)}
        wanted = set(moved)
        stack = list(moved)
        while stack:
            makers = [held[v] for v in stack.pop().operands if v in held]
            stack += [i for i in makers if i not in wanted]
            wanted.update(makers)
        for i in body if moved else ():
            if i in wanted:
                params = {name: value for name, value in i.params.items() if name != "in_range"}  # proved of the iterations
                renamed = replace(i, operands=tuple(env.get(v, v) for v in i.operands), params=params)
                identity = key(renamed.op, renamed.operands, renamed.params, renamed.regions)
                if identity not in hoisted:
                    copy = copy_block(Block((), (renamed,), i.results))
                    before += copy.instructions
                    hoisted[identity] = copy.results
                env.update(zip(i.results, hoisted[identity], strict=True))
        draft.bodies[k] = [i for i in body if i not in moved]
        read = draft.reads(k)
        for value in (v for i in moved for v in i.results if v in read):
            parameters = [value if region == k else Value(value.type, value.name) for region in range(len(draft.bodies))]
            draft.captures.append(Input(env[value], parameters))
    _merge_equal(draft)


def _multiplied(body: Sequence[Instruction]) -> set[Value]:
    """Return the rearranged values that products read."""
    moved = {i.result for i in body if (isinstance(i.op, Reindex) and not i.op.view) or isinstance(i.op, Gather)}
    moved -= {i.result for i in body if i.op is broadcast}
    return moved & {v for i in body if isinstance(i.op, Contract) for v in i.operands}


def _picked(body: Sequence[Instruction]) -> set[Value]:
    """Return the joined values of which elements at indices that are data are read, or that loops and branches read."""
    makers = {v: i for i in body for v in i.results}
    picked = set[Value]()
    for i in body:
        for v in i.operands if isinstance(i.op, Loop | Switch) else i.operands[:1] if isinstance(i.op, Gather) else ():
            source = makers.get(v)
            while source is not None and isinstance(source.op, Reindex) and source.op.view:
                source = makers.get(source.operands[0])
            if source is not None and source.op is concat:
                picked.update(source.results)
    return picked


def _invariant(
    body: Sequence[Instruction], captures: Mapping[Value, Value], stored: Container[Value]
) -> tuple[dict[Value, Instruction], dict[Instruction, None]]:
    """Return the instructions that depend on captures only, by their results, and the ones among them that are work.
    Instructions whose results are ``stored`` anyway are work."""
    sizes = {p: nominal_bytes(p.type) for p in captures}
    own_extents = set(definers(body))
    held: dict[Value, Instruction] = {}
    moved: dict[Instruction, None] = {}
    for i in body:
        if not is_pure(i) or isinstance(i.op, Barrier) or not all(v in sizes for v in i.operands):
            continue
        if own_extents and not own_extents.isdisjoint(extents_by_value(i)):
            continue
        largest = max((sizes[v] for v in i.operands), default=0)
        held.update((v, i) for v in i.results)
        is_work = _is_work(i, largest) or any(v in stored for v in i.results)
        if is_work:
            moved[i] = None
        sizes.update((v, nominal_bytes(v.type) if is_work else min(largest, nominal_bytes(v.type))) for v in i.results)
    return held, moved


def _is_work(i: Instruction, largest: int) -> bool:
    """Return whether an instruction is worth hoisting. ``largest``: bytes of its largest input."""
    if isinstance(i.op, PATHS):
        return False
    if isinstance(i.op, Elementwise) and i.op.cheap:
        return bool(i.result.type.shape) and nominal_bytes(i.result.type) <= largest
    return True


def _spread_constant_rows(draft: Draft, after: Builder, names: dict[Value, Value]) -> None:
    """Broadcast rows that are the same in every iteration of a scan of known length, after it."""
    length = tuple(draft.instruction.params.get("length", ()))
    if not length or definers(draft.bodies[-1]):
        return
    outer = {t.parameters[-1]: t.operand for t in draft.captures}
    definitions = {v: i for i in draft.bodies[-1] for v in i.results}
    for output in list(draft.outputs):
        row = output.values[0]
        makers = _constant_instructions(row, definitions)
        if makers is not None:
            copy = copy_block(Block((), makers, (row,)))
            after.instructions += copy.instructions
            outer[row] = copy.results[0]
        if row in outer:
            names[output.result] = after.broadcast(outer[row], axes=(0,), shape=(*length, *row.type.shape))
            draft.outputs.remove(output)
