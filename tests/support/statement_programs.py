"""Small functions of an array and a count, which is in an array too, with Python's own loops, branches, checks and lists. Their
results are arrays like the first one.

pytest rewrites the assertions of test files, so that their functions have no source; these have theirs.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def rolled_loop(x: Any, n: Any) -> Any:
    total = 0.0
    for i in range(n[0]):
        total = 0.5 * total + x[i % 4]
    return total * x


def loop_that_leaves(x: Any, n: Any) -> Any:
    total, i = 0.0, 0
    while True:
        total += x[i % 4]
        i += 1
        if i >= n[0] or total > 8.0:
            break
    return total * x


def checks(x: Any, n: Any) -> Any:
    if x[0] > 10:
        raise ValueError("x is large")
    assert n[0] >= 0, "n is negative"
    return x * n[0]


def join(x: Any, n: Any) -> Any:
    y = x * x if x[0] > 0 else x - 1
    shift = None if n[0] > 3 else x[1]
    return y if shift is None else y + shift


def appended_list(x: Any, n: Any) -> Any:
    values = [x[0]]
    for i in range(60):
        if i < n[0]:
            values.append(0.5 * values[-1] + x[i % 4])
    return np.sum(np.array(values)) * x


def appended_array(x: Any, n: Any) -> Any:
    ends = np.array([0.25])
    while ends[-1] < n[0]:
        ends = np.append(ends, ends[-1] + 0.5)
    return np.sum(np.sin(ends)) * x


def appended_columns(x: Any, n: Any) -> Any:
    y = np.array([[0.25], [0.5]])
    while y[0, -1] < n[0]:
        y = np.hstack([y, y[:, -1:] + 0.5])
    return np.sum(np.sin(y)) * x


PROGRAMS = {f.__name__: f for f in (rolled_loop, loop_that_leaves, checks, join, appended_list, appended_array, appended_columns)}
