"""jam: unroll-and-jam loops whose bodies are one inner loop that depends on itself.

Requires: a kernel whose functions are expanded. Keeps: its meaning, to the bit.

- A loop over rows whose body is one short reduction becomes a loop over groups of four rows, which reduces the rows of a group in
  one inner loop, and a loop over the remaining rows. Values that the rows share are computed once, and the additions of
  different rows are independent.
- A loop over elements each of which runs through a recurrence is cut into parts, and one inner loop runs the recurrences of the
  elements at one position of each part: chains of dependent instructions overlap, and each part is read in vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.cpu.loops.unrolling import weigh
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

MOST_STEPS = 8
"""Greatest number of instructions of an iteration of a recurrence; those of a longer one overlap by themselves."""
PARTS = 8
"""The number of parts of the elements. With a latency of 4 cycles and two to four vector units, about 8 chains of instructions
occupy the units."""
VECTOR_BYTES = 64
"""Bytes of the widest vectors; parts begin at a multiple of their elements."""

Env = dict[Value, Value]


def jam(block: Block) -> Block:
    """Return a block with its loops over short reductions, and over recurrences, jammed."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        regions = tuple(map(jam, i.regions))
        jammed = Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i
        if is_row_loop(jammed):
            _emit_jammed(Builder(i.loc, instructions), jammed)
        elif is_recurrence_loop(jammed):
            _emit_parts(Builder(i.loc, instructions), jammed)
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


def is_recurrence_loop(i: Instruction) -> bool:
    """Return whether an instruction is a loop over independent elements, each of which runs through a short recurrence that reads
    no memory."""
    if not isinstance(i.op, For) or i.results or i.params.get("ordered") or "map" in i.params:
        return False
    (body,) = i.regions
    loops = [k for k in body.instructions if k.regions]
    if len(loops) != 1 or not all(is_plain(k) and not _is_masked(k) for k in body.instructions if not k.regions):
        return False
    (inner,) = loops
    steps = inner.regions[0].instructions
    if not isinstance(inner.op, For) or not inner.results or {"combine", "scan", "map"} & inner.params.keys():
        return False
    is_in_registers = all(isinstance(k.op, Elementwise) or k.op is OPS["const"] for k in steps)
    return is_in_registers and 0 < weigh(inner.regions[0]) <= MOST_STEPS


def _is_masked(i: Instruction) -> bool:
    return isinstance(i.op, Load | Store) and i.op.masked


def _emit_parts(b: Builder, i: Instruction) -> None:
    """Emit the loop over the elements of a part, which runs the recurrences of one element of each part.

    The parts are of as many whole vectors as fit. The elements that are left are a second run of the same code, in parts of one
    vector, some of which are short or empty; if they fill one vector at most, a loop over them alone comes first.
    """
    (count,), (region,) = i.operands, i.regions
    (inner,) = (k for k in region.instructions if k.regions)
    lanes = VECTOR_BYTES // max(v.type.dtype.bytes for v in inner.results)
    zero, size = b.const(0, I64), b.const(lanes, I64)
    whole = b.bitand(b.raw_shr(count, b.const(PARTS.bit_length() - 1, I64)), b.const(-lanes, I64))
    done = b.mul(whole, b.const(PARTS, I64))
    left = b.sub(count, done)
    is_few = b.le(left, size)
    _emit_rest(b, i, done, b.select(is_few, left, zero))
    run = Value(region.parameters[0].type, "run")
    outer = Builder(i.loc)
    is_first = outer.eq(run, outer.const(0, I64))
    first = outer.select(is_first, zero, done)
    distance = outer.select(is_first, whole, size)
    _emit_run(outer, i, first, distance, lanes)
    runs = b.select(is_few, b.const(1, I64), b.const(2, I64))
    b.append(Instruction(i.op, (runs,), (), {**i.params, "map": "serial"}, (outer.block((run,), ()),), i.loc))


def _emit_rest(b: Builder, i: Instruction, first: Value, count: Value) -> None:
    """Emit the loop over ``count`` elements from ``first`` on."""
    body = copy_block(i.regions[0])
    at, inside = Value(body.parameters[0].type, body.parameters[0].name), Builder(i.loc)
    position = inside.add(at, first)
    for k in substitute_values(body, {body.parameters[0]: position}).instructions:
        inside.append(k)
    b.append(Instruction(i.op, (count,), (), i.params, (inside.block((at,), ()),), i.loc))


def _emit_run(b: Builder, i: Instruction, first: Value, distance: Value, lanes: int) -> None:
    """Emit the loop over the elements of parts, which begin at ``first`` and then at each ``distance``: whole vectors of
    ``lanes``."""
    (count,), (region,) = i.operands, i.regions
    at = Value(region.parameters[0].type, region.parameters[0].name)
    inside = Builder(i.loc)
    starts = [first, *(b.add(first, b.mul(distance, b.const(k, I64))) for k in range(1, PARTS))]
    positions = [inside.add(at, start) for start in starts]
    envs: list[Env] = [{region.parameters[0]: position} for position in positions]
    for k in region.instructions:
        if k.regions:
            _emit_recurrences(inside, k, envs)
        elif isinstance(k.op, Load | Store):
            for env, position in zip(envs, positions, strict=True):
                _emit_access(inside, k, env, inside.lt(position, count))
        else:
            _emit_per_row(inside, k, envs)
    b.append(Instruction(i.op, (distance,), (), {**i.params, "multiple": lanes}, (inside.block((at,), ()),), i.loc))


def _emit_access(b: Builder, i: Instruction, env: Env, condition: Value) -> None:
    """Emit a load or a store of an element under a condition."""
    operands = [env.get(v, v) for v in i.operands]
    is_load = isinstance(i.op, Load)
    operands.insert(1 if is_load else 2, condition)
    op = OPS["load_if" if is_load else "store_if"]
    results = tuple(Value(v.type, v.name) for v in i.results)
    b.append(Instruction(op, tuple(operands), results, i.params, (), i.loc))
    env.update(zip(i.results, results, strict=True))


def _emit_recurrences(b: Builder, i: Instruction, envs: Sequence[Env]) -> None:
    """Emit one loop for the recurrences of all parts."""
    (region,) = i.regions
    count, *initial = i.operands
    index, *carried = region.parameters
    at = Value(index.type, index.name)
    inside = Builder(i.loc)
    parameters: list[Value] = []
    for env in envs:
        env[index] = at
        states = [Value(v.type, v.name) for v in carried]
        env.update(zip(carried, states, strict=True))
        parameters += states
    for k in region.instructions:
        _emit_per_row(inside, k, envs)
    body = inside.block((at, *parameters), [env.get(v, v) for env in envs for v in region.results])
    operands = (envs[0].get(count, count), *(env.get(v, v) for env in envs for v in initial))
    results = [Value(v.type, v.name) for _ in envs for v in i.results]
    b.append(Instruction(i.op, operands, tuple(results), i.params, (body,), i.loc))
    for part, env in enumerate(envs):
        env.update(zip(i.results, results[part * len(i.results) :], strict=False))
