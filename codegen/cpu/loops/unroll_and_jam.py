"""jam: unroll-and-jam loops over rows that each are one short reduction, four rows at a time.

Requires: a kernel whose functions are expanded. Keeps: its meaning, to the bit. A loop over rows whose body is one short
reduction becomes a loop over groups of rows, which reduces the rows of a group in one inner loop, and a loop over the
remaining rows. Values that the rows share are computed once, and the additions of different rows are independent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copy_block, substitute_values
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, For, Load, Store

ROWS = 4
"""Rows per group."""
MOST_INSIDE = 12
"""Greatest number of instructions of a short reduction's body."""
MOST_AROUND = 24
"""Greatest number of instructions of a row outside its reduction."""

Env = dict[Value, Value]


def jam(block: Block) -> Block:
    """Return a block with its loops over short reductions jammed."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        regions = tuple(map(jam, i.regions))
        jammed = Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i
        if is_row_loop(jammed):
            _emit_jammed(Builder(i.loc, instructions), jammed)
        else:
            instructions.append(jammed)
    return Block(block.parameters, tuple(instructions), block.results)


def is_row_loop(i: Instruction) -> bool:
    """Return whether an instruction is a loop over independent rows, each of which is one short reduction and a few plain
    instructions."""
    if not isinstance(i.op, For) or i.results or i.params.get("ordered") or "map" in i.params:
        return False
    outer_body = i.regions[0].instructions
    loops = [k for k in outer_body if k.regions]
    if len(loops) != 1 or len(outer_body) > MOST_AROUND or not all(is_plain(k) for k in outer_body if not k.regions):
        return False
    (inner,) = loops
    inner_body = inner.regions[0].instructions
    if not isinstance(inner.op, For) or len(inner.results) != 1 or tuple(inner.params.get("combine", ())) != ("add",):
        return False
    if len(inner_body) > MOST_INSIDE or not all(is_plain(k) and not isinstance(k.op, Store) for k in inner_body):
        return False
    written = [k.operands[1] for k in outer_body if isinstance(k.op, Store)]
    read = {k.operands[0] for k in (*outer_body, *inner_body) if isinstance(k.op, Load)}
    return len(set(written)) == len(written) and read.isdisjoint(written)


def is_plain(i: Instruction) -> bool:
    """Return whether an instruction is elementwise, an extent, a load, a store or a constant."""
    return isinstance(i.op, Elementwise | Extent | Load | Store) or i.op is OPS["const"]


def _emit_jammed(b: Builder, i: Instruction) -> None:
    """Emit the jammed loop and the loop over the remaining rows."""
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
            _emit_reductions(inside, k, envs)
        else:
            _emit_per_row(inside, k, envs)
    b.append(Instruction(i.op, (groups,), (), i.params, (inside.block((at,), ()),), i.loc))
    done = b.mul(groups, b.const(ROWS, I64))
    remaining = copy_block(region)
    body = Builder(i.loc)
    remaining_index = Value(at.type, at.name)
    row_index = body.add(remaining_index, done)
    for k in substitute_values(remaining, {remaining.parameters[0]: row_index}).instructions:
        body.append(k)
    b.append(Instruction(i.op, (b.sub(count, done),), (), i.params, (body.block((remaining_index,), ()),), i.loc))


def _emit_per_row(b: Builder, i: Instruction, envs: Sequence[Env]) -> None:
    """Emit an instruction for each row, or once if its operands are the same for several."""
    results_by_operands: dict[tuple[Value, ...], tuple[Value, ...]] = {}
    for env in envs:
        operands = tuple(env.get(v, v) for v in i.operands)
        if operands not in results_by_operands or isinstance(i.op, Store):
            results_by_operands[operands] = tuple(Value(v.type, v.name) for v in i.results)
            b.append(Instruction(i.op, operands, results_by_operands[operands], i.params, (), i.loc))
        env.update(zip(i.results, results_by_operands[operands], strict=True))


def _emit_reductions(b: Builder, i: Instruction, envs: Sequence[Env]) -> None:
    """Emit one loop for the reductions of all rows."""
    (region,) = i.regions
    count, *initial = i.operands
    at = Value(region.parameters[0].type, region.parameters[0].name)
    inside = Builder(i.loc)
    for env in envs:
        env[region.parameters[0]] = at
    for k in region.instructions:
        _emit_per_row(inside, k, envs)
    body = inside.block((at,), [env.get(v, v) for env in envs for v in region.results])
    operands = (envs[0].get(count, count), *(env.get(v, v) for env in envs for v in initial))
    results = [Value(v.type, v.name) for _ in envs for v in i.results]
    params: Mapping[str, Any] = {**i.params, "combine": tuple(i.params["combine"]) * len(envs)}
    b.append(Instruction(i.op, operands, tuple(results), params, (body,), i.loc))
    for row, env in enumerate(envs):
        env.update(zip(i.results, results[row * len(i.results) :], strict=False))
