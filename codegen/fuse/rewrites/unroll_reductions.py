"""pooled: reductions over a few neighbours, as in pooling, are spelled out.

Requires: an optimised func. Keeps: its meaning, not the order of additions. A reduction over axes that are short and known, with
others that stay after one of them, reads elements at places that its result's own are computed from: they are combined one after
another, in a loop over the results. A loop over the elements would have inner loops of two or three.
"""

from __future__ import annotations

import math
from functools import reduce
from itertools import product

from pullback.codegen.math.recipes import HALF
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

MOST_POOLED = 16
"""So many elements are combined one after another."""


def pooled(function: Function) -> Function:
    """The function with such reductions as elementwise ops."""
    return replaced(function, _is_pooled, _spelled)


def _is_pooled(i: Instruction) -> bool:
    if not isinstance(i.op, Reduce) or not isinstance(OPS.get(i.op.combine), Elementwise):
        return False
    dtype = i.operands[0].type.dtype
    if dtype in HALF or dtype.is_complex:  # of complex values products alone are left: other reductions are of real parts
        return False
    axes, shape = tuple(i.params["axes"]), i.operands[0].type.shape
    short = [e for a, e in enumerate(shape) if a in axes and isinstance(e, int)]
    is_inner = bool(axes) and min(axes) < len(shape) - len(axes) > 0
    return is_inner and len(short) == len(axes) and 1 <= math.prod(short) <= MOST_POOLED


def _spelled(b: Builder, i: Instruction, new: New) -> list[Value]:
    assert isinstance(i.op, Reduce)
    x, axes = new(i.operands[0]), tuple(i.params["axes"])
    op = OPS[i.op.combine]
    shape = tuple(1 if a in axes else e for a, e in enumerate(x.type.shape))
    parts = []
    for places in product(*(range(x.type.shape[a]) for a in axes)):
        start = tuple(places[axes.index(a)] if a in axes else None for a in range(x.type.rank))
        part = b.slice(x, start=start, step=(1,) * x.type.rank, shape=shape)
        parts.append(b.squeeze(part, axes=axes))
    return [reduce(lambda total, part: b.emit(op, (total, part))[0], parts)]
