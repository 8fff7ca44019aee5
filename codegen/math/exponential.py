"""Exponentials: exp, exp2, expm1, tanh, its tail and its derivative sech2, sinh, cosh, expit and its derivative logistic_pdf.

Method: x = k ln2 + r with |r| <= ln2 / 2 (Cody and Waite, Software Manual for the Elementary Functions,
1980), a minimax polynomial for exp(r) or expm1(r), scaling by 2**k, which alone rounds a subnormal result
again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pullback.codegen.math.basis import (
    Coefficients,
    bits_of,
    clamp,
    constant,
    format_of,
    halves,
    polynomial,
    power_of_two,
    rarely,
)
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.semantics import TANH_NEAR

# (exp(r) - 1 - r) / r**2 on |r| <= ln2 / 2, least error relative to exp(r): 2**-56.9 and 2**-28.1.
EXP: Coefficients = {
    "f64": (
        0.5000000000000011, 0.1666666666666627, 0.04166666666652369, 0.008333333333455923,
        0.0013888888946809851, 0.00019841269796081585, 2.4801488334404867e-05, 2.755718413258908e-06,
        2.7632389138556665e-07, 2.51642928883831e-08,
    ),
    "f32": (
        0.49999994, 0.16666514, 0.04166806, 0.00836955, 0.0013843767,
    ),
}  # fmt: skip
# The same quotient, least error relative to expm1(r): 2**-61.2 and 2**-26.0.
EXPM1: Coefficients = {
    "f64": (
        0.5, 0.1666666666666668, 0.04166666666666672, 0.008333333333318935, 0.0013888888888842327,
        0.00019841269893342632, 2.4801587427691226e-05, 2.7557236751414415e-06, 2.755717779692223e-07,
        2.511166200569555e-08, 2.0944952035254023e-09,
    ),
    "f32": (
        0.49999997, 0.16666538, 0.04166774, 0.008367318, 0.0013837893,
    ),
}  # fmt: skip
# Beyond these exp is 0 and inf in round to nearest, and expm1 is -1.
EXP_RANGE = {"f64": (-746.0, 710.0), "f32": (-104.0, 89.0)}
EXP2_RANGE = {"f64": (-1076.0, 1024.0), "f32": (-151.0, 128.0)}
EXPM1_LOW = {"f64": -38.0, "f32": -18.0}
SINH_HIGH = {"f64": 710.5, "f32": 89.5}
# tanh is 1 here; exp(-2 x) is a normal number up to here.
TANH_HIGH = {"f64": 350.0, "f32": 43.0}
LN2 = {"f64": (0.6931471805599453, 2.3190468138462996e-17), "f32": (0.6931471824645996, -1.9046542121259336e-09)}


def nearest(b: Builder, x: Value, scale: float) -> Value:
    """Return the integer nearest to x * scale, as a float."""
    shift = constant(b, x, format_of(x).round)
    return b.sub(b.fma(x, constant(b, x, scale), shift), shift)


def split_exponent(b: Builder, x: Value, scale: float, offset: int) -> tuple[Value, Value]:
    """Return ``nearest`` as a float k and as an unsigned integer whose low bits hold k + offset."""
    shift = constant(b, x, format_of(x).round + offset)
    shifted = b.fma(x, constant(b, x, scale), shift)
    return b.sub(shifted, shift), bits_of(b, shifted)


def reduce_ln2(b: Builder, x: Value, k: Value) -> tuple[Value, Value, Value]:
    """Return r = x - k ln2 rounded, the exact x - k ln2[0], and -k."""
    high, low = format_of(x).ln2
    minus_k = b.neg(k)
    first = b.fma(minus_k, constant(b, x, high), x)
    return b.fma(minus_k, constant(b, x, low), first), first, minus_k


def exp_parts(b: Builder, x: Value, low: Value | None = None) -> tuple[Value, Value]:
    """Return m and k with exp(x + low) = 2**k (1 + m), for ``x`` within EXP_RANGE or NaN and ``low`` at most a few ulp of it."""
    k = nearest(b, x, math.log2(math.e))
    r, first, minus_k = reduce_ln2(b, x, k)
    if low is not None:
        r = b.add(r, low)
    square = b.mul(r, r)
    tail = b.fma(minus_k, constant(b, x, format_of(x).ln2[1]), b.mul(square, halves(b, r, square, EXP)))
    if low is not None:
        tail = b.add(tail, low)
    return b.add(first, tail), k


def exp_of_sum(b: Builder, x: Value, low: Value | None = None) -> Value:
    m, k = exp_parts(b, x, low)
    return b.scalb(or_zero(b, is_above_underflow(b, x), b.add(m, constant(b, x, 1.0))), k)


def is_above_underflow(b: Builder, x: Value) -> Value:
    """Return whether ``x`` is above the low end of EXP_RANGE, to which smaller arguments are clamped and where exp(x) rounds
    to 0. Scaling a number down to zero takes a processor two hundred cycles, scaling zero none."""
    return b.ne(x, constant(b, x, EXP_RANGE[x.type.dtype.name][0]))


def or_zero(b: Builder, is_some: Value, x: Value) -> Value:
    """Return ``x`` if ``is_some`` holds, else zero."""
    return b.select(is_some, x, constant(b, x, 0.0))


def exp_minus_abs(b: Builder, x: Value) -> Value:
    """Return exp(-abs(x)), the common part of expit and logaddexp."""
    return exp_of_sum(b, _minus_abs(b, x))


def _minus_abs(b: Builder, x: Value) -> Value:
    return clamp(b, b.neg(b.abs(x)), EXP_RANGE[x.type.dtype.name][0], None)


def exp(b: Builder, x: Value) -> Value:
    low, high = EXP_RANGE[x.type.dtype.name]
    return exp_of_sum(b, clamp(b, x, low, high))


def exp2(b: Builder, x: Value) -> Value:
    """Return 2**x: the reduction is exact, r ln2 is a sum of two."""
    low, high = EXP2_RANGE[x.type.dtype.name]
    x = clamp(b, x, low, high)
    k = nearest(b, x, 1.0)
    fraction = b.sub(x, k)
    ln2_high, ln2_low = (constant(b, x, part) for part in LN2[x.type.dtype.name])
    r = b.mul(fraction, ln2_high)
    rest = b.fma(fraction, ln2_low, b.fma(fraction, ln2_high, b.neg(r)))
    square = b.mul(r, r)
    tail = b.add(r, b.fma(square, halves(b, r, square, EXP), rest))
    return b.scalb(or_zero(b, b.ne(x, constant(b, x, low)), b.add(tail, constant(b, x, 1.0))), k)


def expm1_parts(
    b: Builder, x: Value, offset: int, quotient: Callable[[Builder, Value, Coefficients], Value] = polynomial
) -> tuple[Value, Value, Value]:
    """Return r, c and s with expm1(x) = s * (1 + r + c) - 1 and s = 2**(k + offset - bias). ``quotient`` evaluates EXPM1."""
    k, exponent = split_exponent(b, x, math.log2(math.e), offset)
    r, first, minus_k = reduce_ln2(b, x, k)
    rest = b.fma(minus_k, constant(b, x, format_of(x).ln2[1]), b.sub(first, r))
    c = b.fma(b.mul(r, r), quotient(b, r, EXPM1), rest)
    return r, c, power_of_two(b, exponent, x)


def expm1(b: Builder, x: Value) -> Value:
    """Return expm1 as 2 * (s (r + c) + s - 1/2) with s = 2**(k - 1), so that k = 1024 does not overflow early."""
    fmt = format_of(x)
    held = clamp(b, x, EXPM1_LOW[fmt.dtype.name], EXP_RANGE[fmt.dtype.name][1])
    r, c, s = expm1_parts(b, held, fmt.bias - 1)
    half = b.fma(s, c, b.fma(s, r, b.sub(s, constant(b, x, 0.5))))
    tiny = b.lt(b.abs(x), constant(b, x, 2.0 ** -(fmt.digits + 2)))
    return b.select(tiny, x, b.add(half, half))


def _by_halves(b: Builder, x: Value, coefficients: Coefficients) -> Value:
    return halves(b, x, b.mul(x, x), coefficients)


def _tanh_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return s and t with exp(-2 abs(x)) = s (1 + t)."""
    held = clamp(b, b.abs(x), None, TANH_HIGH[x.type.dtype.name])
    r, c, s = expm1_parts(b, b.neg(b.add(held, held)), format_of(x).bias, _by_halves)
    return s, b.add(r, c)


