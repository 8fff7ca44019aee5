"""What a program gives a stream, with all that does not change from call to call; and which of it must come after which.

A step's addresses are rows of a table that a call fills in, with offsets. Two steps depend on each other if one writes bytes that
the other reads or writes: so it holds for buffers that lie in the same memory one after another, too.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pullback.runtime.cuda.libraries.calls import Called
from pullback.runtime.cuda.program.argument_blocks import Started

WORKSPACE = -1
"""The row that stands for what the routines of libraries share."""
END = 1 << 62

Place = tuple[int, int]
"""The row of the table of addresses, and the offset there."""


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes of a row, from ``first`` up to and without ``last``, that a step reads, or ``writes``."""

    row: int
    first: int
    last: int
    writes: bool


@dataclass(frozen=True, slots=True, eq=False)
class Patched:
    """A launch, and where its arguments come from: for each pointer its place, the row of the table of addresses, and what is
    added. ``strides`` and ``scalars`` are of arguments of the call. ``is_helper``: a kernel of
    ``codegen.cuda.source.graph_loops``."""

    start: Started
    pointers: tuple[tuple[int, int, int], ...]
    strides: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int, str], ...]
    touches: tuple[Touch, ...]
    is_helper: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Copied:
    """A copy on the device: rows of the table of addresses, what is added to them, and the bytes."""

    source: Place
    target: Place
    size: int
    touches: tuple[Touch, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """One number is written: ``value``, of so many bytes, or the argument at ``scalar``, of a dtype. ``count`` times."""

    target: Place
    unit: int
    value: int
    count: int
    scalar: tuple[int, str] | None
    touches: tuple[Touch, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Elsewhere:
    """A routine of a library: rows of the table of addresses, of what it takes, and what is added to them."""

    called: Called
    pointers: tuple[Place, ...]
    touches: tuple[Touch, ...]


Step = Patched | Copied | Filled | Elsewhere


def helper(name: str, blocks: int, threads: int, arguments: Sequence[tuple[str, object]], touches: Sequence[Touch]) -> Patched:
    """A launch of a helper. ``arguments``: letters of ``struct`` with numbers, or ("P", place)."""
    values = [0 if letter == "P" else value for letter, value in arguments]
    pointers = tuple((k, *place) for k, (letter, place) in enumerate(arguments) if letter == "P" and isinstance(place, tuple))
    packing = struct.Struct("@" + "".join("Q" if letter == "P" else letter for letter, _ in arguments))
    start = Started(name, (blocks, 1, 1), (threads, 1, 1), 0, packing, values, (), (), (), (), ())
    return Patched(start, pointers, (), (), tuple(touches), is_helper=True)


class Piece:
    """Steps between which the host decides nothing. ``arguments``: the rows up to ``count`` that they touch. ``is_captured``:
    a graph has them when they come again."""

    __slots__ = ("_after", "arguments", "is_captured", "steps")

    def __init__(self, steps: Sequence[Step], count: int) -> None:
        self.steps = tuple(steps)
        self.arguments = frozenset(t.row for step in steps for t in step.touches if 0 <= t.row < count)
        self.is_captured = all(step.called.captures for step in steps if isinstance(step, Elsewhere))
        self._after: list[tuple[int, ...]] | None = None

    @property
    def after(self) -> list[tuple[int, ...]]:
        """For each step the earlier ones that it must come after; without those that one of these comes after."""
        if self._after is None:
            self._after = after([step.touches for step in self.steps])
        return self._after


class _Spans:
    """Who touched which bytes of a row last: spans that meet nowhere, each with its writer and its readers since."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.spans: list[tuple[int, int | None, list[int]]] = []

    def cut(self, at: int) -> None:
        """No span goes across a place."""
        k = bisect_right(self.starts, at) - 1
        if k >= 0 and self.starts[k] < at < self.spans[k][0]:
            end, writer, readers = self.spans[k]
            self.spans[k] = at, writer, readers
            self.starts.insert(k + 1, at)
            self.spans.insert(k + 1, (end, writer, readers.copy()))

    def touched(self, step: int, touch: Touch) -> Iterator[int]:
        """The steps that one must come after, which touches these bytes from now on."""
        self.cut(touch.first)
        self.cut(touch.last)
        k, end = bisect_left(self.starts, touch.first), bisect_left(self.starts, touch.last)
        found = list(zip(self.starts[k:end], self.spans[k:end], strict=True))
        for _, (_, writer, readers) in found:
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
            found.append((touch.last, (touch.last, None, [])))
            for start, (last, writer, readers) in found:
                if at < start:
                    starts.append(at)
                    spans.append((start, None, [step]))
                if start < last:
                    starts.append(start)
                    readers.append(step)
                    spans.append((last, writer, readers))
                at = last
        self.starts[k:end], self.spans[k:end] = starts, spans


def after(steps: Sequence[Sequence[Touch]]) -> list[tuple[int, ...]]:
    """For each step, by what it touches, the earlier ones that it comes after; without those that one of these comes after."""
    rows: dict[int, _Spans] = {}
    found: list[tuple[int, ...]] = []
    needed: list[int] = []
    for number, touches in enumerate(steps):
        direct: set[int] = set()
        for touch in touches:
            if touch.first < touch.last:
                direct.update(rows.setdefault(touch.row, _Spans()).touched(number, touch))
        direct.discard(number)
        behind = 0
        kept: list[int] = []
        for k in sorted(direct, reverse=True):
            if not behind >> k & 1:
                kept.append(k)
                behind |= needed[k] | 1 << k
        found.append(tuple(reversed(kept)))
        needed.append(behind)
    return found
