"""The compiled programs of a function by their selectors: the signature of a call, and the values of its static ints.

An int or bool is traced like any number until a trace needs its value (``range(n)``, ``if flag``): from then on the programs
of that signature are distinguished by it.
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
from pullback.tracer.arrays.tree import OBJECT, Identity, weakened
from pullback.tracer.user_code.source import shown

MOST_SIGNATURES = 4096
"""Largest number of signatures kept for one function."""
MOST_VARIANTS = 8
"""Largest number of programs kept for one signature."""
MOST_OF_CLASSES = 64
"""Largest number of programs kept for one signature with objects that are read by attributes. Further ones are kept for the
objects of their calls, since each seems to need its own."""
FEW_VALUES = 8
"""Number of values of an int or bool that each have their own program if they decide branches, bounds and exponents; the next
trace has instructions for these, if it can."""
MANY_VALUES = 16
"""Number of values of an argument beyond which a warning is issued."""


if TYPE_CHECKING:

    class Called:
        pass
else:
    Called = abi.Called


class NativeOnly(Called):
    """Serves calls natively or returns MISS."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = Dispatch(_missed)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return MISS

    @property
    def dispatch(self) -> Dispatch:
        """The table of native calls."""
        return self._held


def _missed(quick: NativeOnly, /, *args: Any, **kwargs: Any) -> Any:
    return MISS


abi.enable_vectorcall(NativeOnly)


class Entries:
    """The programs of a function.

    ``by_key``: the programs by signature, or by signature, leaves and values if the leaves ``pins`` are static. Those for an
    object or function among the arguments are dropped when it dies. ``dispatch``: the table of native calls, and ``into`` the
    one of native calls with arrays for the result, which come first.
    """

    def __init__(self) -> None:
        self.by_key: dict[Any, list[Entry | Paths]] = {}
        self.pins: dict[Any, dict[tuple[int, ...], int]] = {}
        self.dispatch = Dispatch()
        self.into = NativeOnly()

    def of(self, call: Signature) -> list[Entry | Paths]:
        """Return the programs that may serve a call."""
        pins = self.pins.get(call.key)
        keys = [call.key, *(_pinned_key(call, indices) for indices in pins or ())]
        if call.objects and pins is not None:
            keys = [*(_own_key(call, key) for key in keys), *keys]
        return [entry for key in keys for entry in self.by_key.get(key, ())]

    def undecided(self, call: Signature) -> frozenset[int]:
        """Return the leaves of a call that were static in traces for many values."""
        pins = self.pins.get(call.key)
        return frozenset(k for indices, count in pins.items() if count >= FEW_VALUES for k in indices) if pins else frozenset()

    def store(self, call: Signature, entry: Entry, title: str) -> None:
        """Store the program of a call. Warns if it is one of many that differ only in the values of arguments."""
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
        most = MOST_OF_CLASSES if call.objects else MOST_VARIANTS
        if call.objects and len(self.by_key.get(key, ())) >= most:
            self.pins.setdefault(self._weakened(call.key), {})
            key = _own_key(call, key)
        existing = self.by_key.get(key)
        stored: Entry | Paths = entry
        if entry.trace.branches:
            for paths in existing or ():
                if isinstance(paths, Paths):
                    paths.add(entry, title)
                    self._prune()
                    return
            stored = Paths(entry)
        self.by_key[self._weakened(key) if existing is None else key] = [stored, *(existing or ())[: most - 1]]
        self._prune()

    def serve(self, record: Record) -> None:
        """Add a record to the native table, if its entry still exists."""
        self.dispatch.add(record)
        self._prune()

    def serve_into(self, record: Record) -> None:
        """Add a record to the native table of calls with arrays for the result."""
        self.into.dispatch.add(record)
        self._prune()

    def _prune(self) -> None:
        """Remove the records of dropped entries from the native tables."""
        into = self.into.dispatch
        if len(self.dispatch) or len(into):
            entries = (entry for variants in self.by_key.copy().values() for entry in variants)
            alive = {id(e) for entry in entries for e in (entry.entries if isinstance(entry, Paths) else (entry,))}
            self.dispatch.keep(alive)
            into.keep(alive)

    def _weakened(self, key: Any) -> Any:
        """Return the key with weak references; its entries are removed when something in it dies."""
        entries = weakref.ref(self)
        holder: list[Any] = []

        def died(_: Any) -> None:
            owner = entries()
            if owner is not None and holder:
                dead = holder.pop()
                owner.by_key.pop(dead, None)
                owner.pins.pop(dead, None)
                owner._prune()

        holder.append(weakened(key, died))
        return holder[0]


def _pinned_key(call: Signature, indices: tuple[int, ...]) -> Any:
    return call.key, indices, tuple([call.leaves[k] for k in indices])


def _own_key(call: Signature, key: Any) -> Any:
    """Return the key of programs that serve only the objects of a call."""
    return key, OBJECT, tuple(map(Identity, call.objects))


def _warn(title: str, pinned: Sequence[Pinned]) -> None:
    values = ", ".join(f"{p.describe} (asked for at {shown(p.loc.file)}:{p.loc.line})" for p in pinned)
    message = (
        f"{title} is traced anew for each value of {values}, more than {MANY_VALUES} so far; "
        "use the shape of an array, or leave the loop to NumPy, if there are many"
    )
    loc = user_loc()
    warnings.warn_explicit(message, RetraceWarning, loc.file or "pullback", loc.line)
