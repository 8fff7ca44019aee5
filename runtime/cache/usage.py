"""Cache statistics of past processes: at its end each process appends a line of counts to a file in the cache folder.

The file is read by ``pullback cache info`` alone: losing it, or lines of it, loses nothing else. Processes that end without
their exit handlers, as workers of ``multiprocessing`` do, write no line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from dataclasses import field
from pathlib import Path

from pullback.ir.core.records import dataclass
from pullback.runtime.cache.entry_format import FLAGS, Damaged, open_entry
from pullback.runtime.process import counters

FILE = "uses"
MOST_BYTES = 1 << 16
"""The size in bytes beyond which the file is started anew."""
STAGES = ("trace", "load program", "compile")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | FLAGS


@dataclass(kw_only=True)
class Uses:
    """The sums over the recorded processes, the first of which ended at the Unix time ``since``."""

    processes: int = 0
    since: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def note_at_exit(folder: Path) -> None:
    """Register an exit handler that appends this process's line in ``folder``."""
    process = os.getpid()
    atexit.register(lambda: note(folder) if os.getpid() == process else None)


def note(folder: Path) -> None:
    """Append this process's line, if it needed a program or a kernel; a file of more than ``MOST_BYTES`` is replaced."""
    now = counters.snapshot()
    counts = {event: getattr(now, event) for event in counters.EVENTS if getattr(now, event)}
    if not counts:
        return
    seconds = {stage: round(now.seconds[stage], 6) for stage in STAGES if stage in now.seconds}
    line = json.dumps({"at": int(time.time()), "counts": counts, "seconds": seconds}) + "\n"
    path = folder / FILE
    with contextlib.suppress(OSError):
        if path.exists() and path.lstat().st_size > MOST_BYTES:
            path.unlink()
        file = os.open(path, _APPEND, 0o600)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def uses_of(folder: Path) -> Uses:
    """Return the sums of the lines in a folder's file; unreadable lines are left out."""
    uses = Uses()
    with contextlib.suppress(OSError, Damaged), open_entry(folder / FILE) as (file, _):
        for line in file.read(2 * MOST_BYTES).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                data = json.loads(line)
                at, counts, seconds = float(data["at"]), data["counts"], data["seconds"]
                counts = {event: uses.counts.get(event, 0) + int(counts.get(event, 0)) for event in counters.EVENTS}
                seconds = {stage: uses.seconds.get(stage, 0.0) + float(seconds.get(stage, 0.0)) for stage in STAGES}
                uses.counts, uses.seconds = counts, seconds
                uses.since = at if not uses.processes else min(uses.since, at)
                uses.processes += 1
    return uses
