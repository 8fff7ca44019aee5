"""Conversion from the trace to the outside: the outside function or object for which a value of the trace stands.

A function defined inside the traced one has the globals of the trace; outside it gets the globals of its module, and its own
copies of the traced function's variables.
"""

from __future__ import annotations

import functools
from types import BuiltinMethodType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

from pullback.tracer.arrays.make import holds_traced
from pullback.tracer.arrays.number_types import restored
from pullback.tracer.arrays.tree import TreeDef, map_statics, real_class
from pullback.tracer.names.globals import Namespace
from pullback.tracer.names.proxies import Outside
from pullback.tracer.names.resolver import Names, is_filled
from pullback.tracer.syntax.matching import as_written
from pullback.tracer.user_code.errors import TraceError


def outside(value: Any, names: Names) -> Any:
    """Return the outside value for which ``value`` stands. Raises TraceError for a function that captures traced values."""
    return _Outward(names).value(value)


def outside_tree(tree: TreeDef, names: Names) -> TreeDef:
    """Return a structure with the outside values and classes for its static ones."""
    return map_statics(tree, lambda v: outside(v, names), real_class)


class _Outward:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.copies: dict[int, FunctionType] = {}

    def value(self, value: Any) -> Any:
        if issubclass(type(value), Outside):
            return self.names.fixed(object.__getattribute__(value, "_real"))
        if value is None or isinstance(value, str | bytes | int | float | complex):
            return value
        original = self.names.original(value)
        if original is not value:
            return original
        match value:
            case FunctionType():
                return self.function(value)
            case MethodType():
                return MethodType(self.value(value.__func__), self.value(value.__self__))
            case BuiltinMethodType() if not isinstance(value.__self__, ModuleType | type):
                return getattr(self.value(value.__self__), value.__name__)
            case functools.partial():
                keywords = {k: self.value(v) for k, v in value.keywords.items()}
                return functools.partial(self.value(value.func), *map(self.value, value.args), **keywords)
        if type(value) in (tuple, list):
            return type(value)(map(self.value, value))
        return {k: self.value(v) for k, v in value.items()} if type(value) is dict else value

    def function(self, function: FunctionType) -> Any:
        if not isinstance(function.__globals__, Namespace):
            return function
        if id(function) in self.copies:
            return self.copies[id(function)]
        rewritten = restored(function.__code__)
        code, by_name = as_written(rewritten), dict(zip(rewritten.co_freevars, function.__closure__ or ()))
        cells = [by_name[name] for name in code.co_freevars]
        outer = [self.names.outer_cell(c) for c in cells]
        closure = tuple(CellType() if c is None else c for c in outer)
        copy = FunctionType(code, function.__globals__.real, function.__name__, None, closure)
        self.copies[id(function)] = copy
        for name, cell, known, new in zip(code.co_freevars, cells, outer, closure, strict=True):
            if known is None and is_filled(cell):
                new.cell_contents = self.variable(function, name, cell.cell_contents)
        copy.__defaults__ = self.value(function.__defaults__)
        copy.__kwdefaults__ = self.value(function.__kwdefaults__)
        copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
        copy.__dict__.update(function.__dict__)
        return copy

    def variable(self, function: FunctionType, name: str, value: Any) -> Any:
        if holds_traced(value) and self.names.original(value) is value:
            raise TraceError(
                f"{function.__name__} runs in Python, after the trace, and reads {name}, a traced value of the function around "
                "it; pass it as an argument"
            )
        return self.value(value)
