"""The linear maps of a function at a point, inside a trace: pushforward of tangents, pullback of cotangents.

The function is traced once, into a region; each use of a map is an instruction with a copy of it. Common subexpression
elimination merges what the copies have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.make import as_traced, cast, full
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import TreeDef, bare, flatten, paths, unflatten
from pullback.tracer.stores import refusing_changes
from pullback.tracer.trace import parameters_of
from pullback.tracer.transforms.container_arguments import ContainerArguments
from pullback.tracer.transforms.region import (
    Closed,
    Region,
    as_weak,
    enter_differentiated,
    is_differentiable,
    matching_leaves,
    restore,
    split_aux,
)
from pullback.tracer.user_code.errors import TraceError


class Linear:
    """A function linearised at a point. ``value`` and ``aux`` are its results there."""

    def __init__(
        self, function: Callable[..., Any], primals: Sequence[Any], has_aux: bool = False, labels: Sequence[str] = ()
    ) -> None:
        """Trace ``function(*primals)``, differentiable by the floats in ``primals``, which errors call ``labels``.

        Raises TraceError for what cannot be traced.
        """
        names = labels or [parameters_of(function).name(k) for k in range(len(primals))]
        region = Region()
        region.inner.is_straight = True
        containers = ContainerArguments(region)
        self._names = names
        self._trees: list[TreeDef] = []
        self._inputs: list[list[int | None]] = []
        replaced = []
        for primal, label in zip(primals, names, strict=True):
            leaves, tree = flatten(primal)
            entered: list[Any] = []
            positions_of_leaves: list[int | None] = []
            for leaf, path in zip(leaves, paths(tree, label), strict=True):
                is_input = is_differentiable(leaf)
                positions_of_leaves.append(len(region.operands) if is_input else None)
                entered.append(enter_differentiated(region, leaf, path) if is_input else leaf)
            replaced.append(containers.filled(primal, tree, entered, label))
            self._trees.append(bare(tree))
            self._inputs.append(positions_of_leaves)
        containers.begin()
        with refusing_changes(region.outer, "a function that is linearized", is_outside_stored=True):
            value, aux = split_aux(region.call(function, replaced, {}), has_aux)
        leaves, tree = flatten(value)
        self._tree = bare(tree)
        aux_leaves, aux_tree = flatten(aux)
        written = region.written()
        names_of_written = {id(new) for _, new in written}
        entered_values = {id(new): x for x, new in zip(region.operands, region.inside, strict=True)}
        results_of = {id(x): x for x in (*leaves, *aux_leaves) if region.holds(x) and id(x) not in names_of_written}
        others = (names_of_written, entered_values, results_of)
        stored = [x for x in containers.values(()) if not any(id(x) in known for known in others)]
        kept = [*results_of.values(), *stored]
        closed = region.close([*kept, *(new for _, new in written)])
        self._closed = closed.copy()
        self._point = [closed.operands[k] for k in range(len(region.operands))]
        results = closed.inline()
        outside_written = restore(written, results[len(kept) :])
        outside = outside_written | {id(x): new for x, new in zip(kept, results)}
        positions = {id(x): k for k, x in enumerate((*kept, *(new for _, new in written)))}
        self._outputs = [positions.get(id(x)) if region.holds(x) and is_differentiable(x) else None for x in leaves]
        self._leaves = [as_weak(outside.get(id(x), x), x) for x in leaves]
        self.value = unflatten(self._tree, self._leaves)
        self.aux = unflatten(aux_tree, [as_weak(outside.get(id(x), x), x) for x in aux_leaves])
        containers.store({id(x): as_weak(new, x) for x, new in zip(kept, results)} | entered_values | outside_written)

    def push(self, tangents: Sequence[Any]) -> Any:
        """Return the tangents of the value along one tangent for each primal, with None for leaves that are not of floats.

        Raises TraceError for tangents that do not fit the primals.
        """
        if len(tangents) != len(self._trees):
            raise TraceError(f"tangents: {len(tangents)}, primals: {len(self._trees)}; give one for each, None where it is zero")
        wrt, fitted = [], []
        for tangent, tree, places, label in zip(tangents, self._trees, self._inputs, self._names, strict=True):
            leaves = matching_leaves(tree, tangent, f"the tangent of {label}", "the primal")
            for leaf, position, path in zip(leaves, places, paths(tree, label), strict=True):
                if leaf is None:
                    continue
                if position is None:
                    raise TraceError(f"{path} is not of floats and has no tangent; pass floats, or None as its tangent")
                wrt.append(position)
                fitted.append(_fitting(leaf, self._point[position], f"the tangent of {path}", "the primal"))
        derivatives = _emit(self._closed, "jvp", wrt, [k for k in self._outputs if k is not None], fitted, "tangents")
        remaining = iter(derivatives)
        return unflatten(
            self._tree, [next(remaining) if k is not None else _no_change(x) for k, x in zip(self._outputs, self._leaves)]
        )

    def pull(self, cotangents: Any) -> tuple[Any, ...]:
        """Return the cotangents of each primal's floats, None for its other leaves, for a tree of cotangents of the value.

        None as a cotangent stands for zero. Raises TraceError for cotangents that do not fit the value.
        """
        of, fitted = [], []
        leaves = matching_leaves(self._tree, cotangents, "the cotangent", "the value")
        for leaf, position, out, path in zip(leaves, self._outputs, self._leaves, paths(self._tree, "the value"), strict=True):
            if leaf is None:
                continue
            if not is_differentiable(out):
                raise TraceError(f"{path} is not of floats and has no cotangent; pass None as its cotangent")
            cotangent = _fitting(leaf, as_traced(out), f"the cotangent of {path}", "the result")
            if position is not None:
                of.append(position)
                fitted.append(cotangent)
        wrt = [position for places in self._inputs for position in places if position is not None]
        derivatives = _emit(self._closed, "gradient", wrt, of, fitted, "seeds")
        remaining = iter(derivatives)
        return tuple(
            unflatten(tree, [None if position is None else next(remaining) for position in places])
            for tree, places in zip(self._trees, self._inputs, strict=True)
        )

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of input floats and of output floats."""
        outputs = [as_traced(x).size for x in self._leaves if is_differentiable(x)]
        return sum(x.size for x in self._point), sum(outputs)


