"""Functions with their own derivative rules: a call becomes a ``custom`` instruction, whose regions are the function and its
rules.

The rules of a call are traced with it, and only inside the region of a transform, where a derivative may be taken. A rule may
call the function again; each region is traced with the number of derivatives that can still be taken of it, so that tracing
ends.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import numpy as np

from pullback.ir import OPS, Value
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.make import as_traced, cast, full
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Identity, flatten
from pullback.tracer.stores import refusing_outside
from pullback.tracer.transforms.region import matching_leaves, rebuild, source_of, with_captures
from pullback.tracer.user_code.errors import TraceError, stop_recording_errors, user_loc

Arrays = Sequence[TracedArray]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A derivative rule, ``apply(outputs, residuals, seeds, arrays)``; None in its result stands for zero.

    A vjp rule returns the cotangents of the arrays at the positions ``by``; ``seeds`` are the cotangents of the float outputs.
    A jvp rule returns the tangents of these outputs; ``seeds`` are the tangents of those arrays.
    """

    by: tuple[int, ...]
    apply: Callable[[Arrays, Sequence[Any], Arrays, Arrays], Sequence[Any]]


def order_at(key: Any) -> int:
    """Return how many derivatives may be taken, in the current frame, of a call of the function identified by ``key``."""
    frame = frame_of()
    return frame.order - (key in frame.customs)


class Arguments:
    """The arguments of a call. ``arrays`` are the traced floats among their leaves, ``owners`` has the argument index of each."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.trees = [Tree(x) for x in args]
        self.arrays = [tree.leaves[k] for tree in self.trees for k in tree.spots]
        self.owners = [index for index, tree in enumerate(self.trees) for _ in tree.spots]

    def by(self, indices: Collection[int]) -> tuple[int, ...]:
        """Return the positions of the arrays of the arguments ``indices``."""
        return tuple(k for k, owner in enumerate(self.owners) if owner in indices)

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the arguments with other arrays, and watch their containers, which the function must not change."""
        remaining = iter(arrays)
        filled = [tree.filled([next(remaining) for _ in tree.spots]) for tree in self.trees]
        effects = frame_of().root.names.effects
        for k, value in enumerate(filled):
            effects.watch_argument(value, f"{k} of a function with derivative rules")
        return filled

    def tangents(self, by: Sequence[int], seeds: Arrays) -> list[Any]:
        """Return the arguments' tangents: ``seeds`` for the arrays at the positions ``by``, zeros for other floats, None for
        others."""
        by_position = dict(zip(by, seeds, strict=True))
        remaining = iter(by_position.get(k) for k in range(len(self.arrays)))
        return [tree.tangent([next(remaining) for _ in tree.spots]) for tree in self.trees]

    def cotangents(self, indices: Sequence[int], values: Sequence[Any], what: str) -> list[Any]:
        """Return the cotangents of the arrays of the arguments ``indices``, from trees of their structure. Raises TraceError
        for others."""
        return [
            leaf
            for position, value in zip(indices, values, strict=True)
            for leaf in self.trees[position].parts(value, f"{what} for argument {position}", "the argument")
        ]


