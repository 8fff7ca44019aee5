"""Lists with rows of arrays in what the paths of a branch compute: in a tree they stand for themselves, or are packed.

A path that returns a list, or a tuple or dict of lists, gives the join copies of them as they are at its end. A list that two
paths have in one position gets rows for both. Such a list, and what it is a copy of, are not changed afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.tracer.arrays.frame import Frame
from pullback.tracer.arrays.traced import Listed, Tagged, has_rows
from pullback.tracer.statements.blocks import Ran
from pullback.tracer.statements.choices import Choice
from pullback.tracer.statements.containers import Reference, Slot
from pullback.tracer.statements.growing import GrowingList, Rows
from pullback.tracer.statements.rebound import Packed, join_capacity, packed, share_lists, unpacked
from pullback.tracer.statements.variables import Variables
from pullback.tracer.user_code.errors import TraceError


def holds_rows(value: Any) -> bool:
    """Return whether a value is, or holds in tuples, lists, dicts and choices, a list with rows."""
    if has_rows(value):
        return True
    if isinstance(value, Tagged):
        return any(map(holds_rows, value.cases))
    if isinstance(value, tuple):
        return any(map(holds_rows, value))
    if type(value) is list or isinstance(value, Listed):
        return any(map(holds_rows, list.__iter__(value)))
    return type(value) is dict and any(map(holds_rows, value.values()))


class PackedLists:
    """The lists with rows in what two paths compute. ``paths``: the frames of the paths, and what they did."""

    def __init__(self, paths: Sequence[tuple[Frame, Ran]], variables: Variables) -> None:
        self.paths, self.variables = paths, variables
        self.groups: list[tuple[Any, list[GrowingList]]] = []

    def packed_in(self, values: Sequence[Any], name: str) -> list[Any]:
        """Return what the paths compute, under a name, with trees in place of the lists with rows."""
        a, b = values
        return list(self._pair(a, b, name))

    def _pair(self, a: Any, b: Any, name: str) -> tuple[Any, Any]:
        if a is b and id(a) in self.variables.state.ids:
            return Reference(a), Reference(b)
        if isinstance(a, GrowingList) and isinstance(b, GrowingList) and (has_rows(a) or has_rows(b)):
            first, second = self._packed([a, b], [0, 1])
            if first.kind != second.kind:
                raise TraceError(f"{name} is a list of elements of other types on the paths of a branch on a traced value")
            return first, second
        if type(a) is type(b) and isinstance(a, tuple | list) and not has_rows(a) and len(a) == len(b):
            pairs = [self._pair(x, y, name) for x, y in zip(a, b, strict=True)]
            return _like(a, [x for x, _ in pairs]), _like(b, [y for _, y in pairs])
        if type(a) is dict and type(b) is dict and list(a) == list(b):
            items = {k: self._pair(a[k], b[k], name) for k in a}
            return {k: x for k, (x, _) in items.items()}, {k: y for k, (_, y) in items.items()}
        return self._alone(a, 0), self._alone(b, 1)

    def _alone(self, value: Any, path: int) -> Any:
        """Return what one path computes where the other has no such value."""
        if not holds_rows(value) or isinstance(value, Tagged):
            return value
        if isinstance(value, GrowingList) and has_rows(value):
            return self._packed([value], [path])[0]
        if isinstance(value, tuple | list):
            return _like(value, [self._alone(x, path) for x in value])
        return {k: self._alone(x, path) for k, x in value.items()}

    def _packed(self, targets: list[GrowingList], paths: Sequence[int]) -> list[Packed]:
        """Return lists of one position as trees, with rows for both."""
        capacity = join_capacity(targets, [frame for frame, _ in self.paths])
        samples = [x for target in targets for x in target.samples()]
        trees = []
        for target, path in zip(targets, paths, strict=True):
            with self.paths[path][0].active():
                tree = packed(self._at_end(target, self.paths[path][1]), samples, capacity)
            tree.kind = (*tree.kind, len(self.groups))
            trees.append(tree)
        self.groups.append((capacity, targets))
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
        """Return a tree with lists in place of their trees."""
        if isinstance(value, Packed):
            capacity, targets = self.groups[value.kind[2]]
            result = unpacked(Packed(value.length, value.columns, value.kind[:2]), capacity)
            share_lists(targets, result)
            return result
        if isinstance(value, Choice):
            cases = [self.unpacked(x) for x in value.cases]
            return value if all(x is y for x, y in zip(cases, value.cases, strict=True)) else Choice(value.tag, cases)
        if isinstance(value, tuple | list) and not has_rows(value):
            inside = [self.unpacked(x) for x in (list.__iter__(value) if isinstance(value, list) else value)]
            return value if all(x is y for x, y in zip(inside, value, strict=True)) else _like(value, inside)
        if type(value) is dict:
            items = {k: self.unpacked(x) for k, x in value.items()}
            return value if all(items[k] is value[k] for k in value) else items
        return value


def _like(value: Any, items: list[Any]) -> Any:
    """Return a tuple or list of the class of another one."""
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
