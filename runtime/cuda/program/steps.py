"""The steps that a program enqueues on a stream, with everything that is the same in every call, and the dependencies between
them.

The addresses of a step are rows of a table that a call fills in, with offsets. Two steps depend on each other if one writes
bytes that the other reads or writes; this also covers buffers that use the same memory one after another.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from pullback.ir.core.records import dataclass
from pullback.runtime.cuda.libraries.calls import LibraryCall
from pullback.runtime.cuda.program.argument_blocks import SizedLaunch

WORKSPACE = -1
"""The row that stands for the workspace shared by library routines."""
END = 1 << 62
"""The last byte of an access whose extent is unknown."""

Location = tuple[int, int]
"""A row of the table of addresses, and an offset from that address."""


@dataclass(frozen=True, slots=True)
class Access:
    """The bytes of a row from ``first`` up to, but not including, ``last`` that a step reads, or ``writes``."""

    row: int
    first: int
    last: int
    writes: bool


@dataclass(frozen=True, slots=True, eq=False)
class LaunchStep:
    """A launch, and the sources of its arguments: for each pointer its index among the arguments, the row of the table of
    addresses, and the offset. ``strides`` and ``scalars`` come from arguments of the call. ``is_helper``: a kernel of
    ``codegen.cuda.source.graph_loops``."""

    start: SizedLaunch
    pointers: tuple[tuple[int, int, int], ...]
    strides: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int, str], ...]
    accesses: tuple[Access, ...]
    is_helper: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CopyStep:
    """A copy on the device of ``size`` bytes."""

    source: Location
    target: Location
    size: int
    accesses: tuple[Access, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FillStep:
    """A fill with ``count`` copies of a scalar of ``unit`` bytes: ``value``, or the argument ``scalar``, (position, dtype)."""

    target: Location
    unit: int
    value: int
    count: int
    scalar: tuple[int, str] | None
    accesses: tuple[Access, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LibraryStep:
    """A library call, and the locations of its operands and scratch buffers."""

    called: LibraryCall
    pointers: tuple[Location, ...]
    accesses: tuple[Access, ...]


Step = LaunchStep | CopyStep | FillStep | LibraryStep


def helper(
    name: str, blocks: int, threads: int, arguments: Sequence[tuple[str, object]], accesses: Sequence[Access]
) -> LaunchStep:
    """Return the launch of a helper kernel. ``arguments``: ``struct`` letters with values, or ("P", location)."""
    values = [0 if letter == "P" else value for letter, value in arguments]
    pointers = tuple((k, *at) for k, (letter, at) in enumerate(arguments) if letter == "P" and isinstance(at, tuple))
    packing = struct.Struct("@" + "".join("Q" if letter == "P" else letter for letter, _ in arguments))
    start = SizedLaunch(name, (blocks, 1, 1), (threads, 1, 1), 0, packing, values, (), (), (), (), ())
    return LaunchStep(start, pointers, (), (), tuple(accesses), is_helper=True)


class Segment:
    """Consecutive steps without a host decision between them. ``arguments``: the rows below ``count`` that they access.
    ``is_captured``: a repeated call launches them as a graph."""

    __slots__ = ("_dependencies", "arguments", "is_captured", "steps")

    def __init__(self, steps: Sequence[Step], count: int) -> None:
        self.steps = tuple(steps)
        self.arguments = frozenset(t.row for step in steps for t in step.accesses if 0 <= t.row < count)
        self.is_captured = all(step.called.captures for step in steps if isinstance(step, LibraryStep))
        self._dependencies: list[tuple[int, ...]] | None = None

    @property
    def dependencies(self) -> list[tuple[int, ...]]:
        """For each step, the earlier steps that it depends on directly, without those implied by others."""
        if self._dependencies is None:
            self._dependencies = direct_dependencies([step.accesses for step in self.steps])
        return self._dependencies


class _Spans:
    """The last writer and its later readers of each byte of a row, as disjoint spans."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.spans: list[tuple[int, int | None, list[int]]] = []

    def cut(self, at: int) -> None:
        """Split the span that contains an offset."""
        k = bisect_right(self.starts, at) - 1
        if k >= 0 and self.starts[k] < at < self.spans[k][0]:
            end, writer, readers = self.spans[k]
            self.spans[k] = at, writer, readers
            self.starts.insert(k + 1, at)
            self.spans.insert(k + 1, (end, writer, readers.copy()))

    def add_access(self, step: int, touch: Access) -> Iterator[int]:
        """Record an access of a step, and yield the steps that it must follow."""
        self.cut(touch.first)
        self.cut(touch.last)
        k, end = bisect_left(self.starts, touch.first), bisect_left(self.starts, touch.last)
        spans_met = list(zip(self.starts[k:end], self.spans[k:end], strict=True))
        for _, (_, writer, readers) in spans_met:
            if writer is not None:
                yield writer
            if touch.writes:
                yield from readers
        starts: list[int] = []
        spans: list[tuple[int, int | None, list[int]]] = []
        if touch.writes:
            starts.append(touch.first)
            spans.append((touch.last, step, []))
        else:
            at = touch.first
            spans_met.append((touch.last, (touch.last, None, [])))
            for start, (last, writer, readers) in spans_met:
                if at < start:
                    starts.append(at)
                    spans.append((start, None, [step]))
                if start < last:
                    starts.append(start)
                    readers.append(step)
                    spans.append((last, writer, readers))
                at = last
        self.starts[k:end], self.spans[k:end] = starts, spans


def direct_dependencies(steps: Sequence[Sequence[Access]]) -> list[tuple[int, ...]]:
    """Return for each step, from its accesses, the earlier steps that it depends on directly, without those implied by others."""
    rows: dict[int, _Spans] = {}
    result: list[tuple[int, ...]] = []
    ancestors: list[int] = []
    for index, touches in enumerate(steps):
        direct: set[int] = set()
        for touch in touches:
            if touch.first < touch.last:
                direct.update(rows.setdefault(touch.row, _Spans()).add_access(index, touch))
        direct.discard(index)
        reachable = 0
        kept: list[int] = []
        for k in sorted(direct, reverse=True):
            if not reachable >> k & 1:
                kept.append(k)
                reachable |= ancestors[k] | 1 << k
        result.append(tuple(reversed(kept)))
        ancestors.append(reachable)
    return result
