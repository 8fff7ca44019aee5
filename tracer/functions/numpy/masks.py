"""Reading and writing the elements that a traced mask selects, and the NumPy functions that accept such a selection."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic_arrays import SymbolicArray
from pullback.tracer.arrays.arguments import as_bool, axis_of, choose_where, positions, reshaped, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_into,
    broadcast_to,
    cast,
    emit,
    full,
    is_one,
    number_of_extent,
    static_array,
)
from pullback.tracer.arrays.masked import FUNCTIONS, Selection, Unmasked, chosen_of, counted, gathered, unwritten
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import Keyed, Listed, Tagged, TracedArray, has_rows
from pullback.tracer.arrays.value_extents import seen
from pullback.tracer.functions.numpy.assignment import setitem
from pullback.tracer.functions.numpy.indexing import check_mask_shape, getitem, holds_bool, is_static_mask, without_bools

MASKED = "an index that is a traced mask"


def is_mask(item: Any) -> bool:
    """Return whether an entry of a key is a mask whose values are unknown at trace time."""
    return isinstance(item, TracedArray) and item.dtype.kind == "b" and item.ndim > 0 and not is_static_mask(static_array(item))


class Key:
    """A key with one traced mask.

    ``unmasked`` is the key with slices in place of the mask; in its result the mask's axes start at ``axis``. ``to_front``:
    NumPy puts the axis of the selected elements first, as it does where an int is separated from the mask by a slice.
    """

    def __init__(self, x: TracedArray, items: list[Any], at: int) -> None:
        self.mask: TracedArray = items[at]
        used = sum(self.mask.ndim if k == at else item is not None and item is not Ellipsis for k, item in enumerate(items))
        if used > x.ndim:
            raise IndexError(f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed")
        dots = [k for k, item in enumerate(items) if item is Ellipsis]
        fill: list[Any] = [slice(None)] * (x.ndim - used)
        if dots:
            items[dots[0] : dots[0] + 1] = fill
            at += len(fill) - 1 if dots[0] < at else 0
        else:
            items += fill
        start = sum(item is not None for item in items[:at])
        check_mask_shape(x.shape, self.mask.shape, start)
        mask_slices: list[Any] = [slice(None)] * self.mask.ndim
        self.unmasked = (*items[:at], *mask_slices, *items[at + 1 :])
        self.axis = sum(item is None or isinstance(item, slice) for item in items[:at])
        fixed = [k for k, item in enumerate(items) if k == at or not (item is None or isinstance(item, slice))]
        self.to_front = fixed != list(range(fixed[0], fixed[-1] + 1))
        if any(np.ndim(items[k]) for k in fixed if k != at):
            raise Unmasked

    def part(self, x: TracedArray) -> TracedArray:
        """Return the elements that the mask selects from."""
        selected: TracedArray = x[self.unmasked]
        if not self.to_front:
            return selected
        dims = range(self.mask.ndim)
        return xp.moveaxis(selected, [self.axis + k for k in dims], list(dims))

    def selection(self, x: TracedArray) -> Selection:
        return Selection(self.part(x), self.mask, 0 if self.to_front else self.axis, MASKED)


def key_of(x: TracedArray, key: Any) -> Key | None:
    """Return a key with one traced mask, or with the positions np.nonzero returns for one; None for any other key. Raises
    Unmasked for one that needs the positions of its masks."""
    items = list(key) if isinstance(key, tuple) else [key]
    are_positions = any(isinstance(i, Selection) for i in items)
    if are_positions:
        at = next(k for k, i in enumerate(items) if isinstance(i, Selection))
        end = at + sum(isinstance(i, Selection) for i in items)
        mask = chosen_of(items[at:end])
        if mask is None:
            raise Unmasked
        items[at:end] = [mask]
    masks = [k for k, i in enumerate(items) if is_mask(i)]
    if len(masks) > 1:
        raise Unmasked
    try:
        return Key(x, items, masks[0]) if masks else None
    except IndexError:
        if are_positions:  # in another array than the mask's
            raise Unmasked from None
        raise


def positional(x: TracedArray, key: Any) -> tuple[Any, ...]:
    """Return a key whose masks are replaced by the positions at which they hold."""
    items: list[Any] = []
    axis = 0
    for item in map(gathered, key if isinstance(key, tuple) else (key,)):
        if is_mask(item):
            if not any(i is Ellipsis for i in items):
                check_mask_shape(x.shape, item.shape, axis)
            items += map(gathered, _positions(item, MASKED))
            axis += item.ndim
        else:
            items.append(item)
            axis += item is not None and item is not Ellipsis
    return tuple(items)


@register_method("__getitem__")
def getitem_or_select(x: TracedArray, key: Any) -> Any:
    """Return ``x[key]``, where the key may hold traced masks."""
    key = _without_lists(unwritten(key))
    if holds_bool(key):
        x, key = without_bools(x, key)
    if not _may_select(key):
        return getitem(x, key)
    try:
        masked_key = key_of(x, key)
    except Unmasked:
        return getitem(x, positional(x, key))
    return getitem(x, key) if masked_key is None else counted(masked_key.selection(x))


def _without_lists(key: Any) -> Any:
    """Return a key with arrays in place of the lists and tuples of selections in it, as ``np.where(mask)`` in a longer key, and
    of lists with rows."""
    entries = key if isinstance(key, tuple) else (key,)
    new = tuple(map(_as_array, entries))
    return key if all(a is b for a, b in zip(new, entries, strict=True)) else new


def _as_array(entry: Any) -> Any:
    """Return an entry of a key as an array, if it is a list with rows, or one or a tuple of selections; else the entry."""
    if has_rows(entry):
        return entry.array()
    is_list = isinstance(entry, list | tuple) and any(isinstance(i, Selection) for i in entry)
    return xp.stack([gathered(i) for i in entry]) if is_list else entry


def _may_select(key: Any) -> bool:
    items = key if isinstance(key, tuple) else (key,)
    return any(isinstance(i, TracedArray | Selection) for i in items)


@register_method("__setitem__")
def setitem_or_choose(x: TracedArray, key: Any, value: Any) -> None:
    """Perform ``x[key] = value``, where the key may hold traced masks or ``value`` may be selected by one."""
    key, value = _without_lists(unwritten(key)), unwritten(value)
    if holds_bool(key):
        value = as_traced(gathered(value))
        if isinstance(key, TracedArray) and not x.readonly and (value.ndim <= x.ndim or is_one(value.shape[0])):
            new = broadcast_into(cast(value, x.dtype), (1, *x.shape))
            key, value = Ellipsis, choose_where(broadcast_to(key, x.shape), reshaped(new, x.shape), x)
        else:
            x, key = without_bools(x, key)
    try:
        masked_key = key_of(x, key) if _may_select(key) else None
        if masked_key is not None:
            _write_masked(x, masked_key, value)
            return
    except Unmasked:
        key = positional(x, key)
    setitem(x, key, gathered(value))


def _write_masked(x: TracedArray, masked_key: Key, value: Any) -> None:
    """Write under a mask. Raises Unmasked if that takes the positions at which it holds."""
    target = masked_key.selection(x)
    if not isinstance(value, Selection):
        value = as_traced(value)
        if value.ndim > 1 and masked_key.mask.ndim == x.ndim:
            requirement = f"requires a 0 or 1-dimensional input, input has {value.ndim} dimensions"
            raise TypeError(f"NumPy boolean array indexing assignment {requirement}")
        extra = value.ndim - target.ndim
        if extra > 0 and value.shape[:extra] == (1,) * extra:
            value = reshaped(value, value.shape[extra:])
    if isinstance(value, TracedArray) and value.ndim > target.ndim:
        raise ValueError(f"could not broadcast input array from shape {value.shape} into what a mask chooses")
    new = cast(_aligned(target, value), x.dtype)
    part = masked_key.part(x)
    written = choose_where(target.whole_mask(), xp.broadcast_to(new, part.shape), part)
    if masked_key.to_front:
        dims = range(masked_key.mask.ndim)
        written = xp.moveaxis(written, list(dims), [masked_key.axis + k for k in dims])
    setitem(x, masked_key.unmasked, written)


def _aligned(target: Selection, value: Any) -> Any:
    if isinstance(value, TracedArray) and value.ndim > target.ndim - target.axis - 1:
        axis = value.ndim - (target.ndim - target.axis)
        if not is_one(value.shape[axis]):
            text = (
                "NumPy boolean array indexing assignment cannot assign the input values to the output values where the mask is "
                "true: a mask chooses another number of elements"
            )
            return target.spread(value, number_of_extent(value.shape[axis]), axis, text)
    return target.aligned(value)


# positions


def _positions(condition: Any, description: str) -> tuple[Any, ...]:
    mask = as_bool(as_traced(condition))
    if not mask.ndim:
        raise ValueError(
            "Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead. If the context of this "
            "error is of the form `arr[nonzero(cond)]`, just use `arr[cond]`."
        )
    return tuple(counted(Selection(positions(mask.shape, k), mask, 0, description, along=k)) for k in range(mask.ndim))


@register_method("nonzero")
@implements(np.nonzero)
def nonzero(a: Any) -> tuple[Any, ...]:
    return _positions(a, "np.nonzero of a traced array")


@implements(np.flatnonzero)
def flatnonzero(a: Any) -> Any:
    x = as_traced(a)
    return _positions(reshaped(x, (x.size,)), "np.flatnonzero of a traced array")[0]


@implements(np.argwhere)
def argwhere(a: Any) -> Any:
    mask = as_bool(as_traced(a))
    indices = [positions(mask.shape, k) for k in range(mask.ndim)]
    return counted(Selection(xp.stack(indices, axis=-1), mask, 0, "np.argwhere of a traced array"))


def where_of(condition: Any) -> tuple[Any, ...]:
    """Return the positions for ``np.where(condition)`` with one argument."""
    return _positions(condition, "np.where(condition) alone")


def compressed(description: str, mask: TracedArray, a: Any, axis: Any) -> Any:
    """Return the entries along an axis where a mask holds; the mask may be shorter than the axis."""
    x = as_traced(a)
    if axis is None:
        x, axis = reshaped(x, (x.size,)), 0
    at = axis_of(axis, x.ndim)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if mask.size > x.shape[at]:
        raise IndexError(f"index {mask.size - 1} is out of bounds for axis {at} with size {x.shape[at]}")
    return counted(Selection(x[(slice(None),) * at + (slice(mask.size),)], mask, at, description))


# functions of a selection


def _takes(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = implementation
        return implementation

    return register


def _first(values: Any) -> Selection:
    """Return the first selection among the arguments. Raises TraceError if there is none."""
    for value in values:
        if isinstance(value, Selection):
            return value
        if isinstance(value, list | tuple) and any(isinstance(v, Selection) for v in value):
            return _first(value)
    raise Unmasked


def _reduction(function: Any) -> Any:
    def reduced(a: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(a, Selection) or args:
            raise Unmasked
        return a.reduced(function, axis, **kwargs)

    return reduced


for _function in (np.sum, np.prod, np.mean, np.std, np.var, np.any, np.all, np.max, np.min):
    FUNCTIONS[_function] = _reduction(_function)
FUNCTIONS[np.amax], FUNCTIONS[np.amin] = FUNCTIONS[np.max], FUNCTIONS[np.min]


def _without_nan(function: Any) -> Any:
    def reduced(a: Selection, axis: Any = None, **kwargs: Any) -> Any:
        if a.ndim > 1:
            raise Unmasked
        kept = Selection(a.values, a.mask & ~xp.isnan(a.values), 0, a.what)
        return FUNCTIONS[function](kept, axis, **kwargs)

    return reduced


for _nan, _function in (
    (np.nansum, np.sum), (np.nanprod, np.prod), (np.nanmean, np.mean), (np.nanstd, np.std), (np.nanvar, np.var),
    (np.nanmax, np.max), (np.nanmin, np.min),
):  # fmt: skip
    FUNCTIONS[_nan] = _without_nan(_function)


def _elementwise(function: Any) -> Any:
    def applied(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(v, Selection) for v in kwargs.values()):
            raise Unmasked
        chosen = _first(args)
        if sum(isinstance(a, Selection | TracedArray | np.ndarray) for a in args) == 1:
            return chosen.like(as_traced(function(*(a.values if a is chosen else a for a in args), **kwargs)))
        return chosen.applied(function, *args, **kwargs)

    return applied


_ELEMENTWISE: tuple[Any, ...] = (
    np.where, np.clip, np.round, np.around, np.nan_to_num, np.isclose, np.sinc, np.real, np.zeros_like, np.ones_like,
    np.empty_like, np.full_like, np.copy, np.i0, np.heaviside,
)  # fmt: skip
for _function in _ELEMENTWISE:
    FUNCTIONS[_function] = _elementwise(_function)


@_takes(np.argmax)
def argmax(a: Any, axis: Any = None, **kwargs: Any) -> Any:
    return a.position(np.argmax, axis, **kwargs)


@_takes(np.argmin)
def argmin(a: Any, axis: Any = None, **kwargs: Any) -> Any:
    return a.position(np.argmin, axis, **kwargs)


@_takes(np.ptp)
def ptp(a: Any, axis: Any = None) -> Any:
    return FUNCTIONS[np.max](a, axis) - FUNCTIONS[np.min](a, axis)


@_takes(np.count_nonzero)
def count_nonzero(a: Any, axis: Any = None) -> Any:
    return FUNCTIONS[np.sum](a != 0, axis)


@_takes(np.average)
def average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return FUNCTIONS[np.mean](a, axis)
    first = _first((a, weights))
    total = FUNCTIONS[np.sum](first.applied(np.multiply, a, weights), axis)
    all_weights = weights if isinstance(weights, Selection) else first.applied(np.add, first * 0, weights)
    scale = FUNCTIONS[np.sum](all_weights, axis)
    if isinstance(scale, Selection):
        raise Unmasked
    message = "Weights sum to zero, can't be normalized"
    emit("check", as_traced(scale != 0), error="ZeroDivisionError", message=message)
    return total / scale


@_takes(np.median)
def median(a: Any, axis: Any = None) -> Any:
    return a.median()


@_takes(np.quantile)
def quantile(a: Any, q: Any, axis: Any = None, **kwargs: Any) -> Any:
    if kwargs or isinstance(q, list | tuple) or np.ndim(q) or not a.mask.size:
        raise Unmasked
    line = a.ordered()
    message = "index -1 is out of bounds for axis 0 with size 0"
    emit("check", as_traced(xp.any(line.mask)), error="IndexError", message=message)
    values = line.values if line.dtype.kind == "f" else cast(line.values, np.float64)
    count, last = xp.sum(line.mask), values.size - 1
    rank = q * xp.maximum(count - 1, 0)
    low = xp.floor(rank)
    first = xp.take(values, xp.clip(cast(low, np.int64), 0, last))
    second = xp.take(values, xp.clip(cast(xp.ceil(rank), np.int64), 0, last))
    result = first + (second - first) * (rank - low)
    return xp.where((count > 0) & ~xp.any(xp.isnan(values) & line.mask), result, math.nan)


@_takes(np.percentile)
def percentile(a: Any, q: Any, axis: Any = None, **kwargs: Any) -> Any:
    return quantile(a, xp.true_divide(q, 100), axis, **kwargs)


@_takes(np.sort)
def sort(a: Any, axis: Any = -1, kind: Any = None) -> Any:
    return a.ordered()


@_takes(np.cumsum)
def cumsum(a: Any, axis: Any = None) -> Any:
    line = a.line()
    return line.like(xp.cumsum(line.filled(0), axis=line.axis))


@_takes(np.cumprod)
def cumprod(a: Any, axis: Any = None) -> Any:
    line = a.line()
    return line.like(xp.cumprod(line.filled(1), axis=line.axis))


@_takes(np.vdot)
def vdot(a: Any, b: Any) -> Any:
    return dot(xp.conj(a), b)


@_takes(np.dot, np.inner)
def dot(a: Any, b: Any) -> Any:
    first = _first((a, b))
    if not np.ndim(a) or not np.ndim(b):
        return first.applied(np.multiply, a, b)
    if max(_ndim(a), _ndim(b)) > 2:
        raise Unmasked
    return first.matmul(a, b)


def _ndim(x: Any) -> int:
    return x.ndim if isinstance(x, Selection) else np.ndim(x)


@_takes(np.linalg.norm)
def norm(x: Any, ord: Any = None) -> Any:
    if x.ndim > 1 or ord not in (None, 1, 2, math.inf):
        raise Unmasked
    return xp.linalg.norm(x.line().filled(0), ord)


@_takes(np.size)
def size(a: Any, axis: Any = None) -> Any:
    return a.size if axis is None else a.shape[axis]


@_takes(np.shape)
def shape(a: Any) -> Any:
    return a.shape


@_takes(np.ndim)
def ndim(a: Any) -> int:
    return int(a.ndim)


@_takes(np.allclose)
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    close = FUNCTIONS[np.isclose](a, b, rtol, atol, equal_nan)
    return FUNCTIONS[np.all](close)


@_takes(np.concatenate)
def concatenate(arrays: Any, axis: Any = 0) -> Any:
    first = _first(arrays)
    if first.ndim > 1:
        raise Unmasked
    lines = [a.line() if isinstance(a, Selection) else as_traced(a) for a in arrays]
    masks = [a.mask if isinstance(a, Selection) else full(a.shape, True, bool) for a in lines]
    values = xp.concatenate([a.values if isinstance(a, Selection) else a for a in lines])
    return Selection(values, xp.concatenate(masks), 0, first.what)


@twin(builtins.len)
def length(x: Any, /) -> Any:
    if isinstance(x, Selection) or (isinstance(x, TracedArray | SymbolicArray) and x.ndim):
        return seen(x.shape[0])
    x = x.narrowed() if isinstance(x, Tagged) else x
    return x.length() if isinstance(x, Listed | Keyed) else builtins.len(x)
