"""products: matrix products spelled out in loops.

Requires: a lowered kernel for the CPU. Keeps: its meaning. A ``product`` becomes loops over blocks (``product_blocks``);
a batch of products becomes loops over the blocks of all of them.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.processors import Target
from pullback.codegen.product_blocks import Blocks
from pullback.codegen.product_carried import Carried, lies_alone, may_be_carried
from pullback.codegen.product_narrow import Narrow, may_be_narrow
from pullback.ir.builder import Builder
from pullback.ir.ops.kernel import For
from pullback.ir.ops.product import Product
from pullback.ir.structure import Block, Instruction, Value


def products(block: Block, target: Target, outermost: bool = True) -> Block:
    """A kernel's body without products. ``outermost``: no loop is around it."""
    made: list[Instruction] = []
    for i in block.instructions:
        inside = i.regions[0].instructions if isinstance(i.op, For) and i.params.get("apart") else ()
        if isinstance(i.op, Product):
            Blocks(Builder(i.loc, made), i, target, outermost).spell()
        elif outermost and len(inside) == 1 and isinstance(inside[0].op, Product) and len(inside[0].operands) == 3:
            _batch(Builder(i.loc, made), i.operands[0], i.regions[0].parameters[0], inside[0], target)
        else:
            regions = tuple(products(r, target, False) for r in i.regions)
            made.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(made))


def _batch(b: Builder, count: Value, which: Value, i: Instruction, target: Target) -> None:
    if may_be_narrow(i) and all(map(lies_alone, i.regions[:2])):
        count = Narrow(b, i, target, (count, which)).spell()
    elif may_be_carried(i):
        count = Carried(b, i, target, (count, which)).spell()
    Blocks(b, i, target, True, (count, which)).spell()
