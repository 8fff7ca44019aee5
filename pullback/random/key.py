"""Keys: two 64-bit words, which are the key of Philox.

A draw of a key reads the blocks at counters (1, 0, 0, 0), (2, 0, 0, 0), …; other uses have counters whose last word is not 0,
so that no two read the same block.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from pullback.tracer import TracedArray, current, emit
from pullback.tracer.arrays.arguments import positions, shape_of, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, full, wrapping
from pullback.transforms.api import jit

Function = TypeVar("Function", bound=Callable[..., Any])
WORDS = (1 << 64) - 1
"""Bit mask of a 64-bit word."""
SPLIT, FOLD, ROUNDS = 1, 2, 3
"""The last word of the counters of each other use."""


def drawing(*static: str) -> Callable[[Function], Function]:
    """Decorator: outside a trace the function is compiled, with the arguments ``static`` as static ones."""

    def wrap(function: Function) -> Function:
        compiled = jit(function, static_argnames=static)
        names = list(inspect.signature(function).parameters)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if current() is not None:
                return function(*args, **kwargs)
            positional = [_hashable(v) if k in static else v for k, v in zip(names, args)] + list(args[len(names) :])
            return compiled(*positional, **{k: _hashable(v) if k in static else v for k, v in kwargs.items()})

        return call  # type: ignore[return-value]

    return wrap


def _hashable(value: Any) -> Any:
    """Convert a shape that is a list or an array to a tuple."""
    value = value.tolist() if isinstance(value, np.ndarray) else value
    return tuple(value) if isinstance(value, list) else value


def key(seed: Any) -> Any:
    """Return the key of a seed, which is the key of ``numpy.random.Philox(key=seed)``.

    Parameters
    ----------
    seed : int
        An integer of at most 128 bits; a traced argument has 64 bits.

    Returns
    -------
    array of uint64, shape (2,)
        The key, the low word first.

    Raises
    ------
    ValueError
        For a negative seed, as NumPy does.
    TypeError
        For a seed that is not an integer.

    See Also
    --------
    split : New keys from a key.
    fold_in : A new key from a key and an integer.

    Examples
    --------
    >>> pb.random.key(3)
    array([3, 0], dtype=uint64)
    """
    message = "key must be positive and less than 2**128."
    if not isinstance(seed, TracedArray):
        value = operator.index(seed)
        if not 0 <= value < 1 << 128:
            raise ValueError(message)
        return np.array([value & WORDS, value >> 64], np.uint64)
    if seed.ndim or seed.dtype.kind not in "iu":
        raise TypeError(f"a seed is an integer, not {seed!r}")
    emit("check", as_traced(seed >= 0), error="ValueError", message=message)
    return xp.stack([cast(wrapping(seed), np.uint64), full((), 0, np.uint64)])


def words_of(key: Any) -> tuple[TracedArray, TracedArray]:
    """Return the two words of a key. Raises TypeError for anything else."""
    array = as_traced(key)
    if array.dtype != np.uint64 or array.shape != (2,):
        description = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        raise TypeError(f"a key is uint64[2], made by pb.random.key(seed) or pb.random.split(key), not {description}")
    return array[0], array[1]


def block(key: Any, *counter: Any, words: tuple[int, ...]) -> list[Any]:
    """Return these words of the blocks at a counter, whose four words may be numbers and arrays of one shape."""
    shape = next((c.shape for c in counter if isinstance(c, TracedArray)), ())
    inputs = (cast(as_traced(v), np.uint64) for v in (*counter, *words_of(key)))
    operands = [broadcast_to(v, shape) for v in inputs]
    return [emit("philox", *operands, word=w) for w in words]


@drawing("num")
def split(key: Any, num: Any = 2) -> Any:
    r"""Return new keys from a key.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`.
    num : int or tuple of int, optional
        The number of keys, or the shape of an array of keys; 2 by default.

    Returns
    -------
    array of uint64, of shape (num, 2) or (\*num, 2)
        The first two words of the blocks at counters (i, 0, 0, 1) of ``key``.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].

    See Also
    --------
    fold_in : One new key for an integer.

    Examples
    --------
    >>> first, second = pb.random.split(pb.random.key(0))
    >>> pb.random.normal(first), pb.random.normal(second)
    (np.float64(2.03602992065122), np.float64(0.3176417653379285))
    """
    shape = shape_of(num)
    count = math.prod(shape)
    columns = block(key, positions((count,), 0, np.uint64), 0, 0, SPLIT, words=(0, 1))
    return xp.reshape(xp.stack(columns, -1), (*shape, 2))


@drawing()
def fold_in(key: Any, data: Any) -> Any:
    """Return a new key for a key and an integer.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`.
    data : int
        The integer, such as the index of a step.

    Returns
    -------
    array of uint64, shape (2,)
        The first two words of the block at counter (data, 0, 0, 2) of ``key``.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for ``data`` that is not an integer.

    See Also
    --------
    split : Several new keys.

    Examples
    --------
    >>> pb.random.fold_in(pb.random.key(0), 7)
    array([13713640956198306573,   264095076943684512], dtype=uint64)
    """
    integer = as_traced(data)
    if integer.ndim or integer.dtype.kind not in "iub":
        raise TypeError("the data of pb.random.fold_in is an integer")
    return xp.stack(block(key, integer, 0, 0, FOLD, words=(0, 1)))


def clone(key: Any) -> Any:
    """Return a copy of a key.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`.

    Returns
    -------
    array of uint64, shape (2,)
        The copy.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].

    See Also
    --------
    split : New keys.

    Examples
    --------
    >>> pb.random.clone(pb.random.key(3))
    array([3, 0], dtype=uint64)
    """
    return wrap_key_data(key)


def key_data(key: Any) -> Any:
    """Return the words of a key, which are the key.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`.

    Returns
    -------
    array of uint64, shape (2,)
        The words.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].

    See Also
    --------
    wrap_key_data : The inverse.

    Examples
    --------
    >>> pb.random.key_data(pb.random.key(3))
    array([3, 0], dtype=uint64)
    """
    return wrap_key_data(key)


def wrap_key_data(key_data: Any) -> Any:
    """Return the key with these words.

    Parameters
    ----------
    key_data : array of uint64, shape (2,)
        The words, the low word first.

    Returns
    -------
    array of uint64, shape (2,)
        The key.

    Raises
    ------
    TypeError
        For anything else.

    See Also
    --------
    key_data : The inverse.
    key : The key of a seed.

    Examples
    --------
    >>> pb.random.wrap_key_data(np.array([3, 0], np.uint64))
    array([3, 0], dtype=uint64)
    """
    if isinstance(key_data, TracedArray):
        words_of(key_data)
        return key_data.copy()
    array = np.array(key_data)
    if array.dtype != np.uint64 or array.shape != (2,):
        raise TypeError(f"a key is uint64[2], not {array.dtype}[{','.join(map(str, array.shape))}]")
    return array


def key_impl(key: Any) -> str:
    """Return the name of the generator of a key.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`.

    Returns
    -------
    str
        "philox4x64".

    See Also
    --------
    key : The key of a seed.

    Examples
    --------
    >>> pb.random.key_impl(pb.random.key(3))
    'philox4x64'
    """
    return "philox4x64"
