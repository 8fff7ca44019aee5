"""Python's builtins on traced values; they return what Python does, without branching on a traced value.

``max`` and ``min`` return the first operand that no other beats: ``max(a, b)`` is ``np.where(b > a, b, a)``, so in a tie the
gradient goes to the first operand; operands of several dtypes are promoted. ``float``, ``int`` and ``bool`` of a traced scalar
are traced Python numbers. ``any`` and ``all`` read every item.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

import numpy as np

from pullback.ir.core.scalars import as_float, as_int
from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import is_size, lifted
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.frame import Frame, current
from pullback.tracer.arrays.make import as_stored, as_traced, cast, emit, holds_traced, promote
from pullback.tracer.arrays.mixed_numbers import chosen
from pullback.tracer.arrays.ordering import is_undecided_order, sorted_items
from pullback.tracer.arrays.python_scalars import integer, scalar, weak
from pullback.tracer.arrays.replacements import call_of, converts, takes_traced, twin
from pullback.tracer.arrays.sequence_comparisons import ordering
from pullback.tracer.arrays.traced import Gathers, Keyed, Tagged, TracedArray, has_rows
from pullback.tracer.arrays.tree import bare, flatten, unflatten
from pullback.tracer.arrays.value_extents import check_some
from pullback.tracer.functions.python.rounding import rounded
from pullback.tracer.syntax.table import PREFIX, operator_called
from pullback.tracer.user_code.errors import TraceError

_MISSING: Any = object()
_RANK = {"bool": 0, "int": 1, "float": 2, "complex": 3}


def _extreme(name: str, real: Callable[..., Any], beats: Any, beats_in_order: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def call(*args: Any, key: Any = None, default: Any = _MISSING) -> Any:
        options = {} if default is _MISSING else {"default": default}
        keyed = args[0] if len(args) == 1 and isinstance(args[0], Keyed) else None
        if keyed is not None and key is not None:
            args = (keyed.sequence(),)
        args = args if len(args) > 1 else tuple(map(_narrowed, args))
        if len(args) == 1 and isinstance(args[0], TracedArray) and key is None and args[0].ndim == 1:
            length = args[0].shape[0]
            if is_value_size(length) and not options:
                check_some(length, f"{name}() arg is an empty sequence")
                return _extreme_of(args[0], name)
            if not is_value_size(length) and length:
                return _extreme_of(args[0], name)
        if len(args) > 1 and options:
            return real(*args, key=key, **options)
        if len(args) == 1 and has_rows(args[0]) and not options:
            keyed_by = None if keyed is None or key is None else keyed.extreme_keys(key)
            elements = (args[0] if key is None else args[0].mapped(key) if keyed_by is None else keyed_by).array()
            check_some(elements.shape[0], f"{name}() arg is an empty sequence")
            if elements.ndim != 1:
                raise TraceError(f"{name} of a list of arrays or sequences, whose length values decide; compare numbers")
            return args[0].row(index_of_extreme(elements, name))
        items = [x.proved() if isinstance(x, Tagged) else x for x in (args[0] if len(args) == 1 else args)]
        keys = items if key is None else [key(item) for item in items]
        if not holds_traced(keys) or not items:
            pairs = [_Pair(k, item) for k, item in zip(keys, items)]
            return real(pairs).item if pairs else real(items, **options)
        are_sequences = isinstance(keys[0], tuple | list)
        known = _known(lambda values: real(values), keys) if key is None and not are_sequences else None
        best, best_key = items[0], keys[0]
        for item, k in zip(items[1:], keys[1:]):
            better = as_traced(beats_in_order(k, best_key) if are_sequences else beats(as_traced(k), as_traced(best_key)))
            if better.ndim:
                raise TraceError(f"{name} of arrays; compare elements by np.{name}imum, or take np.{name} of one array")
            best = _where(better, item, best, name)
            best_key = best if key is None else _where(better, k, best_key, name)
        if known is not None and best.known is None:
            best.known = known
        return best

    return call


def _known(function: Callable[[list[Any]], Any], items: list[Any]) -> Any:
    """Return ``function`` of the items' values, and the sources of the values, if all values are known at trace time; else
    None."""
    values = [known_value(as_traced(i)) for i in items]
    if builtins.any(k is None for k in values):
        return None
    return function([k[0] for k in values if k]), frozenset().union(*(k[1] for k in values if k))


def _narrowed(x: Any) -> Any:
    """Return the one value that a value of several cases has, if it is known; of elements that a mask selects their array, and of
    a dict or set the list of its keys."""
    x = x.narrowed() if isinstance(x, Tagged) else x
    if isinstance(x, Keyed):
        return x.elements_of()
    return x.elements() if isinstance(x, Gathers) else x


class _Pair:
    """An item that is compared by its key alone."""

    def __init__(self, key: Any, item: Any) -> None:
        self.key = key
        self.item = item

    def __lt__(self, other: _Pair) -> Any:
        return self.key < other.key

    def __gt__(self, other: _Pair) -> Any:
        return self.key > other.key


def _where(better: TracedArray, x: Any, y: Any, name: str) -> Any:
    """Return ``x`` or ``y``, which are numbers or arrays, or trees of these of one structure."""
    message = f"{name} by a traced key of items that are no numbers; choose by np.argmax or np.argmin of an array"
    (leaves, tree), (others, other) = flatten(x), flatten(y)
    if bare(tree) != bare(other):
        raise TraceError(message)
    if tree.kind != "leaf":
        return unflatten(bare(tree), [_where(better, u, v, name) for u, v in zip(leaves, others)])
    try:
        a, b = as_traced(x), as_traced(y)
    except (TypeError, ValueError, TraceError):
        raise TraceError(message) from None
    if a.shape != b.shape:
        raise TraceError(f"{name} by a traced key of arrays of several shapes; choose by np.argmax or np.argmin of an array")
    result = xp.where(better, a, b)
    if not (a.is_cell or b.is_cell):
        result = result[()]  # a number, which an augmented assignment binds anew
    if a.weak and b.weak:
        result = weak(result, builtins.max(a.weak, b.weak, key=_RANK.__getitem__))
    return chosen(better, result, a, b) if isinstance(result, TracedArray) else result


def _extreme_of(x: TracedArray, name: str) -> Any:
    """Return the first element of a vector that no other beats; a NaN loses unless it is the first element."""
    return x[index_of_extreme(x, name)]


def index_of_extreme(x: TracedArray, name: str) -> Any:
    """Return the index of what ``_extreme_of`` returns."""
    if x.dtype.kind != "f":
        return xp.argmax(x) if name == "max" else xp.argmin(x)
    without_nans = xp.where(xp.isnan(x), -math.inf if name == "max" else math.inf, x)
    index = xp.argmax(without_nans) if name == "max" else xp.argmin(without_nans)
    return xp.where(xp.isnan(x[0]) | xp.isnan(x[index]), 0, index)


twin(builtins.max)(_extreme("max", builtins.max, np.greater, ordering(operator.gt)))
twin(builtins.min)(_extreme("min", builtins.min, np.less, ordering(operator.lt)))


@twin(builtins.sum)
def sum_(iterable: Any, /, start: Any = 0) -> Any:
    """Sum a traced array along its first axis, as NumPy does, and any other iterable item by item."""
    iterable = _summed(_narrowed(iterable), iterable)
    if has_rows(iterable):
        return iterable.total(start)
    if not isinstance(iterable, TracedArray) or not iterable.ndim:
        return builtins.sum(iterable, start)
    if not is_value_size(iterable.shape[0]) and not iterable.shape[0]:
        return start
    dtype = np.dtype(np.int64) if iterable.dtype.kind == "b" else iterable.dtype
    return start + xp.sum(iterable, axis=0, dtype=dtype)


def _summed(elements: Any, iterable: Any) -> Any:
    """Return the elements of a sum. Raises TraceError for those of a set whose sum depends on their order."""
    if isinstance(iterable, Keyed) and iterable.stands_for is set:
        leaves = [b for b, *_ in elements.rows.leaves] if has_rows(elements) else map(as_traced, elements)
        if builtins.any(x.dtype.kind not in "bi" for x in leaves):
            raise TraceError("the sum of a set of floats, whose order depends on their hashes; sum sorted(...) of it")
    return elements


def _without_stores(name: str, elements: Iterator[Any], frame: Frame) -> list[Any]:
    """Return the elements of a generator. Raises TraceError if one stores something although an earlier one may decide."""
    places, stores = frame.root.names.places, frame.root.stores
    items: list[Any] = []
    before = None
    for item in elements:
        items.append(item)
        if before is not None and (places.changed_since(before[0]) or next(iter(stores.changed_since(before[1])), None)):
            what = f"{name} of elements that store, after one that may decide"
            error = TraceError(f"{what}; write a loop that ends at that element")
            error.wants_guards = True
            raise error
        if before is None and holds_traced([item]):
            before = places.contents(), stores.contents_outside()
    return items


def _truth(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    combine = xp.logical_or if name == "any" else xp.logical_and

    def call(iterable: Any, /) -> Any:
        iterable = _narrowed(iterable)
        if has_rows(iterable) and iterable.is_of_numbers:
            iterable = iterable.column(0)
        if isinstance(iterable, TracedArray) and iterable.ndim == 1:
            return weak(getattr(np, name)(iterable), "bool")
        frame = current()
        if not isinstance(iterable, GeneratorType) or frame is None:
            items = list(iterable)
        elif frame.root.outcomes.follows:
            return real(iterable)  # a guard decides each element, and those after the one that decides are not computed
        else:
            items = _without_stores(name, iterable, frame)
        if not holds_traced(items):
            return real(items)
        if builtins.any(isinstance(i, TracedArray) and i.size != 1 for i in items):
            raise TraceError(f"{name} of arrays, whose truth is ambiguous; take np.{name} of each")
        result = weak(functools.reduce(combine, [scalar(i if holds_traced(i) else bool(i), "bool") for i in items]), "bool")
        result.known = _known(real, items)
        return result

    return call


twin(builtins.any)(_truth("any", builtins.any))
twin(builtins.all)(_truth("all", builtins.all))


@twin(builtins.sorted)
def sorted_(iterable: Any, /, *, key: Any = None, reverse: Any = False) -> Any:
    iterable = iterable.sequence() if isinstance(iterable, Keyed) and key is not None else _narrowed(iterable)
    if has_rows(iterable):
        result = iterable.as_list()
        result.sort(key=key, reverse=reverse)
        return result
    items = list(iterable)
    keys = items if key is None else [key(i) for i in items]
    is_undecided = is_undecided_order(keys)
    result = sorted_items(items, keys, reverse) if is_undecided else builtins.sorted(items, key=key, reverse=reverse)
    frame = current()
    return operator_called(PREFIX + "list")(result) if frame is not None and frame.root.rolls else result


@twin(builtins.round)
def round_(number: Any, ndigits: Any = None) -> Any:
    """Round half to even; without ``ndigits`` the result is an int, as for Python's numbers and NumPy's scalars."""
    if not isinstance(number, TracedArray):
        return builtins.round(number, ndigits)
    if ndigits is not None:
        return rounded(number, ndigits)
    if number.ndim:
        raise TypeError("type numpy.ndarray doesn't define __round__ method")
    return integer(scalar(number, "float" if number.dtype.kind == "f" else "int"), xp.rint)


@twin(builtins.pow)
def pow_(base: Any, exp: Any, mod: Any = None) -> Any:
    if mod is not None and takes_traced((base, exp, mod), {}):
        raise TraceError("pow with a modulus of traced values is not supported; write base**exp % mod, which must fit 64 bits")
    return builtins.pow(base, exp, mod)


@call_of("float")
def float_(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and is_size(args[0]):
        return as_float(args[0])
    return scalar(args[0], "float") if takes_traced(args, kwargs) else float(*args, **kwargs)


@call_of("complex")
def complex_(*args: Any, **kwargs: Any) -> Any:
    if not takes_traced(args, kwargs):
        return complex(*args, **kwargs)
    return _complex(*args, **kwargs)


def _complex(real: Any = 0, imag: Any = None) -> Any:
    """Return Python's complex(real, imag): ``imag`` may be complex too, and is multiplied by 1j and added."""
    x = scalar(real, "complex")
    if imag is None:
        return x
    y = scalar(imag, "complex")
    return weak(emit("complex", *(as_traced(p) for p in promote(x.real - y.imag, x.imag + y.real))), "complex")


