"""Tracing of the functions of branches and loops: each into a region of its own, with the region's parameters as its
arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any

from pullback.ir.core.types import ArrayType
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast, result_type
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import TreeDef, flatten, paths
from pullback.tracer.arrays.views import written_in
from pullback.tracer.trace import check_leaf
from pullback.tracer.transforms.region import Region, follow, rebuild
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

    A Python number takes the type that the body returns for it: the body is traced again with that type.
    """

    def __init__(self, loop: str, init: Any, label: str) -> None:
        """Flatten ``init``. ``loop`` and ``label`` are the names of the loop function and of its parameter, for errors.

        Raises TraceError for a leaf that is no array.
        """
        self.loop, self.label = loop, label
        leaves, self.tree = flatten(init)
        self.paths = paths(self.tree, label)
        for leaf, path in zip(leaves, self.paths, strict=True):
            if not isinstance(leaf, TracedArray):
                check_leaf(leaf, path)
        self.arrays = [as_traced(leaf) for leaf in leaves]

    def enter(self, body: Body, readonly: str = "") -> Any:
        """Return the carry as the function's argument, with parameters of the body in place of its arrays."""
        return rebuild(self.tree, [body.take(x, readonly=readonly) for x in self.arrays])

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
            kinds = [_carried(x, y) for x, y in zip(self.arrays, arrays, strict=True)]
            wrong = [(p, x, y) for p, x, y, kind in zip(self.paths, self.arrays, arrays, kinds, strict=True) if kind is None]
            if wrong:
                raise self._changed(function, "type", [(p, kind_of(x), kind_of(y)) for p, x, y in wrong], _instead(*wrong[0]))
            if all(kind == (x.type.dtype.numpy, x.weak) for kind, x in zip(kinds, self.arrays, strict=True)):
                return [cast(y, x.dtype) for y, x in zip(arrays, self.arrays, strict=True)]
        self.arrays = [_widened(x, *kind) for x, kind in zip(self.arrays, kinds, strict=True) if kind is not None]
        return None

    def rebuilt(self, results: Sequence[TracedArray]) -> Any:
        """Return the carry with other arrays in it."""
        for x, new in zip(self.arrays, results, strict=True):
            new.weak = x.weak
        return rebuild(self.tree, results)

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


def _carried(x: TracedArray, y: TracedArray) -> tuple[Any, str] | None:
    """Return the dtype and weak kind of a carry that enters as ``x`` and is returned as ``y``; None if no type holds both."""
    return common([x, y]) if x.shape == y.shape and (x.weak or y.weak or x.dtype == y.dtype) and _takes(x, y) else None


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
    if x.shape != y.shape:
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
