"""Rewrites sorts and their gradients by the permutation that they share.

``sorted_twice``: where both the order of an array and its sorted elements are read, as with a gradient, the elements are
gathered in that order. One sort is left of two.

``unsorted``: what is written to the places of an order, as the gradient of sorted elements is, needs no base. An order has each
place once: so nothing is left of what was there before, and no element is written twice.

Requires: a func without gradient instructions. Keeps: the meaning, and all other instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Iota
from pullback.ir.ops.array.index import scatter_set
from pullback.ir.ops.library.family import position
from pullback.ir.ops.library.sort import argsort, sort, unsort
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.editing.replay import New, replaced


def sorted_twice(function: Function) -> Function:
    """The function in which no array is both sorted and argsorted."""
    ordered = {i.operands[0] for i in function.instructions if i.op is argsort}
    twice = ordered & {i.operands[0] for i in function.instructions if i.op is sort}
    places: dict[Value, Value] = {}

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        x = new(i.operands[0])
        if x not in places:
            places[x] = b.argsort(x)
        axes = tuple(range(x.type.rank))
        rows = [position(b, x.type.shape, k) for k in axes[:-1]]
        return [places[x] if i.op is argsort else b.gather(x, *rows, places[x], axes=axes)]

    return replaced(function, lambda i: i.op in (sort, argsort) and i.operands[0] in twice, made)


def unsorted(function: Function) -> Function:
    """The function in which values that an argsort's places lead to are put there."""
    producer = {v: i for i in function.instructions for v in i.results}

    def made(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        return b.emit(unsort, tuple(map(new, i.operands[-2:])))

    found = replaced(function, lambda i: _is_by_order(i, producer), made)
    return function if found is function else dce(found)


def _is_by_order(i: Instruction, made: Mapping[Value, Instruction]) -> bool:
    """Whether an instruction writes all elements of rows, each where an argsort says."""
    if i.op is not scatter_set or i.result.type.dtype.is_complex:
        return False
    _, *rows, places, values = i.operands
    if places not in made or made[places].op is not argsort or values.type != i.result.type:
        return False
    return all(
        v in made and isinstance(made[v].op, Iota) and made[v].params["axis"] == k and v.type.shape == values.type.shape
        for k, v in enumerate(rows)
    ) and len(rows) == values.type.rank - 1
