"""Elementary functions of complex numbers in real ops, with the branch cuts and special values of C99, annex G.

Methods: W. Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit" (1987). Functions with
32-bit parts are computed in 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pullback.ir.core.types import F64, I64
from pullback.ir.core.value import Value
from pullback.ir.passes.complex.arithmetic import PARTS, Pair, Parts, choose, div, like, mul

INF, NAN = math.inf, math.nan
LN2, LN10 = math.log(2.0), math.log(10.0)
STEP = 700.0
"""Exponent above which exp is computed as a product of two factors, so that it overflows only if the result does."""


def function(name: str) -> Callable[[Parts], Parts]:
    """Decorator: register a function of 64-bit parts as the lowering of the named op for complex operands."""

    def register(of_parts: Parts) -> Parts:
        def wide(b: Any, *operands: Pair, **_: Any) -> Pair:
            dtype = operands[0][0].type.dtype
            arguments = operands if dtype is F64 else [(b.cast(x, dtype=F64), b.cast(y, dtype=F64)) for x, y in operands]
            re, im = of_parts(b, *arguments)
            return (re, im) if dtype is F64 else (b.cast(re, dtype=dtype), b.cast(im, dtype=dtype))

        PARTS[name] = wide
        return of_parts

    return register


def _is_zero(b: Any, x: Value) -> Value:
    result: Value = b.eq(x, like(b, 0, x))
    return result


def _is_infinite(b: Any, x: Value) -> Value:
    result: Value = b.eq(b.abs(x), like(b, INF, x))
    return result


def _is_finite(b: Any, x: Value) -> Value:
    result: Value = b.lt(b.abs(x), like(b, INF, x))
    return result


def _is_nan(b: Any, x: Value) -> Value:
    result: Value = b.ne(x, x)
    return result


def _scaled(b: Any, x: Value, factor: float) -> Value:
    result: Value = b.mul(x, like(b, factor, x))
    return result


def _one_plus(b: Any, x: Value) -> Value:
    result: Value = b.add(like(b, 1, x), x)
    return result


def times_i(z: Pair, b: Any) -> Pair:
    """Emit i z."""
    return b.neg(z[1]), z[0]


def times_minus_i(z: Pair, b: Any) -> Pair:
    """Emit -i z."""
    return z[1], b.neg(z[0])


@function("one_minus_square")
def one_minus_square(b: Any, z: Pair) -> Pair:
    x, y = z
    return mul(b, (_one_plus(b, b.neg(x)), b.neg(y)), (_one_plus(b, x), y))


@function("lorentzian")
def lorentzian(b: Any, z: Pair) -> Pair:
    """Emit 1 / (1 + z z) from the factors 1 + iz and 1 - iz, which are accurate near the poles."""
    x, y = z
    one, zero = like(b, 1, x), like(b, 0, x)
    return div(b, div(b, (one, zero), (_one_plus(b, b.neg(y)), x)), (_one_plus(b, y), b.neg(x)))


# roots, exponentials, logarithms


@function("sqrt")
def sqrt(b: Any, z: Pair) -> Pair:
    x, y = z
    zero = like(b, 0, x)
    size = b.maximum(b.abs(x), b.abs(y))
    is_large, is_small = b.gt(size, like(b, 2.0**1000, x)), b.lt(size, like(b, 2.0**-900, x))
    factor = b.select(is_large, like(b, 2.0**-4, x), b.select(is_small, like(b, 2.0**120, x), like(b, 1, x)))
    back = b.select(is_large, like(b, 2.0**2, x), b.select(is_small, like(b, 2.0**-60, x), like(b, 1, x)))
    u, v = b.mul(x, factor), b.mul(y, factor)
    root = b.sqrt(_scaled(b, b.add(b.abs(u), b.hypot(u, v)), 0.5))
    other = b.div(v, _scaled(b, root, 2.0))
    is_right = b.ge(x, zero)
    re = b.mul(b.select(is_right, root, b.abs(other)), back)
    im = b.mul(b.select(is_right, other, b.copysign(root, y)), back)
    at_zero = b.bitand(_is_zero(b, x), _is_zero(b, y))
    re, im = choose(b, at_zero, (zero, y), (re, im))
    nan = like(b, NAN, x)
    re, im = choose(b, _is_nan(b, x), (nan, nan), (re, im))
    flat = b.select(_is_nan(b, y), nan, zero)
    infinite = like(b, INF, x)
    left, right = (b.abs(flat), b.copysign(infinite, y)), (infinite, b.copysign(flat, y))
    re, im = choose(b, _is_infinite(b, x), choose(b, b.lt(x, zero), left, right), (re, im))
    return choose(b, _is_infinite(b, y), (infinite, y), (re, im))


@function("exp")
def exp(b: Any, z: Pair) -> Pair:
    x, y = z
    zero, bound = like(b, 0, x), like(b, STEP, x)
    is_large = b.gt(x, bound)
    size = b.exp(b.select(is_large, b.sub(x, bound), x))
    factor = b.select(is_large, like(b, math.exp(STEP), x), like(b, 1, x))
    re, im = b.mul(b.mul(size, b.cos(y)), factor), b.mul(b.mul(size, b.sin(y)), factor)
    im = b.select(_is_zero(b, y), y, im)
    is_wild = b.bitnot(_is_finite(b, y))
    nothing = b.bitand(is_wild, b.eq(x, like(b, -INF, x)))
    re, im = choose(b, nothing, (zero, zero), (re, im))
    return b.select(b.bitand(is_wild, b.eq(x, like(b, INF, x))), x, re), im


@function("exp2")
def exp2(b: Any, z: Pair) -> Pair:
    return exp(b, (_scaled(b, z[0], LN2), _scaled(b, z[1], LN2)))


@function("expm1")
def expm1(b: Any, z: Pair) -> Pair:
    x, y = z
    half = b.sin(_scaled(b, y, 0.5))
    re = b.sub(b.mul(b.expm1(x), b.cos(y)), _scaled(b, b.mul(half, half), 2.0))
    return re, b.mul(b.exp(x), b.sin(y))


def _sum_of_squares_minus_one(b: Any, large: Value, small: Value) -> Value:
    """Emit x x + y y - 1, with the rounding errors of the squares compensated."""
    p, q = b.mul(large, large), b.mul(small, small)
    square_errors = b.add(b.fma(large, large, b.neg(p)), b.fma(small, small, b.neg(q)))
    first = b.sub(p, like(b, 1, p))
    total = b.add(first, q)
    added = b.sub(total, first)
    sum_error = b.add(b.sub(first, b.sub(total, added)), b.sub(q, added))
    result: Value = b.add(total, b.add(sum_error, square_errors))
    return result


@function("log")
def log(b: Any, z: Pair) -> Pair:
    x, y = b.abs(z[0]), b.abs(z[1])
    large, small = b.maximum(x, y), b.minimum(x, y)
    is_large, is_small = b.gt(large, like(b, 2.0**1000, x)), b.lt(large, like(b, 2.0**-900, x))
    factor = b.select(is_large, like(b, 2.0**-4, x), b.select(is_small, like(b, 2.0**120, x), like(b, 1, x)))
    shift = b.select(is_large, like(b, 4 * LN2, x), b.select(is_small, like(b, -120 * LN2, x), like(b, 0, x)))
    general = b.add(b.log(b.hypot(b.mul(x, factor), b.mul(y, factor))), shift)
    near_one = _scaled(b, b.log1p(_sum_of_squares_minus_one(b, large, small)), 0.5)
    is_near = b.bitand(b.lt(large, like(b, 1.5, x)), b.gt(large, like(b, 0.6, x)))
    return b.select(is_near, near_one, general), b.atan2(z[1], z[0])


@function("log2")
def log2(b: Any, z: Pair) -> Pair:
    re, im = log(b, z)
    return _scaled(b, re, 1 / LN2), _scaled(b, im, 1 / LN2)


@function("log10")
def log10(b: Any, z: Pair) -> Pair:
    re, im = log(b, z)
    return _scaled(b, re, 1 / LN10), _scaled(b, im, 1 / LN10)


@function("log1p")
def log1p(b: Any, z: Pair) -> Pair:
    x = _one_plus(b, z[0])
    return b.log(b.hypot(x, z[1])), b.atan2(z[1], x)


# powers


@function("pow")
def pow(b: Any, z: Pair, w: Pair) -> Pair:
    """Small integer powers by repeated squaring, as in NumPy; 0 to a power whose real part is not positive is NaN."""
    (x, y), (u, v) = z, w
    zero, one, nan = like(b, 0, x), like(b, 1, x), like(b, NAN, x)
    general = exp(b, mul(b, w, log(b, z)))
    truncated = b.trunc(u)
    is_small = b.bitand(b.lt(b.abs(u), like(b, 100.0, u)), b.bitand(b.eq(truncated, u), _is_zero(b, v)))
    count = b.cast(b.abs(b.select(is_small, truncated, zero)), dtype=I64)
    result, square = (one, zero), z
    for bit in range(7):
        flag = like(b, 1 << bit, count)
        is_set = b.eq(b.bitand(count, flag), flag)
        result = choose(b, is_set, mul(b, result, square), result)
        square = mul(b, square, square)
    result = choose(b, b.eq(count, like(b, 1, count)), z, result)
    result = choose(b, b.lt(u, zero), div(b, (one, zero), result), result)
    result = choose(b, is_small, result, general)
    is_zero_base = b.bitand(_is_zero(b, x), _is_zero(b, y))
    result = choose(b, is_zero_base, choose(b, b.gt(u, zero), (zero, zero), (nan, nan)), result)
    return choose(b, b.bitand(_is_zero(b, u), _is_zero(b, v)), (one, zero), result)


# hyperbolic and trigonometric functions


def _halves(b: Any, x: Value) -> tuple[Value, Value, Value]:
    """Emit cosh x and sinh x divided by a factor, and the factor: 1, or large enough that neither overflows before the
    product."""
    bound = like(b, STEP, x)
    is_large = b.gt(b.abs(x), bound)
    reduced = b.select(is_large, b.copysign(b.sub(b.abs(x), bound), x), x)
    half = _scaled(b, b.exp(b.abs(reduced)), 0.5)
    cosh = b.select(is_large, half, b.cosh(x))
    sinh = b.select(is_large, b.copysign(half, x), b.sinh(x))
    return cosh, sinh, b.select(is_large, like(b, math.exp(STEP), x), like(b, 1, x))


@function("sinh")
def sinh(b: Any, z: Pair) -> Pair:
    x, y = z
    cosh_x, sinh_x, factor = _halves(b, x)
    re, im = b.mul(b.mul(sinh_x, b.cos(y)), factor), b.mul(b.mul(cosh_x, b.sin(y)), factor)
    is_wild = b.bitnot(_is_finite(b, y))
    re = b.select(b.bitand(is_wild, b.bitor(_is_zero(b, x), _is_infinite(b, x))), x, re)
    return re, b.select(_is_zero(b, y), y, im)


@function("cosh")
def cosh(b: Any, z: Pair) -> Pair:
    x, y = z
    cosh_x, sinh_x, factor = _halves(b, x)
    re, im = b.mul(b.mul(cosh_x, b.cos(y)), factor), b.mul(b.mul(sinh_x, b.sin(y)), factor)
    is_wild = b.bitnot(_is_finite(b, y))
    re = b.select(b.bitand(is_wild, _is_infinite(b, x)), b.abs(x), re)
    flat = b.mul(b.copysign(like(b, 0, x), x), b.copysign(like(b, 1, y), y))
    return re, b.select(b.bitor(_is_zero(b, y), b.bitand(is_wild, _is_zero(b, x))), flat, im)


@function("tanh")
def tanh(b: Any, z: Pair) -> Pair:
    x, y = z
    one, zero = like(b, 1, x), like(b, 0, x)
    slope = b.tan(y)
    beta = _one_plus(b, b.mul(slope, slope))
    is_far = b.gt(b.abs(x), like(b, 20.0, x))
    s = b.sinh(b.select(is_far, zero, x))
    rho = b.sqrt(_one_plus(b, b.mul(s, s)))
    below = _one_plus(b, b.mul(beta, b.mul(s, s)))
    re, im = b.div(b.mul(b.mul(beta, rho), s), below), b.div(slope, below)
    end = b.copysign(one, x)
    decay = b.exp(_scaled(b, b.abs(x), -1.0))
    wave = _scaled(b, b.mul(b.sin(y), b.cos(y)), 4.0)
    re, im = choose(b, is_far, (end, b.mul(b.mul(wave, decay), decay)), (re, im))
    sign = b.select(_is_finite(b, y), wave, y)
    re, im = choose(b, _is_infinite(b, x), (end, b.copysign(zero, sign)), (re, im))
    is_wild = b.bitand(b.bitnot(_is_finite(b, y)), b.bitnot(_is_infinite(b, x)))
    re = b.select(is_wild, b.select(_is_zero(b, x), x, like(b, NAN, x)), re)
    return re, b.select(b.bitand(_is_zero(b, y), _is_nan(b, x)), y, im)


@function("sin")
def sin(b: Any, z: Pair) -> Pair:
    return times_minus_i(sinh(b, times_i(z, b)), b)


@function("cos")
def cos(b: Any, z: Pair) -> Pair:
    return cosh(b, times_i(z, b))


@function("tan")
def tan(b: Any, z: Pair) -> Pair:
    return times_minus_i(tanh(b, times_i(z, b)), b)


# inverse hyperbolic and trigonometric functions


def _crossed(b: Any, z: Pair, w: Pair) -> Value:
    """Emit the imaginary part of conj(z) w."""
    result: Value = b.sub(b.mul(z[0], w[1]), b.mul(z[1], w[0]))
    return result


def _has_infinity(b: Any, z: Pair) -> Value:
    result: Value = b.bitor(_is_infinite(b, z[0]), _is_infinite(b, z[1]))
    return result


def _of_infinite(b: Any, x: Value, y: Value, sign: Value) -> Pair:
    """Emit the angle of y over x, and an infinity with a sign."""
    return b.atan2(y, x), b.copysign(like(b, INF, x), sign)


@function("asinh")
def asinh(b: Any, z: Pair) -> Pair:
    x, y = z
    over, under = sqrt(b, (_one_plus(b, b.neg(y)), x)), sqrt(b, (_one_plus(b, y), b.neg(x)))
    re = b.asinh(_crossed(b, under, over))
    im = b.atan2(y, b.sub(b.mul(over[0], under[0]), b.mul(over[1], under[1])))
    angle, size = _of_infinite(b, b.abs(x), y, x)
    re, im = choose(b, _has_infinity(b, z), (size, angle), (re, im))
    return re, b.select(b.bitand(_is_nan(b, x), _is_zero(b, y)), y, im)


@function("asin")
def asin(b: Any, z: Pair) -> Pair:
    return times_minus_i(asinh(b, times_i(z, b)), b)


@function("acos")
def acos(b: Any, z: Pair) -> Pair:
    x, y = z
    left, right = sqrt(b, (_one_plus(b, b.neg(x)), b.neg(y))), sqrt(b, (_one_plus(b, x), y))
    re = _scaled(b, b.atan2(left[0], right[0]), 2.0)
    im = b.asinh(_crossed(b, right, left))
    infinite = _of_infinite(b, x, b.abs(y), b.neg(y))
    re, im = choose(b, _has_infinity(b, z), infinite, (re, im))
    return b.select(b.bitand(_is_zero(b, x), _is_nan(b, y)), like(b, math.pi / 2, x), re), im


@function("acosh")
def acosh(b: Any, z: Pair) -> Pair:
    x, y = z
    one = like(b, 1, x)
    left, right = sqrt(b, (b.sub(x, one), y)), sqrt(b, (b.add(x, one), y))
    re = b.asinh(b.add(b.mul(left[0], right[0]), b.mul(left[1], right[1])))
    im = _scaled(b, b.atan2(left[1], right[0]), 2.0)
    angle, size = _of_infinite(b, x, y, one)
    re, im = choose(b, _has_infinity(b, z), (size, angle), (re, im))
    return re, b.select(b.bitand(_is_zero(b, x), _is_nan(b, y)), like(b, math.pi / 2, x), im)


@function("atanh")
def atanh(b: Any, z: Pair) -> Pair:
    x, y = z
    one, zero = like(b, 1, x), like(b, 0, x)
    u, v = b.abs(x), b.abs(y)
    is_far = b.gt(b.maximum(u, v), like(b, 2.0**500, u))
    p, q = b.select(is_far, one, u), b.select(is_far, one, v)
    gap = b.sub(one, p)
    distance = b.add(b.mul(gap, gap), b.mul(q, q))
    re = _scaled(b, b.log1p(b.div(_scaled(b, p, 4.0), distance)), 0.25)
    close = b.lt(b.abs(gap), like(b, 2.0**-500, p))
    nearly_one = b.bitand(close, b.lt(q, like(b, 2.0**-500, p)))
    at_one = b.sub(like(b, 0.5 * LN2, q), _scaled(b, b.log(q), 0.5))
    re = b.select(nearly_one, at_one, re)
    im = _scaled(b, b.atan2(_scaled(b, q, 2.0), b.sub(b.mul(gap, b.add(one, p)), b.mul(q, q))), 0.5)
    quarter = like(b, math.pi / 2, u)
    re, im = choose(b, is_far, (div(b, (one, zero), (u, v))[0], quarter), (re, im))
    re, im = choose(b, _has_infinity(b, z), (zero, b.select(_is_nan(b, y), y, quarter)), (re, im))
    re = b.select(b.bitand(_is_nan(b, y), _is_zero(b, x)), zero, re)
    return b.copysign(re, x), b.copysign(im, y)


@function("atan")
def atan(b: Any, z: Pair) -> Pair:
    return times_minus_i(atanh(b, times_i(z, b)), b)
