"""Tests of objects that a traced function makes and returns: each call returns new ones of the user's class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import pullback as pb


class Vector:
    unit = "m"

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.x + other.x, self.y + other.y)

    def norm(self) -> float:
        return math.hypot(self.x, self.y)


class Named(Vector):
    def __init__(self, x: Any, y: Any, name: str) -> None:
        super().__init__(x, y)
        self.name, self.inner, self.table = name, [Vector(x, 1.0)], {"v": Vector(y, np.array([x, y]))}


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Cached:
    __slots__ = ("x",)

    def __new__(cls, x: Any) -> Cached:
        return super().__new__(cls)

    def __init__(self, x: Any) -> None:
        self.x = x


def contents(value: Any) -> Any:
    """Return a value with the classes and attributes of its objects."""
    if isinstance(value, list | tuple):
        return [contents(x) for x in value]
    if isinstance(value, dict):
        return {k: contents(x) for k, x in value.items()}
    if isinstance(value, Vector):
        return type(value), contents(vars(value))
    return value.tolist() if isinstance(value, np.ndarray) else (type(value), value)


def added(a: float, b: float) -> Any:
    return Vector(a, b) + Vector(b, 1)


def nested(a: float, b: float) -> Any:
    return Named(a, b, "n"), a * b


def in_a_loop(a: float, b: float) -> Any:
    v = Vector(a, b)
    for _ in range(300):
        v = v + Vector(b, 1.0)
    return v


def of_constants(a: float, b: float) -> Any:
    return [Vector(1.0, "text"), Vector(None, a)]


@pytest.mark.parametrize("function", [added, nested, in_a_loop, of_constants])
def test_objects_are_those_of_python(function: Any) -> None:
    compiled = pb.jit(function)
    for a, b in ((1.0, 2.0), (-3.0, 4.5), (1.0, 2.0), (0.5, 0.25)):
        result, expected = compiled(a, b), function(a, b)
        assert contents(result) == contents(expected)
    assert compiled(1.0, 2.0) is not compiled(1.0, 2.0)


def test_methods_of_the_result_are_the_users() -> None:
    result = pb.jit(added)(2.0, 3.0)
    assert type(result) is Vector and result.norm() == math.hypot(5.0, 4.0) and result.unit == "m"
    assert type(result + result) is Vector


def test_slots() -> None:
    compiled = pb.jit(lambda a: Slotted(a * 2))
    for a in (1.0, 2.0, 3.0, 4.0):
        assert type(compiled(a)) is Slotted and compiled(a).x == 2 * a


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
def test_an_object_or_none() -> None:
    compiled = pb.jit(lambda a: Vector(a, a) if a > 0 else None)
    for a in (1.0, -1.0, 2.0, -2.0):
        assert contents(compiled(a)) == contents(Vector(a, a) if a > 0 else None)


def test_what_is_more_than_its_attributes_is_refused() -> None:
    def twice(a: float) -> Any:
        v = Vector(a, a)
        return v, v

    def cyclic(a: float) -> Any:
        v = Vector(a, a)
        v.x = v
        return v

    for function in (twice, cyclic):
        with pytest.raises(pb.TraceError, match="twice in the result"):
            pb.jit(function)(1.0)
    with pytest.raises(pb.TraceError, match="holds traced values"):
        pb.jit(lambda a: Cached(a))(1.0)
