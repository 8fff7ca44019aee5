"""``next``, ``any``, ``all``, ``max`` and ``min`` of what generator expressions yield, and loops over ``itertools.count`` and
``itertools.accumulate``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import Array


def first_index(x: Array, t: float) -> Any:
    return next((i for i, v in enumerate(x) if v > t), None)


def first_square(x: Array, t: float) -> Any:
    return next((v * v for v in x if v > t), 0.0)


def first_without_default(x: Array, t: float) -> Any:
    return next(i for i, v in enumerate(x) if v > t)


def first_in_a_try_statement(x: Array, t: float) -> Any:
    try:
        return next(i for i, v in enumerate(x) if v > t)
    except StopIteration:
        return len(x)


def first_pair(x: Array, t: float) -> Any:
    return next(((i, j) for i, a in enumerate(x) for j, b in enumerate(x[::-1]) if a + b > 2 * t and i != j), (-1, -1))


def first_of_each_row(x: Array, t: float) -> Any:
    total = 0
    for row in x.reshape(-1, 5):
        j = next((j for j in range(5) if row[j] > t), None)
        if j is None:
            continue
        total += j + 1
    return total


def some(x: Array, t: float) -> Any:
    return any(v > t for v in x), any(v > t and w < 0 for v, w in itertools.pairwise(x))


def every(x: Array, t: float) -> Any:
    return all(v < t for v in x), all(a <= b for a, b in itertools.pairwise(x))


def up_to_the_one_that_decides(x: Array, t: float) -> Any:
    return any(1 / float(v - x[70]) > 1e3 * t for v in x)


def checked(v: float) -> float:
    if v > 1.5:
        raise ValueError("too great")
    return v


def few_up_to_the_one_that_decides(x: Array, t: float) -> Any:
    return any(checked(v) > t for v in x[:4]), all(x[119 + i] < t for i in range(3)), all(checked(v) < t for v in (x[5], x[7]))


def greatest_by_key(x: Array, t: float) -> Any:
    rows = x.reshape(-1, 2)
    return max(rows, key=lambda r: r[0] * r[1] - t), min(range(len(x)), key=lambda i: abs(x[i] - t))


def greatest_or_default(x: Array, t: float) -> Any:
    return max((v for v in x if v > t), default=0.0), min((i for i, v in enumerate(x) if v > t), default=None)


def until_it_is_found(x: Array, t: float) -> Any:
    for k in itertools.count(3):
        if x[k] > t or k > 100:
            return k
    return None


def appended_until_it_is_found(x: Array, t: float) -> Any:
    out = []
    for k in itertools.count(0, 2):
        out.append(x[k] * k)
        if x[k] > t or k > 100:
            break
    return np.array(out)


def running_greatest(x: Array, t: float) -> Any:
    return sum(v for v in itertools.accumulate(x, max) if v > t)


def running_means(x: Array, t: float) -> Any:
    total = 0.0
    for i, v in enumerate(itertools.accumulate(x, lambda a, b: 0.9 * a + b, initial=t), 1):
        total += v * v / i
        if total > 1e4:
            break
    return total


def first_above(x: Array, t: float) -> Any:
    return next((i for i, v in enumerate(itertools.accumulate(x)) if v > t), None)


def running_in_rows(x: Array, t: float) -> Any:
    count = 0
    for row in x[:60, None] * x[60:]:
        for v in itertools.accumulate(row, func=lambda a, b: a + b if b > 0 else a):
            if v > t:
                count += 1
    return count


FUNCTIONS: list[Callable[..., Any]] = [
    first_index, first_square, first_without_default, first_in_a_try_statement, first_pair, first_of_each_row, some, every,
    up_to_the_one_that_decides, greatest_by_key, greatest_or_default, until_it_is_found, appended_until_it_is_found,
    running_greatest, running_means, first_above, running_in_rows,
]  # fmt: skip
NUMBERS = np.random.default_rng(2).normal(size=120)


def outcome(function: Callable[..., Any], x: Array, t: float) -> str:
    """Return the text of what a function returns or raises."""
    try:
        return repr(function(x.copy(), t))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("function", FUNCTIONS, ids=[f.__name__ for f in FUNCTIONS])
def test_one_program_serves_all_values(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for x in (NUMBERS, np.sort(NUMBERS), -NUMBERS):
        for t in (1.0, -3.0, 2.0, 100.0):
            assert outcome(compiled, x, t) == outcome(function, x, t)
    assert not any("unrolled" in line for line in str(compiled.explain(NUMBERS, 1.0)).splitlines())


def test_a_search_over_few_elements_raises_what_the_ones_before_the_end_raise() -> None:
    compiled = pb.jit(few_up_to_the_one_that_decides, guards=False)
    for x in (NUMBERS, np.sort(NUMBERS), -NUMBERS, NUMBERS[::-1], NUMBERS[:119]):
        for t in (1.0, -3.0, 0.1, 2.0, 100.0):
            assert outcome(compiled, x, t) == outcome(few_up_to_the_one_that_decides, x, t)


def test_a_search_over_few_elements_stops_at_the_one_that_decides() -> None:
    read: list[float] = []

    def counted(v: float) -> float:
        read.append(v)
        return v

    def search(x: Array, t: float) -> Any:
        return any(counted(v) > t for v in x), all(counted(v) < t for v in (x[1], x[0])), next(v for v in x if counted(v) == t)

    compiled = pb.jit(search)
    for x in (np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.0, 2.0, 1.0])):
        for t in (1.0, 2.0, 3.0, 4.0):
            expected = search(x, t)
            expected_read = read.copy()
            read.clear()
            assert compiled(x, t) == expected
            assert read == expected_read
            read.clear()


def test_gradients_and_batches() -> None:
    for function in (first_square, lambda x, t: greatest_or_default(x, t)[0]):
        slope = pb.grad(function)(NUMBERS, 1.0)
        value = function(NUMBERS, 1.0)
        at = np.flatnonzero(value == NUMBERS**2) if function is first_square else np.flatnonzero(value == NUMBERS)
        expected = np.zeros(120)
        expected[at] = 2 * NUMBERS[at] if function is first_square else 1.0
        np.testing.assert_allclose(slope, expected, rtol=1e-14)
    rows = np.stack([NUMBERS, NUMBERS[::-1], -NUMBERS])
    expected_rows = [first_square(r, 1.0) for r in rows]
    np.testing.assert_array_equal(pb.vmap(first_square, in_axes=(0, None))(rows, 1.0), expected_rows)


def test_gradients_of_running_sums() -> None:
    x, step = NUMBERS[:60], 1e-6 * np.cos(np.arange(60.0))
    expected = (running_means(x + step, 1.0) - running_means(x - step, 1.0)) / 2e-6
    np.testing.assert_allclose(pb.grad(running_means)(x, 1.0) @ step / 1e-6, expected, rtol=1e-7)
    rows = np.stack([x, -x])
    by_row = pb.vmap(running_means, in_axes=(0, None))(rows, 1.0)
    np.testing.assert_allclose(by_row, [running_means(r, 1.0) for r in rows], rtol=1e-14)


def test_items_of_which_two_are_read_at_once() -> None:
    def products(x: Array) -> Any:
        total = 0.0
        for a, b in itertools.pairwise(itertools.accumulate(x)):
            total += a * b
        for a, c in zip(itertools.accumulate(x), x, strict=True):
            total += a * c
        for a in itertools.accumulate(x[:0], initial=2.0):
            total += a
        return total

    assert pb.jit(products)(NUMBERS) == products(NUMBERS)


def test_a_function_of_the_users_that_has_the_name_of_a_builtin_one() -> None:
    def next(elements: Any, last: Any) -> Any:
        return sum(elements) + last

    def total(x: Array) -> Any:
        return next((v for v in x), 1.0)

    assert pb.jit(total)(np.arange(60.0)) == total(np.arange(60.0))


def test_an_iterator_without_an_end_is_refused_where_values_end_the_loop() -> None:
    def endless(x: float) -> Any:
        for k in itertools.cycle([1.0, 2.0]):
            x = x / (1 + k)
            if x < 1.0:
                break
        return x

    with pytest.raises(pb.TraceError, match="more than 5000 items"):
        pb.jit(endless, guards=False)(100.0)


SEARCHED: list[float] = []


def counted(v: float) -> float:
    SEARCHED.append(v)
    return 0.5


def some(x: Any) -> Any:
    return x.sum() if any(v > counted(v) for v in x) else x[0]


def every(x: Any) -> Any:
    return x.sum() if all(v < counted(v) for v in x) else x[0]


@pytest.mark.parametrize(("f", "x"), [(some, [0.1, 0.9, 2.0, 0.2]), (every, [0.1, 0.9, 0.2, 0.3])], ids=["any", "all"])
def test_elements_after_the_one_that_decides_store_nothing(f: Any, x: Any) -> None:
    """Without loops that are rolled it is refused, since all elements would store."""
    x = np.array(x)
    SEARCHED.clear()
    expected, stored = f(x), SEARCHED[:]
    for guards in (None, True):
        SEARCHED.clear()
        assert pb.jit(f, guards=guards)(x) == expected and stored == SEARCHED
    SEARCHED.clear()
    with pytest.raises(pb.TraceError, match="elements that store, after one that may decide"):
        pb.jit(f, loops="unroll", guards=False)(x)
    assert SEARCHED == []
