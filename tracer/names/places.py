"""Places outside the traced function to which it stores: attributes, globals, and variables of outer functions.

A place is read from outside at most once, as an input or with a guard; from the first store on, the function reads what it
stored. Its last value is a result of the trace, and a call that succeeds stores it. A store that Python would refuse raises
Python's error in the trace, at its line, so that no store of a call fails.
"""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from pullback.tracer.arrays.frame import Frame, current
from pullback.tracer.names.guards import Read
from pullback.tracer.user_code.errors import TraceError, user_loc

AS_BEFORE = object()
"""The content of a place to which nothing was stored."""
DELETED = object()
"""The content of a place that was deleted."""


@dataclass(frozen=True, kw_only=True)
class PlaceKind:
    """A kind of places: ``write(owner, key, value)`` stores a value, ``delete(owner, key)`` removes the one that is there."""

    write: Callable[[Any, Any, Any], None]
    delete: Callable[[Any, Any], None]


def _write_attribute(owner: Any, name: str, value: Any) -> None:
    if type(owner).__setattr__ in _PLAIN_SETTERS:
        setattr(owner, name, value)
    else:
        object.__setattr__(owner, name, value)


def _delete_attribute(owner: Any, name: str) -> None:
    if type(owner).__delattr__ in _PLAIN_DELETERS:
        delattr(owner, name)
    else:
        object.__delattr__(owner, name)


_LIBRARY_CLASSES = (object, SimpleNamespace, Namespace, threading.local)
_PLAIN_SETTERS: tuple[Any, ...] = tuple(kind.__setattr__ for kind in _LIBRARY_CLASSES)
_PLAIN_DELETERS: tuple[Any, ...] = tuple(kind.__delattr__ for kind in _LIBRARY_CLASSES)

ATTRIBUTE = PlaceKind(write=_write_attribute, delete=_delete_attribute)
CLASS_ATTRIBUTE = PlaceKind(write=type.__setattr__, delete=type.__delattr__)
GLOBAL = PlaceKind(write=dict.__setitem__, delete=dict.__delitem__)
CELL = PlaceKind(
    write=lambda cell, key, value: setattr(cell, "cell_contents", value), delete=lambda cell, key: delattr(cell, "cell_contents")
)


class Place:
    """A place of a kind, ``key`` of what ``owner()`` returns. Like a cell, it has ``cell_contents``: what the function
    reads there.

    ``before`` returns what it reads there before it stores. It raises AttributeError, KeyError or ValueError if there is nothing.
    """

    def __init__(self, kind: PlaceKind, owner: Read, key: Any, describe: str, before: Read) -> None:
        self.kind, self.owner, self.key, self.describe, self._before = kind, owner, key, describe, before
        self.stored: Any = AS_BEFORE

    def was_there(self) -> bool:
        """Return whether there was something before the function."""
        try:
            self._before()
        except (AttributeError, KeyError, ValueError):
            return False
        return True

    @property
    def cell_contents(self) -> Any:
        stored = self.stored
        if stored is DELETED:
            raise ValueError("nothing is stored there")
        if stored is not AS_BEFORE:
            return stored
        try:
            return self._before()
        except (AttributeError, KeyError):
            raise ValueError("nothing is stored there") from None

    @cell_contents.setter
    def cell_contents(self, value: Any) -> None:
        self.stored = value

    @cell_contents.deleter
    def cell_contents(self) -> None:
        self.stored = DELETED


class VariablePlace(Place):
    """A place whose content is in a variable of the trace: ``get`` returns it, and ``set`` sets it."""

    def __init__(
        self, kind: PlaceKind, owner: Read, key: Any, describe: str, before: Read, get: Read, set: Callable[[Any], None]
    ) -> None:  # fmt: skip
        self._get, self._set = get, set
        stored = get()
        super().__init__(kind, owner, key, describe, before)
        set(stored)

    @property
    def stored(self) -> Any:
        return self._get()

    @stored.setter
    def stored(self, value: Any) -> None:
        self._set(value)


class Places:
    """The places to which a trace stored, in the order of the first stores. ``variables`` returns, at any time, the places among
    globals, variables of outer functions and attributes of functions to which something was stored: Python stores there without a
    call."""

    def __init__(self, root: Frame, variables: Callable[[], Iterator[tuple[Any, Callable[[], Place]]]]) -> None:
        self._root = root
        self._variables = variables
        self._places: dict[Any, Place] = {}

    def get(self, owner: Any, key: Any) -> Place | None:
        """Return the place of an owner, if something was stored there."""
        return self._places.get((id(owner), key))

    def of(self, owner: Any) -> bool:
        """Return whether something was stored to an attribute of an object."""
        return any(key[0] == id(owner) for key in self._places)

    def on(self, owner: Any) -> list[Place]:
        """Return the places that are attributes of an object."""
        return [target for key, target in self._places.items() if key[0] == id(owner)]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored."""
        return not self.all()

    def store(self, owner: Any, key: Any, value: Any, make: Callable[[], Place]) -> None:
        """Store a value in a place, DELETED if what is there is deleted. Raises TraceError where stores are refused."""
        self._refuse_here(make)
        if (id(owner), key) not in self._places:
            self._places[id(owner), key] = make()
        self._places[id(owner), key].stored = value

    def _refuse_here(self, make: Callable[[], Place]) -> None:
        frame = current()
        refusing = next((f for f in frame.outward if not f.takes_stores), None) if frame is not None else None
        if refusing is not None:
            raise refusal(make().describe, refusing)

    def all(self) -> list[Place]:
        """Return the places to which something was stored."""
        for key, make in self._variables():
            if key not in self._places:
                self._places[key] = make()
        return list(self._places.values())

    def changed(self) -> list[Place]:
        """Return the places that have other contents than before the function."""
        stored = [target for target in self.all() if target.stored is not AS_BEFORE]
        return [target for target in stored if target.stored is not DELETED or target.was_there()]

    def contents(self) -> Mapping[Place, Any]:
        """Return what is stored in each place."""
        return {target: target.stored for target in self.all()}

    def changed_since(self, contents: Mapping[Place, Any]) -> list[Place]:
        """Return the places that have other contents than at the time of ``contents``."""
        return [target for target in self.all() if target.stored is not contents.get(target, AS_BEFORE)]

    @contextmanager
    def within(self, frame: Frame) -> Iterator[None]:
        """Raise TraceError if a function that is traced in this context, in a region, stores to a variable although the region
        takes no stores."""
        before = self.contents()
        yield
        changed = [] if frame.takes_stores else self.changed_since(before)
        for target in changed:
            target.stored = before.get(target, AS_BEFORE)
        for target in changed:
            raise refusal(target.describe, frame)

    def clear(self) -> None:
        self._places.clear()


def refusal(describe: str, frame: Frame) -> TraceError:
    """Return the error for a store in a region that takes none."""
    what = frame.sealed.partition("; ")[0] or "a function that is traced once and runs any number of times"
    error = TraceError(f"{what} stores to {describe}; return the value, and store it after the call", user_loc())
    error.is_effect = True
    return error
