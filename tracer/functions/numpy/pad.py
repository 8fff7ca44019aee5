"""numpy.pad: constants by the ``pad`` op; modes that repeat elements by slices, flips and a concatenation; the other modes by
what NumPy computes along an axis (``numpy/lib/_arraypad_impl.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import holds_value_size, is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import as_array, axis_of, part, positions, remove_axes, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_to,
    cast,
    emit,
    extent_of,
    holds_traced,
    number_of_extent,
    stored,
    wrapping,
)
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_least, is_computed, value_extent
from pullback.tracer.functions.numpy.shape import copy, joined
from pullback.tracer.user_code.errors import TraceError


def _pairs(value: Any, rank: int, name: str) -> list[tuple[Any, Any]]:
    """Return a (before, after) pair for each axis from any of the forms that numpy.pad accepts."""
    if isinstance(value, dict):
        pairs: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, entry in value.items():
            pairs[axis_of(axis, rank)] = _pairs(entry, 1, name)[0]
        return pairs
    if isinstance(value, TracedArray) and value.ndim == 0:
        return [(value, value)] * rank
    if isinstance(value, list | tuple) and holds_traced(value):
        rows = [v if isinstance(v, list | tuple) else (v,) for v in value]
        rows = [tuple(value)] if all(len(r) == 1 for r in rows) else rows
        pairs = [(r[0], r[-1]) for r in rows]
        return pairs * rank if len(pairs) == 1 else pairs
    entries = value if isinstance(value, TracedArray) else lifted(np.asarray, value)
    if entries.ndim > 2:
        raise ValueError(f"numpy.pad: {name} has too many dimensions")
    broadcast: Any = np.broadcast_to(entries, (rank, 2))
    return [(broadcast[k, 0], broadcast[k, 1]) for k in range(rank)]


def _runs(order: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    """Split a list of positions into runs (start, count, step) of step 1, -1 or 0."""
    runs: list[tuple[int, int, int]] = []
    k = 0
    while k < len(order):
        step = int(order[k + 1] - order[k]) if k + 1 < len(order) else 1
        step = step if step in (-1, 0, 1) else 1
        count = 1
        while k + count < len(order) and order[k + count] - order[k + count - 1] == step:
            count += 1
        runs.append((int(order[k]), count, step))
        k += count
    return runs


def _extended(x: TracedArray, axis: int, width: tuple[int, int], order: np.ndarray[Any, Any]) -> TracedArray:
    """Return an array with elements before and after it, as a concatenation; ``order``: the positions of all elements."""
    low, last = width[0], width[0] + x.shape[axis]
    return joined([*_selected(x, axis, order[:low]), x, *_selected(x, axis, order[last:])], axis)


def _selected(x: TracedArray, axis: int, order: np.ndarray[Any, Any]) -> list[TracedArray]:
    """Return the elements at static positions along an axis, as slices."""
    parts: list[TracedArray] = []
    for start, count, step in _runs(order):
        if step:
            parts.append(part(x, axis, start, count, step))
            continue
        element = remove_axes(part(x, axis, start, 1), (axis,))
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        parts.append(emit("broadcast", element, axes=(axis,), shape=shape))
    return parts


def _constant_pad(x: TracedArray, widths: Sequence[tuple[int, int]], values: Any) -> TracedArray:
    values = 0 if values is None else values
    if not isinstance(values, TracedArray | dict) and np.ndim(values) == 0 and values == 0:
        start = tuple(low for low, _ in widths)
        shape = tuple(low + n + high for n, (low, high) in zip(x.shape, widths, strict=True))
        return emit("pad", x, start=start, step=(1,) * x.ndim, shape=shape)
    for axis, ((low, high), ends) in enumerate(zip(widths, _pairs(values, x.ndim, "constant_values"), strict=True)):
        blocks = [x]
        for count, value, index in ((low, ends[0], 0), (high, ends[1], 2)):
            if is_value_size(count) or count:
                shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
                blocks.insert(index, broadcast_to(stored(wrapping(as_traced(value)), x.dtype, is_item=True), shape))
        x = joined(blocks, axis)
    return x


_KEYWORDS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",), "empty": (), "edge": (), "wrap": (), "linear_ramp": ("end_values",),
    "maximum": ("stat_length",), "mean": ("stat_length",), "median": ("stat_length",), "minimum": ("stat_length",),
    "reflect": ("reflect_type",), "symmetric": ("reflect_type",),
}  # fmt: skip


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> TracedArray:
    return as_array(_padded(as_traced(array), pad_width, mode, kwargs))


def _padded(x: TracedArray, pad_width: Any, mode: Any, kwargs: dict[str, Any]) -> TracedArray:
    pairs = _pairs(pad_width, x.ndim, "pad_width")
    widths: Any = [[_width(w) for w in pair] for pair in pairs]
    by_value = holds_value_size(x.shape) or any(map(holds_value_size, widths))
    if any(not is_value_size(w) and w < 0 for pair in widths for w in pair):
        raise ValueError("index can't contain negative values")
    if callable(mode):
        return _by_function(x, widths, mode, kwargs)
    if mode not in _KEYWORDS:
        raise ValueError(f"mode '{mode}' is not supported")
    unknown = set(kwargs) - set(_KEYWORDS[mode])
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {unknown}")
    if mode == "constant":
        _pairs(kwargs.get("constant_values", 0), x.ndim, "constant_values")  # raises NumPy's error
    if all(not is_value_size(w) and w == 0 for pair in widths for w in pair):
        return copy(x)
    if mode in ("constant", "empty"):
        return _constant_pad(x, widths, kwargs.get("constant_values", 0))
    if by_value:
        return _padded_by_value(x, widths, mode, kwargs)
    if not x.size:
        for axis, width in enumerate(widths):
            if not x.shape[axis] and any(width):
                raise ValueError(f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
        return _constant_pad(x, widths, 0)
    if mode == "linear_ramp":
        return _ramps(x, widths, kwargs.get("end_values", 0))
    if mode in _STATISTICS:
        return _statistics(x, widths, _STATISTICS[mode], kwargs.get("stat_length"))
    is_odd = kwargs.get("reflect_type", "even") == "odd"
    for axis, (low, high) in enumerate(widths):
        if low or high:
            chosen = _extended(x, axis, (low, high), xp.pad(lifted(np.arange, x.shape[axis]), (low, high), mode=mode))
            x = _odd(x, chosen, axis, (low, high), mode) if is_odd and x.shape[axis] > 1 else chosen
    return x


def _width(width: Any) -> int:
    return value_extent(width, message="index can't contain negative values") if is_computed(width) else extent_of(width)


def _padded_by_value(x: TracedArray, widths: Sequence[tuple[int, int]], mode: str, kwargs: dict[str, Any]) -> TracedArray:
    """Pad an array whose extents, or the widths, are by value."""
    for axis, (low, high) in enumerate(widths):
        if is_value_size(low) or is_value_size(high) or low or high:
            check_least(x.shape[axis], 1, f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'")
    if mode == "linear_ramp":
        return _ramps(x, widths, kwargs.get("end_values", 0))
    if mode in _STATISTICS and kwargs.get("stat_length") is None:
        return _statistics(x, widths, _STATISTICS[mode], None)
    if mode in _STATISTICS or kwargs.get("reflect_type", "even") == "odd":
        name = "stat_length" if mode in _STATISTICS else "reflect_type"
        raise TraceError(f"np.pad with {name}= of an array or by a width whose length depends on values is not supported")
    for axis, (low, high) in enumerate(widths):
        n, total = number_of_extent(x.shape[axis]), low + x.shape[axis] + high
        x = as_traced(xp.take(x, _source(positions((total,), 0) - number_of_extent(low), n, mode), axis=axis))
    return x


def _source(index: Any, n: Any, mode: str) -> Any:
    """Return the position among ``n`` elements that a mode repeats at an index, which is negative before the first element."""
    if mode == "edge":
        return xp.minimum(xp.maximum(index, 0), n - 1)
    if mode == "wrap":
        return index % n
    if mode == "symmetric":
        index = index % (2 * n)
        return xp.minimum(index, 2 * n - 1 - index)
    period = xp.maximum(2 * (n - 1), 1)
    index = index % period
    return xp.minimum(index, xp.maximum(period - index, 0)) if mode == "reflect" else index


def _by_function(x: TracedArray, widths: Sequence[tuple[int, int]], function: Any, kwargs: dict[str, Any]) -> TracedArray:
    """Replace each vector along each axis by the result of the user's function, called with vector, widths, axis and keywords."""

    def changed(vector: Any, width: Any, axis: int) -> Any:
        vector = copy(vector)
        function(vector, width, axis, kwargs)
        return vector

    padded: Any = _constant_pad(x, widths, 0)
    for axis, width in enumerate(widths):
        padded = xp.apply_along_axis(changed, axis, padded, width, axis)
    return as_traced(padded)


