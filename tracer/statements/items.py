"""What ``for`` loops go over: ranges, rows of arrays, and pairs of these, of which a traced index selects an item."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.concretize import any_value, known_value
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast, emit, literal
from pullback.tracer.arrays.python_floats import require
from pullback.tracer.arrays.python_ints import MAX_TRIP_COUNT, bounds_of
from pullback.tracer.arrays.python_scalars import integer
from pullback.tracer.arrays.replacements import library_twin
from pullback.tracer.arrays.traced import Gathers, Keyed, Listed, TracedArray, has_rows
from pullback.tracer.arrays.tree import bare, flatten
from pullback.tracer.arrays.value_extents import number_of
from pullback.tracer.arrays.views import root_of
from pullback.tracer.functions.numpy.put import Flat
from pullback.tracer.statements.branches import is_undecided
from pullback.tracer.statements.growing import GrowingList
from pullback.tracer.syntax import table
from pullback.tracer.user_code.errors import TraceError


class Items:
    """A sequence of ``count`` items, of which ``at(k)`` is item ``k``; ``count`` and ``k`` are ints or traced ones. ``lists``:
    the lists whose elements are rows of arrays among what it goes over; ``length`` returns the number of items of a sequence
    that iterations may change; ``is_running``: an item is computed from the one before, so that each is read once, in order."""

    def __init__(
        self, count: Any, at: Callable[[Any], Any], lists: Sequence[Listed] = (), length: Callable[[], int] | None = None,
        is_running: bool = False,
    ) -> None:  # fmt: skip
        self.counted, self.at, self.lists, self.length, self.is_running = count, at, lists, length, is_running

    @property
    def is_endless(self) -> bool:
        """Whether there are more items than any loop has iterations."""
        return isinstance(self.counted, int) and self.counted >= ENDLESS

    @property
    def count(self) -> Any:
        """The number of items, an int or a traced one."""
        return self.counted if self.length is None else self.length()

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the items. Raises TraceError if values decide their number."""
        if not self.is_counted:
            raise TraceError("a loop over a range of a traced value together with a Python iterable; zip ranges and arrays")
        return (self.at(k) for k in range(self.count))

    @property
    def is_counted(self) -> bool:
        """Whether the number of items is known in the trace."""
        return isinstance(self.count, int)


Sequences = Callable[..., "Items | None"]
ENDLESS = 2**62
"""The number of items of a sequence without an end: a loop over as many takes a century."""
ZERO_STEP = "range() arg 3 must not be zero"
MOST_CHOSEN = 4
"""The most items in a tuple of ``itertools.combinations`` for which there is a table of indices."""
MOST_TUPLES = 2**20
"""The most tuples in such a table, whose indices take 8 bytes each."""
_SEQUENCES: dict[Any, Sequences] = {}
"""By functions that return what a loop may go over: functions that return its ``Items``; None for arguments of which only Python
knows the items."""


def sequence(*functions: Any) -> Callable[[Sequences], Sequences]:
    """Decorate the function that returns the items of calls of ``functions``."""

    def register(make: Sequences) -> Sequences:
        _SEQUENCES.update(dict.fromkeys(functions, make))
        return make

    return register


@table.operator("items")
def items_of(function: Any, *arguments: Any, **keywords: Any) -> Any:
    """Return what a function returns that a loop goes over: ``Items`` if it is one of ``_SEQUENCES``, and its arguments are
    traced, or items themselves."""
    if getattr(function, "__name__", "") == "prange" and str(getattr(function, "__module__", "")).startswith("numba"):
        function = range  # which Numba's makes in plain Python
    make = _SEQUENCES.get(function) if isinstance(function, type | FunctionType) else None
    if make is not None and keywords:
        positional = _without_keywords(function, arguments, keywords)
        result = None if positional is None else make(*positional)
        return function(*arguments, **keywords) if result is None else result
    result = None if make is None else make(*arguments)
    return function(*arguments, **keywords) if result is None else result


@sequence(range)
def _range_of(*arguments: Any) -> Items | None:
    if not any(map(is_undecided, arguments)):
        return None
    for x in arguments:
        operator.index(any_value(x) if isinstance(x, TracedArray) else x)  # raises TypeError for a float
    start, stop, step = (0, *arguments, 1) if len(arguments) == 1 else (*arguments, 1)[:3]
    if isinstance(step, TracedArray) and known_value(step) is not None:
        return items_of(range, start, stop, operator.index(step))
    return _range(start, stop, step)


