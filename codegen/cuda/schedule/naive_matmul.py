"""plain_products: matrix products spelled out in plain loops.

Requires: a lowered kernel. Keeps: its meaning. Every ``product`` becomes loops over rows and columns, each sum a loop over terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copied
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.matmul import ROWS, Product
from pullback.ir.passes.complex.arithmetic import mul


def plain_products(block: Block) -> Block:
    """A kernel's body without products."""
    made: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Product):
            spell(Builder(i.loc, made), i)
        else:
            made.append(replace(i, regions=tuple(map(plain_products, i.regions))) if i.regions else i)
    return replace(block, instructions=tuple(made))


def spell(b: Builder, i: Instruction) -> None:
    """Append the loops of a ``product``. What it combines it combines in blocks of rows."""
    rows, columns, terms, *parts = i.operands
    left, right, each = i.regions
    row, column, term = (Value(scalar(I64), name) for name in "ijp")
    x, y = copied(left, (row, term)), copied(right, (term, column))
    zero = b.const(0.0, x.results[0].type.dtype)

    inner = Builder(i.loc, [*x.instructions, *y.instructions])
    found = multiplied(inner, x.results, y.results)
    terms_of = inner.block([term], found)
    around = Builder(i.loc)
    totals = around.emit(OPS["for"], (terms, *[zero] * len(found)), {"combine": ("add",) * len(found)}, [terms_of])
    last = copied(each, (row, column, *totals))
    around.instructions.extend(last.instructions)
    if not parts:
        across = Builder(i.loc)
        across.emit(OPS["for"], (columns,), {}, [around.block([column], [])])
        b.emit(OPS["for"], (rows,), {}, [across.block([row], [])])
        return

    count = b.const(ROWS, I64)
    block, nth = Value(scalar(I64), "b"), Value(scalar(I64), "r")
    for part, value, name in zip(parts, last.results, i.params["combine"], strict=True):
        joined = around.emit(OPS[name], (around.load(part, block, column), value))[0]
        around.store(joined, part, block, column)
    down, blocks = Builder(i.loc), Builder(i.loc)
    first = blocks.mul(block, count)
    down.append(Instruction(OPS["add"], (first, nth), (row,), {}, (), i.loc))
    down.emit(OPS["for"], (columns,), {}, [around.block([column], [])])
    some = blocks.minimum(blocks.sub(rows, first), count)
    blocks.emit(OPS["for"], (some,), {"ordered": True}, [down.block([nth], [])])
    number = b.raw_shr(b.add(rows, b.const(ROWS - 1, I64)), b.const(ROWS.bit_length() - 1, I64))
    b.emit(OPS["for"], (number,), {}, [blocks.block([block], [])])


def multiplied(b: Builder, x: Sequence[Value], y: Sequence[Value]) -> Sequence[Value]:
    """The product of two numbers, of complex ones part by part."""
    return [b.mul(*x, *y)] if len(x) == 1 else mul(b, (x[0], x[1]), (y[0], y[1]))
