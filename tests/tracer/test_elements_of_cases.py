"""Lists whose elements are None, or one of a few texts, on some paths, at indices that values decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import Array

NUMBERS = np.random.default_rng(3).normal(size=80)
KEYS = np.random.default_rng(4).integers(0, 8, 80)


def last_positions(x: Array, k: Array) -> Any:
    last: list[Any] = [None] * 10
    for i in range(len(k)):
        last[k[i]] = i
    return last, [p for p in last if p is not None], last.count(None), None in last


def first_positions(x: Array, k: Array) -> Any:
    first: list[Any] = [None] * 10
    for i in range(len(k)):
        if first[k[i]] is None:
            first[k[i]] = i
    total = 0
    for p in first:
        if p is not None:
            total += p
    return total


def least(x: Array, k: Array) -> Any:
    best: list[Any] = [None] * 10
    for i in range(len(x)):
        if best[k[i]] is None or x[i] < best[k[i]]:
            best[k[i]] = x[i]
    return sum(b * b for b in best if b is not None)


def removed(x: Array, k: Array) -> Any:
    kept: list[Any] = [None] * 8
    for i in range(len(x)):
        if x[i] > 0.8:
            kept[k[i]] = None
        else:
            kept[k[i]] = (x[i], i)
    return [None if p is None else p[0] * p[1] for p in kept]


def gaps(x: Array, k: Array) -> Any:
    last: list[Any] = [None] * 8
    widths = []
    for i in range(len(k)):
        before = last[k[i]]
        if before is not None:
            widths.append(i - before)
        last[k[i]] = i
    return widths


def states(x: Array, k: Array) -> Any:
    state = ["open"] * 8
    for i in range(len(x)):
        if state[k[i]] == "open" and x[i] > 0.5:
            state[k[i]] = "closed"
        elif state[k[i]] == "closed" and x[i] < -0.5:
            state[k[i]] = "dead"
    return state, state.count("dead")


def appended(x: Array, k: Array) -> Any:
    out = []
    for v in x:
        out.append(v if v > 0 else None)
    return out, sum(1 for o in out if o is None), [None if v < 0.5 else v for v in x]


def tree(x: Array, k: Array) -> Any:
    left: list[Any] = [None] * len(x)
    right: list[Any] = [None] * len(x)
    for i in range(1, len(x)):
        u = 0
        while True:
            if x[i] < x[u]:
                if left[u] is None:
                    left[u] = i
                    break
                u = left[u]
            else:
                if right[u] is None:
                    right[u] = i
                    break
                u = right[u]
    return left, right


def distances(x: Array, k: Array) -> Any:
    near = np.abs(x[:20, None] - x[20:40]) < 0.25
    distance: list[Any] = [None] * 20
    distance[0], queue = 0, [0]
    while queue:
        u = queue.pop(0)
        for v in range(20):
            if near[u, v] and distance[v] is None:
                distance[v] = distance[u] + 1
                queue.append(v)
    return distance


FUNCTIONS: list[Callable[..., Any]] = [
    last_positions, first_positions, least, removed, gaps, states, appended, tree, distances
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_one_program_serves_all_values(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for x, k in ((NUMBERS, KEYS), (-NUMBERS, KEYS[::-1].copy()), (NUMBERS[::-1].copy(), KEYS // 4)):
        assert repr(compiled(x, k)) == repr(function(x, k))


def test_gradients_and_batches() -> None:
    slope = pb.grad(pb.jit(least, guards=False))(NUMBERS, KEYS)
    ends = [np.min(NUMBERS[k == KEYS]) for k in range(8)]
    np.testing.assert_allclose(slope, np.where(np.isin(NUMBERS, ends), 2 * NUMBERS, 0.0), rtol=1e-14)
    rows = np.stack([NUMBERS, -NUMBERS])
    by_row = pb.vmap(pb.jit(least, guards=False), in_axes=(0, None))(rows, KEYS)
    np.testing.assert_allclose(by_row, [least(r, KEYS) for r in rows], rtol=1e-14)


def test_an_operation_on_none_raises_at_run_time() -> None:
    def added(x: Array, k: Array) -> Any:
        seen: list[Any] = [None] * 8
        total = 0.0
        for i in range(len(x)):
            if x[i] > 0:
                seen[k[i]] = x[i]
            else:
                total = total + seen[k[i]]
        return total

    compiled = pb.jit(added, guards=False)
    x = np.where(np.arange(80) < 40, np.abs(NUMBERS), NUMBERS)
    assert compiled(x, KEYS // 4) == added(x, KEYS // 4)
    with pytest.raises(TypeError, match="NoneType"):
        compiled(-x, KEYS // 4)
    with pytest.raises(TypeError, match="list indices must be integers or slices, not NoneType"):
        pb.jit(chained, guards=False)(np.array([3.0, 1.0]), KEYS)
    assert pb.jit(chained, guards=False)(np.array([2.0, 1.0]), KEYS) == chained(np.array([2.0, 1.0]), KEYS)


def chained(x: Array, k: Array) -> Any:
    following: list[Any] = [None] * 60
    for i in range(int(x[1]), 50, 2):
        following[i] = i + 2
    u: Any = int(x[1])
    for _ in range(int(x[0] * 10)):
        u = following[u]
    return u


@pytest.mark.long
def test_a_write_that_is_lost_in_a_copy_raises_no_other_error() -> None:
    """Elements of lists of lists are copies in one way of tracing, which is given up; what else fails in it is no error."""

    def greatest(a: Array, n: int) -> Any:
        table = [[0.0] * n for _ in range(n)]
        for i in range(n):
            for j in range(n):
                table[i][j] = a[i] * a[j]
        return max([v for row in table for v in row if v > 0])

    assert pb.jit(greatest)(NUMBERS, 20) == greatest(NUMBERS, 20)
