"""Memory layout of arrays, as far as NumPy's results depend on it: whether a reshape is a view or a copy.

Strides are counted in elements. The stride of an axis of extent 1 is arbitrary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import holds_value_size

Strides = tuple[int, ...]


def strides_in(x: np.ndarray[Any, Any]) -> Strides | None:
    """Return the strides of an array; None if they are not multiples of its element size."""
    size = x.itemsize
    return None if any(s % size for s in x.strides) else tuple(s // size for s in x.strides)


def row_major(shape: Sequence[int]) -> Strides:
    """Return the strides of a dense row-major array."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def is_row_major(shape: Sequence[int], strides: Strides) -> bool:
    """Return NumPy's ``c_contiguous``."""
    if 0 in shape:
        return True
    return all(n == 1 or s == t for n, s, t in zip(shape, strides, row_major(shape), strict=True))


def is_column_major(shape: Sequence[int], strides: Strides) -> bool:
    """Return NumPy's ``f_contiguous``."""
    return is_row_major(shape[::-1], strides[::-1])


def has_falling_strides(shape: Sequence[int], strides: Strides) -> bool:
    """Return whether strides do not increase from axis to axis, so that elementwise results are in row-major order."""
    if holds_value_size((*shape, *strides)):
        return is_row_major(shape, strides)
    steps = [abs(s) for n, s in zip(shape, strides, strict=True) if n != 1 and s]
    return all(a >= b for a, b in pairwise(steps))


def strides_of_reshape(shape: Sequence[int], strides: Strides, new: Sequence[int]) -> Strides | None:
    """Return the strides of a reshaped view in row-major order; None if NumPy has to copy.

    Follows NumPy's ``_attempt_nocopy_reshape``: groups of axes of equal extent are matched, and each group of the old axes
    must have one regular stride.
    """
    if math.prod(shape) == 0:
        return row_major(new)
    if holds_value_size((*shape, *new)):
        return row_major(new) if tuple(strides) == tuple(row_major(shape)) else None
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    new_strides: list[int] = []
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
        new_strides += reversed(steps)
    return tuple(new_strides)
