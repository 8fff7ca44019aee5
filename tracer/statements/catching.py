"""Errors of the user's own ``raise`` statements, and ``except`` clauses, which would not see those of compiled code."""

from __future__ import annotations

import dis

from pullback.tracer.user_code.clauses import is_caught
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users


def refuse_caught() -> None:
    """Raise TraceError if a function that is running is in a ``try`` statement with an ``except`` or ``finally`` clause: it would
    not see an error of compiled code."""
    if is_caught():
        raise TraceError("an error is raised under a traced value inside a try statement; test for it before")


def raised_by_statement(error: Exception) -> bool:
    """Return whether a ``raise`` or ``assert`` statement of the user's raised an exception, or an operation of a list."""
    if getattr(error, "is_by_statement", False):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    code = last.tb_frame.f_code
    return is_users(code) and dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
