"""Work done by threads of its own while the caller makes more of it.

Threads start when there is more work than those before them do at a time, and end with the ``Ahead``. What a piece of work raises
is left out: who needs its result does it again, and meets the error there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

Work = Callable[[str], bytes]


class Ahead:
    """Up to ``helpers`` threads that do ``work`` on texts. Used by one thread; ``done`` is complete after ``finish``."""

    def __init__(self, work: Work, helpers: int) -> None:
        self.work = work
        self.helpers = helpers
        self.done: dict[str, bytes] = {}
        self._dropped = False
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, text: str) -> None:
        """Have a text worked on as soon as a thread has time."""
        self._waiting.put(text)
        if len(self._threads) < self.helpers:
            thread = threading.Thread(target=self._help, name="pullback-compile")
            self._threads.append(thread)
            thread.start()

    def finish(self) -> None:
        """Do what nobody has begun, and wait for the rest."""
        with suppress(Empty):
            while (text := self._waiting.get_nowait()) is not None:
                self._do(text)
        self._end()

    def drop(self) -> None:
        """Leave what nobody has begun, and wait for the rest."""
        self._dropped = True
        self._end()

    def _end(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _help(self) -> None:
        while (text := self._waiting.get()) is not None:
            if not self._dropped:
                self._do(text)

    def _do(self, text: str) -> None:
        try:
            self.done[text] = self.work(text)
        except Exception:
            return
