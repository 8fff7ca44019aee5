"""``reduce``, ``accumulate`` and ``reduceat`` of ufuncs that have no reduction of their own.

Those of associative functions are trees of log n steps; a difference or a quotient is one of a sum or a product; any other goes
element by element, which is written out.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from pullback.ir.sizes import lifted
from pullback.tracer import promotion
from pullback.tracer.array import as_traced, broadcast_to, cast, full, static_array
from pullback.tracer.errors import TraceError
from pullback.tracer.functions.common import NOVALUE, as_bool, axis_of, permute, reduced_axes, reshaped, xp
from pullback.tracer.promotion import name_of
from pullback.tracer.tables import hook
from pullback.tracer.traced import TracedArray

MOST_STEPS = 256
"""So many elements, at most, are gone through one by one."""
ASSOCIATIVE = {
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.logaddexp, np.logaddexp2, np.hypot, np.gcd, np.lcm,
    np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.logical_and, np.logical_or, np.logical_xor,
}  # fmt: skip
_INVERSE: dict[np.ufunc, np.ufunc] = {np.subtract: np.add, np.true_divide: np.multiply}


def _prepared(ufunc: np.ufunc, array: Any, dtype: Any) -> TracedArray:
    """The elements in the dtype that the loop takes and gives."""
    if ufunc.nin != 2 or ufunc.nout != 1:
        kind = "functions returning a single value" if ufunc.nin == 2 else "binary functions"
        raise ValueError(f"reduce only supported for {kind}")
    x = as_traced(array)
    inner, (outer,) = promotion.loop(ufunc, (x.dtype, x.dtype), None if dtype is None else np.dtype(dtype))
    if outer.kind == "b" and inner[0].kind != "b" and ufunc in ASSOCIATIVE:
        return as_bool(x)
    if inner[0] != outer:
        raise TraceError(f"{name_of(ufunc)}.reduce, which gives {outer} of {inner[0]}, is not supported; write it with slices")
    return cast(x, outer)


def _folded(ufunc: np.ufunc, x: Any) -> Any:
    """Along the first axis, of at least one element."""
    n = x.shape[0]
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
    found = x[0]
    for k in range(1, n):
        found = ufunc(found, x[k])
    return found


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
    x = _prepared(ufunc, array, dtype)
    axes = reduced_axes(axis, x.ndim)
    if len(axes) > 1 and ufunc not in ASSOCIATIVE:
        raise ValueError(f"reduction operation '{ufunc.__name__}' is not reorderable, so at most one axis may be specified")
    start = ufunc.identity if initial is NOVALUE else initial
    if where is not True:
        if start is None:
            raise ValueError(
                f"reduction operation '{ufunc.__name__}' does not have an identity, so to use a where mask one has to specify "
                "'initial'"
            )
        x = cast(as_traced(xp.where(broadcast_to(as_bool(as_traced(where)), x.shape), x, _filled(start, x, x.shape))), x.dtype)
    kept = [k for k in range(x.ndim) if k not in axes]
    size = math.prod(x.shape[k] for k in axes)
    rows: Any = reshaped(permute(x, (*axes, *kept)), (size, *(x.shape[k] for k in kept)))
    if (initial is not NOVALUE and initial is not None) or not size:
        if start is None or initial is None:
            raise ValueError(f"zero-size array to reduction operation {ufunc.__name__} which has no identity")
        rows = xp.concatenate([_filled(start, x, (1, *rows.shape[1:])), rows])
    found = cast(as_traced(_folded(ufunc, rows)), x.dtype)
    return xp.expand_dims(found, axes) if keepdims else found


def _filled(value: Any, x: TracedArray, shape: tuple[int, ...]) -> TracedArray:
    return full(shape, value, x.dtype) if not isinstance(value, TracedArray) else broadcast_to(cast(value, x.dtype), shape)


@hook("accumulate")
def accumulate(ufunc: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    x = _prepared(ufunc, array, dtype)
    if not x.ndim:
        raise TypeError("cannot accumulate on a scalar")
    at = axis_of(axis, x.ndim)
    rows: Any = xp.moveaxis(x, at, 0)
    n = rows.shape[0]
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
        found = [rows[0]]
        for k in range(1, n):
            found.append(ufunc(found[-1], rows[k]))
        rows = xp.stack(found)
    return xp.moveaxis(rows, 0, at)


@hook("reduceat")
def reduceat(ufunc: np.ufunc, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    starts = static_array(indices)
    if isinstance(starts, TracedArray):
        raise TraceError(
            f"{name_of(ufunc)}.reduceat at traced positions is not supported; give known ones, or use np.add.at on a new array"
        )
    x: Any = as_traced(array)
    if ufunc in (np.add, np.multiply) and dtype is None and x.dtype.kind in "biu":
        x = cast(x, np.result_type(x.dtype, np.uint64 if x.dtype.kind == "u" else np.int64))
    x = _prepared(ufunc, x, dtype)
    at = axis_of(axis, x.ndim)
    rows = xp.moveaxis(x, at, 0)
    n = rows.shape[0]
    places = [operator.index(k) for k in np.asarray(starts).ravel()]
    for k in places:
        if not 0 <= k < n:
            raise IndexError(f"index {k} out-of-bounds in {ufunc.__name__}.reduceat [0, {n})")
    if ufunc is np.add and places == sorted(set(places)) and places:
        owner = np.searchsorted(places, lifted(np.arange, places[0], n), side="right") - 1
        sums = xp.zeros((len(places), *rows.shape[1:]), dtype=rows.dtype, like=x)
        np.add.at(sums, owner, rows[places[0] :])
        return xp.moveaxis(sums, 0, at)
    ends = [*places[1:], n]
    parts = [_folded(ufunc, rows[i : max(j, i + 1)]) for i, j in zip(places, ends)]
    found = xp.stack(parts) if parts else rows[:0]
    return xp.moveaxis(found, 0, at)
