"""Guards: the outside values on which a trace depends, checked at each call.

A guard never raises: a read that fails counts as a failed guard, and the next trace reports the failure.
"""

from __future__ import annotations

import copy
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.shapes.symbolic_arrays import is_masked
from pullback.tracer.arrays.frame import digest
from pullback.tracer.arrays.tree import element_key, leaf_key, static_key

Read = Callable[[], Any]

STABILITY_TRIES = 4
"""Number of tries to read a guard twice with the same result before it counts as unstable."""
ABSENT = object()
"""The result of a guarded read of something absent."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Guard:
    """An outside value on which a trace depends: ``read()`` must still be ``expected``.

    ``how``: "identity"; "value" (same type and value); "container" (``container_key``); "plain" (``plain_key``); "type"
    (``leaf_key`` of an array or number); "state" (an equal dict, as of an object's attributes); "class" (of that class); "same"
    (the object that the read ``expected`` returns); "distinct" (a tuple of which no two are one object). ``is_library``: it
    reads from a library, whose names rarely change.
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

    def changed_names(self, is_stored: bool) -> list[str]:
        """Return the names of the number, of the container of numbers, and of the length, that differ from what is expected. The
        length of a list of ints, which may be extents, has a name if the function changes the list (``is_stored``)."""
        is_plain = self.how == "plain" or (self.how == "value" and type(self.expected) in (int, float))
        count = _length_in_key(self.how, self.expected)
        if not (is_plain or count is not None) or self.holds():
            return []
        names = [self.describe] if is_plain else []
        try:
            values = self.read()
            is_other_length = count is not None and len(values) != count
            is_other_length &= is_stored or not all(isinstance(x, int) for x in values)
        except Exception:
            is_other_length = False
        return [*names, length_name(self.describe)] if is_other_length else names

    def is_stable(self) -> bool:
        """Return whether two consecutive reads agree in one of ``STABILITY_TRIES`` tries; another thread may rebind the value
        in between."""
        if self.how not in ("identity", "value"):
            return True
        try:
            return any(replace(self, expected=self.read()).holds() for _ in range(STABILITY_TRIES))
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
            case "class":
                return type(value) is self.expected
            case "same":
                return value is self.expected()
            case "distinct":
                return len(set(map(id, value))) == len(value)
        return value is self.expected


def same_value(a: Any, b: Any) -> bool:
    """Return whether two values have the same type and are equal."""
    return type(a) is type(b) and bool(static_key(a) == static_key(b))


def are_absent(items: dict[str, Any], names: Set[str]) -> bool:
    """Return whether a dict has none of some names."""
    return items.keys().isdisjoint(names)


def item_of(read: Read, key: Any) -> Any:
    """Return an item of the container that ``read`` returns."""
    return read()[key]


def attribute_of(owner: weakref.ref[Any], name: str, last: Any) -> Any:
    """Return an attribute of a weakly referenced function; ``last``, its last value, if the function is deleted."""
    function = owner()
    return last if function is None else getattr(function, name)


def weakly(value: Any) -> Read:
    """Return a function that returns a value, by a weak reference if possible."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def attribute_through(owner: Read, name: str, *default: Any) -> Any:
    """Return an attribute of a weakly referenced object; a deleted object has none."""
    return getattr(owner(), name, *default)


def function_through(owner: Read, name: str) -> Any:
    """Return the function of a method of an object."""
    return getattr(owner(), name).__func__


def state_through(owner: Read) -> dict[str, Any]:
    """Return the ``state_key`` of a weakly referenced object."""
    return state_key(owner())


def length_name(describe: str) -> str:
    """Return what the length of a container is called."""
    return f"len({describe})"


def container_key(value: Any) -> Any:
    """Return the type and the length of a container; for a mapping, the type and the keys in order."""
    if isinstance(value, Mapping):
        keys = tuple(value)
        return type(value), keys if all(type(k) is str for k in keys) else static_key(keys)
    return type(value), len(value)


def _length_in_key(how: str, key: Any) -> int | None:
    """Return the length of the list or deque of a guard; None for another one."""
    if how not in ("container", "plain") or not isinstance(key, tuple) or key[0] not in (list, deque):
        return None
    return key[1] if how == "container" else len(key[2])


def set_key(value: Any) -> Any:
    """Return a key of the elements of a set."""
    return frozenset(map(element_key, value))


def plain_key(value: Any) -> Any:
    """Return a key of the contents of lists, tuples and dicts of numbers, strings and None; None for any other value."""
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
    keys_inside = tuple(map(plain_key, inside))
    return None if None in keys_inside else (kind, keys, keys_inside)


def float_count(value: Any) -> int:
    """Return the number of floats in a plain container; see ``plain_key``."""
    if isinstance(value, list | tuple | dict):
        return sum(map(float_count, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


_COMPARED = frozenset({bool, int, str, bytes, type(None)})
_PLAIN = _COMPARED | {float, complex}


def state_key(value: Any) -> dict[str, Any]:
    """Return the attributes of a library's object, small arrays and containers by their contents."""
    is_ours = str(type(value).__module__).partition(".")[0] == "pullback"
    return {k: _inside(v) for k, v in vars(value).items() if not (is_ours and k.startswith("_"))}


def _inside(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.size <= MAX_ITEMS:
        return contents(value)
    return copy.copy(value) if type(value) in (list, dict, set) and len(value) <= MAX_ITEMS else value


MAX_ITEMS = 256
"""Largest array or container, in items, that is compared by its contents."""


def contents(value: Any) -> Any:
    """Return a key of an array's contents."""
    if not isinstance(value, np.ndarray):
        return None
    if is_masked(value):
        masked: Any = value
        return contents(masked.data), contents(np.ma.getmaskarray(masked)), repr(masked.fill_value)
    items = tuple(map(static_key, value.flat)) if value.dtype.hasobject else digest(value)
    return type(value), value.dtype.str, value.shape, items
