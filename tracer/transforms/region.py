"""A function traced in a frame of its own, on some of its arguments: the region of a transform's instruction.

The region is closed: outer values that the function reads become operands, after the operands that the transform passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from pullback.ir import OPS, Block, Instruction, Value
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import copy_block
from pullback.ir.core.types import ArrayType
from pullback.ir.ops.control.custom import parameters_with
from pullback.tracer.arrays.frame import Frame, Source, current, frame_of
from pullback.tracer.arrays.make import as_traced, with_named_extents, wrap
from pullback.tracer.arrays.masked import gathered
from pullback.tracer.arrays.mixed_numbers import is_mixed
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import Identity, TreeDef, bare, flatten, map_statics, paths, unflatten
from pullback.tracer.arrays.views import CONFLICT, is_chosen, root_of, write_back, written_in
from pullback.tracer.names.resolver import Names
from pullback.tracer.stores import refusing_changes, refusing_outside
from pullback.tracer.trace import check_leaf
from pullback.tracer.user_code.errors import TraceError, user_loc

Enter = Callable[[Any, str], Any]


def follow(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a user's function as it runs inside the current trace (see ``names``). Raises TraceError outside a trace."""
    names = frame_of().root.names
    assert isinstance(names, Names)
    followed: Callable[..., Any] = names.follow(function)
    return followed


def following() -> AbstractContextManager[None]:
    """Return a context in which branches on traced values are followed, each with a guard."""
    context: AbstractContextManager[None] = frame_of().root.outcomes.following()
    return context


@contextmanager
def rolling(rolls: bool, follows_choices: bool, has_effects_of_trace: bool = False) -> Iterator[None]:
    """Return a context in which branches and loops that values decide are compiled or not, and followed by guards, in a trace
    for which they are, or not, and in which effects occur while the function is traced, or at each call. Raises TraceError, for
    a retrace, if the functions of this trace were not rewritten."""
    root = frame_of().root
    outcomes = root.outcomes
    if rolls and root.follows_syntax is None:
        error = TraceError("a function whose loops are rolled in the trace of one whose loops are not; give both the same option")
        error.wants_rolled = True
        raise error
    before = root.rolls, outcomes.follows_choices, root.has_effects_of_trace
    root.rolls = rolls and bool(root.follows_syntax)
    outcomes.follows_choices = root.follows_choices and follows_choices
    root.has_effects_of_trace |= has_effects_of_trace
    try:
        yield
    finally:
        root.rolls, outcomes.follows_choices, root.has_effects_of_trace = before


def guard_attribute(owner: Any, name: str, describe: str) -> None:
    """Guard the current trace on ``owner``'s attribute ``name`` staying the same object."""
    frame_of().root.names.same(partial(getattr, owner, name), describe)


def rebuild(tree: TreeDef, leaves: Sequence[Any]) -> Any:
    """Unflatten; inside a trace, replace the user's classes and functions by the trace's copies."""
    frame = current()
    if frame is not None:
        names = frame.root.names
        tree = map_statics(tree, names.follow, names.shadow)
    return unflatten(tree, leaves)


@dataclass(frozen=True, kw_only=True)
class Closed:
    """A closed region, with the values of its operands at the time it was closed."""

    block: Block
    operands: tuple[TracedArray, ...]

    def emit(self, name: str, params: Mapping[str, Any], extra: Sequence[TracedArray] = ()) -> list[TracedArray]:
        """Emit an instruction with this region and ``extra`` operands into the current frame, and return its results. Called
        once."""
        frame, loc = frame_of(), user_loc()
        values = [frame.lift(x, loc) for x in (*self.operands, *extra)]
        parameters = (*self.block.parameters, *(Value(x.type) for x in extra))
        results = frame.builder.at(loc).emit(OPS[name], values, dict(params), [replace(self.block, parameters=parameters)])
        return [wrap(v) for v in results]

    def inline(self, unless: TracedArray | None = None) -> list[TracedArray]:
        """Append the region's instructions to the current frame, and return its results. Called once. Checks of scalars do not
        fail where ``unless`` holds."""
        frame = frame_of()
        env = dict(zip(self.block.parameters, (frame.lift(x) for x in self.operands), strict=True))
        for i in self.block.instructions:
            operands = tuple(env.get(v, v) for v in i.operands)
            if unless is not None and i.op.name == "check":
                holds = frame.builder.at(i.loc).emit(OPS["bitor"], [operands[0], frame.lift(unless)])
                operands = (*holds, *operands[1:])
            frame.builder.append(replace(i, operands=operands))
        return [wrap(env.get(v, v)) for v in self.block.results]

    def copy(self) -> Closed:
        """Return a copy of the region without instructions that only check or print: these run in the original."""
        return replace(self, block=copy_block(_silent(self.block)))


def _silent(block: Block) -> Block:
    kept: list[Instruction] = []
    for i in block.instructions:
        if i.op.effect == "pure" or i.results:
            kept.append(replace(i, regions=tuple(map(_silent, i.regions))))
    return replace(block, instructions=tuple(kept))


