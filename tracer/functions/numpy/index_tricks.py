"""``np.r_``, ``np.c_``, ``np.mgrid`` and ``np.ogrid``, which create arrays by indexing, after
``numpy/lib/_index_tricks_impl.py``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, holds_traced, promote, static_ints
from pullback.tracer.arrays.masked import gathered
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError


class Concatenator:
    """The replacement for ``np.r_`` or ``np.c_``.

    ``join`` is NumPy's object, ``axis`` the axis to join along, ``ndmin`` the least rank, and ``first_axis`` where the axes of
    an array of smaller rank begin.
    """

    def __init__(self, join: Any, axis: int, ndmin: int, first_axis: int) -> None:
        self._join = join
        self._defaults = axis, ndmin, first_axis

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        key = gathered(key)
        items = list(key) if isinstance(key, tuple) else [key]
        if not any(map(_is_traced, items)):
            return self._join[key]
        axis, ndmin, first_axis = self._defaults
        if isinstance(items[0], str):
            axis, ndmin, first_axis = _directive(items.pop(0), self._defaults)
        arrays = promote(*(_ranged(item) if isinstance(item, slice) else as_traced(item) for item in items))
        return xp.concatenate([_with_rank(x, ndmin, first_axis) for x in arrays], axis=axis)


def _is_traced(item: Any) -> bool:
    parts = (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)
    return any(map(holds_traced, parts))


def _directive(text: str, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    """Return axis, least rank and first axis from a leading string such as "0", "0,2" or "0,2,-1"."""
    axis, ndmin, first_axis = defaults
    if text in ("r", "c"):
        raise TraceError(f"np.r_[{text!r}, ...] makes a matrix, which is not traced; use np.vstack or np.column_stack")
    try:
        numbers = [int(part) for part in text.split(",")[:3]]
    except ValueError as error:
        raise ValueError("unknown special directive") from error
    return (*numbers, *(axis, ndmin, first_axis)[len(numbers) :])  # type: ignore[return-value]


def _ranged(item: slice) -> TracedArray:
    start = 0 if item.start is None else item.start
    if isinstance(item.step, complex):
        return as_traced(xp.linspace(start, item.stop, num=int(abs(item.step))))
    return as_traced(xp.arange(start, item.stop, 1 if item.step is None else item.step))


def _with_rank(x: TracedArray, ndmin: int, first_axis: int) -> TracedArray:
    """Return ``x`` with at least ``ndmin`` axes: new axes go in front, or are placed so that the old ones begin at
    ``first_axis``."""
    missing = max(ndmin, 1) - x.ndim
    if missing <= 0:
        return x
    rank = x.ndim + missing
    first = missing if first_axis == -1 else first_axis + missing + 1 if first_axis < 0 else operator.index(first_axis)
    if not 0 <= first <= missing:
        raise ValueError("axes don't match array")
    return reshaped(x, (*(1,) * first, *x.shape, *(1,) * (rank - first - x.ndim)))


twin(np.r_)(Concatenator(np.r_, 0, 1, -1))
twin(np.c_)(Concatenator(np.c_, -1, 2, 0))


class Grid:
    """The replacement for ``np.mgrid`` and ``np.ogrid``, whose ranges must be static."""

    def __init__(self, name: str, grid: Any) -> None:
        self._name = name
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        key = static_ints(key)
        if any(map(_is_traced, key if isinstance(key, tuple) else (key,))):
            raise TraceError(f"np.{self._name} of a traced bound; write np.meshgrid of ranges, as of np.linspace(a, b, n)")
        return lifted(self._grid.__getitem__, key)


twin(np.mgrid)(Grid("mgrid", np.mgrid))
twin(np.ogrid)(Grid("ogrid", np.ogrid))
