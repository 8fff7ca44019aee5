"""Locks that are whole again in a forked child, and work that a fork waits for.

A fork waits for such a lock, so no child starts with one that a thread it does not have is holding. Of locks
taken inside each other the innermost is registered first, since a fork takes the last registered first.
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
    """Registers `lock` for the life of the process."""
    _locks.append(lock)


class Work:
    """Work that any number of threads do at once and that a fork waits for: imports, traces, compiles."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        # Taken itself, not by the condition: what a signal's handler raises amid the latter's ``__enter__`` leaves it held.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._depths: dict[int, int] = {}

    @contextmanager
    def underway(self) -> Iterator[None]:
        """This thread works; it may also fork or enter again."""
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
        """Waits for the other threads, then keeps them out. A thread that forks amid its own work is waited for by none.

        Returns how deep this thread is in its own work.
        """
        self._changed.acquire()
        depth = self._depths.pop(threading.get_ident(), 0)
        self._changed.notify_all()
        while self._depths:
            self._changed.wait()
        return depth

    def after_fork(self, depth: int, *, in_child: bool) -> None:
        """Undoes ``before_fork``."""
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
