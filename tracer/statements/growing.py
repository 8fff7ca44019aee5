"""Lists whose number of elements values decide: their elements are rows of arrays that are long enough, the first ``length``.

A list that the function makes is a plain list until a block on traced values changes its length. The statement of the block then
gives it arrays (``stack``), of as many rows as the statement may need, and is traced again: ``append`` writes a row and
``length`` is an item of the list like any other state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.frame import current, frame_of
from pullback.tracer.arrays.make import as_traced, cast, emit, fresh, full, number_of_extent
from pullback.tracer.arrays.traced import Listed, TracedArray
from pullback.tracer.arrays.tree import TreeDef, bare, flatten
from pullback.tracer.arrays.value_extents import value_extent
from pullback.tracer.arrays.views import root_of
from pullback.tracer.names.side_effects import effect, watched_contents
from pullback.tracer.syntax.table import operator
from pullback.tracer.transforms.branches import common, shortened
from pullback.tracer.transforms.region import rebuild
from pullback.tracer.user_code.errors import Restart, TraceError, user_loc

ALIAS = "it is an element of a list; write into a copy"
_LARGEST = 2**48
"""An upper bound of lengths, by which their arithmetic does not overflow."""


class Rows:
    """The elements of a list: ``tree``, the structure of one; ``buffers``, an array for each of its leaves, with the names of
    Python's types in ``weak``; ``length``, the number of elements. ``capacity``: the number of rows; ``least`` and ``most``:
    bounds of the length, or, in a block, what they would be if it started with the bounds before the block. ``frame``: the frame
    of the buffers. ``counts``: elements are counted and not stored."""

    def __init__(self, tree: TreeDef, buffers: list[TracedArray], weak: list[str], length: Any, capacity: Any) -> None:
        self.tree, self.buffers, self.weak, self.length, self.capacity = tree, buffers, weak, length, capacity
        self.least, self.most = length, length
        self.frame, self.counts = frame_of(), False


class Grows(Restart):
    """Signals a list whose arrays are too short for a block: the statement in the frame of the list is to be traced again.
    ``samples``: elements of the block; ``needed``: the most elements at its end, ``before``: at its start."""

    def __init__(self, target: GrowingList, samples: Sequence[Any], before: Any, needed: Any) -> None:
        super().__init__(target.name)
        self.loc = user_loc()
        self.target, self.samples, self.before, self.needed = target, samples, before, needed


class GrowingList(Listed):
    """A list of the traced function."""

    __slots__ = ("name", "peak", "rows")
    stands_for = list

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        super().__init__(elements)
        self.rows: Rows | None = None
        self.peak, self.name = list.__len__(self), "a list"

    # the arrays

    def state(self) -> tuple[Any, ...]:
        """Return what a block may change besides the items."""
        rows = self.rows
        return (rows, self.peak) if rows is None else (rows, self.peak, rows.least, rows.most, rows.buffers, rows.length)

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Give the list a state of before."""
        self.rows, self.peak = state[:2]
        if self.rows is not None:
            self.rows.least, self.rows.most, self.rows.buffers, self.rows.length = state[2:]

    def samples(self) -> list[Any]:
        """Return elements of the types that the list has, or an element of its arrays' types."""
        rows = self.rows
        if rows is None:
            return self.entries()
        leaves = [TracedArray(_row_type(b), weak=weak) for b, weak in zip(rows.buffers, rows.weak, strict=True)]
        return [rebuild(rows.tree, leaves)]

    def peak_length(self) -> Any:
        """Return the most elements that the list had since ``peak`` was set."""
        return self.peak if self.rows is None else self.rows.most

    @property
    def most(self) -> Any:
        """The largest number of elements that the list may have."""
        return list.__len__(self) if self.rows is None else self.rows.most

    def stack(self, samples: Sequence[Any], capacity: Any, is_shared: bool = True) -> None:
        """Make the elements rows of arrays of ``capacity`` rows. ``samples``: elements that are stored later; ``is_shared``: the
        list is no copy, so that later writes into its elements would be lost."""
        elements = self.entries() if self.rows is None or isinstance(self.rows.length, int) else None
        if self.rows is not None and elements is None:
            self.widen(samples, capacity)
            return
        assert elements is not None
        flat = [flatten(x) for x in (*elements, *samples)]
        if not flat:
            raise TraceError("a list of no elements is changed in a branch or loop on traced values")
        tree = bare(flat[0][1])
        if any(bare(t) != tree for _, t in flat):
            raise TraceError("a list of elements of several structures grows in a branch or loop on traced values")
        columns = [[as_traced(x) for x in column] for column in zip(*(leaves for leaves, _ in flat), strict=True)]
        kinds = [_kind([_like(x) for x in column]) for column in columns]
        if is_shared:
            _freeze([*elements, *samples])
        count, buffers = len(elements), []
        more = _additional(capacity, count)
        for column, (dtype, _) in zip(columns, kinds, strict=True):
            padding = full((more, *column[0].shape), 0, dtype)
            stored = [cast(x, dtype)[None] for x in column[:count]]
            buffers.append(fresh(as_traced(np.concatenate([*stored, padding]) if stored else padding)))
        rows = Rows(tree, buffers, [weak for _, weak in kinds], count, count + more)
        if self.rows is not None:
            rows.least, rows.most = self.rows.least, self.rows.most
        list.clear(self)
        self.rows = rows

    def provide(self, grows: Grows, count: Any) -> None:
        """Stack the elements for a statement that runs a block ``count`` times. Raises ``grows`` if the arrays are of another
        frame, or if values decide by how many elements a run makes the list longer."""
        growth = grows.needed - grows.before
        is_bounded = type(growth) is int and (growth <= 0 or type(count) is not float)
        self.refuse_other_frame(grows)
        if not is_bounded:
            raise effect(f"a branch or loop on traced values changes the length of {self.name}; write into an array", grows.loc)
        if growth <= 0:
            self.stack(grows.samples, self.most if self.rows is None else self.rows.capacity)
        else:
            self.stack(grows.samples, capacity_of(count, growth, self.most))

    def refuse_other_frame(self, grows: Grows) -> None:
        """Raise ``grows`` if the arrays are of another frame than the current one."""
        if self.rows is not None and self.rows.frame is not frame_of():
            raise grows

    def count_only(self, samples: Sequence[Any]) -> None:
        """Count the elements that are appended from now on in the current frame, and store none."""
        if self.rows is None:
            self.stack(samples, list.__len__(self))
        before = self.rows
        assert before is not None
        self.rows = Rows(before.tree, before.buffers, before.weak, before.length, before.capacity)
        self.rows.least, self.rows.most, self.rows.counts = before.least, before.most, True

    def widen(self, samples: Sequence[Any], capacity: Any) -> None:
        """Make the arrays longer, and of types that hold ``samples`` too."""
        rows = self.rows
        assert rows is not None
        flat = [flatten(x) for x in samples]
        if any(bare(t) != rows.tree for _, t in flat):
            raise TraceError("a list of elements of several structures grows in a branch or loop on traced values")
        buffers, weak = [], []
        more = _additional(capacity, rows.capacity)
        for k, buffer in enumerate(rows.buffers):
            sample = TracedArray(_row_type(buffer), weak=rows.weak[k])
            dtype, name = _kind([sample, *(_like(as_traced(leaves[k])) for leaves, _ in flat)])
            longer = cast(buffer, dtype)
            if type(more) is not int or more > 0:
                longer = np.concatenate([longer, full((more, *buffer.shape[1:]), 0, dtype)])  # type: ignore[assignment]
            buffers.append(fresh(longer))
            weak.append(name)
        widened = Rows(rows.tree, buffers, weak, rows.length, rows.capacity + more)
        widened.least, widened.most = rows.least, rows.most
        self.rows = widened

    def entries(self) -> list[Any]:
        """Return the elements as a plain list. Raises TraceError if values decide their number."""
        rows = self.rows
        if rows is None:
            return list(list.__iter__(self))
        if not isinstance(rows.length, int):
            raise TraceError(
                "a list of a number of elements that values decide is used as a list of a fixed one; write np.array of the list"
            )
        return [self.row(k) for k in range(rows.length)]

    def array(self) -> TracedArray:
        """Return ``np.array`` of a list that is stacked."""
        rows = self.stored()
        parts = [self.column(k) for k in range(len(rows.buffers))]
        leaves = iter(parts)
        joined = _joined(rows.tree, leaves)
        return fresh(joined)

    def column(self, k: int) -> TracedArray:
        """Return the elements' leaf ``k``, in an array."""
        rows = self.stored()
        if isinstance(rows.length, int):
            return rows.buffers[k][: rows.length]
        return shortened(fresh(rows.buffers[k]), cast(self.length(), np.int64))

    def refuse_longer(self, most: Any) -> None:
        """Raise Grows if the arrays are of this frame and may be too short for ``most`` elements."""
        rows = self.rows
        if rows is not None and rows.frame is frame_of() and not rows.counts and _exceeds(most, rows.capacity):
            raise Grows(self, [], rows.most, most)

    def bound(self, least: Any, most: Any, length: int | None = None) -> None:
        """Set the bounds of the length, and the length if it is known."""
        rows = self.rows
        assert rows is not None
        rows.least, rows.most = least, most
        if length is not None:
            rows.length = length
            if rows.frame is frame_of():
                rows.least = rows.most = length

    def stored(self) -> Rows:
        """Return the rows. Raises TraceError if they are being counted."""
        assert self.rows is not None
        if self.rows.counts:
            raise TraceError("a loop without a bound reads a list that it makes longer; write into an array, or bound the loop")
        return self.rows

    def length(self) -> Any:
        """Return the number of elements, an int or a traced one."""
        if self.rows is None:
            return list.__len__(self)
        length = self.rows.length
        if isinstance(length, TracedArray):
            length = TracedArray(length.type, length.frame, length.value, weak="int", loc=length.loc)
            length.bounds = (0, _LARGEST)
        return length

    def row(self, k: Any) -> Any:
        """Return the element ``k``, which is in range."""
        rows = self.stored()
        leaves = []
        for buffer, weak in zip(rows.buffers, rows.weak, strict=True):
            leaf = fresh(buffer[k])
            leaf.weak = weak if not leaf.shape else ""
            leaves.append(leaf)
        element = rebuild(rows.tree, leaves)
        _freeze([element])
        return element

    def index_of(self, k: Any, message: str) -> Any:
        """Return an index from the first element on. Raises IndexError, at run time if values decide, if there is none."""
        rows = self.stored()
        length = self.length()
        if isinstance(length, int) and isinstance(k, int):
            if not -length <= k < length:
                raise IndexError(message)
            return k % length
        index = k if isinstance(k, int) else _as_index(k)
        if isinstance(index, int):
            position, holds = (index, length > index) if index >= 0 else (length + index, length >= -index)
        else:
            position = as_traced(np.where(index < 0, index + length, index))
            holds = np.logical_and(position >= 0, position < length)
        emit("check", as_traced(holds), error="IndexError", message=message)
        return _bounded(position, rows.capacity)

    def put(self, k: Any, element: Any) -> None:
        """Set the row ``k`` of the buffers. One that is not there is not set: the statement is traced again with more rows."""
        rows = self.rows
        assert rows is not None
        leaves, tree = flatten(element)
        if bare(tree) != rows.tree:
            raise TraceError("a list of elements of several structures grows in a branch or loop on traced values")
        arrays = [as_traced(x) for x in leaves]
        for x, buffer, weak in zip(arrays, rows.buffers, rows.weak, strict=True):
            empty = TracedArray(_row_type(buffer), weak=weak)
            if _kind([empty, _like(x)]) != (buffer.dtype, weak):
                if rows.frame is not frame_of():
                    raise Grows(self, [element], rows.most, rows.most)
                self.widen([element], rows.capacity)
                self.put(k, element)
                return
        _freeze([element])
        is_longer = isinstance(k, int) and type(rows.capacity) is int and k >= rows.capacity
        for x, buffer in zip(arrays, rows.buffers, strict=True):
            if not rows.counts and not is_longer:
                buffer[k] = cast(x, buffer.dtype)

    # the methods of a list

    def append(self, element: Any, /) -> None:
        rows = self.rows
        if rows is None:
            list.append(self, element)
            self.peak = max(self.peak, list.__len__(self))
            return
        if rows.frame is frame_of() and _exceeds(rows.most + 1, rows.capacity):
            self.widen([element], rows.most + 1)
            rows = self.rows
            assert rows is not None
        length = self.length()
        self.put(length if isinstance(length, int) else _bounded(length, rows.capacity), element)
        rows = self.rows
        assert rows is not None
        rows.length = length + 1
        rows.least, rows.most = rows.least + 1, rows.most + 1

    def extend(self, elements: Iterable[Any], /) -> None:
        if self.rows is None and not (isinstance(elements, GrowingList) and elements.rows is not None):
            list.extend(self, elements)
            self.peak = max(self.peak, list.__len__(self))
            return
        for element in list(elements):
            self.append(element)

    def __iadd__(self, elements: Iterable[Any]) -> GrowingList:  # type: ignore[misc]
        self.extend(elements)
        return self

    def insert(self, index: SupportsIndex, element: Any, /) -> None:
        if self.rows is None and not isinstance(index, TracedArray):
            list.insert(self, index, element)
            self.peak = max(self.peak, list.__len__(self))
            return
        self.refused("insert")

    def pop(self, index: Any = -1, /) -> Any:
        if self.rows is None:
            return list.pop(self, index)
        if not (type(index) is int and index == -1):
            self.refused("pop of an index")
        rows = self.stored()
        k = self.index_of(-1, "pop from empty list")
        element = self.row(k)
        rows.length = self.length() - 1
        rows.least -= 1
        return element

    def clear(self) -> None:
        if self.rows is None:
            list.clear(self)
        else:
            self.stored().length, self.rows.least = 0, -math.inf

    def copy(self) -> GrowingList:
        if self.rows is None:
            return GrowingList(list.__iter__(self))
        result, rows = GrowingList(), self.stored()
        result.rows = Rows(rows.tree, [fresh(x) for x in rows.buffers], rows.weak, rows.length, rows.capacity)
        result.rows.least, result.rows.most = rows.least, rows.most
        return result

    __copy__ = copy

    def __len__(self) -> int:
        length = self.length()
        return length if isinstance(length, int) else int(length)

    def __bool__(self) -> bool:
        length = self.length()
        return bool(length != 0)

    def __iter__(self) -> Iterator[Any]:
        return list.__iter__(self) if self.rows is None else iter(self.entries())

    def __reversed__(self) -> Iterator[Any]:
        return list.__reversed__(self) if self.rows is None else iter(self.entries()[::-1])

    def __getitem__(self, k: Any) -> Any:
        if self.rows is None and is_undecided_index(k):
            return self.copied().row_at(k, "list index out of range")
        if self.rows is None:
            result = list.__getitem__(self, k)
            return GrowingList(result) if isinstance(k, slice) else result
        if isinstance(k, slice):
            if k == slice(None):
                return self.copy()
            return GrowingList(self.entries()[k])
        return self.row_at(k, "list index out of range")

    def copied(self) -> GrowingList:
        """Return a list with rows of the same elements."""
        result = GrowingList(list.__iter__(self))
        result.stack([], list.__len__(self), is_shared=False)
        return result

    def row_at(self, k: Any, message: str) -> Any:
        """Return the element of an index. Raises IndexError, at run time if values decide, if there is none."""
        return self.row(self.index_of(k, message))

    def __setitem__(self, k: Any, element: Any) -> None:
        if self.rows is None and is_undecided_index(k):
            self.stack([element], list.__len__(self))
        if self.rows is None:
            list.__setitem__(self, k, element)
            self.peak = max(self.peak, list.__len__(self))
        elif isinstance(k, slice):
            self.refused("a slice that is assigned")
        else:
            self.put(self.index_of(k, "list assignment index out of range"), element)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return GrowingList([*self.entries(), *other])

    def __radd__(self, other: Any) -> Any:
        return GrowingList([*other, *self.entries()]) if isinstance(other, list) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        return GrowingList(list.__mul__(self.entries(), count))

    __rmul__ = __mul__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (self.entries(),)

    def __eq__(self, other: Any) -> Any:
        return list(self.entries()) == (other.entries() if isinstance(other, GrowingList) else other)

    def __ne__(self, other: Any) -> Any:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, value: Any) -> bool:
        return value in self.entries()

    def refused(self, what: str) -> NoReturn:
        """Raise TraceError for a change that is not supported."""
        raise TraceError(f"{what} of a list of a number of elements that values decide is not supported; append, pop, or set")


