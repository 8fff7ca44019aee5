"""What processes found in a cache folder: a line of counts for each, which it adds to a file there when it ends.

The file is for ``pullback cache info`` alone: losing it, or lines of it, loses nothing else. Processes that end without their
exit handlers, as workers of ``multiprocessing`` do, leave no line.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from pullback.runtime.cache.entry_format import FLAGS, Damaged, open_entry
from pullback.runtime.process import counters

FILE = "uses"
MOST_BYTES = 1 << 16
STAGES = ("trace", "load program", "compile")
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | FLAGS


@dataclass(kw_only=True)
class Uses:
    """The sums over some processes, the first of which ended at the Unix time ``since``."""

    processes: int = 0
    since: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def note_at_exit(folder: Path) -> None:
    """Have this process add its line to a folder when it ends."""
    process = os.getpid()
    atexit.register(lambda: note(folder) if os.getpid() == process else None)


def note(folder: Path) -> None:
    """Add this process's line, if it needed a program or a kernel; past so many bytes the file begins anew."""
    now = counters.snapshot()
    found = {event: getattr(now, event) for event in counters.EVENTS if getattr(now, event)}
    if not found:
        return
    seconds = {stage: round(now.seconds[stage], 6) for stage in STAGES if stage in now.seconds}
    line = json.dumps({"at": int(time.time()), "counts": found, "seconds": seconds}) + "\n"
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
    """What the file of a folder says; lines that cannot be read are left out."""
    found = Uses()
    with contextlib.suppress(OSError, Damaged), open_entry(folder / FILE) as (file, _):
        for line in file.read(2 * MOST_BYTES).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                data = json.loads(line)
                at, counts, seconds = float(data["at"]), data["counts"], data["seconds"]
                counts = {event: found.counts.get(event, 0) + int(counts.get(event, 0)) for event in counters.EVENTS}
                seconds = {stage: found.seconds.get(stage, 0.0) + float(seconds.get(stage, 0.0)) for stage in STAGES}
                found.counts, found.seconds = counts, seconds
                found.since = at if not found.processes else min(found.since, at)
                found.processes += 1
    return found
