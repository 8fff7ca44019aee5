"""Errors under traced values inside ``except`` clauses, which would not see them."""

from __future__ import annotations

import sys

from pullback.tracer.arrays.number_types import catches
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users


def refuse_caught() -> None:
    """Raise TraceError if a function that is running has an ``except`` clause: it would not see an error of compiled code."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "pullback.tracer.trace":
        if is_users(frame.f_code) and catches(frame.f_code):
            raise TraceError("an error is raised under a traced value inside a function with an except clause")
        frame = frame.f_back  # type: ignore[assignment]
