"""Lists whose number of elements values decide: their elements are rows of arrays that are long enough, the first ``length``.

A list that the function makes is a plain list until a block on traced values changes its length. The statement of the block then
gives it arrays (``stack``), of as many rows as the statement may need, and is traced again: ``append`` writes a row and
``length`` is an item of the list like any other state.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from pullback.ir.core.types import I64
from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.concretize import decides
from pullback.tracer.arrays.frame import Frame, current, frame_of
from pullback.tracer.arrays.make import as_traced, cast, emit, fresh, full, literal, number_of_extent, text_of
from pullback.tracer.arrays.mixed_numbers import column_name, column_tags, mixed, number_of_path, tag_value, tags_named
from pullback.tracer.arrays.ordering import is_undecided_order, order_of, sorted_items
from pullback.tracer.arrays.traced import Gathers, Keyed, Listed, Tagged, TracedArray
from pullback.tracer.arrays.tree import Container, TreeDef, bare, flatten, register
from pullback.tracer.arrays.value_extents import value_extent
from pullback.tracer.arrays.views import root_of
from pullback.tracer.names.side_effects import effect, watched_contents
from pullback.tracer.statements.choices import Choice, applied, narrowed
from pullback.tracer.statements.structures import merged, spread
from pullback.tracer.syntax.table import OPERATORS, PREFIX, operator
from pullback.tracer.transforms.branches import common, shortened
from pullback.tracer.transforms.region import rebuild
from pullback.tracer.user_code.check_messages import Handled
from pullback.tracer.user_code.errors import Restart, TraceError, user_loc

EMPTY = "np.array of an empty list whose elements would be arrays or sequences, which has another shape"
"""The error of a program in place of an array of another rank than that of lists that are not empty."""
ALIAS = "it is an element of a list; write into a copy"
"""The kind of numbers of which each is Python's or NumPy's (``tracer/arrays/mixed_numbers.py``)."""
MOST_RESULTS = 32
"""The length from which on a list of numbers with rows is one array in the result of a function, in elements: loading an element
and passing it to the caller costs about a kernel."""
_LARGEST = 2**48
"""An upper bound of lengths, by which their arithmetic does not overflow."""


class Rows:
    """The elements of a list: ``tree``, the structure of one; ``buffers``, an array for each of its leaves, with the names of
    their types in ``weak`` (``column_name``), and then one for the tags of each leaf that has them; ``length``, the number of
    elements.
    ``capacity``: the number of rows; ``least`` and ``most``: bounds of the length, or, in a block, what they would be if it
    started with the bounds before the block. ``frame``: the frame of the buffers. ``counts``: elements are counted and not
    stored. ``depth``: the elements are lists of one length, in one another as often as this (see ``nested``). ``stacked``: the
    buffers with their contents when they were made of the elements of a list; else empty.

    ``read``: the elements of several cases that were read, so that a test of one holds where it is read again."""

    depth = 0

    def __init__(self, tree: TreeDef, buffers: list[TracedArray], weak: list[str], length: Any, capacity: Any) -> None:
        self.tree, self.buffers, self.weak, self.length, self.capacity = tree, buffers, weak, length, capacity
        self.least, self.most = length, length
        self.frame, self.counts = frame_of(), False
        self.read: list[_Read] = []
        self.stacked: list[tuple[TracedArray, Any]] = []

    @property
    def leaves(self) -> list[tuple[TracedArray, str, TracedArray | None]]:
        """The buffer of each leaf, with the name of its type, and the buffer of its tags if it has any."""
        tags = iter(self.buffers[len(self.weak) :])
        values = self.buffers[: len(self.weak)]
        return [(b, name, next(tags) if tags_named(name) else None) for b, name in zip(values, self.weak, strict=True)]


class Grows(Restart):
    """Signals a list whose arrays are too short for a block: the statement in the frame of the list is to be traced again.
    ``samples``: elements of the block; ``needed``: the most elements at its end, ``before``: at its start."""

    def __init__(self, target: GrowingList, samples: Sequence[Any], before: Any, needed: Any) -> None:
        super().__init__(target.name)
        self.loc = user_loc()
        self.target, self.samples, self.before, self.needed = target, samples, before, needed


class _Read:
    """An element that was read at an index from buffers with some contents."""

    def __init__(self, index: Any, contents: Sequence[Any], element: Any) -> None:
        self.index, self.contents, self.element = index, contents, element
        self.frame = frame_of()
        self.at = len(self.frame.builder.instructions) - 1
        self.last = self.frame.builder.instructions[self.at] if self.at >= 0 else None

    def serves(self, index: Any, contents: Sequence[Any]) -> bool:
        """Return whether it is the element of an index in the current frame. One whose trace was undone is not."""
        is_same = self.index is index or (type(index) is int and type(self.index) is int and index == self.index)
        if not is_same or self.frame not in frame_of().outward:
            return False
        instructions = self.frame.builder.instructions
        is_there = 0 <= self.at < len(instructions) and instructions[self.at] is self.last
        return is_there and [*map(id, contents)] == [*map(id, self.contents)]


class GrowingList(Listed):
    """A list of the traced function. ``outside``: the state in which it came from outside, if its elements are inputs."""

    __slots__ = ("copy_with_rows", "fixed", "home", "name", "outside", "peak", "rows")

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        super().__init__(elements)
        self.rows: Rows | None = None
        self.copy_with_rows: _Copy | None = None
        self.outside: tuple[Any, ...] | None = None
        self.peak, self.name, self.home, self.fixed = list.__len__(self), "a list", current(), ""

    # the arrays

    def state(self) -> tuple[Any, ...]:
        """Return what a block may change besides the items."""
        rows = self.rows
        if rows is None:
            return (rows, self.peak)
        buffers = [] if type(rows) is Part else rows.buffers
        return (rows, self.peak, rows.least, rows.most, buffers, rows.length)

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
        leaves = [_sample(buffer, name, rows.depth) for buffer, name, _ in rows.leaves]
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
        if self.rows is not None and (elements is None or self.rows.depth):
            self.widen(samples, capacity)
            return
        if self.rows is None and is_shared and is_nested(self):
            self.rows = nested_rows(self, samples)
            return
        assert elements is not None
        root = frame_of().root
        has_lists = is_shared and any(isinstance(x, GrowingList) for x in (*elements, *samples))
        root.has_nested |= has_lists
        if root.nests and has_lists:
            raise TraceError("a list of lists gets longer in a branch or loop on traced values; make it long enough before")
        samples = samples if self.rows is None else [*samples, *self.samples()]
        flat = [flatten(x) for x in (*elements, *samples)]
        if not flat:
            raise TraceError("a list of no elements is changed in a branch or loop on traced values")
        tree = common_structure([bare(t) for _, t in flat])
        columns = [_completed(column) for column in zip(*(_spread(leaves, t, tree) for leaves, t in flat), strict=True)]
        kinds = [_kind([_like(x) for x in column]) for column in columns]
        if is_shared:
            _freeze([*elements, *samples])
        count, buffers = len(elements), []
        more = _additional(capacity, count)
        for column, (dtype, _) in zip(columns, kinds, strict=True):
            padding = full((more, *column[0].shape), 0, dtype)
            stored = _parts_of(column[:count], dtype)
            buffers.append(fresh(as_traced(np.concatenate([*stored, padding]) if stored else padding)))
        for column, (_, name) in zip(columns, kinds, strict=True):
            if dtype := tags_named(name):
                stored = _parts_of([tag_value(x, dtype) for x in column[:count]], dtype)
                buffers.append(fresh(as_traced(np.concatenate([*stored, full((more,), 0, dtype)]))))
        rows = Rows(tree, buffers, [weak for _, weak in kinds], count, count + more)
        if self.rows is not None:
            rows.least, rows.most = self.rows.least, self.rows.most
        else:
            rows.stacked = [(b, b._value) for b in buffers]
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
        """Raise ``grows`` if the list was made in another frame than the current one."""
        if self.home is not frame_of():
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
        tree = common_structure([rows.tree, *(bare(t) for _, t in flat)])
        if tree != rows.tree:
            rows = self.restructured(tree, flat)
        stored = [_spread(leaves, t, tree) for leaves, t in flat]
        buffers, weak, tags = [], [], []
        more = _additional(capacity, rows.capacity)
        for k, (buffer, before, own) in enumerate(rows.leaves):
            kinds = [_like(x) for leaves in stored if (x := leaves[k]) is not None]
            dtype, name = _kind([_sample(buffer, before, rows.depth), *kinds])
            buffers.append(_longer(cast(buffer, dtype), more))
            weak.append(name)
            if dtype := tags_named(name):
                shape = buffer.shape[: 1 + rows.depth]
                tags.append(_longer(column_tags(own, before, buffer.dtype, shape, dtype), more))
        widened = Rows(rows.tree, [*buffers, *tags], weak, rows.length, rows.capacity + more)
        widened.least, widened.most, widened.depth = rows.least, rows.most, rows.depth
        self.rows = widened

    def restructured(self, tree: TreeDef, samples: Sequence[tuple[list[Any], TreeDef]]) -> Rows:
        """Return the rows with elements of a structure that holds theirs and those of ``samples``, leaves and structures."""
        rows = self.rows
        assert rows is not None
        if rows.depth or any(tags is not None for _, _, tags in rows.leaves):
            raise TraceError(SEVERAL)
        columns = spread(rows.tree, [_sample(buffer, name) for buffer, name, _ in rows.leaves], tree)
        own = iter(zip(rows.buffers, rows.weak, strict=True))
        stored = [_spread(leaves, t, tree) for leaves, t in samples]
        buffers, weak = [], []
        for k, column in enumerate(columns):
            if column is not None and column.frame is None and column.literal is None:
                buffer, name = next(own)
            else:
                known = [x for leaves in stored if (x := leaves[k]) is not None]
                dtype, name = _kind([_like(column)] if column is not None else [_like(x) for x in known])
                shape = () if column is not None else known[0].shape
                value = 0 if column is None else column
                buffer = fresh(as_traced(np.zeros((rows.capacity, *shape), dtype) + np.asarray(value)))
            buffers.append(buffer)
            weak.append(name)
        result = Rows(tree, buffers, weak, rows.length, rows.capacity)
        result.least, result.most = rows.least, rows.most
        return result

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

    def contents(self) -> list[Any]:
        """Return the elements as a plain list, a copy. Raises TraceError if one may be changed under several names."""
        if is_part(self) or (self.rows is not None and self.rows.depth):
            raise TraceError("a nested list gets another name in a branch or loop on traced values; copy its rows")
        return self.entries()

    def array(self) -> TracedArray:
        """Return ``np.array`` of a list that is stacked."""
        rows = self.stored()
        if type(rows.length) is int and rows.length == 0:
            return as_traced(np.array([]))
        is_flat = rows.tree.kind == "leaf" and rows.buffers[0].ndim == 1
        if not is_flat and not (type(rows.length) is int or (rows.frame is frame_of() and rows.least > 0)):
            emit("check", as_traced(self.length() > 0), error="ValueError", message=EMPTY)
        parts = [self.column(k) for k in range(len(rows.weak))]
        leaves = iter(parts)
        joined = _joined(rows.tree, leaves)
        return fresh(joined)

    def total(self, start: Any) -> Any:
        """Return the sum of the elements, in their order."""
        rows = self.stored()
        total, first = start, 0
        if rows.tree.kind != "leaf" or rows.buffers[0].ndim > 1:
            emit("check", as_traced(self.length() > 0), error="ValueError", message=EMPTY.replace("np.array", "the sum"))
            total, first = start + self.row(0), 1

        def add(k: Any) -> None:
            nonlocal total
            total = total + self.row(k)

        OPERATORS[PREFIX + "for"](OPERATORS[PREFIX + "items"](range, first, self.length()), add, None, ("total",), ())
        return total

    def result(self) -> Any:
        """Return the list as a result of the traced function: a tree, of which a call makes a list. Long lists of numbers are one
        array, of which each element would be a result of its own."""
        rows = self.stored()
        is_short = type(rows.length) is int and (rows.length <= MOST_RESULTS or not self.is_of_numbers)
        if is_short and not rows.depth:
            return self.entries()
        return self.columns()

    def columns(self) -> Result:
        """Return the list as columns, of which a call makes a list."""
        rows = self.stored()
        columns = [self.column(k) for k in range(len(rows.buffers))] or [as_traced(cast(self.length(), np.int64))]
        return Result(columns, (rows.tree, tuple(rows.weak), rows.depth))

    def set_columns(self, like: Rows, columns: list[TracedArray]) -> None:
        """Give a list the elements of columns of a known length, of the types of other rows."""
        count = columns[0].shape[0]
        self.rows = Rows(like.tree, list(map(fresh, columns)), like.weak, count, count)
        list.clear(self)

    def set_buffers(self, like: Rows, buffers: list[TracedArray], length: TracedArray) -> None:
        """Give a list the elements of arrays, as many as values decide, of the types of other rows."""
        self.rows = Rows(like.tree, list(map(fresh, buffers)), like.weak, length, like.capacity)
        self.rows.least, self.rows.most = like.least, like.most
        list.clear(self)

    def is_as_stacked(self) -> bool:
        """Return whether the elements of a list with rows are those that it had before it had rows, in their order."""
        rows = whole_of(self).stored()
        return bool(rows.stacked) and all(b is a and b._value is v for b, (a, v) in zip(rows.buffers, rows.stacked, strict=True))

    @property
    def is_of_numbers(self) -> bool:
        """Whether the elements of a list with rows are numbers."""
        rows = self.stored()
        return rows.tree.kind == "leaf" and rows.buffers[0].ndim == 1

    def is_as_outside(self) -> bool:
        """Return whether a list from outside whose elements are inputs has those, and no others."""
        assert self.outside is not None
        return self.rows is not None and self.rows.length is self.outside[-1] and self.is_as_stacked()

    def holds_objects(self) -> bool:
        """Return whether elements of a list with rows are, or hold, arrays or containers that may change."""
        rows = self.stored()
        return any(b.ndim > 1 + rows.depth for b in rows.buffers) or not _is_of_tuples(rows.tree)

    def column(self, k: int) -> TracedArray:
        """Return the elements' leaf ``k``, in an array."""
        rows = self.stored()
        if isinstance(rows.length, int):
            return rows.buffers[k][: rows.length]
        return shortened(fresh(rows.buffers[k]), cast(self.length(), np.int64))

    @property
    def is_here(self) -> bool:
        """Whether the arrays, or the list, are of the current frame, or of the one around it whose statement runs here before."""
        frame: Frame | None = frame_of()
        while frame is not None and frame.is_counting and self.stored().frame is not frame and self.home is not frame:
            frame = frame.parent
        return frame is not None and (self.stored().frame is frame or self.home is frame)

    @property
    def is_at_home(self) -> bool:
        """Whether the arrays may be replaced here: in their frame, or in that of the list, whose statements make it longer."""
        return self.rows is not None and (self.rows.frame is frame_of() or self.home is frame_of())

    def refuse_longer(self, most: Any) -> None:
        """Raise Grows if the arrays are of this frame and may be too short for ``most`` elements."""
        rows = self.rows
        if rows is not None and not rows.counts and self.is_here and _exceeds(most, rows.capacity):
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
        if rows.depth:
            part = GrowingList()
            part.rows = Part(self, k)
            return part
        leaves = []
        for buffer, name, tags in rows.leaves:
            leaf = fresh(buffer[k])
            leaf.weak = name.partition("/")[0] if not leaf.shape else ""
            if tags is not None:
                leaf.type_tag = fresh(tags[k])
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
                raise list_error(message)
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
        self.refuse_fixed()
        rows = self.rows
        assert rows is not None
        if rows.depth:
            raise TraceError("a row of a nested list is replaced in a branch or loop on traced values; set its elements")
        leaves, tree = flatten(element)
        is_other = common_structure([rows.tree, bare(tree)]) != rows.tree
        arrays = [] if is_other else _spread(leaves, tree, rows.tree)
        kinds = ((x, buffer, name) for x, (buffer, name, _) in zip(arrays, rows.leaves, strict=False) if x is not None)
        if is_other or any(_kind([_sample(buffer, name), _like(x)]) != (buffer.dtype, name) for x, buffer, name in kinds):
            whole = whole_of(self)
            assert whole.rows is not None
            if not self.is_at_home:
                raise Grows(whole, [element], whole.rows.most, whole.rows.most)
            whole.widen([element], whole.rows.capacity)
            self.put(k, element)
            return
        _freeze([element])
        is_longer = isinstance(k, int) and type(rows.capacity) is int and k >= rows.capacity
        for x, (buffer, _, tags) in zip(arrays, rows.leaves, strict=True):
            if x is not None and not rows.counts and not is_longer:
                buffer[k] = cast(x, buffer.dtype)
                if tags is not None:
                    tags[k] = tag_value(x, tags.dtype)

    def shift(self, position: Any, by: int) -> None:
        """Move the rows from ``position`` on by one, to the back (1) or to the front (-1)."""
        self.refuse_fixed()
        rows = self.rows
        assert rows is not None
        for buffer in rows.buffers if not rows.counts else ():
            if type(buffer.shape[0]) is int and buffer.shape[0] < 2:
                continue
            index = emit("iota", shape=buffer.shape, axis=0, dtype=I64)
            buffer[...] = np.where(index >= position, emit("shift", buffer, axis=0, offset=by), buffer)

    # the methods of a list

    def append(self, element: Any, /) -> None:
        rows, element = self.rows, narrowed(element)
        if rows is None:
            list.append(self, element)
            self.peak = max(self.peak, list.__len__(self))
            return
        self.refuse_resized()
        if self.is_at_home and _exceeds(rows.most + 1, rows.capacity):
            self.widen([element], rows.most + 1)
            rows = self.rows
            assert rows is not None
        length = self.length()
        self.put(length if isinstance(length, int) else _bounded(length, rows.capacity), element)
        rows = self.rows
        assert rows is not None
        rows.length = length + 1
        rows.least, rows.most = rows.least + 1, rows.most + 1

    def append_unless(self, is_present: TracedArray, element: Any) -> None:
        """Append an element where a traced bool is false."""
        before = self.length()
        self.append(element)
        rows = self.rows
        assert rows is not None
        more = as_traced(np.where(is_present, 0, 1))
        more.weak, more.bounds = "int", (0, 1)
        rows.length = before + more
        rows.least -= 1

    def extend(self, elements: Iterable[Any], /) -> None:
        if self.rows is None and not (isinstance(elements, GrowingList) and elements.rows is not None):
            list.extend(self, elements)
            self.peak = max(self.peak, list.__len__(self))
            return
        if isinstance(elements, GrowingList) and isinstance(elements.length(), TracedArray):
            added = elements.copy()
            each = OPERATORS[PREFIX + "items"](range, added.length())
            OPERATORS[PREFIX + "for"](each, lambda k: self.append(added.row(k)), None, (), ())
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
        if self.rows is None:
            self.stack([element], list.__len__(self))
        k = self.bound_of(index)
        self.append(element)
        rows = self.rows
        assert rows is not None
        position = k if type(k) is int else _bounded(k, rows.capacity)
        self.shift(position, 1)
        self.put(position, element)

    def pop(self, index: Any = -1, /) -> Any:
        if self.rows is None and is_undecided_index(index):
            self.stack([], list.__len__(self))
        if self.rows is None:
            with list_errors():
                return list.pop(self, index)
        rows = self.stored()
        self.refuse_resized()
        self.refuse_fixed()
        if not (type(index) is int and index == -1):
            length = self.length()
            is_empty = type(length) is int and length == 0
            if type(length) is not int:
                emit("check", as_traced(length > 0), error="IndexError", message="pop from empty list")
            k = self.index_of(index, "pop from empty list" if is_empty else "pop index out of range")
            element = self.row(k)
            self.shift(k, -1)
        else:
            k = self.index_of(-1, "pop from empty list")
            element = self.row(k)
        rows.length = self.length() - 1
        rows.least -= 1
        return element

    def __delitem__(self, k: Any) -> None:
        if self.rows is None and is_undecided_index(k):
            self.stack([], list.__len__(self))
        if self.rows is None:
            list.__delitem__(self, k)
            return
        self.refuse_resized()
        self.refuse_fixed()
        if isinstance(k, slice):
            self.delete_slice(k)
            return
        self.shift(self.index_of(k, "list assignment index out of range"), -1)
        self.rows.length = self.length() - 1
        self.rows.least -= 1

    def delete_slice(self, part: slice) -> None:
        """Delete the elements of a slice, whose bounds values may decide."""
        rows, length = self.stored(), self.length()
        if part.step is not None and not (type(part.step) is int and part.step == 1):
            self.refused("a slice with a step that is deleted")
        start = 0 if part.start is None else self.bound_of(part.start)
        stop = length if part.stop is None else self.bound_of(part.stop)
        removed = max(stop - start, 0) if type(start) is type(stop) is int else np.maximum(stop - start, 0)
        for buffer in rows.buffers if not rows.counts else ():
            index = emit("iota", shape=buffer.shape[:1], axis=0, dtype=I64)
            last = np.maximum(number_of_extent(buffer.shape[0]) - 1, 0)
            buffer[...] = as_traced(buffer[np.minimum(np.where(index >= start, index + removed, index), last)])
        rows.length, rows.least = length - removed, -math.inf

    def bound_of(self, k: Any) -> Any:
        """Return the index at which a slice with a bound starts or ends, from 0 to the length."""
        length = self.length()
        k = k if type(k) is int else _as_index(k)
        if type(k) is int and type(length) is int:
            return max(k + length, 0) if k < 0 else min(k, length)
        if type(k) is int:
            return np.maximum(k + length, 0) if k < 0 else np.minimum(k, length)
        return np.clip(np.where(k < 0, k + length, k), 0, length)

    def delete_if(self, is_present: TracedArray, position: Any) -> None:
        """Delete the element of an index where a traced bool is true."""
        rows = self.stored()
        self.refuse_resized()
        self.refuse_fixed()
        self.shift(_bounded(np.where(is_present, position, self.length()), rows.capacity), -1)
        less = as_traced(np.where(is_present, 1, 0))
        less.weak, less.bounds = "int", (0, 1)
        rows.length = self.length() - less
        rows.least -= 1

    def clear(self) -> None:
        if self.rows is None:
            list.clear(self)
        else:
            self.refuse_resized()
            self.refuse_fixed()
            self.stored().length, self.rows.least = 0, -math.inf

    def copy(self) -> GrowingList:
        return self.copy_as(type(self))

    def as_list(self) -> GrowingList:
        return self.copy_as(GrowingList)

    def copy_as(self, kind: type[GrowingList]) -> GrowingList:
        """Return a list or deque of the same elements."""
        if self.rows is None:
            return kind(list.__iter__(self))
        result, rows = kind(), self.stored()
        if rows.depth:
            raise TraceError("a copy of a nested list has the rows of the list; copy the rows, or make an array of it")
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
        return self._unchanging() if self.rows is None else iter(self.entries())

    def _unchanging(self) -> Iterator[Any]:
        """Yield the elements. Raises TraceError if they become rows of arrays meanwhile."""
        for element in list.__iter__(self):
            yield element
            if self.rows is not None:
                raise TraceError("a loop over a list makes the list longer as values decide; go over a copy")

    def __reversed__(self) -> Iterator[Any]:
        return list.__reversed__(self) if self.rows is None else iter(self.entries()[::-1])

    def __getitem__(self, k: Any) -> Any:
        k = _proved_index(k)
        if isinstance(k, slice) and (self.rows is not None or _is_undecided_slice(k)):
            return self.sliced(k)
        if self.rows is None and is_undecided_index(k):
            if self.is_one_list():
                _check_index(k, list.__len__(self), "list index out of range")
                return list.__getitem__(self, 0)
            if not is_nested(self):
                return self.copied().row_at(k, "list index out of range")
            if self.home is not frame_of():
                raise Grows(self, [], list.__len__(self), list.__len__(self))
            self.stack([], list.__len__(self))
        if self.rows is None:
            with list_errors():
                result = list.__getitem__(self, k)
            return GrowingList(result) if isinstance(k, slice) else result
        return self.row_at(k, "list index out of range")

    def is_one_list(self) -> bool:
        """Return whether all elements are one list, as those of ``[row] * n``."""
        elements = list(list.__iter__(self))
        return bool(elements) and isinstance(elements[0], GrowingList) and all(x is elements[0] for x in elements)

    def sliced(self, part: slice) -> GrowingList:
        """Return the list of the elements of a slice, whose bounds and number values may decide."""
        rows = self.rows
        if rows is None:
            return self.copied().sliced(part)
        if part.start is None and part.stop is None and part.step is None:
            return self.copy()
        if type(rows.length) is int and not _is_undecided_slice(part):
            return GrowingList(self.entries()[part])
        if rows.depth:
            raise TraceError("a slice of a nested list has the rows of the list; make an array of it")
        if isinstance(part.step, TracedArray) and not decides(part.step):
            raise TraceError("a slice of a list with a step that values decide; write a loop, or make an array of the list")
        columns = [fresh(as_traced(self.column(k)[part])) for k in range(len(self.stored().buffers))]
        count = columns[0].shape[0]
        result = GrowingList()
        result.rows = Rows(rows.tree, columns, rows.weak, number_of_extent(count) if is_value_size(count) else count, count)
        result.rows.least = 0 if is_value_size(count) else count
        result.rows.most = count
        return result

    def copied(self) -> GrowingList:
        """Return a list with rows of the same elements, for reading: the one before if the elements have not changed since."""
        leaves, tree = flatten(list(list.__iter__(self)))
        values = [x._value if isinstance(x, TracedArray) else None for x in leaves]
        if self.copy_with_rows is None or not self.copy_with_rows.is_of(leaves, values, tree):
            frame = self._frame_of_copy(leaves)
            with frame.active():
                result = GrowingList(list.__iter__(self))
                result.stack([], list.__len__(self), is_shared=False)
            self.copy_with_rows = _Copy(result, leaves, values, tree, frame)
        return self.copy_with_rows.list

    def _frame_of_copy(self, leaves: Sequence[Any]) -> Frame:
        """Return the outermost frame in which the leaves of the elements are available, and are not written in a frame inside."""
        frames = list(frame_of().outward)
        traced = [x for x in leaves if isinstance(x, TracedArray) and x.literal is None]
        owners = [self.home, *(x.frame for x in traced)]
        if any(x.shape or x.is_cell for x in traced) or any(owner not in frames for owner in owners):
            return frames[0]
        return next(frame for frame in frames if frame in owners)

    def row_at(self, k: Any, message: str) -> Any:
        """Return the element of an index. Raises IndexError, at run time if values decide, if there is none."""
        rows = self.stored()
        if rows.tree.kind != "registered" or rows.depth:
            return self.row(self.index_of(k, message))
        contents = [b._value for b in rows.buffers]
        for read in rows.read[::-1]:
            if read.serves(k, contents):
                return read.element
        element = self.row(self.index_of(k, message))
        rows.read.append(_Read(k, contents, element))
        return element

    def __setitem__(self, k: Any, element: Any) -> None:
        k, element = _proved_index(k), narrowed(element)
        if isinstance(k, slice) and k == slice(None) and (self.rows is not None or _has_rows(element)):
            elements = GrowingList(element) if element is self or not isinstance(element, GrowingList) else element
            self.clear()
            self.extend(elements)
            return
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
        result = self.copy()
        result.extend(other)
        return result

    def __radd__(self, other: Any) -> Any:
        return GrowingList(other) + self if isinstance(other, list) else NotImplemented

    def __mul__(self, count: Any) -> Any:
        if self.rows is None or type(self.rows.length) is int:
            return GrowingList(list.__mul__(self.entries(), count))
        result = self.copy()
        result *= count
        return result

    __rmul__ = __mul__

    def __imul__(self, count: Any) -> GrowingList:
        if self.rows is None:
            list.__imul__(self, count)
            self.peak = max(self.peak, list.__len__(self))
            return self
        self.refuse_resized()
        self.refuse_fixed()
        if type(count) is not int or type(self.rows.most) is float or not self.is_at_home:
            self.refused("a product, or one in a branch or loop")
        if count <= 0:
            self.clear()
            return self
        self.widen([], self.rows.most * count)
        rows, length = self.rows, self.length()
        for buffer in rows.buffers if not rows.counts else ():
            index = emit("iota", shape=buffer.shape[:1], axis=0, dtype=I64)
            buffer[...] = as_traced(buffer[index % np.maximum(length, 1)])
        rows.length, rows.least, rows.most = length * count, rows.least * count, rows.most * count
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return list, (self.entries(),)

    def __eq__(self, other: Any) -> Any:
        return list(self.entries()) == (other.entries() if isinstance(other, GrowingList) else other)

    def __ne__(self, other: Any) -> Any:
        return not self == other

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, value: Any) -> bool:
        return value in self.entries()

    def equals(self, value: Any) -> TracedArray:
        """Return for each row of the buffers whether it is an element that is equal to a value."""
        rows = self.stored()
        leaves, tree = flatten(value)
        if not rows.buffers:
            raise TraceError("a list of elements without numbers is searched for a value that a traced one decides")
        index = emit("iota", shape=rows.buffers[0].shape[:1], axis=0, dtype=I64)
        is_other = rows.tree != bare(tree) and merged(rows.tree, bare(tree)) != rows.tree
        if is_other or any(as_traced(x).shape for x in leaves) or any(b.ndim > 1 for b in rows.buffers):
            raise TraceError("a list of a number of elements that values decide is searched for a value of another structure")
        result = index < self.length()
        for (buffer, *_), leaf in zip(rows.leaves, _spread(leaves, tree, rows.tree), strict=True):
            if leaf is not None:
                result = np.logical_and(result, buffer == leaf)
        return as_traced(result)

    def contains(self, value: Any) -> Any:
        """Return whether an element is equal to a value, a bool or a traced one."""
        result = as_traced(np.any(self.equals(value)))
        result.weak = "bool"
        return result

    def position(self, value: Any, message: str) -> Any:
        """Return the index of the first element that is equal to a value. Raises ValueError, at run time, if there is none."""
        is_equal = self.equals(value)
        emit("check", as_traced(np.any(is_equal)), error="ValueError", message=message)
        assert self.rows is not None
        return _bounded(np.argmax(is_equal), self.rows.capacity)

    def index(self, value: Any, /, *bounds: Any) -> Any:
        if self.rows is None and not self.is_searched(value):
            return list.index(self, value, *bounds)
        if bounds:
            self.refused("index with bounds")
        searched = self if self.rows is not None else self.copied()
        error = lambda: ValueError(text_of("{!r} is not in list", value))  # noqa: E731
        return searched.position(value, Handled("the value is not in list", error))

    def count(self, value: Any, /) -> Any:
        if self.rows is None and not self.is_searched(value):
            return list.count(self, value)
        searched = self if self.rows is not None else self.copied()
        result = as_traced(np.sum(searched.equals(value)))
        result.weak = "int"
        return result

    def remove(self, value: Any, /) -> None:
        if self.rows is None and not self.is_searched(value):
            list.remove(self, value)
            return
        if self.rows is None:
            self.stack([], list.__len__(self))
        self.refuse_resized()
        self.shift(self.position(value, "list.remove(x): x not in list"), -1)
        assert self.rows is not None
        self.rows.length = self.length() - 1
        self.rows.least -= 1

    def is_searched(self, value: Any) -> bool:
        """Return whether values decide which elements are equal to a value."""
        return is_undecided_order([value, *list.__iter__(self)])

    def sort(self, *, key: Any = None, reverse: Any = False) -> None:
        if self.rows is None:
            elements = list(list.__iter__(self))
            keys = elements if key is None else [key(x) for x in elements]
            if is_undecided_order(keys):
                elements = sorted_items(elements, keys, reverse)
            else:
                elements.sort(key=key, reverse=reverse)
            list.__setitem__(self, slice(None), elements)
            return
        self.refuse_fixed()
        self.refuse_nested()
        if type(self.rows.length) is int and self.rows.length == 0:
            return
        keyed = self if key is None else self.mapped(key)
        if keyed.stored().tree.kind not in ("leaf", "tuple") or any(b.ndim > 1 for b in keyed.stored().buffers):
            raise TraceError("a list is sorted by arrays or lists, as values decide; sort by numbers or tuples of them")
        order = order_of([keyed.column(k) for k in range(len(keyed.stored().weak))], reverse)
        for k, buffer in enumerate(self.stored().buffers):
            start, step = (0,) * buffer.ndim, (1,) * buffer.ndim
            buffer[...] = emit("slice_set", buffer, fresh(self.column(k)[order]), start=start, step=step)

    def reverse(self) -> None:
        if self.rows is None:
            list.reverse(self)
            return
        self.refuse_fixed()
        self.refuse_nested()
        for k, buffer in enumerate(self.stored().buffers):
            start, step = (0,) * buffer.ndim, (1,) * buffer.ndim
            buffer[...] = emit("slice_set", buffer, fresh(as_traced(self.column(k)[::-1])), start=start, step=step)

    def mapped(self, function: Callable[[Any], Any]) -> GrowingList:
        """Return the list of what a function returns of the elements, as rows."""
        out = GrowingList()
        OPERATORS[PREFIX + "for"](self, lambda element: out.append(function(element)), None, (), ())
        if out.rows is None:
            out.stack([], list.__len__(out), is_shared=False)
        return out

    def refuse_resized(self) -> None:
        """Raise TraceError for a nested list, whose rows keep their number and lengths."""
        if is_part(self) or (self.rows is not None and self.rows.depth):
            raise TraceError("a nested list gets longer or shorter in a branch or loop on traced values; make it so before")

    def refuse_fixed(self) -> None:
        """Raise TraceError if the list may not be changed."""
        if self.fixed:
            raise TraceError(f"a list on traced values is changed: {self.fixed}")

    def refuse_nested(self) -> None:
        """Raise TraceError for a list of lists, whose elements would be other lists."""
        if self.rows is not None and self.rows.depth:
            raise TraceError("a list of lists gets another order in a branch or loop on traced values; make an array of it")

    def refused(self, what: str) -> NoReturn:
        """Raise TraceError for a change that is not supported."""
        raise TraceError(f"{what} of a list of a number of elements that values decide is not supported; append, pop, or set")


