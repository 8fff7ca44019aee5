"""The offsets of buffers: disjoint from all that are live with them, and in little more memory than is live at once."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import pullback as pb
from benchmarks.case import Case
from benchmarks.cases import CASES
from pullback.inspection.provenance import dissect
from pullback.runtime.program.arena import (
    END,
    MIN_BYTES,
    SMALL_ARENA,
    Life,
    Packing,
    ReusableBuffer,
    aligned_bytes,
    live_bytes,
    pack,
)
from pullback.runtime.program.plan import Plan


def lives_of(seed: int, count: int, most: float = 6) -> list[Life]:
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(count):
        first = int(rng.integers(2 * count))
        last = END if rng.random() < 0.05 else first + 1 + int(rng.exponential(10))
        result.append(Life(first, last, int(10 ** rng.uniform(0, most)) if rng.random() < 0.95 else 0))
    return result


def check(lives: list[Life], rooms: list[ReusableBuffer], packing: Packing) -> None:
    assert packing.live_bytes == live_bytes(lives)
    spans = []
    for life, (room, offset) in zip(lives, packing.places, strict=True):
        assert offset >= 0 and offset % 64 == 0
        if room is None:
            assert offset + aligned_bytes(life.bytes) <= packing.arena_bytes
        else:
            assert life.last <= rooms[room].until and offset + max(life.bytes, MIN_BYTES) <= rooms[room].bytes
        spans.append((life, room, offset, offset + max(life.bytes, MIN_BYTES)))
    for (a, room_a, start_a, end_a), (b, room_b, start_b, end_b) in combinations(spans, 2):
        if room_a == room_b and a.first < b.last and b.first < a.last:
            assert end_a <= start_b or end_b <= start_a


@pytest.mark.parametrize("seed", range(40))
def test_what_lives_at_once_lies_apart(seed: int) -> None:
    lives = lives_of(seed, 3 + 2 * seed)
    rng = np.random.default_rng(seed)
    rooms = [ReusableBuffer(int(rng.integers(4 * len(lives))), int(10 ** rng.uniform(4, 6))) for _ in range(seed % 4)]
    check(lives, rooms, pack(lives, rooms))
    check(lives, [], pack(lives))
    assert pack(lives, rooms).arena_bytes <= pack(lives).arena_bytes


def test_many_buffers_take_the_first_gaps() -> None:
    lives = lives_of(0, 1200, most=4)
    check(lives, [], pack(lives))


def test_the_order_of_places_is_searched() -> None:
    """A large buffer that comes when small ones have taken both ends of a gap too small for it."""
    k = 1 << 14
    lives = [Life(0, 2, 2 * k), Life(1, 9, k), Life(3, 9, k // 2), Life(4, 6, 2 * k), Life(7, 9, 2 * k + k // 2)]
    packing = pack(lives)
    check(lives, [], packing)
    assert packing.arena_bytes == packing.live_bytes


def test_a_result_is_a_room_until_it_is_filled() -> None:
    size = 2 * SMALL_ARENA
    lives = [Life(0, 3, size), Life(2, 5, size)]
    assert pack(lives, [ReusableBuffer(4, size)]).places == ((0, 0), (None, 0))
    assert pack(lives, [ReusableBuffer(4, size - 1)]).arena_bytes == 2 * size


def test_what_is_written_into_empty_buffers_stays_inside() -> None:
    """LAPACK writes a number into the work area of an empty matrix."""
    size = 2 * SMALL_ARENA
    lives, rooms = [Life(0, 3, size), Life(0, 3, 0), Life(0, 3, 5 * size), Life(0, 3, 0)], [ReusableBuffer(3, size)]
    check(lives, rooms, pack(lives, rooms))


NAMES = ("mlp/grad-b32", "mlp/adam-b32", "cnn/grad-b128", "lstm/grad-T64", "heat/grad-512-100", "gmm/grad-d10k25n1000")
PROGRAMS = {name: case for case in CASES if (name := f"{case.workload}/{case.name}") in NAMES}


@pytest.mark.parametrize("case", PROGRAMS.values(), ids=PROGRAMS)
def test_arenas_of_the_benchmarks_are_near_what_lives_at_once(case: Case) -> None:
    function = pb.value_and_grad(case.function, argnums=case.wanted) if case.wanted else pb.jit(case.function)
    anatomy = dissect(function.examine(case.make("float64", **case.sizes), {}))
    assert anatomy is not None
    places = Plan(anatomy.program).placement(anatomy.sizes)
    assert places.arena_bytes <= 1.05 * places.live_bytes


def test_trim_gives_arenas_back() -> None:
    f = pb.jit(lambda x: np.sort(np.sort(x, axis=0) @ x, axis=1))
    x = np.ones((9, 9))
    f(x)
    entries = [e for variants in f._entries.by_key.values() for e in variants]
    program = entries[0].program
    assert program.instance is not None and program.instance.arena_bytes and program.instance.frames
    pb.trim()
    assert not program.instance.frames
    np.testing.assert_allclose(f(x), 9)
