"""What is asked of a traced array and takes its value: known in the trace, found out by a guard, or refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np

from pullback.ir import Value
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays import promotion
from pullback.tracer.arrays.frame import Operand, frame_of
from pullback.tracer.user_code.advice import GUARDS, branch, instead_of_branch
from pullback.tracer.user_code.errors import NotKnown, TraceError, foreign_call, foreign_caller, here, library_call, refusal
from pullback.tracer.user_code.source import Site

Known = tuple[Any, frozenset[Value]]
"""A value known in the trace, and the captured inputs that it came from."""


class Concrete(Operand, Protocol):
    """What is read of a traced array whose value is asked for."""

    @property
    def known(self) -> Known | None:
        """The value of a scalar computed from captured ones alone, or of such a small array; None if it is not known."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape."""

    @property
    def is_cell(self) -> bool:
        """Whether it is an array of rank 0, and not a scalar."""


Words = str | Callable[[Site], str]


def static(x: Concrete, ask: Callable[[Any], Any], what: Words, instead: Words) -> Any:
    """What ``ask`` says of a value known in the trace; the captured inputs it came from become guards.

    Of any other value it raises what NumPy raises for every value of its type, else TraceError.
    """
    found = known_value(x)
    if found is not None:
        return ask(pinned(x, found))
    try:
        ask(any_value(x))
    except Exception as error:
        if what is branch:
            error.add_note(f"  in a traced function: {instead_of_branch(here()).removesuffix(GUARDS)}")
        raise error.with_traceback(None) from None
    outcomes = frame_of(x).root.outcomes
    if outcomes.follows:
        try:
            return outcomes.settle(x, frame_of(x), ask)
        except NotKnown as reason:
            return refuse(x, partial(_said, what, f", {reason}", "; "), partial(_said, instead, "", GUARDS))
    return refuse(x, what, instead)


def refuse(x: Concrete, what: Words, instead: Words) -> NoReturn:
    """Raises TraceError."""
    library = library_call()
    if library is not None:
        error = TraceError(promotion.not_supported(promotion.public_name(*library)))
    elif (caller := foreign_caller()) is not None:
        error = TraceError(foreign_call(*caller.split(".", 1)))
    else:
        error = refusal(what, instead)
    error.origins = error.origins or (x.described("it", (error.file, error.line)),)
    error.wants_traced = True
    raise error


def not_made(what: str, instead: str) -> TraceError:
    """The error for a write into an array that is not traced."""
    error = TraceError(f"{what}; {instead}")
    error.wants_traced = True
    return error


def refused(name: str) -> Callable[..., NoReturn]:
    """A method of arrays that traced ones have not: it can be asked for, as by hasattr, but not be called."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        instead = _INSTEAD_OF.get(name, "return the array, and use it after the call")
        raise TraceError(f"the method or attribute .{name} of a traced array is not supported; {instead}")

    return refused


_INSTEAD_OF = {
    "tolist": "index the array, or loop over it: its elements are traced scalars",
    "resize": "write x = np.resize(x, shape)",
    "flags": "write on: arrays made in the function can be written",
}


def _said(words: Words, more: str, less: str, site: Site) -> str:
    """Words on a place, with more at their end and without a part."""
    return (words(site) if callable(words) else words).replace(less, "") + more


def any_value(x: Concrete) -> Any:
    """A value of the type and shape that a traced array stands for."""
    if x.weak:
        return {"bool": False, "int": 0, "float": 0.0, "complex": 0j}[x.weak]
    return np.broadcast_to(x.dtype.type(0), x.shape) if x.type.shape or x.is_cell else x.dtype.type(0)


def pinned(x: Concrete, known: Known) -> Any:
    value, sources = known
    root = frame_of(x).root
    for source in sources:
        root.names.pin(source)
    return value


def known_value(x: Concrete) -> Known | None:
    """The value of a scalar known in the trace, and the captured inputs it came from; None if it is not known."""
    if x.literal is None:
        return x.known
    return x.literal if x.weak else lifted(x.dtype.type, x.literal), frozenset()
