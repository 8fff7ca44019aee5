"""Logarithms: log, log2, log10, log1p, logaddexp, and the inverse hyperbolic functions.

Method: x = 2**e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) = 2 atanh(f / (2 + f)) by a
minimax polynomial, arranged so that f itself enters unrounded (Cody and Waite, Software Manual for the
Elementary Functions, 1980; Muller, Elementary Functions, 2016, section 11.4). log1p forms f from x in one
rounding: f = s x + (s - 1), s = 2**-e.
"""

from __future__ import annotations

from pullback.codegen.math_basis import (
    Coefficients,
    bits_of,
    format_of,
    number,
    polynomial,
    where_positive,
)
from pullback.codegen.math_exp import exp_minus_abs
from pullback.ir.builder import Builder
from pullback.ir.structure import Value

# (2 atanh(s) / s - 2) / s**2 as a polynomial in s**2, on log(1 + f) = 2 atanh(s), s = f / (2 + f): least
# relative error 2**-58.3 and 2**-30.
ATANH: Coefficients = {
    "f64": (
        0.666666666666671, 0.3999999999954198, 0.28571428718706415, 0.22222200696026911,
        0.18183465281330913, 0.15316368161045077, 0.14774454783232308,
    ),
    "f32": (
        0.66666776, 0.3997758, 0.29870927,
    ),
}  # fmt: skip
# log(2) / log(base) with trailing zeros, what that leaves out, 1 / log(base), what that leaves out.
BASES = {
    "log2": {
        "f64": (1.0, 0.0, 1.4426950408889634, 2.0355273740931033e-17),
        "f32": (1.0, 0.0, 1.4426950216293335, 1.925963033500011e-08),
    },
    "log10": {
        "f64": (0.30102999566395283, 2.8363394551044964e-14, 0.4342944819032518, 1.098319650216765e-17),
        "f32": (0.30103302001953125, -3.024355464731343e-06, 0.4342944920063019, -1.0103049952192578e-08),
    },
}


