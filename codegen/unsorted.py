"""unsorted: what goes to the places of an order, as the gradient of sorted elements does, is written there without a base.

Requires: a func without gradient instructions. Keeps: the meaning, and all other instructions. An order has each place once: so
nothing is left of what was there before, and no element is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.ir.builder import Builder
from pullback.ir.ops.create import Iota
from pullback.ir.ops.index import scatter_set
from pullback.ir.ops.sort import argsort, unsort
from pullback.ir.passes.dce import dce
from pullback.ir.passes.replay import New, replaced
from pullback.ir.structure import Function, Instruction, Value


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
