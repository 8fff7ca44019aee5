"""Loops whose counters are proved to be in range, and others, against Python: values, errors, and what they write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb


def one_too_far(x):
    i = 0
    s = 0.0
    while i <= len(x):
        s += x[i]
        i += 1
    return s


def from_the_end(x):
    i = -3
    s = 0.0
    while i < len(x):
        s += x[i]
        i += 1
    return s


def up_to_an_argument(x, n):
    i = 0
    s = 0.0
    while i < n:
        s += x[i]
        i += 1
    return s


def steps_of_a_branch(x):
    i = 0
    s = 0.0
    while i < len(x):
        s += x[i]
        if x[i] > 0:
            i += 2
        else:
            i += 1
        s += x[i - 1]
    return s


def down_in_a_branch(x):
    i = len(x) - 1
    s = 0.0
    k = 0
    while i < len(x) and k < 30:
        s += x[i]
        k += 1
        if s > 0:
            i -= 2
        else:
            i += 1
    return s


def bisected(x, v):
    lo = 0
    hi = len(x)
    while lo < hi:
        mid = (lo + hi) // 2
        if x[mid] < v:
            lo = mid + 1
        else:
            hi = mid
    return lo + 0.0


def doubled_in_place(x):
    i = len(x) - 1
    while i >= 0:
        x[i] = x[i] * 2.0
        i -= 1
    return x.sum()


def read_after_the_loop(x):
    i = 0
    while i < len(x) and x[i] > 0:
        i += 1
    return x[i]


def read_after_the_step(x):
    i = 0
    s = 0.0
    while i < len(x):
        i += 1
        s += x[i]
    return s


def left_by_break(x):
    i = 0
    s = 0.0
    while True:
        if i >= len(x):
            break
        s += x[i]
        i += 1
    return s


def nested_counters(x):
    n = len(x)
    i = 0
    s = 0.0
    while i < n:
        j = i
        while j < n and x[j] > -0.5:
            s += x[i] * x[j]
            j += 1
        i = j + 1
    return s


def reversed_in_place(x):
    i = 0
    j = len(x) - 1
    while i < j:
        x[i], x[j] = x[j], x[i]
        i += 1
        j -= 1
    return x[0] - x[-1]


def doubled_counter(x):
    i = 1
    s = 0.0
    while i < len(x):
        s += x[i]
        i *= 2
    return s


def either_condition(x):
    i = 0
    s = 0.0
    while i < len(x) or s < 0:
        s += x[i]
        i += 1
    return s


def until_equal(x):
    i = 0
    s = 0.0
    while i != len(x):
        s += x[i]
        i += 1
    return s


def next_in_a_branch(x):
    s = 0.0
    for k in range(len(x)):
        i = k
        if x[k] > 0:
            i = k + 1
        s += x[i]
    return s


def clipped(x):
    s = 0.0
    for k in range(len(x)):
        i = min(max(int(x[k] * 10), 0), len(x) - 1)
        s += x[i] * x[k]
    return s


def packed(x):
    p = 0
    for k in range(len(x)):
        if x[k] > 0:
            x[p] = x[k]
            p += 1
    return x[0] * 2 + p


def packed_from_one(x):
    p = 1
    for k in range(len(x)):
        if x[k] > 0:
            x[p] = x[k]
            p += 1
    return x[0] * 2 + p


def packed_by_twos(x):
    p = 0
    for k in range(len(x)):
        if x[k] > 0:
            x[p] = x[k]
            p += 2
    return x[0] * 2 + p


def unpacked_downwards(x):
    p = len(x) - 1
    s = 0.0
    for k in range(len(x)):
        s += x[p] * k
        if x[k] > -0.5:
            p -= 1
    return s


def stacked(x):
    s = 0.0
    p = -1
    for k in range(len(x)):
        if x[k] > 0:
            p += 1
            x[p] = x[k]
    while p >= 0:
        s += x[p] * p
        p -= 1
    return s


def continued(x):
    i = -1
    s = 0.0
    while i < len(x) - 1:
        i += 1
        if x[i] < 0:
            continue
        s += x[i]
    return s


def three_at_a_time(x):
    i = 0
    s = 0.0
    while i < len(x):
        s += x[i]
        i += 3
        s += x[i - 3] * x[i - 2 if i - 2 < len(x) else -1]
    return s


def pairs_until_a_condition(x):
    i = 0
    s = 0.0
    while i + 1 < len(x):
        s += x[i] * x[i + 1]
        if s > 9:
            break
        i += 1
    return s + i


def pairs_downwards(x):
    i = len(x) - 1
    s = 0.0
    while i - 1 >= 0 and s < 9:
        s += x[i] * x[i - 1]
        i -= 1
    return s + i


def next_but_one_in_a_branch(x):
    s = 0.0
    p = 0
    for k in range(len(x)):
        if x[k] > 0:
            p += 1
        if p + 2 < len(x):
            s += x[p] * x[p + 2] * (k + 1)
    return s


def after_any(x):
    s = 0.0
    at = (x * 0).astype(int) - 2
    for i in range(len(x)):
        k = at[i]
        if k + 1 < len(x):
            s += x[k + 1]
    return s


def pairs_too_far(x):
    i = 0
    s = 0.0
    while i + 1 < len(x):
        s += x[i] * x[i + 2]
        i += 1
    return s


def after_one_that_wraps_around(x):
    s = 0.0
    at = (x * 0).astype(int) + (2**63 - 1)
    for i in range(len(x)):
        k = max(at[i], 0)
        with np.errstate(over="ignore"):
            if k + 1 < len(x):
                s += x[k]
    return s


PROVED = (
    bisected, doubled_in_place, left_by_break, nested_counters, reversed_in_place, clipped,
    continued, packed, unpacked_downwards, pairs_until_a_condition, pairs_downwards, next_but_one_in_a_branch,
)  # fmt: skip
"""Programs whose accesses are all in range."""
OTHERS = (
    one_too_far, from_the_end, down_in_a_branch, read_after_the_loop, read_after_the_step, either_condition, until_equal,
    next_in_a_branch, packed_from_one, packed_by_twos, stacked, three_at_a_time, up_to_an_argument, steps_of_a_branch,
    doubled_counter, after_any, pairs_too_far, after_one_that_wraps_around,
)  # fmt: skip


def arguments_of(f: Any, n: int, sign: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(100 * n + sign)
    x = rng.normal(size=n)
    x = np.abs(x) * sign if sign else x
    if f is bisected:
        return np.sort(x), float(rng.normal())
    return (x, n + sign) if f is up_to_an_argument else (x,)


def outcome(f: Any, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the result, or the type of the error, and the array afterwards."""
    x = arguments[0].copy()
    try:
        return f(x, *arguments[1:]), x
    except (IndexError, OverflowError) as error:
        return type(error), x


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("f", PROVED + OTHERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_result_error_and_writes_are_those_of_python(f: Any, n: int) -> None:
    compiled = pb.jit(f)
    for sign in (1, -1, 0):
        arguments = arguments_of(f, n, sign)
        expected, written = outcome(f, arguments)
        result, x = outcome(compiled, arguments)
        if isinstance(expected, type):
            assert result is expected
            np.testing.assert_array_equal(x, arguments[0])
        else:
            np.testing.assert_allclose(result, expected, rtol=1e-12)
            np.testing.assert_array_equal(x, written)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("f", PROVED + OTHERS, ids=lambda f: f.__name__)
def test_interpreter_confirms_proofs(f: Any) -> None:
    for sign in (1, -1, 0):
        arguments = arguments_of(f, 40, sign)
        expected, result = outcome(f, arguments)[0], outcome(pb.jit(f, debug=True), arguments)[0]
        if isinstance(expected, type):
            assert result is expected
        else:
            np.testing.assert_allclose(result, expected, rtol=1e-12)


@pytest.mark.parametrize("f", PROVED, ids=lambda f: f.__name__)
def test_no_check_of_an_index_is_left(f: Any) -> None:
    arguments = arguments_of(f, 400, 0)
    text = pb.jit(f).stages(*arguments)["simplify"]
    assert "IndexError" not in text
    accesses = [line for line in text.splitlines() if "gather" in line or "scatter" in line]
    assert accesses and all("in_range" in line for line in accesses)


CHECKED = [
    *(one_too_far, read_after_the_step, until_equal, packed_from_one, packed_by_twos, after_any, pairs_too_far),
    after_one_that_wraps_around,
]


@pytest.mark.parametrize("f", CHECKED, ids=lambda f: f.__name__)
def test_other_indices_stay_checked(f: Any) -> None:
    assert "IndexError" in pb.jit(f).stages(*arguments_of(f, 400, 0))["simplify"]


@pytest.mark.parametrize("f", [steps_of_a_branch, left_by_break, nested_counters, continued, bisected], ids=lambda f: f.__name__)
def test_rows_of_a_mapped_loop_end_separately(f: Any) -> None:
    rows = [arguments_of(f, 40, sign) for sign in (1, -1, 0)]
    stacked_arguments = [np.stack(column) for column in zip(*rows, strict=True)]
    expected = [outcome(f, row)[0] for row in rows]
    np.testing.assert_allclose(pb.jit(pb.vmap(f))(*stacked_arguments), expected, rtol=1e-12)


@pytest.mark.parametrize("f", [steps_of_a_branch, left_by_break, nested_counters, continued, clipped], ids=lambda f: f.__name__)
def test_gradients_are_slopes(f: Any) -> None:
    (x,) = arguments_of(f, 40, 0)
    direction = np.random.default_rng(7).normal(size=40)
    slope = (f(x + 1e-7 * direction) - f(x - 1e-7 * direction)) / 2e-7
    np.testing.assert_allclose(pb.jit(pb.grad(f))(x) @ direction, slope, rtol=1e-5, atol=1e-6)
