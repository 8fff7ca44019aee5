"""Schedules: the selection of the kernel of a group.

A registry of the strategies for writing the kernel of a group, each with its requirements and its cost. The cheapest that fits
is used, the first among equals. A schedule added here is fuzzed like all others: tests choose at random among those that fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Schedule
from pullback.codegen.kernels.groups.batched_matmul import BATCH
from pullback.codegen.kernels.groups.joined import JOINED
from pullback.codegen.kernels.groups.matmul import PRODUCT
from pullback.codegen.kernels.groups.rows import FLAT, ROWS
from pullback.codegen.kernels.groups.scan import SCAN, SCAN_BLOCKS, SCAN_LOOPS
from pullback.codegen.kernels.groups.segment_sums import ORDERED_SUMS, ROW_SUMS
from pullback.codegen.kernels.groups.strided import STRIDED
from pullback.codegen.kernels.groups.symmetric_pairs import TRIANGLE
from pullback.codegen.kernels.groups.tiled_rows import TILED
from pullback.codegen.kernels.iteration_space import Space, collapse
from pullback.ir.core.structure import Instruction

SCHEDULES: tuple[Schedule, ...] = (
    *(STRIDED, JOINED, FLAT, ROWS, TILED, TRIANGLE, SCAN, SCAN_BLOCKS, SCAN_LOOPS, ROW_SUMS, ORDERED_SUMS),
    *(BATCH, PRODUCT),
)

Pick = Callable[[Space, Sequence[Schedule]], Schedule]


def fitting(space: Space, layouts: Sequence[str], target: str) -> list[Schedule]:
    """Return the schedules that a collapsed group can have on a target."""
    return [s for s in SCHEDULES if target in s.targets and s.fits(space, layouts) is None]


def cheapest(space: Space, choices: Sequence[Schedule]) -> Schedule:
    """Return the schedule of least cost."""
    return choices[0] if len(choices) == 1 else min(choices, key=lambda s: s.cost(space).time)


pick: Pick = cheapest
"""The rule that selects a schedule; tests replace it."""


def group_draft(group: Instruction, layouts: Sequence[str], over: Mapping[int, int], target: str) -> Draft:
    """Return the kernel of a group. ``layouts`` of its operands: "c", "strided", or "value" for scalars by value. ``over``:
    maps the position of each result that is written over an operand to the position of that operand; the kernel has one
    reference for both."""
    space = replace(collapse(group, layouts), nears=target == "cpu")
    return pick(space, fitting(space, layouts, target)).draft(space, layouts, over)
