"""Tests of ``round`` of Python's numbers to a number of digits: equal to the bit to CPython's."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import TraceError
from tests.support.outcomes import said

SPECIAL = (
    0.0, -0.0, math.inf, -math.inf, math.nan, 1e308, 5e-324, 0.5, 1.5, 2.5, -0.5, 2.55, -2.675, 1e22, 2.0**53 - 1,
    2.0**52 - 0.5, 2.0**51 + 0.25,
)  # fmt: skip


def number(rng: random.Random) -> float:
    """Return a float of any size, a decimal one near or at a tie, or a binary fraction, which may be a tie."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.uniform(-1, 1) * 10.0 ** rng.randint(-6, 18)
    if kind == 1:
        return rng.randint(-(10**6), 10**6) / 1000 + rng.choice([0, 0.0005, 0.005, 0.05])
    return (2 * rng.randint(-(10**7), 10**7) + 1) / 2 ** rng.randint(1, 20)


def rounding(digits: int) -> Any:
    """Return the function that rounds to a number of digits."""
    return lambda x: round(x, digits)


def test_floats_are_rounded_as_pythons() -> None:
    rng = random.Random(0)
    for digits in range(-5, 16):
        compiled = pb.jit(rounding(digits))
        for x in [*SPECIAL, *(number(rng) for _ in range(300))]:
            result, expected = compiled(x), round(x, digits)
            assert type(result) is float and repr(result) == repr(expected), (x, digits, result, expected)


def test_ints_stay_ints() -> None:
    for digits in (-3, -2, -1, 0, 2):
        compiled = pb.jit(lambda x, digits=digits: round(int(x), digits))
        for x in (0.0, 15.0, 25.0, -15.0, -25.0, 50.0, 150.0, 2500.0, 1049.0, 1051.0, -1500.0):
            result = compiled(x)
            assert type(result) is int and result == round(int(x), digits), (x, digits)


def test_numpys_numbers_are_rounded_by_numpy() -> None:
    result = pb.jit(rounding(1))(np.float64(2.55))
    assert type(result) is np.float64 and result == round(np.float64(2.55), 1)


def test_the_derivative_is_zero() -> None:
    assert pb.grad(rounding(2))(1.234) == 0.0 and pb.grad(rounding(15))(123.0) == 0.0
    assert pb.grad(lambda x: round(x, 2) * x)(1.234) == 1.23


def test_digits_without_an_exact_power_of_ten() -> None:
    with pytest.raises(TraceError, match="at most 22"):
        pb.jit(rounding(23))(0.5)
    with pytest.raises(TypeError) as error:
        pb.jit(lambda z: round(z, 1))(1j)
    assert "round" in said(error.value)
