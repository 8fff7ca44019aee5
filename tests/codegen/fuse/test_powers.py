"""Powers with constant exponents that are products and quotients with a square root."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.rewrites.powers import POWERS, powers_by_roots
from pullback.ir.core.structure import walk
from pullback.ir.text import parse_function, print_function
from pullback.tracer import trace
from tests.support.api import Array
from tests.support.targets import compiled

TEXT = """
func f(%x: f64[n], %y: f64[n]) -> (f64[n], f64[n], f64[n]) {
  %a: f64[] = const {value=-1.5}
  %b: f64[n] = broadcast %a {axes=[0]}
  %c: f64[n] = pow %x, %b
  %d: f64[n] = pow %x, %y
  %e: f64[] = const {value=3.5}
  %g: f64[n] = broadcast %e {axes=[0]}
  %h: f64[n] = pow %x, %g
  return %c, %d, %h
}
"""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, -3.0, 5e-324, 1e-310, 1e-206, 1e206, 1e300, 1.7e308, 4.0]


def test_text() -> None:
    text = print_function(powers_by_roots(parse_function(TEXT)))
    assert text.count("pow") == 2
    assert text.count("sqrt") == 1 and text.count("div") == 2


def power(x: Array, exponent: float) -> Any:
    return x**exponent


@pytest.mark.parametrize("exponent", POWERS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values(exponent: float, dtype: type) -> None:
    rng = np.random.default_rng(0)
    numbers = np.concatenate([SPECIAL, rng.uniform(0, 10, 5000), 10 ** rng.uniform(-300, 300, 5000)])
    with np.errstate(all="ignore"):
        x = numbers.astype(dtype)
        exact = np.power(x.astype(np.longdouble), np.longdouble(exponent))
        expected = exact.astype(dtype)
        result = pb.jit(power, static_argnames="exponent")(x, exponent=exponent)
        is_number = np.isfinite(expected) & (expected != 0)
        np.testing.assert_array_equal(result[~is_number], expected[~is_number])
        np.testing.assert_array_equal(np.signbit(result[:2]), np.signbit(expected[:2]))
        error = np.abs(result.astype(np.longdouble) - exact)[is_number] / np.spacing(np.abs(expected[is_number]))
        assert error.max() <= (1.5 if exponent in (1.5, -0.5) else 2.0)


@pytest.mark.parametrize("exponent", POWERS)
def test_gradients_at_zero_are_those_of_powers(exponent: float) -> None:
    slope = pb.grad(lambda x: np.sum(x**exponent))(np.array([0.0, 4.0]))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(slope, exponent * np.array([0.0, 4.0]) ** (exponent - 1), rtol=1e-14)


def test_powers_in_loops_take_roots_too() -> None:
    def fall(x: Array) -> Any:
        return pb.fori_loop(0, 100, lambda _, x: x - 0.01 * x / (x[0] * x[0] + x[1] * x[1]) ** 1.5, x)

    x = np.array([1.0, 2.0])
    expected = x
    for _ in range(100):
        expected = expected - 0.01 * expected / (expected[0] ** 2 + expected[1] ** 2) ** 1.5
    np.testing.assert_allclose(pb.jit(fall)(x), expected, rtol=1e-13)
    scheduled = compiled(trace(fall, (x,), {}).function).scheduled
    names = {i.op.name for f in scheduled.functions for i in walk(f.body)}
    assert "sqrt" in names and "pow" not in names and "mantissa" not in names
