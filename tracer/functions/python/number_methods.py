"""Methods of Python's numbers: ``is_integer``, ``bit_length``, ``bit_count``. NumPy's numbers have some of them, arrays none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.concretize import known_value, pinned
from pullback.tracer.arrays.make import as_traced, cast
from pullback.tracer.arrays.mixed_numbers import PYTHON, as_python, is_mixed, python_name
from pullback.tracer.arrays.python_scalars import weak
from pullback.tracer.arrays.tables import register_method
from pullback.tracer.arrays.traced import TracedArray

_BITS = (32, 16, 8, 4, 2, 1)
"""The steps of a binary search for the highest bit of 64."""


def _method(name: str, kind: str) -> Callable[[Callable[[TracedArray], Any]], Callable[[TracedArray], Any]]:
    """Return a decorator of the implementation of a method of numbers whose result is a number of Python. A call raises
    AttributeError for a value that lacks the method."""

    def register(implementation: Callable[[TracedArray], Any]) -> Callable[[TracedArray], Any]:
        def call(x: TracedArray) -> Any:
            known = known_value(x) if x.weak else None
            if known is not None:
                return getattr(pinned(x, known), name)()
            if x.ndim or x.is_cell or not (x.weak or is_mixed(x) or hasattr(x.dtype.type, name)):
                owner = np.ndarray if x.ndim or x.is_cell else x.dtype.type
                raise AttributeError(f"'numpy.{owner.__name__}' object has no attribute {name!r}")
            pythons = as_python(x)
            if x.weak and not hasattr(PYTHON[python_name(x)], name):
                raise AttributeError(f"{x.weak!r} object has no attribute {name!r}")
            return weak(as_traced(implementation(pythons)), kind)

        register_method(name)(call)
        return implementation

    return register


@_method("is_integer", "bool")
def _is_integer(x: TracedArray) -> Any:
    """Return whether a number is an integer; an infinity is none."""
    if x.dtype.kind in "biu":
        return np.True_
    return xp.equal(xp.floor(x), x) & xp.isfinite(x)


@_method("bit_count", "int")
def _bit_count(x: TracedArray) -> Any:
    """Return the number of ones in the binary form of the absolute value of an int."""
    ones = _magnitude(x)
    for shift, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        ones = (ones & np.uint64(mask)) + ((ones >> np.uint64(shift)) & np.uint64(mask))
    return cast((ones * np.uint64(0x0101010101010101)) >> np.uint64(56), np.int64)


@_method("bit_length", "int")
def _bit_length(x: TracedArray) -> Any:
    """Return the number of bits of the absolute value of an int."""
    rest, length = _magnitude(x), as_traced(np.int64(0))
    for step in _BITS:
        is_longer = rest >= np.uint64(2**step)
        rest = xp.where(is_longer, rest >> np.uint64(step), rest)
        length = xp.where(is_longer, length + step, length)
    return length + cast(rest, np.int64)


def _magnitude(x: TracedArray) -> Any:
    """Return the absolute value of an int, as 64 bits without a sign."""
    value = cast(x, np.int64)
    return cast(xp.where(value < 0, -value, value), np.uint64)