@sequence(itertools.count)
def _counted(*arguments: Any) -> Items | None:
    start, step = (*arguments, 1)[:2] if arguments else (0, 1)
    if len(arguments) > 2 or type(step) is not int or not -(2**16) < step < 2**16 or not step:
        return None
    if type(start) is int and -ENDLESS <= start <= ENDLESS:
        bounds = (start, 2**63 - 1) if step > 0 else (-(2**63), start)
    elif isinstance(start, TracedArray) and start.weak == "int":
        bounds = None
    else:
        return None

    def at(k: Any) -> Any:
        item = start + k * step
        if isinstance(item, TracedArray) and bounds is not None:
            item.bounds = bounds
        return item

    return Items(ENDLESS, at)


@sequence(itertools.accumulate)
def _accumulated(*arguments: Any) -> Items | None:
    function, initial = (*arguments[1:], None, None)[:2]
    inner = items(arguments[0]) if len(arguments) in (1, 2, 3) else None
    if inner is None or not inner.is_counted or inner.length is not None or inner.is_running:
        return None
    combined = operator.add if function is None else function
    skipped = 0 if initial is None else 1
    running: list[Any] = [None]  # a list, which is state of the blocks of a loop

    def at(k: Any) -> Any:
        if isinstance(k, int) and k == 0:
            running[0] = inner.at(0) if initial is None else initial
        else:
            running[0] = combined(running[0], inner.at(k - skipped))
        return running[0]

    return Items(inner.count + skipped, at, inner.lists, is_running=True)


@sequence(enumerate)
def _enumerated(*arguments: Any) -> Items | None:
    inner = items(arguments[0]) if len(arguments) in (1, 2) else None
    if inner is None:
        return None
    first, at = arguments[1] if len(arguments) == 2 else 0, inner.at
    return Items(inner.count, lambda k: (k + first, at(k)), inner.lists, inner.length, inner.is_running)


@sequence(zip)
def _zipped(*arguments: Any) -> Items | None:
    parts = _parts(arguments)
    if not parts:
        return None
    counts = [p.count for p in parts if p.length is None]
    count = functools.reduce(_least, counts) if counts else None
    lengths = [p.length for p in parts if p.length is not None]
    if lengths and not (count is None or isinstance(count, int)):
        return None
    length = (lambda: min(*([] if count is None else [count]), *(n() for n in lengths), math.inf)) if lengths else None
    return Items(count, lambda k: tuple(p.at(k) for p in parts), [x for p in parts for x in p.lists], length)


@sequence(reversed)
def _reversed(*arguments: Any) -> Items | None:
    inner = items(arguments[0]) if len(arguments) == 1 else None
    if inner is None or inner.is_running:
        return None
    count = inner.count

    def at(k: Any) -> Any:
        if inner.length is not None and inner.count != count:
            raise TraceError("a loop over a reversed list changes the length of the list; go over a copy")
        return inner.at(count - 1 - k)

    return Items(count, at, inner.lists)


@sequence(itertools.pairwise)
def _pairwise(*arguments: Any) -> Items | None:
    inner = items(arguments[0]) if len(arguments) == 1 else None
    if inner is None or not inner.is_counted or inner.is_running:
        return None
    return Items(max(inner.count - 1, 0), lambda k: (inner.at(k), inner.at(k + 1)), inner.lists)


@sequence(itertools.product)
def _product(*arguments: Any) -> Items | None:
    parts = _parts([tuple(x) if _is_list(x) else x for x in arguments])
    if parts is None or not all(p.is_counted for p in parts):
        return None
    counts = [p.count for p in parts]
    at = lambda k: tuple(p.at(i) for p, i in zip(parts, _indices(k, counts), strict=True))  # noqa: E731
    return Items(math.prod(counts), at, [x for p in parts for x in p.lists])


def _chosen(function: Any, *arguments: Any) -> Items | None:
    """Return the tuples of some of the items that a function of itertools chooses, by a table of the indices of these."""
    inner = items(tuple(arguments[0]) if _is_list(arguments[0]) else arguments[0]) if len(arguments) == 2 else None
    size = arguments[-1]
    if inner is None or not inner.is_counted or inner.is_running or type(size) is not int or not 0 < size <= MOST_CHOSEN:
        return None
    if _number_of_choices(function, inner.count, size) > MOST_TUPLES:
        return None
    table = np.array([*function(range(inner.count), size)], np.int64).reshape(-1, size)

    def at(k: Any) -> Any:
        if isinstance(k, int):
            return tuple(inner.at(int(i)) for i in table[k])
        return tuple(inner.at(_index(_element(column, k))) for column in table.T)

    return Items(len(table), at, inner.lists)