def _tanh_quotient(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return whether abs(tanh(x)) is below 1/2, and one quotient: t / (t + 2) = -abs(tanh(x)) for t = expm1(-2 abs(x)) if it is,
    else q = e / (1 + e) for e = exp(-2 abs(x)), which is (1 - abs(tanh(x))) / 2. Both have the denominator 1 + e."""
    s, tail = _tanh_parts(b, x)
    one = constant(b, x, 1.0)
    is_tail = b.ge(b.abs(x), constant(b, x, TANH_NEAR))
    return is_tail, b.div(b.fma(s, tail, b.select(is_tail, s, b.sub(s, one))), b.fma(s, tail, b.add(s, one)))


def tanh(b: Builder, x: Value) -> Value:
    """Return tanh: the quotient near 0, else 1 - 2 q."""
    is_tail, quotient = _tanh_quotient(b, x)
    size = b.select(is_tail, b.sub(constant(b, x, 1.0), b.add(quotient, quotient)), quotient)
    return b.copysign(size, x)


def tanh_tail(b: Builder, x: Value) -> Value:
    """Return 1 - abs(tanh(x)): near 0 by the quotient, else 2 q; beyond TANH_HIGH 2 e. It shares the exponential and the
    quotient with tanh."""
    is_tail, quotient = _tanh_quotient(b, x)
    y = b.select(is_tail, b.add(quotient, quotient), b.add(constant(b, x, 1.0), quotient))
    size = b.abs(x)
    is_far = b.gt(size, constant(b, x, TANH_HIGH[x.type.dtype.name]))
    (y,) = rarely(b, is_far, (y,), _far_tanh_tail, size)
    return y


def sech2(b: Builder, x: Value) -> Value:
    """Return 1 - tanh(x)**2 as p (2 - p) for p = 1 - abs(tanh(x)), by the quotient of tanh. Beyond TANH_HIGH it is 4 e."""
    is_tail, quotient = _tanh_quotient(b, x)
    tail = b.select(is_tail, b.add(quotient, quotient), b.add(constant(b, x, 1.0), quotient))
    size = b.abs(x)
    y = b.mul(tail, b.sub(constant(b, x, 2.0), tail))
    is_far = b.gt(size, constant(b, x, TANH_HIGH[x.type.dtype.name]))
    (y,) = rarely(b, is_far, (y,), _far_sech2, size)
    return y


def _far_tanh_tail(b: Builder, size: Value) -> tuple[Value, ...]:
    """Return 2 exp(-2 size)."""
    return (_scaled_exp(b, size, 1),)


def _far_sech2(b: Builder, size: Value) -> tuple[Value, ...]:
    """Return 4 exp(-2 size)."""
    return (_scaled_exp(b, size, 2),)


def _scaled_exp(b: Builder, size: Value, power: int) -> Value:
    """Return 2**power exp(-2 size)."""
    low = EXP_RANGE[size.type.dtype.name][0] - 2.0
    held = clamp(b, b.mul(size, constant(b, size, -2.0)), low, None)
    m, k = exp_parts(b, held)
    whole = or_zero(b, b.ne(held, constant(b, size, low)), b.add(m, constant(b, size, 1.0)))
    return b.scalb(whole, b.add(k, constant(b, size, power)))


def sinh(b: Builder, x: Value) -> Value:
    """Return 2 (t + t / (4 t + 1)) for t = expm1(abs(x)) / 4, which overflows only where sinh does."""
    fmt = format_of(x)
    size = b.abs(x)
    r, c, s = expm1_parts(b, clamp(b, size, None, SINH_HIGH[fmt.dtype.name]), fmt.bias - 2)
    whole = b.sub(s, constant(b, x, 0.25))
    rounded = b.fma(s, r, whole)
    rest = b.fma(s, c, b.fma(s, r, b.sub(whole, rounded)))
    t = b.add(rounded, rest)
    t_low = b.sub(rest, b.sub(t, rounded))
    y = b.add(t, b.add(b.div(t, b.fma(constant(b, x, 4.0), t, constant(b, x, 1.0))), t_low))
    tiny = b.lt(size, constant(b, x, 2.0 ** -(fmt.digits // 2 + 2)))
    return b.copysign(b.select(tiny, size, b.add(y, y)), x)


def cosh(b: Builder, x: Value) -> Value:
    """Return 2 h + 1 / (8 h) for h = exp(abs(x)) / 4."""
    fmt = format_of(x)
    r, c, s = expm1_parts(b, clamp(b, b.abs(x), None, SINH_HIGH[fmt.dtype.name]), fmt.bias - 2)
    h = b.fma(s, b.add(r, c), s)
    return b.fma(h, constant(b, x, 2.0), b.div(constant(b, x, 0.125), h))


def _expit_below(b: Builder, x: Value) -> Value:
    """Return expit(-abs(x)) = e / (1 + e) for e = exp(-abs(x)). Its small values are not flushed to zero.

    e, a sum of two, is multiplied by an inverse; the error of the inverse, 1 - inverse - e inverse, is corrected for.
    """
    one = constant(b, x, 1.0)
    held = _minus_abs(b, x)
    m, k = exp_parts(b, held)
    whole, is_some = b.add(m, one), is_above_underflow(b, held)
    rest = b.sub(m, b.sub(whole, one))
    e, e_low = b.scalb(or_zero(b, is_some, whole), k), b.scalb(or_zero(b, is_some, rest), k)
    inverse = b.div(one, b.add(one, e))
    missing = b.fma(b.neg(e), inverse, b.sub(one, inverse))
    return b.fma(e, inverse, b.mul(inverse, b.fma(e, missing, e_low)))


def expit(b: Builder, x: Value) -> Value:
    """Return the logistic function: its value y at -abs(x), or 1 - y."""
    y = _expit_below(b, x)
    return b.select(b.lt(x, constant(b, x, 0.0)), y, b.sub(constant(b, x, 1.0), y))


def logistic_pdf(b: Builder, x: Value) -> Value:
    """Return the derivative of expit, y (1 - y), from the y of expit."""
    y = _expit_below(b, x)
    return b.mul(y, b.sub(constant(b, x, 1.0), y))
