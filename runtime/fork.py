"""Locks that are whole again in a forked child.

A fork waits for such a lock, so no child starts with one that a thread it does not have is holding. Of locks
taken inside each other the innermost is registered first, since a fork calls the last registered first.
"""

from __future__ import annotations

import os
from typing import Protocol


class _Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


def hold_over_fork(lock: _Lock) -> None:
    """Registers `lock` for the life of the process."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
