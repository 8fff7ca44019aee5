"""The stream of a key: its bits, and numbers in the unit interval derived from them as NumPy does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.types import dtype_of
from pullback.random.key import block, drawing
from pullback.tracer import TracedArray
from pullback.tracer.arrays.arguments import positions, shape_of, xp
from pullback.tracer.arrays.make import as_traced, broadcast_shapes, broadcast_to, cast

Shape = tuple[int, ...]
DIGITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}
"""Number of random bits in a draw of each float dtype: the bits of its significand."""


def words(key: Any, count: int) -> Any:
    """Return the first ``count`` 64-bit words of the key's stream: those of
    ``numpy.random.Philox(key=key).random_raw(count)``."""
    blocks = -(-count // 4)
    columns = block(key, positions((blocks,), 0, np.uint64) + np.uint64(1), 0, 0, 0, words=(0, 1, 2, 3))
    return xp.reshape(xp.stack(columns, -1), (4 * blocks,))[:count]


def halves(key: Any, count: int) -> Any:
    """Return the first ``count`` 32-bit words: the low half of each 64-bit word, then its high half."""
    wide = words(key, -(-count // 2))
    low_and_high = xp.stack([wide, wide >> np.uint64(32)], -1)
    return cast(xp.reshape(low_and_high, (low_and_high.size,)), np.uint32)[:count]


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype of floats. Raises TypeError for any other."""
    kind = dtype_of(dtype)
    if kind.name not in DIGITS:
        raise TypeError(f"a draw of floats has dtype float64, float32, float16 or bfloat16, not {kind.numpy}")
    return kind.numpy


def random_integers(key: Any, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Return random integers below 2**n, as float64 or float32, and n, the number of bits in the significand of the dtype."""
    count, n = math.prod(shape), DIGITS[dtype_of(dtype).name]
    if n == 53:
        integers = cast(words(key, count) >> np.uint64(11), np.float64)
    else:
        integers = cast(halves(key, count) >> np.uint32(32 - n), np.float32)
    return xp.reshape(integers, shape), n


def unit_uniform(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Draw uniform numbers in [0, 1)."""
    integers, n = random_integers(key, shape, dtype)
    return cast(integers * 2.0**-n, dtype)


def cell_midpoint(key: Any, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the midpoint u of each uniform draw's cell, in (0, 1), as the smaller one of u and 1 - u, and whether that is u.
    Both are exact."""
    integers, n = random_integers(key, shape, dtype)
    is_low = integers < 2.0 ** (n - 1)
    return cast((xp.where(is_low, integers, 2.0**n - 1.0 - integers) + 0.5) * 2.0**-n, dtype), is_low


def logs(key: Any, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the logarithms of u and of 1 - u."""
    p, is_low = cell_midpoint(key, shape, dtype)
    log_p, log_q = xp.log(p), xp.log1p(-p)
    return xp.where(is_low, log_p, log_q), xp.where(is_low, log_q, log_p)


def parameters(shape: Any, dtype: Any, *values: Any) -> tuple[Shape, np.dtype[Any], list[Any]]:
    """Return the shape and dtype of a draw, and its parameters converted to them. Raises ValueError if they do not fit."""
    kind = float_dtype(dtype)
    arrays = [cast(as_traced(v), kind) for v in values]
    lead = result_shape(shape, *arrays)
    return lead, kind, [broadcast_to(a, lead) for a in arrays]


def result_shape(shape: Any, *arrays: TracedArray) -> Shape:
    """Return the requested shape, or by default the broadcast shape of the parameters. Raises ValueError if they do not
    broadcast to it."""
    own: Shape = broadcast_shapes(*(a.shape for a in arrays))
    if shape is None:
        return own
    wanted = shape_of(shape)
    if any(n < 0 for n in wanted):
        raise ValueError("negative dimensions are not allowed")
    if len(own) > len(wanted) or broadcast_shapes(own, wanted) != wanted:
        raise ValueError(f"parameters of shape {own} do not broadcast to shape {wanted}")
    return wanted


def static_shape(shape: Any) -> Shape:
    """Check a shape argument. Raises ValueError for a negative extent."""
    return result_shape(shape)


@drawing("shape", "dtype")
def bits(key: Any, shape: Any = (), dtype: Any = np.uint64) -> Any:
    """Draw random bits.

    As uint64 they are what ``numpy.random.Philox(key=key).random_raw`` returns, as uint32 the 32-bit halves of those, low half
    first; uint16 and uint8 are the high bits of those halves.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result; () by default.
    dtype : dtype_like, optional
        By default uint64; uint32, uint16 and uint8 are the others.

    Returns
    -------
    array of unsigned integers, of shape ``shape``
        The bits.

    Raises
    ------
    TypeError
        For another dtype.
    ValueError
        For a negative extent.

    See Also
    --------
    uniform : Floats from such bits.

    Examples
    --------
    >>> pb.random.bits(pb.random.key(0), 2)
    array([ 213000021201967259, 4455796210202625458], dtype=uint64)
    >>> np.random.Philox(key=0).random_raw(2)
    array([ 213000021201967259, 4455796210202625458], dtype=uint64)
    """
    kind, extents = np.dtype(dtype), static_shape(shape)
    count = math.prod(extents)
    if kind.kind != "u":
        raise TypeError(f"bits have an unsigned dtype, not {kind}")
    if kind.itemsize == 8:
        return xp.reshape(words(key, count), extents)
    narrow = halves(key, count)
    if kind.itemsize < 4:
        narrow = cast(narrow >> np.uint32(32 - 8 * kind.itemsize), kind)
    return xp.reshape(narrow, extents)


@drawing("shape", "dtype")
def uniform(key: Any, shape: Any = None, dtype: Any = np.float64, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Draw uniform numbers in [minval, maxval).

    Between 0 and 1 they are, to the last bit, ``np.random.Generator(np.random.Philox(key=key)).random(shape, dtype)``.

    Parameters
    ----------
    key : array of uint64, shape (2,)
        The key, from `key` or `split`. Draw once from each.
    shape : int or tuple of int, optional
        The shape of the result, to which the bounds broadcast; by default their common shape.
    dtype : dtype_like, optional
        By default float64; float32, float16 and bfloat16 are the others.
    minval : float or array, optional
        The lower bound; 0 by default.
    maxval : float or array, optional
        The upper bound; 1 by default.

    Returns
    -------
    array of floats, of shape ``shape``
        The draws.

    Raises
    ------
    TypeError
        For a key that is not uint64[2], and for a dtype that is not one of these.
    ValueError
        For parameters that do not broadcast to ``shape``.

    See Also
    --------
    normal : The normal distribution.
    integers : Uniform integers.

    Examples
    --------
    >>> pb.random.uniform(pb.random.key(3), 3)
    array([0.93428202, 0.07916148, 0.38282799])
    >>> np.random.Generator(np.random.Philox(key=3)).random(3)
    array([0.93428202, 0.07916148, 0.38282799])
    """
    if _is(minval, 0.0) and _is(maxval, 1.0):
        return unit_uniform(key, static_shape(() if shape is None else shape), float_dtype(dtype))
    extents, kind, (low, high) = parameters(shape, dtype, minval, maxval)
    return low + (high - low) * unit_uniform(key, extents, kind)


def _is(value: Any, constant: float) -> bool:
    return isinstance(value, int | float) and value == constant


def sequence(shape: Sequence[int]) -> Any:
    """Return the index of each element, as uint64, in row-major order."""
    count = math.prod(shape)
    return xp.reshape(positions((count,), 0, np.uint64), tuple(shape))
