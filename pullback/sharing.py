"""Arrays that share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

# How long the search for an element that two arrays share may take, before they are taken to share one.
MOST_WORK = 1000

Array = np.ndarray[Any, Any]


def share(a: Array, b: Array) -> bool:
    """Whether two arrays share an element, as far as that is found out soon."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(x: Array) -> bool:
    """Whether two elements may be one place in memory, as in a broadcast array or overlapping windows."""
    span = x.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape) if n > 1):
        if stride < span:
            return True
        span += stride * (n - 1)
    return False


def overlapping(arrays: Mapping[int, Array]) -> frozenset[int]:
    """Those between whose first and last byte another one has memory."""
    spans = sorted((*_bounds(a), k) for k, a in arrays.items() if a.size)
    found: set[int] = set()
    until, last = 0, -1
    for start, end, k in spans:
        if start < until:
            found.update((k, last))
        if end > until:
            until, last = end, k
    return frozenset(found)


def _bounds(a: Array) -> tuple[int, int]:
    if a.flags.c_contiguous:
        start: int = a.__array_interface__["data"][0]
        return start, start + a.nbytes
    return np.lib.array_utils.byte_bounds(a)
