"""Simplify sorts and their gradients by the permutation that they share.

``share_sorts``: if both the argsort of an array and its sorted elements are used, as with a gradient, the elements are
gathered by the argsort. One of the two sorts remains.

``scatter_to_unsort``: a scatter to the indices of an argsort, as in the gradient of sorted elements, needs no base. An argsort
contains each index once: no element of the base remains, and no element is written twice.

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


def share_sorts(function: Function) -> Function:
    """Return the function in which no array is both sorted and argsorted."""
    ordered = {i.operands[0] for i in function.instructions if i.op is argsort}
    twice = ordered & {i.operands[0] for i in function.instructions if i.op is sort}
    argsorts: dict[Value, Value] = {}

    def emit(b: Builder, i: Instruction, new: New) -> list[Value]:
        x = new(i.operands[0])
        if x not in argsorts:
            argsorts[x] = b.argsort(x)
        axes = tuple(range(x.type.rank))
        rows = [position(b, x.type.shape, k) for k in axes[:-1]]
        return [argsorts[x] if i.op is argsort else b.gather(x, *rows, argsorts[x], axes=axes)]

    return replaced(function, lambda i: i.op in (sort, argsort) and i.operands[0] in twice, emit)


def scatter_to_unsort(function: Function) -> Function:
    """Return the function with scatters to the indices of an argsort as ``unsort``."""
    producer = {v: i for i in function.instructions for v in i.results}

    def emit(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        return b.emit(unsort, tuple(map(new, i.operands[-2:])))

    rewritten = replaced(function, lambda i: _scatters_by_argsort(i, producer), emit)
    return function if rewritten is function else dce(rewritten)


def _scatters_by_argsort(i: Instruction, makers: Mapping[Value, Instruction]) -> bool:
    """Return whether an instruction writes all elements of rows, at the indices of an argsort."""
    if i.op is not scatter_set or i.result.type.dtype.is_complex:
        return False
    _, *rows, indices, values = i.operands
    if indices not in makers or makers[indices].op is not argsort or values.type != i.result.type:
        return False
    return (
        all(
            v in makers and isinstance(makers[v].op, Iota) and makers[v].params["axis"] == k and v.type.shape == values.type.shape
            for k, v in enumerate(rows)
        )
        and len(rows) == values.type.rank - 1
    )
