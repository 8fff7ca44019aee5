"""Mark products whose operands may be rounded.

Requires: a func. Keeps: its meaning up to that rounding. The param ``tf32`` of a contraction of float32 allows its operands to
be rounded to 11 bits before they are multiplied, as tensor cores do. Its gradients are marked too.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import F32
from pullback.ir.ops.array.contract import Contract


def with_tf32(function: Function) -> Function:
    """Return the function with ``tf32`` set on each contraction of float32."""
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    return replace(block, instructions=tuple(map(_instruction, block.instructions)))


def _instruction(i: Instruction) -> Instruction:
    if isinstance(i.op, Contract) and i.result.type.dtype is F32:
        return replace(i, params={**i.params, "tf32": True})
    return replace(i, regions=tuple(map(_block, i.regions))) if i.regions else i
