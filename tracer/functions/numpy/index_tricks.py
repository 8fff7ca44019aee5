"""``np.r_``, ``np.c_``, ``np.mgrid`` and ``np.ogrid``: what NumPy makes by indexing, as ``numpy/lib/_index_tricks_impl.py``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, holds_traced, promote, static_ints
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError


class Concatenator:
    """``join``: NumPy's object. ``axis`` to join along, least rank ``ndmin``, and the ``place`` of the axes of smaller arrays."""

    def __init__(self, join: Any, axis: int, ndmin: int, place: int) -> None:
        self._join = join
        self._defaults = axis, ndmin, place

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        items = list(key) if isinstance(key, tuple) else [key]
        if not any(map(_is_traced, items)):
            return self._join[key]
        axis, ndmin, place = self._defaults
        if isinstance(items[0], str):
            axis, ndmin, place = _directive(items.pop(0), self._defaults)
        found = promote(*(_ranged(item) if isinstance(item, slice) else as_traced(item) for item in items))
        return xp.concatenate([_raised(x, ndmin, place) for x in found], axis=axis)


def _is_traced(item: Any) -> bool:
    parts = (item.start, item.stop, item.step) if isinstance(item, slice) else (item,)
    return any(map(holds_traced, parts))


def _directive(text: str, defaults: tuple[int, int, int]) -> tuple[int, int, int]:
    """What a leading string such as "0", "0,2" or "0,2,-1" says."""
    axis, ndmin, place = defaults
    if text in ("r", "c"):
        raise TraceError(f"np.r_[{text!r}, ...] makes a matrix, which is not traced; use np.vstack or np.column_stack")
    try:
        numbers = [int(part) for part in text.split(",")[:3]]
    except ValueError as error:
        raise ValueError("unknown special directive") from error
    return (*numbers, *(axis, ndmin, place)[len(numbers) :])  # type: ignore[return-value]


def _ranged(item: slice) -> TracedArray:
    start = 0 if item.start is None else item.start
    if isinstance(item.step, complex):
        return as_traced(xp.linspace(start, item.stop, num=int(abs(item.step))))
    return as_traced(xp.arange(start, item.stop, 1 if item.step is None else item.step))


def _raised(x: TracedArray, ndmin: int, place: int) -> TracedArray:
    """With at least ``ndmin`` axes: new ones in front, or such that the old ones begin at ``place``."""
    missing = max(ndmin, 1) - x.ndim
    if missing <= 0:
        return x
    rank = x.ndim + missing
    first = missing if place == -1 else place + missing + 1 if place < 0 else operator.index(place)
    if not 0 <= first <= missing:
        raise ValueError("axes don't match array")
    return reshaped(x, (*(1,) * first, *x.shape, *(1,) * (rank - first - x.ndim)))


twin(np.r_)(Concatenator(np.r_, 0, 1, -1))
twin(np.c_)(Concatenator(np.c_, -1, 2, 0))


class Grid:
    """``np.mgrid`` and ``np.ogrid``, whose ranges are static."""

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
