"""How often a function is traced, and errors of the tracer itself, which the tests do not let pass."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.arrays.frame import Frame
from pullback.tracer.user_code.defects import Defect, is_defect

trace_module = importlib.import_module("pullback.tracer.trace")
X = np.array([0.5, 2.0, -1.0, 3.0])


def straight(x: Any) -> Any:
    return np.sum(np.sin(x) * x)


def looped(x: Any) -> Any:
    total = 0.0
    for value in x:
        if value > 0:
            total += value
    return total


def nested(x: Any) -> Any:
    total = 0.0
    for i in range(len(x)):
        for j in range(i):
            while total < x[j]:
                total += 1.0
    return total


def fixed_lists(x: Any) -> Any:
    parts = []
    for k in range(3):
        parts.append(x * k)
    return sum(parts)


def growing_lists(x: Any) -> Any:
    kept = []
    for value in x:
        if value > 0:
            kept.append(value)
    return np.array(kept)


def one_of_several_functions(x: Any) -> Any:
    return looped(x) + nested(x) + straight(x)


def static_array(x: Any) -> Any:
    order = np.arange(len(x))
    for k in range(len(x)):
        largest = k + np.argmax(x[k:])
        order[[k, largest]] = order[[largest, k]]
    return order


def used_iterator(x: Any) -> Any:
    left = iter(range(9))
    while x > 1:
        x = x / 2
        next(left)
    return x, len(list(left))


def used_iterator_and_list(x: Any) -> Any:
    left, out = iter(range(9)), []
    while x > 1:
        x = x / 2
        next(left)
        out.append(x)
    return x, len(list(left)), len(out)


def stack_of_indices(x: Any) -> Any:
    stack, count = [0], 0
    while stack:
        k = stack.pop()
        if x[k] > 0 and k + 1 < len(x):
            stack.append(k + 1)
            stack.append(k + 1)
        count += 1
    return count


def unknown_function(x: Any) -> Any:
    return np.busday_count(x, x)


def unknown_function_in_a_loop(x: Any) -> Any:
    for value in x:
        if value > 0:
            np.busday_count(x, x)
    return x


def fresh(function: Any) -> Any:
    """Return a copy of a function, for which nothing is compiled."""
    return FunctionType(function.__code__, function.__globals__)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Frame]]:
    """The root frames of the traces of a test."""
    frames: list[Frame] = []
    before = trace_module._trace

    def counted(*arguments: Any) -> Any:
        frames.extend(x for x in arguments if isinstance(x, Frame))
        return before(*arguments)

    monkeypatch.setattr(trace_module, "_trace", counted)
    yield frames


@pytest.mark.parametrize("function", [straight, looped, nested, fixed_lists, one_of_several_functions])
def test_a_function_that_rolls_is_traced_once(function: Callable[..., Any], frames: list[Frame]) -> None:
    assert np.allclose(pb.jit(fresh(function))(X), function(X), rtol=1e-15)
    assert len(frames) == 1
    frames.clear()
    if function is not fixed_lists:
        pb.jit(pb.value_and_grad(fresh(function)))(X)
        assert len(frames) == 1


@pytest.mark.parametrize("function", [growing_lists, static_array])
def test_lists_that_grow_and_arrays_that_become_traced_take_one_more_trace(
    function: Callable[..., Any], frames: list[Frame]
) -> None:
    assert np.array_equal(pb.jit(fresh(function))(X), function(X))
    assert len(frames) == 2


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(
    ("function", "argument", "most"), [(used_iterator, 8.0, 3), (used_iterator_and_list, 8.0, 4), (stack_of_indices, X, 5)]
)
def test_a_followed_function_is_traced_a_few_times(
    function: Callable[..., Any], argument: Any, most: int, frames: list[Frame]
) -> None:
    assert pb.jit(fresh(function))(argument) == function(argument)
    assert 1 < len(frames) <= most


@pytest.mark.parametrize(
    ("function", "argument", "most"),
    [(used_iterator, 8.0, 2), (used_iterator_and_list, 8.0, 3), (unknown_function, X, 1), (unknown_function_in_a_loop, X, 2)],
)
def test_a_refused_function_is_traced_a_few_times(
    function: Callable[..., Any], argument: Any, most: int, frames: list[Frame]
) -> None:
    with pytest.raises(pb.TraceError):
        pb.jit(fresh(function), guards=False)(argument)
    assert 1 <= len(frames) <= most


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("is_strict", [False, True])
def test_errors_of_the_tracer_are_raised_in_tests_and_hidden_else(is_strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_STRICT", str(int(is_strict)))
    monkeypatch.setattr(importlib.import_module("pullback.tracer.statements.blocks"), "outer_contents", {}.__getitem__)
    if is_strict:
        with pytest.raises(Defect, match="KeyError"):
            pb.jit(fresh(looped))(X)
    else:
        assert pb.jit(fresh(looped))(X) == looped(X)


def test_users_errors_are_no_defects() -> None:
    def failing() -> Any:
        return [1.0][4]

    for function in (failing, lambda: np.zeros(3) @ np.zeros(4), lambda: pb.jit(lambda x: x @ np.zeros(4))(np.zeros(3))):
        with pytest.raises((IndexError, ValueError)) as raised:
            function()
        assert not is_defect(raised.value)


def test_an_error_that_plain_python_raises_too_is_raised() -> None:
    def divided(x: Any, k: int) -> Any:
        for value in x:
            if value > 0:
                x = x / value
        return x[1 // k]

    with pytest.raises(ZeroDivisionError):
        pb.jit(divided)(X, 0)
