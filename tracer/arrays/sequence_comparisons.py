"""Comparisons of tuples and lists that hold traced numbers, which Python compares item by item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.concretize import decides
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import Listed, TracedArray, has_rows


def equality(a: Any, b: Any) -> Any:
    """Return ``a == b``: a traced bool where values decide it, also of tuples and lists."""
    parts = _parts(a, b)
    return a == b if parts is None else _is_equal(*parts)


def inequality(a: Any, b: Any) -> Any:
    """Return ``a != b``, as ``equality`` does."""
    parts = _parts(a, b)
    if parts is None:
        return a != b
    result = _is_equal(*parts)
    return _python_bool(np.logical_not(result)) if isinstance(result, TracedArray) else not result


def ordering(less: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the comparison ``less`` (<, <=, > or >=), also of tuples and lists with traced numbers."""

    def compare(a: Any, b: Any) -> Any:
        parts = _parts(a, b)
        return less(a, b) if parts is None else _is_before(*parts, less)

    return compare


def _parts(a: Any, b: Any) -> tuple[Sequence[Any], Sequence[Any]] | None:
    """Return the items of two tuples or of two lists of which values decide the comparison; None for other values."""
    for kind in (tuple, list):
        if isinstance(a, kind) and isinstance(b, kind):
            first, second = _items(a, kind), _items(b, kind)
            return (first, second) if first is not None and second is not None and _holds_undecided((first, second)) else None
    return None


def _items(x: Any, kind: Any) -> Sequence[Any] | None:
    """Return the items of a tuple or list that compares as Python's do, None if there is no fixed number of them."""
    if isinstance(x, Listed):
        return None if has_rows(x) and type(x.rows.length) is not int else x.entries()
    own: Any = type(x)
    return x if own.__eq__ is kind.__eq__ and own.__lt__ is kind.__lt__ else None


def _holds_undecided(items: Sequence[Any]) -> bool:
    """Return whether values decide the truth of a comparison of scalars, in tuples and lists."""
    for x in items:
        if isinstance(x, TracedArray) and not x.shape and not decides(x):
            return True
        if has_rows(x) or (isinstance(x, tuple | list) and _holds_undecided(x)):
            return True
    return False


def _is_equal(a: Sequence[Any], b: Sequence[Any]) -> Any:
    """Return whether items are equal, one by one."""
    if len(a) != len(b):
        return False
    result: Any = True
    for x, y in zip(a, b, strict=True):
        equal = x is y or equality(x, y)
        if isinstance(equal, TracedArray) and not equal.shape and not decides(equal):
            result = np.logical_and(result, equal)
        elif not equal:
            return False
    return _python_bool(result)


def _is_before(a: Sequence[Any], b: Sequence[Any], less: Callable[[Any, Any], Any]) -> Any:
    """Return whether items are in an order: that of the first two that are not equal, else that of their numbers."""
    result: Any = less(len(a), len(b))
    for x, y in reversed(list(zip(a, b, strict=False))):
        equal = x is y or equality(x, y)
        if isinstance(equal, TracedArray) and not equal.shape and not decides(equal):
            result = np.where(equal, result, ordering(less)(x, y))
        elif not equal:
            result = ordering(less)(x, y)
    return _python_bool(result)


def _python_bool(x: Any) -> Any:
    """Return a truth as one of Python's."""
    if not isinstance(x, TracedArray):
        return bool(x)
    result = as_traced(np.logical_and(x, True))
    result.weak = "bool"
    return result
