"""The programs of a signature whose function branches on traced values: one for each path through the branches.

A program checks the outcomes that its trace followed. Where one differs, that outcome and those before it say which other program
may serve the call.
"""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir import Loc
from pullback.programs.compile_record import Record
from pullback.programs.entry import MISS, Entry, GuardFailed
from pullback.programs.out import Out
from pullback.tracer import Branch, Trace
from pullback.tracer.user_code.source import shown

MOST_PATHS = 64
MANY_PATHS = 16


class RetraceWarning(UserWarning):
    """A function is traced again and again, for each value of an argument or each outcome of a branch."""


class Paths:
    """Entries of one signature, the one used last first. It is called as an entry is."""

    def __init__(self, entry: Entry) -> None:
        self.entries: tuple[Entry, ...] = (entry,)
        self._lock = threading.Lock()
        self._has_warned = False

    @property
    def trace(self) -> Trace:
        """The trace of the entry used last."""
        return self.entries[0].trace

    @property
    def last(self) -> Entry:
        """The entry used last."""
        return self.entries[0]

    @property
    def tries(self) -> int:
        """As of an entry, of the one used last."""
        return self.entries[0].tries

    @property
    def record(self) -> Record:
        """How that entry was made."""
        return self.entries[0].record

    def __call__(self, leaves: list[Any]) -> Any:
        return self._through(lambda entry: entry(leaves))

    def serve(self, leaves: list[Any], out: Out | None = None) -> Any:
        """As an entry's."""
        return self._through(lambda entry: entry.serve(leaves, out))

    def _through(self, run: Callable[[Entry], Any]) -> Any:
        """What the entry gives whose path the call takes."""
        left = list(self.entries)
        entry = left[0]
        while True:
            try:
                result = run(entry)
            except GuardFailed as failed:
                left = [e for e in left if may_follow(e.trace, entry.trace, failed.number)]
            else:
                if result is not MISS:
                    if entry is not self.entries[0]:
                        self._put_first(entry)
                    return result
                left.remove(entry)
            if not left:
                return MISS
            entry = max(left, key=lambda e: len(e.trace.branches))

    def changed(self) -> list[str]:
        """As of an entry, of all of them."""
        return [name for entry in self.entries for name in entry.changed()]

    def unstable(self) -> list[str]:
        """As of an entry, of the one used last."""
        return self.entries[0].unstable()

    def add(self, entry: Entry, title: str) -> None:
        """Keep another path; the one that was not used for longest goes if there are too many."""
        self._put_first(entry)
        if len(self.entries) > MANY_PATHS and not self._has_warned:
            self._has_warned = True
            _warn(title, [e.trace.branches for e in self.entries])

    def _put_first(self, entry: Entry) -> None:
        with self._lock:
            self.entries = (entry, *(e for e in self.entries if e is not entry))[:MOST_PATHS]


def may_follow(trace: Trace, failed: Trace, number: int) -> bool:
    """Whether a trace may be the one of a call for which guard ``number`` of another failed."""
    common = shared(trace.branches, failed.branches)
    return common == number if failed.in_order else common <= number


def shared(a: Sequence[Branch], b: Sequence[Branch]) -> int:
    """How many outcomes two paths have in common from the start."""
    return next((k for k, (x, y) in enumerate(zip(a, b)) if x.key != y.key), min(len(a), len(b)))


def _warn(title: str, paths: Sequence[Sequence[Branch]]) -> None:
    """Warn at the line where most paths part."""
    parts: Counter[tuple[Loc, str]] = Counter()
    for path in paths[1:]:
        at = shared(paths[0], path)
        if at < min(len(path), len(paths[0])):
            parts[path[at].loc, path[at].text] += 1
    (loc, text), _ = parts.most_common(1)[0] if parts else ((paths[0][-1].loc, paths[0][-1].text), 0)
    message = (
        f"{title} is traced anew for each outcome of {text} ({shown(loc.file)}:{loc.line}), more than {MANY_PATHS} so far; write "
        "np.where, pb.cond or pb.while_loop, which are compiled once for all outcomes"
    )
    warnings.warn_explicit(message, RetraceWarning, loc.file or "pullback", loc.line)