for _function in (itertools.combinations, itertools.combinations_with_replacement, itertools.permutations):
    sequence(_function)(functools.partial(_chosen, _function))


def _number_of_choices(function: Any, count: int, size: int) -> int:
    """Return the number of tuples of ``size`` of ``count`` items."""
    if function is itertools.permutations:
        return math.perm(count, size)
    return math.comb(count if function is itertools.combinations else count + size - 1, size)


def _index(element: TracedArray) -> TracedArray:
    """Return a traced number as an index."""
    element.weak = "int"
    return element


@sequence(np.ndindex)
def _indices_of(*arguments: Any) -> Items | None:
    shape = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], tuple) else arguments
    if not all(isinstance(n, int) and n >= 0 for n in shape):
        return None
    return Items(math.prod(shape), lambda k: _indices(k, shape))


@sequence(np.broadcast, library_twin(np.broadcast))
def _broadcast_elements(*arguments: Any) -> Items | None:
    if not any(isinstance(x, TracedArray) for x in arguments):
        return None
    return _zipped(*(as_traced(np.ravel(x)) for x in np.broadcast_arrays(*arguments)))


@sequence(np.ndenumerate, library_twin(np.ndenumerate))
def _enumerated_elements(*arguments: Any) -> Items | None:
    x = arguments[0] if len(arguments) == 1 else None
    inner = _indices_of(x.shape) if isinstance(x, TracedArray) else None
    return None if inner is None or not isinstance(x, TracedArray) else Items(inner.count, lambda k: (i := inner.at(k), x[i]))


def _parts(arguments: Sequence[Any]) -> list[Items] | None:
    """Return each argument as items; None if only Python knows those of one, or computes one from another."""
    parts = list(map(items, arguments))
    return None if any(p is None or p.is_running for p in parts) else [p for p in parts if p is not None]


def _indices(k: Any, shape: Sequence[int]) -> tuple[Any, ...]:
    """Return the indices of element ``k`` of an array, in row-major order."""
    result = []
    stride = math.prod(shape)
    for n in shape:
        stride //= max(n, 1)
        index = k // max(stride, 1) % max(n, 1)
        if isinstance(index, TracedArray):
            index.weak, index.bounds = "int", (0, n - 1)
        result.append(index)
    return tuple(result)


def _without_keywords(function: Any, arguments: Sequence[Any], keywords: dict[str, Any]) -> Sequence[Any] | None:
    """Return the arguments of an equal call by position: ``enumerate(x, start=k)`` is ``enumerate(x, k)``, and ``zip`` of equal
    lengths needs no ``strict``. None if there is none."""
    if function is enumerate and keywords.keys() == {"start"} and len(arguments) == 1:
        return (*arguments, keywords["start"])
    if function is itertools.accumulate and not keywords.keys() - {"func", "initial"} and 1 <= len(arguments) <= 2:
        functions = [*arguments[1:], *([keywords["func"]] if "func" in keywords else [])]
        return (arguments[0], *(functions or [None]), keywords.get("initial")) if len(functions) < 2 else None
    if function is zip and keywords.keys() == {"strict"}:
        counts = list(map(_known_count, arguments))
        is_equal = all(n is not None and type(n) is type(counts[0]) and n == counts[0] for n in counts)
        return arguments if is_equal or not keywords["strict"] else None
    return None


def _known_count(value: Any) -> Any:
    """Return the number of items of a value, an int or the extent by value of an array; None for a number that values decide."""
    if isinstance(value, Gathers):
        value = value.elements()
    if isinstance(value, TracedArray) and value.shape and is_value_size(value.shape[0]):
        return value.shape[0]
    own = items(value)
    return own.count if own is not None and own.is_counted else None


