"""The programs of a signature whose function branches on traced values: one for each path through the branches.

A program checks the branch outcomes that its trace followed. If one differs, that outcome and those before it select the other
programs that may serve the call.
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
from pullback.tracer import Branch, Trace, TraceError
from pullback.tracer.user_code.source import shown

MOST_PATHS = 64
"""Largest number of paths kept for one signature."""
MANY_PATHS = 16
"""Number of paths beyond which a warning is issued."""


class RetraceWarning(UserWarning):
    """Warn that a function is traced repeatedly, for each value of an argument or each outcome of a branch.

    The message names the argument or the line, and what to write instead.

    See Also
    --------
    jit : Its options ``guards`` and ``dynamic``.

    Examples
    --------
    >>> import warnings
    >>> f = pb.jit(lambda x, n: np.sum(x[:n]))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("ignore")
    ...     warnings.simplefilter("always", pb.RetraceWarning)
    ...     for n in range(20):
    ...         _ = f(np.ones(20), n)
    >>> [w.category.__name__ for w in caught]
    ['RetraceWarning']
    """


class Paths:
    """The entries of one signature, the most recently used first. It is called like an entry."""

    def __init__(self, entry: Entry) -> None:
        self.entries: tuple[Entry, ...] = (entry,)
        self._lock = threading.Lock()
        self._has_warned = False

    @property
    def trace(self) -> Trace:
        """The trace of the most recently used entry."""
        return self.entries[0].trace

    @property
    def last(self) -> Entry:
        """The most recently used entry."""
        return self.entries[0]

    @property
    def tries(self) -> int:
        """``tries`` of the most recently used entry."""
        return self.entries[0].tries

    @property
    def record(self) -> Record:
        """The compile record of the most recently used entry."""
        return self.entries[0].record

    def __call__(self, leaves: list[Any]) -> Any:
        return self._run_path(lambda entry: entry(leaves))

    def serve(self, leaves: list[Any], out: Out | None = None) -> Any:
        """Call ``serve`` of the entry whose path the call takes."""
        return self._run_path(lambda entry: entry.serve(leaves, out))

    def _run_path(self, run: Callable[[Entry], Any]) -> Any:
        """Run the entry whose path the call takes and return its result; MISS if there is none."""
        candidates = list(self.entries)
        entry = candidates[0]
        while True:
            try:
                result = run(entry)
            except GuardFailed as failed:
                candidates = [e for e in candidates if may_follow(e.trace, entry.trace, failed.index)]
            else:
                if result is not MISS:
                    if entry is not self.entries[0]:
                        self._put_first(entry)
                    return result
                candidates.remove(entry)
            if not candidates:
                return MISS
            entry = max(candidates, key=lambda e: len(e.trace.branches))

    def changed(self) -> list[str]:
        """Return ``changed`` of all entries."""
        return [name for entry in self.entries for name in entry.changed()]

    def unstable(self) -> list[str]:
        """Return ``unstable`` of the most recently used entry."""
        return self.entries[0].unstable()

    def add(self, entry: Entry, title: str) -> None:
        """Add another path; the least recently used one is dropped if there are too many."""
        if entry.trace.followed and len(self.entries) >= MOST_PATHS:
            raise _too_many(title, [e.trace for e in self.entries])
        self._put_first(entry)
        if len(self.entries) > MANY_PATHS and not self._has_warned:
            self._has_warned = True
            _warn(title, [e.trace.branches for e in self.entries])

    def _put_first(self, entry: Entry) -> None:
        with self._lock:
            self.entries = (entry, *(e for e in self.entries if e is not entry))[:MOST_PATHS]


def may_follow(trace: Trace, failed: Trace, index: int) -> bool:
    """Return whether a trace may serve a call for which guard ``index`` of another trace failed."""
    common = common_length(trace.branches, failed.branches)
    return common == index if failed.in_order else common <= index


def common_length(a: Sequence[Branch], b: Sequence[Branch]) -> int:
    """Return the length of the common prefix of two paths."""
    return next((k for k, (x, y) in enumerate(zip(a, b)) if x.key != y.key), min(len(a), len(b)))


_warned: set[tuple[str, Loc]] = set()


def warn_followed(title: str, trace: Trace) -> None:
    """Warn, once for a function and a line, that branches were followed which could not be compiled."""
    if not trace.followed or not trace.branches:
        return
    first = trace.branches[0]
    if (title, first.loc) not in _warned:
        _warned.add((title, first.loc))
        message = (
            f"{title} is traced anew for each outcome of {first.text} ({shown(first.loc.file)}:{first.loc.line}), whose paths "
            f"are no single program: {trace.followed}; pb.jit(guards=True) does so without this warning, guards=False never"
        )
        warnings.warn_explicit(message, RetraceWarning, first.loc.file or "pullback", first.loc.line)


def _too_many(title: str, traces: Sequence[Trace]) -> TraceError:
    """Return the error for a function that was followed, without a demand for it, along too many paths."""
    loc, text = _split([trace.branches for trace in traces])
    return TraceError(
        f"{title} has more than {MOST_PATHS} outcomes of {text}, whose paths cannot be one program: {traces[0].followed}; write "
        "np.where, pb.cond or pb.while_loop; or follow them by pb.jit(guards=True)",
        loc,
    )


def _split(paths: Sequence[Sequence[Branch]]) -> tuple[Loc, str]:
    """Return the line and the text of the branch where most paths diverge."""
    splits: Counter[tuple[Loc, str]] = Counter()
    for path in paths[1:]:
        at = common_length(paths[0], path)
        if at < min(len(path), len(paths[0])):
            splits[path[at].loc, path[at].text] += 1
    return splits.most_common(1)[0][0] if splits else (paths[0][-1].loc, paths[0][-1].text)


def _warn(title: str, paths: Sequence[Sequence[Branch]]) -> None:
    """Warn at the line where most paths diverge."""
    loc, text = _split(paths)
    message = (
        f"{title} is traced anew for each outcome of {text} ({shown(loc.file)}:{loc.line}), more than {MANY_PATHS} so far; write "
        "np.where, pb.cond or pb.while_loop, which are compiled once for all outcomes"
    )
    warnings.warn_explicit(message, RetraceWarning, loc.file or "pullback", loc.line)
