"""Blocks computed one after another in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.distributed.blocks import rows_between
from pullback.distributed.plan import Plan
from pullback.ir.passes.rows.split import BlockPart, Part, RunBlocks, RunOuter, blocks_in_order


def outer_runner(plan: Plan) -> RunOuter:
    """Return how the parts of a plan without rows run: in this process."""

    def run(part: Part, arguments: list[Any]) -> Sequence[Any]:
        return plan.program(part)(0, arguments)

    return run


def block_runner(plan: Plan, bounds: Sequence[int]) -> RunBlocks:
    """Return how the parts of a plan run for the blocks between ``bounds``."""

    def run(part: BlockPart, arguments: list[Any], rows: int) -> Sequence[Any]:
        return plan.program(part)(rows, arguments)

    return blocks_in_order(plan.split, bounds, run, rows_between)