def _least(a: Any, b: Any) -> Any:
    """Return the less of two counts."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else as_traced(np.minimum(a, b))


def items(value: Any) -> Items | None:
    """Return a range, an array or other items as items; None for an iterable of which only Python knows the items."""
    if isinstance(value, Items):
        return value
    if issubclass(type(value), Keyed):
        inner = items(value.sequence())
        return None if inner is None else Items(inner.count, inner.at, (*inner.lists, value.entries), inner.length)
    if has_rows(value):
        source = getattr(value, "source", None)
        return Items(value.length(), value.row, (value,) if source is None else (value, source))
    if isinstance(value, range):
        return _range(value.start, value.stop, value.step)
    if isinstance(value, Gathers):
        value = value.elements()
    if isinstance(value, Flat):
        return Items(len(value), lambda k: value[k])
    if _is_list(value):
        return _elements_of(value)
    if type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind in "biufc":
        return Items(len(value), lambda k: value[k] if isinstance(k, int) else _element(value, k))
    if isinstance(value, TracedArray) and value.shape and is_value_size(value.shape[0]):
        return Items(number_of(value.shape[0]), lambda k: value[k])
    if isinstance(value, TracedArray) and value.shape and isinstance(value.shape[0], int):
        return Items(value.shape[0], lambda k: value[k])
    return None


LEAST_STACKED = 4
"""The smallest number of elements of a list whose loop may be one of its rows: loops over fewer, such as the layers of a network,
unroll."""


def _is_list(value: Any) -> bool:
    """Return whether a value is a list or tuple of Python's, or a list of the function that is one as yet."""
    return type(value) in (list, tuple) or (type(value) is GrowingList and value.rows is None)


def _elements_of(value: Any) -> Items | None:
    """Return the elements of a list or tuple as items; None unless they are numbers or arrays, or trees of these, of one
    structure and one type."""
    if len(value) < LEAST_STACKED or not _is_uniform(value):
        return None
    rows = _Stacked(value)
    return Items(len(value), lambda k: value[k] if isinstance(k, int) else rows.row(value, k), length=lambda: len(value))


def _is_uniform(elements: Sequence[Any]) -> bool:
    """Return whether all elements are trees of one structure, whose leaves have one type each."""
    first: Any = None
    if any(map(_holds_rows, elements)):
        return False
    for element in elements:
        leaves, tree = flatten(element)
        kind = bare(tree), [_type_of(x) for x in leaves]
        first = kind if first is None else first
        if kind != first or not leaves or None in kind[1]:
            return False
    return True


def _holds_rows(element: Any) -> bool:
    """Return whether an element is, or holds, a list of rows of arrays, whose length values may decide."""
    return has_rows(element) or (type(element) in (list, tuple) and any(map(_holds_rows, element)))


def _type_of(leaf: Any) -> Any:
    """Return the type of a number or array of a tree: the name of Python's, or its dtype, and its shape; None for another."""
    if isinstance(leaf, TracedArray):
        return leaf.weak or leaf.dtype.str, leaf.shape
    if isinstance(leaf, np.ndarray | np.generic):
        return (leaf.dtype.str, leaf.shape) if leaf.dtype.kind in "biufc" else None
    if type(leaf) is int and not -(2**63) <= leaf < 2**63:
        return None
    return (type(leaf).__name__, ()) if type(leaf) in (bool, int, float, complex) else None


class _Stacked:
    """The elements of a list or tuple as rows of arrays, which are made for the first index that values decide, before the loop.

    A row is a copy. An iteration that changes the list, or writes an array in it, is refused.
    """

    def __init__(self, value: Any) -> None:
        self.frame, self.leaves = frame_of(), flatten(list(value))[0]
        self.contents = [root_of(x)._value for x in self.leaves if isinstance(x, TracedArray)]
        self.rows: GrowingList | None = None
        self.bounds: list[tuple[int, int] | None] = []

    def row(self, value: Any, k: Any) -> Any:
        """Return the element at an index. Raises TraceError if an iteration before may have changed it."""
        self.refuse_changed(value)
        if self.rows is None:
            with self.frame.active():
                self.rows = GrowingList(list(value)).copied()
            columns = zip(*(flatten(x)[0] for x in value), strict=True)
            self.bounds = [(min(c), max(c)) if all(type(x) is int for x in c) else None for c in columns]
        element = self.rows.row(k)
        for x, bounds in zip(flatten(element)[0], self.bounds, strict=True):
            x.bounds = bounds or x.bounds
        return element

    def refuse_changed(self, value: Any) -> None:
        """Raise TraceError unless the list and its arrays are what they were."""
        leaves = [] if has_rows(value) else flatten(list(value))[0]
        contents = [root_of(x)._value for x in leaves if isinstance(x, TracedArray)]
        pairs = zip((*leaves, *contents), (*self.leaves, *self.contents), strict=False)
        if len(leaves) != len(self.leaves) or any(x is not y for x, y in pairs):
            raise TraceError("a loop over a list on traced values changes the list, or an array in it; go over a copy")


