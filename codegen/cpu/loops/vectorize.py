"""vectorize: mark the loops that become vector loops; the others run serially.

Requires: a body without products and functions that have no instruction. Keeps: its meaning. Innermost loops with independent
iterations, and scans, become vector loops. Loops that are marked already stay as they are.
"""

from __future__ import annotations

from pullback.codegen.analysis.independence import is_independent
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.ops.kernel.functions import Call, TableEntry
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.library.routines import Library


def vectorize(block: Block) -> Block:
    """Return a block whose loops are marked as vector or serial loops."""
    return _marked(block)[0]


def _marked(block: Block) -> tuple[Block, bool]:
    """Return a block whose loops are marked, and whether something in it prevents enclosing loops from being vectorised."""
    instructions, is_blocked = [], False
    for i in block.instructions:
        is_blocked = is_blocked or isinstance(i.op, Library | Call | TableEntry) or may_be_vector(i)
        if not i.regions:
            instructions.append(i)
            continue
        marked = [_marked(r) for r in i.regions]
        blocked = any(inside for _, inside in marked)
        is_blocked = is_blocked or blocked
        how = {"map": "vector" if may_be_vector(i) and not blocked else "serial"} if isinstance(i.op, For) else {}
        if "map" in i.params:
            how = {}
        regions = tuple(region for region, _ in marked)
        instructions.append(Instruction(i.op, i.operands, i.results, {**i.params, **how}, regions, i.loc))
    return Block(block.parameters, tuple(instructions), block.results), is_blocked


def may_be_vector(i: Instruction) -> bool:
    """Return whether the iterations of a loop can run in lanes: they are independent, or a scan."""
    return is_independent(i) or bool(i.params.get("scan"))