class Tree:
    """A value with its structure.

    ``spots`` are the indices of its leaves that are traced floats; ``kinds`` says of each leaf whether it is of floats.
    """

    def __init__(self, value: Any) -> None:
        self.leaves, self.structure = flatten(value, key=Identity)
        self.kinds = [as_traced(x).type.dtype.is_inexact for x in self.leaves]
        self.spots = [k for k, x in enumerate(self.leaves) if self.kinds[k] and isinstance(x, TracedArray)]

    @property
    def text(self) -> str:
        """The structure with the type of each leaf."""
        types = iter(self.leaves)
        return re.sub(r"\*", lambda _: str(as_traced(next(types)).type), repr(self.structure))

    def filled(self, arrays: Sequence[Any]) -> Any:
        """Return the value with other arrays."""
        leaves = list(self.leaves)
        for k, x in zip(self.spots, arrays, strict=True):
            leaves[k] = x
        return rebuild(self.structure, leaves)

    def tangent(self, arrays: Sequence[Any]) -> Any:
        """Return the tangent of the value: ``arrays`` for its traced floats, zeros for other floats and for None, None for
        other leaves."""
        changes: list[Any] = [np.zeros(np.shape(x), as_traced(x).dtype) if f else None for x, f in zip(self.leaves, self.kinds)]
        for k, x in zip(self.spots, arrays, strict=True):
            changes[k] = full(self.leaves[k].shape, 0, self.leaves[k].dtype) if x is None else x
        return rebuild(self.structure, changes)

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """Return the value with other leaves."""
        return rebuild(self.structure, leaves)

    def seeded(self, seeds: Arrays) -> Any:
        """Return a tree of derivatives: ``seeds`` in the positions of the floats, None in the positions of other leaves."""
        remaining = iter(seeds)
        return rebuild(self.structure, [next(remaining) if is_float else None for is_float in self.kinds])

    def floats(self, value: Any, what: str, of: str) -> list[Any]:
        """Return the leaves of ``value``, a tree of this structure, in the positions of floats."""
        leaves = matching_leaves(self.structure, value, what, of)
        return [x for x, is_float in zip(leaves, self.kinds, strict=True) if is_float]

    def added(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the sums of rows of derivatives of the floats; None stands for zero."""
        columns = [[row[k] for row in rows if row[k] is not None] for k in range(sum(self.kinds))]
        return [functools.reduce(operator.add, column) if column else None for column in columns]

    def parts(self, value: Any, what: str, of: str) -> list[Any]:
        """Return the leaves of ``value``, a tree of this structure, in the positions of the arrays."""
        leaves = matching_leaves(self.structure, value, what, of)
        return [leaves[k] for k in self.spots]


def custom_call(
    key: Any,
    name: str,
    arrays: Arrays,
    forward: Callable[[Arrays], tuple[Sequence[Any], Sequence[Any]]],
    vjp: Rule | None,
    jvp: Rule | None,
) -> list[TracedArray]:
    """Return the outputs of a function of ``arrays`` with derivative rules.

    ``forward`` returns outputs and residuals; rules are passed the residuals unchanged, with traced arrays among them as
    values of their own frame. Raises TraceError for a function that writes its arguments, and for rules whose results do not
    fit.
    """
    frame, order, loc = frame_of(), order_at(key), user_loc()
    inner = _frame(frame, order - 1, frame.customs - {key})
    inside = [_parameter(inner, x.type, x) for x in arrays]
    places = frame.root.names.places
    with inner.active(), places.within(inner), refusing_outside(inner):
        returned, residuals = forward(inside)
        outputs = [as_traced(x) for x in returned]
        traced_residuals = [k for k, x in enumerate(residuals) if isinstance(x, TracedArray) and x.frame is inner]
        results = [*outputs, *(residuals[k] for k in traced_residuals)]
        first = inner.builder.block(inner.parameters, [inner.lift(x) for x in results])
    _refuse_writes(inner, inside, name)
    own = [k for k, x in enumerate(outputs) if x.type.dtype.is_inexact]
    regions, inners = [first], [inner]
    for rule in (vjp, jvp):
        if rule is None:
            continue
        is_vjp = rule is vjp
        if is_vjp:
            inner = _frame(frame, order - 1, frame.customs - {key})
        else:
            inner = _frame(frame, order, frame.customs | {key})
        parameters = [_parameter(inner, x.type, x) for x in results]
        seeded = [outputs[k] for k in own] if is_vjp else [arrays[k] for k in rule.by]
        targets = [arrays[k] for k in rule.by] if is_vjp else [outputs[k] for k in own]
        seeds = [_parameter(inner, x.type) for x in seeded]
        inside = [_parameter(inner, x.type, x) for x in arrays]
        kept = list(residuals)
        for k, x in zip(traced_residuals, parameters[len(outputs) :], strict=True):
            kept[k] = x
        with inner.active(), places.within(inner), refusing_outside(inner):
            parts = rule.apply(parameters[: len(outputs)], kept, seeds, inside)
            what = "cotangent" if is_vjp else "tangent"
            lifted = [inner.lift(_fitting(p, x, f"a {what} by the rule of {name}")) for p, x in zip(parts, targets, strict=True)]
            regions.append(inner.builder.block(inner.parameters, lifted))
        inners.append(inner)
    closed, captured = with_captures(regions, inners)
    params = {"name": name, "outputs": len(outputs), "vjp": vjp and vjp.by, "jvp": jvp and jvp.by}
    values: list[Value] = [*(frame.lift(x, loc) for x in arrays), *captured]
    emitted = frame.builder.at(loc).emit(OPS["custom"], values, params, closed)
    return [TracedArray(x.type, frame, v, weak=x.weak, loc=loc) for x, v in zip(outputs, emitted[: len(outputs)], strict=True)]


def result_of(call: Callable[[Arrays], Any], arrays: Arrays) -> Tree | None:
    """Trace ``call`` in a frame that is discarded, and return its result; None if it cannot be traced."""
    return copy_context().run(_result_of, call, arrays)


def _result_of(call: Callable[[Arrays], Any], arrays: Arrays) -> Tree | None:
    stop_recording_errors()
    frame = Frame(frame_of())
    with suppress(Exception), frame.alone(), frame.root.names.places.within(frame):
        return Tree(call([_parameter(frame, x.type, x) for x in arrays]))
    return None


def same_types(actual: Tree, expected: Tree, what: str, of: str) -> None:
    """Raise TraceError, naming both, unless two results have the same structure and types."""
    if actual.text != expected.text:
        raise TraceError(
            f"{what} is {actual.text}, and {of} is {expected.text}; they must have the same structure, shapes and dtypes"
        )


def _frame(outer: Frame, order: int, customs: frozenset[Any]) -> Frame:
    frame = Frame(outer)
    frame.order, frame.customs = order, customs
    return frame


def _parameter(inner: Frame, type: ArrayType, like: TracedArray | None = None) -> TracedArray:
    if like is None:
        return TracedArray(type, inner, inner.parameter(type), loc=user_loc())
    name = like.value.name if like.literal is None else ""
    parameter = TracedArray(type, inner, inner.parameter(type, name), weak=like.weak, loc=like.loc)
    inner.sources[parameter.value] = source_of(like)
    parameter.origin, parameter.created = like.origin, like.is_cell
    return parameter


def _refuse_writes(inner: Frame, inside: Arrays, name: str) -> None:
    if inner.written or any(x.version for x in inside):
        raise TraceError(f"{name}, which has its own derivative rules, writes into an array from outside it; write into a copy")


def _fitting(part: Any, like: TracedArray, what: str) -> TracedArray:
    """Return a derivative cast to the dtype of ``like``. Raises TraceError if it has another shape or kind."""
    if part is None:
        return full(like.shape, 0, like.dtype)
    array = as_traced(part)
    if array.shape != like.shape:
        raise TraceError(f"{what} is {array.type}, and what it belongs to is {like.type}; they must have one shape")
    if not array.weak and not (array.type.dtype.is_inexact and np.can_cast(array.dtype, like.dtype, "same_kind")):
        raise TraceError(
            f"{what} is {array.type}, and what it belongs to is {like.type}; it must be of such floats, None where it is zero"
        )
    return cast(array, like.dtype)
