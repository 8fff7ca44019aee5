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
            FUNCTIONS[function] = _in_numpys_words(function, _with_out(implementation))
        return implementation

    return register


def register_method(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function, called with the array first, is these methods of traced arrays."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            called = _with_out(implementation)
            METHODS[name] = called if name.startswith("_") else _in_numpys_words(_method(name), called)
        return implementation

    return register


def _method(name: str) -> Callable[..., Any]:
    """The method of that name of NumPy's arrays and scalars, as a function."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, name)(*args, **kwargs)

    return call


def hook(name: str) -> Callable[[Implementation], Implementation]:
    """Decorator: the function is this hook."""

    def register(implementation: Implementation) -> Implementation:
        HOOKS[name] = implementation
        return implementation

    return register


def _in_numpys_words(function: Callable[..., Any], implementation: Callable[..., Any]) -> Callable[..., Any]:
    """The implementation, with the errors that NumPy's own function raises for such arguments."""

    @functools.wraps(implementation)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return implementation(*args, **kwargs)
        except (ValueError, TypeError, IndexError) as error:
            found = HOOKS["numpys_error"](function, args, kwargs, error)
            if found is None:
                raise
        raise found from None

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
