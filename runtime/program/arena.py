"""Pack buffers into one block of memory, the arena, and into result buffers that are not filled yet.

Live ranges are intervals of a program's instructions. Buffers with overlapping live ranges do not overlap in memory. The
largest number of bytes live at once is a lower bound of the arena's size; several allocation orders are tried until one comes
near it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import inf

from pullback.ir.core.records import dataclass

ALIGNMENT = 64
"""The alignment of buffers in the arena, in bytes."""
GOOD_RATIO = 1.02
"""The ratio of an arena to its lower bound at which no further order is tried."""
SMALL_ARENA = 1 << 14
"""The size in bytes up to which an arena is not worth a search."""
MIN_BYTES = 16
"""The bytes that even an empty buffer must hold: LAPACK writes the required length of its work area."""
END = 1 << 62
"""The end of a live range that lasts until the end of the call."""
MAX_SEARCHED = 256
"""The largest number of buffers for which orders are searched, which takes quadratic time; with more, the first order is used."""


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer of ``bytes`` bytes, live from instruction ``first`` up to, but not including, ``last``."""

    first: int
    last: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ReusableBuffer:
    """A buffer of ``bytes`` bytes, such as a result, that may be reused for other data before instruction ``until``."""

    until: int
    bytes: int


@dataclass(frozen=True)
class Packing:
    """For each buffer, the index of its reusable buffer (None for the arena) and its offset. ``live_bytes``: the largest
    number of bytes live at once."""

    places: tuple[tuple[int | None, int], ...]
    arena_bytes: int
    live_bytes: int


def aligned_bytes(size: int) -> int:
    """Return the bytes that a buffer takes in the arena, at least one alignment unit."""
    return max(size, 1) + -max(size, 1) % ALIGNMENT


def pack(lives: Sequence[Life], rooms: Sequence[ReusableBuffer] = ()) -> Packing:
    """Return locations for buffers. Reusable buffers (``rooms``) are used only if that makes the arena smaller."""
    live = live_bytes(lives)
    best = _first_fit(lives)
    if best[1] > SMALL_ARENA and len(lives) <= MAX_SEARCHED:
        for reusable, bound in ((), live), (rooms, 0):
            for order in _ORDERS:
                if best[1] > GOOD_RATIO * bound:
                    best = min(best, _lowest_fit(lives, reusable, order), key=lambda candidate: candidate[1])
    return Packing(tuple(best[0]), best[1], live)


def live_bytes(lives: Sequence[Life]) -> int:
    """Return the largest number of bytes live at once, with each buffer's size aligned."""
    changes: dict[int, int] = {}
    for life in lives:
        changes[life.first] = changes.get(life.first, 0) + aligned_bytes(life.bytes)
        changes[life.last] = changes.get(life.last, 0) - aligned_bytes(life.bytes)
    current = most = 0
    for moment in sorted(changes):
        current += changes[moment]
        most = max(most, current)
    return most


def _by_start(life: Life) -> tuple[int, ...]:
    return (life.first,)


def _by_size(life: Life) -> tuple[int, ...]:
    return (-life.bytes, life.first)


def _by_length(life: Life) -> tuple[int, ...]:
    return (life.first - life.last, -life.bytes)


def _by_area(life: Life) -> tuple[int, ...]:
    return ((life.first - life.last) * life.bytes,)


Locations = tuple[list[tuple[int | None, int]], int]
"""The locations of buffers, and the arena's bytes."""

_ORDERS = (_by_start, _by_size, _by_length, _by_area)


def _first_fit(lives: Sequence[Life]) -> Locations:
    """Place each buffer, in the order of allocation, in the first gap. It takes near-linear time, so it is used for any count."""
    gaps: list[tuple[int, float]] = [(0, inf)]
    places: list[tuple[int | None, int]] = [(None, 0)] * len(lives)
    most = 0
    ends = [(life.last, 0, k) for k, life in enumerate(lives) if life.last != END]
    for _, is_start, k in sorted([*ends, *((life.first, 1, k) for k, life in enumerate(lives))]):
        size = aligned_bytes(lives[k].bytes)
        if not is_start:
            _free_gap(gaps, places[k][1], size)
            continue
        index = next(n for n, (start, end) in enumerate(gaps) if end - start >= size)
        start, end = gaps[index]
        gaps[index : index + 1] = [(start + size, end)] if end - start > size else []
        places[k] = None, start
        most = max(most, start + size)
    return places, most


def _free_gap(gaps: list[tuple[int, float]], start: int, size: int) -> None:
    """Turn a location into a gap again, merged with adjacent gaps. The last gap has no end."""
    end = float(start + size)
    first = last = bisect_left(gaps, (start, end))
    if gaps[last][0] == end:
        last, end = last + 1, gaps[last][1]
    if first and gaps[first - 1][1] == start:
        first, start = first - 1, gaps[first - 1][0]
    gaps[first:last] = [(start, end)]


def _lowest_fit(lives: Sequence[Life], rooms: Sequence[ReusableBuffer], order: Callable[[Life], tuple[int, ...]]) -> Locations:
    """Place buffers in this order, each at the lowest offset where it overlaps no live buffer; reusable buffers before the
    arena."""
    places: list[tuple[int | None, int]] = [(None, 0)] * len(lives)
    occupied: dict[int | None, list[tuple[int, int, Life]]] = {None: [], **{k: [] for k in range(len(rooms))}}
    smallest_first = sorted(range(len(rooms)), key=lambda k: rooms[k].bytes)
    most = 0
    for index in sorted(range(len(lives)), key=lambda k: order(lives[k])):
        life = lives[index]
        size = aligned_bytes(life.bytes)
        for k in smallest_first:
            if life.last <= rooms[k].until and life.bytes <= rooms[k].bytes:
                offset = _first_gap(occupied[k], life, size)
                if offset + max(life.bytes, MIN_BYTES) <= rooms[k].bytes:
                    places[index] = k, offset
                    break
        else:
            offset = _first_gap(occupied[None], life, size)
            places[index] = None, offset
            most = max(most, offset + size)
        occupied[places[index][0]].append((offset, offset + size, life))
    return places, most


def _first_gap(taken: Sequence[tuple[int, int, Life]], life: Life, size: int) -> int:
    """Return the lowest offset at which a buffer overlaps no other with an overlapping live range."""
    offset = 0
    overlapping = [(a, b) for a, b, other in taken if other.first < life.last and life.first < other.last]
    for start, end in sorted(overlapping):
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset
