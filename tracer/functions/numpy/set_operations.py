"""unique and the set operations of ``numpy/lib/_arraysetops_impl.py``, and trim_zeros.

All elements are sorted, stably, and a mask selects the first of each run of equal ones; the number of runs is an extent by
value. The derivative of a result goes to the first occurrence of each value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib import _arraysetops_impl

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.arguments import axis_list, axis_of, existing, positions, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full, number_of_extent, promote
from pullback.tracer.arrays.masked import Selection, counted
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.searchsorted import padded
from pullback.tracer.functions.numpy.sorting import permutation

# runs of equal elements


def _flat(a: Any) -> TracedArray:
    x = as_traced(a)
    x = cast(x, x.dtype)
    return reshaped(x, (x.size,))


def _shifted(x: Any, by: int) -> Any:
    """Return the element ``by`` positions further along the first axis at each position, clipped to the array."""
    index: Any = positions((x.shape[0],), 0) + by
    return xp.take(x, xp.maximum(index, 0) if by < 0 else xp.minimum(index, number_of_extent(x.shape[0]) - 1), axis=0)


def _equal(x: Any, y: Any, equal_nan: bool) -> Any:
    """Return whether elements are equal. ``equal_nan``: numbers with a NaN part are, too."""
    equal = x == y
    return equal | (xp.isnan(x) & xp.isnan(y)) if equal_nan and x.dtype.kind in "fc" else equal


def _starts(ordered: Any, equal_nan: bool) -> Any:
    """Return where runs of equal elements start in a sorted vector, or in each column of a sorted matrix."""
    is_first = positions(ordered.shape, 0) == 0
    return is_first | ~_equal(ordered, _shifted(ordered, -1), equal_nan)


def _sorted(x: TracedArray) -> tuple[Any, Any]:
    """Return a vector in ascending order, and the permutation that sorts it stably."""
    order = permutation(x, 0)
    return xp.take(x, order), order


def _selected(values: Any, mask: Any, axis: int, name: str) -> Any:
    return counted(Selection(as_traced(values), as_traced(mask), axis, f"np.{name} of a traced array"))


def _elements(x: Any) -> Any:
    return x.elements() if isinstance(x, Selection) else x


def _run_lengths(starts: Any) -> Any:
    """Return the lengths of the runs that start where a mask holds."""
    first = as_traced(_elements(_selected(positions(starts.shape, 0), starts, 0, "unique")))
    count, last = number_of_extent(starts.shape[0]), number_of_extent(first.shape[0]) - 1
    is_last = positions(first.shape, 0) == last
    return xp.where(is_last, count, _shifted(first, 1)) - first


def _ranks(starts: Any, order: Any) -> Any:
    """Return the index of each element's run, in the order before sorting along the first axis."""
    rank = xp.cumsum(starts, axis=0) - 1
    index = [order] + [positions(order.shape, k) for k in range(1, order.ndim)]
    return emit("scatter_set", full(order.shape, 0, np.int64), *index, rank, axes=tuple(range(order.ndim)))


# unique


@implements(np.unique)
def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: Any = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    x = as_traced(ar)
    at = 0 if axis is None else axis_of(axis, x.ndim)
    wanted = (return_index, return_inverse, return_counts)
    if axis is not None and x.ndim > 1:
        return _unique_parts(x, at, wanted)
    shape, x = x.shape, _flat(x)
    if not any(wanted):
        ordered = xp.sort(x)
        return _selected(ordered, _starts(ordered, equal_nan), 0, "unique")
    ordered, order = _sorted(x)
    starts = _starts(ordered, equal_nan)
    inverse = xp.reshape(_ranks(starts, order), shape) if return_inverse else None
    return _results(_selected(ordered, starts, 0, "unique"), starts, order, inverse, wanted)


def _results(values: Any, starts: Any, order: Any, inverse: Any, wanted: tuple[bool, bool, bool]) -> Any:
    """Return the values with the wanted ones of the indices, the inverse and the counts."""
    if not any(wanted):
        return values
    return_index, return_inverse, return_counts = wanted
    results = [_elements(values)]
    if return_index:
        results.append(_elements(_selected(order, starts, 0, "unique")))
    if return_inverse:
        results.append(inverse)
    if return_counts:
        results.append(_run_lengths(starts))
    return tuple(results)


def _unique_parts(x: TracedArray, at: int, wanted: tuple[bool, bool, bool]) -> Any:
    """Return the distinct parts along an axis in lexicographic order; one that holds a NaN equals no other."""
    parts = xp.moveaxis(x, at, 0)
    n, width = parts.shape[0], x.size // max(x.shape[at], 1) if not is_value_size(x.size) else _width(x.shape, at)
    rows = reshaped(parts, (n, width))
    order = permutation(_row_ranks(rows), 0)
    ordered = xp.take(rows, order, axis=0)
    is_same = xp.all(ordered == _shifted(ordered, -1), axis=1)
    starts = (positions((n,), 0) == 0) | ~is_same
    inverse = _ranks(starts, order) if wanted[1] else None
    return _results(_selected(xp.take(x, order, axis=at), starts, at, "unique"), starts, order, inverse, wanted)


def _width(shape: tuple[int, ...], at: int) -> Any:
    return np.prod([1, *(n for k, n in enumerate(shape) if k != at)])


