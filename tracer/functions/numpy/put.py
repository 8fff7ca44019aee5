"""Functions that write at flat positions of an array, ``.flat``, and ``ufunc.at``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import holds_value_size, is_value_size, same_extent
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import as_bool, axis_of, choose_where, permute, positions, reshaped, xp
from pullback.tracer.arrays.concretize import not_traced
from pullback.tracer.arrays.make import (
    as_stored,
    as_traced,
    broadcast_to,
    cast,
    common_shape,
    conform,
    emit,
    expand,
    fresh,
    full,
    holds_traced,
    kind_of,
    number_of_extent,
    static_array,
    strides_of,
    wrapping,
)
from pullback.tracer.arrays.promotion import loop as loop_of
from pullback.tracer.arrays.promotion import name_of
from pullback.tracer.arrays.strides import is_column_major
from pullback.tracer.arrays.tables import METHODS, hook, implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.views import root_of, update
from pullback.tracer.functions.numpy.assignment import written
from pullback.tracer.functions.numpy.indexing import Plan, gather_of, part_of, part_of_positions, plan_of, scattered, with_part
from pullback.tracer.functions.numpy.searchsorted import padded
from pullback.tracer.functions.numpy.selection import in_range
from pullback.tracer.user_code.errors import TraceError


def _target(function: str, a: Any) -> TracedArray:
    if isinstance(a, TracedArray):
        return a
    if not isinstance(a, np.ndarray):
        raise TypeError(f"argument 1 must be numpy.ndarray, not {type(a).__name__}")
    raise not_traced(f"np.{function} into an array that the traced function did not make", "return the value instead")


def _array(function: str, a: Any) -> TracedArray:
    """Return the target, which must not be a scalar. Raises TypeError for a scalar."""
    x = _target(function, a)
    if not (x.ndim or x.is_cell):
        raise TypeError(f"{function}() argument 1 must be numpy.ndarray, not numpy.{x.dtype.name}")
    return x


def _flat(x: TracedArray) -> TracedArray:
    return reshaped(x, (x.size,))


def _repeated(values: TracedArray, count: int) -> TracedArray:
    """Return the first ``count`` elements of the endless repetition of an array."""
    line = _flat(values)
    if is_value_size(line.size) or is_value_size(count):
        if same_extent(line.size, count):
            return line
        return as_traced(xp.take(padded(line), positions((count,), 0) % xp.maximum(number_of_extent(line.size), 1)))
    if line.size >= count:
        return line if line.size == count else line[:count]
    return broadcast_to(line, (count,)) if line.size == 1 else xp.take(line, lifted(np.arange, count) % line.size)


def _set_flat(x: TracedArray, line: TracedArray) -> None:
    update(x, reshaped(line, x.shape), "unsafe")


@register_method("put")
@implements(np.put)
def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    x = _target("put", a)
    values = as_stored(v, x.dtype)
    index = static_array(ind) if isinstance(ind, TracedArray) else np.asarray(ind)
    if not isinstance(index, TracedArray):
        index = index.astype(np.int64, casting="same_kind").ravel()
        if mode != "raise":
            index = np.mod(index, x.size) if mode == "wrap" else np.clip(index, 0, x.size - 1)
    else:
        index = _flat(in_range(index, 0, x.size, mode))
    if index.size and values.size:
        _set_flat(x, written(_flat(x), index, _repeated(values, index.size)))


def _ranked(mask: TracedArray, values: TracedArray) -> TracedArray:
    """Return, at each true element of a mask, the next of the values, which are repeated endlessly."""
    rank = xp.cumsum(mask) - 1
    if is_value_size(values.size):
        return xp.take(padded(_flat(values)), xp.maximum(rank, 0) % xp.maximum(number_of_extent(values.size), 1))
    return xp.take(_flat(values), xp.mod(xp.maximum(rank, 0), values.size))


@implements(np.place)
def place_(arr: Any, mask: Any, vals: Any) -> None:
    x, chosen = _array("place", arr), as_bool(as_traced(mask))
    chosen = conform(_flat(chosen), (x.size,), "place: mask and data must be the same size")
    values = as_stored(vals, x.dtype)
    if not values.size:
        emit("check", xp.logical_not(chosen), error="ValueError", message="Cannot insert from an empty array!")
        return
    _set_flat(x, choose_where(chosen, cast(_ranked(chosen, values), x.dtype), _flat(x)))


@implements(np.putmask)
def putmask(a: Any, /, mask: Any, values: Any) -> None:
    x, chosen = _array("putmask", a), as_bool(as_traced(mask))
    chosen = conform(_flat(chosen), (x.size,), "putmask: mask and data must be the same size")
    if isinstance(values, np.ndarray | TracedArray):
        source = as_traced(values)
        if (source.ndim or source.is_cell) and not np.can_cast(source.dtype, x.dtype, "safe"):
            description = "array data" if source.ndim else "scalar"
            raise TypeError(f"Cannot cast {description} from {source.dtype!r} to {x.dtype!r} according to the rule 'safe'")
    source_values = as_stored(values, x.dtype)
    if source_values.size and x.size:
        _set_flat(x, choose_where(chosen, cast(_repeated(source_values, x.size), x.dtype), _flat(x)))


@implements(np.put_along_axis)
def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    """Write one value at each index along an axis."""
    x = _target("put_along_axis", arr)
    if axis is None:
        if np.ndim(indices) != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        x.flat[indices] = values
        return
    index = cast(as_traced(indices), np.int64)
    at = axis_of(axis, x.ndim)
    if index.ndim != x.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    key = [
        positions(index.shape, k) if n == x.shape[k] or k == at else full(index.shape, 0, np.int64)
        for k, n in enumerate(index.shape)
    ]
    key[at] = index
    x[tuple(key)] = values


@implements(np.fill_diagonal)
def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    x = _target("fill_diagonal", a)
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if x.ndim > 2 and len(set(x.shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    step = x.shape[1] + 1 if x.ndim == 2 else 1 + int(np.cumprod(x.shape[:-1]).sum())
    end = None if wrap or x.ndim > 2 else x.shape[1] * x.shape[1]
    x.flat[:end:step] = val


# .flat


class Flat:
    """``x.flat``: the elements in row-major order, whatever the memory order of ``x``."""

    __slots__ = ("base",)

    def __init__(self, base: TracedArray) -> None:
        self.base = base

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Any]:
        line = _flat(self.base)
        return (line[k] for k in range(line.size))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            if len(key) != 1:
                raise IndexError("unsupported iterator index")
            (key,) = key
        return fresh(_flat(self.base)[key])

    def __setitem__(self, key: Any, value: Any) -> None:
        x, values = self.base, as_stored(value, self.base.dtype)
        line = _flat(x)
        if values.size == 1:
            _set_flat(x, written(line, key, reshaped(values, ())))
            return
        if not np.ndim(key) and not isinstance(key, slice):
            raise ValueError("Error setting single item of array.")
        if not values.size:
            return
        if isinstance(key, TracedArray) and key.dtype.kind == "b" and isinstance(static_array(key), TracedArray):
            if _shares_elements(x, value):
                raise TraceError(IN_TURNS)
            _set_flat(x, choose_where(key, cast(_ranked(key, values), x.dtype), line))
            return
        source = None
        if _shares_elements(x, value):
            if holds_traced(key):
                raise TraceError(IN_TURNS)
            positions_ = _positions_in_root(x)
            source = _read_in_turns(x, value, None if positions_ is None else positions_.ravel()[key])
        if source is not None:
            values = xp.take(_flat(root_of(x)), source)
        _set_flat(x, written(line, key, _repeated(values, line[key].size)))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return fresh(_flat(self.base)) if dtype is None else cast(_flat(self.base), dtype)

    def copy(self) -> TracedArray:
        return fresh(_flat(self.base))

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return function(*(self.copy() if a is self else a for a in args), **kwargs)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return METHODS["__array_ufunc__"](ufunc, method, *(self.copy() if a is self else a for a in inputs), **kwargs)


hook("flat")(Flat)


@hook("set_flat")
def set_flat(x: TracedArray, value: Any) -> None:
    """Perform ``x.flat = value``."""
    values = as_stored(value, x.dtype)
    if not (values.size and x.size):
        return
    if value is not x and _shares_elements(x, value):
        own, other = strides_of(x), strides_of(value)
        source = _read_in_turns(x, value, _positions_in_root(x))
        if source is not None and (own is None or other is None):
            raise TraceError(IN_TURNS)
        if own is not None and other is not None and is_column_major(x.shape, own) and not is_column_major(value.shape, other):
            source = None  # NumPy copies the value first
        values = values if source is None else xp.take(_flat(root_of(x)), source)
    _set_flat(x, _repeated(values, x.size))


IN_TURNS = (
    "a write into .flat of elements of the same array, which NumPy reads and writes in turns; write the "
    "elements of a copy, x.flat = values.copy()"
)


def _shares_elements(x: TracedArray, value: Any) -> bool:
    return isinstance(value, TracedArray) and root_of(value) is root_of(x)


def _read_in_turns(x: TracedArray, value: TracedArray, targets: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    """Return the positions in the root of ``x`` and ``value`` of the elements that are written at the positions ``targets``,
    where NumPy reads and writes in turns, and an element is read after its write; None if all are those before the writes.

    Raises TraceError if that is not known.
    """
    read = _positions_in_root(value)
    if targets is None or read is None:
        raise TraceError(IN_TURNS)
    read = np.resize(read.ravel(), targets.size)
    source: np.ndarray[Any, Any] = read[_writing_turns(targets.ravel(), read, int(root_of(x).size))]
    return None if (source == read).all() else source


def _writing_turns(targets: np.ndarray[Any, Any], read: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Return for each turn, which copies the element ``read`` to ``targets``, the first turn that read the same element: the
    turn itself if none before it wrote what it reads. ``size``: the number of elements of the array."""
    turns, last = np.arange(targets.size), np.full(size, targets.size)
    if np.unique(targets).size < targets.size:
        for k, (target, position) in enumerate(zip(targets.tolist(), read.tolist(), strict=True)):
            turns[k] = turns[last[position]] if last[position] < k else k
            last[target] = k
        return turns
    last[targets] = turns
    first = np.where(last[read] < turns, last[read], turns)
    while (first[first] != first).any():
        first = first[first]
    return first


