"""The operators that rewritten functions call, by the names that these load. No name in Python's syntax has a colon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PREFIX = "pullback:"
"""The first characters of an operator's name, and of the names of the functions that hold its blocks."""

OPERATORS: dict[str, Any] = {}
"""The operators by name; ``tracer/statements`` fills it."""

PROVIDERS: list[Callable[[], None]] = []
"""Functions that register operators, each called before an operator is used; a second call does nothing."""


def operator_called(name: str) -> Any:
    """Return the operator called ``name``; None if there is none."""
    if not name.startswith(PREFIX):
        return None
    for register in PROVIDERS:
        register()
    return OPERATORS.get(name)


def operator(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the operator called ``name``."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        OPERATORS[PREFIX + name] = function
        return function

    return register
