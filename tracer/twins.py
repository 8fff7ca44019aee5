"""Twins: what stands for a function of a library in a traced program, by identity."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.op import resolve
from pullback.tracer.array import FUNCTIONS, TracedArray, holds_traced
from pullback.tracer.promotion import op_of
from pullback.tracer.ufuncs import call_op

# Filled by pullback.tracer.functions.
TWINS: dict[int, tuple[Any, Any]] = {}

_late: dict[str, Any] = {}


def twin(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function replaces these in traced programs, whatever their arguments.

    A function of a library that is not imported yet is given by its dotted name.
    """

    def register(replacement: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            if isinstance(function, str):
                _late[function] = replacement
            else:
                TWINS[id(function)] = (function, replacement)
        return replacement

    return register


def library_twin(value: Any) -> Any:
    """The traced twin of a library's function, or None."""
    for name in [n for n in _late if n.rpartition(".")[0] in sys.modules]:
        twin(resolve(name))(_late.pop(name))
    found = TWINS.get(id(value))
    if found is not None:
        return found[1]
    if isinstance(value, np.ufunc) or not callable(value) or isinstance(value, type):
        return None
    op = op_of(value)
    if op is not None:
        return functools.partial(call_op, op)
    try:
        known = value in FUNCTIONS
    except TypeError:
        return None
    return _dispatching(value) if known else _MATH.get(value)


@functools.lru_cache(maxsize=4096)
def _dispatching(function: Any) -> Any:
    """A NumPy function that also sees traced arrays inside lists."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(map(holds_traced, args)) or any(map(holds_traced, kwargs.values())):
            return FUNCTIONS[function](*args, **kwargs)
        return function(*args, **kwargs)

    return call


def _math(name: str, ufunc: np.ufunc) -> Any:
    real = getattr(math, name)

    def call(*args: Any) -> Any:
        if not any(isinstance(a, TracedArray) for a in args):
            return real(*args)
        result = ufunc(*args)
        result.weak = "float"
        return result

    return call


_MATH = {
    getattr(math, name): _math(name, getattr(np, other))
    for name, other in (
        ("sin", "sin"), ("cos", "cos"), ("tan", "tan"), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"),
        ("sinh", "sinh"), ("cosh", "cosh"), ("tanh", "tanh"), ("asinh", "arcsinh"), ("acosh", "arccosh"), ("atanh", "arctanh"),
        ("exp", "exp"), ("expm1", "expm1"), ("log1p", "log1p"), ("log2", "log2"), ("log10", "log10"), ("sqrt", "sqrt"),
        ("fabs", "fabs"), ("atan2", "arctan2"), ("copysign", "copysign"), ("fmod", "fmod"), ("pow", "power"), ("log", "log"),
    )
}  # fmt: skip
