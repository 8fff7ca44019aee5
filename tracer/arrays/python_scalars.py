"""Traced scalars as Python's numbers: weak values that functions of Python and of ``math`` take and give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import reshaped
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.make import as_traced, cast, convert, emit, fresh, literal
from pullback.tracer.arrays.tables import hook, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError

DTYPES: dict[str, Any] = {"bool": np.bool_, "int": np.int64, "float": np.float64, "complex": np.complex128}
PYTHON: dict[str, Any] = {"bool": bool, "int": int, "float": float, "complex": complex}


def scalar(x: Any, kind: str) -> TracedArray:
    """An array of one element as a Python number of a kind ("bool", "int", "float", "complex"). Raises TypeError."""
    found = as_traced(x)
    if found.size != 1:
        raise TypeError("only length-1 arrays can be converted to Python scalars")
    return weak(convert(reshaped(found, ()), DTYPES[kind]), kind, known=found)


def weak(x: TracedArray, kind: str, known: TracedArray | None = None) -> TracedArray:
    """The value as a Python number; what is known of ``known`` in the trace is known of it."""
    if x.literal is not None:
        return literal(PYTHON[kind](x.literal))
    found = fresh(x)
    found.weak = kind
    inside = known_value(x if known is None else known)
    if inside is not None:
        try:
            found.known = PYTHON[kind](inside[0]), inside[1]
        except (ValueError, OverflowError):
            found.known = None
    return found


@hook("as_int")
def integer(x: TracedArray, rounding: Callable[[Any], Any] = np.trunc) -> TracedArray:
    """A Python int for a number, rounded first. The program raises ValueError for NaN and OverflowError where int64 ends."""
    if x.dtype.kind != "f":
        return weak(x if x.dtype.kind == "i" else cast(x, np.int64), "int")
    whole = cast(x, np.float64)
    emit("check", emit("eq", whole, whole), error="ValueError", message="cannot convert float NaN to integer")
    fits: Any = np.abs(whole) < 2.0**63
    emit("check", fits | np.isnan(whole), error="OverflowError", message="cannot convert float to a 64-bit integer")
    rounded: Any = rounding(whole)
    return weak(cast(rounded, np.int64), "int", known=rounded)


_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}


@register_method("item")
def item(a: TracedArray, *args: Any) -> TracedArray:
    """One element as a Python number: of all in order, or at an index. Raises ValueError and IndexError as NumPy."""
    if a.dtype == np.uint64:
        raise TraceError(".item() of traced unsigned 64-bit integers is not supported; they are more than a traced int holds")
    place = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
    if not place:
        if a.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        found: Any = a
    elif len(place) == 1:
        found = reshaped(a, (a.size,))[place[0]]
    elif len(place) == a.ndim:
        found = a[tuple(place)]
    else:
        raise ValueError("incorrect number of indices for array")
    return scalar(found, _KINDS[a.dtype.kind])
