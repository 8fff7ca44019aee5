"""Errors at the user's own line: ``TraceError`` and the place in the user's source that is running.

A place is never in NumPy, SciPy or this package: it is the nearest frame of the stack outside them.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import numpy as np

from pullback import ir
from pullback.ir import NOWHERE, Loc


class TraceError(Exception):
    """A program that cannot be traced: at ``file``:``line``, what was met and what to write instead."""

    def __init__(self, message: str, loc: Loc | None = None) -> None:
        place = user_loc() if loc is None else loc
        self.file, self.line, self.message = place.file, place.line, message
        super().__init__(f"{place.file}:{place.line}: {message}" if place else message)


def _folder(path: str | None) -> str:
    return os.path.dirname(os.path.abspath(path or "")) + os.sep


_OURS = (_folder(__file__), _folder(ir.__file__), _folder(sys.modules["pullback"].__file__))
_LIBRARIES = (_folder(np.__file__), os.path.join(os.path.dirname(_folder(np.__file__)[:-1]), "scipy") + os.sep)
_is_hidden: dict[CodeType, bool] = {}


def is_hidden(code: CodeType) -> bool:
    """Whether code belongs to this package, NumPy or SciPy, or to no file."""
    found = _is_hidden.get(code)
    if found is None:
        name = code.co_filename
        internal = name.startswith(("<frozen", "<__array_function__"))
        found = _is_hidden[code] = internal or os.path.abspath(name).startswith((*_OURS, *_LIBRARIES))
    return found


def user_loc() -> Loc:
    """The place in the user's source that is running; ``NOWHERE`` if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_hidden(frame.f_code):
            return Loc(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return NOWHERE


def error_loc(error: BaseException) -> Loc:
    """The user's place closest to where an error was raised."""
    found, traceback = NOWHERE, error.__traceback__
    while traceback is not None:
        if not is_hidden(traceback.tb_frame.f_code):
            found = Loc(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found
