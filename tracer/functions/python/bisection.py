"""The module bisect: positions in sorted lists and arrays, by a binary search of the program."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, emit, holds_traced, number_of_extent
from pullback.tracer.arrays.python_scalars import integer
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import Gathers, TracedArray, has_rows
from pullback.tracer.user_code.errors import TraceError


def _searching(real: Callable[..., Any], side: str) -> Callable[..., Any]:
    def search(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
        if key is not None or not (isinstance(a, Gathers) or has_rows(a) or holds_traced([a, x, lo, hi])):
            return real(a, x, lo, hi, key=key)
        values = _vector(a)
        length = values.shape[0]
        count = number_of_extent(length) if is_value_size(length) else length
        at = xp.searchsorted(values, x, side=side)
        if side == "left" and as_traced(x).dtype.kind == "f":
            at = xp.where(xp.isnan(x), 0, at)
        if not (type(lo) is int and lo == 0):
            emit("check", as_traced(lo >= 0), error="ValueError", message="lo must be non-negative")
        return integer(xp.maximum(at if hi is None else xp.minimum(at, xp.minimum(hi, count)), lo))

    return search


def _vector(a: Any) -> TracedArray:
    """Return the elements of a list or array, which are numbers, as an array."""
    if isinstance(a, Gathers):
        a = a.elements()
    values = a.array() if has_rows(a) else as_traced(a if isinstance(a, TracedArray | np.ndarray) else list(a))
    if values.ndim != 1:
        raise TraceError("bisect of a list of arrays or sequences on traced values; compare numbers")
    return values


def _inserting(real: Callable[..., Any], search: Callable[..., Any]) -> Callable[..., Any]:
    def insert(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
        if key is not None or not (has_rows(a) or holds_traced([a, x, lo, hi])):
            real(a, x, lo, hi, key=key)
        else:
            a.insert(search(a, x, lo, hi), x)

    return insert


for _side, _search, _insert in (
    ("left", bisect.bisect_left, bisect.insort_left),
    ("right", bisect.bisect_right, bisect.insort_right),
):
    _twin = _searching(_search, _side)
    twin(_search)(_twin)
    twin(_insert)(_inserting(_insert, _twin))
