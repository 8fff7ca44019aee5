"""Errors of the user's own ``raise`` statements, and ``except`` clauses, which would not see those of compiled code."""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType

from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users


def refuse_caught() -> None:
    """Raise TraceError if a function that is running is in a ``try`` statement with an ``except`` or ``finally`` clause: it would
    not see an error of compiled code."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "pullback.tracer.trace":
        if is_users(frame.f_code) and _is_caught(frame.f_code, frame.f_lasti):
            raise TraceError("an error is raised under a traced value inside a try statement; test for it before")
        frame = frame.f_back  # type: ignore[assignment]


@functools.lru_cache(maxsize=4096)
def _is_caught(code: CodeType, at: int) -> bool:
    """Return whether a clause handles an exception of the instruction at an offset. A ``with`` statement does not count."""
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    names = {i.offset: i.opname for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")}
    following = dict(zip(names, [*list(names.values())[1:], ""], strict=True))
    while True:
        target = next((h.target for h in handlers if h.start <= at < h.end), None)
        if target is None:
            return False
        if names.get(target) == "PUSH_EXC_INFO" and following[target] != "WITH_EXCEPT_START":
            return True
        at = target


def raised_by_statement(error: Exception) -> bool:
    """Return whether a ``raise`` statement of the user's raised an exception."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None:
        return False
    code = last.tb_frame.f_code
    return is_users(code) and dis.opname[code.co_code[last.tb_lasti]] == "RAISE_VARARGS"
