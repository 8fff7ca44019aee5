"""Implement ``pb.callback``: Python functions called from compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.tracer import call_outside, current
from pullback.tracer.transforms.callback import checked_call


class ShapeDtypeStruct:
    """The type of an array: ``shape``, a tuple of ints, and ``dtype``, as ``np.dtype`` takes it."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        self.shape = tuple(int(e) for e in shape)
        self.dtype = np.dtype(dtype)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


def callback(function: Callable[..., Any], result_types: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Call any Python function each time the transformed function runs; its results are part of the program.

        @pb.jit
        def f(x):
            y = pb.callback(scipy.special.zeta, x, x, 1.0)        # a result like x
            return np.sum(y * x)

    The function is not traced: it receives NumPy arrays, copies that it may keep, and returns NumPy arrays. ``result_types``
    is a tree like its result with a type in place of each array: an example array, a ``pb.ShapeDtypeStruct``, or, for a
    number, a dtype or ``float``, ``int``, ``bool``. Each callback runs once per call, in program order, and is never removed.
    Arguments other than traced arrays are passed with their values at the time of the trace.

    It has no derivative; ``pb.custom_vjp`` and ``pb.custom_jvp`` can define one. Outside a transformed function it calls at
    once.

    Exceptions of the function reach the caller unchanged. Raises TypeError for a result of another type than declared, and for
    invalid types.
    """
    if current() is None:
        return checked_call(function, result_types, args, kwargs)
    return call_outside(function, result_types, args, kwargs)
