"""Tests of ``cmath`` on traced numbers: values, types and errors are CPython's."""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e300, -1e300, 800.0, -800.0, math.inf, -math.inf, math.nan)
FUNCTIONS = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "isfinite", "isinf", "isnan", "log", "log10",
    "phase", "polar", "sin", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)


def assert_same(result: Any, expected: Any, z: Any) -> None:
    assert type(result) is type(expected), (z, result, expected)
    if isinstance(expected, tuple):
        for a, b in zip(result, expected, strict=True):
            assert_same(a, b, z)
    elif isinstance(expected, complex) and cmath.isfinite(expected):
        assert abs(result - expected) <= 1e-14 * abs(expected), (z, result, expected)
    elif isinstance(expected, complex | float):
        np.testing.assert_allclose(result, expected, rtol=1e-14, err_msg=str(z))
    else:
        assert result == expected, (z, result, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    function = getattr(cmath, name)
    compiled = pb.jit(lambda z: function(z))
    for x, y in itertools.product(PARTS, PARTS):
        if (x == 0 and y != y and name in ("acosh", "tanh")) or (y == 0 and x != x and name == "tan"):
            continue  # NumPy keeps a part of 0 if the other one is NaN, cmath does not
        z = complex(x, y)
        assert_same(outcome(compiled, z), outcome(function, z), z)


def test_functions_of_real_numbers() -> None:
    for function in (cmath.sqrt, cmath.exp, cmath.phase, cmath.polar):
        compiled = pb.jit(lambda x, function=function: function(x))
        for x in (2.0, -2.0, -3):
            assert_same(compiled(x), function(x), x)


def test_two_arguments() -> None:
    values = (0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)
    rect = pb.jit(lambda r, phi: cmath.rect(r, phi))
    for r, phi in itertools.product(values, values):
        assert_same(outcome(rect, r, phi), outcome(cmath.rect, r, phi), (r, phi))
    log = pb.jit(lambda z, base: cmath.log(z, base))
    for z, base in itertools.product((1 + 2j, 0j, 2.0 + 0j), (2j, 1 + 0j, 0j, 10 + 0j)):
        assert_same(outcome(log, z, base), outcome(cmath.log, z, base), (z, base))
    near = pb.jit(lambda a, b: cmath.isclose(a, b))
    for a, b in itertools.product((1 + 2j, 1 + 2.0000000001j, 3j, complex(math.inf, 0)), repeat=2):
        assert_same(near(a, b), cmath.isclose(a, b), (a, b))


def test_gradients() -> None:
    def loss(frequency: float, r: float) -> float:
        z = complex(r, frequency * 0.1 - 1 / frequency)
        modulus, angle = cmath.polar(z)
        return modulus + angle + abs(cmath.exp(cmath.sqrt(z) * 0.3)) + cmath.log(z, 3.0).real

    for k, point in itertools.product(range(2), ((2.0, 1.5), (7.0, -0.5))):
        moved = [[x + s * 1e-6 * (n == k) for n, x in enumerate(point)] for s in (1, -1)]
        expected = (loss(*moved[0]) - loss(*moved[1])) / 2e-6
        assert math.isclose(pb.grad(loss, argnums=k)(*point), expected, rel_tol=1e-6)


def test_conjugates_and_parts_of_pythons_numbers_are_pythons() -> None:
    for part in (lambda z: z.conjugate(), lambda z: z.real, lambda z: z.imag):
        for z in (1 + 2j, 1.5, 3, np.float64(2.0), np.complex128(1j)):
            assert_same(pb.jit(part)(z), part(z), z)
    assert_same(pb.jit(lambda b: b.imag)(True), 0, True)
