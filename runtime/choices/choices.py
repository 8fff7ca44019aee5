"""A choice among candidates that compute the same: measured at its first use, remembered in the kernel cache, or pinned.

It is made once for a key, such as ("gemm", "f64", "512 512 512", "NVIDIA H200"), and is shared by all processes with the same
cache, because candidates may differ in their last bits. ``PULLBACK_CHOICES`` pins candidates: ``gemm=library`` or, for all
subjects, ``ours``; items are separated by commas. ``static`` measures nothing and takes the caller's default. The caller
defines the candidates and how they are measured, and whether that happens at the first use (``choose``) or on request
(``known``, ``measure``).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import field
from typing import Any, Literal

from pullback.ir.core.environment import CHOICES
from pullback.ir.core.records import dataclass
from pullback.runtime.cache.cache import KernelCache, default_cache
from pullback.runtime.cache.cache import key as cache_key
from pullback.runtime.process.fork import hold_over_fork
from pullback.runtime.process.locks import KeyedLocks

VARIABLE = CHOICES.name
STATIC = "static"
LATEST = 4e9
"""The largest Unix time that is accepted from a stored choice; larger ones are clamped to it."""
How = Literal["measured", "remembered", "pinned", "default", "only"]
Measure = Callable[[], float]
"""Returns the seconds that a candidate takes. Raises Unmeasurable if that cannot be measured now."""


class Unmeasurable(Exception):
    """Raised if a candidate cannot be measured here, or not now."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """The key of a choice: its ``subject``, and all details that may decide it: types, sizes, the machine, versions."""

    subject: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join((self.subject, *self.details))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen candidate, how it was chosen, and the measured seconds of each candidate, at the Unix time ``since``."""

    key: Key
    chosen: str
    how: How
    seconds: Mapping[str, float] = field(default_factory=dict)
    since: float = 0.0

    @property
    def why(self) -> str:
        """How the candidate was chosen, and the measured times, as text."""
        times = ", ".join(f"{name} {1e6 * taken:.1f} us" for name, taken in sorted(self.seconds.items()))
        is_dated = self.how == "remembered" and self.since > 0
        since = f" since {time.strftime('%Y-%m-%d', time.localtime(self.since))}" if is_dated else ""
        return f"{self.how}{since}{f'; {times}' if times else ''}"

    def __str__(self) -> str:
        return f"{self.key}: {self.chosen} ({self.why})"


