"""The tables that say what NumPy's functions and methods do on traced arrays; ``pullback.tracer.functions`` fills them.

An implementation that has a parameter ``out`` need not look at it: the tables hold it with ``out=`` done, which stores the result
by the hook "store".
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Implementation = TypeVar("Implementation", bound=Callable[..., Any])

FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
HOOKS: dict[str, Callable[..., Any]] = {}
"""What modules that are imported early ask of later ones."""
CLASSES: dict[type, Any] = {}
"""What stands for NumPy's classes where arrays of static values are traced too."""


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function stands for these NumPy functions (with their signature) on traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = _with_out(implementation)
        return implementation

    return register


def register_method(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function, called with the array first, is these methods of traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            METHODS[name] = _with_out(implementation)
        return implementation

    return register


def hook(name: str) -> Callable[[Implementation], Implementation]:
    """Decorator: the function is this hook."""

    def register(implementation: Implementation) -> Implementation:
        HOOKS[name] = implementation
        return implementation

    return register


def _with_out(implementation: Callable[..., Any]) -> Callable[..., Any]:
    code = inspect.unwrap(implementation).__code__
    parameters = code.co_varnames[: code.co_argcount]
    if "out" not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        return implementation
    position = parameters.index("out") if "out" in parameters else sys.maxsize

    @functools.wraps(implementation)
    def called(*args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        if len(args) > position:
            out, args = args[position], (*args[:position], None, *args[position + 1 :])
        if out is None:
            return implementation(*args, **kwargs)
        return HOOKS["store"](implementation, out, args, kwargs)

    return called