class _Copy:
    """A copy with rows of a list, whose elements have ``leaves`` with ``values``; its instructions are in a frame."""

    def __init__(self, copy: GrowingList, leaves: list[Any], values: list[Any], tree: TreeDef, frame: Frame) -> None:
        self.list, self.leaves, self.values, self.tree, self.frame = copy, leaves, values, tree, frame
        self.end = len(frame.builder.instructions)
        self.last = frame.builder.instructions[-1] if self.end else None

    def is_of(self, leaves: list[Any], values: list[Any], tree: TreeDef) -> bool:
        """Return whether the copy has these elements, and its instructions are before those of the current frame."""
        instructions = self.frame.builder.instructions
        is_there = len(instructions) >= self.end > 0 and instructions[self.end - 1] is self.last
        if not is_there or self.frame not in frame_of().outward or len(leaves) != len(self.leaves) or tree != self.tree:
            return False
        pairs = zip((*leaves, *values), (*self.leaves, *self.values), strict=True)
        return all(a is b or (type(a) is type(b) and isinstance(a, int | float) and repr(a) == repr(b)) for a, b in pairs)


class Part(Rows):
    """The elements of a list that is the element ``k`` of a nested list ``whole``: a view of a row of its array."""

    def __init__(self, whole: GrowingList, k: Any) -> None:
        self.whole, self.k, self.counts = whole, k, False
        self.length = self.capacity = self.least = self.most = self.of.buffers[0].shape[1]
        self.view: tuple[Any, Any, Any] = (None, None, None)

    @property
    def of(self) -> Rows:
        """The rows of the nested list."""
        return self.whole.stored()

    tree = property(lambda self: self.of.tree)
    weak = property(lambda self: self.of.weak)
    frame = property(lambda self: self.of.frame)
    depth = property(lambda self: self.of.depth - 1)

    @property
    def buffers(self) -> list[TracedArray]:
        """The view, in the current frame, and that of its tags if there are any."""
        buffer, frame = self.of.buffers[0], frame_of()
        if self.view[0] is not buffer or self.view[1] is not frame:
            self.view = buffer, frame, [b[self.k] for b in self.of.buffers]
        views: list[TracedArray] = self.view[2]
        return views

    @buffers.setter
    def buffers(self, value: list[TracedArray]) -> None:
        """Do nothing: a view has the contents that its array has."""