def _unsupported(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def call(self: GrowingList, *args: Any, **kwargs: Any) -> Any:
        if self.rows is not None:
            self.refused(name.strip("_"))
        return method(self, *args, **kwargs)

    return call


for _name in ("remove", "reverse", "sort", "index", "count", "__delitem__", "__imul__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(GrowingList, _name, _unsupported(_name))


def _exceeds(length: Any, capacity: Any) -> bool:
    if type(length) is int and type(capacity) is int:
        return length > capacity
    difference = length - capacity
    return type(difference) is not int or difference > 0


def _additional(capacity: Any, count: Any) -> Any:
    """Return the number of rows that are missing to ``capacity``, not less than 0."""
    if type(capacity) is int and type(count) is int:
        return max(capacity - count, 0)
    more = as_traced(np.maximum(number_of_extent(capacity) - number_of_extent(count), 0))
    return value_extent(more, least=0)


def is_undecided_index(k: Any) -> bool:
    """Return whether an index is an integer that values decide."""
    return isinstance(k, TracedArray) and not k.shape and k.dtype.kind in "iu" and known_value(k) is None


def _like(x: TracedArray) -> TracedArray:
    """Return an array of the type of another, of no frame."""
    return TracedArray(x.type, weak=x.weak)


def _row_type(buffer: TracedArray) -> Any:
    return type(buffer.type)(buffer.type.dtype, buffer.type.shape[1:])


def _kind(column: Sequence[TracedArray]) -> tuple[Any, str]:
    """Return the dtype and weak kind of the elements of a list. Raises TraceError if they have none in common."""
    kind = common(column) if all(x.shape == column[0].shape for x in column) else None
    if kind is None or any(not x.weak and x.dtype != kind[0] for x in column):
        raise TraceError("a list of elements of several shapes or dtypes grows in a branch or loop on traced values")
    return kind


def _freeze(elements: Sequence[Any]) -> None:
    """Refuse later writes into arrays in elements of a list, and later changes of their containers."""
    effects, seen = frame_of().root.names.effects, set[int]()
    for element in elements:
        for x in flatten(element)[0]:
            if isinstance(x, TracedArray) and (x.shape or x.is_cell):
                for each in (x, root_of(x)):
                    each.readonly = each.readonly or ALIAS
        for is_unchanged in watched_contents(element, seen):
            effects.watch(is_unchanged, "an element of a list that grows in a branch or loop on values is changed; copy it")


def _as_index(k: Any) -> Any:
    if not isinstance(k, TracedArray) or k.shape or k.dtype.kind not in "iub":
        raise TypeError(f"list indices must be integers or slices, not {type(k).__name__}")
    index = as_traced(np.int64(0) + k)
    index.weak, index.bounds = "int", (-_LARGEST, _LARGEST)
    return index


def _bounded(position: Any, capacity: Any) -> Any:
    """Return an index of a row, with its bounds."""
    if isinstance(position, int):
        return position
    index = as_traced(position)
    index = TracedArray(index.type, index.frame, index.value, weak="int", loc=index.loc)
    index.bounds = (0, max(capacity - 1, 0) if type(capacity) is int else _LARGEST)
    return index


def _joined(tree: TreeDef, leaves: Iterator[TracedArray]) -> Any:
    """Return ``np.array`` of elements of a structure, from an array of all for each leaf."""
    if tree.kind == "leaf":
        return next(leaves)
    if tree.kind not in ("tuple", "list", "namedtuple") or not tree.children:
        raise TraceError(f"np.array of a list of {tree!r}")
    return np.stack([_joined(child, leaves) for child in tree.children], axis=1)


def capacity_of(count: Any, growth: int, most: Any) -> Any:
    """Return the number of rows for a list of at most ``most`` elements that gets ``growth`` more in each iteration."""
    if growth <= 0:
        return most
    if isinstance(count, int):
        return most + growth * max(count, 0)
    extent = count if is_value_size(count) else value_extent(as_traced(np.maximum(count, 0)), least=0)
    return most + growth * extent


def largest(a: Any, b: Any) -> Any:
    """Return an upper bound of two upper bounds of a length, which may be extents by value."""
    if isinstance(a, int | float) and isinstance(b, int | float):
        return max(a, b)
    return a if isinstance(a - b, int) and a - b >= 0 else b if isinstance(b - a, int) else math.inf


@operator("list")
def list_of(elements: list[Any]) -> list[Any]:
    """Return a list of the traced function, that of a display or comprehension."""
    frame = current()
    if frame is None or not frame.root.rolls:
        return elements
    frame.root.has_lists = True
    return GrowingList(elements) if frame.root.grows else elements
