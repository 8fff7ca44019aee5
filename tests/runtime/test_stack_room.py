"""Compilations have room for the frames of their calls, however deep their caller is."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest

from pullback.runtime.process.stack_room import with_reserved_stack

CALLS, DEPTHS = 300, 400


def leaf(a: int, b: int, c: int) -> int:
    return a + b + c


def calls() -> int:
    """How many page faults some calls have."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for k in range(CALLS):
        leaf(k, k, k)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def nested(depth: int, do: Callable[[], int]) -> int:
    return nested(depth - 1, do) if depth else do()


def test_calls_map_no_memory() -> None:
    def most() -> int:
        return max(nested(depth, calls) for depth in range(DEPTHS))

    for depth in range(0, 40, 5):
        assert nested(depth, lambda: with_reserved_stack(most)) < CALLS


def test_it_gives_what_the_function_gives() -> None:
    assert with_reserved_stack(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        with_reserved_stack(lambda: 1 // 0)