def _odd(x: TracedArray, even: Any, axis: int, width: tuple[int, int], mode: str) -> TracedArray:
    """Return the padding by odd reflection, a sum of the two edges and the even reflection.

    The factors of the terms are read from NumPy's own padding of unit vectors.
    """
    n = x.shape[axis]
    probes = [xp.pad((lifted(np.arange, n) == k).astype(np.int64), width, mode=mode, reflect_type="odd") for k in (0, n - 1)]
    shape = tuple(-1 if k == axis else 1 for k in range(x.ndim))
    first, last = (cast(as_traced(p.reshape(shape)), x.dtype) for p in probes)
    middle = cast(as_traced((1 - probes[0] - probes[1]).reshape(shape)), x.dtype)
    result: TracedArray = first * part(x, axis, 0, 1) + last * part(x, axis, n - 1, 1) + middle * even
    return result


def _ramps(x: TracedArray, widths: Sequence[tuple[int, int]], ends: Any) -> TracedArray:
    for axis, ((low, high), (left, right)) in enumerate(zip(widths, _pairs(ends, x.ndim, "end_values"), strict=True)):
        n = x.shape[axis]
        edges = [xp.squeeze(part(x, axis, k, 1), axis) for k in (0, n - 1)]
        ramps = [
            xp.linspace(as_traced(end), edge, num=width, endpoint=False, dtype=x.dtype, axis=axis)
            for end, edge, width in zip((left, right), edges, (low, high), strict=True)
        ]
        x = joined([ramps[0], x, xp.flip(ramps[1], axis)], axis)
    return x


_STATISTICS: dict[str, Any] = {"maximum": np.max, "minimum": np.min, "mean": np.mean, "median": np.median}


def _statistics(x: TracedArray, widths: Sequence[tuple[int, int]], statistic: Any, lengths: Any) -> TracedArray:
    pairs = [(None, None)] * x.ndim if lengths is None else _pairs(lengths, x.ndim, "stat_length")
    for axis, ((low, high), pair) in enumerate(zip(widths, pairs, strict=True)):
        n = x.shape[axis]
        counts = [n if k is None or extent_of(k) > n else extent_of(k) for k in pair]
        if any(not is_value_size(k) and k == 0 for k in counts) and statistic in (np.max, np.min):
            raise ValueError("stat_length of 0 yields no value for padding")
        blocks = []
        for start, count, width in ((0, counts[0], low), (n - counts[1], counts[1], high)):
            value = statistic(part(x, axis, start, count), axis=axis, keepdims=True)
            value = xp.rint(value) if x.dtype.kind in "iu" else value
            blocks.append(
                broadcast_to(cast(as_traced(value), x.dtype), tuple(width if k == axis else m for k, m in enumerate(x.shape)))
            )
        x = joined([blocks[0], x, blocks[1]], axis)
    return x
