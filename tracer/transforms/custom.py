"""Functions with derivative rules of their own: calls become ``custom`` instructions, whose regions are the function and its
rules.

The rules of a call are traced with it, and only where a derivative may be taken: in the region of a transform. A rule may call
the function again; each region is traced for as many derivatives as can still be taken of it, so that this ends.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir import OPS, Value
from pullback.ir.core.types import ArrayType
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.make import as_traced, cast, full
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Identity, flatten
from pullback.tracer.transforms.region import given_by, joined, partners, rebuild
from pullback.tracer.user_code.errors import TraceError, not_noting, user_loc

Arrays = Sequence[TracedArray]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """``apply(outputs, residuals, seeds, arrays)``: the cotangents of the arrays at the positions ``by``, of ``seeds``, the
    cotangents of the outputs of floats; or the tangents of those outputs, of ``seeds``, the tangents of those arrays. None
    stands for zero.
    """

    by: tuple[int, ...]
    apply: Callable[[Arrays, Sequence[Any], Arrays, Arrays], Sequence[Any]]


def order_at(key: Any) -> int:
    """How many derivatives may be taken of a call, in the current frame, of the function that ``key`` stands for."""
    frame = frame_of()
    return frame.order - (key in frame.customs)


class Arguments:
    """The arguments of a call. ``arrays`` are the traced floats among their leaves, ``owners`` the argument of each."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.trees = [Tree(x) for x in args]
        self.arrays = [tree.leaves[k] for tree in self.trees for k in tree.spots]
        self.owners = [number for number, tree in enumerate(self.trees) for _ in tree.spots]

    def by(self, numbers: Collection[int]) -> tuple[int, ...]:
        """The positions of the arrays of some arguments."""
        return tuple(k for k, owner in enumerate(self.owners) if owner in numbers)

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """The arguments with other arrays."""
        rest = iter(arrays)
        return [tree.filled([next(rest) for _ in tree.spots]) for tree in self.trees]

    def tangents(self, by: Sequence[int], seeds: Arrays) -> list[Any]:
        """The arguments' tangents: those of the arrays at the positions ``by``, zeros for other floats, None for the rest."""
        given = dict(zip(by, seeds, strict=True))
        rest = iter(given.get(k) for k in range(len(self.arrays)))
        return [tree.tangent([next(rest) for _ in tree.spots]) for tree in self.trees]

    def cotangents(self, numbers: Sequence[int], found: Sequence[Any], what: str) -> list[Any]:
        """The cotangents of the arrays of some arguments, from trees like those. Raises TraceError for other trees."""
        return [
            leaf
            for number, value in zip(numbers, found, strict=True)
            for leaf in self.trees[number].parts(value, f"{what} for argument {number}", "the argument")
        ]


class Tree:
    """A value with its structure. ``spots``: which of its leaves are traced floats; ``kinds``: of each leaf, whether it is of
    floats."""

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
        """The value with other arrays."""
        found = list(self.leaves)
        for k, x in zip(self.spots, arrays, strict=True):
            found[k] = x
        return rebuild(self.structure, found)

    def tangent(self, arrays: Sequence[Any]) -> Any:
        """What changes with the arrays: these, zeros in place of None and of other floats, None for what is not of floats."""
        changes: list[Any] = [np.zeros(np.shape(x), as_traced(x).dtype) if f else None for x, f in zip(self.leaves, self.kinds)]
        for k, x in zip(self.spots, arrays, strict=True):
            changes[k] = full(self.leaves[k].shape, 0, self.leaves[k].dtype) if x is None else x
        return rebuild(self.structure, changes)

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """The value with other leaves."""
        return rebuild(self.structure, leaves)

    def seeded(self, seeds: Arrays) -> Any:
        """A tree of derivatives: ``seeds`` in the place of the floats, None in that of other leaves."""
        rest = iter(seeds)
        return rebuild(self.structure, [next(rest) if is_float else None for is_float in self.kinds])

    def floats(self, value: Any, what: str, of: str) -> list[Any]:
        """The leaves of a tree like this one that belong to floats."""
        found = partners(self.structure, value, what, of)
        return [x for x, is_float in zip(found, self.kinds, strict=True) if is_float]

    def added(self, rows: Sequence[Sequence[Any]]) -> list[Any]:
        """The sums of derivatives of the floats, which are rows; None stands for zero."""
        columns = [[row[k] for row in rows if row[k] is not None] for k in range(sum(self.kinds))]
        return [functools.reduce(operator.add, column) if column else None for column in columns]

    def parts(self, value: Any, what: str, of: str) -> list[Any]:
        """The leaves of a tree like this one that belong to the arrays."""
        found = partners(self.structure, value, what, of)
        return [found[k] for k in self.spots]


