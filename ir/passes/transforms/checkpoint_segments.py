"""Divide straight-line code into segments for a gradient with few residuals: a value that crosses a cut is saved, and the
inside of a segment is recomputed when the reverse pass reaches it. At any time the gradient holds the values at all cuts
and those of one segment.

``cut`` chooses the cuts for a budget of bytes. For ``n`` equal layers in ``k`` segments it holds about ``k + n / k`` layers at
a time, which is least at the square root of ``n`` (Chen et al., Training deep nets with sublinear memory cost, 2016). Each
instruction is recomputed at most once. Ops that are cheap to recompute are not counted: they fuse into their readers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.passes.transforms.residuals import CHEAP

SEGMENTS = 64
"""Every number of segments up to this one is tried; beyond it, the number grows by the fourth root of two per step, because
the sum of bytes changes little near its minimum."""


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """Cuts after the instructions at the positions ``after``, in order. ``kept``: bytes that cross cuts. ``recomputed``: most
    bytes that one segment recomputes."""

    after: tuple[int, ...]
    kept: int
    recomputed: int

    @property
    def total(self) -> int:
        """The bytes that a gradient holds at a time."""
        return self.kept + self.recomputed


def cut(block: Block, budget: int, kept: Collection[Value], size: Callable[[Value], int]) -> Cuts:
    """Return the largest set of cuts for which the gradient holds up to ``budget`` bytes of values of ``block`` at a time, or,
    if there is none, the one with fewest bytes. The values of ``kept`` are saved in any case; ``size`` returns the bytes of
    a value."""
    line = _Line(block, kept, size)
    best = line.cuts(sum(line.costs.values()))
    for limit in line.limits():
        candidate = line.cuts(limit)
        if candidate.total <= budget:
            return candidate
        best = min(best, candidate, key=lambda c: c.total)
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


class _Line:
    """The instructions of a block, with the costs of cuts between them."""

    def __init__(self, block: Block, kept: Collection[Value], size: Callable[[Value], int]) -> None:
        self.always = sum(map(size, kept))
        self.costs = {k: sum(size(v) for v in i.results if v not in kept) for k, i in enumerate(block.instructions) if is_work(i)}
        last = _last_reads(block)
        self.spans = [
            (k, last[v], size(v)) for k, i in enumerate(block.instructions) for v in i.results if v in last and v not in kept
        ]
        steps = [0] * (len(block.instructions) + 1)
        for defined, read, byte_count in self.spans:
            steps[defined] += byte_count
            steps[read] -= byte_count
        self.crossing = list(accumulate(steps))
        """The bytes of the values that cross a cut after each instruction."""

    def limits(self) -> list[int]:
        """Return the limits to try for the bytes that a segment recomputes, ascending: those of about equal segments."""
        total, most = sum(self.costs.values()), len(self.costs)
        counts = {min(k, most) for k in range(1, SEGMENTS + 1)}
        k = float(SEGMENTS)
        while k < most:
            counts.add(int(k))
            k *= 2**0.25
        return [0, *(-(-total // k) for k in sorted(counts, reverse=True) if k)]

    def cuts(self, limit: int) -> Cuts:
        """Return the cuts into segments that recompute up to ``limit`` bytes, or one op's. Each cut follows the op in the
        second half of the segment that fewest bytes cross. The last op of a segment is not recomputed: its result crosses
        the cut."""
        after: list[int] = []
        most = before = 0
        fits: list[tuple[int, int]] = []
        positions = list(self.costs)
        start = k = 0
        while k < len(positions):
            if before <= limit or not fits:
                fits.append((positions[k], before))
                before += self.costs[positions[k]]
                k += 1
                continue
            position, recomputed = min((f for f in fits if 2 * f[1] >= fits[-1][1]), key=lambda f: (self.crossing[f[0]], -f[0]))
            after.append(position)
            most = max(most, recomputed)
            start = k = bisect_left(positions, position, start) + 1
            before, fits = 0, []
        return Cuts(after=tuple(after), kept=self.always + self._kept(after), recomputed=max(most, before))

    def _kept(self, after: Sequence[int]) -> int:
        """Return the bytes of the values that cross at least one of the cuts."""
        total = 0
        for defined, read, byte_count in self.spans:
            k = bisect_left(after, defined)
            total += byte_count if k < len(after) and after[k] < read else 0
        return total


def is_work(i: Instruction) -> bool:
    """Return whether the results of an instruction are arrays that are expensive to recompute."""
    return not isinstance(i.op, CHEAP) and all(isinstance(v.type, ArrayType) for v in i.results)
