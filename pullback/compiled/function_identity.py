"""What was made of a function, found again by the identity of that function.

It lies in the function's own ``__dict__`` and dies with it. Nothing there holds the function in turn, so that it and
all that its closure holds go at once when the user lets go of it. What has no dict of its own is among a bounded few.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import OrderedDict
from types import FunctionType
from typing import Any

from pullback.tracer import OWNED

MOST_WITHOUT_DICT = 256

_lock = threading.RLock()
_others: OrderedDict[int, tuple[Any, Owned]] = OrderedDict()


class Owned:
    """What was made of one function, by what was done to it. Copied or pickled with the function, it starts anew."""

    __slots__ = ("made", "owner")

    def __init__(self, owner: Any = None) -> None:
        self.owner = None if owner is None else weakref.ref(owner)
        self.made: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[type[Owned], tuple[()]]:
        return Owned, ()

    def is_of(self, function: Any) -> bool:
        """Whether this is the function's own: wrappers get the dict of what they wrap."""
        return self.owner is not None and self.owner() is function


def owned_by(function: Any) -> Owned:
    """What is owned by a function."""
    if not isinstance(function, FunctionType | functools.partial):
        return _without_dict(function)
    found = function.__dict__.get(OWNED)
    if found is None or not found.is_of(function):
        with _lock:
            found = function.__dict__.get(OWNED)
            if found is None or not found.is_of(function):
                found = function.__dict__[OWNED] = Owned(function)
    return found


def _without_dict(function: Any) -> Owned:
    with _lock:
        _, found = _others.setdefault(id(function), (function, Owned()))
        _others.move_to_end(id(function))
        while len(_others) > MOST_WITHOUT_DICT:
            _others.popitem(last=False)
    return found
