"""Loops over arrays whose lengths values decide, loops of computed length that are left, and branches on such arrays."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def rows(x: Any) -> Any:
    total = 0.0
    for k in np.where(x > 0.5)[0]:
        total += x[k] * k
    return total


def selected(x: Any) -> Any:
    total = 0.0
    for v in x[x > 0.3]:
        if v > 0.95:
            break
        total = 0.5 * total + v
    return total


def pairs(x: Any) -> Any:
    high, low = np.flatnonzero(x > 0.5), np.flatnonzero(x < 0.4)
    total = 0.0
    for i, j in zip(high, low):
        total += x[i] * x[j]
    for n, i in enumerate(high):
        total += n * x[i]
    for i in reversed(low):
        total = 0.9 * total + x[i]
    return total


def negated(x: Any) -> Any:
    grid = x[:6].reshape(2, 3) * 1.0
    for place in np.argwhere(grid > 0.5):
        grid[place[0], place[1]] *= -1.0
    return np.sum(grid * np.arange(6.0).reshape(2, 3))


def runs(x: Any) -> Any:
    y = x * 1.0
    starts = np.nonzero(np.diff(x) > 0.3)[0]
    for start in starts:
        y[start : start + 2] *= 0.5
    return np.sum(y * y)


def first(x: Any) -> Any:
    for k in range(np.sum(x > 0.5)):
        if x[k] > 0.9:
            return x[k] * k
    else:
        return -x[0]


def until(x: Any) -> Any:
    total = 0.0
    for k in range(np.sum(x > 0.2)):
        if x[k] > 0.97:
            break
        total += x[k]
    else:
        total *= 2.0
    return total


def strict_pairs(x: Any) -> Any:
    high = np.nonzero(x.reshape(5, 8) > 0.5)
    if len(high[0]) == 0:
        return -1.0
    total = 0.0
    for i, j in zip(*high, strict=True):
        total += x[8 * i + j] * j
    return total


def grown_after_the_first(x: Any) -> Any:
    best = None
    for k in range(len(x)):
        if x[k] > 0.5 and best is None:
            best = k
    return (2 * max(best, 1) + min(best, 7)) * x[0] if best is not None else x[1]


def correlated(x: Any) -> Any:
    total = 0.0
    for k in np.flatnonzero(x[:3] > 0.1):
        n = int(k) + 2
        total += np.corrcoef(x[n:], x[: len(x) - n])[0, 1] + np.cov(x[n:]) + np.average(x[n:], weights=x[: len(x) - n] + 0.1)
    return total


def of_builtins(x: Any) -> Any:
    high = np.flatnonzero(x > 0.5)
    if len(high) > 0:
        if any(x[high] > 0.95) and not all(x[high] > 0.9):
            return max(x[high]) - min(x[x > 0.5]) + sum(x[high])
    return x[0]


def list_of_a_part(x: Any) -> Any:
    high = list(x[x > 0.5])
    high.append(x[0])
    total = 0.0
    while high:
        total = 0.5 * total + high.pop()
    return total


PROGRAMS = [
    rows, selected, pairs, negated, runs, first, until, strict_pairs, grown_after_the_first, correlated, of_builtins,
    list_of_a_part,
]  # fmt: skip


@pytest.mark.parametrize("scale", [0.0, 0.4, 1.0, 2.0])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program: Callable[..., Any], scale: float) -> None:
    x = scale * np.random.default_rng(1).uniform(size=40)
    assert pb.jit(program, guards=False)(x) == pytest.approx(program(x), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("program", PROGRAMS)
def test_one_trace_for_all_lengths(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(size=40)
        assert compiled(x) == pytest.approx(program(x), rel=1e-12)


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients(program: Callable[..., Any]) -> None:
    rng = np.random.default_rng(2)
    x, direction = rng.uniform(size=40), rng.normal(size=40)
    slope = (program(x + 1e-7 * direction) - program(x - 1e-7 * direction)) / 2e-7
    with warnings.catch_warnings(action="error", category=pb.RetraceWarning):
        gradient = pb.grad(program)(x)
    assert np.sum(gradient * direction) == pytest.approx(slope, rel=1e-5, abs=1e-7)


def search(x: Any, level: float) -> Any:
    k = 0
    while k < len(x):
        if x[k] > level:
            return k, x[k]
        k += 1
    else:
        k = -5
    return k, 0.0


def test_return_and_else() -> None:
    x = np.linspace(0.0, 1.0, 11)
    compiled = pb.jit(search, guards=False)
    for level in (-1.0, 0.55, 2.0):
        assert compiled(x, level) == search(x, level)


def bounds(x: Any) -> Any:
    ends, starts = np.where(x > 0.5)[0], np.where(x < 0.2)[0]
    if ends[0] < starts[0]:
        starts = np.insert(starts, 0, 0)
    if ends[-1] < starts[-1]:
        ends = np.append(ends, 7)
    return np.sum(ends), np.sum(starts)


def test_followed_branches_between_arrays_of_other_lengths() -> None:
    compiled = pb.jit(bounds)
    for seed in range(4):
        x = np.random.default_rng(seed).uniform(size=30)
        with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
            assert compiled(x) == bounds(x)


def iterated(matrix: Any, right: Any) -> Any:
    n = matrix.shape[0]
    table = np.concatenate((matrix, right), axis=1)
    masks = ~np.eye(n, dtype=bool)
    others = matrix[masks].reshape(-1, n - 1)
    columns = np.where(masks)[1].reshape(-1, n - 1)
    x = [0.5] * n
    last = table[:, -1]
    for _ in range(80):
        x = (last - np.sum(others * np.take(x, columns), axis=1)) / np.diag(matrix)
    return sum(x.tolist())


@pytest.mark.long
def test_a_small_buffer_has_a_view_whose_length_is_by_value() -> None:
    rng = np.random.default_rng(6)
    matrix, right = rng.uniform(size=(6, 6)) + 10 * np.eye(6), rng.normal(size=(6, 1))
    direction = rng.normal(size=(6, 6))
    slope = (iterated(matrix + 1e-6 * direction, right) - iterated(matrix - 1e-6 * direction, right)) / 2e-6
    assert np.sum(pb.grad(iterated)(matrix, right) * direction) == pytest.approx(slope, rel=1e-6)


def test_a_carried_array_is_replaced_by_one_with_an_extent_of_the_body() -> None:
    def turned(x: Any, n: Any) -> Any:
        a, s, i = np.zeros(int(n)) + x[0], 0.0, 0
        while s < 20.0:
            m = int(np.minimum(i + 1, int(n)))
            a = np.concatenate([a[m:] + 1, a[:m]]).reshape(a.shape)
            s, i = s + a[0] + 1, i + 1
        return np.sum(a), s

    compiled, x = pb.jit(turned, guards=False), np.array([1.0])
    for n in (4.0, 100_000.0, 2_000_000.0):
        assert compiled(x, n) == turned(x, n)


def test_truth_of_an_array_of_one_element() -> None:
    def nearest(x: Any) -> Any:
        total = 0.0
        for n in range(len(x)):
            selected = np.abs(x - x[n]) < 0.01
            if selected.sum() == 1:
                offset = x[selected] - 0.5
                total += offset[0] if offset < 0 else offset[0] * 3.0
        return total

    def largest(x: Any) -> Any:
        return 1.0 if x[x > 2.0] > 2.5 else 2.0

    x = np.random.default_rng(0).uniform(size=80)
    compiled = pb.jit(nearest, guards=False)
    np.testing.assert_allclose(compiled(x), nearest(x), rtol=1e-13)
    assert compiled.explain(x).statements[0].how.startswith("rolled")
    compiled = pb.jit(largest, guards=False)
    for y in (np.array([1.0, 3.0]), np.array([2.2, 1.0]), np.zeros(2), np.full(2, 3.0)):
        try:
            expected = largest(y)
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error).split("(")[0][:40]):
                compiled(y)
        else:
            assert compiled(y) == expected


def matched(x: Any) -> Any:
    order, free = np.argsort(-x), list(np.nonzero(x > 0.2)[0])
    owners = np.full(x.size, -1)
    for i in order:
        if not free:
            break
        distances = np.abs(x[i] - 1.1 * x[free])
        k = np.argmin(distances)
        if distances[k] < 0.1:
            owners[free[k]] = i
            free.pop(k)
    return owners


def intervals(x: Any) -> Any:
    starts, ends = deque([0]), deque([-1])
    starts.extend(np.flatnonzero(x > 0.6).tolist())
    ends.extend((np.flatnonzero(x > 0.4) + 1).tolist())
    ends.append(len(x))
    result = []
    while starts[-1] > ends[0]:
        while starts[0] <= ends[0]:
            starts.popleft()
        while ends[0] < starts[0]:
            ends.popleft()
        result.append([starts[0], ends[0]])
    return np.array(result)


def numbers(x: Any) -> Any:
    values = x[x > 0.5].tolist()
    values.append(0.5)
    total = 0.0
    for v in values:
        total = total * 0.5 + v
    return total, len(values)


@pytest.mark.parametrize("program", [matched, intervals, numbers])
def test_lists_of_the_elements_of_arrays_by_value(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for seed in range(3):
        x = np.random.default_rng(seed).uniform(size=60)
        result, expected = compiled(x), program(x)
        assert np.shape(result) == np.shape(expected)
        np.testing.assert_allclose(result, expected, rtol=1e-13)


def two_under_a_condition(p: float, k: int) -> Any:
    every, some = [], []
    for _ in range(2):
        w = 0
        while p != 0.5 and w < 5:
            w += 1
            if k == 2:
                some.append(p)
            every.append(p * w)
    return some, every


def one_is_read(p: float, k: int) -> Any:
    total, read, other = 0.0, [0.5], [0.5, 0.5]
    if k > 1:
        read.append(p * 2.0)
    w = 0
    while total < 40.0 and w < 4:
        w += 1
        other.append(1.0)
        read.append(p * 2.0)
        total += read[-1] * 0.25
    return total, read, other


@pytest.mark.parametrize("function", [two_under_a_condition, one_is_read])
def test_several_lists_get_room_in_loops_without_a_bound(function: Any) -> None:
    compiled = pb.jit(function, guards=False)
    for arguments in ((0.25, 3), (0.75, 2), (0.5, 2), (1.5, 1), (2.5, 2)):
        assert compiled(*arguments) == function(*arguments)
