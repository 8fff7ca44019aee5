"""Tracing of the functions of branches and loops: each into a region of its own, with the region's parameters as its
arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any, NoReturn

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType
from pullback.ir.shapes.by_value import is_value_size, same_extent, same_shape
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast, emit, fresh, full, number_of_extent, result_type
from pullback.tracer.arrays.mixed_numbers import mixed, tag_of, tag_type, tag_value
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import TreeDef, flatten, paths
from pullback.tracer.arrays.value_extents import capacity_for, largest, most_growth, outer_bound, value_extent
from pullback.tracer.arrays.views import written_in
from pullback.tracer.trace import check_leaf
from pullback.tracer.transforms.region import Region, follow, rebuild
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError, user_loc
from pullback.tracer.user_code.ownership import is_users
from pullback.tracer.user_code.source import shown

LOOP = "the body of a loop"
CONDITION = "the condition of a loop"
BRANCH = "a branch"
_INSTEAD = {
    LOOP: "put the array in the carry, and return it",
    CONDITION: "write in the body",
    BRANCH: "pass the array as an operand, and return it",
}
_WEAK = ("bool", "int", "float", "complex")


_running: ContextVar[bool] = ContextVar("pullback_running", default=False)


@contextmanager
def running() -> Iterator[None]:
    """Mark that the function of a branch or loop is being traced in this context."""
    token = _running.set(True)
    try:
        yield
    finally:
        _running.reset(token)


def is_running() -> bool:
    """Return whether the function of a branch or loop is being traced."""
    return _running.get()


class Body(Region):
    """The region of one function of a branch or loop; ``what`` is LOOP, CONDITION or BRANCH."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.inner.order = self.outer.order
        self.inner.sealed = f"{what}; {_INSTEAD[what]}"

    def take(self, x: TracedArray, type: ArrayType | None = None, readonly: str = "") -> TracedArray:
        """Return a parameter for an operand, of ``type`` if it is a part of the operand: a row-major copy."""
        result = self.enter(x, type, x.weak if type is None else "")
        result.readonly, result.layout_of, result.is_dense, result.origin, result.loc = readonly, None, True, None, user_loc()
        return result

    def call(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Any:
        """Trace the function and return its results. Raises TraceError if it changes outside state."""
        followed = follow(function)
        with running(), self.outer.root.names.effects.within(followed, self.what):
            returned = super().call(followed, args, kwargs or {})
        for view in written_in(self.inner):
            view.seen = -1
        return returned


class Carry:
    """The values passed from one iteration of a loop to the next: a tree of arrays, each of one type.

    A Python number takes the type that the body returns for it: the body is traced again with that type. An array of which the
    body makes one axis longer or shorter becomes a buffer and a length (``Ragged``).
    """

    tags_bools = False
    """Whether a bool that is Python's in some iterations and NumPy's in others has a tag that says which, as other numbers have.
    In a loop function it is NumPy's, so that ``~`` of it is a bool."""

    def __init__(self, loop: str, init: Any, label: str, count: Any = None) -> None:
        """Flatten ``init``. ``loop`` and ``label`` are the names of the loop function and of its parameter, for errors;
        ``count`` is the trip count, None if it is unknown.

        Raises TraceError for a leaf that is no array.
        """
        self.loop, self.label, self._count = loop, label, count
        self.rooms: dict[int, RowRoom] = {}
        leaves, self.tree = flatten(init)
        self.paths = paths(self.tree, label)
        for leaf, path in zip(leaves, self.paths, strict=True):
            if not isinstance(leaf, TracedArray):
                check_leaf(leaf, path)
        self.arrays = [as_traced(leaf) for leaf in leaves]
        self.ragged: dict[int, Ragged] = {}
        self.settled: set[int] = set()

    @property
    def trip_count(self) -> Any:
        """The trip count; None if it is unknown."""
        return self._count

    def enter(self, body: Body, readonly: str = "") -> Any:
        """Return the carry as the function's argument, with parameters of the body in place of its arrays."""
        leaves = []
        for k, x in enumerate(self.arrays):
            entered = body.take(x, readonly=readonly) if k not in self.ragged else self.ragged[k].enter(body, readonly)
            if x.type_tag is not None:
                entered.type_tag, entered.bounds = body.take(x.type_tag), None
            leaves.append(entered)
        return rebuild(self.tree, leaves)

    def returned(self, body: Body, function: Callable[..., Any], value: Any) -> list[TracedArray] | None:
        """Return the arrays that the body returns, cast to the carry's types.

        Returns None if the carry's types became wider; the body must then be traced again. Raises TraceError for other types
        and structures.
        """
        leaves, tree = flatten(value)
        _, expected = flatten(rebuild(self.tree, self.arrays))
        if tree != expected:
            rows = [(self.label, repr(expected), repr(tree))]
            raise self._changed(function, "structure", rows, "return the containers that came in")
        with body.inner.active():
            arrays = [as_traced(leaf) for leaf in leaves]
        grown = [k for k, (x, y) in enumerate(zip(self.arrays, arrays, strict=True)) if self._is_grown(k, x, y)]
        for k in grown:
            self.ragged[k] = self._lengthened(k, arrays[k], function)
        if grown:
            return None
        with body.inner.active():
            kinds = [self._kind(k, x, y) for k, (x, y) in enumerate(zip(self.arrays, arrays, strict=True))]
            wrong = [(p, x, y) for p, x, y, kind in zip(self.paths, self.arrays, arrays, kinds, strict=True) if kind is None]
            if wrong:
                raise self._changed(function, "type", [(p, kind_of(x), kind_of(y)) for p, x, y in wrong], _instead(*wrong[0]))
            columns = list(zip(kinds, self.arrays, arrays, strict=True))
            tags = [None if kind is None else self._tag_for(kind[0], x, y) for kind, x, y in columns]
            is_new = any(tag not in (None, _tag_type(x)) for tag, x in zip(tags, self.arrays, strict=True))
            if not is_new and all(kind == (x.type.dtype.numpy, x.weak) for kind, x in zip(kinds, self.arrays, strict=True)):
                results: list[TracedArray] = []
                self.settled = {k for k, (_, x, y) in enumerate(columns) if y.type_tag is None and tag_of(y) == x.weak}
                for k, (x, y) in enumerate(zip(self.arrays, arrays, strict=True)):
                    new = cast(y, x.dtype)
                    results += [new] if k not in self.ragged else self.ragged[k].leave(new, self.loop)
                    if x.type_tag is not None:
                        results.append(tag_value(y, tags[k]))
                return results
        widened = [_widened(x, *kind) for x, kind in zip(self.arrays, kinds, strict=True) if kind is not None]
        self.arrays = [
            new if tag is None else mixed(new, tag_value(x, tag), new.weak)
            for tag, x, new in zip(tags, self.arrays, widened, strict=True)
        ]
        self.ragged = {k: each.of(self.arrays[k]) for k, each in self.ragged.items()}
        return None

    def _tag_for(self, dtype: np.dtype[Any], x: TracedArray, y: TracedArray) -> Any:
        """Return the dtype of the tag of a number of a dtype, which is ``x`` before an iteration and ``y`` after it; None if it
        has none."""
        return tag_type((x, y), dtype) if self.tags_bools or dtype.kind != "b" else None

    def _lengthened(self, k: int, after: TracedArray, function: Any) -> Ragged:
        """Return array ``k`` of the carry as a buffer of the rows that it may have. ``after``: the array after an iteration."""
        x = self.arrays[k]
        before = self.ragged.get(k)
        entered = x if before is None else before.entered
        axis = before.axis if before is not None else changing_axis(x, after) or 0
        rows, rows_after = entered.shape[axis], after.shape[axis]
        growth = most_growth(rows, rows_after)
        if k in self.rooms:
            return Ragged(x, axis, x.shape[axis] + self.rooms[k].extent, room=self.rooms[k])
        if growth == 0:
            return Ragged(x, axis, x.shape[axis])
        bound = outer_bound(rows_after, rows)
        attempts = 0 if before is None else before.attempts
        is_bounded = bound is not None and attempts < _MOST_BOUNDS
        if is_bounded and (before is not None or growth is None or self.trip_count is None):
            capacity = capacity_for([x.shape[axis] if before is None else before.capacity, bound])
            return Ragged(x, axis, capacity, attempts=attempts + 1)
        if growth is None or self.trip_count is None:
            self.refuse_length(k, function, entered, after)
        return Ragged(x, axis, _rows_after(x.shape[axis], growth, self.trip_count), growth)

    def refuse_length(self, k: int, function: Any, entered: TracedArray, returned: TracedArray) -> NoReturn:
        """Raise TraceError for array ``k`` of the carry, of whose length after an iteration no bound is known before the loop."""
        rows = [(self.paths[k], kind_of(entered), kind_of(returned))]
        raise self._changed(function, "length", rows, _UNBOUNDED)

    def _is_grown(self, k: int, x: TracedArray, y: TracedArray) -> bool:
        """Return whether an array has another length after an iteration than its type, or its buffer, provides for."""
        if k not in self.ragged:
            return changing_axis(x, y) is not None
        ragged = self.ragged[k]
        if not ragged.holds(y) or ragged.room is not None:
            return False
        before, after = ragged.entered.shape[ragged.axis], y.shape[ragged.axis]
        growth = most_growth(before, after)
        if growth is not None and growth <= ragged.growth:
            return False
        bound = outer_bound(after, before)
        return bound is None or largest(ragged.capacity, bound) is not ragged.capacity

    def _kind(self, k: int, x: TracedArray, y: TracedArray) -> tuple[Any, str] | None:
        """Return the dtype and weak kind of a carry; None if no type holds what goes in and what comes out."""
        is_alike = self.ragged[k].holds(y) if k in self.ragged else same_shape(x.shape, y.shape)
        return common([x, y]) if is_alike and (x.weak or y.weak or x.dtype == y.dtype) and _takes(x, y) else None

    def rebuilt(self, results: Sequence[TracedArray], runs: bool = False) -> Any:
        """Return the carry with other arrays in it. ``runs``: the loop has an iteration in any case, so that a number has the
        type after it that it has after each iteration."""
        remaining = iter(results)
        leaves = []
        for k, x in enumerate(self.arrays):
            new = next(remaining)
            if k in self.ragged:
                self.ragged[k].left = next(remaining)
                new = shortened(new, self.ragged[k].left, self.ragged[k].axis)
            new.weak = x.weak
            if x.type_tag is not None:
                tag = next(remaining)
                new.type_tag = None if runs and k in self.settled else tag
            leaves.append(new)
        return rebuild(self.tree, leaves)

    def _changed(self, function: Any, what: str, rows: Sequence[tuple[str, str, str]], instead: str) -> TraceError:
        names, before, after = (max(len(row[k]) for row in rows) for k in range(3))
        return rows_error(
            f"the carry of {self.loop} changes its {what}; {instead}",
            [f"{p:{names}} {a:{before}} goes in, {b:{after}} comes out of {titled(function)}" for p, a, b in rows],
        )


def rows_error(message: str, rows: Sequence[str]) -> TraceError:
    """Return an error that lists ``rows`` below its message."""
    error = TraceError(message)
    error.origins = tuple(rows)
    return error


@dataclass(frozen=True, kw_only=True)
class RowRoom:
    """The rows that a carried array may have besides those before the loop. ``is_limited``: they may not suffice, and the loop
    ends after the iteration for whose array they do not."""

    extent: Any
    is_limited: bool


def changing_axis(x: TracedArray, y: TracedArray) -> int | None:
    """Return the axis of which two arrays may have different extents; None if there is none, or more than one."""
    if x.ndim != y.ndim:
        return None
    axes = [k for k, (m, n) in enumerate(zip(x.shape, y.shape, strict=True)) if not same_extent(m, n)]
    return axes[0] if len(axes) == 1 else None


def _others(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


class Ragged:
    """A carried array of which one ``axis`` changes its length: a buffer, which holds the most rows along it that there can be,
    and the number of rows in use. In the buffer that axis is the first.

    ``capacity``: that of the buffer, an int or an extent, which suffices for iterations that make the array longer by at most
    ``growth`` rows, or as far as there is ``room``. ``entered``: the array in the body, ``inside`` its buffer there; ``left``:
    the number of rows after the loop; ``attempts``: how many bounds of the capacity have been tried.
    """

    left: TracedArray

    def __init__(
        self, x: TracedArray, axis: int, capacity: Any, growth: int = 0, room: RowRoom | None = None, attempts: int = 0
    ) -> None:  # fmt: skip
        self.axis, self.capacity, self.growth, self.room, self.attempts = axis, capacity, growth, room, attempts
        self.entered = x
        self.length = number_of_extent(x.shape[axis])
        rows = axis_first(x, axis)
        self.buffer = fresh(rows)
        if not same_extent(capacity, rows.shape[0]):
            self.buffer = as_traced(np.concatenate([rows, full((capacity - rows.shape[0], *rows.shape[1:]), 0, x.dtype)]))

    def of(self, x: TracedArray) -> Ragged:
        """Return the buffer of an array of another type."""
        return Ragged(x, self.axis, self.capacity, self.growth, self.room, self.attempts)

    def holds(self, y: TracedArray) -> bool:
        """Return whether an array has the extents of this one along all other axes."""
        x = self.entered
        return x.ndim == y.ndim and same_shape(_others(x.shape, self.axis), _others(y.shape, self.axis))

    def enter(self, body: Body, readonly: str) -> TracedArray:
        """Return the array in the body of a loop, whose parameters are the buffer and the length."""
        buffer, length = body.take(self.buffer, readonly=readonly), body.take(self.length)
        with body.inner.active():
            self.entered = shortened(buffer, length, self.axis)
            self.entered.readonly = readonly
        self.inside = buffer
        return self.entered

    def leave(self, x: TracedArray, loop: str) -> list[TracedArray]:
        """Return the buffer and the length that hold an array after an iteration. Called in the body."""
        x = axis_first(x, self.axis)
        rows, capacity = number_of_extent(x.shape[0]), self.inside.shape[0]
        start, step = (0,) * x.ndim, (1,) * x.ndim
        if self.room is not None and self.room.is_limited:
            kept = value_extent(as_traced(np.minimum(rows, number_of_extent(capacity))), least=0, most=capacity)
            x = emit("slice", x, start=start, step=step, shape=(kept, *x.shape[1:]))
        else:
            fits = emit("le", rows, number_of_extent(capacity))
            message = Limit(f"the carry of {loop} becomes longer than its first iteration says")
            emit("check", fits, error="ValueError", message=message)
        return [emit("slice_set", self.inside, x, start=start, step=step), rows]


def axis_first(x: TracedArray, axis: int) -> TracedArray:
    """Return an array with one of its axes as the first."""
    return x if axis == 0 else as_traced(xp.moveaxis(x, axis, 0))


def shortened(buffer: TracedArray, length: TracedArray, axis: int = 0) -> TracedArray:
    """Return the first ``length`` rows of a buffer, an extent by value, with its first axis as ``axis``."""
    extent = value_extent(length, least=0, most=buffer.shape[0])
    zeros, ones = (0,) * buffer.ndim, (1,) * buffer.ndim
    rows: TracedArray = emit("slice", buffer, start=zeros, step=ones, shape=(extent, *buffer.shape[1:]))
    return fresh(rows if axis == 0 else as_traced(xp.moveaxis(rows, 0, axis)))


def _rows_after(rows: Any, growth: int, count: Any) -> Any:
    """Return the rows of an array that ``count`` iterations make longer by at most ``growth`` each."""
    if isinstance(count, int) or is_value_size(count):
        return rows + growth * count
    return rows + value_extent(as_traced(growth * np.maximum(count, 0)), least=0)


_MOST_BOUNDS = 3
"""The number of upper bounds of a length that are tried: where each is one of the bound before it, there is none."""
_UNBOUNDED = (
    "it may become longer by at most a fixed number of rows in each iteration of a counted loop; write into an array that is "
    "long enough, and carry the number of its rows in use"
)


def _takes(x: TracedArray, y: TracedArray) -> bool:
    """Return whether a carry of the type of ``x`` can hold ``y``; one that holds a Python number can."""
    return bool(x.weak) or result_type(x, y) == x.dtype


def common(values: Sequence[TracedArray]) -> tuple[Any, str] | None:
    """Return the common dtype and weak kind of values of one shape; None if there is none.

    Python numbers convert to the dtype of the others.
    """
    strong = {x.dtype for x in values if not x.weak}
    if not strong:
        widest = max(values, key=lambda x: _WEAK.index(x.weak))
        return widest.dtype, widest.weak
    return (result_type(*values), "") if len(strong) == 1 else None


def _tag_type(x: TracedArray) -> Any:
    """Return the dtype of the tag of a number; None if it has none."""
    return None if x.type_tag is None else x.type_tag.dtype


def _widened(x: TracedArray, dtype: Any, weak: str) -> TracedArray:
    if (x.dtype, x.weak) == (dtype, weak):
        return x
    widened = cast(x, dtype)
    widened.weak = weak
    return widened


def kind_of(x: TracedArray) -> str:
    """Return the type of an array as errors show it."""
    return f"a Python {x.weak}" if x.weak else str(x.type)


def _instead(path: str, x: TracedArray, y: TracedArray) -> str:
    if not same_shape(x.shape, y.shape):
        return "a carry keeps its shape: start from an array of the shape that comes out, or return the shape that came in"
    name = "bool" if y.dtype == bool else y.dtype.name
    start = f"np.{name}(...)" if not x.shape else f"{path}.astype(np.{name})"
    return f"start from {start.replace('np.bool(', 'np.bool_(')}, or return {x.dtype.name}, as by .astype(np.{x.dtype.name})"


def titled(function: Any) -> str:
    """Return the name and source position of a function as errors show them."""
    while isinstance(function, functools.partial | MethodType) or hasattr(function, "__wrapped__"):
        inner = getattr(function, "func", None) or getattr(function, "__func__", None)
        function = inner or function.__wrapped__
    name, code = getattr(function, "__name__", type(function).__name__), getattr(function, "__code__", None)
    name = "the lambda" if name == "<lambda>" else name
    return f"{name} at {shown(code.co_filename)}:{code.co_firstlineno}" if code is not None and is_users(code) else str(name)


def is_static(x: Any) -> bool:
    """Return whether a number's value is available during tracing."""
    return not isinstance(x, TracedArray) or x.literal is not None


def watched(tree: TreeDef, leaves: Sequence[Any], label: str) -> Any:
    """Return a tree as a function's argument, and watch its containers, which the function must not change."""
    value = rebuild(tree, leaves)
    frame_of().root.names.effects.watch_argument(value, label)
    return value
