"""numpy.pad: constants by the ``pad`` op, the modes that repeat elements by slices, flips and a concatenation."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.array import TracedArray, as_traced, broadcast_to, cast, created, emit, implements
from pullback.tracer.errors import TraceError
from pullback.tracer.functions.common import axis_of, part, refuse, remove_axes
from pullback.tracer.functions.shape import copy, joined


def _pairs(value: Any, rank: int, name: str) -> list[tuple[Any, Any]]:
    """A (before, after) pair for each axis out of the forms that numpy.pad takes."""
    if isinstance(value, dict):
        found: list[tuple[Any, Any]] = [(0, 0)] * rank
        for axis, entry in value.items():
            found[axis_of(axis, rank)] = _pairs(entry, 1, name)[0]
        return found
    if isinstance(value, TracedArray) and value.ndim == 0:
        return [(value, value)] * rank
    entries = value if isinstance(value, TracedArray) else np.asarray(value)
    if entries.ndim > 2:
        raise ValueError(f"numpy.pad: {name} has too many dimensions")
    spread = np.broadcast_to(entries, (rank, 2))
    return [(spread[k, 0], spread[k, 1]) for k in range(rank)]


def _runs(order: np.ndarray[Any, Any]) -> list[tuple[int, int, int]]:
    """(start, count, step) of the runs of neighbours, up, down or standing still, in a list of positions."""
    found: list[tuple[int, int, int]] = []
    k = 0
    while k < len(order):
        step = int(order[k + 1] - order[k]) if k + 1 < len(order) else 1
        step = step if step in (-1, 0, 1) else 1
        count = 1
        while k + count < len(order) and order[k + count] - order[k + count - 1] == step:
            count += 1
        found.append((int(order[k]), count, step))
        k += count
    return found


def _selected(x: TracedArray, axis: int, order: np.ndarray[Any, Any]) -> TracedArray:
    """Static positions along an axis, by slices."""
    parts = []
    for start, count, step in _runs(order):
        if step:
            parts.append(part(x, axis, start, count, step))
            continue
        one = remove_axes(part(x, axis, start, 1), (axis,))
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        parts.append(emit("broadcast", one, axes=(axis,), shape=shape))
    return joined(parts, axis)


def _constant_pad(x: TracedArray, widths: Sequence[tuple[int, int]], values: Any) -> TracedArray:
    values = 0 if values is None else values
    if not isinstance(values, TracedArray | dict) and np.ndim(values) == 0 and values == 0:
        start = tuple(low for low, _ in widths)
        shape = tuple(low + n + high for n, (low, high) in zip(x.shape, widths, strict=True))
        return emit("pad", x, start=start, step=(1,) * x.ndim, shape=shape)
    for axis, ((low, high), ends) in enumerate(zip(widths, _pairs(values, x.ndim, "constant_values"), strict=True)):
        blocks = [x]
        for count, value, place in ((low, ends[0], 0), (high, ends[1], 2)):
            if count:
                shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
                blocks.insert(place, broadcast_to(cast(as_traced(value), x.dtype), shape))
        x = joined(blocks, axis)
    return x


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> TracedArray:
    x = as_traced(array)
    widths = [(operator.index(a), operator.index(b)) for a, b in _pairs(pad_width, x.ndim, "pad_width")]
    if any(low < 0 or high < 0 for low, high in widths):
        raise ValueError("index can't contain negative values")
    if all(low == high == 0 for low, high in widths):
        return created(x) if not x.ndim else copy(x)
    if mode in ("constant", "empty"):
        values = kwargs.pop("constant_values", 0) if mode == "constant" else 0
        refuse("pad", **kwargs)
        return _constant_pad(x, widths, values)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise TraceError(f"np.pad got mode={mode!r}; the modes that compile are constant, edge, reflect, symmetric and wrap")
    if kwargs.pop("reflect_type", "even") != "even":
        raise TraceError("np.pad got reflect_type='odd'; write 2 * edge - np.pad(x, width, 'reflect')")
    refuse("pad", **kwargs)
    for axis, (low, high) in enumerate(widths):
        if low or high:
            x = _selected(x, axis, np.pad(np.arange(x.shape[axis]), (low, high), mode=mode))
    return x
