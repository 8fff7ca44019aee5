"""Implement ``pb.callback``: Python functions called from compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.tracer import call_outside, current
from pullback.tracer.transforms.callback import checked_call


class ShapeDtypeStruct:
    """Describe the type of an array by its shape and dtype.

    Parameters
    ----------
    shape : sequence of int
        The shape; stored as a tuple.
    dtype : dtype_like
        The dtype, as ``np.dtype`` takes it.

    See Also
    --------
    callback : Takes the types of results.
    export : Takes the types of arguments.

    Examples
    --------
    >>> pb.ShapeDtypeStruct((3, 2), np.float32)
    ShapeDtypeStruct(shape=(3, 2), dtype=float32)
    """

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

    The function is not traced: it receives NumPy arrays, copies that it may keep, and returns NumPy arrays. Each callback runs
    once per call, in program order, and is never removed. Outside a transformed function it calls at once. It has no derivative;
    `custom_vjp` and `custom_jvp` can define one.

    Parameters
    ----------
    function : callable
        Any Python function.
    result_types : tree of array, ShapeDtypeStruct, dtype or type
        A tree like the result, with a type in place of each array: an example array, a `ShapeDtypeStruct`, or, for a number, a
        dtype or ``float``, ``int``, ``bool``.
    *args, **kwargs : object
        The arguments of ``function``. Arguments other than traced arrays are passed with their values at the time of the trace.

    Returns
    -------
    tree of array
        What ``function`` returns.

    Raises
    ------
    TypeError
        For a result of another type than declared, and for invalid types.
    Exception
        What ``function`` raises reaches the caller unchanged.

    See Also
    --------
    extend.primitive : A function that is always called, with rules for its derivatives.

    Examples
    --------
    >>> from collections import Counter
    >>> def most_common(x):  # Python's own dict inside
    ...     return float(Counter(x.tolist()).most_common(1)[0][0])
    >>> @pb.jit
    ... def f(x):
    ...     return x - pb.callback(most_common, float, x)
    >>> f(np.array([1.0, 3.0, 3.0]))
    array([-2.,  0.,  0.])
    """
    if current() is None:
        return checked_call(function, result_types, args, kwargs)
    return call_outside(function, result_types, args, kwargs)
