"""Errors of the user's own ``raise`` statements, and ``except`` clauses, which would not see those of compiled code."""

from __future__ import annotations

import dis
import re
import sys

from pullback.tracer.arrays.frame import current
from pullback.tracer.syntax.table import operator
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


_UNBOUND_VARIABLE = re.compile(r"cannot access (?:local|free) variable '(\w+)' where it is not associated with a value")
"""CPython's message of an error for a variable without a value."""


@operator("handled")
def handled() -> None:
    """Raise TraceError at the start of an ``except`` clause that handles an error of the trace alone: that of a variable that
    values bind, and which a branch or loop could not give a value."""
    error, trace = sys.exc_info()[1], current()
    if trace is None or not isinstance(error, NameError):
        return
    match = _UNBOUND_VARIABLE.match(str(error))
    if match is not None and match[1] in trace.root.partly_bound:
        raise TraceError(f"values decide whether the variable {match[1]!r} is bound, which an except clause handles")
