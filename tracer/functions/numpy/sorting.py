"""sort, argsort, partition and lexsort.

A partition is a full sort. Sorts are stable, NaN is last, and the derivative of a sorted array goes to the elements it came
from.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.ops.library.sort import SORTABLE
from pullback.ir.shapes.by_value import is_value_size, known_less
from pullback.tracer.arrays.arguments import axis_of, permute, reshaped, xp
from pullback.tracer.arrays.make import (
    as_traced,
    cast,
    conform,
    emit,
    fresh,
    full,
    holds_traced,
    number_of_extent,
    static_ints,
)
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.views import update

_KINDS = (None, "quicksort", "heapsort", "mergesort", "stable", "quick", "heap", "merge", "q", "h", "m", "s")


def _sortable(x: TracedArray) -> TracedArray:
    """Convert to a dtype that the sort ops support and that keeps the order."""
    if x.type.dtype in SORTABLE:
        return cast(x, x.dtype)
    return cast(x, np.uint8 if x.dtype == np.bool_ else np.float32)


def _along(op: str, x: TracedArray, axis: int) -> TracedArray:
    perm = [*(k for k in range(x.ndim) if k != axis), axis]
    back = sorted(range(x.ndim), key=perm.__getitem__)
    result: TracedArray = emit(op, permute(_sortable(x), perm))
    return permute(result, back)


def permutation(x: TracedArray, axis: int) -> TracedArray:
    """Return the permutation that sorts along an axis, stably.

    Complex numbers are ordered by their real parts, then the imaginary ones; numbers with a NaN part come last.
    """
    if x.dtype.kind != "c":
        return _along("argsort", x, axis)
    real, imag = xp.real(x), xp.imag(x)
    has_nan = cast(xp.isnan(real), np.uint8) * np.uint8(2) + cast(xp.isnan(imag), np.uint8)
    return _by_keys([imag, real, has_nan], axis)


def _by_keys(keys: list[Any], axis: int) -> TracedArray:
    """Return the order by the last key, ties by the one before it, and so on."""
    order = permutation(keys[0], axis)
    for key in keys[1:]:
        order = xp.take_along_axis(order, permutation(xp.take_along_axis(key, order, axis=axis), axis), axis=axis)
    return order


def _prepared(name: str, a: Any, axis: Any, kind: Any, order: Any, stable: Any) -> tuple[TracedArray, int]:
    if order is not None:
        raise ValueError("Cannot specify order when the array has no fields.")
    if kind is not None and stable is not None:
        raise ValueError("`kind` and `stable` parameters can't be provided at the same time. Use only one of them.")
    if kind not in _KINDS:
        raise ValueError(f"sort kind must be one of 'quick', 'heap', or 'stable' (got {kind!r})")
    x = as_traced(a)
    if axis is None:
        return reshaped(x, (x.size,)), 0
    return x, axis_of(axis, x.ndim)


@implements(np.argsort)
def argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x = as_traced(a)
    if not x.ndim and axis in (0, -1):
        x = reshaped(x, (1,))
    return permutation(*_prepared("argsort", x, axis, kind, order, stable))


@implements(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    x, at = _prepared("sort", a, axis, kind, order, stable)
    if known_less(x.shape[at], 2):
        return fresh(x)
    if x.dtype.kind == "c":
        return xp.take_along_axis(x, permutation(x, at), axis=at)
    return cast(_along("sort", x, at), x.dtype)


@implements(np.sort_complex)
def sort_complex(a: Any) -> Any:
    result = sort(a)
    if result.dtype.kind == "c":
        return result
    return cast(result, np.complex64 if result.dtype.char in "bhBH" else np.complex128)


def _check_kth(kth: Any, kind: str, count: int) -> None:
    """Raise ValueError as NumPy does for an invalid ``kth`` or ``kind``."""
    if kind != "introselect":
        raise ValueError(f"select kind must be 'introselect' (got {kind!r})")
    kth = static_ints(kth)
    if holds_traced(kth):
        k, most = as_traced(kth), as_traced(number_of_extent(count))
        if k.dtype.kind not in "iu":
            raise TypeError("Partition index must be integer")
        emit("check", as_traced(xp.all((k >= -most) & (k < most))), error="ValueError", message="kth out of bounds")
        return
    for k in np.atleast_1d(np.asarray(kth)).ravel():
        if is_value_size(count):
            size: Any = number_of_extent(count)
            fits = (size == 0) | (size >= (int(k) + 1 if k >= 0 else -int(k)))
            emit("check", as_traced(fits), error="ValueError", message=f"kth(={k}) out of bounds")
        elif not -count <= k < count:
            raise ValueError(f"kth(={k}) out of bounds ({count})")


@implements(np.partition)
def partition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    """Return the sorted array, which satisfies every partition."""
    x, at = _prepared("partition", a, axis, None, order, None)
    if x.size:
        _check_kth(kth, kind, x.shape[at])
    return sort(x, at)


@implements(np.argpartition)
def argpartition(a: Any, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    x, at = _prepared("argpartition", a, axis, None, order, None)
    if x.size:
        _check_kth(kth, kind, x.shape[at])
    return argsort(x, at)


@implements(np.lexsort)
def lexsort(keys: Any, axis: Any = -1) -> Any:
    """Return the order by the last key, ties by the one before it, and so on."""
    columns = [as_traced(k) for k in keys]
    if not columns:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    columns = [conform(k, columns[0].shape, "all keys need to be the same shape") for k in columns]
    if not columns[0].ndim:
        return full((), 0, np.int64)
    at = axis_of(axis, columns[0].ndim)
    return _by_keys(columns, at)


@register_method("argsort")
def argsort_method(a: TracedArray, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
    return argsort(a, axis, kind, order, stable=stable)


@register_method("argpartition")
def argpartition_method(a: TracedArray, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
    return argpartition(a, kth, axis, kind, order)


@register_method("sort")
def sort_method(a: TracedArray, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
    update(a, sort(a, axis, kind, order, stable=stable))


@register_method("partition")
def partition_method(a: TracedArray, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> None:
    update(a, partition(a, kth, axis, kind, order))
