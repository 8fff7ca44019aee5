"""Tests of objects of plain classes as arguments: values, the objects afterwards, and gradients by attributes are those of plain
Python, and a call with another object of the class needs no further program."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import traces
from tests.tracer.programs.object_programs import PROGRAMS


def contents(x: Any, numbers: dict[int, int]) -> Any:
    """The types and values of all that is in a value, in which an object that is met again is its number."""
    if isinstance(x, bool | int | str | None):
        return type(x).__name__, x
    if isinstance(x, float | np.generic):
        return type(x).__name__, float(f"{x:.9g}")
    if id(x) in numbers:
        return "same", numbers[id(x)]
    numbers[id(x)] = len(numbers)
    if isinstance(x, np.ndarray):
        return "array", x.dtype.str, x.shape, [float(f"{v:.9g}") for v in x.ravel()]
    if isinstance(x, dict):
        return type(x).__name__, [(k, contents(v, numbers)) for k, v in x.items()]
    if isinstance(x, list | tuple | deque):
        return type(x).__name__, [contents(v, numbers) for v in x]
    return type(x).__name__, [(name, contents(getattr(x, name), numbers)) for name in attributes(x)]


def attributes(x: Any) -> list[str]:
    slots = [name for kind in type(x).__mro__ for name in vars(kind).get("__slots__", ()) if hasattr(x, name)]
    return [*getattr(x, "__dict__", ()), *slots]


def outcome(function: Callable[..., Any], arguments: Any) -> Any:
    """What a call returns, and what it leaves in its arguments; or what it raises."""
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)
    return contents([result, list(arguments)], {})


def floats(x: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths that lead to the floats in a value."""
    if isinstance(x, float | np.ndarray):
        yield path
    elif isinstance(x, dict):
        for key, value in x.items():
            yield from floats(value, (*path, key))
    elif isinstance(x, list | tuple | deque):
        for k, value in enumerate(x):
            yield from floats(value, (*path, k))
    elif x is not None and not isinstance(x, str | int):
        for name in attributes(x):
            yield from floats(getattr(x, name), (*path, "." + name))


def at(x: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        x = getattr(x, step[1:]) if isinstance(step, str) and step.startswith(".") else x[step]
    return x


def put(x: Any, path: tuple[Any, ...], value: Any) -> None:
    *before, last = path
    holder = at(x, tuple(before))
    if isinstance(last, str) and last.startswith("."):
        object.__setattr__(holder, last[1:], value)
    elif isinstance(holder, tuple):
        put(x, tuple(before), (*holder[:last], value, *holder[last + 1 :]))
    else:
        holder[last] = value


def slope(function: Callable[..., Any], make: Callable[[], Any], wrt: int, path: tuple[Any, ...], step: float = 1e-6) -> Any:
    """The derivative by a float, or by each element of an array, by central differences."""
    shape = np.shape(at(make()[wrt], path))
    result = np.zeros(shape)
    for index in np.ndindex(shape):
        values = []
        for sign in (1, -1):
            arguments = make()
            moved = np.array(at(arguments[wrt], path), float)
            moved[index] += sign * step
            put(arguments[wrt], path, moved if shape else float(moved))
            values.append(float(function(*arguments)))
        result[index] = (values[0] - values[1]) / (2 * step)
    return result


NAMES = [f"{function.__name__}-{k}" for k, (function, *_) in enumerate(PROGRAMS)]


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_calls_do_what_plain_python_does(program: Any) -> None:
    function, make, _, most = program
    compiled = pb.jit(function)
    before = traces()
    for k in (0, 1, 2, 3, 0, 2):
        assert outcome(compiled, make(k)) == outcome(function, make(k))
    assert traces() - before <= most


DIFFERENTIATED = [pytest.param(program, id=name) for program, name in zip(PROGRAMS, NAMES) if program[2] is not None]


@pytest.mark.parametrize("program", DIFFERENTIATED)
def test_gradients_are_by_attributes(program: Any) -> None:
    function, make, wrt, _ = program
    gradient = pb.grad(function, argnums=wrt)
    before = traces()
    for k in (0, 1, 2):
        arguments = make(k)
        result = gradient(*arguments)
        assert type(result) is type(arguments[wrt]) and attributes(result) == attributes(make(k)[wrt])
        for path in floats(make(k)[wrt]):
            expected = slope(function, lambda k=k: make(k), wrt, path)
            np.testing.assert_allclose(at(result, path), expected, rtol=2e-6, atol=2e-6)
            assert isinstance(at(result, path), np.ndarray | np.float64)
        function(*(after := make(k)))
        assert contents(arguments, {}) == contents(after, {})
    assert traces() == before + 1


def weighted(gradient: Any, paths: list[Any]) -> Any:
    return sum(np.sum(at(gradient, path)) * (0.5 + 0.25 * n) for n, path in enumerate(paths))


@pytest.mark.parametrize("program", DIFFERENTIATED[::3])
def test_second_derivatives(program: Any) -> None:
    function, make, wrt, _ = program
    paths = list(floats(make(1)[wrt]))
    first = pb.grad(function, argnums=wrt)

    def directional(*arguments: Any) -> Any:
        return weighted(pb.grad(function, argnums=wrt)(*arguments), paths)

    second = pb.grad(directional, argnums=wrt)(*make(1))
    for path in paths:
        expected = slope(lambda *x: weighted(first(*x), paths), lambda: make(1), wrt, path)
        np.testing.assert_allclose(at(second, path), expected, rtol=1e-5, atol=1e-5)
