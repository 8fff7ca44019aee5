"""products: expand matrix products into loops.

Requires: a lowered kernel for the CPU. Keeps: its meaning. A ``product`` becomes loops over blocks (``blocked``) or one of the
special forms: split-K, few rows, narrow, narrow with fused neighbours. A loop of products becomes loops over the blocks of the
whole batch, or interleaved lanes.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.cpu.loops.shared_functions import Functions, OnDefinition
from pullback.codegen.cpu.matmul.blocked import BlockedMatmul
from pullback.codegen.cpu.matmul.interleaved_batch import expand_lanes
from pullback.codegen.cpu.matmul.narrow import Narrow, may_be_narrow
from pullback.codegen.cpu.matmul.narrow_fused import NarrowFused, is_only_loaded, may_be_narrow_fused
from pullback.codegen.cpu.matmul.narrow_left_operand import add_row_sums
from pullback.codegen.cpu.matmul.shared_blocks import REFS, PlainBlockedMatmul, PlainNarrow, access
from pullback.codegen.cpu.matmul.split_k import SplitK
from pullback.codegen.cpu.matmul.stored_epilogue import StoredEpilogueMatmul, plain_part
from pullback.codegen.cpu.matmul.strided_operands import expand_copy
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import function_
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.kernel.matmul import Product


def products(block: Block, target: Target, on_definition: OnDefinition | None = None) -> Block:
    """Return a kernel's body with products expanded, preceded by the shared functions that they call. ``on_definition`` is
    called with each such function as soon as it is defined."""
    functions = Functions(on_definition)
    expanded = _expand_block(block, target, functions, True)
    return replace(expanded, instructions=(*functions.values(), *expanded.instructions)) if functions else expanded


def _expand(b: Builder, i: Instruction, target: Target, functions: Functions, outermost: bool) -> None:
    """Expand one product. ``outermost``: no loop encloses it, so its loops may be divided among threads."""
    plain = access(i)
    if plain is None or not outermost:
        BlockedMatmul(b, i, target, functions, outermost).expand()
        return
    tall = SplitK(b, i, target, functions)
    rows, *others = i.operands
    i = replace(i, operands=(b.select(tall.applies, b.const(0, I64), rows), *others))
    with functions.under(b, i.operands[0]):
        blocks = PlainBlockedMatmul(b, i, target, functions, outermost)  # first, so that its functions are compiled meanwhile
    tall.expand()
    with functions.under(b, i.operands[0]):
        blocks.expand()


def _expand_batch(b: Builder, i: Instruction, target: Target, functions: Functions, batch: tuple[Value, Value]) -> None:
    """Expand a batch of products, given their count and the value that holds the product's index in the regions. Each form
    reports how many products it leaves for the next one."""
    count, product = batch
    plain, along = access(i), bool(i.params.get("left_row_sums"))
    is_plain = (
        plain is not None
        and len(plain.batch_rows) == len(REFS)
        and all(rows.index.count(product) < 2 for rows in plain.batch_rows)
    )
    if plain is not None and is_plain and not along:
        dtype = plain.out.ref.type.dtype
        memory = list(zip(plain.starts(b, product), plain.strides(b, product), strict=True))
        count = expand_lanes(b, dtype, functions, i.operands, count, memory)
    batch = count, product
    if not along and may_be_narrow(i) and all(map(is_only_loaded, i.regions[:2])):
        count = (PlainNarrow(b, i, target, batch, functions) if is_plain else Narrow(b, i, target, batch)).expand()
    elif may_be_narrow_fused(i):
        rest = NarrowFused(b, i, target, batch).expand()
        if rest is None:
            return
        count = rest
    if along:
        add_row_sums(b, i, (count, product))
    batch = count, product
    stored_plain = None if along or plain is not None else plain_part(i)
    with functions.under(b, count):
        if stored_plain is not None:
            StoredEpilogueMatmul(b, stored_plain, i, target, functions, batch).expand()
            return
        form = BlockedMatmul if plain is None else PlainBlockedMatmul
        form(b, i, target, functions, True, batch).expand()


def _expand_block(block: Block, target: Target, functions: Functions, outermost: bool) -> Block:
    """Expand the products of a block. ``outermost``: no loop encloses it."""
    instructions: list[Instruction] = []
    copies = outermost and any(isinstance(i.op, Product) and i.params.get("in_place") for i in block.instructions)
    for i in block.instructions:
        inside = i.regions[0].instructions if isinstance(i.op, For) and i.params.get("independent") else ()
        if copies and isinstance(i.op, For) and expand_copy(Builder(i.loc, instructions), i, functions):
            continue
        if isinstance(i.op, Product):
            _expand(Builder(i.loc, instructions), i, target, functions, outermost)
        elif outermost and len(inside) == 1 and isinstance(inside[0].op, Product) and len(inside[0].operands) == 3:
            batch = (i.operands[0], i.regions[0].parameters[0])
            _expand_batch(Builder(i.loc, instructions), inside[0], target, functions, batch)
        elif i.op is function_:
            instructions.append(i)
        else:
            regions = tuple(_expand_block(r, target, functions, False) for r in i.regions)
            instructions.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(instructions))