def _positions_in_root(x: TracedArray) -> np.ndarray[Any, Any] | None:
    """Return the flat positions of the elements of a view in the array that is no view; None if they are not known."""
    if holds_value_size(x.shape):
        return None
    if x.base is None:
        return np.arange(math.prod(map(int, x.shape))).reshape(tuple(map(int, x.shape)))
    base = _positions_in_root(x.base)
    if base is None or x.recipe is None:
        return None
    match x.recipe.key:
        case Plan() as plan:
            return part_of_positions(base, plan)
        case ("reshape", shape):
            return base.reshape(tuple(map(int, shape)))
        case ("broadcast", shape):
            return np.broadcast_to(base, tuple(map(int, shape)))
        case ("permute", permutation):
            return base.transpose(permutation)
        case ("flip", axes):
            return np.flip(base, axes)
        case "flat":
            return base.ravel()
    return None


# ufunc.at

# The largest number of traced indices for which the steps of ``ufunc.at`` are unrolled.
MOST_TRACED_INDICES = 64

_ASSOCIATIVE = frozenset((
    np.maximum, np.minimum, np.fmax, np.fmin, np.multiply, np.logical_and, np.logical_or, np.bitwise_and, np.bitwise_or,
    np.bitwise_xor, np.logical_xor, np.gcd, np.lcm, np.logaddexp, np.logaddexp2, np.hypot,
))  # fmt: skip


