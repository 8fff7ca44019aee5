"""A lock for each key that somebody works on."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class KeyedLocks:
    """Work on one key is done by one thread at a time, work on others meanwhile; a thread may enter a key again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: dict[Hashable, tuple[threading.RLock, int]] = {}

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Waits until no other thread holds ``key``."""
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
