"""products: matrix products spelled out in loops.

Requires: a lowered kernel. Keeps: its meaning. On the CPU a ``product`` becomes loops over blocks (``product_blocks``), for a GPU
plain ones over rows, columns and terms.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.plain_products import spell
from pullback.codegen.processors import Target
from pullback.codegen.product_blocks import Blocks
from pullback.ir.builder import Builder
from pullback.ir.ops.product import Product
from pullback.ir.structure import Block, Instruction


def products(block: Block, target: Target | None = None, outermost: bool = True) -> Block:
    """A kernel's body without products: for a CPU, or for a GPU if there is no ``target``."""
    made: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Product) and target is not None:
            Blocks(Builder(i.loc, made), i, target, outermost).spell()
        elif isinstance(i.op, Product):
            spell(Builder(i.loc, made), i)
        else:
            regions = tuple(products(r, target, False) for r in i.regions)
            made.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(made))
