"""Remove the operands of checks that only a message shows.

    check %t, %r {error="ValueError", message="r = {r:.3f}", raises=0}
        ->
    check %t {error="ValueError", message="r = {r:.3f}"}

Compiled code reports which check failed; where a message shows values, the interpreter runs the trace to find them.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.ops.control.regions import check
from pullback.ir.passes.editing.dce import dce


def strip_values(function: Function) -> Function:
    """Return a function whose checks read their condition alone, without the instructions that computed what messages show.

    Requires: a func. Keeps: everything else. Cost: linear; a function without such checks is returned unchanged.
    """
    if not any(i.op is check and "raises" in i.params for i in walk(function.body)):
        return function
    return dce(replace(function, body=_stripped(function.body)))


def _stripped(block: Block) -> Block:
    return replace(block, instructions=tuple(map(_instruction, block.instructions)))


def _instruction(i: Instruction) -> Instruction:
    if i.op is check:
        return replace(i, operands=i.operands[:1], params={k: v for k, v in i.params.items() if k != "raises"})
    return replace(i, regions=tuple(map(_stripped, i.regions))) if i.regions else i
