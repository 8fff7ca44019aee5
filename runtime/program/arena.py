"""Packing: where buffers lie in one block of memory, the arena, and in memory of results that is not filled yet.

Lives are intervals of a program's instructions. No two buffers that live at once overlap. The most bytes that live at once are a
lower bound of what the arena takes; orders in which buffers get their places are tried until one comes near it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

ALIGNMENT = 64
NEAR = 1.02
"""An arena this near to its lower bound is good enough."""
SMALL_ARENA = 1 << 14
"""An arena of so many bytes is not worth a search."""
LEAST = 16
"""What an empty buffer must hold all the same: LAPACK writes how long its work area should be."""
END = 1 << 62
"""The last of a life that ends with the call."""
MOST_SEARCHED = 256
"""With more buffers than this, the first order is taken: a search takes the square of the count."""


@dataclass(frozen=True, slots=True)
class Life:
    """A buffer of so many bytes that is there from instruction ``first`` up to and without ``last``."""

    first: int
    last: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Room:
    """So many bytes that may be used for anything before instruction ``until``."""

    until: int
    bytes: int


@dataclass(frozen=True)
class Packing:
    """For each buffer its room, None for the arena, and its offset there. ``live_bytes``: the most that live at once."""

    places: tuple[tuple[int | None, int], ...]
    arena_bytes: int
    live_bytes: int


def place_bytes(size: int) -> int:
    """The bytes that a buffer takes in the arena; an empty one has a place too."""
    return max(size, 1) + -max(size, 1) % ALIGNMENT


def pack(lives: Sequence[Life], rooms: Sequence[Room] = ()) -> Packing:
    """Places for buffers. Those in rooms are there because the arena is smaller for it."""
    live = live_bytes(lives)
    best = _as_they_come(lives)
    if best[1] > SMALL_ARENA and len(lives) <= MOST_SEARCHED:
        for given, bound in ((), live), (rooms, 0):
            for order in _ORDERS:
                if best[1] > NEAR * bound:
                    best = min(best, _placed(lives, given, order), key=lambda found: found[1])
    return Packing(tuple(best[0]), best[1], live)


def live_bytes(lives: Sequence[Life]) -> int:
    """The most bytes that live at once, each buffer with its place."""
    changes: dict[int, int] = {}
    for life in lives:
        changes[life.first] = changes.get(life.first, 0) + place_bytes(life.bytes)
        changes[life.last] = changes.get(life.last, 0) - place_bytes(life.bytes)
    now = most = 0
    for moment in sorted(changes):
        now += changes[moment]
        most = max(most, now)
    return most


def _by_start(life: Life) -> tuple[int, ...]:
    return (life.first,)


def _by_size(life: Life) -> tuple[int, ...]:
    return (-life.bytes, life.first)


def _by_length(life: Life) -> tuple[int, ...]:
    return (life.first - life.last, -life.bytes)


def _by_area(life: Life) -> tuple[int, ...]:
    return ((life.first - life.last) * life.bytes,)


Placed = tuple[list[tuple[int | None, int]], int]
"""The places of buffers, and the arena's bytes."""

_ORDERS = (_by_start, _by_size, _by_length, _by_area)


def _as_they_come(lives: Sequence[Life]) -> Placed:
    """Each buffer takes the first gap there is when it is made. For any count: in time, near-linear."""
    gaps: list[tuple[int, float]] = [(0, inf)]
    places: list[tuple[int | None, int]] = [(None, 0)] * len(lives)
    most = 0
    ends = [(life.last, 0, k) for k, life in enumerate(lives) if life.last != END]
    for _, is_start, k in sorted([*ends, *((life.first, 1, k) for k, life in enumerate(lives))]):
        size = place_bytes(lives[k].bytes)
        if not is_start:
            _give_back(gaps, places[k][1], size)
            continue
        number = next(n for n, (start, end) in enumerate(gaps) if end - start >= size)
        start, end = gaps[number]
        gaps[number : number + 1] = [(start + size, end)] if end - start > size else []
        places[k] = None, start
        most = max(most, start + size)
    return places, most


def _give_back(gaps: list[tuple[int, float]], start: int, size: int) -> None:
    """A place is a gap again, one with those beside it. The last gap has no end."""
    end = float(start + size)
    first = last = bisect_left(gaps, (start, end))
    if gaps[last][0] == end:
        last, end = last + 1, gaps[last][1]
    if first and gaps[first - 1][1] == start:
        first, start = first - 1, gaps[first - 1][0]
    gaps[first:last] = [(start, end)]


def _placed(lives: Sequence[Life], rooms: Sequence[Room], order: Callable[[Life], tuple[int, ...]]) -> Placed:
    """Buffers take, one after another, the lowest place where they meet no other; one in a room before one in the arena."""
    places: list[tuple[int | None, int]] = [(None, 0)] * len(lives)
    there: dict[int | None, list[tuple[int, int, Life]]] = {None: [], **{k: [] for k in range(len(rooms))}}
    smallest_first = sorted(range(len(rooms)), key=lambda k: rooms[k].bytes)
    most = 0
    for number in sorted(range(len(lives)), key=lambda k: order(lives[k])):
        life = lives[number]
        size = place_bytes(life.bytes)
        for k in smallest_first:
            if life.last <= rooms[k].until and life.bytes <= rooms[k].bytes:
                offset = _first_gap(there[k], life, size)
                if offset + max(life.bytes, LEAST) <= rooms[k].bytes:
                    places[number] = k, offset
                    break
        else:
            offset = _first_gap(there[None], life, size)
            places[number] = None, offset
            most = max(most, offset + size)
        there[places[number][0]].append((offset, offset + size, life))
    return places, most


def _first_gap(taken: Sequence[tuple[int, int, Life]], life: Life, size: int) -> int:
    """The lowest offset at which a buffer meets no other that lives while it does."""
    offset = 0
    beside = [(a, b) for a, b, other in taken if other.first < life.last and life.first < other.last]
    for start, end in sorted(beside):
        if start - offset >= size:
            break
        offset = max(offset, end)
    return offset
