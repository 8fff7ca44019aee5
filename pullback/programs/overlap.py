"""Arrays that share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote

# How long the search for an element that two arrays share may take, before they are taken to share one.
MOST_WORK = 1000

Array = np.ndarray[Any, Any]


def share(a: Any, b: Any) -> bool:
    """Whether two arrays share an element, as far as that is found out soon."""
    if isinstance(a, Remote) or isinstance(b, Remote):
        return isinstance(a, Remote) and isinstance(b, Remote) and a.device == b.device and _cross(a.bounds(), b.bounds())
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


def _cross(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def overlapping(arrays: Mapping[int, Any]) -> frozenset[int]:
    """Those between whose first and last byte another one has memory, or seems to: addresses on devices are as those here."""
    spans = sorted((*_bounds(a), k) for k, a in arrays.items() if a.size)
    found: set[int] = set()
    until, last = 0, -1
    for start, end, k in spans:
        if start < until:
            found.update((k, last))
        if end > until:
            until, last = end, k
    return frozenset(found)


def _bounds(a: Any) -> tuple[int, int]:
    if isinstance(a, Remote):
        return a.bounds()
    if a.flags.c_contiguous:
        start: int = a.__array_interface__["data"][0]
        return start, start + a.nbytes
    return np.lib.array_utils.byte_bounds(a)
