"""Choose the residuals of a loop or branch, and the code that its gradient recomputes.

``choose`` picks the values to save: a minimum cut over bytes between the values that the gradient reads and the ops that are
not cheap to recompute, such as contractions, reductions and loops, and the carried values. For a scalar read from a carried
array it saves the scalar, not the array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from pullback.ir.core.op import OPS, Op
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count, DefineExtent, Iota
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reindex import Reindex, reshape
from pullback.ir.ops.control.markers import Barrier, CotangentTap, Stop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.transforms.min_cut import NEVER, UNIT, Node, cut, recompute_cost
from pullback.ir.shapes.extents import NOMINAL, by_value_in, definers, extents_by_value, factor_names, nominal_bytes

CHEAP = (Elementwise, Reindex, Gather, Constant, Iota, Count, Barrier, Stop, CotangentTap)
"""Ops that are cheap to recompute."""
FUNCTION = 12
"""The cost of computing a byte by a function, relative to ``UNIT`` for moving it. A loop saves a residual in every iteration."""


def choose(
    forward: Block, required: Iterable[Value], free: Collection[Value], stored: Collection[Value] = (), function: int = FUNCTION
) -> list[Value]:
    """Return the values of ``forward`` to save so that ``required`` can be computed from them and ``free``, in the order of
    their definition: those with fewest bytes. Stacks are not saved: the instructions that define them are run again. Values of
    ``stored`` are in memory for the forward part, and not recomputed. ``function``: the cost of a byte of a function."""
    definitions = {v: i for i in forward.instructions for v in i.results}
    extents = definers(forward.instructions)
    read = dict.fromkeys(required)
    wanted: dict[Value, None] = {}
    stack = list(read)
    while stack:
        value = stack.pop()
        if value not in wanted:
            wanted[value] = None
            stack += _sources(value, definitions, free, extents)
    order = [v for v in (*forward.parameters, *definitions) if v in wanted]
    order = [*(v for v in wanted if v not in definitions and v not in forward.parameters), *order]
    positions = {v: k for k, v in enumerate(order)}
    nodes = []
    nominal_extents = _split_extents(forward.instructions)
    for value in order:
        size = 0 if value in free else nominal_bytes(value.type, nominal_extents)
        node = Node((1 if value in stored else 2) * UNIT * size, is_read=value in read)
        is_cheap = value in definitions and _runs_again(definitions[value], value, extents)
        if value not in free and value not in stored and is_cheap:
            node.recompute = recompute_cost(definitions[value], size, function)
            if isinstance(value.type, StackType) or _has_own_extents(value, definitions[value], extents):
                node.keep, node.recompute = NEVER, 0
        node.operands = [positions[v] for v in _sources(value, definitions, free, extents)]
        nodes.append(node)
    return [order[k] for k in sorted(cut(nodes).saved) if order[k] not in free]


def _split_extents(instructions: Iterable[Instruction]) -> dict[str, int]:
    """Return nominal values for named extents that a reshape splits off another extent by a constant factor."""
    nominal_extents: dict[str, int] = {}
    for i in instructions:
        if i.op is reshape:
            source_shape, shape = i.operands[0].type.shape, i.result.type.shape
            for factor, part in pairwise(e for e in shape if e not in source_shape):
                if isinstance(factor, int) and isinstance(part, str) and factor:
                    nominal_extents[part] = max(1, NOMINAL // factor)
    return nominal_extents


def _sources(
    value: Value, definitions: Mapping[Value, Instruction], free: Collection[Value], extents: Mapping[str, Value]
) -> Sequence[Value]:
    """Return the operands to recompute a value from, and the numbers that define its extents; none if it is not recomputed."""
    instruction = definitions.get(value)
    if instruction is None or value in free or not _runs_again(instruction, value, extents):
        return ()
    return (*instruction.operands, *_extents_of(instruction, extents))


def _extents_of(instruction: Instruction, extents: Mapping[str, Value]) -> list[Value]:
    """Return the numbers that define the extents by value of an instruction, among those of its block."""
    return [extents[name] for name in extents_by_value(instruction) if name in extents] if extents else []


def _has_own_extents(value: Value, instruction: Instruction, extents: Mapping[str, Value]) -> bool:
    """Return whether a value cannot be saved in each iteration: its extents differ, or it defines one."""
    names = (name for e in by_value_in(value.type.shape) for name in factor_names(e))
    return isinstance(instruction.op, DefineExtent) or any(name in extents for name in names)


def _runs_again(instruction: Instruction, result: Value, extents: Mapping[str, Value]) -> bool:
    is_held = isinstance(result.type, StackType) or _has_own_extents(result, instruction, extents)
    return isinstance(instruction.op, CHEAP) or is_held


def residual_bytes(carried: Sequence[Value], instructions: Sequence[Instruction]) -> int:
    """Estimate the bytes of residuals per iteration of a loop: carried values, and results that are expensive to recompute."""
    expensive = [v for i in instructions if not isinstance(i.op, CHEAP) for v in i.results]
    return sum(nominal_bytes(v.type) for v in (*carried, *expensive) if isinstance(v.type, ArrayType) and v.type.dtype.is_inexact)


def needed(instructions: Sequence[Instruction], wanted: Iterable[Value], known: Collection[Value]) -> list[Instruction]:
    """Return the instructions that compute ``wanted`` from ``known``, in order."""
    missing = {v for v in wanted if v not in known}
    extents = definers(instructions)
    kept = []
    for instruction in reversed(instructions):
        if not missing.isdisjoint(instruction.results):
            missing.update(v for v in (*instruction.operands, *_extents_of(instruction, extents)) if v not in known)
            kept.append(instruction)
    return kept[::-1]


def without_effects(block: Block, results: Sequence[Value]) -> Block:
    """Return a block for its second run: with other results, and without callbacks and checks."""
    return live(Block(block.parameters, tuple(map(_quiet, filter(_is_computed, block.instructions))), tuple(results)))


def _quiet(instruction: Instruction) -> Instruction:
    regions = []
    for region in instruction.regions:
        regions.append(replace(region, instructions=tuple(map(_quiet, filter(_is_computed, region.instructions)))))
    return replace(instruction, regions=tuple(regions)) if regions else instruction


def _is_computed(instruction: Instruction) -> bool:
    return bool(instruction.results) or instruction.op.effect == "pure"


def constant_carries(block: Block, carried: int) -> list[int]:
    """Return the carried values that no iteration changes."""
    return [k for k in range(carried) if block.results[k] is block.parameters[1 + k]]


def counters(block: Block, carried: int, captures: Collection[Value]) -> dict[int, tuple[Op, list[Instruction], Value]]:
    """Return the carried integers to which each iteration adds, or from which it subtracts, the same value: by position the
    op, the instructions that define the value, and the value."""
    definitions = {v: i for i in block.instructions for v in i.results}
    by_position = {}
    for k, result in enumerate(block.results[:carried]):
        parameter, instruction = block.parameters[1 + k], definitions.get(result)
        if instruction is None or instruction.op not in (OPS["add"], OPS["sub"]) or not parameter.type.dtype.is_integer:
            continue
        x, y = instruction.operands
        if y is parameter and instruction.op is OPS["add"]:
            x, y = y, x
        makers = _rearrangements(y, definitions, captures)
        if x is parameter and makers is not None:
            by_position[k] = instruction.op, makers, y
    return by_position


def _rearrangements(value: Value, definitions: dict[Value, Instruction], captures: Collection[Value]) -> list[Instruction] | None:
    """Return the instructions that compute a value from captures and constants by moving elements only; None if there are
    others."""
    makers: list[Instruction] = []
    while value not in captures:
        instruction = definitions.get(value)
        if instruction is None or len(instruction.operands) > 1 or not isinstance(instruction.op, Reindex | Constant):
            return None
        makers.insert(0, instruction)
        if not instruction.operands:
            break
        (value,) = instruction.operands
    return makers
