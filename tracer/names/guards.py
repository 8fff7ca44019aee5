"""Guards: what a trace depends on outside, checked at each call.

A guard never raises: a read that fails does not hold, and the trace that follows meets what made it fail.
"""

from __future__ import annotations

import copy
import weakref
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.shapes.symbolic_arrays import is_masked
from pullback.tracer.arrays.frame import digest
from pullback.tracer.arrays.tree import leaf_key, static_key

Read = Callable[[], Any]

READS = 4
"""So many pairs of reads of a guard that is not stable give different objects."""
ABSENT = object()
"""What a guarded read gives where there is nothing."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Guard:
    """Something outside that the trace depends on: ``read()`` must still be ``expected``.

    ``how``: "identity"; "value" (same type and value); "container" (``container_key``); "plain" (``plain_key``); "type"
    (``leaf_key`` of an array or number); "state" (an equal dict, as of an object's attributes). ``is_library``: it is about a
    library, whose names rarely change.
    """

    read: Read
    expected: Any
    how: str
    describe: str
    is_library: bool = False

    def holds(self) -> bool:
        try:
            return self._holds(self.read())
        except Exception:
            return False

    def is_stable(self) -> bool:
        """Whether two reads in a row give the same, at one of a few tries: between two another thread may bind it anew."""
        if self.how not in ("identity", "value"):
            return True
        try:
            return any(replace(self, expected=self.read()).holds() for _ in range(READS))
        except Exception:
            return True

    def _holds(self, value: Any) -> bool:
        match self.how:
            case "value":
                return value is self.expected or same_value(value, self.expected)
            case "container":
                return bool(container_key(value) == self.expected)
            case "plain":
                return bool(plain_key(value) == self.expected)
            case "type":
                is_number = isinstance(value, float | int | np.generic | np.ndarray | Remote)
                return is_number and bool(leaf_key(value) == self.expected)
            case "state":
                return bool(value == self.expected)
        return value is self.expected


def same_value(a: Any, b: Any) -> bool:
    """Whether two values have one type and are equal."""
    return type(a) is type(b) and bool(static_key(a) == static_key(b))


def item_of(read: Read, key: Any) -> Any:
    """An item of what is read."""
    return read()[key]


def attribute_of(owner: weakref.ref[Any], name: str, last: Any) -> Any:
    """An attribute of a function that a trace must not keep alive; ``last`` is what a dead one had."""
    found = owner()
    return last if found is None else getattr(found, name)


def weakly(value: Any) -> Read:
    """What gives a value without keeping it alive, where that can be."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def attribute_through(owner: Read, name: str, *default: Any) -> Any:
    """An attribute of an object that a trace must not keep alive: one that is gone has none."""
    return getattr(owner(), name, *default)


def state_through(owner: Read) -> dict[str, Any]:
    """The ``state_key`` of such an object."""
    return state_key(owner())


def container_key(value: Any) -> Any:
    """What a trace depends on in a container besides its items: its type, its length and, for a mapping, its keys in order."""
    if isinstance(value, Mapping):
        keys = tuple(value)
        return type(value), keys if all(type(k) is str for k in keys) else static_key(keys)
    return type(value), len(value)


def plain_key(value: Any) -> Any:
    """What tells lists, tuples and dicts that hold nothing but numbers, strings and their like apart; None for any other."""
    kind = type(value)
    if kind not in (list, tuple, dict):
        return (kind, repr(value) if kind is float else value) if kind in _PLAIN else None
    inside = value.values() if kind is dict else value
    keys = tuple(map(static_key, value)) if kind is dict else ()
    types = tuple(map(type, inside))
    distinct = set(types)
    if distinct == {float}:
        return kind, keys, types, array("d", inside).tobytes()
    if distinct <= _COMPARED:
        return kind, keys, types, tuple(inside)
    found = tuple(map(plain_key, inside))
    return None if None in found else (kind, keys, found)


def float_count(value: Any) -> int:
    """How many floats are in a plain container; see ``plain_key``."""
    if isinstance(value, list | tuple | dict):
        return sum(map(float_count, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


_COMPARED = frozenset({bool, int, str, bytes, type(None)})
_PLAIN = _COMPARED | {float, complex}


def state_key(value: Any) -> dict[str, Any]:
    """What a trace depends on in an object of a library's: its attributes, small arrays and containers by what is inside."""
    is_ours = type(value).__module__.partition(".")[0] == "pullback"
    return {k: _inside(v) for k, v in vars(value).items() if not (is_ours and k.startswith("_"))}


def _inside(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.size <= MOST_ITEMS:
        return contents(value)
    return copy.copy(value) if type(value) in (list, dict, set) and len(value) <= MOST_ITEMS else value


MOST_ITEMS = 256
"""Arrays and containers of at most so many items are compared by them."""


def contents(value: Any) -> Any:
    """What a guard compares of an array that is used by its contents."""
    if not isinstance(value, np.ndarray):
        return None
    if is_masked(value):
        masked: Any = value
        return contents(masked.data), contents(np.ma.getmaskarray(masked)), repr(masked.fill_value)
    items = tuple(map(static_key, value.flat)) if value.dtype.hasobject else digest(value)
    return type(value), value.dtype.str, value.shape, items