@register_method("at")
def at(ufunc: np.ufunc, x: Any, key: Any, *values: Any) -> None:
    """Perform ``ufunc.at(x, key, value)``: each repetition of an index applies the ufunc again."""
    if len(values) != ufunc.nin - 1:
        raise ValueError("second operand needed for ufunc" if ufunc.nin > 1 else "second operand provided when ufunc is unary")
    if not isinstance(x, TracedArray):
        raise not_traced(f"{name_of(ufunc)}.at into an array that the traced function did not make", "return the value instead")
    if x.readonly:
        update(x, x)
    operands = [wrapping(as_traced(v)) for v in values]
    inner, _ = loop_of(ufunc, (x.dtype, *(v.dtype for v in operands)))  # raises NumPy's TypeError before the indices are checked
    wanted = plan_of(x.shape, key)
    try:
        _at(ufunc, x, key, wanted, operands, inner[0])
    except ValueError:
        shape = x[key].shape
        if any(v.ndim > len(shape) or common_shape([v.shape, shape]) != shape for v in operands):
            raise ValueError("array is not broadcastable to correct shape") from None
        raise


def _at(ufunc: np.ufunc, x: Any, key: Any, plan: Any, operands: Sequence[Any], dtype: np.dtype[Any]) -> None:
    """Apply the ufunc at the positions of ``plan``. ``dtype``: the dtype in which NumPy computes."""
    if not plan.arrays:
        part = x[key if any(k is Ellipsis for k in _tuple(key)) else (*_tuple(key), ...)]
        ufunc(part, *operands, out=part, casting="unsafe")
        return
    if ufunc in (np.add, np.subtract) and _is_scatter(x, operands[0], dtype):
        amount = cast(operands[0], x.dtype)
        update(x, scattered("scatter_add", x, plan, xp.negative(amount) if ufunc is np.subtract else amount))
        return
    gather = gather_of(plan)
    base = part_of(x, plan)
    order = [*gather.axes, *(k for k in range(base.ndim) if k not in gather.axes)]
    sizes = [base.shape[k] for k in gather.axes]
    rows_of_base = reshaped(permute(base, order), (math.prod(sizes), math.prod(base.shape) // max(math.prod(sizes), 1)))
    shape = gather.indices[0].shape
    positions_ = _flat(_linear(gather.indices, sizes))
    rows = [_rows(v, shape, base, gather) for v in operands]
    static = _static_positions(key, x.shape, sizes)
    new = reshaped(_applied(ufunc, rows_of_base, positions_, rows, static), [base.shape[k] for k in order])
    new = permute(new, np.argsort(order).tolist())
    update(x, with_part(x, plan, new))


def _is_scatter(x: TracedArray, amount: TracedArray, dtype: np.dtype[Any]) -> bool:
    """Return whether sums that NumPy computes in a dtype are those of the amounts in the dtype of ``x``."""
    if x.dtype.kind == "b" or (x.dtype.kind in "iu" and dtype.kind not in "iu"):
        return False
    return np.can_cast(kind_of(amount), x.dtype, "same_kind")


def _tuple(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _linear(indices: Sequence[TracedArray], sizes: Sequence[int]) -> Any:
    linear: Any = 0
    for index, n in zip(indices, sizes, strict=True):
        linear = linear * n + xp.where(index < 0, index + n, index)
    return linear


def _static_positions(key: Any, shape: Sequence[int], sizes: Sequence[int]) -> Any:
    """Return the linear positions as a NumPy array if they are known at trace time, else None."""
    items = [i for i in _tuple(key) if i is not None and i is not Ellipsis and not isinstance(i, slice)]
    arrays = [static_array(i) if isinstance(i, TracedArray) else np.asarray(i) for i in items]
    if len(arrays) != len(sizes) or any(isinstance(a, TracedArray) or a.dtype.kind not in "iu" for a in arrays):
        return None
    broadcast = np.broadcast_arrays(*(np.where(a < 0, a + n, a) for a, n in zip(arrays, sizes, strict=True)))
    return np.ravel_multi_index(tuple(broadcast), tuple(sizes)).ravel()


def _rows(value: TracedArray, shape: Sequence[int], base: TracedArray, gather: Any) -> TracedArray:
    """Broadcast a value to one row per indexed position."""
    trailing = tuple(n for k, n in enumerate(base.shape) if k not in gather.axes)
    gathered = (*shape, *trailing)
    target = [gathered[k] for k in gather.perm]
    for axis in gather.new:
        target.insert(axis, 1)
    expanded = broadcast_to(value, target)
    back = sorted(range(len(gather.perm)), key=lambda k: gather.perm[k])
    kept = reshaped(expanded, [gathered[k] for k in gather.perm])
    count = math.prod(shape)
    return reshaped(permute(kept, back), (count, expanded.size // count if count else 0))


def _applied(ufunc: np.ufunc, lines: Any, indices: Any, rows: Sequence[Any], static: Any) -> TracedArray:
    """Return ``lines`` after applying the ufunc to the row at each index, one index after another."""
    lines = fresh(lines)
    count = indices.size
    if static is not None:
        nth = np.array([np.sum(static[:k] == p) for k, p in enumerate(static)], int)
        for repetition in range(int(nth.max(initial=-1)) + 1):
            chosen = np.flatnonzero(nth == repetition)
            _apply_once(ufunc, lines, static[chosen], [r[chosen] for r in rows])
    elif count <= MOST_TRACED_INDICES:
        for k in range(count):
            _apply_once(ufunc, lines, indices[k : k + 1], [r[k : k + 1] for r in rows])
    elif ufunc in _ASSOCIATIVE:
        order = xp.argsort(indices, kind="stable")
        indices, (values,) = indices[order], (r[order] for r in rows)
        step = 1
        while step < count:
            is_same = expand(indices[step:] == indices[:-step], (1,))
            joined = cast(ufunc(values[:-step], values[step:]), values.dtype)
            values = xp.concatenate([values[:step], xp.where(is_same, joined, values[step:])])
            step *= 2
        _apply_once(ufunc, lines, indices, [values])
    else:
        raise TraceError(
            f"{name_of(ufunc)}.at with {count} traced indices: up to {MOST_TRACED_INDICES} are supported; "
            "use np.add.at, np.multiply.at or np.maximum.at, or indices that are no traced values"
        )
    return lines


def _apply_once(ufunc: np.ufunc, lines: Any, indices: Any, rows: Sequence[Any]) -> None:
    """Apply the ufunc to the rows at distinct indices; for a repeated index the last write remains."""
    old = lines[indices]
    lines[indices] = ufunc(old, *rows, out=old, casting="unsafe")
