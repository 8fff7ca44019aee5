"""Errors at the user's own line: ``TraceError``, and the currently running source position of the user's code.

This is a position in the user's own code: never in NumPy, SciPy or this package, and in another library only if the stack has
no other frames.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any

from pullback.ir import NOWHERE, Loc
from pullback.tracer.user_code.ownership import is_hidden_file, is_users, user_frame
from pullback.tracer.user_code.source import Site, shown, site_at, site_of

_noted: ContextVar[list[TraceError] | None] = ContextVar("pullback_noted", default=None)


class TraceError(Exception):
    """Report a program that cannot be compiled: the cause at ``file``:``line``, and what to write instead.

    An unknown part is empty (``line``: 0).

    Attributes
    ----------
    message : str
        "cause; what to write instead", or only the cause.
    hint : str
        The second part of the message.
    file : str
        The file of the user's line.
    line : int
        Its line, from 1.
    source : str
        The source line, with carets below the expression if its position is known.
    origins : tuple of str
        A description of each traced value in that expression, and of where it was defined.

    See Also
    --------
    jit : Compiles functions.
    VerificationError : A compiled call that differs from plain Python.

    Examples
    --------
    >>> @pb.jit
    ... def positive(x):
    ...     return x[x > 0].tobytes()
    >>> try:
    ...     positive(np.array([1.0, -2.0]))
    ... except pb.TraceError as error:
    ...     print(error.line > 0)
    True
    """

    __module__ = "pullback"
    is_effect = False
    wants_traced = False
    wants_counts = False
    wants_rolled = False
    wants_guards = False
    wants_lists = False
    wants_checks = False
    wants_keys = False
    is_of_lazy = False

    def __init__(self, message: str, loc: Loc | None = None, *, site: Site | None = None) -> None:
        super().__init__(message)
        position = site or (user_site() if loc is None else site_at(loc.file, loc.line))
        self.file, self.line, self.message = position.file, position.line, message
        self.hint = message.partition("; ")[2]
        self.source = position.marked
        self.origins = tuple(position.origins())
        noted = _noted.get()
        if noted is not None:
            noted.append(self)

    def __str__(self) -> str:
        what = self.message.partition("; ")[0]
        lines = [f"{shown(self.file)}:{self.line}: {what}" if self.file else what]
        lines += [f"    {text}" for text in self.source.splitlines()]
        lines += [f"  {text}" for text in (*self.origins, self.hint) if text]
        return "\n".join(lines)


class Restart(BaseException):
    """Signals that a statement around the current one is to be traced once more; it is no error of the user's."""


class NotKnown(Exception):
    """A traced value that cannot be computed from the arguments of the call; the message says why."""


@contextmanager
def recording_errors(errors: list[TraceError]) -> Iterator[None]:
    """Append every TraceError created in this context to ``errors``, so that none is lost where it is caught."""
    token = _noted.set(errors)
    try:
        yield
    finally:
        _noted.reset(token)


def stop_recording_errors() -> None:
    """Stop recording errors in this context."""
    _noted.set(None)


def user_site() -> Site:
    """Return the currently running position in the user's source, with its expression."""
    frame = user_frame(sys._getframe(1))
    return Site() if frame is None else site_of(frame)


def refusal(what: str | Callable[[Site], str], instead: str | Callable[[Site], str]) -> TraceError:
    """Return a TraceError whose text may depend on the currently running source."""
    site = user_site()
    parts = [part(site) if callable(part) else part for part in (what, instead)]
    return TraceError("; ".join(parts), site=site)


def user_loc() -> Loc:
    """Return the currently running location in the user's source; ``NOWHERE`` if there is none."""
    frame = user_frame(sys._getframe(1))
    return NOWHERE if frame is None else Loc(frame.f_code.co_filename, frame.f_lineno)


def library_call() -> tuple[str, str] | None:
    """Return the module and name of the NumPy or SciPy function that the user's code is calling, or None."""
    frame: FrameType | None = sys._getframe(1)
    called = None
    while frame is not None and is_hidden_file(frame.f_code.co_filename):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("numpy", "scipy")):
            called = module, _public(frame)
        frame = frame.f_back
    return called


def foreign_caller() -> str | None:
    """Return the function of another library that the user's code is calling, as "polars.Series.__mul__"; None if there is
    none."""
    frame: FrameType | None = sys._getframe(1)
    called = None
    while frame is not None and not is_users(frame.f_code):
        library = frame.f_globals.get("__name__", "").partition(".")[0]
        if library not in _OWN and library not in sys.stdlib_module_names:
            called = f"{library}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return None if frame is None else called


_OWN = ("numpy", "scipy", "pullback", "")


def foreign_error(error: BaseException, holds: Callable[[Any], bool]) -> TraceError | None:
    """Return the TraceError for an error that another library raised when called with traced values; None if there were none.

    ``holds`` returns whether a value is traced.
    """
    raised: tuple[str, Loc] | None = None
    loc, traceback = NOWHERE, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        library = frame.f_globals.get("__name__", "").partition(".")[0]
        if is_users(frame.f_code):
            loc, raised = Loc(frame.f_code.co_filename, traceback.tb_lineno), None
        elif raised is None and library not in _OWN and library not in sys.stdlib_module_names:
            values = [v for v in frame.f_locals.values() if not isinstance(v, type)]
            if any(map(holds, values)):
                raised = f"{library}.{frame.f_code.co_qualname}", loc
        traceback = traceback.tb_next
    return None if raised is None else TraceError(foreign_call(*raised[0].split(".", 1)), raised[1])


def foreign_call(library: str, name: str = "") -> str:
    """Return the error text for a call of another library's function with a traced value."""
    what = f"{library}.{name}" if name else f"a function of {library}"
    return (
        f"{what} is called with a traced value, which {library} cannot take; "
        f"write NumPy's function here, or call it outside the traced function and pass {INSTEAD.get(library, 'the array')}"
    )


INSTEAD = {
    "torch": "its result.numpy()", "jax": "np.asarray of its result", "jaxlib": "np.asarray of its result",
    "tensorflow": "its result.numpy()", "pandas": "its result.to_numpy()", "xarray": "its result.to_numpy()",
    "polars": "its result.to_numpy()", "dask": "its result.compute()",
}  # fmt: skip
"""Code that converts a library's result to an array."""


def _public(frame: FrameType) -> str:
    """Return the public name of a running library function: for a method, its class, and its own name if that is public."""
    name = frame.f_code.co_qualname
    owner, _, method = name.rpartition(".")
    if not owner or owner.endswith("<locals>") or "self" not in frame.f_locals:
        return name
    kind = type(frame.f_locals["self"]).__name__
    return kind if method.startswith("_") else f"{kind}.{method}"


def error_loc(error: BaseException) -> Loc:
    """Return the innermost location in the user's code at which an error was raised."""
    loc, traceback = NOWHERE, error.__traceback__
    while traceback is not None:
        code: Any = traceback.tb_frame.f_code
        if not is_hidden_file(code.co_filename):
            loc = Loc(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return loc
