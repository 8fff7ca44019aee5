"""Rewriting of the instructions of one op, in a function and in the regions of its instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from pullback.ir.core.op import Op
from pullback.ir.core.structure import Block, Function, Instruction, walk, with_contents, with_regions


def each_of_op(
    function: Function, kind: type[Op], rewritten: Callable[[Instruction], Iterable[Instruction]]
) -> Function:  # fmt: skip
    """Return a func with what ``rewritten`` returns in place of each instruction whose op is of a class; the regions of the
    instruction are rewritten before it. A function of another kind, and one without such instructions, is returned unchanged."""
    if function.kind != "func" or not any(isinstance(i.op, kind) for i in walk(function.body)):
        return function

    def block_of(block: Block) -> Block:
        instructions: list[Instruction] = []
        for i in block.instructions:
            whole = with_regions(i, map(block_of, i.regions))
            instructions += rewritten(whole) if isinstance(i.op, kind) else [whole]
        return with_contents(block, instructions, block.results)

    return replace(function, body=block_of(function.body))
