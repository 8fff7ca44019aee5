"""Containers from outside: copies whose items are outside values, guarded by their contents or by their keys and length."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pullback.tracer.arrays.traced import UNREAD, Elements
from pullback.tracer.names.columns import columns_of, doubling_capacity
from pullback.tracer.names.guards import Guard, Read, container_key, float_count, item_of, length_name, plain_key, set_key
from pullback.tracer.names.reader import Reader
from pullback.tracer.user_code.errors import TraceError

# Largest list whose floats are inputs; the floats of longer lists are constants, guarded by their values.
MAX_FLOATS = 64


class OutsideElements(Elements):
    """The elements of a list from outside to which the function only adds."""

    __slots__ = ("_describe", "_names", "_read", "_seen", "_value")

    def __init__(self, names: Reader, value: list[Any], read: Read, describe: str) -> None:
        self._names, self._value, self._read, self._describe = names, value, read, describe
        self._seen: dict[Any, Any] = {}

    def element(self, index: int) -> Any:
        value = self._value
        if not -len(value) <= index < len(value) or not _is_input(value[index]):
            return UNREAD.refuse()
        if index not in self._seen:
            read = item(self._read, index)
            self._seen[index] = self._names.input(value[index], read, f"{self._describe}[{index}]")
        return self._seen[index]

    def length(self) -> Any:
        if None not in self._seen:
            read = functools.partial(_length_of, self._read)
            self._seen[None] = self._names.input(len(self._value), read, length_name(self._describe))
        return self._seen[None]

    def is_empty(self) -> bool:
        is_empty = not self._value
        self._names.check(functools.partial(_is_empty, self._read), is_empty, f"whether {self._describe} is empty")
        return is_empty


def _is_input(value: Any) -> bool:
    """Return whether an element of a list can be an input."""
    kind = type(value)
    is_short = kind is int and -(2**63) <= value < 2**63
    is_numeric = kind is np.ndarray or (isinstance(value, np.generic) and kind is value.dtype.type)
    return is_short or kind in (bool, float, complex) or (is_numeric and value.dtype.kind in "biufc")


def _length_of(read: Read) -> int:
    return len(read())


def _is_empty(read: Read) -> bool:
    return not read()


def container(names: Reader, value: Any, read: Read, describe: str, is_fixed: bool = False) -> Any:
    """Return the trace's copy of a list, tuple, dict or the like.

    Long containers of plain values have a single guard, and so have short ones without floats that have not changed before. The
    items of others are read one by one: of short ones, of those that the function changes, and of those that hold a container
    with another name. Of a list or dict to which the function only adds, none is read. Lists of numbers whose length changes, and
    long ones that change, are arrays.
    """
    if not is_fixed and (known := names.container(value, read, describe)) is not None:
        return known
    if not is_fixed and (columns := _in_columns(names, value, read, describe)) is not None:
        return columns
    try:
        key = plain_key(value)
    except RecursionError:
        raise TraceError(f"{describe}, which comes from outside, holds itself") from None
    is_short = 0 < float_count(value) <= MAX_FLOATS or (names.is_input(describe) and len(value) <= MAX_FLOATS)
    is_nested = not all(map(_is_plain, value.values() if isinstance(value, Mapping) else value))
    is_read = is_nested and (names.is_stored(describe) or any(map(names.is_copied, _inside(value))))
    if key is not None and not is_short and not is_read:
        names.check(read, key, describe, "plain")
        for inner in _inside(value) if is_nested else ():
            names.copied_inside(inner, describe)
        stand_in: Any = copy.deepcopy(value)
        if is_fixed or is_nested:
            names.effects.watch_outside(lambda: plain_key(stand_in) == key, describe, "" if is_fixed else describe)
        elif is_mutable(value):
            stand_in = names.add_container(value, stand_in, read, describe)
        return names.copied(value, stand_in)
    stand_in = _copied(names, value, read, describe)
    if not is_fixed and is_mutable(value):
        return names.copied(value, names.add_container(value, stand_in, read, describe))
    filled = copy.copy(stand_in)
    names.effects.watch_outside(lambda: same_items(stand_in, filled), describe)
    return names.copied(value, stand_in)


def _in_columns(names: Reader, value: Any, read: Read, describe: str) -> Any:
    """Return the trace's copy of a list of numbers whose length changes, or that is long and changes: a list with its elements in
    arrays, which are inputs. Return None for another value, for many ints, which may be extents, and where lists have no such
    arrays."""
    if type(value) not in (list, deque):
        return None
    is_varying = names.is_input(length_name(describe))
    if not is_varying and (len(value) <= MAX_FLOATS or not (names.is_stored(describe) or names.is_input(describe))):
        return None
    columns = columns_of(value)
    if columns is None or (columns.is_of_ints and not is_varying) or not names.takes_columns(describe):
        return None
    capacity = doubling_capacity(len(value)) if is_varying else len(value)
    length: Any = len(value)
    if is_varying:  # read before the elements, to which another thread may add
        length = names.input(length, functools.partial(columns.length, read, capacity, False), length_name(describe))
    inputs = []
    for k in range(len(columns.types)):
        column = functools.partial(columns.column, read, k, capacity, not is_varying)
        inputs.append(names.column(column(), column, f"{describe}[:][{k}]" if columns.is_of_tuples else describe))
    copy = names.list_of_columns(type(value), value[0], inputs, length, capacity)
    return names.copied(value, names.add_container(value, copy, read, describe))


def _copied(names: Reader, value: Any, read: Read, describe: str) -> Any:
    names.guard(Guard(read=read, expected=container_key(value), how="container", describe=describe))
    kind: Any = type(value)
    if isinstance(value, Mapping):
        pairs = [(k, names.resolve(v, item(read, k), f"{describe}[{k!r}]")) for k, v in value.items()]
        return defaultdict(value.default_factory, pairs) if isinstance(value, defaultdict) else kind(dict(pairs))
    items = [names.resolve(v, item(read, i), f"{describe}[{i}]") for i, v in enumerate(value)]
    if kind is deque:
        return deque(items, value.maxlen)
    return kind(items) if kind in (list, tuple) else tuple.__new__(names.shadow(kind), items)


def mutable(names: Reader, value: Any, read: Read, describe: str) -> Any:
    """Return the trace's copy of a set, or of mutable bytes or numbers, guarded by its contents."""
    inside: Any = set_key if isinstance(value, set) else tuple
    names.check(lambda: (type(read()), inside(read())), (type(value), inside(value)), describe)
    if isinstance(value, set):
        known = names.container(value, read, describe)
        if known is not None:
            return known
    stand_in = {names.argument(v) for v in value} if isinstance(value, set) else copy.copy(value)
    if isinstance(value, set) and all(map(_is_fixed, value)):
        return names.copied(value, names.add_container(value, stand_in, read, describe))
    filled = copy.copy(stand_in)
    names.effects.watch_outside(lambda: bool(stand_in == filled), describe)
    return names.copied(value, stand_in)


def _inside(value: Any) -> Iterator[Any]:
    """Yield the containers in a container of plain values."""
    for item in value.values() if isinstance(value, Mapping) else value:
        if isinstance(item, list | tuple | dict | set | deque):
            yield item
            yield from _inside(item)


def is_mutable(value: Any) -> bool:
    """Return whether a container can be changed."""
    return not isinstance(value, tuple)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, int | float | complex | str | bytes)


def _is_fixed(value: Any) -> bool:
    """Return whether an element of a set is a plain value or a scalar of NumPy, or a tuple of them."""
    return _is_plain(value) or isinstance(value, np.generic) or (type(value) is tuple and all(map(_is_fixed, value)))


def same_items(a: Any, b: Any) -> bool:
    """Return whether two containers hold the same objects under the same keys."""
    if len(a) != len(b) or (isinstance(a, Mapping) and list(a) != list(b)):
        return False
    pairs = zip(a.values(), b.values()) if isinstance(a, Mapping) else zip(a, b)
    return all(x is y for x, y in pairs)


def item(read: Read, key: Any) -> Read:
    """Return a read of an item of the container that ``read`` returns."""
    return functools.partial(item_of, read, key)