def is_part(x: Any) -> bool:
    """Return whether a list is an element of a nested list with rows."""
    return isinstance(x, GrowingList) and type(x.rows) is Part


def whole_of(x: GrowingList) -> GrowingList:
    """Return the nested list of which a list is an element, or an element of one; any other list itself."""
    while type(x.rows) is Part:
        x = x.rows.whole
    return x


def is_nested(x: GrowingList) -> bool:
    """Return whether a list's elements are lists of the function, of one length, which may be rows of one array."""
    elements, root = list(list.__iter__(x)), frame_of().root
    if not elements or not all(type(e) is GrowingList for e in elements):
        return False
    root.has_nested = True
    return root.nests and len({_static_length(e) for e in elements}) == 1 and bool(_static_length(elements[0]))


def _static_length(x: GrowingList) -> int:
    """Return the number of elements of a list, 0 if values decide it, or if it is part of another one."""
    length = x.length()
    return length if type(length) is int and not is_part(x) and not (x.rows is not None and x.rows.depth) else 0


def nested_rows(whole: GrowingList, samples: Sequence[Any]) -> Rows:
    """Return rows for a list of lists, which become parts of it. ``samples``: numbers that are stored in these later.

    Raises TraceError if one list is two of the elements, or if the lists hold other values than numbers of one type.
    """
    lists = list(list.__iter__(whole))
    if len({id(x) for x in lists}) < len(lists):
        raise TraceError("a list of lists of which several are one list is changed in a branch or loop on traced values")
    for x in lists:
        if x.rows is None and is_nested(x):
            x.rows = nested_rows(x, samples)
        elif x.rows is None:
            x.stack(samples, list.__len__(x))
    inner = [x.stored() for x in lists]
    is_of_numbers = all(r.tree.kind == "leaf" for r in inner)
    depth, columns = inner[0].depth, [x.column(0) for x in lists] if is_of_numbers else []
    if not is_of_numbers or any(r.depth != depth or c.shape != columns[0].shape for r, c in zip(inner, columns)):
        raise TraceError("a list of lists of other values than numbers is changed in a branch or loop on traced values")
    elements = [_sample(r.buffers[0], r.weak[0], depth) for r in inner]
    dtype, weak = _kind([*elements, *(_like(as_traced(x)) for x in samples)])
    buffer = fresh(as_traced(np.stack([cast(c, dtype) for c in columns])))
    tag = tags_named(weak)
    tags = [fresh(as_traced(np.stack([_tags(x, tag) for x in lists])))] if tag else []
    rows = Rows(inner[0].tree, [buffer, *tags], [weak], len(lists), len(lists))
    rows.depth = depth + 1
    rows.stacked = [(b, b._value) for b in rows.buffers]
    list.clear(whole)
    whole.rows = rows
    for k, x in enumerate(lists):
        x.rows = Part(whole, k)
    return rows


