"""Draws of integers, permutations, choices and categories."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import extent_of, is_size, lifted
from pullback.random.bits import DIGITS, result_shape, static_shape, unit_uniform, words
from pullback.random.continuous import standard_gumbel
from pullback.random.key import WORDS, drawing
from pullback.tracer import TracedArray, emit
from pullback.tracer.arrays.arguments import axis_of, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast
from pullback.tracer.functions.numpy.searchsorted import count_before


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = np.int64) -> Any:
    """Draw integers in [minval, maxval).

    They are the integer part of ``(maxval - minval) * u`` with u of 128 bits, words 2i and 2i + 1 of the key's stream for element
    i, so that the relative error of each probability is at most 2**-64.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int
        The shape of the result.
    minval : int or array of integers
        The lower bound.
    maxval : int or array of integers
        The upper bound, which is excluded.
    dtype : dtype_like, optional
        An integer dtype; int64 by default.

    Returns
    -------
    array of integers, of shape ``shape``
        The draws.

    Raises
    ------
    ValueError
        If ``maxval`` is not above ``minval``, or a bound is outside the dtype.
    TypeError
        For a dtype or bounds that are not integers.

    See Also
    --------
    uniform : Floats.
    bits : All bits of a word.

    Examples
    --------
    >>> pb.random.integers(pb.random.key(0), 6, 1, 7)
    array([1, 1, 4, 6, 2, 5])
    """
    kind = np.dtype(dtype)
    if kind.kind not in "iu":
        raise TypeError(f"a draw of integers has an integer dtype, not {kind}")
    if any(isinstance(v, TracedArray) or (not is_size(v) and np.ndim(v)) for v in (minval, maxval)):
        return _between(key, shape, _as_argument(minval), _as_argument(maxval), kind)
    low, high, info = extent_of(minval), extent_of(maxval), np.iinfo(kind)
    for name, is_inside in (("low", low >= info.min), ("high", high <= info.max + 1)):
        if not is_inside:
            raise ValueError(f"{name} is out of bounds for {kind}")
    if low >= high:
        raise ValueError("low >= high")
    return _spread(key, shape, lifted(_word, low), lifted(_word, high - low), kind)


def _word(value: int) -> np.uint64:
    return np.uint64(value & WORDS)


integers = randint


def _as_argument(value: Any) -> Any:
    return np.uint64(value) if isinstance(value, int) and value >= 1 << 63 else value


@drawing("shape", "kind")
def _between(key: Any, shape: Any, minval: Any, maxval: Any, kind: np.dtype[Any]) -> Any:
    bounds, info = [as_traced(v) for v in (minval, maxval)], np.iinfo(kind)
    for bound in bounds:
        if bound.dtype.kind not in "iu":
            raise TypeError(f"the bounds of a draw of integers are integers, not {bound.dtype}")
    low, high = bounds
    extents = result_shape(shape, low, high)
    conditions = {
        "low >= high": xp.less(low, high),
        f"low is out of bounds for {kind}": xp.greater_equal(low, info.min),
        f"high is out of bounds for {kind}": xp.less_equal(high, info.max + 1),
    }
    for message, condition in conditions.items():
        emit("check", as_traced(condition), error="ValueError", message=message)
    start, stop = (broadcast_to(cast(cast(b, np.int64) if b.dtype.kind == "i" else b, np.uint64), extents) for b in bounds)
    return _spread(key, extents, start, stop - start, kind)


@drawing("shape", "kind")
def _spread(key: Any, shape: Any, start: Any, span: Any, kind: np.dtype[Any]) -> Any:
    """Return start + floor(span * u), modulo 2**64; a span of 0 stands for 2**64."""
    extents = static_shape(shape)
    start, span = (broadcast_to(as_traced(v), extents) for v in (start, span))
    pairs = xp.reshape(words(key, 2 * math.prod(extents)), (*extents, 2))
    first, second = pairs[..., 0], pairs[..., 1]
    low_part = first * span
    total = low_part + emit("mulhi", second, span)
    share = emit("mulhi", first, span) + cast(total < low_part, np.uint64)
    return cast(start + xp.where(span == 0, first, share), kind)


@drawing("shape")
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """Draw bools that are True with a probability.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    p : float or array, optional
        The probability; 0.5 by default.
    shape : int or tuple of int, optional
        The shape of the result, to which the parameters broadcast; by default their common shape.

    Returns
    -------
    array of bool, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    binomial : The number of successes.

    Examples
    --------
    >>> pb.random.bernoulli(pb.random.key(0), 0.3, 5)
    array([ True,  True,  True, False, False])
    """
    chance = cast(as_traced(p), np.float64)
    extents = result_shape(shape, chance)
    return as_traced(unit_uniform(key, extents, np.dtype(np.float64)) < broadcast_to(chance, extents))


@drawing("shape", "dtype")
def rademacher(key: Any, shape: Any = (), dtype: Any = np.int64) -> Any:
    """Draw 1 or -1 with equal probability.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        A dtype of numbers; int64 by default.

    Returns
    -------
    array of integers, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].
    ValueError
        For a negative extent.

    See Also
    --------
    bernoulli : True or False.

    Examples
    --------
    >>> pb.random.rademacher(pb.random.key(0), 5)
    array([ 1,  1,  1, -1, -1])
    """
    extents = static_shape(shape)
    is_up = unit_uniform(key, extents, np.dtype(np.float64)) < 0.5
    return cast(xp.where(is_up, 1, -1), dtype)


@drawing("axis", "independent")
def permutation(key: Any, x: Any, axis: Any = 0, independent: bool = False) -> Any:
    """Return an array with its slices along an axis in random order, or the integers below a number in random order.

    The order sorts 64 random bits for each position.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    x : int or array
        The array, or the number of integers.
    axis : int, optional
        The axis of the slices.
    independent : bool, optional
        Give each line along the axis an order of its own.

    Returns
    -------
    array
        The slices, in the shape and dtype of ``x``.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].

    See Also
    --------
    choice : Some of the slices.

    Examples
    --------
    >>> pb.random.permutation(pb.random.key(0), 6)
    array([0, 2, 1, 5, 4, 3])
    """
    a = as_traced(x)
    if not a.ndim:
        return _order(key, operator.index(x))
    at = axis_of(axis, a.ndim)
    if not independent:
        return xp.take(a, _order(key, a.shape[at]), axis=at)
    ranks = xp.argsort(xp.reshape(words(key, a.size), a.shape), axis=at)
    return xp.take_along_axis(a, ranks, axis=at)


def _order(key: Any, count: int) -> Any:
    if count < 0:
        raise ValueError("negative dimensions are not allowed")
    return xp.argsort(words(key, count))


@drawing("shape", "replace", "axis")
def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: Any = 0) -> Any:
    """Draw slices of an array along an axis, or integers below a number.

    With replacement, and if probabilities are passed, the draws are those of ``np.random.Generator.choice``; without replacement
    they are the first ones of a random order (by Gumbel keys, if there are probabilities).

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    a : int or array
        The array, or the number of integers.
    shape : int or tuple of int, optional
        The shape of the draws; () by default.
    replace : bool, optional
        Whether a slice may be drawn more than once.
    p : array of floats, shape (n,), optional
        The probability of each slice; equal by default.
    axis : int, optional
        The axis of the slices.

    Returns
    -------
    array
        The slices, in place of the axis with the axes of ``shape``.

    Raises
    ------
    ValueError
        If there are not enough slices, and for a ``p`` that does not fit.

    See Also
    --------
    permutation : All slices in random order.
    categorical : By log-probabilities.

    Examples
    --------
    >>> pb.random.choice(pb.random.key(0), 10, 4, replace=False)
    array([0, 2, 9, 1])
    """
    values = as_traced(a)
    at = axis_of(axis, values.ndim) if values.ndim else 0
    count = values.shape[at] if values.ndim else operator.index(a)
    extents = static_shape(shape)
    size = math.prod(extents)
    if count <= 0 and size:
        raise ValueError("a cannot be empty unless no samples are taken")
    if not replace and size > count:
        raise ValueError("Cannot take a larger sample than population when replace is False")
    chances = None if p is None else cast(as_traced(p), np.float64)
    if chances is not None and chances.shape != (count,):
        raise ValueError("a and p must have same size")
    if replace and chances is None:
        where = randint(key, extents, 0, max(count, 1))
    elif replace:
        sums = xp.cumsum(chances)
        where = count_before(sums / sums[-1], unit_uniform(key, extents, np.dtype(np.float64)), "right")
    else:
        order = xp.argsort(words(key, count)) if chances is None else _by_gumbel(key, chances, size)
        where = xp.reshape(order[:size], extents)
    return xp.take(values, where, axis=at) if values.ndim else where


def _by_gumbel(key: Any, chances: Any, size: int) -> Any:
    enough = xp.sum(cast(chances > 0.0, np.int64)) >= size
    emit("check", as_traced(enough), error="ValueError", message="Fewer non-zero entries in p than size")
    return xp.argsort(-(xp.log(chances) + standard_gumbel(key, chances.shape, np.dtype(np.float64))))


@drawing("axis", "shape")
def categorical(key: Any, logits: Any, axis: Any = -1, shape: Any = None) -> Any:
    """Draw indices along an axis of unnormalised log-probabilities, by the maximum of their sums with Gumbel variables.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    logits : array of floats
        The log-probabilities, up to a constant.
    axis : int, optional
        The axis of the categories; the last by default.
    shape : int or tuple of int, optional
        The shape of the result, to which the shape of ``logits`` without the axis broadcasts; by default that shape.

    Returns
    -------
    array of int64, of shape ``shape``
        The indices.

    Raises
    ------
    TypeError
        For a key that is not uint64[2].
    ValueError
        For ``logits`` that do not broadcast to ``shape``.

    See Also
    --------
    choice : Draws slices of an array.

    Examples
    --------
    >>> pb.random.categorical(pb.random.key(0), np.log([0.1, 0.2, 0.7]), shape=6)
    array([2, 2, 1, 1, 2, 2])
    """
    scores = as_traced(logits)
    scores = cast(scores, scores.dtype if scores.dtype.kind == "f" else np.float64)
    scores = xp.moveaxis(scores, axis_of(axis, scores.ndim), -1)
    extents = scores.shape[:-1] if shape is None else static_shape(shape)
    wide = broadcast_to(scores, (*extents, scores.shape[-1]))
    kind = scores.dtype if f"f{8 * scores.dtype.itemsize}" in DIGITS else np.dtype(np.float64)
    return xp.argmax(wide + standard_gumbel(key, wide.shape, kind), axis=-1)
