"""`match` on traced values under `pb.jit(loops="roll")`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def literals(x: Any, k: Any) -> Any:
    match k:
        case 0:
            y = x * x
        case 1 | 2:
            y = np.sin(x)
        case other:
            y = x * other
    return y


def sequences(x: Any, k: Any) -> Any:
    pair = (x * x, k)
    match pair:
        case (p, 3):
            return p * 3
        case [_, _, _]:
            return x
        case [p, q] as both:
            return p * q + len(both)
    return x


def guarded(x: Any, k: Any) -> Any:
    state, total = "up", x
    while k > 0:
        k = k - 1
        match state:
            case "up" if total > 2:
                state = "down"
                continue
            case "up":
                total = total * 1.5
            case "down" | "level":
                total = total * total * 0.25
                if total < 0.3:
                    break
                state = "up"
            case _:
                raise ValueError("no state")
    return total if state == "up" else -total


def optional(x: Any, k: Any) -> Any:
    z = None
    if k > 1:
        z = (x, k * x)
    match z:
        case None:
            return x * x
        case (u, v):
            return u * v
        case _:
            return 0.0 * x


def kept(x: Any, k: Any) -> Any:
    """Patterns that stay Python's own, on values that are known."""
    total = x if k > 1 else 2 * x
    match {"a": 3, "b": 1}:
        case {"a": n, **rest}:
            total = total * n + len(rest)
    match [1, 2, 3]:
        case [first, *others] if first < 2:
            total = total * len(others)
    return total


@pytest.mark.parametrize("function", [literals, sequences, guarded, optional, kept])
def test_values_and_derivatives(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, loops="roll")
    slope = pb.grad(compiled)
    second = pb.grad(slope)
    for k in (0, 1, 2, 3, 7):
        for count in (k, np.int64(k)):
            for x in (0.7, -0.4, 1.9):
                assert compiled(x, count) == function(x, count)
                difference = (function(x + 1e-6, count) - function(x - 1e-6, count)) / 2e-6
                np.testing.assert_allclose(slope(x, count), difference, rtol=1e-6, atol=1e-8)
                difference = (slope(x + 1e-6, count) - slope(x - 1e-6, count)) / 2e-6
                np.testing.assert_allclose(second(x, count), difference, rtol=1e-5, atol=1e-7)
    rows = np.array([0.7, -0.4, 1.9])
    got = pb.vmap(compiled, in_axes=(0, None))(rows, np.int64(7))
    np.testing.assert_allclose(got, [function(x, 7) for x in rows], rtol=1e-14)


def test_a_text_is_no_sequence_and_an_array_is_none() -> None:
    @pb.jit(loops="roll")
    def kinds(x: Any, c: Any) -> Any:
        total = x if c > 0 else -x
        for value in ("ab", np.ones(2), (1, 2), [1, 2]):
            match value:
                case [_, _]:
                    total = total * 2
        return total

    assert kinds(1.0, 1.0) == 4.0


class Point:
    __match_args__ = ("u", "v")

    def __init__(self, u: Any, v: Any) -> None:
        self.u, self.v = u, v


def of_classes(x: Any, k: Any) -> Any:
    match Point(x, k):
        case Point(u=0.5):
            return 5 * x
        case Point(u, v) if v > 2 * u:
            return u * v
        case Point(v=3):
            return x * x
        case Point(w=_):
            return x
        case Point(a, _) as p:
            return a + p.v


def of_types(x: Any, k: Any) -> Any:
    match x:
        case int() | str():
            return 1.0
        case float(y) if y > 1:
            return y * k
        case np.floating() | float():
            return 3 * x
    return x


def of_mappings(x: Any, k: Any) -> Any:
    match {"a": x, "b": {"c": k, "d": 2.0}}:
        case {"z": _}:
            return x
        case {"a": 0.5, **rest}:
            return rest["b"]["c"] * x
        case {"b": {"c": 3, **inner}, "a": a}:
            return a * inner["d"]
        case {"a": a}:
            return a + len({"a": a})


def of_stars(x: Any, k: Any) -> Any:
    match (x, k, 2.0, x * x):
        case [_, _]:
            return x
        case (first, *middle, last) if last > 4:
            return first * len(middle) + middle[0]
        case [0.5, *_]:
            return 7 * x
        case [*rest, _, last]:
            return sum(rest) + last


def of_guards(x: Any, k: Any) -> Any:
    name = -1.0
    match k:
        case name if x > 2:
            return x * name
        case 1 | 2:
            y = x
        case other if other > x:
            y = x * other
        case _:
            y = x * x
    return y + name


def in_loop(x: Any, k: Any) -> Any:
    state = Point(x, 0.0)
    while k > 0:
        match state:
            case Point(u, v) if u > 2:
                state.u, state.v = u * 0.5, v + 1
            case Point(u=u):
                state.u = u * 1.75
        k = k - 1
    return state.u + state.v


@pytest.mark.parametrize("function", [of_classes, of_types, of_mappings, of_stars, of_guards, in_loop])
def test_patterns_of_classes_mappings_and_stars(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for x in (0.5, 1.5, 2.5, np.float64(0.5), np.float64(2.5)):
        for k in (0.0, 1.0, 2.0, 3.0, 4.0):
            np.testing.assert_allclose(compiled(x, k), function(x, k), rtol=1e-15)
    for x in (0.75, 2.5):
        ahead, behind = function(x + 1e-6, 3.0), function(x - 1e-6, 3.0)
        np.testing.assert_allclose(pb.grad(compiled)(x, 3.0), (ahead - behind) / 2e-6, rtol=1e-6)
    xs = np.array([0.5, 1.5, 2.5])
    np.testing.assert_allclose(pb.vmap(lambda x: function(x, 3.0))(xs), [function(x, 3.0) for x in xs], rtol=1e-15)


def test_too_many_positional_patterns() -> None:
    def many(x: Any) -> Any:
        match Point(x, x):
            case Point(_, _, _):
                return x
        return -x

    with pytest.raises(TypeError, match="accepts 2 positional sub-patterns"):
        many(1.0)
    with pytest.raises(TypeError, match="accepts 2 positional sub-patterns"):
        pb.jit(many)(1.0)