def _tags(x: GrowingList, dtype: Any) -> TracedArray:
    """Return the tags of the numbers of a list, of a dtype."""
    name, values = x.stored().weak[0], x.column(0)
    return column_tags(x.column(1) if tags_named(name) else None, name, values.dtype, values.shape, dtype)


class Result:
    """A list of a length that values decide, as a result of a traced function; a call makes a list of Python's of it.
    ``columns``: the arrays of its elements' leaves, or the number of elements without leaves, such as None and texts; ``kind``:
    the structure of an element, and the names of its Python types."""

    def __init__(self, columns: Sequence[Any], kind: Any) -> None:
        self.columns, self.kind = columns, kind


def _list_of(kind: Any, columns: Sequence[Any]) -> list[Any]:
    """Return the list of a result. Raises TraceError in a trace."""
    if any(isinstance(c, TracedArray) for c in columns):
        raise TraceError("a list of a number of elements that values decide is used as one of a fixed number; use np.array of it")
    tree, weak, depth = kind
    if not weak:
        return [rebuild(tree, []) for _ in range(int(columns[0]))]
    tags = iter(columns[len(weak) :])
    numbers = [_numbers(c, name, next(tags) if tags_named(name) else None, depth) for c, name in zip(columns, weak, strict=False)]
    return [rebuild(tree, row) for row in zip(*numbers, strict=True)]


