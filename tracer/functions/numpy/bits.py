"""Functions on the bits of numbers: lcm, bit counts, spacing of floats, packed bits and byte swapping."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import as_array, axis_of, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full
from pullback.tracer.arrays.promotion import composition
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError


@composition(np.lcm)
def lcm(x: TracedArray, y: TracedArray) -> Any:
    """Return the least common multiple, computed on unsigned magnitudes: the least signed integer has no positive counterpart."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    a, b = (cast(emit("abs", v) if v.dtype.kind == "i" else v, unsigned) for v in (x, y))
    divisor: Any = emit("gcd", a, b)
    is_none = divisor == 0
    return cast(xp.where(is_none, 0, a // xp.where(is_none, 1, divisor) * b), x.dtype)


if hasattr(np, "bitwise_count"):

    @composition(np.bitwise_count)
    def bitwise_count(x: TracedArray) -> Any:
        """Count the set bits of 64-bit words. H. Warren, Hacker's Delight (2012), section 5-1."""
        bits: Any = cast(emit("abs", x) if x.dtype.kind == "i" else x, np.dtype(f"u{x.dtype.itemsize}"))
        bits = cast(bits, np.uint64)
        mask_2, mask_4, mask_8 = (np.uint64(m) for m in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
        bits = bits - ((bits >> np.uint64(1)) & mask_2)
        bits = (bits & mask_4) + ((bits >> np.uint64(2)) & mask_4)
        bits = (bits + (bits >> np.uint64(4))) & mask_8
        return (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)


@composition(np.spacing)
def spacing(x: TracedArray) -> Any:
    if x.dtype == np.float16:  # NumPy's is the distance to the next number above, and has no sign
        above = emit("nextafter", x, full(x.shape, math.inf, x.dtype))
        return emit("add", emit("sub", above, x), emit("sub", x, x))
    unsigned = emit("add", x, full(x.shape, 0.0, x.dtype))  # -0 counts as 0
    away = emit("copysign", full(x.shape, math.inf, x.dtype), unsigned)
    return emit("sub", emit("nextafter", x, away), x)


_ORDERS = {"big": np.arange(7, -1, -1, dtype=np.uint8), "little": np.arange(8, dtype=np.uint8)}


def _shifts(bitorder: Any) -> Any:
    if bitorder not in _ORDERS:
        raise ValueError("'order' must be either 'little' or 'big'")
    return _ORDERS[bitorder]


@implements(np.packbits)
def packbits(a: Any, /, axis: Any = None, bitorder: Any = "big") -> Any:
    x, shifts = as_traced(a), _shifts(bitorder)
    if x.dtype.kind not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    x = reshaped(x, (x.size,)) if axis is None or not x.ndim else x
    at = axis_of(-1 if axis is None else axis, x.ndim)
    bits: Any = xp.moveaxis(cast(x != 0, np.uint8), at, -1)
    padding = -bits.shape[-1] % 8
    bits = xp.pad(bits, [(0, 0)] * (bits.ndim - 1) + [(0, padding)])
    parts = xp.reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    return xp.moveaxis(xp.sum(parts << shifts, axis=-1, dtype=np.uint8), -1, at)


@implements(np.unpackbits)
def unpackbits(a: Any, /, axis: Any = None, count: Any = None, bitorder: Any = "big") -> Any:
    x, shifts = as_traced(a), _shifts(bitorder)
    if x.dtype != np.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    x = reshaped(x, (x.size,)) if axis is None or not x.ndim else x
    at = axis_of(-1 if axis is None else axis, x.ndim)
    rows: Any = xp.moveaxis(x, at, -1)
    result = xp.reshape((xp.expand_dims(rows, -1) >> shifts) & np.uint8(1), (*rows.shape[:-1], rows.shape[-1] * 8))
    if count is not None:
        n = result.shape[-1]
        length = operator.index(count) if operator.index(count) >= 0 else n + operator.index(count)
        if length < 0:
            raise ValueError(f"-ve count outside of valid range. Must be at least -{n}")
        result = xp.pad(result[..., :length], [(0, 0)] * (result.ndim - 1) + [(0, max(length - n, 0))])
    return xp.moveaxis(result, -1, at)


@register_method("byteswap")
def byteswap(a: TracedArray, inplace: bool = False) -> Any:
    """Return the integers whose bytes are those of the elements in reverse order."""
    size = a.dtype.itemsize
    if a.dtype.kind not in "biu":
        raise TraceError(".byteswap() of traced floats is not supported; arrays of either byte order are read by their values")
    result: Any = a.copy()
    if size > 1:
        bits: Any = a if a.dtype.kind == "u" else emit("bitcast", a, dtype=f"u{8 * size}")
        result = sum(((bits >> (8 * k)) & 255) << (8 * (size - 1 - k)) for k in range(size))
        result = result if a.dtype.kind == "u" else emit("bitcast", result, dtype=f"i{8 * size}")
    if inplace:
        a[...] = result
        return a
    return as_array(result) if a.is_cell else result
