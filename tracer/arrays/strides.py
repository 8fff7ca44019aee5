"""Where the elements of an array lie in memory, as far as NumPy's meaning depends on it: whether a reshape is a view or a copy.

Strides are counted in elements. Axes of extent 1 have any.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

Strides = tuple[int, ...]


def strides_in(x: np.ndarray[Any, Any]) -> Strides | None:
    """The strides of an array; None if they are no multiples of its elements' size."""
    size = x.itemsize
    return None if any(s % size for s in x.strides) else tuple(s // size for s in x.strides)


def row_major(shape: Sequence[int]) -> Strides:
    """The strides of a dense array in row-major order."""
    found, step = [], 1
    for n in reversed(shape):
        found.append(step)
        step *= n
    return tuple(reversed(found))


def is_row_major(shape: Sequence[int], strides: Strides) -> bool:
    """NumPy's ``c_contiguous``."""
    if 0 in shape:
        return True
    return all(n == 1 or s == t for n, s, t in zip(shape, strides, row_major(shape), strict=True))


def is_column_major(shape: Sequence[int], strides: Strides) -> bool:
    """NumPy's ``f_contiguous``."""
    return is_row_major(shape[::-1], strides[::-1])


def falls(shape: Sequence[int], strides: Strides) -> bool:
    """Whether no axis is walked in larger steps than one before it: elementwise results are then in row-major order."""
    steps = [abs(s) for n, s in zip(shape, strides, strict=True) if n != 1 and s]
    return all(a >= b for a, b in pairwise(steps))


def of_reshaped(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """The strides of a view of the elements in row-major order under another shape; None if NumPy has to copy.

    The rule of NumPy's ``_attempt_nocopy_reshape``: groups of axes of equal extent are matched, and each group of the old axes
    must be one regular walk.
    """
    if math.prod(shape) == 0:
        return row_major(new)
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    found: list[int] = []
    i = j = 0
    while j < len(new):
        start, first = j, i
        count, size = new[j], 1
        j += 1
        while size != count:
            if size < count:
                size *= old[i][0]
                i += 1
            else:
                count *= new[j]
                j += 1
        group = old[first:i]
        if any(a[1] != b[1] * b[0] for a, b in pairwise(group)):
            return None
        step = group[-1][1] if group else 1
        steps = []
        for n in reversed(new[start:j]):
            steps.append(step)
            step *= n
        found += reversed(steps)
    return tuple(found)
