"""What runs on the workers of a Dask cluster. Imports of Dask's scheduler, which loads these functions, stay light."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.distributed.programs import BlockProgram
from pullback.ir.passes.rows.combine import combined

Partials = tuple[Any, ...]
BlockResult = tuple[list[Partials], tuple[Any, ...]]
"""The partial results of each reduction, and the results that keep the rows."""


class RowBlock:
    """A block: its first row ``start``, the row ``stop`` after its last, and its ``rows`` of the bound arrays.

    Arrays that arrive in a message may begin at any byte. They are copied once, as the block is unpickled, since every call would
    copy them otherwise.
    """

    def __init__(self, start: int, stop: int, rows: Sequence[Any] = ()) -> None:
        self.start = start
        self.stop = stop
        self.rows = tuple(np.require(x, requirements="A") for x in rows)

    def __reduce__(self) -> Any:
        return RowBlock, (self.start, self.stop, self.rows)

    def __sizeof__(self) -> int:
        return sum(x.nbytes for x in self.rows)


class BlockTask:
    """A part of a plan, as the workers keep it. ``sources``: where each argument comes from ("first", "bound", "sent" or
    "value") and its position there; ``reductions``: the number of partial results of each reduction; ``values``: those of a call,
    if they are known."""

    def __init__(
        self, program: BlockProgram, sources: Sequence[tuple[str, int]], reductions: Sequence[int], values: Sequence[Any] = ()
    ) -> None:
        self.program = program
        self.sources = tuple(sources)
        self.reductions = tuple(reductions)
        self.values = tuple(values)

    def __reduce__(self) -> Any:
        return BlockTask, (self.program, self.sources, self.reductions, self.values)

    def of_values(self, values: Sequence[Any]) -> BlockTask:
        """Return the task with the values of a call."""
        return BlockTask(self.program, self.sources, self.reductions, values)

    def prepare(self, lengths: Sequence[int]) -> None:
        """Compile the program for blocks of these numbers of rows."""
        for rows in lengths:
            self.program.prepare(rows)

    def __call__(self, block: RowBlock, sent: Sequence[Any] = (), values: Sequence[Any] = ()) -> BlockResult:
        arrays = {"bound": block.rows, "sent": sent, "value": values or self.values}
        read: dict[str, Sequence[Any]] = arrays | {"first": (np.int64(block.start),)}
        results = self.program(block.stop - block.start, [read[origin][k] for origin, k in self.sources])
        ends = np.cumsum([0, *self.reductions]).tolist()
        return [tuple(results[a:b]) for a, b in itertools.pairwise(ends)], tuple(results[ends[-1] :])


def compute_block(
    block: RowBlock, sent: Sequence[Any] = (), *, task: BlockTask, values: Sequence[Any] = ()
) -> BlockResult:  # fmt: skip
    """Compute a part of a plan for one block."""
    return task(block, sent, values)


def compute_chunk(start: int, sent: Sequence[Any], axes: Sequence[int], task: BlockTask, values: Sequence[Any]) -> BlockResult:
    """Compute a part of a plan for a chunk of arrays, whose number of rows they show."""
    arrays = [np.asarray(x) for x in sent]
    rows = arrays[0].shape[axes[0]] if arrays else 0
    return task(RowBlock(start, start + rows), arrays, values)


def combine_blocks(parts: Sequence[BlockResult], names: Sequence[str]) -> BlockResult:
    """Return the reduced partial results of a run of blocks."""
    return combined(names, [partials for partials, _ in parts]), ()


def kept_result(result: BlockResult, position: int) -> Any:
    """Return a result of a block that keeps the rows."""
    return result[1][position]