def pinned(subject: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return what the environment pins for a subject: a candidate's name, ``STATIC``, or None. An item for this subject takes
    precedence over one for all subjects."""
    pin = None
    text = CHOICES.read() if environ is None else environ.get(CHOICES.name, "")
    for word in text.split(","):
        name, is_own, candidate = word.strip().rpartition("=")
        if is_own and name.strip() == subject:
            return candidate.strip()
        if not is_own and candidate.strip():
            pin = candidate.strip()
    return pin


class Choices:
    """The choices of a process, kept in ``cache``. All methods may be called from any thread."""

    def __init__(self, cache: Callable[[], KernelCache], environ: Mapping[str, str] | None = None) -> None:
        self._cache = cache
        self._environ = environ
        self._by_key: dict[str, Choice] = {}
        self._lock = threading.Lock()
        self._makers = KeyedLocks()

    def choose(self, key: Key, candidates: Mapping[str, Measure], default: str) -> Choice:
        """Return the choice for a key, measuring the candidates if it is not settled. ``default`` is returned, and not
        remembered, if nothing is pinned, remembered or measurable.

        Raises ValueError if ``default`` is no candidate. A pinned name that is no candidate is ignored.
        """
        choice = self._settled(key, candidates, default)
        if choice is not None:
            return choice
        name = _name(key, candidates)
        with self._makers.hold(name):
            choice = self._known(name, key, candidates)
            return self._measured(name, key, candidates, default) if choice is None else choice

    def known(self, key: Key, candidates: Collection[str], default: str) -> Choice:
        """Return the choice for a key without measuring anything. Raises as ``choose`` does."""
        choice = self._settled(key, candidates, default) or self._known(_name(key, candidates), key, candidates)
        return Choice(key=key, chosen=default, how="default") if choice is None else choice

    def measure(self, key: Key, candidates: Mapping[str, Measure], default: str, margin: float) -> Choice:
        """Measure now and return the choice for a key, whatever is pinned or remembered; it replaces the remembered one. The
        default stays unless another candidate takes less than 1 - ``margin`` of its time."""
        name = _name(key, candidates)
        with self._makers.hold(name):
            return self._measured(name, key, candidates, default, margin)

    def _settled(self, key: Key, candidates: Collection[str], default: str) -> Choice | None:
        """Return the choice if it needs neither a stored result nor a measurement, else None. Raises ValueError."""
        if default not in candidates:
            raise ValueError(f"{default} is none of {', '.join(candidates)}")
        if len(candidates) == 1:
            return Choice(key=key, chosen=default, how="only")
        pin = pinned(key.subject, self._environ)
        if pin in candidates:
            return Choice(key=key, chosen=str(pin), how="pinned")
        return Choice(key=key, chosen=default, how="default") if pin == STATIC else None

    def _known(self, name: str, key: Key, candidates: Collection[str]) -> Choice | None:
        with self._lock:
            choice = self._by_key.get(name)
        if choice is not None:
            return choice
        payload = self._cache().get(name)
        if payload is None:
            return None
        choice = _decoded(payload, key, candidates)
        if choice is None:
            self._cache().discard(name)
            return None
        return self._keep(name, choice)

    def _measured(
        self, name: str, key: Key, candidates: Mapping[str, Measure], default: str, margin: float = 0.0
    ) -> Choice:  # fmt: skip
        """Return the fastest candidate, or the default if none is faster by ``margin``; of equal ones the first."""
        seconds: dict[str, float] = {}
        try:
            for each, measure in candidates.items():
                seconds[each] = measure()
        except Unmeasurable:
            return Choice(key=key, chosen=default, how="default")
        order = sorted(candidates, key=lambda each: each != default)
        fastest = min(order, key=lambda each: seconds[each] * (1 - margin if each == default else 1))
        choice = Choice(key=key, chosen=fastest, how="measured", seconds=seconds, since=time.time())
        payload = json.dumps({"chosen": choice.chosen, "seconds": seconds, "since": choice.since}).encode()
        self._cache().put(name, payload, kind="choice", meta={"of": str(key), "chosen": choice.chosen, "seconds": seconds})
        with self._lock:
            self._by_key[name] = choice
        return choice

    def _keep(self, name: str, choice: Choice) -> Choice:
        with self._lock:
            return self._by_key.setdefault(name, choice)

    @property
    def lock(self) -> threading.Lock:
        """The lock that a fork must acquire."""
        return self._lock

    def in_memory(self) -> list[Choice]:
        """Return the choices that were measured or remembered in this process."""
        with self._lock:
            return list(self._by_key.values())

    def forget(self) -> None:
        """Drop the choices in memory, so that the cache is read again."""
        with self._lock:
            self._by_key.clear()


def _name(key: Key, candidates: Collection[str]) -> str:
    """Return the cache key of a choice."""
    return cache_key("choice", key.subject, *key.details, *sorted(candidates))


def _decoded(payload: bytes, key: Key, candidates: Collection[str]) -> Choice | None:
    """Return the stored choice, or None if the payload is malformed or names no candidate."""
    try:
        data: Any = json.loads(payload)
        seconds = {str(name): float(taken) for name, taken in data["seconds"].items()}
        since = min(max(float(data.get("since", 0.0)), 0.0), LATEST)
        choice = Choice(key=key, chosen=str(data["chosen"]), how="remembered", seconds=seconds, since=since)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return choice if choice.chosen in candidates else None


choices = Choices(default_cache)
"""The choices of this process."""
hold_over_fork(choices.lock)
