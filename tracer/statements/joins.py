"""The common types of what two paths compute, and the values that one of them leaves unbound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pullback.tracer.arrays.frame import Frame
from pullback.tracer.arrays.make import as_traced, cast, full
from pullback.tracer.arrays.mixed_numbers import tag_type
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import TreeDef, bare, flatten
from pullback.tracer.arrays.value_extents import is_inner
from pullback.tracer.statements.blocks import Ran
from pullback.tracer.statements.choices import Choice, narrowed
from pullback.tracer.statements.structures import merged, spread
from pullback.tracer.statements.unbound import UNBOUND
from pullback.tracer.transforms.branches import common, kind_of
from pullback.tracer.transforms.region import rebuild
from pullback.tracer.user_code.errors import TraceError

LENGTH = "an array of a length that values decide is made on one path of a branch, and no bound of its length is known before"


def refuse_inner_extents(x: TracedArray) -> None:
    """Raise TraceError if an extent of an array is defined in no frame around the current one."""
    if any(map(is_inner, x.shape)):
        raise TraceError(LENGTH)


class Column:
    """One array that each path computes: ``arrays`` by path; ``kind``: its dtype and the name of its Python type."""

    def __init__(self, arrays: Sequence[TracedArray], name: str) -> None:
        kind = common(arrays) if all(x.shape == arrays[0].shape for x in arrays) else None
        if kind is None or any(not x.weak and x.dtype != kind[0] for x in arrays):
            kinds = " and ".join(kind_of(x) for x in arrays)
            raise TraceError(f"{name} is {kinds} on the paths of a branch on a traced value; compute one shape and dtype on both")
        self.arrays, self.kind = arrays, kind

    @property
    def tag_type(self) -> Any:
        """The dtype of the tag of the number, if values decide its type; else None."""
        return tag_type(self.arrays, self.kind[0])

    def of(self, path: int) -> TracedArray:
        """Return the array of a path, of the common type; called in the frame of that path."""
        return cast(self.arrays[path], self.kind[0])


class Joined:
    """A tree that each path computes. ``values``: the trees of arrays; ``sides``: the frames of the paths, and what they did.

    Where the structures differ, the tree holds a ``Choice``. Raises TraceError if a choice does not stand for them, or if types
    differ.
    """

    def __init__(self, values: Sequence[Any], sides: Sequence[tuple[Frame, Ran]], name: str) -> None:
        flat = []
        for value, (frame, _) in zip(values, sides, strict=True):
            with frame.active():
                flat.append(flatten(narrowed(value)))
        tree = merged(bare(flat[0][1]), bare(flat[1][1]))
        if tree is None:
            kinds = " and ".join(map(repr, (tree for _, tree in flat)))
            raise TraceError(f"{name} has other structures on the paths of a branch on a traced value ({kinds}); make them alike")
        self.tree: TreeDef = tree
        rows = []
        for (leaves, own), (frame, ran) in zip(flat, sides, strict=True):
            with frame.active():
                rows.append(spread(bare(own), [as_traced(ran.at_end(x)) for x in leaves], tree))
        for row, other, (frame, _) in zip(rows, rows[::-1], sides, strict=True):
            with frame.active():
                row[:] = [x if x is not None else placeholder(y) for x, y in zip(row, other, strict=True)]
        self.columns = [Column(column, name) for column in zip(*rows, strict=True)]
        for column in self.columns:
            for x in column.arrays:
                refuse_inner_extents(x)


def placeholder(value: Any, unknown: int | None = None) -> Any:
    """Return a tree like ``value`` with zeros in place of its arrays, for a path on which it is never read. ``unknown``: the
    first extent of those whose own is defined in no frame around the current one."""
    leaves, tree = flatten(value)
    zeros, tags = [], dict(_bound_cases(tree, 0))
    for k, x in enumerate(map(as_traced, leaves)):
        is_known = unknown is None or not x.ndim or not is_inner(x.shape[0])
        zero = full(x.shape if is_known or unknown is None else (unknown, *x.shape[1:]), tags.get(k, 0), x.dtype)
        zero.weak = x.weak
        zeros.append(zero)
    return rebuild(bare(tree), zeros)


def _bound_cases(tree: TreeDef, first: int) -> Iterator[tuple[int, int]]:
    """Yield for each choice in a structure the number of its tag among the leaves, of which the first is number ``first``, and
    that of a case that is bound."""
    if tree.kind == "registered" and tree.type is Choice:
        cases = tree.children[1:]
        yield first, next((k for k, case in enumerate(cases) if not (case.kind == "static" and case.data is UNBOUND)), 0)
    for child in tree.children:
        yield from _bound_cases(child, first)
        first += child.count