def split_float(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """For a positive normal ``x`` (others give some number): e as a float, e in the place of the exponent bits,
    and x / 2**e, which lies in [sqrt(1/2), sqrt(2)).
    """
    fmt = format_of(x)
    bits = bits_of(b, x)
    digits = b.const(fmt.digits, fmt.unsigned)
    # The sum is biased so that it stays positive: its exponent field is e + bias.
    moved = b.add(bits, b.const((fmt.bias << fmt.digits) - fmt.sqrt_half_bits, fmt.unsigned))
    field = b.shr(moved, digits)
    two_to_digits = (fmt.bias + fmt.digits) << fmt.digits
    biased = b.bitcast(b.bitor(field, b.const(two_to_digits, fmt.unsigned)), dtype=fmt.dtype)
    exponent = b.sub(biased, number(b, x, 2.0**fmt.digits + fmt.bias))
    scale_bits = b.shl(b.sub(field, b.const(fmt.bias, fmt.unsigned)), digits)
    mantissa = b.bitcast(b.sub(bits, scale_bits), dtype=fmt.dtype)
    return exponent, scale_bits, mantissa


def split_positive(b: Builder, x: Value) -> tuple[Value, Value]:
    """e and f with x = 2**e (1 + f) for positive finite ``x``, subnormal ones included."""
    fmt = format_of(x)
    small = b.lt(x, number(b, x, fmt.smallest_normal))
    lift = fmt.digits + 2
    lifted = b.select(small, b.mul(x, number(b, x, 2.0**lift)), x)
    exponent, _, mantissa = split_float(b, lifted)
    exponent = b.sub(exponent, b.select(small, number(b, x, float(lift)), number(b, x, 0.0)))
    return exponent, b.sub(mantissa, number(b, x, 1.0))


def log_tail(b: Builder, f: Value) -> Value:
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]: s (h + z p(z)) - h with h = f**2 / 2, z = s**2."""
    s = b.div(f, b.add(f, number(b, f, 2.0)))
    z = b.mul(s, s)
    h = b.mul(b.mul(f, f), number(b, f, 0.5))
    return b.fma(s, b.fma(z, polynomial(b, z, ATANH), h), b.neg(h))


def join(b: Builder, exponent: Value, f: Value, tail: Value) -> Value:
    """exponent * ln2 + f + tail."""
    high, low = format_of(f).ln2
    rest = b.add(f, b.fma(exponent, number(b, f, low), tail))
    return b.fma(exponent, number(b, f, high), rest)


def log(b: Builder, x: Value) -> Value:
    exponent, f = split_positive(b, x)
    return where_positive(b, x, join(b, exponent, f, log_tail(b, f)), float("-inf"))


def log_of_base(b: Builder, x: Value, name: str) -> Value:
    scale_high, scale_low, inverse_high, inverse_low = (number(b, x, c) for c in BASES[name][x.type.dtype.name])
    exponent, f = split_positive(b, x)
    tail = log_tail(b, f)
    product = b.mul(f, inverse_high)
    low = b.fma(f, inverse_high, b.neg(product))
    low = b.fma(tail, inverse_high, b.fma(f, inverse_low, low))
    if name != "log2":
        low = b.fma(exponent, scale_low, low)
    whole = b.mul(exponent, scale_high)
    total = b.add(whole, product)
    low = b.add(low, b.sub(product, b.sub(total, whole)))
    return where_positive(b, x, b.add(total, low), float("-inf"))


def log2(b: Builder, x: Value) -> Value:
    return log_of_base(b, x, "log2")


def log10(b: Builder, x: Value) -> Value:
    return log_of_base(b, x, "log10")


def log1p_positive(b: Builder, x: Value, extra: Value | None = None) -> Value:
    """log(1 + x) for finite x > -1, plus ``extra`` * log(2); -0.0 gives 0.0."""
    fmt = format_of(x)
    one = number(b, x, 1.0)
    exponent, scale_bits, mantissa = split_float(b, b.add(one, x))
    unit = b.const(fmt.bias << fmt.digits, fmt.unsigned)
    scale = b.bitcast(b.sub(unit, scale_bits), dtype=fmt.dtype)
    large = b.gt(exponent, number(b, x, float(fmt.digits + 8)))
    f = b.select(large, b.sub(mantissa, one), b.fma(scale, x, b.sub(scale, one)))
    if extra is not None:
        exponent = b.add(exponent, extra)
    return join(b, exponent, f, log_tail(b, f))


def log1p(b: Builder, x: Value) -> Value:
    y = b.copysign(log1p_positive(b, x), x)
    minus_one = number(b, x, -1.0)
    y = b.select(b.lt(x, number(b, x, float("inf"))), y, x)
    other = b.select(b.eq(x, minus_one), number(b, x, float("-inf")), number(b, x, float("nan")))
    return b.select(b.gt(x, minus_one), y, other)


def log1p_unit(b: Builder, e: Value) -> Value:
    """log(1 + e) for e in [0, 1]."""
    half, zero, one = (number(b, e, c) for c in (0.5, 0.0, 1.0))
    upper = b.gt(e, number(b, e, 0.41421356))
    f = b.select(upper, b.fma(e, half, number(b, e, -0.5)), e)
    return join(b, b.select(upper, one, zero), f, log_tail(b, f))


def logaddexp(b: Builder, x: Value, y: Value) -> Value:
    """max + log1p(exp(-abs(x - y))); equal arguments give x + log(2), so that equal infinities stay.

    Its error is below 2 ulp of the greatest of abs(result), abs(max) and log(2); where max lies in
    (-log(2), 0) digits cancel.
    """
    e = exp_minus_abs(b, b.sub(x, y))
    greater = b.select(b.gt(x, y), x, y)
    joined = b.add(greater, log1p_unit(b, e))
    return b.select(b.eq(x, y), b.add(x, number(b, x, 0.6931471805599453)), joined)


def asinh(b: Builder, x: Value) -> Value:
    """log1p(a + a**2 / (1 + sqrt(a**2 + 1))) for a = abs(x); log(2 a) where a**2 hides the 1."""
    fmt = format_of(x)
    size = b.abs(x)
    one, zero = number(b, x, 1.0), number(b, x, 0.0)
    large = b.gt(size, number(b, x, 2.0 ** (fmt.digits + 2)))
    held = b.select(large, one, size)
    square = b.mul(held, held)
    root = b.sqrt(b.add(square, one))
    inner = b.add(held, b.div(square, b.add(one, root)))
    y = log1p_positive(b, b.select(large, size, inner), b.select(large, one, zero))
    y = b.select(b.lt(size, number(b, x, float("inf"))), y, size)
    return b.copysign(y, x)


def acosh(b: Builder, x: Value) -> Value:
    """log1p(t + sqrt(2 t + t**2)) for t = x - 1; log(2 x) where x**2 hides the 1; NaN below 1."""
    fmt = format_of(x)
    one, zero = number(b, x, 1.0), number(b, x, 0.0)
    large = b.gt(x, number(b, x, 2.0 ** (fmt.digits + 2)))
    t = b.sub(b.select(large, one, x), one)
    inner = b.add(t, b.sqrt(b.fma(t, t, b.add(t, t))))
    y = log1p_positive(b, b.select(large, x, inner), b.select(large, one, zero))
    y = b.select(b.lt(x, number(b, x, float("inf"))), y, x)
    return b.select(b.lt(x, one), number(b, x, float("nan")), y)


def atanh(b: Builder, x: Value) -> Value:
    """log1p(2 a / (1 - a)) / 2 for a = abs(x); NaN beyond 1."""
    size = b.abs(x)
    one = number(b, x, 1.0)
    quotient = b.div(b.add(size, size), b.sub(one, size))
    y = b.mul(number(b, x, 0.5), log1p_positive(b, quotient))
    y = b.select(b.lt(size, number(b, x, 2.0 ** -(format_of(x).digits // 2 + 2))), size, y)
    y = b.select(b.eq(size, one), number(b, x, float("inf")), y)
    return b.copysign(b.select(b.le(size, one), y, number(b, x, float("nan"))), x)
