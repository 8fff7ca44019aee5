"""Norms of vectors and matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from pullback.tracer.arrays.arguments import axis_list, choose_where, remove_axes, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, expand, full
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg.decompositions import matrices_of, svdvals
from pullback.tracer.functions.numpy.linalg.solve import in_double, real_dtype, result_dtype, square, unchecked_inverse


def _squares(a: TracedArray) -> Any:
    return a.real * a.real + a.imag * a.imag if a.dtype.kind == "c" else a * a


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> TracedArray:
    a = as_traced(x)
    if a.dtype.kind in "biu":
        a = cast(a, np.float64)
    if axis is None and (ord is None or (ord in ("f", "fro") and a.ndim == 2) or (ord == 2 and a.ndim == 1)):
        result = np.sqrt(np.sum(_squares(a)))
        return expand(result, range(a.ndim)) if keepdims else result
    axes = axis_list(range(a.ndim) if axis is None else axis, a.ndim)
    if len(axes) == 1:
        return _vector_norm(a, ord, axes, keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    if ord is None or ord in ("f", "fro"):
        return xp.sqrt(xp.sum(_squares(a), axis=axes, keepdims=keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        over, rest = (axes[0], axes[1]) if abs(ord) == 1 else (axes[1], axes[0])
        sums = xp.sum(xp.abs(a), axis=over, keepdims=True)
        best = (_largest if ord > 0 else xp.min)(sums, axis=(rest,), keepdims=True)
        return best if keepdims else remove_axes(best, axes)
    if ord in (2, -2, "nuc"):
        values = svdvals(xp.moveaxis(a, axes, (-2, -1)))
        best = values if ord == "nuc" else (_largest if ord == 2 else xp.min)(values, axis=(-1,), keepdims=True)
        result = _zero_where_zero(best, best).sum(-1)
        return expand(result, sorted(axes)) if keepdims else result
    raise ValueError("Invalid norm order for matrices.")


_SCALES = {"f": (2.0**-40, 2.0**-90, 2.0**40, 2.0**80), "d": (2.0**-400, 2.0**-600, 2.0**400, 2.0**600)}
"""By dtype character: low threshold, its divisor, high threshold, its divisor.

A vector whose largest element is below the low threshold is divided by the first divisor before it is squared; above the high
threshold, by the second. They are powers of two, so that scaling rounds nothing and the squares that matter are normal
numbers.
"""


def euclidean(x: TracedArray) -> TracedArray:
    """Return the norm of a vector; it overflows and underflows only where the result does, as BLAS nrm2.

    The scale is a constant to derivatives, which are those of the norm of the scaled vector.
    """
    parts = [x.real, x.imag] if x.dtype.kind == "c" else [x]
    largest = xp.max(xp.abs(parts[0]))
    for part in parts[1:]:
        largest = xp.maximum(largest, xp.max(xp.abs(part)))
    dtype = real_dtype(x.dtype)
    low, down, high, up = (dtype.type(scale) for scale in _SCALES[dtype.char])
    is_low, is_high = largest < low, largest > high
    scale = xp.where(is_high, up, xp.where(is_low, down, dtype.type(1)))
    inverse = xp.where(is_high, 1 / up, xp.where(is_low, 1 / down, dtype.type(1)))
    scaled = [part * inverse for part in parts]
    result: TracedArray = xp.sqrt(sum(xp.sum(part * part) for part in scaled)) * scale
    return result


def _vector_norm(a: TracedArray, ord: Any, axes: Sequence[int], keepdims: bool) -> TracedArray:
    match ord:
        case None | 2:
            return xp.sqrt(xp.sum(_squares(a), axis=tuple(axes), keepdims=keepdims))
        case 0:
            return xp.sum(cast(a != 0, a.real.dtype), axis=tuple(axes), keepdims=keepdims)
        case 1:
            return xp.sum(xp.abs(a), axis=tuple(axes), keepdims=keepdims)
        case str():
            raise ValueError(f"Invalid norm order '{ord}' for vectors")
    if ord in (np.inf, -np.inf):
        return (_largest if ord > 0 else xp.min)(xp.abs(a), axis=tuple(axes), keepdims=keepdims)
    total = xp.sum(xp.abs(a) ** ord, axis=tuple(axes), keepdims=keepdims)
    return _zero_where_zero(total, total ** (1 / ord)) if ord > 0 else total ** (1 / ord)


def _initial_of_empty_norm() -> dict[str, float]:
    """Return NumPy's initial value for largest-element norms: 0 since NumPy 2.4; before, an empty axis is an error."""
    try:
        return {"initial": float(np.linalg.norm(np.zeros(0), np.inf))}
    except ValueError:
        return {}


_EMPTY_INITIAL = _initial_of_empty_norm()


def _largest(x: TracedArray, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Return the greatest elements along axes as norms take them; over an empty axis, NumPy's norm of an empty vector."""
    start = _EMPTY_INITIAL if math.prod(x.shape[k] for k in axis) == 0 else {}
    return xp.max(x, axis=axis, keepdims=keepdims, **start)


def _zero_where_zero(size: TracedArray, result: TracedArray) -> TracedArray:
    """Return ``result``, but 0 where ``size`` is 0, with derivatives of 0 there at every order."""
    return choose_where(size == 0, full(result.shape, 0, result.dtype), result)


@implements(np.linalg.vector_norm)
def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> TracedArray:
    a = as_traced(x)
    axes = axis_list(range(a.ndim) if axis is None else axis, a.ndim)
    kept = [k for k in range(a.ndim) if k not in axes]
    flat = reshaped(xp.transpose(a, (*axes, *kept)), (math.prod(a.shape[k] for k in axes), *(a.shape[k] for k in kept)))
    result = norm(flat, ord, axis=0)
    return expand(result, sorted(axes)) if keepdims else result


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> TracedArray:
    return norm(x, ord, axis=(-2, -1), keepdims=keepdims)


@implements(np.linalg.cond)
def cond(x: Any, p: Any = None) -> TracedArray:
    a = matrices_of(x)
    if 0 in a.shape[-2:]:
        raise LinAlgError("cond is not defined on empty arrays")
    if p in (None, 2, -2):
        values = svdvals(a)
        first, last = values[..., 0], values[..., -1]
        result = last / first if p == -2 else first / last
    else:
        square(a)
        dtype = result_dtype(a)
        inverse = unchecked_inverse(in_double(a, dtype))
        result = cast(norm(a, p, (-2, -1)) * norm(inverse, p, (-2, -1)), real_dtype(dtype))
    is_defined = ~xp.isnan(result) | xp.isnan(a).any(axis=(-2, -1))
    return choose_where(is_defined, result, full(result.shape, np.inf, result.dtype))
