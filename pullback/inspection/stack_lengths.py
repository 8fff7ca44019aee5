"""Compute the lengths of the stacks of a program, where they follow from its sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import ArrayType, StackType
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.loop_view import parts_of

Constants = dict[Value, Any]


def lengths(function: Function, sizes: Mapping[str, int], constants: Mapping[Value, Any]) -> Iterator[int | None]:
    """Yield for each stack of a function, in order, the number of values that it holds in the end, in the first iteration of
    the loops around it; None if it depends on the data. ``constants``: parameters with known values."""
    return _lengths(function.body, dict(constants), sizes)


def _lengths(block: Block, known: Constants, sizes: Mapping[str, int]) -> Iterator[int | None]:
    for i in block.instructions:
        if isinstance(i.op, Loop):
            yield from _of_loop(i, known, sizes)
        elif isinstance(i.op, Switch):
            for region in i.regions:
                yield from _lengths(region, _inside(i.operands[1:], region.parameters, known), sizes)
        elif is_pure(i) and all(v in known for v in i.operands) and all(_is_number(v) for v in i.results):
            operands = tuple(dict.fromkeys(i.operands))
            single = Function("f", Block(operands, (i,), i.results))
            known.update(zip(i.results, interpret(single, *(known[v] for v in operands), sizes=sizes), strict=True))


def _of_loop(i: Instruction, known: Constants, sizes: Mapping[str, int]) -> Iterator[int | None]:
    loop = parts_of(i)
    count = known.get(i.operands[0]) if loop.first else None
    for value in i.results:
        if isinstance(value.type, StackType):
            yield None if count is None else int(count)
    for region in i.regions:
        _, _, outside = loop.operands(i.operands)
        _, _, inside = loop.parameters(region.parameters)
        started = {region.parameters[0]: np.int64(0), **_inside(outside, inside, known)}
        yield from _lengths(region, started, sizes)


def _inside(operands: Any, parameters: Any, known: Constants) -> Constants:
    return {p: known[v] for p, v in zip(parameters, operands, strict=True) if v in known}


def _is_number(value: Value) -> bool:
    return isinstance(value.type, ArrayType) and not value.type.rank
