"""The partial results of a block as one message: their bytes, one array after another.

A message of bytes costs Dask, on each of its ways, less than a third of what a list of arrays costs. The layout, which is known
from the program, says what the bytes are.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.passes.rows.combine import MOST_STACKED, Partials, combined, combined_stacks
from pullback.ir.passes.rows.split import BlockPart

Layout = tuple[tuple[str, tuple[tuple[str, tuple[int, ...]], ...]], ...]
"""For each reduction the name of its combination, and the dtype and the shape of each of its partial results."""


def layout_of(part: BlockPart) -> Layout:
    """Return the layout of the partial results of a part."""
    types = iter([(v.type.dtype.numpy.str, tuple(map(int, v.type.shape))) for v in part.function.results[: count_of(part)]])
    return tuple((name, tuple(itertools.islice(types, count))) for name, count in part.reductions)


def count_of(part: BlockPart) -> int:
    """Return how many results of a part are partial results: the first ones."""
    return sum(count for _, count in part.reductions)


def bytes_of(layout: Layout) -> int:
    """Return the bytes of the partial results of a block."""
    return _record(layout).itemsize


def packed(partials: Sequence[Any]) -> bytes:
    """Return the bytes of the partial results of a block: arrays, one after another."""
    return b"".join([x.tobytes() for x in partials])


def unpacked(layout: Layout, blocks: Sequence[bytes]) -> list[Partials]:
    """Return the partial results of each reduction for a run of blocks, combined up the tree: new arrays."""
    record = _record(layout)
    names = [name for name, _ in layout]
    if len(blocks) * record.itemsize <= MOST_STACKED:
        return combined_stacks(names, _fields(layout, b"".join(blocks), len(blocks)))
    parts = [[tuple(x[0] for x in partials) for partials in _fields(layout, block, 1)] for block in blocks]
    return [tuple(np.array(x) for x in partials) for partials in combined(names, parts)]


def _fields(layout: Layout, data: bytes, count: int) -> list[Partials]:
    """Return views of bytes: for each reduction its partial results, with the blocks along the first axis."""
    rows = np.ndarray((count,), _record(layout), data)
    fields = iter(rows.dtype.names or ())
    return [tuple(rows[next(fields)] for _ in types) for _, types in layout]


@functools.lru_cache(maxsize=64)
def _record(layout: Layout) -> np.dtype[Any]:
    """Return the dtype of the partial results of one block."""
    types = [t for _, each in layout for t in each]
    return np.dtype([(f"f{k}", dtype, shape) for k, (dtype, shape) in enumerate(types)])