def source_of(x: TracedArray) -> Source:
    """Return the definition of a parameter that stands for ``x``: a constant, or a value and its frame."""
    if x.literal is not None:
        return np.asarray(x.literal, x.dtype)
    value = x.value
    assert x.frame is not None
    return value, x.frame


class Region:
    """A region being traced. ``operands`` are traced arrays of outer frames, ``inside`` the parameters that stand for them."""

    def __init__(self) -> None:
        self.outer = frame_of()
        self.inner = Frame(self.outer)
        self.operands: list[TracedArray] = []
        self.inside: list[TracedArray] = []

    def parameter(self, type: ArrayType, name: str = "", weak: str = "") -> TracedArray:
        """Add a parameter to the region."""
        return TracedArray(type, self.inner, self.inner.parameter(type, name), weak=weak, loc=user_loc())

    def enter(self, x: TracedArray, type: ArrayType | None = None, weak: str | None = None, is_same: bool = False) -> TracedArray:
        """Return a parameter of the region for a traced array, of ``type`` if it is not the array's.

        ``is_same``: the parameter equals that array at each run of the region.
        """
        kind = x.type if type is None else type
        parameter = self.parameter(kind, x.value.name if x.literal is None else "", x.weak if weak is None else weak)
        parameter.readonly, parameter.loc = x.readonly, x.loc
        parameter.created, parameter.layout_of = x.is_cell, x if kind == x.type else None
        parameter.origin = x.origin
        if is_same:
            self.inner.sources[parameter.value] = source_of(x)
            parameter.bounds = x.bounds
        if is_mixed(x) and kind == x.type and parameter.weak == x.weak:
            parameter.type_tag, parameter.bounds = x.type_tag, x.bounds
        self.operands.append(x)
        self.inside.append(parameter)
        return parameter

    def argument(self, value: Any, label: str, enter: Enter) -> tuple[Any, TreeDef]:
        """Return an argument with ``enter(leaf, path)`` in place of each leaf, and its structure."""
        leaves, tree = flatten(value)
        return self.filled(tree, [enter(leaf, path) for leaf, path in zip(leaves, paths(tree, label), strict=True)], label)

    def filled(self, tree: TreeDef, leaves: Sequence[Any], label: str) -> tuple[Any, TreeDef]:
        """Return an argument with these leaves, of the trace's copies of classes, and its structure."""
        names = self.outer.root.names
        tree = map_statics(tree, names.argument, names.shadow)
        value = unflatten(tree, leaves)
        names.effects.watch_argument(value, label)
        return value, bare(tree)

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Trace the function in the region and return its result."""
        with self.inner.active(), self.outer.root.names.places.within(self.inner), refusing_outside(self.inner):
            return gathered(follow(function)(*args, **kwargs))

    def call_once(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], what: str) -> Any:
        """As ``call``, of a function, described by ``what``, of which plain Python makes several calls. Raises TraceError if it
        changes a container among the arguments of the functions around it."""
        with refusing_changes(self.outer, what):
            return self.call(function, args, kwargs)

    def holds(self, x: Any) -> bool:
        """Return whether a value was defined in the region."""
        return isinstance(x, TracedArray) and x.frame is self.inner

    def written(self) -> list[tuple[TracedArray, TracedArray]]:
        """Return the arrays of outer frames that the function wrote, each with the array that has its new value.

        Raises TraceError for an array that the function wrote under one name and read under another.
        """
        inner = self.inner
        entered = [(x, new) for x, new in zip(self.operands, self.inside, strict=True) if new.version]
        outside = [x for x in written_in(inner) if x.frame is inner]
        roots = [id(root_of(x)) for x in self.operands]
        for k, (x, new) in enumerate(zip(self.operands, self.inside, strict=True)):
            shared = roots.count(roots[k]) > 1 or inner.has_read(root_of(x)) or inner.has_read(x)
            if (new.version and shared) or any(id(root_of(w)) == roots[k] for w in outside):
                raise TraceError(
                    f"an array that is differentiated ({x!r}) is written under one name and used under another; pass a copy"
                )
        if any(map(is_chosen, outside)):
            raise TraceError(CONFLICT)
        for view in (x for x in outside if x.base is not None):
            view.seen = -1
        return entered + [(x, x) for x in outside if x.base is None]

    def close(self, returned: Sequence[TracedArray]) -> Closed:
        """Return the region with these results."""
        with self.inner.active():
            results = [self.inner.lift(x) for x in returned]
            block = self.inner.builder.block(self.inner.parameters, results)
        loc, outer = user_loc(), self.outer
        values = [outer.lift(x, loc) for x in self.operands] + self.inner.outer
        operands = [TracedArray(v.type, outer, v, loc=loc) for v in values]  # type: ignore[arg-type]
        return Closed(block=block, operands=tuple(operands))


def with_captures(blocks: Sequence[Block], frames: Sequence[Frame]) -> tuple[list[Block], list[Value]]:
    """Return the regions of one instruction and the outer values that they read.

    These values are the instruction's last operands; each region has parameters for them after its own.
    """
    captured = list(dict.fromkeys(v for f in frames for v in f.outer))
    closed = []
    for block, frame in zip(blocks, frames, strict=True):
        count = len(block.parameters) - len(frame.outer)
        closed.append(replace(block, parameters=parameters_with(block, count, captured, frame.outer)))
    return closed, captured


def emit_regions(
    name: str,
    params: Mapping[str, Any],
    operands: Sequence[TracedArray],
    regions: Sequence[tuple[Region, Sequence[TracedArray]]],
) -> list[TracedArray]:
    """Emit an instruction with these regions and their results into the current frame, and return its results."""
    blocks, frames = [], [region.inner for region, _ in regions]
    for region, returned in regions:
        with region.inner.active():
            results = [region.inner.lift(x) for x in returned]
            blocks.append(region.inner.builder.block(region.inner.parameters, results))
    frame, loc = frame_of(), user_loc()
    closed, captured = with_captures(blocks, frames)
    values = [*(frame.lift(x, loc) for x in operands), *captured]
    op = OPS[name]
    named = with_named_extents(frame, op, params)
    try:
        return [wrap(v) for v in frame.builder.at(loc).emit(op, values, named, closed)]
    except TypeError as error:
        raise TraceError(f"values that a branch or loop changes have other types on another path ({error})") from None


def restore(written: Sequence[tuple[TracedArray, TracedArray]], results: Sequence[TracedArray]) -> dict[int, TracedArray]:
    """Write the new values into the arrays that a function wrote; return these by the ids of the region's arrays."""
    for (target, _), new in zip(written, results, strict=True):
        write_back(target, new)
    return {id(new): target for target, new in written}


