"""exit_selects: move selects by a condition that ends a ``while`` loop behind the loop.

What ``break`` leaves in a variable is a select in the body, on whose condition the next iteration then depends, although there is
none where it holds. The loop carries what the variable has if it goes on, and the condition and the other value of its last
iteration:

    %d, %go, %k = while %d0, %yes, ... {                  %next, %go, %p, %last, %k = while %d0, %yes, %no, %d0, ... {
      yield %go0                                            yield %go0
    } (%i, %d1, %go1, ...) {                       ->     } (%i, %d1, %go1, %p1, %last1, ...) {
      %p = ...                                              %p = ...
      %e = add %d1, %one                                    %e = add %d1, %one
      %f = select %p, %d1, %e                               %f = select %p, %d1, %e
      %g = select %p, %false, %h                            %g = select %p, %false, %h
      yield %f, %g                                          yield %e, %g, %p, %d1
    }                                                     }
                                                          %d = select %p, %last, %next

A processor predicts the branch at the end of the loop, so that the next iteration starts before the condition is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import BOOL
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.control.loops import While
from pullback.ir.ops.elementwise.elementwise import Elementwise, select
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.each_of_op import each_of_op
from pullback.ir.passes.editing.replay import replay

MOST_SELECTS = 8
"""Largest number of variables of a loop whose selects are moved: each needs a register or two more."""
DEEPEST = 12
"""Largest number of operations from a condition to the end of the loop."""


def exit_selects(function: Function) -> Function:
    """Move such selects.

    Requires: an optimised func. Keeps: values bit by bit, and the order of what can fail. Cost: two more carried scalars each.
    """
    return each_of_op(function, While, _moved)


@dataclass(frozen=True, eq=False)
class _Select:
    """A carried variable, by its position, which is ``last`` if the loop ends because ``test`` is ``ends``, else ``next``."""

    position: int
    test: Value
    ends: bool
    last: Value
    next: Value


def _moved(loop: Instruction) -> list[Instruction]:
    """Return what replaces a loop."""
    condition, body = loop.regions
    (goes_on,) = condition.results
    carried = loop.params["carried"]
    if goes_on not in condition.parameters[1 : 1 + carried]:
        return [loop]
    selects = _selects(body, carried, condition.parameters.index(goes_on) - 1)
    if not 0 < len(selects) <= MOST_SELECTS:
        return [loop]
    captures = dict(zip(body.parameters[1 + carried :], loop.operands[carried:], strict=True))
    constants = {i.result: i for i in body.instructions if isinstance(i.op, Constant)}
    before, after = Builder(loop.loc), Builder(loop.loc)
    first: dict[Value, Value] = {}
    outside = dict(captures)
    for s in selects:
        first.setdefault(s.test, before.const(not s.ends, BOOL))
        if s.last in constants:
            outside[s.last] = replay(after, constants[s.last], ())[0]
        elif s.last not in captures:
            first.setdefault(s.last, loop.operands[s.position])
    following, outcomes = list(body.results[:carried]), list(loop.results)
    for s in selects:
        following[s.position] = s.next
        outcomes[s.position] = Value(s.next.type, loop.results[s.position].name)
    added = [Value(v.type, v.name) for v in first]
    outside.update(zip(first, added, strict=True))
    regions = (
        _with_parameters(condition, carried, list(first)),
        live(replace(_with_parameters(body, carried, list(first)), results=(*following, *first, *body.results[carried:]))),
    )
    operands = (*loop.operands[:carried], *first.values(), *loop.operands[carried:])
    params = {**loop.params, "carried": carried + len(first)}
    new = Instruction(loop.op, operands, (*outcomes[:carried], *added, *outcomes[carried:]), params, regions, loop.loc)
    for s in selects:
        ways = (outside[s.last], outcomes[s.position])
        result = loop.results[s.position]
        after.append(Instruction(select, (outside[s.test], *ways[:: 1 if s.ends else -1]), (result,), {}, (), loop.loc))
    return [*before.instructions, *_moved(new), *after.instructions]


def _with_parameters(region: Block, carried: int, values: Sequence[Value]) -> Block:
    """Return a region with parameters for values that the loop carries in addition."""
    more = tuple(Value(v.type, v.name) for v in values)
    return replace(region, parameters=(*region.parameters[: 1 + carried], *more, *region.parameters[1 + carried :]))


def _selects(body: Block, carried: int, end: int) -> list[_Select]:
    """Return the carried variables that are selects by a condition that ends the loop; ``end``: the position of whether the loop
    goes on."""
    makers = {v: i for i in body.instructions for v in i.results}
    result = []
    for position, value in enumerate(body.results[:carried]):
        i = makers.get(value)
        if position == end or i is None or i.op is not select or i.result.type.shape or i.operands[0] not in makers:
            continue
        test, yes, no = i.operands
        for ends, last, following in ((True, yes, no), (False, no, yes)):
            goes_on = _known(body.results[end], {test: np.bool_(ends)}, makers)
            if goes_on is not None and not goes_on:
                result.append(_Select(position, test, ends, last, following))
                break
    return result


def _known(value: Value, known: dict[Value, Any], makers: Mapping[Value, Instruction], depth: int = 0) -> Any:
    """Return the value of a scalar of the body where others are ``known``, or None if that is not known."""
    if value in known or value not in makers or depth > DEEPEST or value.type.shape:
        return known.get(value)
    i = makers[value]
    if isinstance(i.op, Constant):
        known[value] = np.asarray(i.params["value"], i.result.type.dtype.numpy)
    elif isinstance(i.op, Elementwise) and is_pure(i):
        operands = [_known(v, known, makers, depth + 1) for v in i.operands]
        known[value] = _result(i, operands)
    return known.get(value)


def _result(i: Instruction, operands: Sequence[Any]) -> Any:
    """Return the result of an operation of which some operands are known (else None), or None."""
    if i.op is select and operands[0] is not None:
        return operands[1 if operands[0] else 2]
    if i.op.name in ("bitand", "bitor") and i.result.type.dtype.is_bool:
        decisive = i.op.name == "bitor"
        if any(v is not None and bool(v) == decisive for v in operands):
            return np.bool_(decisive)
    if any(v is None for v in operands):
        return None
    return i.op.evaluate(operands, i.params, [v.type for v in i.results])[0]
