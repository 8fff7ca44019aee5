"""products: matrix products spelled out in loops.

Requires: a lowered kernel for the CPU. Keeps: its meaning. A ``product`` becomes loops over blocks (``product_blocks``);
a batch of products becomes loops over the blocks of all of them.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.cpu.loops.shared_functions import Functions, Told
from pullback.codegen.cpu.matmul.blocked import Blocks
from pullback.codegen.cpu.matmul.interleaved_batch import spell_lanes
from pullback.codegen.cpu.matmul.narrow import Narrow, may_be_narrow
from pullback.codegen.cpu.matmul.narrow_fused import Carried, lies_alone, may_be_carried
from pullback.codegen.cpu.matmul.narrow_left_operand import add_up
from pullback.codegen.cpu.matmul.shared_blocks import REFS, PlainBlocks, PlainNarrow, access
from pullback.codegen.cpu.matmul.split_k import Tall
from pullback.codegen.cpu.matmul.stored_epilogue import StoredBlocks, stored
from pullback.codegen.cpu.matmul.strided_operands import spell_copy
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import function_
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.kernel.matmul import Product


def products(block: Block, target: Target, told: Told | None = None) -> Block:
    """A kernel's body without products, the functions that it shares with others in front. ``told``: called with each of these as
    soon as it is known."""
    functions = Functions(told)
    found = _products(block, target, functions, True)
    return replace(found, instructions=(*functions.values(), *found.instructions)) if functions else found


def _spell(b: Builder, i: Instruction, target: Target, functions: Functions, outermost: bool) -> None:
    """Spell out a product. ``outermost``: no loop is around it, of which others would want to know what it writes."""
    plain = access(i)
    if plain is None or not outermost:
        Blocks(b, i, target, functions, outermost).spell()
        return
    tall = Tall(b, i, target, functions)
    rows, *others = i.operands
    i = replace(i, operands=(b.select(tall.found, b.const(0, I64), rows), *others))
    with functions.under(b, i.operands[0]):
        blocks = PlainBlocks(b, i, target, functions, outermost)  # first, so that its functions are compiled meanwhile
    tall.spell()
    with functions.under(b, i.operands[0]):
        blocks.spell()


def _spell_batch(b: Builder, i: Instruction, target: Target, functions: Functions, batch: tuple[Value, Value]) -> None:
    """Spell out a batch of products: how many, and the value that tells in the regions which."""
    count, which = batch
    plain, along = access(i), bool(i.params.get("left_row_sums"))
    is_plain = plain is not None and len(plain.rows) == len(REFS) and all(rows.index.count(which) < 2 for rows in plain.rows)
    if plain is not None and is_plain and not along:
        dtype = plain.out.ref.type.dtype
        memory = list(zip(plain.begins(b, which), plain.strides(b, which), strict=True))
        count = spell_lanes(b, dtype, functions, i.operands, count, memory)
    batch = count, which
    if not along and may_be_narrow(i) and all(map(lies_alone, i.regions[:2])):
        count = (PlainNarrow(b, i, target, batch, functions) if is_plain else Narrow(b, i, target, batch)).spell()
    elif may_be_carried(i):
        rest = Carried(b, i, target, batch).spell()
        if rest is None:
            return
        count = rest
    if along:
        add_up(b, i, (count, which))
    batch = count, which
    apart = None if along or plain is not None else stored(i)
    with functions.under(b, count):
        if apart is not None:
            StoredBlocks(b, apart, i, target, functions, batch).spell()
            return
        made = Blocks if plain is None else PlainBlocks
        made(b, i, target, functions, True, batch).spell()


def _products(block: Block, target: Target, functions: Functions, outermost: bool) -> Block:
    """``outermost``: no loop is around it."""
    made: list[Instruction] = []
    copies = outermost and any(isinstance(i.op, Product) and i.params.get("in_place") for i in block.instructions)
    for i in block.instructions:
        inside = i.regions[0].instructions if isinstance(i.op, For) and i.params.get("independent") else ()
        if copies and isinstance(i.op, For) and spell_copy(Builder(i.loc, made), i, functions):
            continue
        if isinstance(i.op, Product):
            _spell(Builder(i.loc, made), i, target, functions, outermost)
        elif outermost and len(inside) == 1 and isinstance(inside[0].op, Product) and len(inside[0].operands) == 3:
            batch = (i.operands[0], i.regions[0].parameters[0])
            _spell_batch(Builder(i.loc, made), inside[0], target, functions, batch)
        elif i.op is function_:
            made.append(i)
        else:
            regions = tuple(_products(r, target, functions, False) for r in i.regions)
            made.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(made))
