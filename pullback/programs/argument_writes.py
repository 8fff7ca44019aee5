"""Entries whose function writes into its arguments or into outside arrays, changes lists and dicts among its arguments, stores to
places outside, or depends on the memory layout of an argument.

The writes reach the arrays and containers once, after the call, as NumPy and Python would have left them, in any layout and
byte order. A call that raises writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pullback.programs.compile_record import Record
from pullback.programs.entry import MISS, Entry
from pullback.programs.out import Out, write_to
from pullback.programs.overlap import overlaps_itself, shares_memory
from pullback.programs.pipeline import Program
from pullback.tracer import Trace, TraceError
from pullback.tracer.arrays.strides import strides_in
from pullback.tracer.arrays.tree import Leaves

Array = np.ndarray[Any, Any]


class WritingEntry(Entry):
    """An entry that writes into its call's leaves, or that depends on the strides of some or on their being read-only."""

    __slots__ = ("_kept", "_strides", "_writes")

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> None:
        super().__init__(trace, program, leaves, record)
        self._writes = trace.writes
        self._kept = trace.kept_readonly
        self._strides = trace.strides

    def holds(self, leaves: Sequence[Any]) -> bool:
        return self._fits(leaves) and super().holds(leaves)

    def _fits(self, leaves: Sequence[Any]) -> bool:
        """Return whether the arrays that the trace wrote are writeable, and whether the layouts are those of the trace."""
        if not all(target.read().flags.writeable for target in self._trace.outside_writes):
            return False
        if any(strides_in(leaves[k]) != strides for k, strides in self._strides):
            return False
        return all(leaves[k].flags.writeable for k in self._writes) and not any(leaves[k].flags.writeable for k in self._kept)

    def __call__(self, leaves: list[Any]) -> Any:
        """Call the program. Raises TraceError, and writes nothing, if a written array shares memory with another."""
        return self.serve(leaves)

    def serve(self, leaves: list[Any], out: Out | None = None) -> Any:
        if not self._fits(leaves):
            return MISS
        shared = next(self._shared(leaves, [] if out is None else out), None)
        if shared is not None:
            if not self._trace.holds():
                return MISS
            raise TraceError(f"{shared}; pass a copy")
        result = super().serve(leaves, out)
        return result if result is MISS else self._written_back(result, leaves)

    def finish(self, results: list[Any], leaves: Sequence[Any], outside: Sequence[Any]) -> Any:
        return self._written_back(super().finish(results, leaves, outside), leaves)

    def interpreted(self, leaves: list[Any], out: Out | None = None) -> Any:
        result = super().interpreted(leaves, out)
        return result if result is MISS else self._written_back(result, leaves)

    def _written_back(self, result: Any, leaves: Sequence[Any]) -> Any:
        """Write the trace's writes into the caller's arrays and return the function's own result."""
        if not self._trace.writes_count:
            return result
        returned, *values = result
        self._write(values, leaves)
        return returned

    def _write(self, values: Sequence[Any], leaves: Sequence[Any]) -> None:
        """Write the final contents of the arrays that the trace writes."""
        for (_, array), value in zip(self._written(leaves), values, strict=True):
            if value is not array:
                write_to(array, value)

    def _written(self, leaves: Sequence[Any]) -> list[tuple[str, Array]]:
        """Return the arrays to write, with descriptions."""
        inside = [(f"argument {self._trace.labels[k]}", leaves[k]) for k in self._writes]
        return [*inside, *((target.describe, target.read()) for target in self._trace.outside_writes)]

    def _others(self, leaves: Sequence[Any]) -> list[tuple[str, Any]]:
        """Return the leaves of a call, each once, with their names."""
        return list(zip(self._trace.labels, leaves))

    def _shared(self, leaves: Sequence[Any], out: Out) -> Iterator[str]:
        """Yield the reasons why the arrays cannot be written: shared memory."""
        others = [*self._others(leaves), *self._trace.outside_arrays(), *(("an array of out", a) for a in out)]
        for name, written in self._written(leaves):
            if not written.flags.forc and overlaps_itself(written):
                yield f"the function writes into {name}, whose elements share memory with each other"
            is_itself = False
            for label, other in others:
                if other is written and not is_itself:
                    is_itself = True
                elif isinstance(other, np.ndarray) and shares_memory(written, other):
                    yield f"the function writes into {name}, which shares memory with {label}"


class StoringEntry(WritingEntry):
    """An entry that changes containers among the arguments of its call. Its leaves are those of a signature."""

    __slots__ = ("_rebuild", "_stores")

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> None:
        super().__init__(trace, program, leaves, record)
        assert trace.stores is not None
        self.tries = self.tries_into = 0
        self._stores = trace.stores
        self._rebuild, self._fill = self._fill, list

    def _fits(self, leaves: Sequence[Any]) -> bool:
        if not super()._fits(leaves):
            return False
        try:
            return self._stores.fits(self._containers(leaves))
        except Exception:  # a container from outside that is not there
            return False

    def _containers(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Return the containers of a call."""
        assert isinstance(leaves, Leaves)
        return self._stores.containers(leaves.arguments)

    def _written_back(self, result: Any, leaves: Sequence[Any]) -> Any:
        objects = self._stores.objects(self._containers(leaves))
        returned, *values = self._rebuild(result, objects)
        count = len(self._stores.trees)
        self._write(values[count:], leaves)
        self._stores.store(objects, values[:count])
        return returned

    def _others(self, leaves: Sequence[Any]) -> list[tuple[str, Any]]:
        return [named for k, named in enumerate(super()._others(leaves)) if k not in self._stores.repeated]


class DonatedEntry(Entry):
    """An entry whose results may reuse the memory of its call's leaves."""

    __slots__ = ()

    def __call__(self, leaves: list[Any]) -> Any:
        return self.serve(leaves)


def entry_of(trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> Entry:
    """Return the entry of a trace whose call had these leaves."""
    kind: type[Entry] = Entry if program.template is None or not program.template.home else DonatedEntry
    if trace.writes_count or trace.kept_readonly or trace.strides:
        kind = WritingEntry
    if trace.stores is not None:
        kind = StoringEntry
    return kind(trace, program, leaves, record)
