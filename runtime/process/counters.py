"""Counts of kernels and templates used, and the seconds that each stage took, for this process and within one compile.

Every requested kernel is counted exactly once: as a hit (already loaded, or its bytes still in memory), a disk hit (loaded
from the cache folder) or a compile. All functions may be called from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from types import MappingProxyType
from typing import Literal, get_args

from pullback.ir.core.records import dataclass
from pullback.runtime.process.fork import hold_over_fork

Event = Literal["hits", "disk_hits", "compiles", "templates_built", "templates_loaded", "templates_instantiated"]
EVENTS: tuple[Event, ...] = get_args(Event)


@dataclass(frozen=True, kw_only=True)
class Counters:
    """One reading; `seconds` and `runs` are by stage. A later reading minus an earlier one gives the counts between them."""

    hits: int = 0
    disk_hits: int = 0
    compiles: int = 0
    templates_built: int = 0
    templates_loaded: int = 0
    templates_instantiated: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    runs: Mapping[str, int] = field(default_factory=dict)

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            **{event: getattr(self, event) - getattr(earlier, event) for event in EVENTS},
            seconds=MappingProxyType({k: v - earlier.seconds.get(k, 0.0) for k, v in self.seconds.items()}),
            runs=MappingProxyType({k: v - earlier.runs.get(k, 0) for k, v in self.runs.items()}),
        )


class Recorder:
    """Counts and times of the process, of one compile, or of one function."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        with self.lock:
            self._events: dict[Event, int] = dict.fromkeys(EVENTS, 0)
            self._seconds: dict[str, float] = {}
            self._runs: dict[str, int] = {}

    def count(self, event: Event, amount: int = 1) -> None:
        with self.lock:
            self._events[event] += amount

    def add_time(self, stage: str, seconds: float, runs: int = 1) -> None:
        with self.lock:
            self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
            self._runs[stage] = self._runs.get(stage, 0) + runs

    def add(self, counters: Counters) -> None:
        for event in EVENTS:
            self.count(event, getattr(counters, event))
        for stage, seconds in counters.seconds.items():
            self.add_time(stage, seconds, counters.runs[stage])

    def snapshot(self) -> Counters:
        with self.lock:
            seconds, runs = MappingProxyType(dict(self._seconds)), MappingProxyType(dict(self._runs))
            return Counters(**self._events, seconds=seconds, runs=runs)


_recorder = Recorder()
_own = threading.local()
hold_over_fork(_recorder.lock)


_within = threading.local()


def innermost() -> Recorder | None:
    """Return the recorder that this thread's work counts for, besides the recorder of the process."""
    recorder: Recorder | None = getattr(_within, "recorder", None)
    return recorder


@contextmanager
def within(recorder: Recorder | None) -> Iterator[None]:
    """Count this thread's work in the block for ``recorder`` too, and for no other recorder except the one of the process."""
    before = innermost()
    _within.recorder = recorder
    try:
        yield
    finally:
        _within.recorder = before


def count(event: Event, amount: int = 1) -> None:
    """Add `amount` kernels or templates to one of the counts."""
    for recorder in _active_recorders():
        recorder.count(event, amount)


def _active_recorders() -> list[Recorder]:
    """Return the recorders that this thread's work counts for."""
    if getattr(_own, "is_on", False):
        return []
    inside = innermost()
    return [_recorder] if inside is None else [_recorder, inside]


@contextmanager
def own() -> Iterator[None]:
    """Count nothing in the block: what this thread compiles or loads there is code of the package itself, not a user's kernel."""
    before = getattr(_own, "is_on", False)
    _own.is_on = True
    try:
        yield
    finally:
        _own.is_on = before


class Clock:
    """A stopwatch, started at construction."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def seconds(self) -> float:
        """Return the elapsed seconds, without paused blocks."""
        return time.perf_counter() - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time of the block."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._start += time.perf_counter() - start


_stages: dict[int, list[str]] = {}
"""The stages that each thread is in, outermost first."""
on_stage: Callable[[str, float], None] | None = None
"""Called with each stage that ends and its seconds."""


def stage_of(thread: int) -> str:
    """Return the innermost stage that a thread is in; empty if it is in none."""
    stages = _stages.get(thread)
    return stages[-1] if stages else ""


@contextmanager
def timed(stage: str) -> Iterator[Clock]:
    """Add the wall time of the block to `stage`, also if the block raises."""
    thread, clock = threading.get_ident(), Clock()
    stages = _stages.setdefault(thread, [])
    stages.append(stage)
    try:
        yield clock
    finally:
        stages.pop()
        if not stages:
            _stages.pop(thread, None)
        seconds = clock.seconds()
        recorders = _active_recorders()
        for recorder in recorders:
            recorder.add_time(stage, seconds)
        if on_stage is not None and recorders:
            on_stage(stage, seconds)


def snapshot() -> Counters:
    """Return the counts so far."""
    return _recorder.snapshot()


def reset() -> None:
    """Set every count and time to zero."""
    _recorder.reset()
