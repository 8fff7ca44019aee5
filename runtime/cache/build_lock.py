"""One build at a time among the processes that share a cache folder.

A process that builds an entry holds the lock of a file in the folder; others wait, and find the entry. Where files cannot be
locked, or a process holds a lock for longer than ``LONGEST_WAIT``, the entry is built again: a lock saves time, and nothing
depends on it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LONGEST_WAIT = 300.0
"""The seconds for which a process waits for another one: the largest programs take about a minute to build."""
INTERVAL = 0.01
"""The seconds between attempts to take a lock, a fraction of the time of the shortest build."""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a file, which exists for that time only. The value is whether it is held."""
    descriptor = _taken(path)
    if descriptor is None:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _taken(path: Path) -> int | None:
    """Return the descriptor of a file whose lock is held; None if it cannot be."""
    try:
        locks: Any = importlib.import_module("fcntl")
    except ImportError:
        return None
    until = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < until:
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            locks.flock(descriptor, locks.LOCK_EX | locks.LOCK_NB)
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                return descriptor
        except BlockingIOError:
            time.sleep(INTERVAL)
        except FileNotFoundError:
            pass  # the process that held it has removed the file: the next attempt creates another one
        except OSError:
            os.close(descriptor)
            return None
        os.close(descriptor)
    return None
