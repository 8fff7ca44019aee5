"""expand_products: expand matrix products into plain loops.

Requires: a lowered kernel. Keeps: its meaning. Every ``product`` becomes loops over rows and columns, with a loop over K for
each sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copy_block
from pullback.ir.core.types import I64, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.matmul import ROWS, Product
from pullback.ir.passes.complex.arithmetic import mul


def expand_products(block: Block) -> Block:
    """Return a kernel's body without products."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Product):
            expand(Builder(i.loc, instructions), i)
        else:
            instructions.append(replace(i, regions=tuple(map(expand_products, i.regions))) if i.regions else i)
    return replace(block, instructions=tuple(instructions))


def expand(b: Builder, i: Instruction) -> None:
    """Append the loops of a ``product``. An epilogue that combines does so in blocks of rows."""
    rows, columns, depth, *parts = i.operands
    left, right, epilogue = i.regions
    row, column, k = (Value(scalar(I64), name) for name in "ijp")
    x, y = copy_block(left, (row, k)), copy_block(right, (k, column))
    zero = b.const(0.0, x.results[0].type.dtype)

    inner = Builder(i.loc, [*x.instructions, *y.instructions])
    products = multiply(inner, x.results, y.results)
    k_body = inner.block([k], products)
    around = Builder(i.loc)
    totals = around.emit(OPS["for"], (depth, *[zero] * len(products)), {"combine": ("add",) * len(products)}, [k_body])
    last = copy_block(epilogue, (row, column, *totals))
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
    block_count = b.raw_shr(b.add(rows, b.const(ROWS - 1, I64)), b.const(ROWS.bit_length() - 1, I64))
    b.emit(OPS["for"], (block_count,), {}, [blocks.block([block], [])])


def multiply(b: Builder, x: Sequence[Value], y: Sequence[Value]) -> Sequence[Value]:
    """Return the product of two numbers, given as one value each or as real and imaginary parts."""
    return [b.mul(*x, *y)] if len(x) == 1 else mul(b, (x[0], x[1]), (y[0], y[1]))
