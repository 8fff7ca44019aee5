"""Python's garbage collector stands still while a program is built.

What passes make is many small objects that nearly all live until the end. The collector would walk them again and again, a tenth
of the time of a long program, and find nothing. What was made is collected once, at the end, without what was there before: left
to itself, the collector would often take that along, in the first call of a program.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pullback.runtime.process.fork import hold_over_fork


class _Collector:
    """How many threads build programs, and whether the collector ran before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth, self.was_enabled = 0, False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within, nothing is collected; after the last of all threads what is new is, and the rest as before."""
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
