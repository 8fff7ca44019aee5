"""Counts of kernels met and of the seconds each stage took, for this process.

Every kernel asked for is counted exactly once, as a hit (already loaded, or its bytes still in memory), a
disk hit (loaded from the cache folder) or a compile. All functions may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from pullback.runtime.fork import hold_over_fork

Event = Literal["hits", "disk_hits", "compiles"]


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One reading; `seconds` and `runs` are by stage. Later minus earlier is what lies between."""

    hits: int = 0
    disk_hits: int = 0
    compiles: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            hits=self.hits - earlier.hits,
            disk_hits=self.disk_hits - earlier.disk_hits,
            compiles=self.compiles - earlier.compiles,
            seconds=MappingProxyType({k: v - earlier.seconds.get(k, 0.0) for k, v in self.seconds.items()}),
            runs=MappingProxyType({k: v - earlier.runs.get(k, 0) for k, v in self.runs.items()}),
        )


class Recorder:
    """The tally behind the functions of this module."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        with self.lock:
            self._events: dict[Event, int] = {"hits": 0, "disk_hits": 0, "compiles": 0}
            self._seconds: dict[str, float] = {}
            self._runs: dict[str, int] = {}

    def count(self, event: Event, number: int = 1) -> None:
        with self.lock:
            self._events[event] += number

    def add_time(self, stage: str, seconds: float) -> None:
        with self.lock:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
            self._runs[stage] = self._runs.get(stage, 0) + 1

    def snapshot(self) -> Counters:
        with self.lock:
            return Counters(
                hits=self._events["hits"],
                disk_hits=self._events["disk_hits"],
                compiles=self._events["compiles"],
                seconds=MappingProxyType(dict(self._seconds)),
                runs=MappingProxyType(dict(self._runs)),
            )


_recorder = Recorder()
hold_over_fork(_recorder.lock)


def count(event: Event, number: int = 1) -> None:
    """Adds `number` kernels to one of the three counts."""
    _recorder.count(event, number)


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """How long it has run."""
        return time.perf_counter() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time of the block does not count."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - start


@contextmanager
def timed(stage: str) -> Iterator[Clock]:
    """Adds the wall time of the block to `stage`, also when the block raises."""
    clock = Clock()
    try:
        yield clock
    finally:
        _recorder.add_time(stage, clock.seconds())


def snapshot() -> Counters:
    """The counts so far."""
    return _recorder.snapshot()


def reset() -> None:
    """Sets every count and time to zero."""
    _recorder.reset()
