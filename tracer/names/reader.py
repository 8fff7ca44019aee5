"""The part of a trace's ``Names`` that stand-ins, namespaces and classes read what is outside through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Protocol

from pullback.tracer.names.guards import Guard, Read


class Watcher(Protocol):
    """What looks after things outside that the traced function must not change."""

    def watch_outside(self, is_unchanged: Callable[[], bool], describe: str) -> None:
        """Refuse the trace if something from outside, called ``describe``, has changed at its end."""

    def watch_global_generators(self) -> None:
        """Refuse the trace if a global random generator has been drawn from at its end."""


class Reader(Protocol):
    """What gives the trace's stand-ins for values outside, and records the guards that they need.

    ``made``: the classes that the traced function made.
    """

    made: set[type]

    @property
    def builtins(self) -> Mapping[str, Any]:
        """Python's builtins as the trace has them."""

    @property
    def effects(self) -> Watcher:
        """What looks after things outside."""

    def resolve(self, value: Any, read: Read, describe: str, guard: bool = True) -> Any:
        """Return what stands for an outside value in the trace; record the guard or the input that it needs."""

    def replacement(self, value: Any, describe: str) -> Any:
        """Return what stands for a library's object, a function, a class, a module or an object."""

    def follow(self, function: Any) -> Any:
        """Return a copy of a user's function, method, partial or callable object that resolves its names in the trace."""

    def follow_library(self, function: FunctionType) -> FunctionType:
        """Return a copy of a library's function that resolves its names in the trace."""

    def instance(self, value: Any) -> Any:
        """Return a stand-in for an object of a user's class."""

    def argument(self, value: Any) -> Any:
        """Return what stands for a static argument."""

    def shadow(self, kind: type) -> Any:
        """Return what stands for a class."""

    def class_of(self, real: Any) -> type:
        """Return the class of an outside value, and guard it."""

    def type_of(self, value: Any) -> type:
        """Return the type of what a value of the trace stands for."""

    def copied(self, value: Any, made: Any) -> Any:
        """Record that ``made`` is the trace's copy of a container, and return it."""

    def guard(self, guard: Guard) -> None:
        """Record a guard."""

    def check(self, read: Read, expected: Any, describe: str, how: str = "value") -> None:
        """Record the guard that ``read()`` gives what is expected."""

    def same(self, read: Read, describe: str, is_library: bool = False) -> None:
        """Record the guard that ``read()`` gives the object that it gives now."""

    def is_input(self, describe: str) -> bool:
        """Return whether a number is an input though rewrites look for its value."""

    def is_made(self, kind: type) -> bool:
        """Return whether the traced function made a class."""
