"""unroll_reductions: expand reductions over a few neighbours, as in pooling.

Requires: an optimised func. Keeps: its meaning, not the order of additions. A reduction over short axes of constant extent, at
least one of which precedes an axis that is kept, becomes ops that combine the elements one after another, in a loop over the
results. A loop over the elements would contain inner loops of two or three iterations.
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

MOST_UNROLLED = 16
"""Most elements that are combined one after another."""


def unroll_reductions(function: Function) -> Function:
    """Return the function with such reductions as elementwise ops."""
    return replaced(function, _is_short, _unroll)


def _is_short(i: Instruction) -> bool:
    if not isinstance(i.op, Reduce) or not isinstance(OPS.get(i.op.combine), Elementwise):
        return False
    dtype = i.operands[0].type.dtype
    if dtype in HALF or dtype.is_complex:  # other complex reductions than products are already split into real ones
        return False
    axes, shape = tuple(i.params["axes"]), i.operands[0].type.shape
    short = [e for a, e in enumerate(shape) if a in axes and isinstance(e, int)]
    is_inner = bool(axes) and min(axes) < len(shape) - len(axes) > 0
    return is_inner and len(short) == len(axes) and 1 <= math.prod(short) <= MOST_UNROLLED


def _unroll(b: Builder, i: Instruction, new: New) -> list[Value]:
    assert isinstance(i.op, Reduce)
    x, axes = new(i.operands[0]), tuple(i.params["axes"])
    op = OPS[i.op.combine]
    shape = tuple(1 if a in axes else e for a, e in enumerate(x.type.shape))
    parts = []
    for indices in product(*(range(x.type.shape[a]) for a in axes)):
        start = tuple(indices[axes.index(a)] if a in axes else None for a in range(x.type.rank))
        part = b.slice(x, start=start, step=(1,) * x.type.rank, shape=shape)
        parts.append(b.squeeze(part, axes=axes))
    return [reduce(lambda total, part: b.emit(op, (total, part))[0], parts)]
