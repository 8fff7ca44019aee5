"""The interface of a trace's ``Names`` that stand-ins, namespaces and classes use to read outside values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Protocol

from pullback.tracer.names.guards import Guard, Read
from pullback.tracer.names.places import Places


class Watcher(Protocol):
    """Detects changes of outside objects by the traced function."""

    def watch_outside(self, is_unchanged: Callable[[], bool], describe: str, wanted: str = "") -> None:
        """Refuse the trace if an outside object, called ``describe``, has changed at its end. ``wanted``: the name of a container
        that is traced once more then, as one that changes."""

    def watch_global_generators(self) -> None:
        """Refuse the trace if a global random generator has been drawn from at its end."""


class Reader(Protocol):
    """Returns the trace's replacements of outside values, and records the guards that they need.

    ``built``: the classes that the traced function created. ``replaced``: the attributes of objects that have other values in a
    region that is being traced, by the ids of the objects.
    """

    built: set[type]
    replaced: dict[int, Mapping[str, Any]]

    @property
    def builtins(self) -> Mapping[str, Any]:
        """Python's builtins with their replacements in the trace."""

    @property
    def places(self) -> Places:
        """The places outside to which the traced function stored."""

    def read_again(self, value: Any, describe: str) -> None:
        """Trace the function once more, with the content of a place, to which it stores, as an input if ``value`` is a number."""

    @property
    def effects(self) -> Watcher:
        """The watcher of outside objects."""

    def resolve(self, value: Any, read: Read, describe: str, guard: bool = True) -> Any:
        """Return the replacement of an outside value in the trace; record the guard or the input that it needs."""

    def input(self, value: Any, read: Read, describe: str) -> Any:
        """Return the input for a number or an array that is read at each call; a number decides no branches."""

    def replacement(self, value: Any, describe: str) -> Any:
        """Return the replacement of a library's object, a function, a class, a module or an object."""

    def follow(self, function: Any) -> Any:
        """Return a copy of a user's function, method, partial or callable object that resolves its names in the trace."""

    def follow_library(self, function: FunctionType) -> FunctionType:
        """Return a copy of a library's function that resolves its names in the trace."""

    def instance(self, value: Any) -> Any:
        """Return a stand-in for an object of a user's class."""

    def argument(self, value: Any) -> Any:
        """Return the replacement of a static argument."""

    def namespace(self, real: dict[str, Any]) -> Any:
        """Return what the functions with some globals have in their place in the trace."""

    def shadow(self, kind: type) -> Any:
        """Return the replacement of a class."""

    def owner(self, real: Any) -> Read:
        """Return a function that returns an outside object: in a call with another object in its place, that one."""

    def fixed(self, real: Any) -> Any:
        """Return an outside object, guarded to be this one if it is reached through an object of the call."""

    def class_of(self, real: Any) -> type:
        """Return the class of an outside value, and guard it."""

    def type_of(self, value: Any) -> type:
        """Return the type of the value for which a value of the trace stands."""

    def copied(self, value: Any, stand_in: Any) -> Any:
        """Record that ``stand_in`` is the trace's copy of a container, and return it."""

    def container(self, value: Any, read: Read, describe: str) -> Any:
        """Return the trace's copy of a container that was met before, or to which the function only adds; else None."""

    def add_container(self, value: Any, stand_in: Any, read: Read, describe: str) -> Any:
        """Make a copy one whose changes reach the container outside, and return it."""

    def is_copied(self, value: Any) -> bool:
        """Return whether a container has a copy in the trace."""

    def copied_inside(self, value: Any, describe: str) -> None:
        """Record that a container is copied as a part of another one, which ``describe`` names. Under another name, it makes the
        trace start anew, which reads the items of that one."""

    def is_stored(self, describe: str) -> bool:
        """Return whether an earlier trace showed that the function changes a container or stores to a place."""

    def guard(self, guard: Guard) -> None:
        """Record a guard."""

    def check(self, read: Read, expected: Any, describe: str, how: str = "value") -> None:
        """Record the guard that ``read()`` returns ``expected``."""

    def same(self, read: Read, describe: str, is_library: bool = False) -> None:
        """Record the guard that ``read()`` returns the same object as now."""

    def is_input(self, describe: str) -> bool:
        """Return whether a number is an input although rewrites look for its value."""

    def takes_columns(self, describe: str) -> bool:
        """Return whether a list may have its elements in arrays in this trace. Raises TraceError if it may in a later one."""

    def column(self, value: Any, read: Read, describe: str) -> Any:
        """Return the input for an array of the elements of a list, which ``read`` makes at each call."""

    def list_of_columns(self, kind: type, element: Any, columns: Sequence[Any], length: Any, capacity: int) -> Any:
        """Return a list of the trace, a deque if that is its ``kind``, whose elements, like ``element``, are rows of inputs."""

    def is_made(self, kind: type) -> bool:
        """Return whether the traced function created a class."""
