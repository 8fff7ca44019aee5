"""What ``for`` statements go over: every way to call ``range``, ``enumerate``, ``zip`` and ``reversed``, as one loop."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def numbered_from_one(x: Any) -> Any:
    s = 0.0
    for i, v in enumerate(x[1:], start=1):
        s = s * 0.5 + i * v
    return s


def strict_pairs(x: Any) -> Any:
    s = 0.0
    for u, v in zip(x[:-1], 2 * x[1:], strict=True):
        s = s * 0.5 + u * v
    return s


def pairs_of_any_lengths(x: Any) -> Any:
    s = 0.0
    for i, (u, v) in enumerate(zip(x[:-1], x, strict=False), start=3):
        s = s * 0.5 + u * v * i
    return s


def unpacked_arguments(x: Any) -> Any:
    s = 0.0
    for u, v in zip(*[x, x * 2]):
        s = s * 0.5 + u * v
    for i in range(*(1, 290)):
        s = s * 0.5 + x[i]
    return s


def backwards(x: Any) -> Any:
    s = 0.0
    for i in reversed(range(2, 280, 3)):
        s = s * 0.5 + np.sin(x[i])
    for v in reversed(x):
        s = s * 0.5 + v
    return s


def filtered_positions(x: Any) -> Any:
    return [i for i, v in enumerate(x[1:], start=1) if v > 1.5]


@pytest.mark.parametrize(
    "function",
    [numbered_from_one, strict_pairs, pairs_of_any_lengths, unpacked_arguments, backwards, filtered_positions],
)
def test_loops_over_calls_roll(function: Callable[..., Any]) -> None:
    x = np.linspace(1, 2, 300)
    compiled = pb.jit(function, guards=False)
    np.testing.assert_allclose(compiled(x), function(x), rtol=1e-14)
    loops = [s.how for s in compiled.explain(x).statements if s.kind == "loop"]
    assert loops and all(how.startswith("rolled") for how in loops)


def test_pairs_of_other_lengths_are_an_error_if_they_are_strict() -> None:
    def pairs(x: Any) -> Any:
        s = 0.0
        for u, v in zip(x, 2 * x[1:], strict=True):
            s = s + u * v
        return s

    x = np.linspace(1, 2, 300)
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter than argument 1"):
        pairs(x)
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is shorter than argument 1"):
        pb.jit(pairs)(x)