def custom_call(
    key: Any,
    name: str,
    arrays: Arrays,
    forward: Callable[[Arrays], tuple[Sequence[Any], Sequence[Any]]],
    vjp: Rule | None,
    jvp: Rule | None,
) -> list[TracedArray]:
    """The outputs of a function of ``arrays`` whose derivatives are given by rules.

    ``forward`` gives outputs and residuals; rules get the residuals as they are, traced arrays among them in their own frame.
    Raises TraceError for a function that writes its arguments, and for rules whose results do not fit.
    """
    frame, order, loc = frame_of(), order_at(key), user_loc()
    inner = _frame(frame, order - 1, frame.customs - {key})
    inside = [_parameter(inner, x.type, x) for x in arrays]
    with inner.active():
        given, residuals = forward(inside)
        outputs = [as_traced(x) for x in given]
        held = [k for k, x in enumerate(residuals) if isinstance(x, TracedArray) and x.frame is inner]
        results = [*outputs, *(residuals[k] for k in held)]
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
        made = [_parameter(inner, x.type, x) for x in results]
        seeded = [outputs[k] for k in own] if is_vjp else [arrays[k] for k in rule.by]
        wanted = [arrays[k] for k in rule.by] if is_vjp else [outputs[k] for k in own]
        seeds = [_parameter(inner, x.type) for x in seeded]
        inside = [_parameter(inner, x.type, x) for x in arrays]
        kept = list(residuals)
        for k, x in zip(held, made[len(outputs) :], strict=True):
            kept[k] = x
        with inner.active():
            parts = rule.apply(made[: len(outputs)], kept, seeds, inside)
            what = "cotangent" if is_vjp else "tangent"
            found = [inner.lift(_fitting(p, x, f"a {what} by the rule of {name}")) for p, x in zip(parts, wanted, strict=True)]
            regions.append(inner.builder.block(inner.parameters, found))
        inners.append(inner)
    closed, captured = joined(regions, inners)
    params = {"name": name, "outputs": len(outputs), "vjp": vjp and vjp.by, "jvp": jvp and jvp.by}
    values: list[Value] = [*(frame.lift(x, loc) for x in arrays), *captured]
    emitted = frame.builder.at(loc).emit(OPS["custom"], values, params, closed)
    return [TracedArray(x.type, frame, v, weak=x.weak, loc=loc) for x, v in zip(outputs, emitted[: len(outputs)], strict=True)]


def result_of(call: Callable[[Arrays], Any], arrays: Arrays) -> Tree | None:
    """What a function of arrays returns, found in a frame that is thrown away; None if it cannot be traced."""
    return copy_context().run(_result_of, call, arrays)


def _result_of(call: Callable[[Arrays], Any], arrays: Arrays) -> Tree | None:
    not_noting()
    frame = Frame(frame_of())
    with suppress(Exception), frame.alone():
        return Tree(call([_parameter(frame, x.type, x) for x in arrays]))
    return None


def same_types(found: Tree, expected: Tree, what: str, of: str) -> None:
    """Raises TraceError, with both, unless two results have the same structure and types."""
    if found.text != expected.text:
        raise TraceError(
            f"{what} is {found.text}, and {of} is {expected.text}; they must have the same structure, shapes and dtypes"
        )


def _frame(outer: Frame, order: int, customs: frozenset[Any]) -> Frame:
    found = Frame(outer)
    found.order, found.customs = order, customs
    return found


def _parameter(inner: Frame, type: ArrayType, like: TracedArray | None = None) -> TracedArray:
    if like is None:
        return TracedArray(type, inner, inner.parameter(type), loc=user_loc())
    name = like.value.name if like.literal is None else ""
    made = TracedArray(type, inner, inner.parameter(type, name), weak=like.weak, loc=like.loc)
    inner.given[made.value] = given_by(like)
    made.origin, made.created = like.origin, like.is_cell
    return made


def _refuse_writes(inner: Frame, inside: Arrays, name: str) -> None:
    if inner.written or any(x.version for x in inside):
        raise TraceError(f"{name}, which has its own derivative rules, writes into an array from outside it; write into a copy")


def _fitting(part: Any, like: TracedArray, what: str) -> TracedArray:
    """A derivative of the type of what it belongs to. Raises TraceError if it has another shape or kind."""
    if part is None:
        return full(like.shape, 0, like.dtype)
    found = as_traced(part)
    if found.shape != like.shape:
        raise TraceError(f"{what} is {found.type}, and what it belongs to is {like.type}; they must have one shape")
    if not found.weak and not (found.type.dtype.is_inexact and np.can_cast(found.dtype, like.dtype, "same_kind")):
        raise TraceError(
            f"{what} is {found.type}, and what it belongs to is {like.type}; it must be of such floats, None where it is zero"
        )
    return cast(found, like.dtype)