@call_of("int")
def int_(*args: Any, **kwargs: Any) -> Any:
    """Truncate to a 64-bit int; the compiled program raises Python's ValueError for NaN and OverflowError out of range."""
    if len(args) == 1 and is_size(args[0]):
        return as_int(args[0])
    if not takes_traced(args, kwargs):
        return int(*args, **kwargs)
    if len(args) > 1 or kwargs:
        raise TypeError("int() can't convert non-string with explicit base")
    x = as_traced(args[0])
    if x.dtype.kind == "f" and not x.weak:
        x = cast(x, np.float64)
    return integer(scalar(x, "float" if x.dtype.kind == "f" else "int"))


@call_of("bool")
def bool_(*args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and (has_rows(args[0]) or isinstance(args[0], Keyed)):
        return scalar(args[0].length() != 0, "bool")
    if not takes_traced(args, kwargs) or len(args) != 1:
        return bool(*args, **kwargs)
    x = args[0]
    if isinstance(x, TracedArray) and x.size == 1:
        return scalar(x, "bool")
    return bool(x)


def _conversion(kind: Any) -> Callable[..., Any]:
    @functools.wraps(kind, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and is_size(args[0]):
            return lifted(kind, args[0])
        if not takes_traced(args, kwargs):
            return kind(*args, **kwargs)
        (value,) = args
        return as_stored(value, kind)

    return call


converts((kind for kind in np.sctypeDict.values() if np.dtype(kind).kind in "biufc"), _conversion)
