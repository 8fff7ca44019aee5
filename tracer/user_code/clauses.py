"""The ``except`` and ``finally`` clauses around the code that runs."""

from __future__ import annotations

import dis
import functools
import itertools
import sys
from types import CodeType

from pullback.tracer.user_code.ownership import is_users


def is_caught(by_finally: bool = True) -> bool:
    """Return whether a function of the trace that is running is in a ``try`` statement with an ``except`` clause, or
    (``by_finally``) with a ``finally`` clause: it would not see an error of compiled code."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "pullback.tracer.trace":
        if is_users(frame.f_code) and frame.f_code.co_exceptiontable and _is_caught(frame.f_code, frame.f_lasti, by_finally):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


@functools.lru_cache(maxsize=4096)
def _is_caught(code: CodeType, at: int, by_finally: bool) -> bool:
    """Return whether a clause handles an exception of the instruction at an offset. A ``with`` statement does not count."""
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    names = {i.offset: i.opname for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")}
    following = dict(zip(names, [*list(names.values())[1:], ""], strict=True))
    while True:
        target = next((h.target for h in handlers if h.start <= at < h.end), None)
        if target is None:
            return False
        if names.get(target) == "PUSH_EXC_INFO" and following[target] != "WITH_EXCEPT_START":
            if by_finally or _is_except(names, target):
                return True
        at = target


def _is_except(names: dict[int, str], target: int) -> bool:
    """Return whether the code of a clause, from its first instruction on, is of ``except``: it matches or drops the exception."""
    opnames = [name for offset, name in names.items() if offset > target]
    loads = itertools.takewhile(lambda name: name.startswith(("LOAD_", "PUSH_NULL", "BUILD_TUPLE")), opnames)
    return opnames[len(list(loads))] in ("CHECK_EXC_MATCH", "CHECK_EG_MATCH") or opnames[0] == "POP_TOP"
