"""Detect arrays that share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote

# Work limit of NumPy's exact search for a shared element; beyond it two arrays count as sharing memory.
MOST_WORK = 1000

Array = np.ndarray[Any, Any]


def shares_memory(a: Any, b: Any) -> bool:
    """Return whether two arrays share an element, assumed if NumPy's search takes too long."""
    if isinstance(a, Remote) or isinstance(b, Remote):
        return isinstance(a, Remote) and isinstance(b, Remote) and a.device == b.device and _intersect(a.bounds(), b.bounds())
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps_itself(x: Array) -> bool:
    """Return whether two elements may have the same address, as in a broadcast array or overlapping windows."""
    span = x.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape) if n > 1):
        if stride < span:
            return True
        span += stride * (n - 1)
    return False


def _intersect(first: tuple[int, int], second: tuple[int, int]) -> bool:
    return first[0] < second[1] and second[0] < first[1]


def overlapping(arrays: Mapping[int, Any]) -> frozenset[int]:
    """Return the keys of arrays whose address ranges, first to last byte, intersect those of another; device and host
    addresses are compared alike."""
    spans = sorted((*_bounds(a), k) for k, a in arrays.items() if a.size)
    overlaps: set[int] = set()
    until, last = 0, -1
    for start, end, k in spans:
        if start < until:
            overlaps.update((k, last))
        if end > until:
            until, last = end, k
    return frozenset(overlaps)


def _bounds(a: Any) -> tuple[int, int]:
    if isinstance(a, Remote):
        return a.bounds()
    if a.flags.c_contiguous:
        start: int = a.__array_interface__["data"][0]
        return start, start + a.nbytes
    return np.lib.array_utils.byte_bounds(a)
