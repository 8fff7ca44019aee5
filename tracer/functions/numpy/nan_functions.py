"""Reductions that skip NaNs, after ``numpy/lib/_nanfunctions_impl.py``, without its warnings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import NOVALUE, as_bool, as_number, choose_where, is_scalars_axis, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, emit, full
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray


def _filled(a: Any, value: float, where: Any = True) -> tuple[TracedArray, Any]:
    """Return the array with NaNs replaced by ``value``, and the mask of its numbers; None instead for integers without a
    ``where`` mask."""
    x = as_traced(a)
    has_mask = where is not True and where is not NOVALUE
    if x.dtype.kind not in "fc" and not has_mask:
        return x, None
    keep = x == x
    if has_mask:
        keep = keep & broadcast_to(as_bool(as_traced(where)), x.shape)
    return choose_where(keep, x, full(x.shape, value, x.dtype)), keep


@implements(np.nansum)
def nansum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NOVALUE,
           where: Any = True) -> Any:  # fmt: skip
    return xp.sum(_filled(a, 0)[0], axis=axis, dtype=dtype, out=out, keepdims=keepdims, initial=initial, where=where)


@implements(np.nanprod)
def nanprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NOVALUE,
            where: Any = True) -> Any:  # fmt: skip
    return xp.prod(_filled(a, 1)[0], axis=axis, dtype=dtype, out=out, keepdims=keepdims, initial=initial, where=where)


@implements(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return xp.cumsum(_filled(a, 0)[0], axis=axis, dtype=dtype, out=out)


@implements(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    return xp.cumprod(_filled(a, 1)[0], axis=axis, dtype=dtype, out=out)


@implements(np.nanmean)
def nanmean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, *, where: Any = True) -> Any:
    x, keep = _filled(a, 0, where)
    if keep is None:
        return xp.mean(x, axis=axis, dtype=dtype, out=out, keepdims=keepdims)
    axis = () if is_scalars_axis(axis, x.ndim) else axis
    return xp.mean(x, axis=axis, dtype=dtype, out=out, keepdims=keepdims, where=keep)


@implements(np.nanvar)
def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *, where: Any = True,
    mean: Any = NOVALUE, correction: Any = NOVALUE,
) -> Any:  # fmt: skip
    x, keep = _filled(a, 0, where)
    options = {"mean": mean, "correction": correction}
    if keep is None:
        return xp.var(x, axis=axis, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims, **options)
    axis = () if is_scalars_axis(axis, x.ndim) else axis
    variance = xp.var(x, axis=axis, dtype=dtype, out=out, ddof=ddof, keepdims=keepdims, where=keep, **options)
    count = xp.sum(keep, axis=axis, keepdims=keepdims)
    free = count - (ddof if correction is NOVALUE else correction)
    return _or_nan(free > 0, variance)


@implements(np.nanstd)
def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False, *, where: Any = True,
    mean: Any = NOVALUE, correction: Any = NOVALUE,
) -> Any:  # fmt: skip
    return xp.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where=where, mean=mean, correction=correction))


def _or_nan(condition: Any, x: Any) -> Any:
    """Return ``x`` where the condition holds, else NaN; a scalar, not an array, if ``x`` is one."""
    chosen = xp.where(condition, x, cast(as_traced(math.nan), x.dtype))
    return chosen if x.is_cell else as_number(chosen)


def _extreme(name: str, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    low = -math.inf if name == "max" else math.inf
    x, keep = _filled(a, low)
    result = getattr(np, name)(x, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)
    if keep is None:
        return result
    if where is not True and where is not NOVALUE:
        keep = keep & broadcast_to(as_bool(as_traced(where)), x.shape)
    has_number = xp.any(keep, axis=axis, keepdims=keepdims) | (initial is not NOVALUE)
    return _or_nan(has_number, result)


@implements(np.nanmax)
def nanmax(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NOVALUE, where: Any = True) -> Any:
    return _extreme("max", a, axis, out, keepdims, initial, where)


@implements(np.nanmin)
def nanmin(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, initial: Any = NOVALUE, where: Any = True) -> Any:
    return _extreme("min", a, axis, out, keepdims, initial, where)


def _position(name: str, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    x, keep = _filled(a, -math.inf if name == "argmax" else math.inf)
    if keep is not None:
        emit("check", as_traced(xp.all(xp.any(keep, axis=axis))), error="ValueError", message="All-NaN slice encountered")
    return getattr(np, name)(x, axis=axis, keepdims=keepdims)


@implements(np.nanargmax)
def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return _position("argmax", a, axis, out, keepdims)


@implements(np.nanargmin)
def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = False) -> Any:
    return _position("argmin", a, axis, out, keepdims)
