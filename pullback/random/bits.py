"""The stream of a key: its bits, and numbers in the unit interval made of them as NumPy makes them."""

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


def words(key: Any, count: int) -> Any:
    """The first ``count`` 64-bit words of the key's stream: those of ``numpy.random.Philox(key=key).random_raw(count)``."""
    blocks = -(-count // 4)
    found = block(key, positions((blocks,), 0, np.uint64) + np.uint64(1), 0, 0, 0, words=(0, 1, 2, 3))
    return xp.reshape(xp.stack(found, -1), (4 * blocks,))[:count]


def halves(key: Any, count: int) -> Any:
    """The first ``count`` 32-bit words: the low half of each 64-bit word, then its high half."""
    wide = words(key, -(-count // 2))
    low_and_high = xp.stack([wide, wide >> np.uint64(32)], -1)
    return cast(xp.reshape(low_and_high, (low_and_high.size,)), np.uint32)[:count]


def float_dtype(dtype: Any) -> np.dtype[Any]:
    """The dtype of floats. Raises TypeError for any other."""
    found = dtype_of(dtype)
    if found.name not in DIGITS:
        raise TypeError(f"a draw of floats has dtype float64, float32, float16 or bfloat16, not {found.numpy}")
    return found.numpy


def digits(key: Any, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, int]:
    """Random integers below 2**n, and n: as many bits as the significand of the dtype has, in float64 or float32."""
    count, n = math.prod(shape), DIGITS[dtype_of(dtype).name]
    if n == 53:
        found = cast(words(key, count) >> np.uint64(11), np.float64)
    else:
        found = cast(halves(key, count) >> np.uint32(32 - n), np.float32)
    return xp.reshape(found, shape), n


def unit(key: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Uniform in [0, 1)."""
    found, n = digits(key, shape, dtype)
    return cast(found * 2.0**-n, dtype)


def middle(key: Any, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The middle u of the cell of the uniform draw, in (0, 1): the lesser one of u and 1 - u, and whether it is u. Both are
    exact."""
    found, n = digits(key, shape, dtype)
    is_low = found < 2.0 ** (n - 1)
    return cast((xp.where(is_low, found, 2.0**n - 1.0 - found) + 0.5) * 2.0**-n, dtype), is_low


def logs(key: Any, shape: Shape, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The logarithms of u and of 1 - u."""
    p, is_low = middle(key, shape, dtype)
    near, far = xp.log(p), xp.log1p(-p)
    return xp.where(is_low, near, far), xp.where(is_low, far, near)


def parameters(shape: Any, dtype: Any, *values: Any) -> tuple[Shape, np.dtype[Any], list[Any]]:
    """The shape and dtype of a draw and its parameters in them. Raises ValueError where they do not fit."""
    kind = float_dtype(dtype)
    arrays = [cast(as_traced(v), kind) for v in values]
    found = result_shape(shape, *arrays)
    return found, kind, [broadcast_to(a, found) for a in arrays]


def result_shape(shape: Any, *arrays: TracedArray) -> Shape:
    """The shape asked for, or that of the parameters if none is. Raises ValueError if they do not broadcast to it."""
    own: Shape = broadcast_shapes(*(a.shape for a in arrays))
    if shape is None:
        return own
    found = shape_of(shape)
    if any(n < 0 for n in found):
        raise ValueError("negative dimensions are not allowed")
    if len(own) > len(found) or broadcast_shapes(own, found) != found:
        raise ValueError(f"parameters of shape {own} do not broadcast to shape {found}")
    return found


def static_shape(shape: Any) -> Shape:
    """A shape argument. Raises ValueError for a negative extent."""
    return result_shape(shape)


@drawing("shape", "dtype")
def bits(key: Any, shape: Any = (), dtype: Any = np.uint64) -> Any:
    """Random bits: uint64 as ``numpy.random.Philox(key=key).random_raw`` gives them, or their 32-bit halves, low half first, as
    uint32; uint16 and uint8 are the high bits of those.

    Raises TypeError for another dtype.
    """
    kind, found = np.dtype(dtype), static_shape(shape)
    count = math.prod(found)
    if kind.kind != "u":
        raise TypeError(f"bits have an unsigned dtype, not {kind}")
    if kind.itemsize == 8:
        return xp.reshape(words(key, count), found)
    narrow = halves(key, count)
    if kind.itemsize < 4:
        narrow = cast(narrow >> np.uint32(32 - 8 * kind.itemsize), kind)
    return xp.reshape(narrow, found)


@drawing("shape", "dtype")
def uniform(key: Any, shape: Any = None, dtype: Any = np.float64, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Uniform in [minval, maxval), of the shape of the bounds if none is given.

    Between 0 and 1 it is, to the last bit, ``np.random.Generator(np.random.Philox(key=key)).random(shape, dtype)``.
    """
    if _is(minval, 0.0) and _is(maxval, 1.0):
        return unit(key, static_shape(() if shape is None else shape), float_dtype(dtype))
    found, kind, (low, high) = parameters(shape, dtype, minval, maxval)
    return low + (high - low) * unit(key, found, kind)


def _is(value: Any, number: float) -> bool:
    return isinstance(value, int | float) and value == number


def sequence(shape: Sequence[int]) -> Any:
    """The number of each element, as uint64, in row-major order."""
    count = math.prod(shape)
    return xp.reshape(positions((count,), 0, np.uint64), tuple(shape))
