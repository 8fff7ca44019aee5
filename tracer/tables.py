"""The tables that say what NumPy's functions and methods do on traced arrays; ``pullback.tracer.functions`` fills them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function stands for these NumPy functions (with their signature) on traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = implementation
        return implementation

    return register


def register_method(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function, called with the array first, is these methods of traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            METHODS[name] = implementation
        return implementation

    return register
