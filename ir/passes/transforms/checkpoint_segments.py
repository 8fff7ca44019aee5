"""Divide straight-line code into segments for a gradient with few residuals: a value that crosses a cut is saved, and the
inside of a segment is recomputed when the reverse pass reaches it. While it reverses a segment, the gradient holds the values
that cross the cuts before it, and the residuals of the segment (``checkpoint_residuals``).

``cut`` chooses the cuts for a budget of bytes. For ``n`` equal layers in ``k`` equal segments the gradient holds about
``k + n / k`` layers at a time, which is least at the square root of ``n`` (Chen et al., Training deep nets with sublinear memory
cost, 2016). Fewer values cross the cuts before earlier segments, which may be longer. Each instruction is recomputed at most
once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.passes.transforms.residuals import CHEAP

SEGMENTS = 64
"""Every number of segments up to this one is tried; beyond it, the number grows by the fourth root of two per step, because
the sum of bytes changes little near its minimum."""
BISECTIONS = 20
"""The number of budgets that are tried in search of the smallest that can be met: the last ones differ by a millionth."""


@dataclass(frozen=True, kw_only=True)
class Residual:
    """A value that the gradient of a block holds: the ``position`` of the instruction that defines it, its ``bytes``, and whether
    the derivative of this instruction reads it."""

    position: int
    bytes: int
    is_read_by_own_rule: bool


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Cuts after the instructions at the positions ``after``, in order. Of the bytes that the gradient holds when it holds most,
    ``kept`` cross cuts and ``recomputed`` are recomputed in one segment. ``work``: the bytes of expensive results that are
    recomputed in all."""

    after: tuple[int, ...]
    kept: int
    recomputed: int
    work: int

    @property
    def total(self) -> int:
        """The most bytes that a gradient holds at a time."""
        return self.kept + self.recomputed


