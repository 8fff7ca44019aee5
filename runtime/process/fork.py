"""Locks that are free in a forked child, and work that a fork waits for.

A fork acquires these locks first, so that no child starts with a lock held by a thread that it does not have. Of nested locks,
the innermost is registered first, since a fork acquires the last registered first.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from pullback.ir.core import lazy_imports as later


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


_locks: list[_Lock] = [later.lock]
_taken: dict[int, list[_Lock]] = {}


def hold_over_fork(lock: _Lock) -> None:
    """Register `lock` to be held during forks, for the life of the process."""
    _locks.append(lock)


class Work:
    """Work that any number of threads do at once and that a fork waits for: imports, traces, compiles."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        # Acquired directly: an exception raised by a signal handler in ``Condition.__enter__`` would leave it held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._depths: dict[int, int] = {}

    @contextmanager
    def underway(self) -> Iterator[None]:
        """Mark this thread as working; it may also fork or enter again."""
        me = threading.get_ident()
        with self._lock:
            self._depths[me] = self._depths.get(me, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._depths[me] -= 1
                if not self._depths[me]:
                    del self._depths[me]
                    self._changed.notify_all()

    def before_fork(self) -> int:
        """Wait for the other threads to finish, then keep them out. A thread that forks during its own work is not waited for.

        Returns this thread's nesting depth in its own work.
        """
        self._changed.acquire()
        depth = self._depths.pop(threading.get_ident(), 0)
        self._changed.notify_all()
        while self._depths:
            self._changed.wait()
        return depth

    def after_fork(self, depth: int, *, in_child: bool) -> None:
        """Undo ``before_fork``."""
        if in_child:
            self._start()
        if depth:
            self._depths[threading.get_ident()] = depth
        if not in_child:
            self._changed.release()


work = Work()
_depths: dict[int, int] = {}


def _before() -> None:
    me = threading.get_ident()
    _depths[me] = work.before_fork()
    taken = _taken[me] = _locks[::-1]
    for lock in taken:
        lock.acquire()


def _after(in_child: bool) -> None:
    me = threading.get_ident()
    for lock in reversed(_taken.pop(me)):
        lock.release()
    work.after_fork(_depths.pop(me), in_child=in_child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=lambda: _after(in_child=False), after_in_child=lambda: _after(in_child=True)
    )
