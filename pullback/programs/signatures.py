"""The compiled programs of a function by what selects one: the signature of a call, and the values of its static ints.

An int or bool is traced like any number until a trace asks for its value (``range(n)``, ``if flag``): from then on the programs
of that signature are told apart by it.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pullback.programs.branch_paths import Paths, RetraceWarning
from pullback.programs.entry import MISS, Entry
from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.records import Dispatch, Record
from pullback.tracer import Pinned, Signature, user_loc
from pullback.tracer.arrays.tree import weakened
from pullback.tracer.user_code.source import shown

MOST_SIGNATURES = 4096
MOST_VARIANTS = 8
MANY_VALUES = 16


if TYPE_CHECKING:

    class Called:
        pass
else:
    Called = abi.Called


class Quick(Called):
    """Calls that are served natively or not at all: it gives MISS."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = Dispatch(_missed)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return MISS

    @property
    def dispatch(self) -> Dispatch:
        """What it finds."""
        return self._held


def _missed(quick: Quick, /, *args: Any, **kwargs: Any) -> Any:
    return MISS


abi.enable_vectorcall(Quick)


class Entries:
    """``by_key``: the programs by signature, or by signature, leaves and values where the leaves ``pins`` are static.

    Those for an object or function among the arguments go when it goes. ``dispatch``: what native calls find of
    them, and ``into`` those with arrays for the result, which come first.
    """

    def __init__(self) -> None:
        self.by_key: dict[Any, list[Entry | Paths]] = {}
        self.pins: dict[Any, dict[tuple[int, ...], int]] = {}
        self.dispatch = Dispatch()
        self.into = Quick()

    def of(self, call: Signature) -> list[Entry | Paths]:
        """Those that may serve a call."""
        keys = [call.key, *(_pinned_key(call, indices) for indices in self.pins.get(call.key, ()))]
        return [entry for key in keys for entry in self.by_key.get(key, ())]

    def store(self, call: Signature, entry: Entry, title: str) -> None:
        """Keep the program of a call. Warns if it is one of many that differ in the values of arguments alone."""
        key, pinned = call.key, entry.trace.pinned
        if pinned:
            indices = tuple(p.index for p in pinned)
            key = _pinned_key(call, indices)
            if key not in self.by_key:
                counts = self.pins.setdefault(self._weakened(call.key), {})
                counts[indices] = counts.get(indices, 0) + 1
                if counts[indices] == MANY_VALUES + 1:
                    _warn(title, pinned)
        while len(self.by_key) >= MOST_SIGNATURES:
            self.by_key.pop(next(iter(self.by_key.copy())), None)
        known = self.by_key.get(key)
        made: Entry | Paths = entry
        if entry.trace.branches:
            for paths in known or ():
                if isinstance(paths, Paths):
                    paths.add(entry, title)
                    self._prune()
                    return
            made = Paths(entry)
        self.by_key[self._weakened(key) if known is None else key] = [made, *(known or ())[: MOST_VARIANTS - 1]]
        self._prune()

    def serve(self, record: Record) -> None:
        """Have native calls find a record, if its entry is still here."""
        self.dispatch.add(record)
        self._prune()

    def serve_into(self, record: Record) -> None:
        """The same for calls with arrays for the result."""
        self.into.dispatch.add(record)
        self._prune()

    def _prune(self) -> None:
        """Native calls find nothing that is not here."""
        into = self.into.dispatch
        if len(self.dispatch) or len(into):
            found = (entry for variants in self.by_key.copy().values() for entry in variants)
            alive = {id(e) for entry in found for e in (entry.entries if isinstance(entry, Paths) else (entry,))}
            self.dispatch.keep(alive)
            into.keep(alive)

    def _weakened(self, key: Any) -> Any:
        """The key, which drops what it leads to when something in it dies."""
        entries = weakref.ref(self)
        made: list[Any] = []

        def died(_: Any) -> None:
            found = entries()
            if found is not None and made:
                dead = made.pop()
                found.by_key.pop(dead, None)
                found.pins.pop(dead, None)
                found._prune()

        made.append(weakened(key, died))
        return made[0]


def _pinned_key(call: Signature, indices: tuple[int, ...]) -> Any:
    return call.key, indices, tuple([call.leaves[k] for k in indices])


def _warn(title: str, pinned: Sequence[Pinned]) -> None:
    asked = ", ".join(f"{p.describe} (asked for at {shown(p.loc.file)}:{p.loc.line})" for p in pinned)
    message = (
        f"{title} is traced anew for each value of {asked}, more than {MANY_VALUES} so far; "
        "use the shape of an array, or leave the loop to NumPy, if there are many"
    )
    loc = user_loc()
    warnings.warn_explicit(message, RetraceWarning, loc.file or "pullback", loc.line)
