"""Where the rows of the arguments are cut: a function of their number and their bytes, or what the user says."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

BLOCK_BYTES = 16 * 2**20
"""The bytes of the rows of a block. A task of Dask costs about a millisecond; to read a block takes at least two, so that most of
the time is computation, and a gigabyte is 64 blocks, enough to keep as many workers busy."""

Blocks = int | Sequence[int] | None


def bounds_of(rows: int, row_bytes: int, blocks: Blocks) -> tuple[int, ...]:
    """Return the first row of each block, and the number of rows.

    ``blocks``: how many blocks of equal length there are, or the number of rows of each, which may be 0; None: as many as
    ``BLOCK_BYTES`` demand. Raises ValueError for numbers that do not fit, TypeError for other objects.
    """
    if blocks is None:
        blocks = max(1, min(rows, -(-rows * row_bytes // BLOCK_BYTES)))
    if not isinstance(blocks, Sequence | np.ndarray):
        count = operator.index(blocks)
        if count < 1:
            raise ValueError(f"blocks is at least 1, not {count}")
        return tuple(k * rows // count for k in range(count + 1))
    lengths = [operator.index(n) for n in blocks]
    if any(n < 0 for n in lengths):
        raise ValueError(f"the blocks have {lengths} rows: none is negative")
    if sum(lengths) != rows:
        raise ValueError(f"the blocks have {sum(lengths):,} rows, and the arguments {rows:,}")
    return tuple(np.cumsum([0, *lengths]).tolist())


def rows_between(x: Any, axis: int, start: int, stop: int) -> Any:
    """Return the rows of an array from ``start`` to ``stop``: a view."""
    return x[(slice(None),) * axis + (slice(start, stop),)]


def checked_blocks(blocks: Any) -> Blocks:
    """Return the argument ``blocks`` of ``pb.distribute``. Raises TypeError and ValueError as ``bounds_of``."""
    if blocks is None:
        return None
    is_sequence = isinstance(blocks, Sequence | np.ndarray) and not isinstance(blocks, str)
    if not is_sequence and not hasattr(blocks, "__index__"):
        raise TypeError(f"blocks is a number of blocks, or the rows of each, not {blocks!r}")
    if is_sequence:
        return tuple(operator.index(n) for n in blocks)
    bounds_of(1, 1, blocks)
    return operator.index(blocks)