def _ahead(start: Any, stop: Any) -> Any:
    """Return how far ``stop`` is ahead of ``start``, 0 if it is not. The difference of ints of NumPy may wrap around where it is
    not."""
    (least, _), (_, greatest) = bounds_of(as_traced(stop)), bounds_of(as_traced(start))
    if least - greatest >= -(2**63):
        return np.maximum(stop - start, 0)
    return np.where(stop > start, stop - start, 0)


def _range(start: Any, stop: Any, step: Any) -> Items:
    if all(isinstance(x, int) for x in (start, stop, step)):
        values = range(start, stop, step)
        return Items(len(values), lambda k: values[k] if isinstance(k, int) else _bounded(start + k * step, values))
    if isinstance(step, int):
        range(0, 1, step)  # raises Python's errors
    count = _length(start, stop, step)
    bounds = _item_bounds(start, stop, step)

    def at(k: Any) -> Any:
        if isinstance(step, int):
            item = as_traced(start + k * step)
        else:  # an item has 64 bits; a product that has more wraps around, and so does the sum, to the item
            offset = emit("mul", *(cast(as_traced(x), np.int64) for x in (k, step)))
            item = emit("add", cast(as_traced(start), np.int64), offset)
        item.weak, item.bounds = "int", bounds
        return item

    counted = as_traced(count)
    return Items(counted, at)


def _length(start: Any, stop: Any, step: Any) -> Any:
    """Return the number of items of a range. The program raises ValueError for a step of 0."""
    if isinstance(step, int):
        ahead, size = _ahead(*((start, stop) if step > 0 else (stop, start))), abs(step)
        return ahead if size == 1 else (ahead - 1) // size + 1
    start, stop, step = (x if x.weak == "int" else integer(x) for x in map(as_traced, (start, stop, step)))
    low, high = bounds_of(step)
    if low <= 0 <= high:
        require(emit("ne", step, literal(0, np.int64)), "ValueError", ZERO_STEP)
    if low >= 0 or high <= 0:
        ahead = _ahead(start, stop) if high > 0 else _ahead(stop, start)
    else:
        ahead = np.where(step > 0, _ahead(start, stop), _ahead(stop, start))
    size = abs(np.maximum(step, 1 - 2**63))  # a step that is longer by 1 has as many items
    return (ahead - 1) // size + 1


def _item_bounds(start: Any, stop: Any, step: Any) -> tuple[int, int] | None:
    """Return the bounds of the items of a range; None if they are no better than those of 64 bits. Those that follow from the end
    hold if the number of items is computed without an overflow."""
    (low, high), (least, greatest), steps = (bounds_of(as_traced(x)) for x in (start, stop, step))
    size = max(map(abs, steps))
    trips = MAX_TRIP_COUNT * size
    may_fall, may_rise = steps[0] < 0, steps[1] > 0
    bounds = (low - trips if may_fall else low, high + trips if may_rise else high)
    if max(abs(least - high), abs(greatest - low)) + size < 2**63:
        if may_fall and may_rise:
            bounds = (min(low, least + 1), max(high, greatest - 1))
        else:
            bounds = (max(bounds[0], least + 1), high) if may_fall else (low, min(bounds[1], greatest - 1))
    return bounds if abs(bounds[0]) < 2**63 and abs(bounds[1]) < 2**63 else None


def _element(values: np.ndarray[Any, Any], k: TracedArray) -> TracedArray:
    """Return the element of an array of known values at a traced index, with their bounds."""
    element = as_traced(values)[k]
    if values.dtype.kind in "iu" and values.max() < 2**63:
        element.bounds = (int(values.min()), int(values.max()))
    return element


def _bounded(item: Any, values: range) -> Any:
    """Return a traced item of a range, with the bounds of the range."""
    traced = as_traced(item)
    traced.weak, traced.bounds = "int", (min(values[0], values[-1]), max(values[0], values[-1]))
    return traced
