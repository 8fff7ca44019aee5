"""Dead code elimination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from pullback.ir.core.structure import Block, Function, Instruction, with_contents, with_regions
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.passes.editing.activity import is_pure, needed_operands
from pullback.ir.passes.editing.loop_view import parts_of


def dce(function: Function) -> Function:
    """Remove instructions whose results are unused, and unused carried values, sequences, captures and results of loops and
    branches.

    Requires: a func; other kinds are returned unchanged. Keeps: results, the order of the remaining instructions, and every
    instruction that can fail or has an effect.
    """
    return replace(function, body=live(function.body)) if function.kind == "func" else function


def live(block: Block) -> Block:
    """Return a block without the instructions whose results are unused."""
    wanted: set[Value] = set(block.results)
    kept: list[Instruction] = []
    for instruction in reversed(block.instructions):
        if is_pure(instruction) and wanted.isdisjoint(instruction.results):
            continue
        if isinstance(instruction.op, Loop | Switch):
            instruction = trimmed(instruction, [v in wanted for v in instruction.results])
        wanted.update(instruction.operands)
        kept.append(with_regions(instruction, map(live, instruction.regions)))
    return with_contents(block, kept[::-1], block.results)


def trimmed(instruction: Instruction, wanted: Sequence[bool]) -> Instruction:
    """Return a loop or branch without the parts that only unused results (not ``wanted``) depend on."""
    read = needed_operands(instruction, wanted, smooth=False)
    if all(wanted) and all(read):
        return instruction
    params: dict[str, Any] = dict(instruction.params)
    inside, results = read[1:], list(wanted)
    outside = read
    if isinstance(instruction.op, Loop):
        loop = parts_of(instruction)
        carries, sequences, captures = loop.operands(read)
        _, rows = loop.results(wanted)
        inside = [True, *carries, *sequences, *captures]
        results = [*carries, *wanted[loop.carried : len(wanted) - len(rows)], *rows]
        if loop.condition is not None:
            results[loop.carried] = True
        params["carried"] = sum(carries)
        if "sliced" in params:
            params["sliced"] = sum(sequences)
    regions = []
    for region in instruction.regions:
        is_condition = isinstance(instruction.op, Loop) and region is not instruction.regions[-1]
        kept = region.results if is_condition else compress(region.results, _of_body(instruction, results))
        regions.append(replace(region, parameters=tuple(compress(region.parameters, inside)), results=tuple(kept)))
    return replace(
        instruction,
        operands=tuple(compress(instruction.operands, outside)),
        results=tuple(compress(instruction.results, results)),
        params=params,
        regions=tuple(regions),
    )


def _of_body(instruction: Instruction, results: Sequence[bool]) -> Sequence[bool]:
    """Select, from a list with an entry per result of an instruction, the entries of its body's results."""
    if not isinstance(instruction.op, Loop):
        return results
    carries, rows = parts_of(instruction).results(results)
    return [*carries, *rows]
