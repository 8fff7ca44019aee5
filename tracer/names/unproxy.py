"""From the trace back to the outside: what stands for a function or an object in a trace, as it is outside.

A function that is written inside the traced one has the globals of the trace; outside it gets those of its module, and its own
copy of what the traced function's variables hold.
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
from pullback.tracer.user_code.errors import TraceError


def outside(value: Any, names: Names) -> Any:
    """The outside value that ``value`` stands for. Raises TraceError for a function that reads traced values of the function
    around it."""
    return _Outward(names).value(value)


def outside_tree(tree: TreeDef, names: Names) -> TreeDef:
    """A structure whose static values and classes are those outside."""
    return map_statics(tree, lambda v: outside(v, names), real_class)


class _Outward:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.made: dict[int, FunctionType] = {}

    def value(self, value: Any) -> Any:
        if issubclass(type(value), Outside):
            return object.__getattribute__(value, "_real")
        if value is None or isinstance(value, str | bytes | int | float | complex):
            return value
        found = self.names.original(value)
        if found is not value:
            return found
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
        if id(function) in self.made:
            return self.made[id(function)]
        code = restored(function.__code__)
        cells = function.__closure__ or ()
        outer = [self.names.outer_cell(c) for c in cells]
        closure = tuple(CellType() if c is None else c for c in outer)
        made = FunctionType(code, function.__globals__.real, function.__name__, None, closure)
        self.made[id(function)] = made
        for name, cell, known, new in zip(code.co_freevars, cells, outer, closure, strict=True):
            if known is None and is_filled(cell):
                new.cell_contents = self.variable(function, name, cell.cell_contents)
        made.__defaults__ = self.value(function.__defaults__)
        made.__kwdefaults__ = self.value(function.__kwdefaults__)
        made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
        made.__dict__.update(function.__dict__)
        return made

    def variable(self, function: FunctionType, name: str, value: Any) -> Any:
        if holds_traced(value) and self.names.original(value) is value:
            raise TraceError(
                f"{function.__name__} runs in Python, after the trace, and reads {name}, a traced value of the function around "
                "it; pass it as an argument"
            )
        return self.value(value)
