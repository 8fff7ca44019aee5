"""Work done by threads of its own while the caller makes more of it, or does something else.

Threads start when there is more work than those before them do at a time, and end with the ``Ahead``. A piece of work that fails
is left out: who needs its result does it again, and meets the error there. What the handler of a signal raises reaches the
caller, and leaves no thread waiting.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from pullback.runtime.process.fork import hold_over_fork, work

Work = Callable[[str], bytes]

SWITCH = 0.0002
"""Seconds after which a thread that runs Python lets another one do so. A compilation is two dozen calls, after each of which a
thread waits for that; of the usual 5 ms it would mostly wait."""


class _Switching:
    """The interval at which threads switch while some of them compile, and the one before, which is put back at the end unless
    somebody has set another."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth, self.before, self.own = 0, SWITCH, SWITCH

    @contextmanager
    def often(self) -> Iterator[None]:
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                self.before = sys.getswitchinterval()
                sys.setswitchinterval(min(self.before, SWITCH))
                self.own = sys.getswitchinterval()
        try:
            yield
        finally:
            with self.lock:
                self.depth -= 1
                if not self.depth and sys.getswitchinterval() == self.own:
                    sys.setswitchinterval(self.before)


switching = _Switching()
hold_over_fork(switching.lock)


class Ahead:
    """Up to ``helpers`` threads that do ``work`` on texts, which fails with ``failure``. Used by one thread; ``done`` is complete
    after ``finish``."""

    def __init__(self, work: Work, helpers: int, failure: type[Exception]) -> None:
        self.work = work
        self.failure = failure
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
                with suppress(self.failure):
                    self.done[text] = self.work(text)
        self._end()

    def drop(self) -> None:
        """Leave what nobody has begun, and wait for the rest."""
        self._dropped = True
        self._end()

    def _end(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            if thread.is_alive():  # what raises amid ``start`` leaves one that never runs, or that finds None when it does
                thread.join()

    def _help(self) -> None:
        with switching.often():
            while (text := self._waiting.get()) is not None:
                if not self._dropped:
                    with suppress(Exception):
                        self.done[text] = self.work(text)


class Begun:
    """One piece of work, which a thread of its own does. A fork waits for it, if whoever begins it is at work too."""

    def __init__(self, do: Work, text: str) -> None:
        self._done: bytes | None = None
        self._is_underway = threading.Lock()  # not an Event, whose ``wait`` may be left holding what ``set`` needs
        self._is_underway.acquire()
        self._thread = threading.Thread(target=self._run, args=(do, text), name="pullback-compile")
        self._thread.start()
        self._is_underway.acquire()

    def _run(self, do: Work, text: str) -> None:
        with work.underway(), switching.often(), suppress(Exception):
            self._is_underway.release()
            self._done = do(text)

    @property
    def is_done(self) -> bool:
        """Whether the work has ended."""
        return not self._thread.is_alive()

    def result(self) -> bytes | None:
        """What the work gave, as soon as it is done; None if it raised."""
        self._thread.join()
        return self._done