def _row_ranks(rows: Any) -> TracedArray:
    """Return a number for each row of a matrix that orders the rows lexicographically; NaN is last, and equals NaN.

    The columns' elements are replaced by their ranks; then pairs of neighbouring columns become one, by the ranks of the pairs.
    """
    n, width = rows.shape
    if not width:
        return full((n,), 0, np.int64)
    ranks = _column_ranks(rows)
    while ranks.shape[1] > 1:
        width = ranks.shape[1]
        pairs = ranks[:, 0 : width - 1 : 2] * number_of_extent(n) + ranks[:, 1::2]
        paired = _column_ranks(pairs)
        ranks = xp.concatenate([paired, ranks[:, width - 1 :]], axis=1) if width % 2 else paired
    return xp.reshape(ranks, (n,))


def _column_ranks(columns: Any) -> Any:
    """Return the rank of each element among the distinct ones of its column, where NaN equals NaN."""
    order = permutation(as_traced(columns), 0)
    ordered = xp.take_along_axis(columns, order, axis=0)
    before = _shifted(ordered, -1)
    if ordered.dtype.kind == "c":
        same = _equal(xp.real(ordered), xp.real(before), True) & _equal(xp.imag(ordered), xp.imag(before), True)
    else:
        same = _equal(ordered, before, True)
    return _ranks((positions(ordered.shape, 0) == 0) | ~same, order)


@implements(*existing("unique_values"))
def unique_values(x: Any, /) -> Any:
    return unique(x, equal_nan=False)


@implements(*existing("unique_counts"))
def unique_counts(x: Any, /) -> Any:
    return _RESULTS.UniqueCountsResult(*unique(x, return_counts=True, equal_nan=False))


@implements(*existing("unique_inverse"))
def unique_inverse(x: Any, /) -> Any:
    return _RESULTS.UniqueInverseResult(*unique(x, return_inverse=True, equal_nan=False))


@implements(*existing("unique_all"))
def unique_all(x: Any, /) -> Any:
    return _RESULTS.UniqueAllResult(*unique(x, True, True, True, equal_nan=False))


_RESULTS: Any = _arraysetops_impl
"""The module of the classes of named results."""

# set operations


@implements(np.union1d)
def union1d(ar1: Any, ar2: Any) -> Any:
    return unique(xp.concatenate((ar1, ar2), axis=None))


@implements(np.intersect1d)
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    x, y = promote(_flat(ar1), _flat(ar2))
    ordered, order = _sorted(x)
    mask = xp.isin(ordered, y)
    if not assume_unique:
        mask = mask & _starts(ordered, True)
    values = _selected(ordered, mask, 0, "intersect1d")
    if not return_indices:
        return values
    others, other_order = _sorted(y)
    at = xp.take(padded(other_order), xp.searchsorted(others, ordered))
    return tuple(_elements(_selected(v, mask, 0, "intersect1d")) for v in (ordered, order, at))


@implements(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    x, y = _flat(ar1), _flat(ar2)
    if not assume_unique:
        x = xp.sort(x)
    mask = xp.isin(x, y, invert=True)
    return _selected(x, mask if assume_unique else mask & _starts(x, True), 0, "setdiff1d")


@implements(np.setxor1d)
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    x, y = promote(_flat(ar1), _flat(ar2))
    if assume_unique:
        ordered = xp.sort(xp.concatenate([x, y]))
        starts = _starts(ordered, False)
        is_last = positions(starts.shape, 0) == number_of_extent(starts.shape[0]) - 1
        return _selected(ordered, starts & (is_last | _shifted(starts, 1)), 0, "setxor1d")
    x, y = xp.sort(x), xp.sort(y)
    masks = [_starts(a, True) & xp.isin(a, b, invert=True) for a, b in ((x, y), (y, x))]
    ordered, order = _sorted(as_traced(xp.concatenate([x, y])))
    return _selected(ordered, xp.take(xp.concatenate(masks), order), 0, "setxor1d")


# trimming


@implements(np.trim_zeros)
def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """Return the part between the first and the last non-zero elements along each axis, as a view."""
    x = as_traced(filt)
    trim = trim.lower()
    if trim not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = range(x.ndim) if axis is None else axis_list(axis, x.ndim, "axis")
    if not axes:
        return filt
    nonzero = x != 0
    key = [slice(None)] * x.ndim
    for k in axes:
        line = xp.any(nonzero, axis=tuple(j for j in range(x.ndim) if j != k))
        index: Any = positions(line.shape, 0)
        stop = xp.max(xp.where(line, index + 1, 0), initial=0)
        start = xp.min(xp.where(line, index, stop), initial=np.iinfo(np.int64).max)
        start = xp.minimum(start, stop)
        key[k] = slice(start if "f" in trim else None, stop if "b" in trim else None)
    if "b" not in trim or "f" not in trim:
        key = _of_all_zeros(key, xp.any(nonzero), x.shape)
    return x[tuple(key)]


def _of_all_zeros(key: list[Any], is_some: Any, shape: tuple[int, ...]) -> list[Any]:
    """Return a key whose slices are empty where no element is non-zero."""
    full_slice = slice(None)
    return [
        item
        if item == full_slice
        else slice(item.start, xp.where(is_some, number_of_extent(n), 0) if item.stop is None else item.stop)
        for item, n in zip(key, shape, strict=True)
    ]
