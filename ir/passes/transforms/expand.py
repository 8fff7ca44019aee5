"""Expand every ``gradient``, ``jvp`` and ``vmap`` instruction into ordinary instructions, innermost first.

Requires: a func. Keeps: all other instructions, in order. Transforms nest in any order and to any depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.regions import Gradient, Jvp, Transform, Vmap
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.loops.final_elements import mark_final, without_marks
from pullback.ir.passes.simplify.simplify import simplify
from pullback.ir.passes.transforms import batch_loops as batch_loops
from pullback.ir.passes.transforms import forward_loops as forward_loops
from pullback.ir.passes.transforms import reverse_loops as reverse_loops
from pullback.ir.passes.transforms import reverse_switch as reverse_switch
from pullback.ir.passes.transforms.batch import NoBatch, batch
from pullback.ir.passes.transforms.forward import emit_jvp
from pullback.ir.passes.transforms.reverse import GradientError, differentiate

__all__ = ["GradientError", "expand", "grad"]


Keeps = Callable[[Instruction], bool]
"""Returns whether a transform stays."""


def grad(function: Function, keeps: Keeps | None = None) -> Function:
    """Return the function with its transforms expanded, except instructions of its own for which ``keeps`` holds. Raises
    GradientError where a rule is missing."""
    if not any(isinstance(i.op, Transform) for i in walk(function.body)):
        return function
    return Function(function.name, without_marks(expand(function.body, keeps)), function.kind)


def expand(block: Block, keeps: Keeps | None = None) -> Block:
    """Return a block with its transforms expanded, in regions too. ``keeps``: see ``grad``."""
    if not any(isinstance(i.op, Transform) for i in walk(block)):
        return block
    builder = Builder()
    renamed: dict[Value, Value] = {}
    for instruction in block.instructions:
        operands = tuple(renamed.get(v, v) for v in instruction.operands)
        if keeps is not None and keeps(instruction):
            results = list(replay(builder, instruction, operands))
        elif isinstance(instruction.op, Transform):
            results = _expand(builder, instruction, operands)
        else:
            regions = tuple(map(expand, instruction.regions))
            results = list(replay(builder, replace(instruction, regions=regions), operands))
        renamed.update(zip(instruction.results, results, strict=True))
    return builder.block(block.parameters, [renamed.get(v, v) for v in block.results])


def expanded_region(instruction: Instruction) -> Block:
    """Return the region of a transform with the transforms inside it expanded, to be differentiated or batched itself. A batched
    branch selects between arrays; simplified, it may be an update of few elements."""
    region = expand(instruction.regions[0])
    if not isinstance(instruction.op, Gradient) or not any(isinstance(i.op, Vmap) for i in walk(instruction.regions[0])):
        return region
    return live(simplify(Function("region", region)).body)


def _expand(builder: Builder, instruction: Instruction, operands: tuple[Value, ...]) -> list[Value]:
    region, params, loc = expanded_region(instruction), instruction.params, instruction.loc
    if isinstance(instruction.op, Gradient):
        region = mark_final(region)
    match instruction.op:
        case Gradient() if "results" in params:
            seeds = [operands[k] for k in params["seeds"]]
            return differentiate(builder, region, operands, params["wrt"], loc, params["results"], seeds)
        case Gradient():
            return differentiate(builder, region, operands, params["wrt"], loc)
        case Jvp():
            return emit_jvp(builder, region, operands, params["wrt"], params["tangents"], params["results"], loc)
        case Vmap():
            try:
                return batch(builder, region, operands, params["batched"], params["fixed"])
            except NoBatch as error:
                raise GradientError(str(error), error.loc) from None
    raise TypeError(f"{instruction.op.name} has no expansion")
