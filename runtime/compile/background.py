"""Background work on texts: threads that work while the caller adds more texts, or does something else.

``BackgroundWorkers`` starts a thread whenever there is more work than its threads do at a time, and ends them with ``finish``.
A piece of work that fails is left out: the code that needs its result repeats it and meets the error there. An exception
raised by a signal handler reaches the caller, and leaves no thread blocked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

from pullback.runtime.process.fork import hold_over_fork, work

Work = Callable[[str], bytes]

SWITCH_INTERVAL = 0.0002
"""The interpreter's switch interval in seconds while threads compile. A compilation is about two dozen calls, after each of
which its thread waits for the GIL; with the usual 5 ms it would mostly wait."""


class _SwitchInterval:
    """The interpreter's switch interval while some threads compile; the previous one is restored at the end unless other code
    has changed it meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.depth, self.before, self.own = 0, SWITCH_INTERVAL, SWITCH_INTERVAL

    @contextmanager
    def often(self) -> Iterator[None]:
        with self.lock:
            self.depth += 1
            if self.depth == 1:
                self.before = sys.getswitchinterval()
                sys.setswitchinterval(min(self.before, SWITCH_INTERVAL))
                self.own = sys.getswitchinterval()
        try:
            yield
        finally:
            with self.lock:
                self.depth -= 1
                if not self.depth and sys.getswitchinterval() == self.own:
                    sys.setswitchinterval(self.before)


switching = _SwitchInterval()
hold_over_fork(switching.lock)


class BackgroundWorkers:
    """Up to ``helpers`` threads that call ``work`` on texts; it raises ``failure`` if it fails. Used by one thread; ``done``
    is complete after ``finish``."""

    def __init__(self, work: Work, helpers: int, failure: type[Exception]) -> None:
        self.work = work
        self.failure = failure
        self.helpers = helpers
        self.done: dict[str, bytes] = {}
        self._dropped = False
        self._waiting: SimpleQueue[str | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def add(self, text: str) -> None:
        """Queue a text, and start a thread for it if fewer than ``helpers`` run."""
        self._waiting.put(text)
        if len(self._threads) < self.helpers:
            thread = threading.Thread(target=self._help, name="pullback-compile")
            self._threads.append(thread)
            thread.start()

    def finish(self) -> None:
        """Work on the texts that no thread has begun, and wait for the threads."""
        with suppress(Empty):
            while (text := self._waiting.get_nowait()) is not None:
                with suppress(self.failure):
                    self.done[text] = self.work(text)
        self._end()

    def drop(self) -> None:
        """Skip the texts that no thread has begun, and wait for the threads."""
        self._dropped = True
        self._end()

    def _end(self) -> None:
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            if thread.is_alive():  # an exception during ``start`` leaves one that never runs, or that meets None when it does
                thread.join()

    def _help(self) -> None:
        with switching.often():
            while (text := self._waiting.get()) is not None:
                if not self._dropped:
                    with suppress(Exception):
                        self.done[text] = self.work(text)


class BackgroundTask:
    """One piece of work, done by its own thread. A fork waits for it, if the caller of the constructor holds
    ``work.underway``."""

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
        """Return the result of the work once it is done; None if it raised."""
        self._thread.join()
        return self._done
