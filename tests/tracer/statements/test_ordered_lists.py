"""Lists that are sorted and searched as values decide: their order, keys, equal elements, membership."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def plain(x: Any) -> Any:
    y = list(x)
    y.sort(reverse=True)
    s = sorted(x)
    return 3 * s[0] + y[0] + s[2]


def by_keys(x: Any) -> Any:
    s = sorted(x, key=lambda v: -v)
    order = sorted(range(len(x)), key=lambda i: x[i])
    return 3 * s[0] + s[1] + order[0] + 10 * order[-1]


def beams(x: Any) -> Any:
    kept = [(0.0, 0), (-0.1, 1)]
    for value in x:
        new = []
        for score, k in kept:
            for j in range(2):
                new.append((score + value * (0.5 + k - j), j))
        new.sort(key=lambda p: -p[0])
        kept = new[:2]
    return kept[0][0] + kept[1][1]


def best_three(x: Any) -> Any:
    best = []
    for value in np.concatenate([x, 0.5 * x, -x]):
        best.append(value)
        best.sort(reverse=True)
        if len(best) > 3:
            best.pop()
    return sum(best) + best[0] * best[-1]


def of_a_length_by_value(x: Any) -> Any:
    chosen = [v * v for v in np.concatenate([x, 0.3 * x]) if v > 0.1]
    chosen.sort(key=lambda v: -v)
    total = 0.0
    for k, v in enumerate(chosen):
        total += v / (k + 1)
    for k, v in enumerate(sorted(chosen)):
        total += k * v
    return total


def tuples(x: Any) -> Any:
    events = []
    for i, v in enumerate(x):
        if v > -1.0:
            events.append((v, i))
    events.sort()
    later = sorted(events, key=lambda e: e[1], reverse=True)
    return events[0][0] + 10 * events[-1][1] + later[0][0] + len(events)


def rows(x: Any) -> Any:
    table = sorted(np.outer(x, np.arange(1.0, 4.0)), key=lambda r: r[1])
    return np.sum(table[0] + 2 * table[-1])


PROGRAMS = [plain, by_keys, beams, best_three, of_a_length_by_value, tuples, rows]
RNG = np.random.default_rng(0)
INPUTS = [np.array([0.55, 1.25, -0.75, 0.3]), np.array([1.55, 0.3, 2.1, 0.6]), np.array([-0.55, -1.35, -2.1, -0.2])]


@pytest.mark.parametrize("function", PROGRAMS)
def test_values_and_derivatives(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    slope = pb.grad(compiled)
    for x in INPUTS:
        np.testing.assert_allclose(compiled(x), function(x.copy()), rtol=1e-12)
        step = 1e-6 * RNG.standard_normal(len(x))
        difference = function(x + step) - function(x - step)
        np.testing.assert_allclose(2 * np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-10)


def test_equal_keys_keep_their_order() -> None:
    def order(x: Any) -> Any:
        pairs = [(np.round(v), k) for k, v in enumerate(x)]
        up = sorted(pairs, key=lambda t: t[0])
        down = sorted(pairs, key=lambda t: t[0], reverse=True)
        return [k for _, k in up], [k for _, k in down], [k for _, k in sorted(pairs, reverse=True)]

    compiled = pb.jit(order, guards=False)
    for seed in range(5):
        x = np.random.default_rng(seed).uniform(0, 3, 12)
        assert compiled(x) == order(x)


@pytest.mark.parametrize("is_long", [False, True])
def test_keys_that_are_not_a_number_are_an_error(is_long: bool) -> None:
    def order(x: Any) -> Any:
        positions = [k for k, v in enumerate(x) if v > -1 or v != v] if is_long else list(range(len(x)))
        return sorted(positions, key=lambda k: x[k])

    compiled = pb.jit(order, guards=False)
    x = np.array([3.0, 0.5, 1.0, 2.0])
    assert compiled(x) == order(x)
    x[1] = np.nan
    with pytest.raises(ValueError, match="sorted by keys that are not a number"):
        compiled(x)


def test_membership() -> None:
    def visited(links: Any, start: Any) -> Any:
        seen, stack = [start], [start]
        while stack:
            u = stack.pop()
            for v in range(len(links)):
                if links[u, v] > 0 and v not in seen:
                    seen.append(v)
                    stack.append(v)
        return seen

    def squares(grid: Any) -> Any:
        seen: list[Any] = []
        todo = [(0, 0)]
        while todo:
            i, j = todo.pop(0)
            if (i, j) in seen:
                continue
            seen.append((i, j))
            for a, b in [(i, j + 1), (i + 1, j), (i, j - 1), (i - 1, j)]:
                if 0 <= a < 3 and 0 <= b < 3 and grid[a, b] > 0.4:
                    todo.append((a, b))
        return seen, len(seen)

    def distinct(x: Any) -> Any:
        values: list[Any] = []
        for v in np.round(x):
            if v not in values:
                values.append(v)
        return sorted(values), values.index(values[0]), values.count(1.0), 7.0 in values

    one, two, three = (pb.jit(f, guards=False) for f in (visited, squares, distinct))
    for seed in range(4):
        rng = np.random.default_rng(seed)
        links, grid, x = (rng.uniform(size=(6, 6)) < 0.3) * 1.0, rng.uniform(size=(3, 3)), rng.uniform(0, 4, 15)
        assert one(links, 1) == visited(links, 1)
        assert two(grid) == squares(grid)
        assert three(x) == distinct(x)


def test_removed_elements() -> None:
    def picked(x: Any) -> Any:
        left, order = [0, 1, 2, 3], []
        while left:
            j = left[0]
            for k in left:
                if x[k] < x[j]:
                    j = k
            left.remove(j)
            order.append(j)
        return order

    def twice(x: Any) -> Any:
        left = [1.0, 2.0, 3.0]
        left.remove(x)
        left.remove(x + 1)
        return left

    for x in INPUTS:
        assert pb.jit(picked, guards=False)(x) == picked(x)
    assert pb.jit(twice, guards=False)(1.0) == [3.0]
    with pytest.raises(ValueError, match=r"list.remove\(x\): x not in list"):
        pb.jit(twice, guards=False)(3.0)


def test_elements_of_a_sorted_list_are_not_written() -> None:
    def written(x: Any) -> Any:
        table = sorted([x * 1.0, x * 2.0, x * 0.5], key=lambda r: r[0])
        table[0][0] = 5.0
        return table[0]

    with pytest.raises(pb.TraceError, match="element of a list that is sorted"):
        pb.jit(written, guards=False)(INPUTS[0])


def test_lists_of_a_known_length_are_sorted_and_compared_by_keys() -> None:
    def replaced(x: Any) -> Any:
        values = [1.0, 2.0, 0.5]
        values[int(abs(x[0])) % 3] = x[1]
        ordered = sorted(values, key=lambda v: (-abs(v), v))
        values.sort(key=lambda v: v * v, reverse=True)
        return ordered, values, min(values, key=lambda v: -v)

    def keyed(x: Any) -> Any:
        counts: dict[int, float] = {}
        for k in range(3):
            counts[int(abs(x[k]))] = x[k]
        return [min(counts.items(), key=lambda item: item[1])[0] for _ in range(2)]

    def emptied(x: Any) -> Any:
        values = [x[0]]
        if x[0] > 0:
            values.append(x[1])
        values.clear()
        values.sort(key=lambda v: -v)
        return sorted(values, key=abs)

    for x in INPUTS:
        for function in (replaced, keyed, emptied):
            assert pb.jit(function, guards=False)(x) == function(x)
