"""products: matrix products spelled out in loops.

Requires: a lowered kernel for the CPU. Keeps: its meaning. A ``product`` becomes loops over blocks (``product_blocks``);
a batch of products becomes loops over the blocks of all of them.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.processors import Target
from pullback.codegen.product_copies import spell_copy
from pullback.codegen.product_plain import spell, spell_batch
from pullback.ir.builder import Builder
from pullback.ir.ops.kernel import For
from pullback.ir.ops.product import Product
from pullback.ir.structure import Block, Instruction


def products(block: Block, target: Target) -> Block:
    """A kernel's body without products, the functions that it shares with others in front."""
    functions: dict[str, Instruction] = {}
    found = _products(block, target, functions, True)
    return replace(found, instructions=(*functions.values(), *found.instructions)) if functions else found


def _products(block: Block, target: Target, functions: dict[str, Instruction], outermost: bool) -> Block:
    """``outermost``: no loop is around it."""
    made: list[Instruction] = []
    copies = outermost and any(isinstance(i.op, Product) and i.params.get("lies") for i in block.instructions)
    for i in block.instructions:
        inside = i.regions[0].instructions if isinstance(i.op, For) and i.params.get("apart") else ()
        if copies and isinstance(i.op, For) and spell_copy(Builder(i.loc, made), i, functions):
            continue
        if isinstance(i.op, Product):
            spell(Builder(i.loc, made), i, target, functions, outermost)
        elif outermost and len(inside) == 1 and isinstance(inside[0].op, Product) and len(inside[0].operands) == 3:
            batch = (i.operands[0], i.regions[0].parameters[0])
            spell_batch(Builder(i.loc, made), inside[0], target, functions, batch)
        else:
            regions = tuple(_products(r, target, functions, False) for r in i.regions)
            made.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(made))