def _numbers(column: Any, name: str, tags: Any, depth: int) -> list[Any]:
    """Return the elements of a column of a result, in lists in one another as often as ``depth``, of the types that the name of a
    type, or tags, say."""
    if tags is None:
        elements: list[Any] = column.tolist() if name else _nested_list(column, depth)
        return elements
    if depth:
        return [_numbers(x, name, tag, depth - 1) for x, tag in zip(column, tags, strict=True)]
    return [number_of_path(x, tag) for x, tag in zip(column, tags, strict=True)]


def _is_of_tuples(tree: TreeDef) -> bool:
    """Return whether the containers in a structure are tuples, or it is one of several such ones."""
    is_case = tree.kind == "registered" and tree.type is Choice
    return (is_case or tree.kind in ("leaf", "static", "tuple", "namedtuple")) and all(map(_is_of_tuples, tree.children))


def _nested_list(column: Any, depth: int) -> list[Any]:
    """Return the elements of an array as lists, in one another as often as ``depth``."""
    return [_nested_list(x, depth - 1) for x in column] if depth else list(column)


register(Container(type=Result, flatten=lambda r: (tuple(r.columns), r.kind), unflatten=_list_of))


def _unsupported(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def call(self: GrowingList, *args: Any, **kwargs: Any) -> Any:
        if self.rows is not None:
            self.refused(name.strip("_"))
        return method(self, *args, **kwargs)

    return call


for _name in ("__lt__", "__le__", "__gt__", "__ge__"):
    setattr(GrowingList, _name, _unsupported(_name))


def _exceeds(length: Any, capacity: Any) -> bool:
    """Return whether a length may be greater than a number of rows."""
    if type(length) is float:
        return True
    room = capacity - length
    return not room.sizes.is_positive(room + 1) if is_value_size(room) else type(room) is not int or room < 0


def _has_rows(x: Any) -> bool:
    """Return whether a value is a list with rows."""
    return isinstance(x, GrowingList) and x.rows is not None


def _additional(capacity: Any, count: Any) -> Any:
    """Return the number of rows that are missing to ``capacity``, not less than 0."""
    more = capacity - count
    if type(more) is int:
        return max(more, 0)
    if is_value_size(more) and more.sizes.is_positive(more + 1):
        return more
    more = as_traced(np.maximum(number_of_extent(capacity) - number_of_extent(count), 0))
    return value_extent(more, least=0, is_capacity=True)


def is_undecided_index(k: Any) -> bool:
    """Return whether an index is an integer that values decide."""
    return isinstance(k, TracedArray) and not k.shape and k.dtype.kind in "iu" and not decides(k)


def _is_undecided_slice(part: slice) -> bool:
    """Return whether values decide a bound or the step of a slice."""
    return any(map(is_undecided_index, (part.start, part.stop, part.step)))


SEVERAL = "a list of elements of several structures grows in a branch or loop on traced values"


def common_structure(trees: Sequence[TreeDef]) -> TreeDef:
    """Return the structure of the elements of a list: that of all, or one of several cases. Raises TraceError if there is
    none."""
    tree = trees[0]
    for other in trees[1:]:
        both = merged(tree, other)
        if both is None or (both != tree and not (_is_flat(tree) and _is_flat(other))):
            raise TraceError(SEVERAL)
        tree = both
    return tree


def _is_flat(tree: TreeDef) -> bool:
    """Return whether a structure is a leaf, a value without leaves, a tuple of these, or one of several of these."""
    return tree.kind in ("leaf", "static", "tuple", "registered") and all(map(_is_flat, tree.children))


def _spread(leaves: Sequence[Any], own: TreeDef, tree: TreeDef) -> list[TracedArray | None]:
    """Return the leaves of an element, or of an example of one, as those of the structure of all, with None for those of cases
    that it is not."""
    return spread(bare(own), [_with_value(as_traced(x)) for x in leaves], tree)


def _with_value(x: TracedArray) -> TracedArray:
    """Return a number, or 0 for an example of an int, which may be the tag of a choice."""
    is_example = x.frame is None and x.literal is None and not x.shape and x.dtype == np.int64 and x.type_tag is None
    if not is_example:
        return x
    zero = literal(0, x.dtype)
    zero.weak = x.weak
    return zero


def _completed(column: Sequence[TracedArray | None]) -> list[TracedArray]:
    """Return a column of a leaf with zeros for the elements that do not have it."""
    example = next(x for x in column if x is not None)
    zero = full(example.shape, 0, example.dtype)
    zero.weak = example.weak
    return [zero if x is None else x for x in column]


def _parts_of(column: Sequence[TracedArray], dtype: Any) -> list[Any]:
    """Return arrays that are the elements of a column one after another: one for each run of constants and for each other
    element."""
    parts: list[Any] = []
    for is_constant, run in groupby(column, _is_constant):
        elements = list(run)
        values = [x.literal for x in elements]
        if not is_constant or len(elements) == 1:
            parts += [cast(x, dtype)[None] for x in elements]
        elif len({repr(value) for value in values}) == 1:
            parts.append(full((len(values),), values[0], dtype))
        else:
            parts.append(as_traced(np.array(values, dtype)))
    return parts


def _is_constant(x: TracedArray) -> bool:
    """Return whether a number is a constant of a type of NumPy's."""
    is_int = type(x.literal) is int and -_LARGEST < x.literal < _LARGEST
    return not x.shape and (is_int or type(x.literal) in (bool, float, complex))


def _like(x: TracedArray) -> TracedArray:
    """Return an array of the type of another, of no frame."""
    like = TracedArray(x.type, weak=x.weak)
    like.type_tag = x.type_tag
    return like


def _sample(buffer: TracedArray, name: str, depth: int = 0) -> TracedArray:
    """Return an array of the type of a row of a buffer, of no frame. ``name`` and ``depth``: see ``Rows``."""
    weak, _, _ = name.partition("/")
    sample, kind = TracedArray(_row_type(buffer, depth), weak=weak), tags_named(name)
    return mixed(sample, literal(0, kind), weak) if kind else sample


def _longer(buffer: TracedArray, more: Any) -> TracedArray:
    """Return a buffer with more rows."""
    if type(more) is int and more <= 0:
        return fresh(buffer)
    return fresh(as_traced(np.concatenate([buffer, full((more, *buffer.shape[1:]), 0, buffer.dtype)])))


def _row_type(buffer: TracedArray, depth: int = 0) -> Any:
    """Return the type of a row of a buffer, or of the elements of lists in one another."""
    return type(buffer.type)(buffer.type.dtype, buffer.type.shape[1 + depth :])


def _kind(column: Sequence[TracedArray]) -> tuple[Any, str]:
    """Return the dtype of the elements of a list, and the name of their type (``column_name``). Raises TraceError if they have
    none in common."""
    kind = common(column) if all(x.type.shape == column[0].type.shape for x in column) else None
    if kind is None or any(not x.weak and x.dtype != kind[0] for x in column):
        raise TraceError("a list of elements of several shapes or dtypes grows in a branch or loop on traced values")
    return kind[0], column_name(column, *kind)


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


def _proved_index(k: Any) -> Any:
    """Return an index of a list, or the number that a value of several cases is: others raise Python's TypeError."""
    return applied(_list_index, k) if isinstance(k, Choice) else k


def _list_index(k: Any) -> Any:
    if not isinstance(k, int | slice | TracedArray | np.integer):
        raise TypeError(f"list indices must be integers or slices, not {type(k).__name__}")
    return k


def _as_index(k: Any) -> Any:
    if not isinstance(k, TracedArray) or k.shape or k.dtype.kind not in "iub":
        raise TypeError(f"list indices must be integers or slices, not {type(k).__name__}")
    index = as_traced(np.int64(0) + k)
    index.weak, index.bounds = "int", (-_LARGEST, _LARGEST)
    return index


def _check_index(k: Any, length: int, message: str) -> None:
    """Emit the check that an index is one of a list."""
    index = _as_index(k)
    emit("check", as_traced(np.logical_and(index >= -length, index < length)), error="IndexError", message=message)


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
    extent = count if is_value_size(count) else value_extent(as_traced(np.maximum(count, 0)), least=0, is_capacity=True)
    return most + growth * extent


def list_error(message: str) -> IndexError:
    """Return an error of an operation of a list, which compiled code raises in a block as one of a ``raise`` statement."""
    error: Any = IndexError(message)
    error.is_by_statement = True
    result: IndexError = error
    return result


@contextmanager
def list_errors() -> Iterator[None]:
    """A context in which an IndexError is one of an operation of a list."""
    try:
        yield
    except IndexError as error:
        raise list_error(str(error)) from None


@operator("list")
def list_of(elements: list[Any]) -> list[Any]:
    """Return a list of the traced function, that of a display or comprehension."""
    frame = current()
    if frame is None or not frame.root.rolls:
        return elements
    frame.root.has_lists = True
    return GrowingList(elements) if frame.root.grows else elements


@operator("extended")
def extended(elements: list[Any], more: Any) -> list[Any]:
    """Return a list of a display with the elements of a part after ``*`` added."""
    if not isinstance(more, list):
        try:
            iter(more)
        except TypeError:
            raise TypeError(f"Value after * must be an iterable, not {type(more).__name__}") from None
    elements.extend(more)
    return elements


@operator("append")
def append(out: list[Any] | Keyed, element: Any) -> None:
    """Append an element of a comprehension."""
    out.include(element) if isinstance(out, Keyed) else out.append(element)


@operator("new")
def new(kind: Any, *elements: Any) -> Any:
    """Return ``kind(*elements)``: a list, dict or set of the traced function if it is a class of these, else what Python
    returns."""
    make = NEW.get(kind) if isinstance(kind, type) else None
    return kind(*elements) if make is None else make(kind, *elements)


NEW: dict[type, Callable[..., Any]] = {}
"""The functions that make containers of the traced function, by the classes of Python's; they are passed the class and
arguments."""


def _new_list(kind: Any, *elements: Any) -> Any:
    """Return a list or deque of the traced function if one is traced, else Python's."""
    frame = current()
    if frame is None or not frame.root.rolls:
        return kind(*elements)
    frame.root.has_lists = True
    if not frame.root.grows:
        if frame.root.grows is None and len(elements) == 1 and _is_by_value(elements[0]):
            raise _needs_rows()
        return kind(*elements)
    growing = GrowingList if kind is list else GrowingDeque
    elements = tuple(x.sequence() if isinstance(x, Keyed) else x for x in elements)
    if len(elements) == 1 and isinstance(elements[0], GrowingList) and elements[0].rows is not None:
        return elements[0].copy_as(growing)
    if len(elements) == 1 and _is_by_value(elements[0]):
        return _elements_of(elements[0].elements(), growing, "")
    return growing(list(*elements))


def _is_by_value(x: Any) -> bool:
    """Return whether a value is an array of rank 1 whose length values decide, as a selection of elements."""
    return isinstance(x, Gathers) and x.elements().ndim == 1 and is_value_size(x.elements().shape[0])


def _needs_rows() -> TraceError:
    """Return the error after which the function is traced anew with lists as rows of arrays."""
    error = TraceError("a list of the elements of an array whose length depends on values; loop over the array")
    error.wants_lists = True
    return error


def _elements_of(x: TracedArray, growing: Callable[[], GrowingList], weak: str) -> GrowingList:
    """Return a list of the elements of an array whose length values decide. ``weak``: their type, if these are Python's."""
    result, count = growing(), x.shape[0]
    result.rows = Rows(flatten(x)[1], [fresh(x)], [weak], number_of_extent(count), count)
    result.rows.least, result.rows.most = 0, count
    return result


@operator("of columns")
def of_columns(kind: type, element: Any, columns: Sequence[TracedArray], length: Any, capacity: int) -> GrowingList:
    """Return a list, or a deque, whose elements are like ``element`` and are rows of inputs of ``capacity`` rows."""
    result = GrowingList() if kind is list else GrowingDeque()
    leaves, tree = flatten(element)
    names = [_kind([_like(as_traced(x))])[1] for x in leaves]
    result.rows = rows = Rows(bare(tree), list(map(fresh, columns)), names, length, capacity)
    rows.stacked = [(b, b._value) for b in rows.buffers]
    rows.least, rows.most = length if type(length) is int else 0, capacity
    result.outside = result.state()
    return result


@operator("listed by value")
def listed_by_value(x: TracedArray, weak: str) -> Any:
    """Return the Python numbers of an array whose length values decide."""
    root = frame_of().root
    if x.ndim != 1 or not root.rolls:
        raise TraceError("a list of the elements of an array whose length depends on values; loop over the array")
    root.has_lists = True
    if not root.grows:
        raise _needs_rows()
    return _elements_of(x, GrowingList, weak)


NEW.update({list: _new_list, deque: _new_list})


@operator("slice")
def slice_of(start: Any, stop: Any, step: Any) -> slice:
    """Return a slice."""
    return slice(start, stop, step)


@operator("element")
def element_of(value: Any, k: Any) -> Any:
    """Return ``value[k]``, also of a list or tuple of equal elements at an index that values decide."""
    kind = type(value)
    if kind is dict and isinstance(k, Tagged):
        return k.item_in(value)
    if kind is dict and is_undecided_index(k):
        return OPERATORS[PREFIX + "looked up"](value, k)
    if type(k) is slice:
        return GrowingList(value).sliced(k) if kind is list and value and _is_undecided_slice(k) else value[k]
    if kind is np.ndarray and value.dtype.kind in "biufc" and any(map(is_undecided_index, k if type(k) is tuple else (k,))):
        return as_traced(value)[k]  # a loop that reads static values at its index is rolled
    if (kind is list or kind is tuple) and value and is_undecided_index(k):
        return GrowingList(value).copied().row_at(k, f"{kind.__name__} index out of range")
    try:
        return value[k]
    except (LookupError, TypeError) as error:
        error.is_by_statement = True  # type: ignore[union-attr]
        raise


class GrowingDeque(GrowingList):
    """A deque of the traced function, without a greatest length."""

    __slots__ = ()
    stands_for = deque

    def popleft(self) -> Any:
        if self.rows is None:
            if not list.__len__(self):
                raise list_error("pop from an empty deque")
            return list.pop(self, 0)
        length = self.length()
        emit("check", as_traced(length > 0), error="IndexError", message="pop from an empty deque")
        return GrowingList.pop(self, 0)

    def pop(self, index: Any = -1, /) -> Any:
        length = self.length()
        if type(length) is int and not length:
            raise list_error("pop from an empty deque")
        emit("check", as_traced(length > 0), error="IndexError", message="pop from an empty deque")
        return GrowingList.pop(self)

    def appendleft(self, element: Any) -> None:
        self.insert(0, element)

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            raise TypeError("sequence index must be integer, not 'slice'")
        if self.rows is None and not is_undecided_index(k):
            if not -list.__len__(self) <= k < list.__len__(self):
                raise list_error("deque index out of range")
            return list.__getitem__(self, k)
        return (self if self.rows is not None else self.copied()).row_at(k, "deque index out of range")

    def copied(self) -> GrowingList:
        result = GrowingList(list.__iter__(self))
        result.stack([], list.__len__(self), is_shared=False)
        return result

    def contents(self) -> list[Any]:
        return self.refused("this use of a deque")

    result = rotate = extendleft = __add__ = __mul__ = lambda self, *_: self.refused("this use of a deque")
