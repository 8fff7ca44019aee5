"""Tests of the errors of Python's arithmetic on floats: each operation raises what CPython raises, or returns what it returns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.text import print_function
from pullback.tracer.trace import trace

INF, NAN = math.inf, math.nan
POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 2.5, -1.5, 200.0, -1000.0, 1e200, 1e-200, -1e308, INF, -INF, NAN)

UNARY: dict[str, Callable[[Any], Any]] = {
    "1/x": lambda x: 1.0 / x, "int/x": lambda x: 1 / x, "1//x": lambda x: 1.0 // x, "1%x": lambda x: 1.0 % x,
    "x/0": lambda x: x / 0.0, "x%0": lambda x: x % 0, "divmod": lambda x: divmod(2.0, x), "-1": lambda x: x**-1,
    "2": lambda x: x**2, "3": lambda x: x**3, "-2": lambda x: x**-2, "7": lambda x: x**7, "0": lambda x: x**0,
    "2^x": lambda x: 2.0**x, "0^x": lambda x: 0.0**x, "pow": lambda x: pow(x, 2), "1/sqrt": lambda x: 1.0 / math.sqrt(x),
    "1/(x-1)": lambda x: 1.0 / (x - 1), "bool": lambda x: True / x, "int": lambda x: int(x), "round": lambda x: round(x),
    "floor": lambda x: math.floor(x), "log2": lambda x: math.log(x, 2), "log of": lambda x: math.log(2.0, x),
    "float": lambda x: 1 / float(x), "ldexp": lambda x: math.ldexp(x, 900),
}  # fmt: skip
MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "degrees", "erf", "erfc", "exp", "expm1",
    "fabs", "log", "log10", "log1p", "log2", "radians", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "gamma",
)  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "/": lambda x, y: x / y, "//": lambda x, y: x // y, "%": lambda x, y: x % y, "divmod": divmod, "**": lambda x, y: x**y,
    "math.pow": math.pow, "fmod": math.fmod, "remainder": math.remainder, "atan2": math.atan2, "hypot": math.hypot,
}  # fmt: skip


def _outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except (ArithmeticError, ValueError) as error:
        return error


def _assert_same(function: Callable[..., Any], compiled: Callable[..., Any], *args: Any) -> None:
    expected, result = _outcome(function, *args), _outcome(compiled, *args)
    if isinstance(expected, complex) or "complex" in str(expected):
        assert isinstance(result, ValueError) and "complex" in str(result), (args, expected, result)
    elif isinstance(expected, int) and abs(expected) >= 2**63:
        assert isinstance(result, OverflowError), (args, expected, result)
    elif isinstance(expected, Exception):
        assert type(result) is type(expected), (args, expected, result)
        assert str(result) == str(expected).partition(", got ")[0], (args, expected, result)
    else:
        assert not isinstance(result, Exception), (args, expected, result)
        np.testing.assert_allclose(result, expected, rtol=1e-14)


@pytest.mark.parametrize("name", UNARY)
def test_operations_of_one_float_raise_as_python_does(name: str) -> None:
    compiled = pb.jit(UNARY[name])
    for x in POINTS:
        _assert_same(UNARY[name], compiled, x)


@pytest.mark.parametrize("name", MATH)
def test_functions_of_math_raise_as_python_does(name: str) -> None:
    def function(x: float) -> float:
        return getattr(math, name)(x)  # type: ignore[no-any-return]

    compiled = pb.jit(function)
    for x in POINTS:
        if not (name in ("sin", "cos", "tan") and 1e10 < abs(x) < INF):
            _assert_same(function, compiled, x)


@pytest.mark.parametrize("name", BINARY)
def test_operations_of_two_floats_raise_as_python_does(name: str) -> None:
    def function(x: float, y: float) -> Any:
        return BINARY[name](x, y)

    compiled = pb.jit(function)
    for x in POINTS:
        for y in POINTS:
            if name not in ("//", "%", "divmod", "remainder") or max(abs(x), abs(y)) < 1e100:
                _assert_same(function, compiled, x, y)


def test_edges_of_ranges_are_exact() -> None:
    edges = {"exp": 709.782712893384, "cosh": 710.4758600739439, "sinh": -710.4758600739439, "expm1": 709.782712893384}
    for name, edge in edges.items():
        compiled = pb.jit(lambda x, name=name: getattr(math, name)(x))
        assert np.isfinite(compiled(edge))
        with pytest.raises(OverflowError):
            compiled(math.nextafter(edge, math.copysign(INF, edge)))
    square = pb.jit(lambda x: x**2)
    edge = math.nextafter(2.0**512, 0)
    assert square(edge) == edge**2
    with pytest.raises(OverflowError, match=re.escape("(34, 'Numerical result out of range')")):
        square(2.0**512)


def test_numpy_s_numbers_keep_ieee() -> None:
    x = np.float64(0.0)
    with np.errstate(all="ignore"):
        for function in (lambda x: 1.0 / x, lambda x: x**-1.0, lambda x: (x + 1e200) ** 2, lambda x: 1.0 % x):
            np.testing.assert_equal(pb.jit(function)(x), function(x))
    assert np.isinf(pb.jit(lambda x: np.divide(1.0, x))(0.0))
    assert np.isinf(pb.jit(lambda x: 1.0 / x[0])(np.zeros(2)))
    assert np.isnan(pb.jit(lambda x: np.sqrt(x))(-1.0))
    assert pb.jit(lambda x: np.sinc(x))(0.0) == 1.0
    with pytest.raises(OverflowError):
        pb.jit(lambda x: math.exp(x))(np.float64(1000.0))


PROVED: dict[str, Callable[..., Any]] = {
    "constant": lambda x: x / 2.0 + 1.0 / 3,
    "square": lambda x: 1.0 / (x * x + 1.0),
    "sigmoid": lambda x: 1.0 / (1.0 + math.tanh(x) ** 2),
    "cosine": lambda x: 1.0 / (2.0 + 0.5 * math.cos(math.tanh(x))),
    "bounded": lambda x: math.exp(math.tanh(x)) + math.sqrt(abs(x)) + math.log(1.0 + x * x) + math.asin(0.5 * math.tanh(x)),
    "root": lambda x: abs(x) ** 0.5 + (1.0 + x * x) ** -0.5,
    "index": lambda x: sum(x / (i + 1) for i in range(3)),
}


@pytest.mark.parametrize("name", PROVED)
def test_what_cannot_fail_is_not_checked(name: str) -> None:
    f = PROVED[name]
    assert "check" not in print_function(trace(f, (0.5,)).function)
    assert pb.jit(f)(0.5) == pytest.approx(f(0.5), rel=1e-15)


@pytest.mark.parametrize("loops", ["roll", "unroll"])
def test_checks_leave_derivatives_as_they_are(loops: str) -> None:
    def f(x: float, y: float) -> float:
        return x**2 / y + math.exp(x) * math.log(y) + y ** (x - 1.0) + 1.0 / (x - y)

    x, y, h = 1.25, 0.75, 1e-5
    compiled = pb.jit(pb.grad(f, argnums=(0, 1)), loops=loops)
    gx, gy = compiled(x, y)
    assert gx == pytest.approx((f(x + h, y) - f(x - h, y)) / (2 * h), rel=1e-8)
    assert gy == pytest.approx((f(x, y + h) - f(x, y - h)) / (2 * h), rel=1e-8)
    second = pb.jit(pb.grad(pb.grad(f)), loops=loops)(x, y)
    assert second == pytest.approx((f(x + h, y) - 2 * f(x, y) + f(x - h, y)) / h**2, rel=1e-4)
    with pytest.raises(ZeroDivisionError):
        compiled(0.5, 0.5)
    with pytest.raises(ZeroDivisionError):
        compiled(0.5, 0.0)


def test_a_side_that_is_not_taken_does_not_fail() -> None:
    def cheap(x: Any) -> Any:
        if x > 0:
            y = 1.0 / x
        else:
            y = x - 1.0
        return y if x != 1.0 else 2.0 / (x - 1.0 + (x == 1.0))

    def logical(x: Any) -> Any:
        return x != 0 and 1.0 / x > 2.0

    compiled = pb.jit(cheap, loops="roll")
    gradient = pb.jit(pb.grad(cheap), loops="roll")
    for x in (0.0, 2.0, -1.0, 1.0):
        assert compiled(x) == cheap(x)
    assert [gradient(x) for x in (0.0, 2.0, -1.0)] == [1.0, -0.25, 1.0]
    for x in (0.0, 0.25, 2.0):
        assert pb.jit(logical, loops="roll")(x) == logical(x)
    rows = pb.jit(pb.vmap(lambda x: cheap(float(x))), loops="roll")
    np.testing.assert_equal(rows(np.array([0.0, 2.0, -1.0])), [-1.0, 0.5, -2.0])
    with pytest.raises(ZeroDivisionError):
        pb.jit(pb.vmap(lambda x: 1.0 / float(x)))(np.array([1.0, 0.0]))


def test_a_loop_fails_in_the_iteration_that_python_fails_in() -> None:
    def sums(x: Any, n: Any) -> Any:
        total = 0.0
        for i in range(n):
            total += 1.0 / (x - i)
        return total

    def until(x: Any) -> Any:
        steps = 0.0
        while x > -5.0:
            x = x - 1.0 / x
            steps += 1.0
            if steps > 50.0:
                break
        return x

    compiled, gradient = pb.jit(sums, loops="roll"), pb.jit(pb.grad(sums), loops="roll")
    for x, n in ((0.5, 5000), (5000.0, 5000), (7.5, 0)):
        assert compiled(x, np.int64(n)) == sums(x, n)
    for function in (compiled, gradient):
        with pytest.raises(ZeroDivisionError) as caught:
            function(4999.0, np.int64(5000))
        assert "total += 1.0 / (x - i)" in "".join(caught.value.__notes__)
    ends = pb.jit(until, loops="roll")
    assert ends(0.3) == until(0.3)
    with pytest.raises(ZeroDivisionError):
        until(1.0)
    with pytest.raises(ZeroDivisionError):
        ends(1.0)
