"""jam: rows that are reduced one by one are reduced four at a time.

Requires: a kernel whose functions are spelled out. Keeps: its meaning, to the bit. A loop over rows whose body is one short
reduction becomes a loop over groups of rows, whose body reduces the rows of a group in one loop, and a loop over those that are
left. What the rows share is read once, and the additions of one row need not wait for each other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copied, rewired
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, Store

ROWS = 4
MOST_INSIDE = 12
MOST_AROUND = 24

Env = dict[Value, Value]


def jam(block: Block) -> Block:
    """A block with its loops over short reductions jammed."""
    made: list[Instruction] = []
    for i in block.instructions:
        regions = tuple(map(jam, i.regions))
        again = Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i
        if is_row_loop(again):
            _jammed(Builder(i.loc, made), again)
        else:
            made.append(again)
    return Block(block.parameters, tuple(made), block.results)


def is_row_loop(i: Instruction) -> bool:
    """Whether an instruction is a loop over independent rows, each of which is one short reduction and what goes around it."""
    if not isinstance(i.op, For) or i.results or i.params.get("ordered") or "map" in i.params:
        return False
    around = i.regions[0].instructions
    loops = [k for k in around if k.regions]
    if len(loops) != 1 or len(around) > MOST_AROUND or not all(is_plain(k) for k in around if not k.regions):
        return False
    (inner,) = loops
    inside = inner.regions[0].instructions
    if not isinstance(inner.op, For) or len(inner.results) != 1 or tuple(inner.params.get("combine", ())) != ("add",):
        return False
    if len(inside) > MOST_INSIDE or not all(is_plain(k) and not isinstance(k.op, Store) for k in inside):
        return False
    written = [k.operands[1] for k in around if isinstance(k.op, Store)]
    read = {k.operands[0] for k in (*around, *inside) if isinstance(k.op, Load)}
    return len(set(written)) == len(written) and read.isdisjoint(written)


def is_plain(i: Instruction) -> bool:
    return isinstance(i.op, Elementwise | Extent | Load | Store) or i.op is OPS["const"]


def _jammed(b: Builder, i: Instruction) -> None:
    (count,), (region,) = i.operands, i.regions
    shift = b.const(ROWS.bit_length() - 1, I64)
    groups = b.raw_shr(count, shift)
    at = Value(region.parameters[0].type, region.parameters[0].name)
    inside = Builder(i.loc)
    first = inside.mul(at, inside.const(ROWS, I64))
    rows = [first, *(inside.add(first, inside.const(k, I64)) for k in range(1, ROWS))]
    envs: list[Env] = [{region.parameters[0]: row} for row in rows]
    for k in region.instructions:
        if k.regions:
            _reduced(inside, k, envs)
        else:
            _each(inside, k, envs)
    b.append(Instruction(i.op, (groups,), (), i.params, (inside.block((at,), ()),), i.loc))
    done = b.mul(groups, b.const(ROWS, I64))
    rest = copied(region)
    moved = Builder(i.loc)
    place = Value(at.type, at.name)
    here = moved.add(place, done)
    for k in rewired(rest, {rest.parameters[0]: here}).instructions:
        moved.append(k)
    b.append(Instruction(i.op, (b.sub(count, done),), (), i.params, (moved.block((place,), ()),), i.loc))


def _each(b: Builder, i: Instruction, envs: Sequence[Env]) -> None:
    """An instruction for each row; once for all, where it is the same."""
    known: dict[tuple[Value, ...], tuple[Value, ...]] = {}
    for env in envs:
        operands = tuple(env.get(v, v) for v in i.operands)
        if operands not in known or isinstance(i.op, Store):
            known[operands] = tuple(Value(v.type, v.name) for v in i.results)
            b.append(Instruction(i.op, operands, known[operands], i.params, (), i.loc))
        env.update(zip(i.results, known[operands], strict=True))


def _reduced(b: Builder, i: Instruction, envs: Sequence[Env]) -> None:
    """One loop for the reductions of all rows."""
    (region,) = i.regions
    count, *initial = i.operands
    at = Value(region.parameters[0].type, region.parameters[0].name)
    inside = Builder(i.loc)
    for env in envs:
        env[region.parameters[0]] = at
    for k in region.instructions:
        _each(inside, k, envs)
    body = inside.block((at,), [env.get(v, v) for env in envs for v in region.results])
    operands = (envs[0].get(count, count), *(env.get(v, v) for env in envs for v in initial))
    results = [Value(v.type, v.name) for _ in envs for v in i.results]
    params: Mapping[str, Any] = {**i.params, "combine": tuple(i.params["combine"]) * len(envs)}
    b.append(Instruction(i.op, operands, tuple(results), params, (body,), i.loc))
    for row, env in enumerate(envs):
        env.update(zip(i.results, results[row * len(i.results) :], strict=False))
