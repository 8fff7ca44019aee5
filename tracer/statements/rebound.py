"""Lists that the iterations of a loop bind anew, of lengths that values decide.

    while level:                        carried: rows of arrays that are long enough, and the number of elements
        following = []
        for u in level: ...
        level = following               a loop for which the arrays may be too short ends after this iteration

The list of an iteration is a copy in the arrays of the carry. Such a list must have one name: it is refused that an iteration
changes the list that it starts with, or leaves the new one under two names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import Frame
from pullback.tracer.arrays.make import as_traced, emit, fresh, full, number_of_extent
from pullback.tracer.arrays.traced import TracedArray, has_rows
from pullback.tracer.arrays.tree import Container, register
from pullback.tracer.arrays.value_extents import is_inner
from pullback.tracer.statements.containers import containers_in, keep
from pullback.tracer.statements.growing import GrowingList, Rows, is_part
from pullback.tracer.user_code.errors import Restart, TraceError

OTHER = "it may be one of two lists after a loop; change a copy of it"
OTHER_VALUE = "a variable is a list of a length that values decide, and another value, in iterations of a loop"
_CHANGED = "a list that each iteration of a loop on traced values binds anew is changed under another name; make a copy of it"


class Rebinds(Restart):
    """Signals a variable, by its index ``key``, that an iteration binds to a list with rows: the loop is to be traced again.
    ``samples``: elements of the types that its lists have."""

    def __init__(self, key: int, samples: Sequence[Any]) -> None:
        super().__init__("a list")
        self.key, self.samples = key, list(samples)


class Packed:
    """A list as a tree: the number of elements, and an array for each leaf of an element. ``kind``: the structure of an element,
    and the names of its Python types."""

    def __init__(self, length: Any, columns: Sequence[Any], kind: Any) -> None:
        self.length, self.columns, self.kind = length, tuple(columns), kind


register(
    Container(
        type=Packed,
        flatten=lambda p: ((p.length, *p.columns), p.kind),
        unflatten=lambda kind, children: Packed(children[0], children[1:], kind),
    )
)


def is_rebound(before: Any, after: Any) -> bool:
    """Return whether a variable holds a list with rows before or after an iteration, and another one after it.

    Raises TraceError if the other content is no list.
    """
    if before is after or not (has_rows(before) or has_rows(after)):
        return False
    if type(before) is not GrowingList or type(after) is not GrowingList or any(map(is_of_nested, (before, after))):
        raise TraceError(OTHER_VALUE)
    return True


def is_of_nested(target: Any) -> bool:
    """Return whether a list is a nested one with rows, or one of its rows, which is no copy."""
    return isinstance(target, GrowingList) and target.rows is not None and (is_part(target) or target.rows.depth > 0)


def base_capacity(entry: GrowingList) -> Any:
    """Return the number of rows that a list has before a loop."""
    return list.__len__(entry) if entry.rows is None else entry.rows.capacity


def packed(target: GrowingList, samples: Sequence[Any], capacity: Any) -> Packed:
    """Return a list as a tree with arrays of ``capacity`` rows."""
    rows = target.rows
    if rows is None:
        copied = GrowingList(list.__iter__(target))
        copied.stack(samples, list.__len__(target))
    else:
        copied = target.copy()
        copied.widen(samples, rows.capacity)
    rows = copied.stored()
    columns = [fitted(buffer, capacity) for buffer in rows.buffers]
    length = as_traced(np.int64(rows.length) if type(rows.length) is int else rows.length)
    length = TracedArray(length.type, length.frame, None if length.literal is not None else length.value, literal=length.literal)
    return Packed(length, columns, (rows.tree, tuple(rows.weak)))


def fitted(buffer: TracedArray, capacity: Any) -> TracedArray:
    """Return the first ``capacity`` rows of a buffer, with zeros after its own."""
    padding = full((capacity, *buffer.shape[1:]), 0, buffer.dtype)
    longer = as_traced(np.concatenate([buffer, padding]))
    zeros, ones = (0,) * buffer.ndim, (1,) * buffer.ndim
    return fresh(emit("slice", longer, start=zeros, step=ones, shape=(capacity, *buffer.shape[1:])))


def unpacked(value: Packed, capacity: Any) -> GrowingList:
    """Return the list of a tree, whose arrays have ``capacity`` rows."""
    result = GrowingList()
    tree, weak = value.kind
    columns = [as_traced(c) for c in value.columns]
    length = as_traced(value.length)
    length.weak = "int"
    result.rows = Rows(tree, columns, list(weak), length, capacity)
    result.rows.least, result.rows.most = 0, capacity
    return result


def fits(target: GrowingList, capacity: Any) -> TracedArray:
    """Return whether arrays of ``capacity`` rows hold a list, a traced bool."""
    return as_traced(as_traced(target.length()) <= number_of_extent(capacity))


class Watched:
    """The list with which an iteration starts: ``refuse_changes`` raises TraceError if the iteration changed it."""

    def __init__(self, target: GrowingList) -> None:
        self.target, self.before = target, self.state(target)

    @staticmethod
    def state(target: GrowingList) -> tuple[Any, ...]:
        rows = target.rows
        return () if rows is None else (rows, rows.length, *(b.version for b in rows.buffers))

    def refuse_changes(self) -> None:
        """Raise TraceError if the list is not what it was."""
        now = self.state(self.target)
        if len(now) != len(self.before) or any(a is not b and a != b for a, b in zip(now, self.before, strict=True)):
            raise TraceError(_CHANGED)


def refuse_other_names(after: GrowingList, others: Sequence[Any], inner: Frame) -> None:
    """Raise TraceError unless a list was made in an iteration, and no other variable holds it."""
    if after.home is not inner or any(c.value is after for c in containers_in(("", v) for v in others)):
        raise TraceError(_CHANGED)


def fix(entry: GrowingList, result: GrowingList) -> None:
    """Refuse later changes of the list before a loop, and of the one after it, which may be the same."""
    result.fixed = OTHER
    if entry.rows is not None:
        entry.fixed = OTHER
    else:
        keep([entry])


def join_capacity(values: Sequence[Any], frames: Sequence[Frame]) -> Any:
    """Return the number of rows for the list that a branch chooses of some, which the paths have in one position. ``frames``: of
    the paths.

    Raises TraceError for other containers, and for a list whose capacity is known on one path alone.
    """
    known = 0
    by_value: dict[Any, Any] = {}
    for target in values:
        if type(target) is not GrowingList or is_of_nested(target):
            raise TraceError("a deque or nested list of a length that values decide is chosen by a branch; make a list of it")
        rows = target.rows
        if rows is not None and rows.frame in frames and is_inner(rows.capacity):
            raise TraceError("a list whose length values decide is made on one path of a branch; make it before")
        capacity = base_capacity(target)
        if type(capacity) is int:
            known = max(known, capacity)
        else:
            by_value[capacity.terms] = capacity
    return sum(by_value.values(), known)


def share_lists(values: Sequence[GrowingList], result: GrowingList) -> None:
    """Refuse later changes of two lists, and of one that may be either of them."""
    for target in values:
        fix(target, result)
