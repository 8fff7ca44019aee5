"""Parts and copies of lists whose lengths values decide, and lists that the paths of a branch return."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def moving_averages(x: Any) -> Any:
    p, out = [float(k) for k in range(3)] + [x[0], x[1], x[2]] * 20, []
    for i in range(4, len(p)):
        out.append(sum(p[i - 4 : i]) / 4)
    return out


def ranges_of_windows(x: Any) -> Any:
    p, high, low = [x[k % len(x)] * k for k in range(70)], [], []
    for i in range(5, len(p)):
        window = p[i - 5 : i]
        high.append(max(window))
        low.append(min(window))
    return high, low


def up_to_an_index(x: Any) -> Any:
    p, k = list(x), 0
    while k < len(x) and p[k] < 1.2:
        k += 1
    return sum(p[:k]), len(p[k:]), p[:k], p[k:], p[-k:], p[k - 2 : k]


def positive(x: Any) -> list[Any]:
    out = []
    for v in x:
        if v > 0:
            out.append(v)
    return out


def parts_of_a_filter(x: Any) -> Any:
    a = positive(x)
    return a[1:], a[:-1], a[::-1], a[::2], a[-2:], a[5:2], len(a[1:])


def reversed_in_place(x: Any) -> Any:
    a = positive(x)
    a.reverse()
    a.append(0.5)
    return a


def differences(x: Any) -> Any:
    a = positive(x)
    return [u - v for u, v in zip(a[1:], a[:-1])]


def part_is_a_copy(x: Any) -> Any:
    a = positive(x)
    b = a[1:]
    b.append(2.0)
    a.append(3.0)
    return a, b


def deleted(x: Any) -> Any:
    a = positive(x)
    a.append(9.0)
    del a[0]
    return a


def deleted_at_an_index(x: Any) -> Any:
    a, k = [1.0, 2.0, 3.0, 4.0], 0
    while k < 3 and x[k] > 0:
        k += 1
    del a[k]
    return a


def copies_of_a_deque(x: Any) -> Any:
    d = deque([x[0]])
    for v in x:
        if v > 0:
            d.append(v)
        else:
            d.appendleft(v)
        if len(d) > 3:
            d.popleft()
    e = deque(d)
    e.append(7.0)
    copy = d.copy()
    copy.appendleft(8.0)
    return np.array(list(d)), list(e), list(copy), sorted(d), max(d)


def returned_by_paths(x: Any) -> Any:
    a, b = positive(x), []
    for v in a:
        b.append(2 * v)
    if len(a) < 2:
        return [], []
    return a, b


def chosen_pair(x: Any) -> Any:
    a, b = positive(x), positive(-x)
    if len(a) < 2:
        pair = [], b
    else:
        pair = b, a
    return pair


def named(x: Any) -> Any:
    a = positive(x)
    if len(a) < 2:
        return {"path": [1.0], "cost": 0.0}
    return {"path": a, "cost": a[0]}


def or_none(x: Any) -> Any:
    a = positive(x)
    if len(a) < 2:
        return None
    while a[-1] > 1.0 and len(a) > 1:
        a.pop()
    return a


def pair_or_none(x: Any) -> Any:
    a, b = positive(x), positive(-x)
    if len(a) < 2:
        return None, None
    a.append(5.0)
    return a, (b, len(b))


def used_after_a_test(x: Any) -> Any:
    path = or_none(x)
    if path is None:
        return -1.0
    return sum(path) + len(path)


def changed_on_one_path(x: Any) -> Any:
    a = positive(x)
    if x[0] > 0:
        a.append(4.0)
        best = a[:]
    else:
        best = []
    return best, a


PROGRAMS = [
    moving_averages, ranges_of_windows, up_to_an_index, parts_of_a_filter, reversed_in_place, differences, part_is_a_copy,
    deleted, deleted_at_an_index, copies_of_a_deque, returned_by_paths, chosen_pair, named, or_none, pair_or_none,
    used_after_a_test, changed_on_one_path,
]  # fmt: skip
INPUTS = [
    np.array([0.55, 1.25, -0.75, 0.3]),
    np.array([1.55, 0.3, 2.1, 0.6]),
    np.array([-0.55, -1.35, 2.1, -0.2]),
    np.array([0.5, -1.5, 0.25, 3.0]),
]


def outcome(function: Callable[..., Any], x: Any) -> Any:
    """Return what a function returns, or the exception that it raises."""
    try:
        return function(x.copy())
    except pb.TraceError:
        raise
    except Exception as error:
        return type(error), str(error)


def same(expected: Any, result: Any) -> None:
    """Assert that two results are equal to the bit."""
    if isinstance(expected, dict):
        assert list(result) == list(expected)
        expected, result = list(expected.values()), list(result.values())
    if isinstance(expected, tuple | list):
        assert type(result) is type(expected)
        assert len(result) == len(expected)
        for e, r in zip(expected, result, strict=True):
            same(e, r)
    elif expected is None:
        assert result is None
    else:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for x in INPUTS:
        same(outcome(program, x), outcome(compiled, x))


def numbers(result: Any) -> list[Any]:
    """Return the floats and arrays in a result."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, tuple | list):
        return [y for x in result for y in numbers(x)]
    return [] if result is None or isinstance(result, int) else [result]


SMOOTH = [
    moving_averages, ranges_of_windows, part_is_a_copy, reversed_in_place, deleted, copies_of_a_deque, used_after_a_test,
    changed_on_one_path, returned_by_paths, named,
]  # fmt: skip


@pytest.mark.parametrize("program", SMOOTH)
def test_gradients(program: Callable[..., Any]) -> None:
    def total(x: Any) -> Any:
        result = program(x)
        if isinstance(result, dict):
            result = (result["path"], result["cost"])
        parts = result if isinstance(result, tuple) else (result,)
        return sum(np.sum(np.array(part) ** 2) * (k + 0.5) for k, part in enumerate(parts))

    rng = np.random.default_rng(2)
    slope = pb.jit(pb.grad(total), guards=False)
    for exact in INPUTS:
        x = exact + [0.013, 0.007, -0.011, 0.0031]  # at no kink
        step = 1e-6 * rng.standard_normal(len(x))
        difference = (total(x + step) - total(x - step)) / 2
        np.testing.assert_allclose(np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-11)
        second = pb.grad(lambda x: np.sum(slope(x) * np.arange(1.0, 5.0)))(x)
        change = np.sum((slope(x + step) - slope(x - step)) * np.arange(1.0, 5.0)) / 2
        np.testing.assert_allclose(np.sum(second * step), change, rtol=1e-4, atol=1e-9)


def changed_after_the_join(x: Any) -> Any:
    a = positive(x)
    pair = (a, 1) if x[0] > 0 else ([], 0)
    a.append(2.0)
    return pair


def changed_result(x: Any) -> Any:
    a = positive(x)
    pair = (a, 1) if x[0] > 0 else ([], 0)
    pair[0].append(2.0)
    return pair, a


@pytest.mark.parametrize("program", [changed_after_the_join, changed_result])
def test_a_list_of_two_names_is_not_changed(program: Callable[..., Any]) -> None:
    with pytest.raises(pb.TraceError, match=r"changed|changes"):
        pb.jit(program, guards=False)(INPUTS[0])


def test_a_window_costs_as_much_as_it_has_elements() -> None:
    explanation = pb.jit(ranges_of_windows, guards=False).explain(INPUTS[0])
    assert "rolled: 65 iterations" in [s.how for s in explanation.statements]
