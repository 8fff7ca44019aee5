"""Lists of numbers from outside as columns: arrays of their elements, which are read at each call."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.names.guards import Read

LEAST_CAPACITY = 16
"""Least number of elements for which a list of a length that changes has room: a trace serves all shorter lists."""
_PYTHON = {float: np.float64, int: np.int64, bool: np.bool_, complex: np.complex128}
"""The types of Python's numbers, with NumPy's in their column."""


@dataclass(frozen=True)
class Columns:
    """The types of the elements of a list or deque (``container``): numbers of one type, or tuples (``is_of_tuples``) of one
    length, whose numbers at each position are of one of the ``types``."""

    container: type
    types: tuple[type, ...]
    is_of_tuples: bool

    @property
    def is_of_ints(self) -> bool:
        """Whether all numbers are ints or bools."""
        return all(np.dtype(_PYTHON.get(kind, kind)).kind in "biu" for kind in self.types)

    def column(self, read: Read, k: int, capacity: int, is_exact: bool) -> np.ndarray[Any, Any]:
        """Return column ``k`` of the list that ``read`` returns, with zeros up to ``capacity`` rows. Raises ValueError for a list
        of other elements, or of more (``is_exact``: of another number)."""
        values = self.elements(read, capacity, is_exact)
        numbers: Any = [x[k] for x in values] if self.is_of_tuples else values
        kind = self.types[k]
        if set(map(type, numbers)) - {kind}:
            raise ValueError("other elements")
        dtype = np.dtype(_PYTHON.get(kind, kind))
        result = np.zeros(capacity, dtype)
        result[: len(values)] = np.fromiter(numbers, dtype, len(values))
        return result

    def length(self, read: Read, capacity: int, is_exact: bool) -> int:
        """Return the length of the list that ``read`` returns. Raises ValueError as ``column``."""
        return len(self.elements(read, capacity, is_exact))

    def elements(self, read: Read, capacity: int, is_exact: bool) -> Sequence[Any]:
        """Return what ``read`` returns. Raises ValueError for another container, or one of a length that ``column`` refuses."""
        values: Sequence[Any] = read()
        is_long = len(values) > capacity or (is_exact and len(values) != capacity)
        if type(values) is not self.container or is_long:
            raise ValueError("another list")
        if self.is_of_tuples and any(type(x) is not tuple or len(x) != len(self.types) for x in values):
            raise ValueError("other elements")
        return values


def columns_of(values: Any) -> Columns | None:
    """Return the columns of a list, or of a deque of any length, with elements; None if it has none, or holds others."""
    container = type(values)
    if container not in (list, deque) or getattr(values, "maxlen", None) is not None or not values:
        return None
    first = values[0]
    is_of_tuples = type(first) is tuple
    types = tuple(map(type, first)) if is_of_tuples else (type(first),)
    columns = Columns(container, types, is_of_tuples)
    if not types or not all(map(_is_number, types)):
        return None
    try:
        for k in range(len(types)):
            columns.column(lambda: values, k, len(values), True)
    except (ValueError, OverflowError):  # other elements, or an int that is too long
        return None
    return columns


def _is_number(kind: type) -> bool:
    return kind in _PYTHON or (issubclass(kind, np.generic) and np.dtype(kind).kind in "biufc" and np.dtype(kind).type is kind)


def doubling_capacity(count: int) -> int:
    """Return the number of elements for which a list of a length that changes has room: a power of two, so that a list that gets
    longer is traced anew only as often as its length doubles."""
    return max(LEAST_CAPACITY, 1 << (count - 1).bit_length())
