"""Comparisons of tuples and lists whose items values decide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def backtracked(x: Any) -> Any:
    steps = (np.abs(x) * 7 % 3).astype(int).reshape(6, 5)
    at, path = (steps.shape[0] - 1, steps.shape[1] - 1), []
    path.append((at[0], at[1]))
    while at != (0, 0):
        k = steps[at[0], at[1]]
        at = (at[0] - (k != 1), at[1] - (k != 2))
        if min(at) < 0:
            break
        path.append((at[0], at[1]))
    return np.array(path)


def until_a_cell(x: Any) -> Any:
    i, j, steps = 7, 4, 0
    goal = (2, 1)
    while (i, j) != goal and steps < 50:
        if x[(i * 3 + j) % len(x)] > 0 and i > 2:
            i -= 1
        elif j > 1:
            j -= 1
        else:
            i = i - 1 if i > 2 else i + 1
        steps += 1
    return i, j, steps


def ordered(x: Any) -> Any:
    best, at = (x[0], x[1]), 0
    for k in range(1, len(x) - 1):
        pair = (x[k] > 0, x[k + 1])
        if (pair[0], pair[1]) < (best[0], best[1]):
            best, at = (x[k], x[k + 1]), k
    count = 0
    for k in range(len(x)):
        if [x[k], 1.0] >= [0.5, k]:
            count += 1
        if (x[k],) <= (x[k], 1) and not (x[k], 1) < (x[k],):
            count += 100
    return at, count


def of_lists(x: Any) -> Any:
    state, same, other = [0, 0], 0, 0
    for v in x:
        state[0 if v > 0 else 1] += 1
        if state == [3, 1]:
            same += 1
        if state != [1, 2, 3]:
            other += 1
    return state, same, other


def nested(x: Any) -> Any:
    a, count = ((x[0], x[1]), x[2] > 0), 0
    for k in range(len(x) - 2):
        b = ((x[k], x[k + 1]), x[k + 2] > 0)
        if a == b:
            count += 1
        if a[0] == b[0] or (b[1], 1) == (True, 1):
            count += 10
    return count


def truth_as_a_value(x: Any) -> Any:
    equal, total = False, 0
    for k in range(len(x) - 1):
        equal = (x[k], x[k + 1]) == (x[k + 1], x[k])
        total += equal
    return equal, total


def of_other_lengths(x: Any) -> Any:
    total = 0.0
    for v in x:
        if (v, v) == (v,) or (v,) == [v]:
            total += 1000.0
        if (v, 2) != (v, 2, 3):
            total += v
    return total


PROGRAMS = [backtracked, until_a_cell, ordered, of_lists, nested, truth_as_a_value, of_other_lengths]
INPUTS = [np.random.default_rng(seed).normal(size=30) for seed in (0, 1)] + [np.ones(30), np.tile([np.nan, 1.0, 0.0], 10)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for x in INPUTS:
        if program is backtracked and np.isnan(x).any():
            continue
        expected, result = program(x), compiled(x)
        assert str(result) == str(expected)


def test_the_result_is_a_bool_of_python() -> None:
    compiled = pb.jit(lambda a, b: [((a, 1) == (b, 1)) is True, ((a, 1) < (b, 1)) is True, ((a,) != (b,)) is False], guards=False)
    assert compiled(np.float64(2.0), np.float64(2.0)) == [True, False, True]
    assert compiled(np.float64(1.0), np.float64(2.0)) == [False, True, False]


def test_arrays_have_no_truth() -> None:
    with pytest.raises(ValueError, match="truth value"):
        pb.jit(lambda x: (x, 1) == (x + 1, 1))(np.ones(3))
