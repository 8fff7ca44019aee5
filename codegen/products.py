"""products: matrix products spelled out in loops.

Requires: a lowered kernel. Keeps: its meaning. On the CPU a ``product`` becomes loops over blocks (``product_blocks``), for a GPU
plain ones over rows, columns and terms.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.processors import Target
from pullback.codegen.product_blocks import Blocks
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.product import ROWS, Product
from pullback.ir.structure import Block, Instruction, Value, copied
from pullback.ir.types import I64, scalar


def products(block: Block, target: Target | None = None, outermost: bool = True) -> Block:
    """A kernel's body without products: for a CPU, or for a GPU if there is no ``target``."""
    made: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Product) and target is not None:
            Blocks(Builder(i.loc, made), i, target, outermost).spell()
        elif isinstance(i.op, Product):
            _spell(Builder(i.loc, made), i)
        else:
            regions = tuple(products(r, target, False) for r in i.regions)
            made.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(made))


def _spell(b: Builder, i: Instruction) -> None:
    rows, columns, terms, *parts = i.operands
    left, right, each = i.regions
    row, column, term = (Value(scalar(I64), name) for name in "ijp")
    x, y = copied(left, (row, term)), copied(right, (term, column))
    zero = b.const(0.0, x.results[0].type.dtype)

    inner = Builder(i.loc, [*x.instructions, *y.instructions])
    terms_of = inner.block([term], [inner.mul(x.results[0], y.results[0])])
    around = Builder(i.loc)
    (total,) = around.emit(OPS["for"], (terms, zero), {"combine": ("add",)}, [terms_of])
    last = copied(each, (row, column, total))
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