def as_weak(x: Any, like: Any) -> Any:
    """Return a result outside a region as a Python number if ``like``, the same result inside, is one."""
    if isinstance(like, TracedArray) and x is not like:
        x.weak = like.weak
    return x


def differentiable(leaf: Any, label: str) -> TracedArray:
    """Return a leaf of a differentiated argument as an array. Raises TraceError unless it is of floats."""
    if not isinstance(leaf, TracedArray):
        check_leaf(leaf, f"argument {label}")
    array = as_traced(leaf)
    if not array.type.dtype.is_inexact:
        kind = f"a Python {array.weak}" if array.weak else f"of dtype {array.dtype}"
        instead = "a float, such as 3.0 for 3" if array.weak else "floats, as by .astype(float)"
        raise TraceError(f"argument {label} is {kind}: only floats can be differentiated; pass {instead}")
    return array


def enter_differentiated(region: Region, leaf: Any, label: str) -> TracedArray:
    """Return the parameter for a leaf with respect to which the function is differentiated."""
    parameter = region.enter(differentiable(leaf, label), is_same=True)
    if parameter.origin is not None and parameter.origin.kind == "argument":
        parameter.origin = parameter.origin._replace(kind="differentiated")
    return parameter


def is_differentiable(leaf: Any) -> bool:
    """Return whether a leaf is of floats, and so has tangents and cotangents."""
    return as_traced(leaf).type.dtype.is_inexact


def split_aux(result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return the value and the aux output of a function. Raises TraceError if it should return both and does not."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        kind = repr(result) if isinstance(result, TracedArray) else f"a {type(result).__name__}"
        raise TraceError(
            f"has_aux wants a pair (value, aux), and the function returned {kind}; write return value, aux, or leave has_aux out"
        )
    return result


def matching_leaves(tree: TreeDef, value: Any, what: str, of: str) -> list[Any]:
    """Return the leaves of ``value`` in the order of the leaves of a structure; None for a subtree counts as None for each of
    its leaves.

    Raises TraceError, naming the two as ``what`` and ``of``, where the structures differ.
    """
    leaves, other = flatten(value, key=Identity)
    return list(_paired(bare(tree), bare(other), iter(leaves), what, of))


def _paired(tree: TreeDef, other: TreeDef, leaves: Iterator[Any], what: str, of: str) -> Iterator[Any]:
    if other.kind == "static" and other.data is None:
        yield from (None for _ in range(tree.count))
        return
    if tree.kind in ("static", "named") and not other.count:
        return
    if tree.kind != other.kind or len(tree.children) != len(other.children) or set(tree.keys) != set(other.keys):
        raise TraceError(f"{what} has not the structure of {of}: {other!r} beside {tree!r}; * is an array or a number")
    if tree.kind == "leaf":
        yield next(leaves)
        return
    parts = {key: [next(leaves) for _ in range(child.count)] for key, child in zip(other.keys, other.children, strict=True)}
    children = dict(zip(other.keys, other.children, strict=True))
    for key, child in zip(tree.keys, tree.children, strict=True):
        yield from _paired(child, children[key], iter(parts[key]), what, of)
