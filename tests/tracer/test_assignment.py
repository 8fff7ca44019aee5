"""Writes into arrays that a traced function made: what they leave is what NumPy leaves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.numpy_calls import V, X, check

Call = Callable[..., Any]


def write_int(x: Any) -> Any:
    a = np.zeros(4)
    a[1] = x[0, 0]
    a[-1] = 2
    return a


def write_rows(x: Any) -> Any:
    a = np.empty((3, 4))
    for i in range(3):
        a[i] = x[i] * i
    a[:, ::2] += 1
    a[1:, 1] -= x[0, 1]
    a[::-1, 3] = x[:, 0]
    a[..., None, 0] = 5
    return a


def recurrence(x: Any) -> Any:
    a = np.zeros(6)
    a[0] = x[0]
    for i in range(1, 5):
        a[i] = 0.5 * a[i - 1] + x[i]
    return a


def write_indexed(x: Any) -> Any:
    a = np.zeros((3, 4), np.float32)
    a[[0, 2]] = x[:2]
    a[:, [1, 1, 3]] = x[:, :3]
    a[[0, 1], [2, 3]] = 7
    a[::2, [0, 2]] = x[:2, :1]
    a[[0, 1], :, None] = x[:2, :, None]
    return a


def write_traced(x: Any) -> Any:
    a = np.ones((3, 4))
    a[np.argmax(x, axis=0), np.arange(4)] = x[0]
    a[np.argmin(x[:, 0])] = 3.0
    a[1, np.argmin(x[0])] = x[1, 1]
    return a


def write_masked(x: Any) -> Any:
    a = x.copy()
    a[a < 0] = 0
    a[x > 1] = x[0, 0]
    a[np.array([True, False, True])] = x[1]
    a[np.array([True, False, False]), 1] = [9.0]
    a[x[:, 0] > 0] = [1.0, 2.0, 3.0, 4.0]
    return a


def write_masked_values(x: Any) -> Any:
    a = np.zeros(4)
    a[np.array([True, False, True, True])] = x[0, :3]
    return a


def write_views(x: Any) -> Any:
    a = np.zeros((3, 4))
    row = a[1]
    row[2] = x[0, 0]
    row += 1
    a[0] = 2
    column = a.T[3]
    column[:] = x[:, 0]
    flipped = a[::-1, 1:3]
    flipped *= 3
    a[1:][0, 0] = 9
    a[:, None][2] = x[1]
    return a, row, column, flipped


def write_reshaped(x: Any) -> Any:
    a = np.zeros(12)
    grid = a.reshape(3, 4)
    grid[1] = x[1]
    grid[:, 0] += x[:, 2]
    np.squeeze(grid[:, None])[0, 1] = 8
    return a, grid


def write_loop(x: Any) -> Any:
    a = np.ones((3, 4))
    for i, row in enumerate(a):
        row *= x[i]
    for part in np.split(a, 2, axis=1):
        part[0] = 0
    return a


def write_functions(x: Any) -> Any:
    a = np.zeros((4, 4))
    np.fill_diagonal(a, x[0])
    np.add.at(a, [0, 0, 2], x[0])
    np.subtract.at(a, (slice(None), np.array([1, 1])), 0.5)
    np.add.at(a, 3, 1)
    np.copyto(a[:3], x, where=x > 0)
    np.put_along_axis(a, np.argmax(a, axis=1)[:, None], x[0, 0], axis=1)
    b = np.empty(3)
    b.fill(x[0, 1])
    return a, b


def write_cast(x: Any) -> Any:
    a = np.zeros(3, int)
    a[0] = 2.7
    a[1:] = x[0, :2] * 10
    a += 1
    b = x.astype(np.float32)
    b += x.sum()
    b *= 2
    return a, b


def write_results(x: Any) -> Any:
    a = x + 1
    b = np.sum(a, axis=())
    a[0] = 0
    c = np.array([1.0, 2.0, 3.0])
    c[1] = x[0, 0]
    d = np.array(x)
    d[0, 0] = 4
    e = np.take(a, 1, axis=1)
    e[0] = 5
    return a, b, c, d, e


WRITES = [
    write_int, write_rows, write_indexed, write_traced, write_masked, write_masked_values, write_views, write_reshaped,
    write_loop, write_functions, write_cast, write_results,
]  # fmt: skip


@pytest.mark.parametrize("call", WRITES)
def test_writes(call: Call) -> None:
    check(call, X, exact=True)
    check(call, X + 10, exact=True)


def test_recurrence() -> None:
    check(recurrence, V, exact=True)


def view_of_a_sum(x: Any) -> Any:
    s = x.sum()
    v = s.reshape(1)
    v += 1
    return s, v


def view_of_an_element(x: Any) -> Any:
    s = x[0]
    v = s[None]
    v[0] = 9
    return s, v


def array_of_rank_0(x: Any) -> Any:
    b = np.zeros(())
    other, line = b, b[None]
    b += x[1]
    line[0] *= 2
    return other + 0, line


def array_of_a_scalar(x: Any) -> Any:
    b = np.asarray(x.sum())
    other = b
    b += x[1]
    return other + 0, b + 0


@pytest.mark.parametrize("call", [view_of_a_sum, view_of_an_element, array_of_rank_0, array_of_a_scalar])
def test_scalars_have_no_views_and_arrays_of_rank_0_do(call: Call) -> None:
    check(call, V)
