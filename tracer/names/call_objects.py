"""Objects of the user's plain classes among the arguments of a call: a trace reads them by attributes, through the call that is
being served, so that it serves other objects of the same classes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from pullback.tracer.names.guards import Read, attribute_through, item_of


class _Current(threading.local):
    """The objects of the call that this thread is serving."""

    objects: Sequence[Any] = ()


CURRENT = _Current()


def object_of_call(index: int, traced: Read) -> Any:
    """Return an object of the call that this thread is serving; while it serves none, that of the call that was ``traced``."""
    objects = CURRENT.objects
    return objects[index] if objects else traced()


def while_alive(value: Any) -> Read:
    """Return a function that returns an object while others keep it; it raises LookupError for one without weak references."""
    try:
        return weakref.ref(value)
    except TypeError:
        return _gone


def _gone() -> Any:
    raise LookupError("an object without weak references, outside of its call")


@contextmanager
def serving(objects: Sequence[Any]) -> Iterator[None]:
    """Make reads of objects of the call read these in this context."""
    before = CURRENT.objects
    CURRENT.objects = objects
    try:
        yield
    finally:
        CURRENT.objects = before


def is_of_call(read: Read) -> bool:
    """Return whether a read starts from an object of the call, and is made of attributes and items."""
    function: Any = read
    while isinstance(function, partial):
        if function.func is object_of_call:
            return True
        function = function.args[0] if function.func in _STEPS else None
    return False


_STEPS = (attribute_through, item_of)


def all_of(reads: Sequence[Read]) -> tuple[Any, ...]:
    """Return the results of reads."""
    return tuple([read() for read in reads])
