"""Errors under traced values: checks that raise the user's exception at run time, with the values of the call.

    if r > 0.5:                                        %t = le %r, 0.5
        raise ValueError(f"r = {r:.3f}")      ->       check %t, %r {error="ValueError", message="r = {r:.3f}", raises=0}

The operands of a check after its first are the values that the exception shows. Compiled code does not have them
(``ir/passes/strip_values.py``): where a check fails, the interpreter runs the trace up to it, and the exception is made of the
values that it meets there (``tracer/failures.py``).
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.types import I64
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, emit, full
from pullback.tracer.arrays.mixed_numbers import result_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import flatten, map_statics, real_class
from pullback.tracer.failures import ErrorTemplate
from pullback.tracer.statements.texts import is_deferred, source_of
from pullback.tracer.syntax.table import operator
from pullback.tracer.trace import returned_static
from pullback.tracer.transforms.region import Region, emit_regions
from pullback.tracer.user_code.check_messages import Handled
from pullback.tracer.user_code.clauses import is_caught
from pullback.tracer.user_code.control_flow import note_statement
from pullback.tracer.user_code.errors import TraceError

_KEYWORDS = ("name", "path", "obj")
"""Attributes of Python's exceptions that only keywords set."""


class Deferred(Exception):
    """An exception whose class, of the user's, is called at run time."""

    def __init__(self, kind: type[BaseException], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__(*args)
        self.kind, self.kwargs = kind, kwargs


def _is_caught() -> bool:
    return is_caught(frame_of().root.ends_act)


@operator("error")
def error(kind: Any, *args: Any, **kwargs: Any) -> Any:
    """Return ``kind(*args, **kwargs)``, which is raised: later, if ``kind`` is a class of the user's, values are traced, and no
    clause may handle it."""
    is_class = isinstance(kind, type) and issubclass(kind, Exception)
    if is_class and not _is_library(kind) and is_deferred(args, kwargs) and not _is_caught():
        return Deferred(kind, args, kwargs)
    try:
        return kind(*args, **kwargs)
    except TypeError as other:
        if not callable(kind):  # as NotImplemented, which is raised by mistake
            frame_of().root.raised_again.append(other)
        raise


@operator("raise again")
def note_raised_again() -> None:
    """Note that a ``raise`` statement raises the exception that is being handled."""
    error = sys.exc_info()[1]
    if error is not None:
        frame_of().root.raised_again.append(error)


def _is_library(kind: type) -> bool:
    return getattr(builtins, kind.__name__, None) is kind or kind is np.linalg.LinAlgError


def _has_one_text(error: BaseException) -> bool:
    """Return whether an exception is one of Python or np.linalg with one text that depends on nothing."""
    is_plain = not error.__cause__ and not error.__suppress_context__ and not getattr(error, "__dict__", None)
    is_plain = is_plain and not any(getattr(error, name, None) is not None for name in _KEYWORDS)
    return is_plain and _is_library(type(error)) and all(type(a) is str and a for a in error.args) and len(error.args) < 2


def _with_types(x: Any) -> Any:
    """Return what an exception shows, with the types of numbers that are Python's on one path."""
    if isinstance(x, TracedArray):
        return result_of(x)
    if type(x) in (tuple, list):
        return type(x)(map(_with_types, x))
    return {key: _with_types(item) for key, item in x.items()} if type(x) is dict else x


class Raised:
    """An exception as a check raises it: its ``template``, the ``leaves`` that fill it, and its parts for compiled code."""

    def __init__(self, error: BaseException) -> None:
        self.leaves: list[TracedArray] = []
        self.template = None if _has_one_text(error) else self.templated(error)
        kind = error.kind if isinstance(error, Deferred) else type(error)
        bases = (k for k in kind.__mro__ if _is_library(k))
        self.error = next(bases).__name__
        self.message = source_of(error.args[0]) if len(error.args) == 1 else ", ".join(map(source_of, error.args))

    def templated(self, error: BaseException) -> ErrorTemplate:
        """Return the template of an exception, whose leaves are appended to the own ones."""
        if isinstance(error, StopIteration):
            raise TraceError("StopIteration under a traced value, which ends the iterator of a loop; raise another exception")
        is_called = isinstance(error, Deferred)
        kind, attributes = (error.kind, {}) if isinstance(error, Deferred) else (type(error), dict(vars(error)))
        attributes |= {n: x for n in _KEYWORDS if n not in attributes and (x := getattr(error, n, None)) is not None}
        names = frame_of().root.names
        shown = (error.args, error.kwargs if isinstance(error, Deferred) else {}, {} if is_called else attributes)
        leaves, tree = flatten(_with_types(shown))
        tree = map_statics(tree, lambda value: returned_static(value, names), real_class)
        arrays = list(map(as_traced, leaves))
        self.leaves += arrays
        cause = None if error.__cause__ is None else self.templated(error.__cause__)
        return ErrorTemplate(
            kind=kind, is_called=is_called, tree=tree, weak=tuple(x.weak for x in arrays),
            is_array=tuple(bool(x.shape or x.is_cell) for x in arrays), cause=cause,
            suppresses_context=error.__suppress_context__,
        )  # fmt: skip


def check(holds: Any, error: Exception, region: Region | None = None, where: TracedArray | None = None) -> None:
    """Emit a check that raises ``error`` where ``holds`` is false. ``region``: the block that raises it, which ``where`` says
    whether it runs."""
    if region is None:
        raised, values = Raised(error), []
        values = raised.leaves
    else:
        with region.inner.active():
            raised = Raised(error)
        assert where is not None
        values = _values(region, raised.leaves, where)
    frame = frame_of()
    note_statement(frame.root.statements, "check", f"checked at run time, raises {raised.error}")
    message = raised.message if region is not None else Handled(raised.message, lambda: error)
    params: dict[str, Any] = {"error": raised.error, "message": message}
    if raised.template is not None:
        params["raises"] = len(frame.root.raised)
        frame.root.raised.append(raised.template)
    emit("check", as_traced(holds != 0), *values, **params)


def _values(region: Region, leaves: Sequence[TracedArray], where: TracedArray) -> list[TracedArray]:
    """Return the values that a block computes for its exception, as values of the frame around it."""
    instructions = region.inner.builder.instructions
    if all(i.op.effect == "pure" and not i.regions for i in instructions):
        if not leaves:
            return []
        return region.close(leaves).inline()
    other = Region()
    with other.inner.active():
        zeros = [full(x.shape, 0, x.dtype) for x in leaves]
    index = emit("cast", as_traced(where != 0), dtype=I64)
    return emit_regions("switch", {}, [index], [(other, zeros), (region, leaves)])
