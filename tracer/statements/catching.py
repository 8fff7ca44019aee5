"""Errors in ``try`` statements, whose ``except`` clauses would not see those of compiled code."""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pullback.ir import Loc
from pullback.tracer.arrays.concretize import decides, static
from pullback.tracer.arrays.frame import Frame, current, frame_of
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.clauses import is_caught
from pullback.tracer.user_code.errors import Restart, TraceError, user_loc
from pullback.tracer.user_code.ownership import is_users


class Undecided(Restart):
    """Signals that values decide whether an error is raised in a ``try`` statement, which is to be traced for each outcome."""


class InSide(Restart):
    """Signals the same in a side of a branch in a ``try`` statement, which is to be traced for each side of the branch."""

    def __init__(self, outcomes: Outcomes) -> None:
        super().__init__()
        self.outcomes = outcomes


class Outcomes:
    """The outcomes of tests for which a ``try`` statement is traced in a ``frame``: whether each error, in order, is not raised
    (``known``), with the lines of the tests. ``undecided``: the first test whose outcome is not known, once it is met, and
    ``line``, its line. ``sides``: the frames of the sides of branches that are traced in the statement."""

    def __init__(self, frame: Frame, known: Sequence[tuple[bool, Loc | None]]) -> None:
        self.frame, self.known = frame, known
        self.count = 0
        self.undecided: Any = None
        self.line: Loc | None = None
        self.sides: list[Frame] = []

    def of(self, holds: Any) -> bool:
        """Return the outcome of a traced test. Raises Undecided if it is not known, InSide in a side of a branch, and TraceError
        in another region, and if the tests of the statement are not those of its first trace."""
        if self.undecided is not None:
            raise Undecided
        for frame in frame_of().outward:
            if frame is self.frame:
                break
            if frame not in self.sides:
                raise TraceError("values decide in a loop whether an error is raised that a try statement around it handles")
        if frame_of() is not self.frame:
            raise InSide(self)
        if self.count == len(self.known):
            self.undecided, self.line = holds, user_loc()
            raise Undecided
        result, line = self.known[self.count]
        if line != user_loc():
            raise TraceError("a try statement where values decide whether an error is raised has other tests in another trace")
        self.count += 1
        return result

    @contextmanager
    def side(self, frame: Frame) -> Iterator[None]:
        """A context in which a side of a branch is traced in a frame."""
        self.sides.append(frame)
        try:
            yield
        finally:
            self.sides.pop()


def outcome(holds: Any) -> bool | None:
    """Return whether a traced test is known to hold on the path that is traced, of the tests for errors in a ``try`` statement;
    None outside of one, where a check may raise the error. Raises TraceError in a function whose syntax is not rewritten."""
    if not is_caught(frame_of().root.ends_act):
        return None
    if decides(holds):
        return static(holds, bool, "an error in a try statement", "test for it before")
    statements = frame_of().root.try_statements
    if not statements:
        raise TraceError("an error is raised under a traced value inside a try statement; test for it before")
    return statements[-1].of(holds)


def raise_here(error: Exception) -> None:
    """Raise an exception as a ``raise`` statement of the user's does."""
    error.is_by_statement = True  # type: ignore[attr-defined]
    raise error


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
    """Do nothing at the start of an ``except`` clause, unless it handles an error of the trace alone: that is raised again, and
    that of a variable that values bind, and which a branch or loop could not give a value, becomes a TraceError."""
    error, trace = sys.exc_info()[1], current()
    if isinstance(error, Restart):
        raise error
    if trace is None or not isinstance(error, NameError):
        return
    match = _UNBOUND_VARIABLE.match(str(error))
    if match is not None and match[1] in trace.root.partly_bound:
        raise TraceError(f"values decide whether the variable {match[1]!r} is bound, which an except clause handles")
