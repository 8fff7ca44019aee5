"""Pause Python's garbage collector while a program is built.

Passes create many small objects, nearly all of which live until the end. The collector would traverse them repeatedly, a tenth
of the time of a long program, and free nothing. At the end the new objects are collected once, without older ones, which the
collector would otherwise often traverse too, in the first call of a program.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pullback.runtime.process.fork import hold_over_fork


class _Collector:
    """The number of threads that build programs, and whether the collector was enabled before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth, self.was_enabled = 0, False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Collect nothing in the block; after the last thread's block, collect the youngest generation and restore the
        collector."""
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                self.was_enabled = gc.isenabled()
                gc.disable()
        try:
            yield
        finally:
            with self.lock:
                self.depth -= 1
                ends = not self.depth and self.was_enabled
                if ends:
                    gc.enable()
            if ends:
                gc.collect(0)


_collector = _Collector()
hold_over_fork(_collector.lock)
paused = _collector.paused
