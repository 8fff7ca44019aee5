"""Locks by key."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class KeyedLocks:
    """One lock per key in use: one thread at a time works on a key, and may enter it again; other keys are independent."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: dict[Hashable, tuple[threading.RLock, int]] = {}

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of ``key`` in the block."""
        with self._lock:
            lock, users = self._inside.get(key) or (threading.RLock(), 0)
            self._inside[key] = (lock, users + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                lock, users = self._inside.pop(key)
                if users > 1:
                    self._inside[key] = (lock, users - 1)
