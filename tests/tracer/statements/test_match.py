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
