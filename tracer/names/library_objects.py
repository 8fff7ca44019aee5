"""Objects of libraries that a trace reads from outside: they are unchanged, and their own libraries compute with them.

A trace depends on the contents of such an object, which a call compares with a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from pullback.tracer.arrays.tree import real_class
from pullback.tracer.names.guards import Read
from pullback.tracer.names.proxies import Refused
from pullback.tracer.names.reader import Reader
from pullback.tracer.user_code.array_libraries import class_title, library_of


def library_object(names: Reader, value: Any, read: Read, describe: str) -> Any:
    """Return an outside object whose library computes in its own way: the object itself or its stand-in, guarded by contents."""
    library = library_of(type(value))
    assert library is not None
    if library.refused:
        what = f"{describe}, a {class_title(type(value))} from outside, {library.refused}, which a traced function does not do"
        return Refused(f"{what}; compute it outside, as by {describe}{library.instead}, and read or pass the array")
    try:
        before, stand_in = Contents(value), library.stand_in(value)
    except Exception as error:
        what = f"{describe}, a {class_title(type(value))} from outside, cannot be looked at for changes ({error})"
        return Refused(f"{what}; read its array, as by np.asarray, or pass it")
    names.check(lambda: before.are_those_of(read()), True, describe)
    names.effects.watch_global_generators()
    names.effects.watch_outside(lambda: before.are_those_of(value) and before.are_those_of(stand_in), describe)
    return names.copied(value, stand_in)


class Contents:
    """A copy of the contents of a library's object."""

    def __init__(self, value: Any) -> None:
        self._kind = type(value)
        self._parts = [_copied(part) for part in parts_of(value)]

    def are_those_of(self, value: Any) -> bool:
        """Return whether an object has the same contents."""
        if real_class(type(value)) is not self._kind:
            return False
        parts = list(parts_of(value))
        return len(parts) == len(self._parts) and all(map(_equal, self._parts, parts))


def parts_of(value: Any) -> Iterable[Any]:
    """Return the arrays, labels and texts of which an object consists."""
    library = library_of(type(value))
    assert library is not None
    return [library.array(value)] if library.state is None else library.state(value)


def _copied(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return part.copy()
    return part.copy() if hasattr(part, "equals") else part


def _equal(a: Any, b: Any) -> bool:
    """Return whether two parts are equal; arrays are compared bit by bit."""
    if a is b and not isinstance(a, np.ndarray):
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype.hasobject:
            return all(x is y or (type(x) is type(y) and bool(x == y)) for x, y in zip(a.flat, b.flat))
        return bool(np.array_equal(_bits(a), _bits(b)))
    if hasattr(a, "equals"):
        return bool(a.equals(b)) and getattr(a, "dtype", None) == getattr(b, "dtype", None)
    return bool(a == b)


def _bits(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the bits of an array, as integers if there is a dtype of its item size, which compare fast."""
    dense = np.ascontiguousarray(x)
    return dense.view(f"u{dense.itemsize}" if dense.itemsize in (1, 2, 4, 8) else np.uint8)
