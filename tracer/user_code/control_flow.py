"""How the branches and loops of a function were compiled, for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from pullback.ir import Loc
from pullback.ir.core.records import dataclass
from pullback.tracer.user_code.errors import TraceError, user_loc

Kind = Literal["loop", "branch", "check", "function"]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A branch, a loop or a check of a traced function, or a function in which these are not known.

    ``how``: how it was compiled.
    """

    kind: Kind
    how: str
    loc: Loc


Record = list[Statement]
"""The statements of a trace in the order in which they were traced; one that is traced several times is in it as often."""


def note_statement(record: Record, kind: Kind, how: str, loc: Loc | None = None) -> None:
    """Add a statement at ``loc``, by default the user's current line."""
    record.append(Statement(kind=kind, how=how, loc=loc or user_loc()))


@contextmanager
def dropped_if_refused(record: Record) -> Iterator[None]:
    """A context whose statements are dropped again if a TraceError ends it."""
    count = len(record)
    try:
        yield
    except TraceError:
        del record[count:]
        raise


def in_source_order(record: Sequence[Statement]) -> tuple[Statement, ...]:
    """Return the different statements of a trace, by file and line."""
    return tuple(sorted(dict.fromkeys(record), key=lambda s: (s.loc.file, s.loc.line)))
