"""Divides a straight line of instructions into segments for a gradient that keeps few values: a value that crosses a cut is kept,
and what is inside a segment is computed again when the reverse reaches it. At any time the gradient holds the values at all
cuts and those of one segment.

``cut`` chooses the cuts for a budget of bytes. Of ``n`` equal layers in ``k`` segments it has about ``k + n / k`` at a time,
which is least at the square root of ``n`` (Chen et al., Training deep nets with sublinear memory cost, 2016). Each instruction
runs at most once more. Ops that are cheap to run again are not counted: they fuse into their readers.
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
"""Numbers of segments up to which each is tried. Larger ones grow by the fourth root of two: near its least value the sum of
bytes changes little."""


@dataclass(frozen=True, kw_only=True)
class Cuts:
    """``after``: the positions of the instructions after which there is a cut, in order. ``kept``: bytes that cross cuts.
    ``again``: the most bytes that one segment computes again."""

    after: tuple[int, ...]
    kept: int
    again: int

    @property
    def total(self) -> int:
        """Bytes that a gradient has at a time."""
        return self.kept + self.again


def cut(block: Block, budget: int, kept: Collection[Value], size: Callable[[Value], int]) -> Cuts:
    """Return the most cuts with which the values of ``block`` that a gradient has at a time take up to ``budget`` bytes, or, if
    there are none, those with which they take least. The values of ``kept`` are kept in any case; ``size`` gives the bytes of a
    value."""
    line = _Line(block, kept, size)
    best = line.cuts(sum(line.dear.values()))
    for limit in line.limits():
        found = line.cuts(limit)
        if found.total <= budget:
            return found
        best = min(best, found, key=lambda c: c.total)
    return best


@dataclass(frozen=True, kw_only=True)
class Segment:
    """``reads``: the values of the line that the parameters of ``block`` stand for; the results are values of the line."""

    reads: tuple[Value, ...]
    block: Block


def segments(block: Block, after: Sequence[int]) -> list[Segment]:
    """Return the parts of a block between cuts; the results of each are those of its values that are read behind it."""
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
    """Return by value the position of the last instruction that reads it, the end of the block for results."""
    last = {v: k for k, i in enumerate(block.instructions) for v in i.operands}
    last.update((v, len(block.instructions)) for v in block.results)
    return last


class _Line:
    """The instructions of a block with what cuts among them cost."""

    def __init__(self, block: Block, kept: Collection[Value], size: Callable[[Value], int]) -> None:
        self.always = sum(map(size, kept))
        self.dear = {k: sum(size(v) for v in i.results if v not in kept) for k, i in enumerate(block.instructions) if is_dear(i)}
        last = _last_reads(block)
        self.spans = [
            (k, last[v], size(v)) for k, i in enumerate(block.instructions) for v in i.results if v in last and v not in kept
        ]
        steps = [0] * (len(block.instructions) + 1)
        for defined, read, number in self.spans:
            steps[defined] += number
            steps[read] -= number
        self.crossing = list(accumulate(steps))
        """The bytes of the values that cross a cut after each instruction."""

    def limits(self) -> list[int]:
        """Return the bytes that segments may compute again, from few to many: those of about equal parts of the line."""
        total, most = sum(self.dear.values()), len(self.dear)
        counts = {min(k, most) for k in range(1, SEGMENTS + 1)}
        k = float(SEGMENTS)
        while k < most:
            counts.add(int(k))
            k *= 2**0.25
        return [0, *(-(-total // k) for k in sorted(counts, reverse=True) if k)]

    def cuts(self, limit: int) -> Cuts:
        """Return the cuts into segments that compute up to ``limit`` bytes again, or one op's: each after the op of the segment's
        second half that fewest bytes cross. The last op of a segment is not computed again: its result crosses the cut."""
        after: list[int] = []
        most = before = 0
        fits: list[tuple[int, int]] = []
        rest = list(self.dear)
        start = k = 0
        while k < len(rest):
            if before <= limit or not fits:
                fits.append((rest[k], before))
                before += self.dear[rest[k]]
                k += 1
                continue
            place, again = min((f for f in fits if 2 * f[1] >= fits[-1][1]), key=lambda f: (self.crossing[f[0]], -f[0]))
            after.append(place)
            most = max(most, again)
            start = k = bisect_left(rest, place, start) + 1
            before, fits = 0, []
        return Cuts(after=tuple(after), kept=self.always + self._kept(after), again=max(most, before))

    def _kept(self, after: Sequence[int]) -> int:
        """Return the bytes of the values that cross at least one of the cuts."""
        total = 0
        for defined, read, number in self.spans:
            k = bisect_left(after, defined)
            total += number if k < len(after) and after[k] < read else 0
        return total


def is_dear(i: Instruction) -> bool:
    """Return whether the results of an instruction are arrays that are not cheap to compute again."""
    return not isinstance(i.op, CHEAP) and all(isinstance(v.type, ArrayType) for v in i.results)
