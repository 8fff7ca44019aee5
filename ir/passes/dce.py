"""Dead code elimination."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.structure import Block, Function, Instruction, Value, walk


def dce(function: Function) -> Function:
    """Remove the instructions whose results nothing reads.

    Requires: a func; other kinds are returned as they are.
    Keeps: results, the order of what stays, every instruction that can fail or has an effect.
    """
    return replace(function, body=live(function.body)) if function.kind == "func" else function


def is_pure(instruction: Instruction) -> bool:
    """Whether neither the instruction nor anything in its regions can fail or has an effect."""
    return instruction.op.effect == "pure" and all(
        inner.op.effect == "pure" for region in instruction.regions for inner in walk(region)
    )


def live(block: Block) -> Block:
    """A block without the instructions whose results nothing reads."""
    wanted: set[Value] = set(block.results)
    kept: list[Instruction] = []
    for instruction in reversed(block.instructions):
        if is_pure(instruction) and wanted.isdisjoint(instruction.results):
            continue
        wanted.update(instruction.operands)
        if instruction.regions:
            instruction = replace(instruction, regions=tuple(live(region) for region in instruction.regions))
        kept.append(instruction)
    return replace(block, instructions=tuple(reversed(kept)))
