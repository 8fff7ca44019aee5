"""``try`` statements in which values decide whether an error is raised: a branch on the test for the error.

    try:                              %holds = lt %k, 10
        y = x[k]                      y = switch %holds
    except IndexError:      ->            (the statement where the index is out of bounds: y = 0.0)
        y = 0.0                           (the statement where it is not: y = x[k])

The statement is traced up to the first such test (``Outcomes`` in ``tracer/statements/catching.py``), and undone; what it
computed decides the branch. Both sides trace all of the statement, one with the error raised by Python and one without it, up to
the next test: the clauses run as Python runs them.

An iteration of a loop in such a statement is traced in the same way. Where the error is raised, it leaves the loop, as ``break``
does, and the error is raised after the loop, on the path on which that happened.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir import Loc
from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import flatten
from pullback.tracer.statements.branches import branch
from pullback.tracer.statements.catching import Outcomes, raise_here, raised_by_statement
from pullback.tracer.statements.completions import NEXT, RAISE, Completion, is_code, possible_codes
from pullback.tracer.statements.first_iterations import FirstIteration
from pullback.tracer.statements.variables import UNBOUND
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.errors import TraceError

MOST_TESTS = 8
"""Most tests for errors on a path through a ``try`` statement: each traces the rest of the statement twice."""


@operator("try")
def try_(
    statement: Callable[[], Any], names: Sequence[str], live: Sequence[str] = (), filled: Sequence[str] = ()
) -> Completion | None:  # fmt: skip
    """Run a ``try`` or ``with`` statement, and return how it ended. ``statement``: the function of the statement; ``names``: the
    variables that it binds; ``live`` and ``filled``: as of ``branch``."""
    root = frame_of().root
    if not root.rolls or root.outcomes.follows:
        ended: Completion | None = statement()
        return ended
    return _Statement(run=statement, block=statement, names=names, live=live, filled=filled).traced(())


def iteration(
    body: Callable[..., Any], names: Sequence[str], temporary: Sequence[str], live: Sequence[str], *item: Any
) -> Any:  # fmt: skip
    """Run the body of a loop and return how it ended: in a ``try`` statement also by an error. The parameters are those of
    ``LoopStatement``."""
    root = frame_of().root
    if not root.try_statements or not root.rolls or root.outcomes.follows:
        return body(*item)

    def run() -> Completion | None:
        try:
            ended: Completion | None = body(*item)
        except TraceError:
            raise
        except Exception as error:
            if not raised_by_statement(error):
                raise
            return _raising(error)
        return ended

    filled = [name for name in names if name not in temporary and name not in live]
    return _Statement(run=run, block=body, names=names, live=live, filled=filled).traced(())


def _raising(error: Exception) -> Completion:
    """Return the end of an iteration by an error."""
    raised = frame_of().root.raised_in_loops
    if error.__cause__ is not None and _is_traced(vars(error.__cause__), error.__cause__.args):
        raise TraceError("an error in a loop in a try statement, whose cause has traced values")
    value = (error.args, vars(error)) if _is_traced(error.args, _attributes(error)) else UNBOUND
    key = type(error), repr(error.args)
    same = (k for k, x in enumerate(raised) if value is UNBOUND and _is_plain(x) and (type(x), repr(x.args)) == key)
    code = next(same, len(raised)) if _is_plain(error) else len(raised)
    if code == len(raised):
        raised.append(error)
    return Completion(code=RAISE + code, value=value)


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return the attributes of an exception that the user's code set."""
    return {name: x for name, x in vars(error).items() if name != "is_by_statement"}


def _is_plain(error: Exception) -> bool:
    """Return whether an exception is described by its class and its arguments, which are texts and numbers."""
    return not error.__cause__ and not _attributes(error) and all(type(x) in (str, int, float) for x in error.args)


def _is_traced(*trees: Any) -> bool:
    """Return whether there are traced arrays in trees."""
    return any(isinstance(x, TracedArray) for x in flatten(trees)[0])


def raised_after(ended: Completion | None) -> Completion | None:
    """Raise the error by which an iteration of a loop ended, on the path on which one did. Return how the loop ended on the
    others."""
    codes = [code for code in sorted(possible_codes(ended)) if code >= RAISE]
    if ended is None or not codes:
        return ended
    root = frame_of().root
    for code in codes:
        if ended.is_decided or not root.try_statements[-1].of(as_traced(np.logical_not(is_code(ended, code)))):
            error = copy.copy(root.raised_in_loops[code - RAISE])
            if ended.value is not UNBOUND and _is_traced(error.args, _attributes(error)):
                error.args, attributes = ended.value
                vars(error).update(attributes)
            raise_here(error)
    possible = ended.possible - {*codes}
    if possible == {NEXT}:
        return None
    return replace(ended, possible=possible, code=min(possible) if len(possible) == 1 else ended.code)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Statement:
    """A statement that ``run`` runs, in which values may decide whether errors are raised. ``block``: the function that binds the
    variables ``names``; ``live`` and ``filled``: as of ``branch``."""

    run: Callable[[], Completion | None]
    block: Callable[..., Any]
    names: Sequence[str]
    live: Sequence[str] = ()
    filled: Sequence[str] = ()

    def traced(self, known: tuple[tuple[bool, Loc | None], ...]) -> Completion | None:
        """Run the statement with the outcomes of its first tests, and of others in the sides of a branch. ``known``: the
        outcomes, with the lines of the tests."""
        frame = frame_of()
        statements = frame.root.try_statements
        outcomes = Outcomes(frame, known)
        start = FirstIteration(self.block, self.names, (), _nothing)
        statements.append(outcomes)
        ended: Completion | None = None
        try:
            ended = self.run()
        except BaseException:
            if outcomes.undecided is None:
                raise
        finally:
            statements.pop()
        if outcomes.undecided is None:
            return ended
        if len(known) == MOST_TESTS:
            raise TraceError(f"values decide more than {MOST_TESTS} times in a try statement whether an error is raised")
        start.restore()
        then, orelse = self.side((*known, (True, outcomes.line))), self.side((*known, (False, outcomes.line)))
        return branch(outcomes.undecided, then, orelse, self.names, [self.block], self.live, self.filled)

    def side(self, known: tuple[tuple[bool, Loc | None], ...]) -> Callable[[], Completion | None]:
        """Return the function that runs the statement on one side of a branch, which reaches what the block reaches."""
        block = self.block

        def run() -> Completion | None:
            assert block is not None
            return self.traced(known)

        return run


def _nothing() -> None:
    """Do nothing, as the sequence of a statement that is no loop."""
