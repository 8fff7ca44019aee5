"""regions: loops and branches get what their regions know, and give what does not depend on the run.

Of each ``scan``, ``while`` and ``switch``, innermost last, then outwards:

- constants among the operands are made in the regions; a row of what a broadcast repeats is the value that it repeats;
- a carried value that each run hands on as it is becomes a capture, equal captures and sequences become one;
- what depends on captures alone is computed once, before the loop, if it is work: no constant, rearrangement, or cheap op on
  numbers, or whose result is larger than what it is computed from. A part of a capture that products read, which have it in
  memory, is work of a loop. Only what cannot fail: a loop may run no time;
- a row that is the same in each run is broadcast after the loop;
- a switch whose index is a constant is its region.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, copied, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reindex import Reindex, broadcast
from pullback.ir.ops.control.loops import Loop, Scan, Switch
from pullback.ir.ops.control.markers import Barrier, Stop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.cse import key
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_editor import Draft, Taken, drafted
from pullback.ir.passes.simplify.rewrite import rewritten
from pullback.ir.shapes.extents import nominal_bytes

PATHS = (Reindex, Constant, Iota, Count, Gather, Stop)
"""What is cheap enough to stay in a loop, and needs no memory there."""


def regions(function: Function) -> Function:
    """Rewrite loops and branches.

    Requires: a func; other kinds are returned as they are.
    Keeps: values bit by bit, the order of what can fail or has an effect.
    """
    if function.kind != "func" or not any(isinstance(i.op, Loop | Switch) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    out: list[Instruction] = []
    names: dict[Value, Value] = {}
    made: dict[Value, Instruction] = {}
    for instruction in block.instructions:
        operands = tuple(names.get(v, v) for v in instruction.operands)
        if isinstance(instruction.op, Loop | Switch):
            found = _rewritten(replace(instruction, operands=operands), made, names)
        else:
            inner = tuple(map(_block, instruction.regions))
            is_same = operands == instruction.operands and inner == instruction.regions
            found = [instruction if is_same else replace(instruction, operands=operands, regions=inner)]
        for i in found:
            out.append(i)
            made.update((v, i) for v in i.results)
    return Block(block.parameters, tuple(out), tuple(names.get(v, v) for v in block.results))


def _rewritten(instruction: Instruction, made: dict[Value, Instruction], names: dict[Value, Value]) -> list[Instruction]:
    """What stands in the place of a loop or switch; ``names`` gets what stands for its results."""
    draft = drafted(instruction)
    before: list[Instruction] = []
    after = Builder(instruction.loc)
    if isinstance(instruction.op, Scan):
        _take_repeated_rows(draft, made, before)
    _hold_constant_carries(draft, names)
    _take_constants(draft, made)
    _merge_equal(draft)
    draft = _simplified(draft)
    if isinstance(instruction.op, Switch):
        chosen = made.get(draft.counted[0])
        if chosen is not None and isinstance(chosen.op, Constant):
            return _inlined(draft, int(chosen.params["value"]), names)
        return [draft.done()]
    _hoist(draft, before)
    _spread_constant_rows(draft, after, names)
    return [*before, draft.done(), *after.instructions]


def _simplified(draft: Draft) -> Draft:
    """The same with regions that the rules and this pass went over."""
    whole = draft.done()
    inner = [_block(rewritten(region)) for region in whole.regions]
    bodies = tuple(live(region) for region in inner)
    return drafted(replace(whole, regions=bodies))


def _take_repeated_rows(draft: Draft, made: dict[Value, Instruction], before: list[Instruction]) -> None:
    """Sequences that a broadcast along the leading axis made are captures."""
    for taken in list(draft.sequences):
        maker = made.get(taken.operand)
        if maker is None or maker.op is not broadcast or 0 not in maker.params["axes"]:
            continue
        axes = tuple(a - 1 for a in maker.params["axes"] if a)
        row = maker.operands[0]
        if axes:
            b = Builder(maker.loc, before, hint=taken.operand.name)
            row = b.broadcast(row, axes=axes, shape=taken.operand.type.shape[1:])
            made[row] = before[-1]
        draft.sequences.remove(taken)
        draft.captures.append(Taken(row, taken.parameters))


def _hold_constant_carries(draft: Draft, names: dict[Value, Value]) -> None:
    for carry in list(draft.carries):
        if carry.following is carry.parameters[-1]:
            draft.carries.remove(carry)
            draft.captures.append(Taken(carry.operand, carry.parameters))
            names[carry.result] = carry.operand


def _take_constants(draft: Draft, made: dict[Value, Instruction]) -> None:
    """Make captured constants in the regions."""
    for taken in list(draft.captures):
        makers = _makers(taken.operand, made)
        if makers is None:
            continue
        draft.captures.remove(taken)
        for k, parameter in enumerate(taken.parameters):
            block = copied(Block((), makers, (taken.operand,)))
            draft.bodies[k] = [*block.instructions, *draft.bodies[k]]
            draft.substitute(k, {parameter: block.results[0]})


def _makers(value: Value, made: dict[Value, Instruction]) -> tuple[Instruction, ...] | None:
    """The instructions that make a constant, spread at most; None if it is no constant."""
    maker = made.get(value)
    if maker is None or not isinstance(maker.op, Constant):
        inner = None if maker is None or maker.op is not broadcast else made.get(maker.operands[0])
        return None if maker is None or inner is None or not isinstance(inner.op, Constant) else (inner, maker)
    return (maker,)


def _merge_equal(draft: Draft) -> None:
    for taken in (draft.sequences, draft.captures):
        first: dict[Value, Taken] = {}
        for item in list(taken):
            same = first.setdefault(item.operand, item)
            if same is not item:
                taken.remove(item)
                for k, (old, new) in enumerate(zip(item.parameters, same.parameters, strict=True)):
                    draft.substitute(k, {old: new})


def _inlined(draft: Draft, index: int, names: dict[Value, Value]) -> list[Instruction]:
    """The instructions of the region at an index, which is in range."""
    draft.substitute(index, {t.parameters[index]: t.operand for t in draft.captures})
    names.update((g.result, g.values[index]) for g in draft.given)
    return draft.bodies[index]


def _hoist(draft: Draft, before: list[Instruction]) -> None:
    """Move what depends on captures alone, and is work, before the loop."""
    known: dict[tuple[Any, ...], tuple[Value, ...]] = {}
    for k, body in enumerate(draft.bodies):
        env = {t.parameters[k]: t.operand for t in draft.captures}
        stored = _multiplied(body) if isinstance(draft.instruction.op, Loop) else set[Value]()
        held, moved = _invariant(body, env, stored)
        wanted = set(moved)
        stack = list(moved)
        while stack:
            makers = [held[v] for v in stack.pop().operands if v in held]
            stack += [i for i in makers if i not in wanted]
            wanted.update(makers)
        for i in body if moved else ():
            if i in wanted:
                again = replace(i, operands=tuple(env.get(v, v) for v in i.operands))
                identity = key(again.op, again.operands, again.params, again.regions)
                if identity not in known:
                    copy = copied(Block((), (again,), i.results))
                    before += copy.instructions
                    known[identity] = copy.results
                env.update(zip(i.results, known[identity], strict=True))
        draft.bodies[k] = [i for i in body if i not in moved]
        read = draft.reads(k)
        for value in (v for i in moved for v in i.results if v in read):
            parameters = [value if region == k else Value(value.type, value.name) for region in range(len(draft.bodies))]
            draft.captures.append(Taken(env[value], parameters))
    _merge_equal(draft)


def _multiplied(body: Sequence[Instruction]) -> set[Value]:
    """What is rearranged for products."""
    moved = {i.result for i in body if (isinstance(i.op, Reindex) and not i.op.view) or isinstance(i.op, Gather)}
    moved -= {i.result for i in body if i.op is broadcast}
    return moved & {v for i in body if isinstance(i.op, Contract) for v in i.operands}


def _invariant(
    body: Sequence[Instruction], captures: Mapping[Value, Value], stored: Container[Value]
) -> tuple[dict[Value, Instruction], dict[Instruction, None]]:
    """The instructions that depend on captures alone, by their results, and those of them that are work; those whose results are
    ``stored`` anyway are."""
    sizes = {p: nominal_bytes(p.type) for p in captures}
    held: dict[Value, Instruction] = {}
    moved: dict[Instruction, None] = {}
    for i in body:
        if not is_pure(i) or isinstance(i.op, Barrier) or not all(v in sizes for v in i.operands):
            continue
        largest = max((sizes[v] for v in i.operands), default=0)
        held.update((v, i) for v in i.results)
        is_work = _is_work(i, largest) or any(v in stored for v in i.results)
        if is_work:
            moved[i] = None
        sizes.update((v, nominal_bytes(v.type) if is_work else min(largest, nominal_bytes(v.type))) for v in i.results)
    return held, moved


def _is_work(i: Instruction, largest: int) -> bool:
    """``largest``: the bytes of what an instruction is computed from."""
    if isinstance(i.op, PATHS):
        return False
    if isinstance(i.op, Elementwise) and i.op.cheap:
        return bool(i.result.type.shape) and nominal_bytes(i.result.type) <= largest
    return True


def _spread_constant_rows(draft: Draft, after: Builder, names: dict[Value, Value]) -> None:
    """Rows that are the same in each run of a scan of known length."""
    length = tuple(draft.instruction.params.get("length", ()))
    if not length:
        return
    outer = {t.parameters[-1]: t.operand for t in draft.captures}
    made = {v: i for i in draft.bodies[-1] for v in i.results}
    for given in list(draft.given):
        row = given.values[0]
        makers = _makers(row, made)
        if makers is not None:
            copy = copied(Block((), makers, (row,)))
            after.instructions += copy.instructions
            outer[row] = copy.results[0]
        if row in outer:
            names[given.result] = after.broadcast(outer[row], axes=(0,), shape=(*length, *row.type.shape))
            draft.given.remove(given)