def _emit(
    closed: Closed, name: str, wrt: Sequence[int], of: Sequence[int], seeds: Sequence[TracedArray], what: str
) -> list[TracedArray]:
    """Emit the derivative ``name`` of a copy of the region, and return the derivatives."""
    copy = closed.copy()
    first = len(copy.operands)
    params = {"wrt": tuple(wrt), what: tuple(range(first, first + len(seeds))), "results": tuple(of)}
    return copy.emit(name, params, seeds)[len(copy.block.results) :]


def _fitting(x: Any, like: TracedArray, what: str, of: str) -> TracedArray:
    """Return a tangent or cotangent cast to the dtype of ``like``. Raises TraceError if it has another shape or kind."""
    array = as_traced(x)
    if array.shape != like.shape:
        raise TraceError(f"{what} is {array.type}, {of} is {like.type}; give one of the same shape")
    if not np.can_cast(array.dtype, like.dtype, "same_kind"):
        raise TraceError(f"{what} is {array.type}, {of} is {like.type}; give one that can be converted to that")
    return cast(array, like.dtype)


def _no_change(x: Any) -> Any:
    """Return the tangent of a result that does not depend on the primals."""
    array = as_traced(x)
    return full(array.shape, 0, array.dtype) if is_differentiable(array) else None


def ones_like(tree: Any) -> Any:
    """Return the tree with ones for its floats, None for its other leaves."""
    return _like(tree, 1)


def zeros_like(tree: Any) -> Any:
    """Return the tree with zeros for its floats, None for its other leaves."""
    return _like(tree, 0)


def _like(tree: Any, value: int) -> Any:
    leaves, structure = flatten(tree)
    arrays = [as_traced(x) for x in leaves]
    return unflatten(structure, [full(x.shape, value, x.dtype) if is_differentiable(x) else None for x in arrays])
