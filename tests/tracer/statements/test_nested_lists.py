"""Lists of lists, such as the tables of dynamic programs: rows of one array, whose elements loops set at computed indices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

X = np.abs(np.random.default_rng(5).normal(size=80))


def warped_distance(x: Any) -> Any:
    a, b = x[:30], x[30:70]
    m, n = len(a), len(b)
    table = [[float("inf")] * (n + 1) for _ in range(m + 1)]
    table[0][0] = 0.0
    for i in range(1, m + 1):
        for j in range(1, n + 1):
            cost = abs(a[i - 1] - b[j - 1])
            table[i][j] = cost + min(table[i - 1][j], table[i][j - 1], table[i - 1][j - 1])
    return table[m][n]


def knapsack(x: Any) -> Any:
    weights, capacity = [3, 4, 5, 9, 14, 2, 7] * 3, 30
    table = [[0.0 for _ in range(capacity + 1)] for _ in range(len(weights) + 1)]
    for i in range(1, len(weights) + 1):
        for c in range(capacity + 1):
            table[i][c] = table[i - 1][c]
            if weights[i - 1] <= c:
                table[i][c] = max(table[i][c], table[i - 1][c - weights[i - 1]] + x[i])
    return table[-1][-1], max(table[5])


def product(x: Any) -> Any:
    a, b = [[x[i + j] for j in range(8)] for i in range(9)], [[x[i * j] for j in range(7)] for i in range(8)]
    result = [[0.0] * 7 for _ in range(9)]
    for i in range(9):
        for j in range(7):
            for k in range(8):
                result[i][j] += a[i][k] * b[k][j]
    return result


def in_three_dimensions(x: Any) -> Any:
    grid = [[[0.0] * 3 for _ in range(4)] for _ in range(20)]
    for i in range(20):
        for j in range(4):
            for k in range(3):
                grid[i][j][k] = x[i] * j + k
    for i in range(20):
        for k in range(3):
            grid[i][0][k] += grid[i][3][k]
    return grid, grid[19][0]


def transitions(x: Any) -> Any:
    counts = [[0] * 4 for _ in range(4)]
    for i in range(len(x) - 1):
        counts[min(int(2 * x[i]), 3)][min(int(2 * x[i + 1]), 3)] += 1
    return counts


def rows_by_other_names(x: Any) -> Any:
    grid = [[0.0] * 5 for _ in range(60)]
    first, last = grid[0], grid[-1]
    for i in range(60):
        for j in range(5):
            grid[i][j] = x[i] * j + np.sin(x[i])
        row = grid[i]
        row[2] += 1.0
        first[3] += row[1]
    return first, last, grid[7], sum(first), [max(v) for v in grid]


def of_columns(x: Any) -> Any:
    grid = [[x[i] * j for j in range(5)] for i in range(60)]
    for i in range(60):
        for j in range(1, 5):
            grid[i][j] += grid[i][j - 1] * np.sin(x[i])
    total = 0.0
    for row in grid:
        for v in row:
            total = total * 0.9 + v
    return total, np.array(grid), [sum(column) for column in zip(*grid)], len(grid), len(grid[0])


def leaves(value: Any) -> list[float]:
    """Return the numbers of nested lists, and the lengths of these."""
    if isinstance(value, list | tuple):
        return [len(value), *(x for v in value for x in leaves(v))]
    return np.ravel(value).tolist()


def check(function: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    ours, theirs = compiled(X), function(X)
    assert type(ours) is type(theirs)
    np.testing.assert_allclose(leaves(ours), leaves(theirs), rtol=1e-12)


@pytest.mark.parametrize(
    "function",
    [warped_distance, knapsack, product, in_three_dimensions, transitions, rows_by_other_names, of_columns],
)
def test_loops_over_nested_lists_roll(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    check(function, compiled)
    assert any(s.how.startswith("rolled") for s in compiled.explain(X).statements)


@pytest.mark.parametrize("function", [warped_distance, knapsack, of_columns])
def test_gradients_through_nested_lists(function: Callable[..., Any]) -> None:
    def loss(x: Any) -> Any:
        result = function(x)
        return result[0] if isinstance(result, tuple) else result

    direction, h = np.random.default_rng(6).normal(size=80), 1e-6
    numeric = (loss(X + h * direction) - loss(X - h * direction)) / (2 * h)
    np.testing.assert_allclose(pb.jit(pb.grad(loss), guards=False)(X) @ direction, numeric, rtol=1e-6)


def one_list_as_all_rows(x: Any) -> Any:
    grid = [[0.0] * 5] * 60
    for i in range(60):
        for j in range(5):
            grid[i][j] += x[i] * j
    return grid[0], grid[59]


def exchanged_rows(x: Any) -> Any:
    grid = [[x[i] * j + i for j in range(6)] for i in range(6)]
    for i in range(5):
        k = i
        for r in range(i, 6):
            if grid[r][i] > grid[k][i]:
                k = r
        grid[i], grid[k] = grid[k], grid[i]
        grid[i][0] += 0.5
    return grid


def a_row_for_another(x: Any) -> Any:
    grid = [[0.0] * 5 for _ in range(60)]
    for i in range(60):
        grid[i] = [x[i] * j for j in range(5)]
        grid[i][0] = 7.0
    return grid


def the_row_before(x: Any) -> Any:
    grid = [[0.0] * 5 for _ in range(24)]
    before = grid[0]
    for i in range(1, 24):
        row = grid[i]
        for j in range(5):
            row[j] = before[j] * 0.5 + x[i] * j
        before = row
    before[0] = 9.0
    return grid[-1], grid[12]


def a_row_that_values_choose(x: Any) -> Any:
    grid = [[0.0] * 5 for _ in range(20)]
    for i in range(20):
        row = grid[i] if x[i] > 0.5 else grid[0]
        row[1] += x[i]
    return grid


def made_longer(x: Any) -> Any:
    grid = [[0.0] * 5 for _ in range(60)]
    for i in range(60):
        grid[i][1] = x[i]
    grid[3] = [1.0, 2.0, 3.0, 4.0, 5.0]
    grid.append([0.0] * 4)
    return grid


def rows_of_a_copy(x: Any) -> Any:
    grid = [[0.0] * 5 for _ in range(60)]
    for i in range(60):
        grid[i][1] = x[i] * np.sin(x[i])
    copied = grid[:]
    copied[3][1] = -1.0
    return grid[3], copied[3]


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(
    "function",
    [
        one_list_as_all_rows, exchanged_rows, a_row_for_another, the_row_before, a_row_that_values_choose, made_longer,
        rows_of_a_copy,
    ],
)  # fmt: skip
def test_rows_under_several_names_are_those_of_python(function: Callable[..., Any]) -> None:
    check(function, pb.jit(function))


def test_rows_that_are_one_list_are_read_and_set_at_indices_that_values_decide() -> None:
    def longest(a: Any, b: Any) -> Any:
        table = [[0] * (len(b) + 1)] * (len(a) + 1)
        for i in range(1, len(a) + 1):
            for j in range(1, len(b) + 1):
                if a[i - 1] == b[j - 1]:
                    table[i][j] = table[i - 1][j - 1] + 1
                else:
                    table[i][j] = max(table[i - 1][j], table[i][j - 1])
        return table[len(a)][len(b)], table[0][1]

    compiled = pb.jit(longest, guards=False)
    for seed in range(3):
        a, b = np.random.default_rng(seed).integers(0, 3, (2, 40))
        assert compiled(a, b[:30]) == longest(a, b[:30])
    assert "rolled: 40 iterations" in str(compiled.explain(a, b[:30]).statements)

    def outside(x: Any, k: Any) -> Any:
        rows = [[x, x]] * 3
        return rows[k][0] + rows[-1][1]

    assert pb.jit(outside, guards=False)(1.5, np.int64(-3)) == 3.0
    with pytest.raises(IndexError, match="list index out of range"):
        pb.jit(outside, guards=False)(1.5, np.int64(3))
