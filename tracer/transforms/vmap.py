"""Batching: a function is traced once for an index along an axis of some arguments, into a ``vmap`` instruction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.core.types import ArrayType
from pullback.ir.passes.editing.activity import dependents
from pullback.tracer.arrays.make import as_traced, broadcast_to, emit, expand
from pullback.tracer.arrays.object_results import flatten_with_objects
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import LEAF, TreeDef, bare, flatten, paths, unflatten
from pullback.tracer.stores import refusing_changes
from pullback.tracer.trace import parameters_of
from pullback.tracer.transforms.region import Region, as_weak, restore
from pullback.tracer.user_code.errors import TraceError


def over_axes(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], in_axes: Any = 0, out_axes: Any = 0,
    axis_size: int | None = None,
) -> Any:  # fmt: skip
    """Apply ``function(*args, **kwargs)`` for each index along the axes ``in_axes`` of the arrays in ``args``.

    ``in_axes``: for each argument an axis, or None for one that is not mapped, or a tree of these that may end above the
    leaves; a single one holds for all. Keywords are mapped along their first axis. ``out_axes`` is such a tree for the result.
    If ``axis_size``, the number of rows, is passed, nothing need be mapped. Raises TraceError where sizes differ, nothing is
    mapped, or an array has no such axis.
    """
    parameters = parameters_of(function)
    if not isinstance(in_axes, list | tuple):
        in_axes = (in_axes,) * len(args)
    if len(in_axes) != len(args):
        raise TraceError(
            f"in_axes has {len(in_axes)} entries for {len(args)} positional arguments; give one for each, or one for all"
        )
    rows = _RowRegion(axis_size)
    positional = [
        rows.argument(value, axes, parameters.name(k), "in_axes")
        for k, (value, axes) in enumerate(zip(args, in_axes, strict=True))
    ]
    keywords = {name: rows.argument(value, 0, name, "in_axes") for name, value in kwargs.items()}
    rows.check()
    return rows.map(lambda: rows.region.call_once(function, positional, keywords, "a function that is mapped"), out_axes)


class _RowRegion:
    """A region that runs once for each row of its operands."""

    def __init__(self, size: int | None) -> None:
        self.region = Region()
        self.region.inner.is_row = True
        self.given_size = size
        self.sizes: list[tuple[str, TracedArray, int]] = []
        self.targets: list[tuple[TracedArray, int]] = []

    @property
    def size(self) -> int:
        if self.given_size is not None:
            return self.given_size
        _, x, axis = self.sizes[0]
        return x.shape[axis]

    def argument(self, value: Any, axes: Any, label: str, option: str) -> Any:
        """Return an argument with the parameters of the region in place of its mapped leaves."""
        leaves, tree = flatten(value)
        leaf_axes = _axes(tree, axes, option, label)
        inside = [
            leaf if axis is None else self.row(leaf, axis, path)
            for leaf, axis, path in zip(leaves, leaf_axes, paths(tree, label), strict=True)
        ]
        return self.region.filled(tree, inside, label)[0]

    def row(self, leaf: Any, axis: int, path: str) -> TracedArray:
        """Return a parameter for one row of an array along an axis."""
        x = as_traced(leaf)
        if not -x.ndim <= axis < x.ndim:
            raise TraceError(
                f"argument {path} is {x.type} and has no axis {axis} to map over; give another, or None to take it whole"
            )
        axis %= x.ndim
        self.sizes.append((path, x, axis))
        self.targets.append((x, axis))
        moved = moved_axis(x, axis, 0)
        parameter = self.region.enter(moved, ArrayType(moved.type.dtype, moved.type.shape[1:]), weak="")
        parameter.readonly = x.readonly
        if x.origin is not None and x.origin.kind == "argument":
            parameter.origin = x.origin._replace(kind="row")
        return parameter

    def check(self) -> None:
        """Raise TraceError unless something is mapped and all mapped axes have the same size."""
        if not self.sizes and self.given_size is None:
            raise TraceError("nothing is mapped; give an axis for at least one array in in_axes, or axis_size")
        if any(x.shape[axis] != self.size for _, x, axis in self.sizes):
            declared = [] if self.given_size is None else [f"axis_size {self.given_size}"]
            sizes = ", ".join(
                [*declared, *(f"{x.shape[axis]} along axis {axis} of {path}: {x.type}" for path, x, axis in self.sizes)]
            )
            raise TraceError(
                f"the mapped axes have different sizes: {sizes}; choose them by in_axes, None for what each row takes whole"
            )

    def map(self, call: Callable[[], Any], out_axes: Any) -> Any:
        """Trace ``call()`` for one row, and return its results for all rows."""
        region = self.region
        leaves, tree = flatten_with_objects(call())
        tree = bare(tree)
        axes = _axes(tree, out_axes, "out_axes", "the result")
        rows_of = {id(x): target for x, target in zip(region.operands, self.targets, strict=True)}
        written = region.written()
        names = {id(new) for _, new in written}
        kept = list({id(x): x for x in leaves if region.holds(x) and id(x) not in names}.values())
        values = [*kept, *(new for _, new in written)]
        closed = region.close(values)
        batched = range(len(region.operands))
        dependent = dependents(closed.block, [closed.block.parameters[k] for k in batched], smooth=False)
        is_row = [v in dependent for v in closed.block.results]
        for k, (target, _) in enumerate(written, len(kept)):
            if id(target) in rows_of:
                is_row[k] = True
            elif is_row[k]:
                raise TraceError(f"each row writes into {target!r}, which is not mapped; return the new values instead")
        fixed = tuple(k for k, row in enumerate(is_row) if not row)
        results = closed.emit("vmap", {"batched": tuple(batched), "fixed": fixed}) if batched else closed.inline()
        results_of = {id(x): (new, row) for x, new, row in zip(values, results, is_row, strict=True)}
        for target, new in written:
            result = results_of[id(new)][0]
            if id(target) in rows_of:
                array, mapped = rows_of[id(target)]
                restore([(array, new)], [moved_axis(result, 0, mapped)])
            else:
                restore([(target, new)], [result])
        out = []
        for x, axis, path in zip(leaves, axes, paths(tree, "the result"), strict=True):
            result, row = results_of.get(id(x), (x, False))
            out.append(self.with_axis(result, row, axis, path, x))
        return unflatten(tree, out)

    def with_axis(self, x: Any, is_row: bool, axis: int | None, path: str, like: Any) -> Any:
        """Move the row axis of a result, which is ``like`` in each row, to its position in ``out_axes``."""
        if axis is None:
            if is_row:
                raise TraceError(f"out_axes is None for {path}, which differs from row to row; give an axis")
            return as_weak(x, like)
        array = as_traced(x)
        if not is_row:
            array = broadcast_to(expand(array, (0,)), (self.size, *array.shape))
        if not -array.ndim <= axis < array.ndim:
            raise TraceError(f"out_axes {axis} is no axis of {path}, which is {array.type}; count from 0, or from the end by -1")
        return moved_axis(array, 0, axis % array.ndim)


def moved_axis(x: TracedArray, source: int, target: int) -> TracedArray:
    """Return ``np.moveaxis`` of one axis."""
    perm = [k for k in range(x.ndim) if k != source]
    perm.insert(target, source)
    moved: TracedArray = x if source == target else emit("transpose", x, perm=tuple(perm))
    return moved


def _axes(tree: TreeDef, axes: Any, option: str, label: str) -> list[int | None]:
    """Return the axis of each leaf of a structure. Raises TraceError where a tree of axes does not fit it."""
    leaves, structure = flatten(axes)
    return list(_spread(tree, structure, iter(leaves), option, label))


def _spread(tree: TreeDef, axes: TreeDef, leaves: Iterator[Any], option: str, label: str) -> Iterator[int | None]:
    if axes == LEAF or (axes.kind == "static" and axes.data is None):
        axis = next(leaves) if axes == LEAF else None
        if isinstance(axis, bool) or not isinstance(axis, int | None):
            raise TraceError(f"{option} holds {axis!r}; give ints and None")
        yield from (axis for _ in range(tree.count))
        return
    if tree.kind != axes.kind or set(tree.keys) != set(axes.keys):
        raise TraceError(f"{option} has not the structure of {label}: {axes!r} beside {tree!r}; * is an axis or an array")
    parts = {key: [next(leaves) for _ in range(child.count)] for key, child in zip(axes.keys, axes.children, strict=True)}
    children = dict(zip(axes.keys, axes.children, strict=True))
    for key, child in zip(tree.keys, tree.children, strict=True):
        yield from _spread(child, children[key], iter(parts[key]), option, f"{label}[{key!r}]")


def over_elements(function: Callable[..., Any], vectors: Sequence[TracedArray], kinds: Sequence[str]) -> tuple[Any, list[Any]]:
    """Apply ``function``, of scalars, to each element of equally long ``vectors``; ``kinds`` are the scalars' weak kinds.

    Returns its result for one element, and a vector for each of its results (one, or the items of a tuple).
    """
    region = Region()
    region.inner.is_row = True
    places = [region.enter(v, ArrayType(v.type.dtype), weak=kind) for v, kind in zip(vectors, kinds, strict=True)]
    places_outside = region.outer.root.names.places
    what = "a function that is called for each element"
    with region.inner.active(), refusing_changes(region.outer, what), places_outside.within(region.inner):
        result = function(*places)
        results = [as_traced(r) for r in (result if isinstance(result, tuple) else (result,))]
    written = region.written()
    if written:
        raise TraceError("a function that is called for each element writes into an array; return the values instead")
    closed = region.close(results)
    return result, closed.emit("vmap", {"batched": tuple(range(len(vectors))), "fixed": ()})
