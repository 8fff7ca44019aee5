"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.op import Op
from pullback.ir.core.structure import Block, Function, Instruction, with_contents, with_regions
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import DefineExtent
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.text import canonical, print_literal


def cse(function: Function) -> Function:
    """Merge equal pure instructions, and equal definitions of extents by value, into the first of them.

    Instructions are equal if op, operands, params and the canonical text of their regions are; operands of commutative ops may
    be swapped. One that a gradient recomputes equals only others that it recomputes with it. Requires: a func; other kinds are
    returned unchanged. Keeps: values bit by bit, the order of the remaining instructions, and every instruction that can fail or
    has an effect.
    """
    return replace(function, body=_merged(function.body)) if function.kind == "func" else function


def key(op: Op, operands: Sequence[Value], params: Mapping[str, Any], regions: Sequence[Block] = ()) -> tuple[Any, ...]:
    """Return a key that two pure instructions share if and only if they are equal."""
    values = frozenset(operands) if op.commutative else tuple(operands)
    if not params and not regions:
        return op.name, values, (), ()
    literals = tuple((name, print_literal(params[name])) for name in sorted(params) if name not in op.implied)
    return op.name, values, literals, tuple(canonical(Function("f", region)) for region in regions)


def _merged(block: Block) -> Block:
    first: dict[Value, Value] = {}
    by_key: dict[tuple[int, tuple[Any, ...]], tuple[Value, ...]] = {}
    kept: list[Instruction] = []
    for instruction in block.instructions:
        operands = tuple(first.get(v, v) for v in instruction.operands)
        regions = tuple(_merged(region) for region in instruction.regions)
        instruction = with_regions(instruction, regions, operands)
        if is_pure(instruction) or isinstance(instruction.op, DefineExtent):
            full_key = instruction.loc.part, key(instruction.op, operands, instruction.params, regions)
            earlier = by_key.setdefault(full_key, instruction.results)
            if earlier is not instruction.results:
                first.update(zip(instruction.results, earlier, strict=True))
                continue
        kept.append(instruction)
    return with_contents(block, kept, [first.get(v, v) for v in block.results])
