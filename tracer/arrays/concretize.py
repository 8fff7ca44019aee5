"""Uses of a traced array that need its value: it is static, established by a guard, or refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np

from pullback.ir import Value
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.frame import Operand, frame_of
from pullback.tracer.user_code.advice import GUARDS, describe_branch, instead_of_branch
from pullback.tracer.user_code.errors import NotKnown, TraceError, foreign_call, foreign_caller, library_call, refusal, user_site
from pullback.tracer.user_code.source import Site

Known = tuple[Any, frozenset[Value]]
"""A value available during tracing, and the captured inputs from which it was computed."""


class Concrete(Operand, Protocol):
    """The properties of a traced array that are read where its value is needed."""

    @property
    def known(self) -> Known | None:
        """The value of a scalar or small array computed from captured ones alone; None if it is not available."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def is_cell(self) -> bool:
        """Whether it is an array of rank 0, and not a scalar."""


Text = str | Callable[[Site], str]


def static(x: Concrete, convert: Callable[[Any], Any], what: Text, instead: Text) -> Any:
    """Return ``convert`` of a value available during tracing; its captured inputs become guards.

    For any other value it raises what NumPy raises for every value of its type, follows the branch with a guard, or raises
    TraceError.
    """
    known = known_value(x)
    if known is not None:
        return convert(pinned(x, known))
    try:
        convert(any_value(x))
    except Exception as error:
        if what is describe_branch:
            error.add_note(f"  in a traced function: {instead_of_branch(user_site()).removesuffix(GUARDS)}")
        raise error.with_traceback(None) from None
    outcomes = frame_of(x).root.outcomes
    is_choice = convert is bool or x.dtype.kind in "biu"
    if outcomes.follows or (is_choice and outcomes.follows_choices):
        try:
            return outcomes.settle(x, frame_of(x), convert)
        except NotKnown as reason:
            return refuse(x, partial(_message, what, f", {reason}", "; "), partial(_message, instead, "", GUARDS))
    return refuse(x, what, instead, is_choice, convert is operator.index)


def refuse(x: Concrete, what: Text, instead: Text, is_choice: bool = False, is_index: bool = False) -> NoReturn:
    """Raise TraceError for a use of ``x`` that needs its value. ``is_choice``: it needs a truth or a whole number;
    ``is_index``: it may be an index of a list, or a number of its elements, which a list of rows of arrays takes."""
    library = library_call()
    if library is not None:
        error = TraceError(promotion.not_supported(promotion.public_name(*library)))
    elif (caller := foreign_caller()) is not None:
        error = TraceError(foreign_call(*caller.split(".", 1)))
    else:
        error = refusal(what, instead)
    error.origins = error.origins or (x.described("it", (error.file, error.line)),)
    error.wants_traced, error.wants_guards = True, is_choice
    root = frame_of(x).root
    error.wants_lists = is_index and root.has_lists and root.grows is None
    if is_index and root.rolls and (root.grows or not root.has_lists):  # values decide an element of one from outside
        root.wanted_inputs |= root.plain_lists
        root.wanted_whole |= root.plain_lists
    raise error


def not_traced(what: str, instead: str) -> TraceError:
    """Return the error for a write into an array that is not traced."""
    error = TraceError(f"{what}; {instead}")
    error.wants_traced = True
    return error


def refused(name: str) -> Callable[..., NoReturn]:
    """Return a method that raises when it is called, so that it exists for ``hasattr``."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        instead = _INSTEAD_OF.get(name, "return the array, and use it after the call")
        raise TraceError(f"the method or attribute .{name} of a traced array is not supported; {instead}")

    return refused


_INSTEAD_OF = {
    "resize": "write x = np.resize(x, shape)",
    "flags": "write on: arrays made in the function can be written",
}


def _message(text: Text, suffix: str, removed: str, site: Site) -> str:
    """Return a message for ``site`` with ``suffix`` appended and ``removed`` taken out."""
    return (text(site) if callable(text) else text).replace(removed, "") + suffix


def any_value(x: Concrete) -> Any:
    """Return some value of the type and shape of a traced array."""
    if x.weak:
        return {"bool": False, "int": 0, "float": 0.0, "complex": 0j}[x.weak]
    return np.broadcast_to(x.dtype.type(0), x.shape) if x.type.shape or x.is_cell else x.dtype.type(0)


def pinned(x: Concrete, known: Known) -> Any:
    """Return a known value, and make the inputs from which it was computed static."""
    value, sources = known
    root = frame_of(x).root
    for source in sources:
        root.names.pin(source)
    return value


def known_value(x: Concrete) -> Known | None:
    """Return the value of a scalar available during tracing, with its captured inputs; None if it is not available."""
    if x.literal is None:
        return x.known
    return x.literal if x.weak else lifted(x.dtype.type, x.literal), frozenset()


def decides(x: Concrete) -> bool:
    """Return whether the value of a scalar is available during tracing, and decides branches, bounds and indices of lists."""
    known = known_value(x)
    return known is not None and (not known[1] or frame_of(x).root.names.decides(known))
