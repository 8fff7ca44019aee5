"""Errors at the user's own line: ``TraceError`` and the place in the user's source that is running.

A place is in the user's own code: never in NumPy, SciPy or this package, and in another library only where nothing else is on
the stack.
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
    """A program that cannot be traced: at ``file``:``line``, what was met and what to write instead.

    ``message`` is "what was met; what to write instead", or only the first of the two, and ``hint`` the second part. ``source``
    is the line of the source, with carets below the expression where they are known; ``origins`` says, for each traced value in
    that expression, what it is and where it was made. A part that is not known is empty (``line``: 0).
    """

    __module__ = "pullback"
    is_effect = False
    wants_traced = False
    wants_counts = False

    def __init__(self, message: str, loc: Loc | None = None, *, site: Site | None = None) -> None:
        super().__init__(message)
        found = site or (here() if loc is None else site_at(loc.file, loc.line))
        self.file, self.line, self.message = found.file, found.line, message
        self.hint = message.partition("; ")[2]
        self.source = found.marked
        self.origins = tuple(found.origins())
        noted = _noted.get()
        if noted is not None:
            noted.append(self)

    def __str__(self) -> str:
        what = self.message.partition("; ")[0]
        lines = [f"{shown(self.file)}:{self.line}: {what}" if self.file else what]
        lines += [f"    {text}" for text in self.source.splitlines()]
        lines += [f"  {text}" for text in (*self.origins, self.hint) if text]
        return "\n".join(lines)


class NotKnown(Exception):
    """A traced value that the arguments of the call do not settle; the message says why."""


@contextmanager
def noting(errors: list[TraceError]) -> Iterator[None]:
    """Appends every TraceError made in this context to ``errors``, so that none is lost where it is caught."""
    token = _noted.set(errors)
    try:
        yield
    finally:
        _noted.reset(token)


def not_noting() -> None:
    """Ends ``noting`` in this context."""
    _noted.set(None)


def here() -> Site:
    """The place in the user's source that is running, with its expression."""
    frame = user_frame(sys._getframe(1))
    return Site() if frame is None else site_of(frame)


def refusal(what: str | Callable[[Site], str], instead: str | Callable[[Site], str]) -> TraceError:
    """A TraceError whose words may depend on the source at the place that is running."""
    site = here()
    words = [part(site) if callable(part) else part for part in (what, instead)]
    return TraceError("; ".join(words), site=site)


def user_loc() -> Loc:
    """The place in the user's source that is running; ``NOWHERE`` if there is none."""
    frame = user_frame(sys._getframe(1))
    return NOWHERE if frame is None else Loc(frame.f_code.co_filename, frame.f_lineno)


def library_call() -> tuple[str, str] | None:
    """The module and name of the function of NumPy or SciPy that the user's code is calling, or None."""
    frame: FrameType | None = sys._getframe(1)
    found = None
    while frame is not None and is_hidden_file(frame.f_code.co_filename):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(("numpy", "scipy")):
            found = module, _public(frame)
        frame = frame.f_back
    return found


def foreign_caller() -> str | None:
    """The function of another library that the user's code is calling, as "polars.Series.__mul__"; None if it is none."""
    frame: FrameType | None = sys._getframe(1)
    found = None
    while frame is not None and not is_users(frame.f_code):
        library = frame.f_globals.get("__name__", "").partition(".")[0]
        if library not in _OWN and library not in sys.stdlib_module_names:
            found = f"{library}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return None if frame is None else found


_OWN = ("numpy", "scipy", "pullback", "")


def foreign_error(error: BaseException, holds: Callable[[Any], bool]) -> TraceError | None:
    """The TraceError for an error that another library raised, when it was called with what ``holds`` says is traced."""
    found: tuple[str, Loc] | None = None
    loc, traceback = NOWHERE, error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        library = frame.f_globals.get("__name__", "").partition(".")[0]
        if is_users(frame.f_code):
            loc, found = Loc(frame.f_code.co_filename, traceback.tb_lineno), None
        elif found is None and library not in _OWN and library not in sys.stdlib_module_names:
            values = [v for v in frame.f_locals.values() if not isinstance(v, type)]
            if any(map(holds, values)):
                found = f"{library}.{frame.f_code.co_qualname}", loc
        traceback = traceback.tb_next
    return None if found is None else TraceError(foreign_call(*found[0].split(".", 1)), found[1])


def foreign_call(library: str, name: str = "") -> str:
    """What is said of a call of another library's function with a traced value."""
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
"""What gives the array of a library's result."""


def _public(frame: FrameType) -> str:
    """The name of a library's function that runs; of a method the class of its object, and its own if it is public."""
    name = frame.f_code.co_qualname
    owner, _, method = name.rpartition(".")
    if not owner or owner.endswith("<locals>") or "self" not in frame.f_locals:
        return name
    kind = type(frame.f_locals["self"]).__name__
    return kind if method.startswith("_") else f"{kind}.{method}"


def error_loc(error: BaseException) -> Loc:
    """The user's place closest to where an error was raised."""
    found, traceback = NOWHERE, error.__traceback__
    while traceback is not None:
        code: Any = traceback.tb_frame.f_code
        if not is_hidden_file(code.co_filename):
            found = Loc(code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
