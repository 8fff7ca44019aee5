"""A choice among candidates that compute the same: measured at its first use, remembered in the kernel cache, or pinned.

It is made once for a key, such as ("gemm", "f64", "512 512 512", "NVIDIA H200"), and holds for all processes with the same cache:
candidates may differ in their last bits. ``PULLBACK_CHOICES`` pins: ``gemm=library`` or, for all subjects, ``ours``; several
are separated by commas. ``static`` measures nothing and takes what the caller would without a measurement. What candidates are,
and how they are measured, is the caller's business.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pullback.runtime.cache import KernelCache, default_cache
from pullback.runtime.cache import key as cache_key
from pullback.runtime.fork import hold_over_fork
from pullback.runtime.locks import KeyedLocks

VARIABLE = "PULLBACK_CHOICES"
STATIC = "static"
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
    """What was chosen, how, and the seconds of each candidate that was measured."""

    key: Key
    chosen: str
    how: How
    seconds: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        times = ", ".join(f"{name} {1e6 * taken:.1f} us" for name, taken in sorted(self.seconds.items()))
        return f"{self.key}: {self.chosen} ({self.how}{f'; {times}' if times else ''})"


def pinned(subject: str, environ: Mapping[str, str] | None = None) -> str | None:
    """What the environment pins for a subject: a candidate's name, ``STATIC``, or None. A subject's own word goes first."""
    found = None
    for word in (os.environ if environ is None else environ).get(VARIABLE, "").split(","):
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
        if default not in candidates:
            raise ValueError(f"{default} is none of {', '.join(candidates)}")
        if len(candidates) == 1:
            return Choice(key=key, chosen=default, how="only")
        pin = pinned(key.subject, self._environ)
        if pin in candidates:
            return Choice(key=key, chosen=str(pin), how="pinned")
        if pin == STATIC:
            return Choice(key=key, chosen=default, how="default")
        name = cache_key("choice", key.subject, *key.details, *sorted(candidates))
        with self._makers.hold(name):
            found = self._known(name, key, candidates)
            return self._measured(name, key, candidates, default) if found is None else found

    def _known(self, name: str, key: Key, candidates: Mapping[str, Measure]) -> Choice | None:
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

    def _measured(self, name: str, key: Key, candidates: Mapping[str, Measure], default: str) -> Choice:
        """The fastest; of equal ones the default, then the first."""
        seconds: dict[str, float] = {}
        try:
            for each, measure in candidates.items():
                seconds[each] = measure()
        except Unmeasurable:
            return Choice(key=key, chosen=default, how="default")
        order = sorted(candidates, key=lambda each: each != default)
        found = Choice(key=key, chosen=min(order, key=lambda each: seconds[each]), how="measured", seconds=seconds)
        payload = json.dumps({"chosen": found.chosen, "seconds": seconds}).encode()
        self._cache().put(name, payload, kind="choice", meta={"of": str(key), "chosen": found.chosen, "seconds": seconds})
        return self._keep(name, found)

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


def _decoded(payload: bytes, key: Key, candidates: Mapping[str, Measure]) -> Choice | None:
    """What was kept; None where it is not what is kept here."""
    try:
        data: Any = json.loads(payload)
        seconds = {str(name): float(taken) for name, taken in data["seconds"].items()}
        found = Choice(key=key, chosen=str(data["chosen"]), how="remembered", seconds=seconds)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return found if found.chosen in candidates else None


choices = Choices(default_cache)
"""Those of this process."""
hold_over_fork(choices.lock)
