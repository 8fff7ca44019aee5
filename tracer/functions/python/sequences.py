"""``range``, ``enumerate``, ``zip`` and ``reversed``, and iteration over arrays, in functions whose source is not at hand."""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.replacements import call_of
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.names.globals import Namespace
from pullback.tracer.syntax.bytecode import LoopKey, loops_in
from pullback.tracer.syntax.table import PREFIX, operator_called


def _returns_items(function: Any) -> Callable[..., Any]:
    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1)
        if not _is_followed(caller):
            return function(*args, **kwargs)
        key = _loop_of(caller)
        if key is None and not any(isinstance(x, TracedArray) for x in args):
            return function(*args, **kwargs)
        return operator_called(PREFIX + "iterator")(function, args, kwargs, caller, key)

    return call


for _name in ("range", "enumerate", "zip", "reversed"):
    call_of(_name)(_returns_items(getattr(builtins, _name)))


@hook("rows")
def rows(x: TracedArray, caller: FrameType) -> Iterator[Any] | None:
    """Return the iterator of a ``for`` statement over the rows of an array; None if no such statement of a function without
    source calls it."""
    key = _loop_of(caller) if _is_followed(caller) else None
    result: Iterator[Any] | None = None if key is None else operator_called(PREFIX + "rows")(x, caller, key)
    return result


def _is_followed(caller: FrameType) -> bool:
    """Return whether a frame is that of a function of the user's in a trace whose loops roll."""
    trace = current()
    return trace is not None and trace.root.rolls and isinstance(caller.f_globals, Namespace)


def _loop_of(caller: FrameType) -> LoopKey | None:
    """Return the ``for`` statement that goes over what a function returns to its caller; None if there is none that may roll."""
    start = loops_in(caller.f_code).get(caller.f_lasti)
    return None if start is None else (caller.f_code, start)
