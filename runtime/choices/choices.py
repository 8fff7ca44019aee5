"""A choice among candidates that compute the same: measured at its first use, remembered in the kernel cache, or pinned.

It is made once for a key, such as ("gemm", "f64", "512 512 512", "NVIDIA H200"), and holds for all processes with the same cache:
candidates may differ in their last bits. ``PULLBACK_CHOICES`` pins: ``gemm=library`` or, for all subjects, ``ours``; several
are separated by commas. ``static`` measures nothing and takes what the caller would without a measurement. What candidates are,
and how they are measured, is the caller's business, and whether that is done at the first use (``choose``) or when a person asks
for it (``known``, ``measure``).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pullback.ir.core.environment import CHOICES
from pullback.runtime.cache.cache import KernelCache, default_cache
from pullback.runtime.cache.cache import key as cache_key
from pullback.runtime.process.fork import hold_over_fork
from pullback.runtime.process.locks import KeyedLocks

VARIABLE = CHOICES.name
STATIC = "static"
LATEST = 4e9
"""The last Unix time that is believed."""
How = Literal["measured", "remembered", "pinned", "default", "only"]
Measure = Callable[[], float]
"""The seconds that a candidate takes. Raises Unmeasurable where that cannot be known now."""


class Unmeasurable(Exception):
    """A candidate cannot be measured here, or not now."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """What a choice is about: its ``subject``, and all else that may decide it: types, sizes, the machine, versions."""

    subject: str
    details: tuple[str, ...]

    def __str__(self) -> str:
        return ", ".join((self.subject, *self.details))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What was chosen, how, and the seconds of each candidate that was measured, at the Unix time ``since``."""

    key: Key
    chosen: str
    how: How
    seconds: Mapping[str, float] = field(default_factory=dict)
    since: float = 0.0

    @property
    def why(self) -> str:
        """How it was chosen, and what was measured."""
        times = ", ".join(f"{name} {1e6 * taken:.1f} us" for name, taken in sorted(self.seconds.items()))
        is_dated = self.how == "remembered" and self.since > 0
        since = f" since {time.strftime('%Y-%m-%d', time.localtime(self.since))}" if is_dated else ""
        return f"{self.how}{since}{f'; {times}' if times else ''}"

    def __str__(self) -> str:
        return f"{self.key}: {self.chosen} ({self.why})"


def pinned(subject: str, environ: Mapping[str, str] | None = None) -> str | None:
    """What the environment pins for a subject: a candidate's name, ``STATIC``, or None. A subject's own word goes first."""
    found = None
    text = CHOICES.read() if environ is None else environ.get(CHOICES.name, "")
    for word in text.split(","):
        name, is_own, candidate = word.strip().rpartition("=")
        if is_own and name.strip() == subject:
            return candidate.strip()
        if not is_own and candidate.strip():
            found = candidate.strip()
    return found


class Choices:
    """The choices of a process, kept in ``cache``. All methods may be called from any thread."""

    def __init__(self, cache: Callable[[], KernelCache], environ: Mapping[str, str] | None = None) -> None:
        self._cache = cache
        self._environ = environ
        self._made: dict[str, Choice] = {}
        self._lock = threading.Lock()
        self._makers = KeyedLocks()

    def choose(self, key: Key, candidates: Mapping[str, Measure], default: str) -> Choice:
        """The choice for a key. ``default`` is taken where nothing is pinned, remembered or measurable, and not remembered.

        Raises ValueError for a ``default`` that is no candidate. A pinned name that is none pins nothing.
        """
        found = self._settled(key, candidates, default)
        if found is not None:
            return found
        name = _name(key, candidates)
        with self._makers.hold(name):
            found = self._known(name, key, candidates)
            return self._measured(name, key, candidates, default) if found is None else found

    def known(self, key: Key, candidates: Collection[str], default: str) -> Choice:
        """The choice for a key where nothing is to be measured now. Raises as ``choose`` does."""
        found = self._settled(key, candidates, default) or self._known(_name(key, candidates), key, candidates)
        return Choice(key=key, chosen=default, how="default") if found is None else found

    def measure(self, key: Key, candidates: Mapping[str, Measure], default: str, margin: float) -> Choice:
        """The choice for a key by measuring now, whatever is pinned or remembered; it takes the place of what is. The default
        stays unless another takes less than 1 - ``margin`` of its time."""
        name = _name(key, candidates)
        with self._makers.hold(name):
            return self._measured(name, key, candidates, default, margin)

    def _settled(self, key: Key, candidates: Collection[str], default: str) -> Choice | None:
        """The choice that needs neither memory nor measurement."""
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
            found = self._made.get(name)
        if found is not None:
            return found
        payload = self._cache().get(name)
        if payload is None:
            return None
        found = _decoded(payload, key, candidates)
        if found is None:
            self._cache().discard(name)
            return None
        return self._keep(name, found)

    def _measured(
        self, name: str, key: Key, candidates: Mapping[str, Measure], default: str, margin: float = 0.0
    ) -> Choice:  # fmt: skip
        """The fastest, or the default, if that is about as fast; of equal ones the first."""
        seconds: dict[str, float] = {}
        try:
            for each, measure in candidates.items():
                seconds[each] = measure()
        except Unmeasurable:
            return Choice(key=key, chosen=default, how="default")
        order = sorted(candidates, key=lambda each: each != default)
        fastest = min(order, key=lambda each: seconds[each] * (1 - margin if each == default else 1))
        found = Choice(key=key, chosen=fastest, how="measured", seconds=seconds, since=time.time())
        payload = json.dumps({"chosen": found.chosen, "seconds": seconds, "since": found.since}).encode()
        self._cache().put(name, payload, kind="choice", meta={"of": str(key), "chosen": found.chosen, "seconds": seconds})
        with self._lock:
            self._made[name] = found
        return found

    def _keep(self, name: str, found: Choice) -> Choice:
        with self._lock:
            return self._made.setdefault(name, found)

    @property
    def lock(self) -> threading.Lock:
        """What a fork waits for."""
        return self._lock

    def made(self) -> list[Choice]:
        """The choices that were measured or remembered in this process."""
        with self._lock:
            return list(self._made.values())

    def forget(self) -> None:
        """Ask the cache again."""
        with self._lock:
            self._made.clear()


def _name(key: Key, candidates: Collection[str]) -> str:
    """The cache key of a choice."""
    return cache_key("choice", key.subject, *key.details, *sorted(candidates))


def _decoded(payload: bytes, key: Key, candidates: Collection[str]) -> Choice | None:
    """What was kept; None where it is not what is kept here."""
    try:
        data: Any = json.loads(payload)
        seconds = {str(name): float(taken) for name, taken in data["seconds"].items()}
        since = min(max(float(data.get("since", 0.0)), 0.0), LATEST)
        found = Choice(key=key, chosen=str(data["chosen"]), how="remembered", seconds=seconds, since=since)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if found.chosen in candidates else None


choices = Choices(default_cache)
"""Those of this process."""
hold_over_fork(choices.lock)
