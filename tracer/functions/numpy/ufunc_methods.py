"""``reduce``, ``accumulate`` and ``reduceat`` of ufuncs that have no reduction of their own.

Associative functions are reduced by a tree of log n steps; a difference or quotient by one sum or product; any other function
element by element, in unrolled steps.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size, most_of
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.arguments import NOVALUE, as_bool, axis_of, permute, positions, reduced_axes, reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, convert, copy_of, refuse_sequence, static_array, stored
from pullback.tracer.arrays.promotion import name_of
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError

MOST_STEPS = 256
"""The largest number of elements that are processed one by one, because each step is unrolled."""
ASSOCIATIVE = {
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot, np.gcd, np.lcm,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_and, np.logical_or, np.logical_xor,
}  # fmt: skip
_FROM_IDENTITY = (np.hypot, np.gcd)
"""Ufuncs whose reduction starts from the identity even for a single element: hypot(0, x) and gcd(0, x) are abs(x)."""
_INVERSE: dict[np.ufunc, np.ufunc] = {np.subtract: np.add, np.true_divide: np.multiply}


def _prepared(ufunc: np.ufunc, method: str, array: Any, dtype: Any) -> TracedArray:
    """Return the elements in the dtype that the loop takes and returns; as in NumPy, any cast to it is allowed.

    Raises NumPy's error for a dtype without such a loop.
    """
    if ufunc.nin != 2 or ufunc.nout != 1:
        kind = "functions returning a single value" if ufunc.nin == 2 else "binary functions"
        raise ValueError(f"{method} only supported for {kind}")
    x = as_traced(array)
    if not x.ndim and method != "reduce":
        raise TypeError(f"cannot {method} on a scalar")
    target = None if dtype is None else np.dtype(dtype)
    with np.errstate(all="ignore"):
        sample = np.ones((1,), x.dtype)
        outer = (
            ufunc.reduceat(sample, [0], 0, target) if method == "reduceat" else getattr(ufunc, method)(sample, 0, target)
        ).dtype
    if outer.kind == "b" and ufunc in ASSOCIATIVE:
        return as_bool(x)
    inner = promotion.loop(ufunc, (outer, outer), target)[0]
    if inner[0] != outer:
        raise TraceError(f"{name_of(ufunc)}.{method}, which gives {outer} of {inner[0]}, is not supported; write it with slices")
    return convert(x, outer)


def _folded(ufunc: np.ufunc, x: Any, mask: Any = None) -> Any:
    """Reduce along the first axis, which has at least one element. ``mask``: the elements to include, where the order matters."""
    n = x.shape[0]
    if is_value_size(n):
        return _scan_by_value(ufunc, x)[-1]
    if ufunc in _INVERSE:
        return x[0] if n == 1 else ufunc(x[0], _folded(_INVERSE[ufunc], x[1:]))
    if ufunc in ASSOCIATIVE:
        while n > 1:
            half = n // 2
            pairs = ufunc(x[:half], x[half : 2 * half])
            x = pairs if n % 2 == 0 else xp.concatenate([pairs, x[2 * half :]])
            n = x.shape[0]
        return x[0]
    _check_steps(ufunc, n)
    result = x[0]
    for k in range(1, n):
        result = ufunc(result, x[k]) if mask is None else xp.where(mask[k], ufunc(result, x[k]), result)
    return result


def _scan_by_value(ufunc: np.ufunc, rows: Any) -> Any:
    """Accumulate along the first axis, whose extent is by value."""
    index: Any = positions((rows.shape[0],), 0)
    aligned = reshaped(index, (rows.shape[0], *(1,) * (rows.ndim - 1)))
    if ufunc in _INVERSE:
        scan = xp.cumsum if ufunc is np.subtract else xp.cumprod
        first = xp.take(rows, xp.minimum(index, 0), axis=0)
        neutral = cast(as_traced(_INVERSE[ufunc].identity), rows.dtype)
        return xp.where(aligned > 0, ufunc(first, scan(xp.where(aligned > 0, rows, neutral), axis=0, dtype=rows.dtype)), first)
    if ufunc not in ASSOCIATIVE:
        raise TraceError(
            f"{name_of(ufunc)}.reduce and .accumulate over an axis whose length depends on values are not supported; "
            "write a formula"
        )
    step, most = 1, most_of(rows.shape[0])
    while step < most:
        before = xp.take(rows, xp.maximum(index - step, 0), axis=0)
        rows = cast(as_traced(xp.where(aligned >= step, ufunc(before, rows), rows)), rows.dtype)
        step *= 2
    return rows


def _check_steps(ufunc: np.ufunc, n: int) -> None:
    if n > MOST_STEPS:
        raise TraceError(
            f"{name_of(ufunc)}.reduce and .accumulate of traced arrays go through at most {MOST_STEPS} elements; write a formula"
        )


@hook("reduce")
def reduce(
    ufunc: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False,
    initial: Any = NOVALUE, where: Any = True,
) -> Any:  # fmt: skip
    x = _prepared(ufunc, "reduce", array, dtype)
    axes = reduced_axes(axis, x.ndim)
    if len(axes) > 1 and ufunc not in ASSOCIATIVE:
        raise ValueError(f"reduction operation '{ufunc.__name__}' is not reorderable, so at most one axis may be specified")
    start = _identity(ufunc, x.dtype) if initial is NOVALUE else initial
    refuse_sequence(start, x.dtype)
    mask = None if where is True else broadcast_to(as_bool(as_traced(where)), x.shape)
    if mask is not None:
        if start is None:
            raise ValueError(
                f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a where mask one has to specify "
                "'initial'"
            )
        if ufunc in ASSOCIATIVE or ufunc in _INVERSE:
            neutral = _identity(_INVERSE.get(ufunc, ufunc), x.dtype)
            x = cast(as_traced(xp.where(mask, x, _filled(start if neutral is None else neutral, x, x.shape))), x.dtype)
    kept = [k for k in range(x.ndim) if k not in axes]
    size = math.prod(x.shape[k] for k in axes)

    def as_rows(values: Any) -> Any:
        return reshaped(permute(values, (*axes, *kept)), (size, *(x.shape[k] for k in kept)))

    rows = as_rows(x)
    skipped = None if mask is None else as_rows(mask)
    is_empty = start is not None if is_value_size(size) else not size
    if (initial is not NOVALUE and initial is not None) or is_empty or ufunc in _FROM_IDENTITY or mask is not None:
        if start is None or initial is None:
            raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
        first = _filled(start, x, (1, *rows.shape[1:]))
        rows = xp.concatenate([first, rows])
        if skipped is not None:
            skipped = xp.concatenate([xp.ones(first.shape, bool), skipped])
    in_order = ufunc not in ASSOCIATIVE and ufunc not in _INVERSE
    result = cast(as_traced(_folded(ufunc, rows, skipped if in_order else None)), x.dtype)
    if skipped is not None and size:
        result = cast(as_traced(xp.where(xp.any(skipped[1:], axis=0), result, rows[0])), x.dtype)
    result = copy_of(result)
    return xp.expand_dims(result, axes) if keepdims else result


def _identity(ufunc: np.ufunc, dtype: Any) -> Any:
    """Return the identity of a ufunc as an element of ``dtype``; None if a reduction starts from the first element."""
    identity = ufunc.identity
    return None if identity is None else np.asarray(identity).astype(dtype)[()]


def _filled(value: Any, x: TracedArray, shape: tuple[int, ...]) -> TracedArray:
    element = stored(as_traced(value), x.dtype, is_item=True)
    return broadcast_to(reshaped(element, ()) if element.ndim else element, shape)


@hook("accumulated_axis")
def accumulated_axis(axis: Any, ndim: int) -> Any:
    """Return the one axis of an ``accumulate``; None stands for all axes. Raises ValueError for several."""
    axes = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    if len(axes) != 1:
        raise ValueError("accumulate does not allow multiple axes")
    return axes[0]


@hook("accumulate")
def accumulate(ufunc: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    source = as_traced(array)
    if not source.ndim:
        raise TypeError("cannot accumulate on a scalar")
    at = axis_of(accumulated_axis(axis, source.ndim), source.ndim)
    x = _prepared(ufunc, "accumulate", source, dtype)
    rows: Any = xp.moveaxis(x, at, 0)
    n = rows.shape[0]
    if is_value_size(n):
        return xp.moveaxis(_scan_by_value(ufunc, rows), 0, at)
    if n < 2:
        return xp.copy(x)
    if ufunc in _INVERSE:
        scan = xp.cumsum if ufunc is np.subtract else xp.cumprod
        rows = xp.concatenate([rows[:1], ufunc(rows[:1], scan(rows[1:], axis=0, dtype=x.dtype))])
    elif ufunc in ASSOCIATIVE:
        step = 1
        while step < n:
            rows = xp.concatenate([rows[:step], ufunc(rows[:-step], rows[step:])])
            step *= 2
    else:
        _check_steps(ufunc, n)
        results = [rows[0]]
        for k in range(1, n):
            results.append(ufunc(results[-1], rows[k]))
        rows = xp.stack(results)
    return xp.moveaxis(rows, 0, at)


@hook("reduceat")
def reduceat(ufunc: np.ufunc, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    starts = static_array(indices)
    if isinstance(starts, TracedArray):
        raise TraceError(
            f"{name_of(ufunc)}.reduceat at traced positions is not supported; give known ones, or use np.add.at on a new array"
        )
    source = as_traced(array)
    if not source.ndim:
        raise TypeError("cannot reduceat on a scalar")
    at = axis_of(accumulated_axis(axis, source.ndim), source.ndim)
    n = source.shape[at]
    offsets = [operator.index(k) for k in np.asarray(starts).ravel()]
    for k in offsets:
        if not 0 <= k < n:
            raise IndexError(f"index {k} out-of-bounds in {ufunc.__name__}.reduceat [0, {n})")
    x: Any = _prepared(ufunc, "reduceat", source, dtype)
    rows = xp.moveaxis(x, at, 0)
    if ufunc is np.add and offsets == sorted(set(offsets)) and offsets:
        owner = np.searchsorted(offsets, lifted(np.arange, offsets[0], n), side="right") - 1
        sums = xp.zeros((len(offsets), *rows.shape[1:]), dtype=rows.dtype, like=x)
        np.add.at(sums, owner, rows[offsets[0] :])
        return xp.moveaxis(sums, 0, at)
    ends = [*offsets[1:], n]
    parts = [_folded(ufunc, rows[i : max(j, i + 1)]) for i, j in zip(offsets, ends)]
    result = xp.stack(parts) if parts else rows[:0]
    return xp.moveaxis(result, 0, at)
