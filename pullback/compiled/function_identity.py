"""Store the transforms of a function by the function's identity.

They are stored in the function's own ``__dict__`` and die with it. Nothing there holds a reference to the function, so it and
its closure are freed at once when the user drops it. Callables without a dict are kept in a bounded table.
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
"""Number of callables without a dict whose transforms are kept."""

_lock = threading.RLock()
_others: OrderedDict[int, tuple[Any, Owned]] = OrderedDict()


class Owned:
    """The programs of one function, by transform. Copied or pickled with the function, it starts empty."""

    __slots__ = ("owner", "programs")

    def __init__(self, owner: Any = None) -> None:
        self.owner = None if owner is None else weakref.ref(owner)
        self.programs: dict[Any, Any] = {}

    def __reduce__(self) -> tuple[type[Owned], tuple[()]]:
        return Owned, ()

    def is_of(self, function: Any) -> bool:
        """Return whether this belongs to ``function`` itself: wrappers copy the dict of the function they wrap."""
        return self.owner is not None and self.owner() is function


def owned_by(function: Any) -> Owned:
    """Return the programs owned by a function."""
    if not isinstance(function, FunctionType | functools.partial):
        return _without_dict(function)
    owned = function.__dict__.get(OWNED)
    if owned is None or not owned.is_of(function):
        with _lock:
            owned = function.__dict__.get(OWNED)
            if owned is None or not owned.is_of(function):
                owned = function.__dict__[OWNED] = Owned(function)
    return owned


def _without_dict(function: Any) -> Owned:
    with _lock:
        _, owned = _others.setdefault(id(function), (function, Owned()))
        _others.move_to_end(id(function))
        while len(_others) > MOST_WITHOUT_DICT:
            _others.popitem(last=False)
    return owned
