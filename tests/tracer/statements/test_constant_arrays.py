"""Arrays of NumPy that a function makes from constants, which branches and loops on values write or rename."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def counted(x: float) -> Any:
    counts = np.array([0, 3])
    while x > 1:
        counts += 1
        x = x / 2
    return counts + x


def written_in_branch(x: float) -> Any:
    a = np.array([0, 3])
    part = a[1:]
    if x > 10:
        part[0] = 5
    return a * 1, x


def written_by_helper(x: float) -> Any:
    a = np.array([[0, 3], [4, 5]])

    def add() -> None:
        a[0] += 1

    while x > 1:
        add()
        x = x / 2
    return a[0] + x


def in_list(x: float) -> Any:
    arrays = [np.array([0, 3]), np.array([1.5])]
    for k in range(3):
        if x > k:
            arrays[0][0] += k
            arrays[1] *= 2
    return arrays[0] + x, arrays[1]


def until_close(x: float) -> Any:
    levels = np.array([0, 3, 6, 9])
    total = 0.0
    while total > -32:
        levels += 1
        difference = x - levels
        total = np.sum(np.clip(difference, np.min(difference), 0))
    levels -= 1
    return levels


def renamed(x: float) -> Any:
    a = np.arange(5)
    b = a
    if x > 2:
        b = a[::-1]
    b[0] = 77
    return a, x


def chosen(x: float) -> Any:
    a, b = np.array([0, 3]), np.array([7, 8])
    c = a if x > 10 else b
    b[0] = 100
    a[1] = 50
    return c + x


def from_helper(x: float) -> Any:
    a, b = np.array([0.0, 3.0]), np.array([7.0, 8.0])

    def pick() -> Any:
        if x > 2:
            return a
        return b

    pick()[0] = 9.0
    return a, b, x


def renamed_in_loop(x: float) -> Any:
    a, b = np.array([0, 3]), np.array([7, 8])
    c = a
    while x > 1:
        c = b
        x = x / 2
    c[0] = 5
    return a, b, x


def index_grids(x: float) -> Any:
    rows, columns = np.indices((3, 4))
    rows[0, 1] = 7
    for k in range(3):
        if x > k:
            columns[k, 0] = 9
    return rows, columns * x


def windows(x: float) -> Any:
    w, total = np.hanning(9), 0.0
    for k in range(9):
        if x > k:
            total += w[k]
        w[k] = total
    return w, np.hamming(3)[1] * x


def positions_of_a_triangle(x: float) -> Any:
    i, j = np.triu_indices(4)
    a = np.arange(16.0).reshape(4, 4) * x
    chosen = a[i, j] > 12
    while x > 1:
        i[0] += 1
        x = x / 2
    return i, i[chosen], j[chosen]


PROGRAMS = [
    counted, written_in_branch, written_by_helper, in_list, until_close, renamed, chosen, from_helper, renamed_in_loop,
    index_grids, windows, positions_of_a_triangle,
]  # fmt: skip


@pytest.mark.parametrize("x", [0.5, 9.0, 200.0])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program: Callable[..., Any], x: float) -> None:
    with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
        result = pb.jit(program)(x)
    expected = program(x)
    for r, e in zip(result if isinstance(result, tuple) else (result,), expected if isinstance(expected, tuple) else (expected,)):
        np.testing.assert_array_equal(r, e)
        assert np.asarray(r).dtype == np.asarray(e).dtype


@pytest.mark.parametrize("program", [counted, written_in_branch, written_by_helper, in_list, until_close, windows])
def test_one_program_for_all_paths(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for x in (0.5, 9.0, 200.0):
        for r, e in zip(np.atleast_1d(*map(np.asarray, _flat(compiled(x)))), np.atleast_1d(*map(np.asarray, _flat(program(x))))):
            np.testing.assert_array_equal(r, e)


def _flat(value: Any) -> Any:
    return value if isinstance(value, tuple) else (value, 0.0)


def test_loops_that_read_static_arrays_at_their_index_are_rolled() -> None:
    def legendre(x: Any, n: int) -> Any:
        root, table = np.sqrt(np.arange(2 * n + 2)), np.outer(np.arange(n + 1.0), np.ones(3))
        p = np.zeros((n + 1, n + 1))
        p[0, 0] = 1.0
        for k in range(1, n + 1):
            p[k, k] = x * p[k - 1, k - 1] * root[2 * k] / table[k, 1]
            for m in range(k):
                p[k, m] = (root[k + m] * x * p[k - 1, m]) / root[k - m]
        return np.sum(p)

    compiled = pb.jit(legendre, guards=False)
    np.testing.assert_allclose(compiled(0.3, 40), legendre(0.3, 40), rtol=1e-13)
    assert "rolled: 40 iterations" in str(compiled.explain(0.3, 40).statements)
    difference = (legendre(0.3 + 1e-6, 40) - legendre(0.3 - 1e-6, 40)) / 2e-6
    np.testing.assert_allclose(pb.grad(compiled)(0.3, 40), difference, rtol=1e-6)

    def written(x: Any) -> Any:
        weights = np.arange(60.0)
        total = 0.0
        for k in range(60):
            weights[k // 2] = 2.0
            total += weights[k] * x[k]
        weights[0] = 7.0
        return total + weights[0]

    x = np.linspace(-1, 2, 60)
    assert pb.jit(written)(x) == written(x)
