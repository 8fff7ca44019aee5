"""Derivatives at zeros of an entire function, of angles of numbers whose squares are no floats, and of powers at the origin."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import pullback as pb


@pytest.mark.parametrize("x", [-3.0, -2.0, -1.0, 0.0, -10.0, -2.0 + 1e-9, -0.3, 0.2, 0.7, -20.25, 3.5])
def test_derivatives_of_rgamma(x: float) -> None:
    f = scipy.special.rgamma
    first, second = (float(mpmath.diff(mpmath.rgamma, mpmath.mpf(x), n)) for n in (1, 2))
    np.testing.assert_allclose(pb.grad(lambda x: f(x))(x), first, rtol=1e-13)
    np.testing.assert_allclose(pb.jvp(lambda x: f(x), (x,), (1.0,))[1], first, rtol=1e-13)
    np.testing.assert_allclose(pb.grad(pb.grad(lambda x: f(x)))(x), second, rtol=1e-12)


def test_rgamma_in_float32_and_far_below() -> None:
    x = np.array([-2.0, -5.0, 0.0, 3.0, -200.0, np.nan], np.float32)
    value, slope = pb.vmap(pb.value_and_grad(lambda x: scipy.special.rgamma(x)))(x)
    assert value.dtype == slope.dtype == np.float32
    np.testing.assert_allclose(value, scipy.special.rgamma(x), rtol=1e-6)
    np.testing.assert_allclose(slope[:4], [2.0, -120.0, 1.0, -0.4613921675492341], rtol=1e-6)


@pytest.mark.parametrize(("dtype", "sizes"), [(np.float32, (1e-30, 1e-25, 1e25, 1e30)), (np.float64, (1e-250, 1e-200, 1e200))])
def test_angles_of_numbers_whose_squares_are_no_floats(dtype: Any, sizes: tuple[float, ...]) -> None:
    for size in sizes:
        x, y = dtype(3 * size), dtype(4 * size)
        with np.errstate(all="ignore"):
            expected = np.array([3 / 25, -4 / 25]) / size
        result = pb.grad(lambda v: np.arctan2(v[1], v[0]))(np.array([x, y]))
        np.testing.assert_allclose(result[::-1], expected, rtol=1e-6)
        along = pb.jvp(np.arctan2, (y, x), (dtype(1), dtype(0)))[1]
        np.testing.assert_allclose(along, expected[0], rtol=1e-6)
        result = pb.grad(lambda v: np.angle(v[0] + v[1] * np.complex64(1j)))(np.array([x, y]))
        np.testing.assert_allclose(result[::-1], expected, rtol=1e-6)
        result = pb.grad(lambda v: np.log(v[0] + v[1] * np.complex64(1j)).real)(np.array([x, y]))
        np.testing.assert_allclose(result, np.array([3 / 25, 4 / 25]) / size, rtol=1e-6)
        result = pb.grad(lambda v: np.abs(v[0] + v[1] * np.complex64(1j)))(np.array([x, y]))
        np.testing.assert_allclose(result, [0.6, 0.8], rtol=1e-6)
        result = pb.grad(lambda v: np.hypot(v[0], v[1]))(np.array([x, y]))
        np.testing.assert_allclose(result, [0.6, 0.8], rtol=1e-6)


def test_angles_at_infinity() -> None:
    slopes = pb.vmap(pb.grad(lambda v: np.arctan2(v[0], v[1])))(np.array([[1.0, np.inf], [np.inf, 1.0], [np.nan, 1.0]]))
    np.testing.assert_array_equal(slopes, [[0.0, 0.0], [0.0, 0.0], [np.nan, np.nan]])


@pytest.mark.parametrize("f", [lambda x: x**x, lambda x: x ** (2 * x), lambda x: x ** np.sin(x), lambda x: (2 * x) ** x])
def test_powers_at_the_origin_have_their_limits(f: Any) -> None:
    assert pb.grad(f)(0.0) == -np.inf
    assert pb.jvp(f, (0.0,), (1.0,))[1] == -np.inf


def test_the_curvature_of_a_power_at_the_origin() -> None:
    assert pb.grad(pb.grad(lambda x: x**x))(0.0) == np.inf
