"""Traced scalars as Python numbers: weak values, as taken and returned by functions of Python and of ``math``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.arguments import reshaped
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast, convert, emit, fresh, literal
from pullback.tracer.arrays.mixed_numbers import DTYPES, PYTHON
from pullback.tracer.arrays.tables import hook, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.syntax.table import PREFIX, operator_called
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError


def scalar(x: Any, kind: str) -> TracedArray:
    """Convert an array of one element to a Python number of a kind ("bool", "int", "float", "complex"). Raises TypeError."""
    array = as_traced(x)
    if array.size != 1:
        raise TypeError("only length-1 arrays can be converted to Python scalars")
    return weak(convert(reshaped(array, ()), DTYPES[kind]), kind, known=array)


def weak(x: TracedArray, kind: str, known: TracedArray | None = None) -> TracedArray:
    """Return the value as a Python number; its value during tracing, if any, is that of ``known``."""
    if x.literal is not None:
        return literal(PYTHON[kind](x.literal))
    result = fresh(x)
    result.weak, result.type_tag = kind, None
    known_pair = known_value(x if known is None else known)
    if known_pair is not None:
        try:
            result.known = PYTHON[kind](known_pair[0]), known_pair[1]
        except (ValueError, OverflowError):
            result.known = None
    return settled_truth(result)


def settled_truth(x: TracedArray) -> Any:
    """Return a Python bool as it is; a guarded True or False if functions may test which of the two objects it is."""
    return bool(x) if x.weak == "bool" and frame_of(x).root.settles_truths else x


@hook("as_int")
def integer(x: TracedArray, rounding: Callable[[Any], Any] = np.trunc) -> TracedArray:
    """Round a number to a Python int. The program raises ValueError for NaN and OverflowError beyond int64."""
    if x.dtype.kind != "f":
        return weak(x if x.dtype.kind == "i" else cast(x, np.int64), "int")
    as_float = cast(x, np.float64)
    rounded: Any = rounding(as_float)
    result = cast(rounded, np.int64)
    fits: Any = result != literal(-(2**63), np.int64)  # to which a cast turns NaN and what has more than 64 bits
    emit("check", fits | (as_float == as_float), error="ValueError", message="cannot convert float NaN to integer")
    infinite: Any = np.abs(as_float) == np.inf
    emit("check", fits | ~infinite, error="OverflowError", message="cannot convert float infinity to integer")
    emit("check", fits, error="OverflowError", message=Limit("cannot convert float to a 64-bit integer"))
    return weak(result, "int", known=rounded)


_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}


@register_method("item")
def item(a: TracedArray, *args: Any) -> TracedArray:
    """Return one element as a Python number: the only one, or the one at an index. Raises ValueError and IndexError as NumPy."""
    if a.dtype == np.uint64:
        raise TraceError(".item() of traced unsigned 64-bit integers is not supported; they are more than a traced int holds")
    index = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    if not index:
        if a.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        element: Any = a
    elif len(index) == 1:
        element = reshaped(a, (a.size,))[index[0]]
    elif len(index) == a.ndim:
        element = a[tuple(index)]
    else:
        raise ValueError("incorrect number of indices for array")
    return scalar(element, _KINDS[a.dtype.kind])


MOST_LISTED = 2000
"""Largest number of elements of an array that becomes a list of Python numbers, each of which is an operation of the program."""


@register_method("tolist")
def tolist(a: TracedArray) -> Any:
    """Return the elements as Python numbers, in nested lists."""
    if any(map(is_value_size, a.shape)):
        return operator_called(PREFIX + "listed by value")(a, _KINDS[a.dtype.kind])
    if a.size > MOST_LISTED:
        raise TraceError(f"a list of more than {MOST_LISTED} elements of a traced array; index the array, or loop over it")
    return _listed(a)


def _listed(a: TracedArray) -> Any:
    return [_listed(a[k]) for k in range(a.shape[0])] if a.ndim else item(a)
