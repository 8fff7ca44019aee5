"""product_loops: matrix products spelled out in plain loops.

Requires: a lowered kernel. Keeps: its meaning. Every ``product`` becomes loops over rows and columns, each sum a loop over terms.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.product import Product
from pullback.ir.structure import Block, Instruction, Value, copied
from pullback.ir.types import I64, scalar


def product_loops(block: Block) -> Block:
    """A kernel's body without products."""
    made: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Product):
            _spell(Builder(i.loc, made), i)
        else:
            made.append(replace(i, regions=tuple(map(product_loops, i.regions))) if i.regions else i)
    return replace(block, instructions=tuple(made))


def _spell(b: Builder, i: Instruction) -> None:
    rows, columns, terms = i.operands
    left, right, each = i.regions
    row, column, term = (Value(scalar(I64), name) for name in "ijp")
    x, y = copied(left, (row, term)), copied(right, (term, column))
    zero = b.const(0.0, x.results[0].type.dtype)

    inner = Builder(i.loc, [*x.instructions, *y.instructions])
    terms_of = inner.block([term], [inner.mul(x.results[0], y.results[0])])
    around = Builder(i.loc)
    (total,) = around.emit(OPS["for"], (terms, zero), {"combine": ("add",)}, [terms_of])
    around.instructions.extend(copied(each, (row, column, total)).instructions)
    across = Builder(i.loc)
    across.emit(OPS["for"], (columns,), {}, [around.block([column], [])])
    b.emit(OPS["for"], (rows,), {}, [across.block([row], [])])
