"""The tables of implementations of NumPy's functions and methods on traced arrays, filled by ``pullback.tracer.functions``.

An implementation with a parameter ``out`` can ignore it: the tables hold a wrapper that stores the result by the hook "store".
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
"""Functions that modules imported early call and later ones define."""
CLASSES: dict[type, Any] = {}
"""Replacements of NumPy's classes where arrays of static values are traced too."""


def implements(*functions: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that implements these NumPy functions (with their signature) on traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = _with_numpys_errors(function, _with_out(implementation))
        return implementation

    return register


def register_method(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that, called with the array first, implements these methods of traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            called = _with_out(implementation)
            METHODS[name] = called if name.startswith("_") else _with_numpys_errors(_method(name), called)
        return implementation

    return register


def _method(name: str) -> Callable[..., Any]:
    """Return a function that calls the method of that name of NumPy's arrays and scalars."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    return call


def hook(name: str) -> Callable[[Implementation], Implementation]:
    """Decorate the function that is this hook."""

    def register(implementation: Implementation) -> Implementation:
        HOOKS[name] = implementation
        return implementation

    return register


def _with_numpys_errors(function: Callable[..., Any], implementation: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the implementation so that it raises the errors that NumPy's own function raises for such arguments."""

    @functools.wraps(implementation)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return implementation(*args, **kwargs)
        except (ValueError, TypeError, IndexError) as error:
            numpys_error = HOOKS["numpys_error"](function, args, kwargs, error)
            if numpys_error is None:
                raise
        raise numpys_error from None

    return called


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
