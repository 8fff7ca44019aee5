"""Tests of variables that functions inside a function bind, of arrays with several names, and of tests by identity."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def rebound_by_a_function(p: Any, n: Any) -> Any:
    r, count = 0.5, 0

    def total() -> Any:
        nonlocal r
        if r < 2:
            r += 0.25
        return r

    def twice() -> None:
        nonlocal count
        total()
        count += 2

    largest = total() if p > 1 else 0.0
    for _ in range(n):
        twice()
    return r, count, largest


def rebound_by_a_method(p: Any, n: Any) -> Any:
    level = p

    class Counter:
        def up(self) -> None:
            nonlocal level
            level = 0.5 * level

    counter = Counter()
    steps = [counter.up, counter.up]
    for _ in range(n):
        counter.up()
        steps[1]()
    return level


def nested_swaps(p: Any, n: Any) -> Any:
    a, b = np.zeros(3), np.ones(3)
    for _ in range(60):
        w = 0
        while p > 0 and w < 5:
            w += 1
            a, b = b, a
    a[0] += 0.5
    return a, b


def swaps(p: Any, n: Any) -> Any:
    a, b = np.zeros(3), np.ones(3)
    c = a
    for _ in range(301):
        a, b = b, a
        p = p * 0.5
    c[0] += 0.5
    return a, b, p


def conditional_swaps(p: Any, n: Any) -> Any:
    a, b = np.zeros(3), np.ones(3)
    c = a
    for i in range(301):
        if p > i:
            a, b = b, a
    a[0] += 0.5
    return a, b, c


def another_array(p: Any, n: Any) -> Any:
    a, b = np.zeros(3), np.ones(3)
    for i in range(301):
        if p > i:
            a = b
    a[0] += 0.5
    return a, b


def arrays_of_inner_branches(p: Any, n: Any) -> Any:
    a, b = np.zeros(3), np.ones(3)
    if p > 0:
        c = a
        if p > 1:
            c = b
    else:
        c = a * 2
    c[0] += 0.5
    return a, b


def truths(p: Any, n: Any) -> Any:
    first = 1 if (p > 1) is True else 2
    match (p > 1, 1):
        case [True, 1]:
            second = 3
        case (False, _):
            second = 4
        case _:
            second = 5
    return first, second, (p > 1) is not False, (not p > 1) is (p < 3)


FUNCTIONS = [
    rebound_by_a_function, rebound_by_a_method, nested_swaps, swaps, conditional_swaps, another_array, arrays_of_inner_branches,
    truths,
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("guards", [False, None, True])
def test_results_are_plain_pythons(function: Callable[[Any, Any], Any], guards: bool | None) -> None:
    is_followed = function in (conditional_swaps, another_array, arrays_of_inner_branches)
    for p in (0.0, 1.0, 2.0, np.float64(2.0)):
        if function is truths and guards:
            continue
        for n in (np.int64(0), np.int64(3)):
            with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
                try:
                    result, expected = pb.jit(function, guards=guards)(p, n), function(p, n)
                except pb.TraceError as error:
                    assert guards is False and is_followed and "is written under one name and used under another" in str(error)
                    continue
            pairs = zip(result, expected, strict=True) if isinstance(expected, tuple) else [(result, expected)]
            for x, y in pairs:
                np.testing.assert_array_equal(x, y)


def test_functions_that_bind_variables_have_derivatives() -> None:
    def loss(p: Any, n: Any) -> Any:
        r = p

        def step() -> None:
            nonlocal r
            r = r * p

        for _ in range(n):
            step()
        return r

    for function in (pb.grad(loss), pb.jit(pb.grad(loss)), lambda p, n: pb.jvp(lambda x: loss(x, n), (p,), (1.0,))[1]):
        assert function(1.5, np.int64(3)) == pytest.approx(4 * 1.5**3)
    assert pb.grad(pb.grad(loss))(1.5, np.int64(3)) == pytest.approx(12 * 1.5**2)
    np.testing.assert_allclose(pb.vmap(loss, in_axes=(0, None))(np.array([1.0, 2.0]), np.int64(3)), [1.0, 16.0])


def test_truths_are_tested_in_functions_that_are_traced_as_written() -> None:
    def tested(p: Any) -> Any:
        match (p > 1, 1):
            case [True, 1]:
                return 1.0 if (p > 2) is True else 2.0
        return 3.0

    for p in (0.5, 1.5, 2.5):
        assert pb.jit(tested, guards=True)(p) == tested(p)
    with pytest.raises(pb.TraceError):
        pb.jit(tested, loops="unroll")(0.5)


def divides_then_raises(p: Any) -> Any:
    quotient = 1.0 / p
    raise ValueError(f"after {type(quotient) is float}")


def checks_then_raises(p: Any) -> Any:
    if p < 1:
        raise IndexError("small")
    raise ValueError("never")


def indexes_then_raises(p: Any) -> Any:
    first = np.arange(3.0)[(p * np.ones(1)).astype(int)]
    if first is not None:
        raise ValueError("read")


@pytest.mark.parametrize("function", [divides_then_raises, checks_then_raises, indexes_then_raises])
@pytest.mark.parametrize("guards", [False, None, True])
@pytest.mark.parametrize("p", [0.0, 1.0, 4.0])
def test_the_first_error_is_raised(function: Callable[[Any], Any], guards: bool | None, p: float) -> None:
    with pytest.raises(Exception) as expected:
        function(p)
    with pytest.raises(type(expected.value)) as raised, warnings.catch_warnings(action="ignore"):
        pb.jit(function, guards=guards)(p)
    if function is not divides_then_raises or p == 0:
        assert str(raised.value) == str(expected.value)
