"""Compiled signatures whose function writes into its arguments or into arrays from outside, once, after the call; and those that
depend on how an argument lies in memory.

What is written reaches them as NumPy would have left it: into any layout and byte order. Nothing is written by a call that
raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pullback.entry import MISS, Entry
from pullback.inspection.record import Record
from pullback.pipeline import Program
from pullback.tracer import Trace, TraceError
from pullback.tracer.layout import strides_in

# How long the search for an element that two arrays share may take, before they are taken to share one.
MOST_WORK = 1000

Array = np.ndarray[Any, Any]


class WritingEntry(Entry):
    """An entry that writes into its call's leaves, or that found some of them read-only or lying in memory in some way."""

    __slots__ = ("_kept", "_strides", "_writes")

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> None:
        super().__init__(trace, program, leaves, record)
        self._writes = trace.writes
        self._kept = trace.kept_readonly
        self._strides = trace.strides

    def holds(self, leaves: Sequence[Any]) -> bool:
        return self._fits(leaves) and super().holds(leaves)

    def _fits(self, leaves: Sequence[Any]) -> bool:
        """Whether the arrays may be written that were written, and lie in memory as they did."""
        if not all(given.read().flags.writeable for given in self._trace.outside_writes):
            return False
        if any(strides_in(leaves[k]) != strides for k, strides in self._strides):
            return False
        return all(leaves[k].flags.writeable for k in self._writes) and not any(leaves[k].flags.writeable for k in self._kept)

    def __call__(self, leaves: list[Any]) -> Any:
        """As an entry's. Raises TraceError, and writes nothing, if a written array shares memory with another."""
        if not self._fits(leaves):
            return MISS
        shared = next(self._shared(leaves), None)
        if shared is not None:
            if not self._trace.holds():
                return MISS
            raise TraceError(f"{shared}; pass a copy")
        result = super().__call__(leaves)
        if result is MISS or not self._trace.writes_count:
            return result
        found, *values = result
        for (_, array), value in zip(self._written(leaves), values, strict=True):
            np.copyto(array, value)
        return found

    def _written(self, leaves: Sequence[Any]) -> list[tuple[str, Array]]:
        """The arrays to write, and what they are called."""
        inside = [(f"argument {self._trace.labels[k]}", leaves[k]) for k in self._writes]
        return [*inside, *((given.describe, given.read()) for given in self._trace.outside_writes)]

    def _shared(self, leaves: Sequence[Any]) -> Iterator[str]:
        """What is wrong with the memory of the arrays to write."""
        others = [*zip(self._trace.labels, leaves), *self._trace.outside_arrays()]
        for name, written in self._written(leaves):
            if not written.flags.forc and _overlaps_itself(written):
                yield f"the function writes into {name}, whose elements share memory with each other"
            is_itself = False
            for label, other in others:
                if other is written and not is_itself:
                    is_itself = True
                elif isinstance(other, np.ndarray) and _share(written, other):
                    yield f"the function writes into {name}, which shares memory with {label}"


def entry_of(trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> Entry:
    """The compiled signature of a trace, whose call had these leaves."""
    kind = WritingEntry if trace.writes_count or trace.kept_readonly or trace.strides else Entry
    return kind(trace, program, leaves, record)


def _share(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=MOST_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(x: Array) -> bool:
    """Whether two elements may be one place in memory, as in a broadcast array or overlapping windows."""
    span = x.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape) if n > 1):
        if stride < span:
            return True
        span += stride * (n - 1)
    return False
