"""Lists with rows of arrays, and arrays of lengths by value, in what the paths of a branch compute: they are packed as trees.

A path that returns a list, or a tuple or dict of lists, gives the join copies of them as they are at its end. What two paths have
in one position gets rows for both: a list, or arrays of several lengths. Such a list, and what it is a copy of, are not changed
afterwards. An extent that a path defines is not known outside of it: an array of such a length is a buffer, whose bound is known
before the branch, and a number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import Frame
from pullback.tracer.arrays.make import as_traced, fresh, number_of_extent
from pullback.tracer.arrays.traced import Gathers, TracedArray, has_rows
from pullback.tracer.arrays.tree import Container, register
from pullback.tracer.arrays.value_extents import capacity_for, is_inner
from pullback.tracer.statements.blocks import Ran
from pullback.tracer.statements.choices import Choice, narrowed
from pullback.tracer.statements.containers import Reference, Slot
from pullback.tracer.statements.growing import GrowingList, Rows
from pullback.tracer.statements.joins import LENGTH
from pullback.tracer.statements.rebound import Packed, fitted, join_capacity, packed, share_lists, unpacked
from pullback.tracer.statements.variables import Variables
from pullback.tracer.transforms.branches import axis_first, changing_axis, shortened
from pullback.tracer.user_code.errors import TraceError


class PackedArray:
    """An array as a tree: its number of rows along an axis, and a buffer that has more, of which that axis is the first.
    ``index``: that of its position in what the paths compute."""

    def __init__(self, length: Any, buffer: Any, index: int, axis: int) -> None:
        self.length, self.buffer, self.index, self.axis = length, buffer, index, axis


register(
    Container(
        type=PackedArray,
        flatten=lambda p: ((p.length, p.buffer), (p.index, p.axis)),
        unflatten=lambda fields, children: PackedArray(children[0], children[1], *fields),
    )
)


class PackedValues:
    """The lists with rows, and the arrays of lengths by value, in what two paths compute. ``paths``: the frames of the paths, and
    what they did."""

    def __init__(self, paths: Sequence[tuple[Frame, Ran]], variables: Variables) -> None:
        self.paths, self.variables = paths, variables
        self.groups: list[tuple[Any, list[GrowingList], bool]] = []
        self.arrays = 0

    def packed_in(self, values: Sequence[Any], name: str, is_sole: bool) -> list[Any]:
        """Return what the paths compute, under a name, with trees in place of the lists and arrays. ``is_sole``: a list has no
        other name."""
        a, b = (self._narrowed(x, path) for path, x in enumerate(values))
        return list(self._pair(a, b, name, is_sole))

    def _narrowed(self, value: Any, path: int) -> Any:
        with self.paths[path][0].active():
            return narrowed(value)

    def _pair(self, a: Any, b: Any, name: str, is_sole: bool = False) -> tuple[Any, Any]:
        if a is b:
            return (Reference(a), Reference(b)) if id(a) in self.variables.state.ids else (a, b)
        if isinstance(a, GrowingList) and isinstance(b, GrowingList) and (
            has_rows(a) or has_rows(b) or (is_sole and list.__len__(a) != list.__len__(b))
        ):
            first, second = self._lists([a, b], [0, 1], is_sole)
            if first.kind != second.kind:
                raise TraceError(f"{name} is a list of elements of other types on the paths of a branch on a traced value")
            return first, second
        if type(a) is type(b) and isinstance(a, tuple | list) and not has_rows(a) and len(a) == len(b):
            pairs = [self._pair(x, y, name) for x, y in zip(a, b, strict=True)]
            return _like(a, [x for x, _ in pairs]), _like(b, [y for _, y in pairs])
        if type(a) is dict and type(b) is dict and list(a) == list(b):
            items = {k: self._pair(a[k], b[k], name) for k in a}
            return _like(a, {k: x for k, (x, _) in items.items()}), _like(b, {k: y for k, (_, y) in items.items()})
        if isinstance(a, Choice) or isinstance(b, Choice):
            return self._choices(a, b)
        if _is_array(a) and _is_array(b):
            arrays = [self._traced(a, 0), self._traced(b, 1)]
            axis = _axis_by_path(arrays)
            return (a, b) if axis is None else tuple(self._buffers(arrays, [0, 1], axis))  # type: ignore[return-value]
        return self._alone(a, 0), self._alone(b, 1)

    def _choices(self, a: Any, b: Any) -> tuple[Any, Any]:
        """Return values of which one has several cases. An array among the cases of each may be of one length in both."""
        sides = [list(x.cases) if isinstance(x, Choice) else [x] for x in (a, b)]
        at = [[k for k, case in enumerate(cases) if _is_array(case)] for cases in sides]
        paired: list[Any] = [None, None]
        if len(at[0]) == len(at[1]) == 1:
            arrays = [self._traced(sides[path][at[path][0]], path) for path in range(2)]
            axis = _axis_by_path(arrays)
            if axis is not None:
                paired = list(self._buffers(arrays, [0, 1], axis))
        results = []
        for path, (value, cases) in enumerate(zip((a, b), sides, strict=True)):
            own = [self._alone(x, path) if paired[path] is None or [k] != at[path] else paired[path] for k, x in enumerate(cases)]
            if all(x is y for x, y in zip(own, cases, strict=True)):
                results.append(value)
                continue
            with self.paths[path][0].active():
                results.append(Choice(value.tag, own) if isinstance(value, Choice) else own[0])
        return results[0], results[1]

    def _alone(self, value: Any, path: int) -> Any:
        """Return what one path computes where the other has no such value."""
        if isinstance(value, GrowingList) and has_rows(value):
            return self._lists([value], [path])[0]
        if isinstance(value, tuple | list) and not has_rows(value):
            return _like(value, [self._alone(x, path) for x in (list.__iter__(value) if isinstance(value, list) else value)])
        if type(value) is dict:
            return _like(value, {k: self._alone(x, path) for k, x in value.items()})
        if not _is_array(value):
            return value
        x = self._traced(value, path)
        axis = _axis_by_path([x])
        return value if axis is None else self._buffers([x], [path], axis)[0]

    def _traced(self, value: Any, path: int) -> TracedArray:
        """Return an array of a path as a traced one."""
        with self.paths[path][0].active():
            return value.elements() if isinstance(value, Gathers) else as_traced(value)

    def _buffers(self, arrays: Sequence[TracedArray], paths: Sequence[int], axis: int) -> list[PackedArray]:
        """Return arrays of one position as trees, with rows along an axis for each of them."""
        capacity = capacity_for([x.shape[axis] for x in arrays])
        if capacity is None:
            raise TraceError(LENGTH)
        trees = []
        for x, path in zip(arrays, paths, strict=True):
            frame, ran = self.paths[path]
            with frame.active():
                length = as_traced(number_of_extent(x.shape[axis]))
                buffer = fitted(axis_first(as_traced(ran.at_end(x)), axis), capacity)
                trees.append(PackedArray(length, buffer, self.arrays, axis))
        self.arrays += 1
        return trees

    def _lists(self, targets: list[GrowingList], paths: Sequence[int], is_sole: bool = False) -> list[Packed]:
        """Return lists of one position as trees, with rows for both. ``is_sole``: they have no other names."""
        capacity = join_capacity(targets, [frame for frame, _ in self.paths])
        samples = [x for target in targets for x in target.samples()]
        trees = []
        for target, path in zip(targets, paths, strict=True):
            with self.paths[path][0].active():
                tree = packed(self._at_end(target, self.paths[path][1]), samples, capacity)
            tree.kind = (*tree.kind, len(self.groups))
            trees.append(tree)
        self.groups.append((capacity, targets, is_sole))
        return trees

    def _at_end(self, target: GrowingList, ran: Ran) -> GrowingList:
        """Return a list as it is at the end of a path. Raises TraceError if the path sets elements that are no rows."""
        rows, new = target.rows, {id(t): x for t, x in ran.written}
        if rows is None:
            if id(target) in ran.changed:
                raise TraceError("a list that a branch on traced values changes gets another name; make a copy of it")
            return target
        end = GrowingList()
        lengths = [
            x
            for cell, x in zip(self.variables.cells, ran.variables, strict=True)
            if isinstance(cell, Slot) and cell.container.value is target
        ]
        buffers = [new.get(id(b), b) for b in rows.buffers]
        end.rows = Rows(rows.tree, buffers, rows.weak, lengths[0] if lengths else rows.length, rows.capacity)
        end.rows.depth = rows.depth
        return end

    def unpacked(self, value: Any) -> Any:
        """Return a tree with lists and arrays in place of their trees."""
        if isinstance(value, PackedArray):
            return shortened(fresh(as_traced(value.buffer)), as_traced(value.length), value.axis)
        if isinstance(value, Packed):
            capacity, targets, is_sole = self.groups[value.kind[2]]
            result = unpacked(Packed(value.length, value.columns, value.kind[:2]), capacity)
            if not is_sole:
                share_lists(targets, result)
            return result
        if isinstance(value, Choice):
            cases = [self.unpacked(x) for x in value.cases]
            return value if all(x is y for x, y in zip(cases, value.cases, strict=True)) else Choice(value.tag, cases)
        if isinstance(value, tuple | list) and not has_rows(value):
            return _like(value, [self.unpacked(x) for x in (list.__iter__(value) if isinstance(value, list) else value)])
        return _like(value, {k: self.unpacked(x) for k, x in value.items()}) if type(value) is dict else value


def _is_array(value: Any) -> bool:
    return isinstance(value, TracedArray | Gathers) or (type(value) is np.ndarray and value.dtype.kind in "biufc")


def _axis_by_path(arrays: Sequence[TracedArray]) -> int | None:
    """Return the axis of which the extents of the arrays of two paths, or of one, may differ or are not known in the current
    frame, where all others agree; None if there is none."""
    x, y = arrays[0], arrays[-1]
    inner = [k for k, n in enumerate(x.shape) if is_inner(n)]
    axis = changing_axis(x, y)
    return axis if axis is not None or x.ndim != y.ndim or not inner else inner[0]


def _like(value: Any, items: Any) -> Any:
    """Return a tuple, list or dict of the class of another one; the other one itself if it has these items."""
    if type(value) is dict:
        return value if all(items[k] is value[k] for k in value) else items
    own = list.__iter__(value) if isinstance(value, list) else value
    if all(a is b for a, b in zip(items, own, strict=True)):
        return value
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