def cut(
    block: Block, budget: int, kept: Collection[Value], residuals: Mapping[Value, Residual], size: Callable[[Value], int]
) -> Cuts:
    """Return the set of cuts that recomputes least of those for which the gradient holds up to ``budget`` bytes at a time, or, if
    there is none, the one with fewest bytes. The values of ``kept`` are saved in any case; ``residuals`` are those of the
    gradient of the whole block; ``size`` returns the bytes of a value."""
    line = _Line(block, kept, residuals, size)
    candidates = [*line.candidates(budget), *map(line.equal, line.limits())]
    fitting = [c for c in candidates if c.total <= budget]
    if fitting:
        return min(fitting, key=lambda c: (c.work, c.total))
    best = min(candidates, key=lambda c: c.total)
    least = 0
    for _ in range(BISECTIONS):
        middle = (least + best.total) // 2
        candidate = min(line.candidates(middle), key=lambda c: c.total)
        if candidate.total < best.total:
            best = candidate
        else:
            least = middle
    return best


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of a block. ``reads``: the outer values that the parameters of ``block`` stand for; its results are values of the
    block."""

    reads: tuple[Value, ...]
    block: Block


def segments(block: Block, after: Sequence[int]) -> list[Segment]:
    """Return the parts of a block between cuts; their results are the values that later parts read."""
    last = _last_reads(block)
    parts = []
    for first, end in zip((0, *(k + 1 for k in after)), (*(k + 1 for k in after), len(block.instructions)), strict=True):
        inside = block.instructions[first:end]
        own = [v for i in inside for v in i.results]
        read = dict.fromkeys(v for i in inside for v in i.operands)
        for v in own:
            read.pop(v, None)
        names = {v: Value(v.type, v.name) for v in read}
        renamed = tuple(replace(i, operands=tuple(names.get(v, v) for v in i.operands)) for i in inside)
        results = tuple(v for v in own if last.get(v, -1) >= end)
        parts.append(Segment(reads=tuple(read), block=Block(tuple(names.values()), renamed, results)))
    return parts


def _last_reads(block: Block) -> dict[Value, int]:
    """Return, by value, the position of its last reader; for results the end of the block."""
    last = {v: k for k, i in enumerate(block.instructions) for v in i.operands}
    last.update((v, len(block.instructions)) for v in block.results)
    return last


@dataclass(frozen=True, kw_only=True)
class _Span:
    """A value of the block: the positions of its instruction and of its first and last readers, its bytes, and whether the
    gradient of a segment that ends before the first reader needs it."""

    value: Value
    defined: int
    first: int
    last: int
    bytes: int
    is_needed: bool


class _Line:
    """The instructions of a block, with the costs of cuts between them."""

    def __init__(
        self, block: Block, kept: Collection[Value], residuals: Mapping[Value, Residual], size: Callable[[Value], int]
    ) -> None:
        self.length = len(block.instructions)
        self.always = sum(map(size, kept))
        self.work = {k: [v for v in i.results if v not in kept] for k, i in enumerate(block.instructions) if is_work(i)}
        self.costs = {k: sum(map(size, values)) for k, values in self.work.items()}
        last, first = _last_reads(block), _first_reads(block)
        self.spans = [
            _Span(
                value=v,
                defined=k,
                first=first[v],
                last=last[v],
                bytes=size(v),
                is_needed=v in residuals and residuals[v].is_read_by_own_rule,
            )
            for k, i in enumerate(block.instructions)
            for v in i.results
            if v in last and v not in kept
        ]
        self.residuals: list[list[tuple[Value, int, int]]] = [[] for _ in block.instructions]
        """By position: residuals, their bytes, and the positions of their last readers."""
        for v, residual in residuals.items():
            if v not in kept:
                self.residuals[residual.position].append((v, residual.bytes, last.get(v, -1)))
        self.crossing = self._sums_of_crossing([(s.defined, s.last, s.bytes) for s in self.spans])
        """The bytes of the values that cross a cut after each instruction."""
        self.crossing_residuals = self._sums_of_crossing(
            [(k, end, n) for k, values in enumerate(self.residuals) for _, n, end in values if end > k]
        )
        needed = [(s.defined if s.is_needed else s.first, s.last, s.bytes) for s in self.spans]
        self.crossing_needed = self._sums_of_crossing([(start, end, n) for start, end, n in needed if start < end])
        """Of these values, the bytes of those that the gradient of the segment before the cut needs."""

    def _sums_of_crossing(self, spans: Sequence[tuple[int, int, int]]) -> list[int]:
        """Return, by position, the sum of the bytes of spans that begin there or before and end behind it."""
        steps = [0] * (self.length + 1)
        for start, end, byte_count in spans:
            steps[start] += byte_count
            steps[end] -= byte_count
        return list(accumulate(steps))

    def limits(self) -> list[int]:
        """Return the limits to try for the bytes of expensive results in a segment, ascending: those of about equal segments."""
        total, most = sum(self.costs.values()), len(self.costs)
        counts = {min(k, most) for k in range(1, SEGMENTS + 1)}
        k = float(SEGMENTS)
        while k < most:
            counts.add(int(k))
            k *= 2**0.25
        return [0, *(-(-total // k) for k in sorted(counts, reverse=True) if k), total]

    def equal(self, limit: int) -> Cuts:
        """Return the cuts into segments that recompute up to ``limit`` bytes of expensive results, or one op's. Each cut follows
        the expensive op in the second half of the segment that fewest bytes cross. The last op of a segment is not recomputed:
        its result crosses the cut."""
        after: list[int] = []
        before = 0
        fits: list[tuple[int, int]] = []
        positions = list(self.costs)
        start = k = 0
        while k < len(positions):
            if before <= limit or not fits:
                fits.append((positions[k], before))
                before += self.costs[positions[k]]
                k += 1
                continue
            position, _ = min((f for f in fits if 2 * f[1] >= fits[-1][1]), key=lambda f: (self.crossing[f[0]], -f[0]))
            after.append(position)
            start = k = bisect_left(positions, position, start) + 1
            before, fits = 0, []
        return self.with_bytes(after)

    def candidates(self, budget: int) -> Iterator[Cuts]:
        """Yield cuts into the longest segments that stay within a budget: cuts after expensive ops, and cuts anywhere."""
        yield self.with_bytes(self.longest(budget, sorted(self.costs)))
        yield self.with_bytes(self.longest(budget, range(self.length)))

    def longest(self, budget: int, positions: Sequence[int]) -> list[int]:
        """Return cuts at some of ``positions`` into the longest segments for which the gradient holds up to ``budget`` bytes.
        Each cut is the one in the second half of the longest segment that fewest bytes cross; a segment that exceeds the budget
        by itself ends at the first position."""
        after: list[int] = []
        kept, start = self.always, 0
        while start < self.length:
            fits = self._fitting(budget - kept, start, positions)
            if fits is None:
                break
            _, most = fits[-1]
            end = min((k for k, held in fits if 2 * held >= most), key=lambda k: (self.crossing[k], -k))
            after.append(end)
            kept += self.crossing[end] - self._crossing_before(start, end, self.crossing_spans(start))
            start = end + 1
        return after

    def crossing_spans(self, start: int) -> list[_Span]:
        """Return the values that cross a cut before an instruction."""
        return [s for s in self.spans if s.defined < start <= s.last] if start else []

    @staticmethod
    def _crossing_before(start: int, end: int, spans: Sequence[_Span]) -> int:
        """Return the bytes of the values defined before ``start`` that cross a cut after ``end``."""
        return sum(s.bytes for s in spans if s.last > end)

    def _fitting(self, room: int, start: int, positions: Sequence[int]) -> list[tuple[int, int]] | None:
        """Return the ends, of ``positions``, of segments from ``start`` for which the gradient holds up to ``room`` bytes more
        than the values that cross the cut before, with the bytes of the residuals inside; None if the rest of the block fits."""
        before = self.crossing_spans(start)
        names = {s.value for s in before}
        outer = [(n, end) for values in self.residuals[:start] for v, n, end in values if v in names]
        needed = [s for s in before if s.is_needed or s.first < self.length]
        fits: list[tuple[int, int]] = []
        held = 0
        k = bisect_left(positions, start)
        for end in range(start, self.length):
            held += sum(n for _, n, _ in self.residuals[end])
            inside = held - self.crossing_residuals[end] + sum(n for n, last in outer if last > end)
            if inside > room and fits:
                return fits
            if k < len(positions) and positions[k] == end:
                k += 1
                older = sum(s.bytes for s in needed if s.last > end and (s.is_needed or s.first <= end))
                if not fits or inside + self.crossing_needed[end] - older <= room:
                    fits.append((end, inside))
        return None if held <= room or not fits or fits[-1][0] == self.length - 1 else fits

    def with_bytes(self, after: Sequence[int]) -> Cuts:
        """Return cuts with the bytes that the gradient holds and recomputes."""
        after = [k for k in after if k < self.length - 1]
        count = len(after) + 1
        kept, inside = [0] * (count + 1), [0] * count
        crossing: set[Value] = set()
        for s in self.spans:
            segment = bisect_left(after, s.defined)
            if segment < len(after) and after[segment] < s.last:
                crossing.add(s.value)
                kept[segment + 1] += s.bytes
                if s.is_needed or s.first <= after[segment]:
                    inside[segment] += s.bytes
        for k, values in enumerate(self.residuals):
            inside[bisect_left(after, k)] += sum(n for v, n, _ in values if v not in crossing)
        before = list(accumulate(kept[:count]))
        k = max(range(count), key=lambda k: before[k] + inside[k])
        return Cuts(
            after=tuple(after),
            kept=self.always + before[k],
            recomputed=inside[k],
            work=sum(self.costs[k] for k, values in self.work.items() if crossing.isdisjoint(values)),
        )


def _first_reads(block: Block) -> dict[Value, int]:
    """Return, by value, the position of its first reader; for values that are results only the end of the block."""
    first = dict.fromkeys(block.results, len(block.instructions))
    first.update((v, k) for k, i in reversed([*enumerate(block.instructions)]) for v in i.operands)
    return first


def is_work(i: Instruction) -> bool:
    """Return whether the results of an instruction are arrays that are expensive to recompute."""
    return not isinstance(i.op, CHEAP) and all(isinstance(v.type, ArrayType) for v in i.results)
