"""Logarithms: log, log2, log10, log1p, logaddexp, and the inverse hyperbolic functions.

Method: x = 2**e (1 + f) with 1 + f in [3/4, 3/2), and log(1 + f) = 2 atanh(f / (2 + f)) by a
minimax polynomial, arranged so that f itself enters unrounded (Cody and Waite, Software Manual for the
Elementary Functions, 1980; Muller, Elementary Functions, 2016, section 11.4). log1p forms f from x in one
rounding: f = s x + (s - 1), s = 2**-e.
"""

from __future__ import annotations

from pullback.codegen.math.basis import Coefficients, constant, format_of, polynomial
from pullback.codegen.math.exponential import exp_minus_abs
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value

# (2 atanh(s) / s - 2) / s**2 as a polynomial in s**2, on log(1 + f) = 2 atanh(s), s = f / (2 + f), f in [-1/4, 1/2]: least
# relative error 2**-62.6 and 2**-28.4.
ATANH: Coefficients = {
    "f64": (
        0.666666666666666, 0.4000000000005666, 0.2857142855583207, 0.2222222429610218, 0.18181665892559223,
        0.15391111574299365, 0.1317360233353234, 0.13843043965321555,
    ),
    "f32": (
        0.6666695, 0.39957657, 0.30364048,
    ),
}  # fmt: skip
# log(2) / log(base) with trailing zeros and its rounding error, 1 / log(base) and its rounding error.
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


def split_positive(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return e and f with x = 2**e (1 + f), f in [-1/4, 1/2), for positive ``x``.

    At 0 and inf f is 0 and e is -inf and inf, and below 0 f is NaN, so that logarithms of these are right.
    """
    return b.exponent(x), b.sub(b.significand(x), constant(b, x, 1.0))


def log_tail(b: Builder, f: Value) -> Value:
    """Return log(1 + f) - f for f in [-1/4, 1/2]: s (h + z p(z)) - h with h = f**2 / 2, z = s**2."""
    s = b.div_in_range(f, b.add(f, constant(b, f, 2.0)))
    z = b.mul(s, s)
    h = b.mul(b.mul(f, f), constant(b, f, 0.5))
    return b.fma(s, b.fma(z, polynomial(b, z, ATANH), h), b.neg(h))


def join(b: Builder, exponent: Value, f: Value, tail: Value) -> Value:
    """Return exponent * ln2 + f + tail."""
    high, low = format_of(f).ln2
    rest = b.add(f, b.fma(exponent, constant(b, f, low), tail))
    return b.fma(exponent, constant(b, f, high), rest)


def log_pair(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return log(x) for positive finite ``x`` as a sum of two, some five bits more precise than one float."""
    exponent, f = split_positive(b, x)
    high, low = (constant(b, x, part) for part in format_of(x).ln2)
    whole = b.mul(exponent, high)
    total = b.add(whole, f)
    rest = b.add(b.fma(exponent, low, log_tail(b, f)), b.sub(f, b.sub(total, whole)))
    return total, rest


def log(b: Builder, x: Value) -> Value:
    exponent, f = split_positive(b, x)
    return join(b, exponent, f, log_tail(b, f))


def log_of_base(b: Builder, x: Value, name: str) -> Value:
    scale_high, scale_low, inverse_high, inverse_low = (constant(b, x, c) for c in BASES[name][x.type.dtype.name])
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
    return b.select(b.lt(b.abs(total), constant(b, x, float("inf"))), b.add(total, low), total)


def log2(b: Builder, x: Value) -> Value:
    return log_of_base(b, x, "log2")


def log10(b: Builder, x: Value) -> Value:
    return log_of_base(b, x, "log10")


def log1p_parts(b: Builder, x: Value, low: Value | None = None) -> tuple[Value, Value, Value]:
    """Return e, f and a tail with log(1 + x + low) = e log(2) + f + tail for x > -1; e is infinite for -1 and inf.

    ``low`` is at most an ulp of ``x``.
    """
    one = constant(b, x, 1.0)
    exponent, _ = split_positive(b, b.add(one, x))
    down = b.neg(exponent)
    f = b.add(b.scalb(x, down), b.sub(b.scalb(one, down), one))
    tail = log_tail(b, f)
    return exponent, f, tail if low is None else b.add(tail, b.scalb(low, down))


def log1p(b: Builder, x: Value) -> Value:
    exponent, f, tail = log1p_parts(b, x)
    is_whole = b.lt(b.abs(exponent), constant(b, x, float("inf")))
    y = b.select(is_whole, join(b, exponent, f, tail), exponent)
    y = b.select(b.lt(x, constant(b, x, -1.0)), constant(b, x, float("nan")), y)
    return b.copysign(y, x)


def logit(b: Builder, p: Value) -> Value:
    """Return log(p / (1 - p)) with the quotient as a sum of two; infinite at 0 and 1, NaN outside [0, 1]."""
    one = constant(b, p, 1.0)
    rest = b.sub(one, p)
    rest_low = b.sub(b.sub(one, rest), p)
    inverse = b.div(one, rest)
    q = b.mul(p, inverse)
    minus_q = b.neg(q)
    q_low = b.mul(inverse, b.fma(minus_q, rest_low, b.fma(minus_q, rest, p)))
    exponent, f = split_positive(b, q)
    # q_low / q, nearly: 1 / (1 + f) is about 1 - f + f**2.
    low = b.mul(b.scalb(q_low, b.neg(exponent)), b.fma(b.neg(f), b.sub(one, f), one))
    is_whole = b.lt(b.abs(exponent), constant(b, p, float("inf")))
    return b.select(is_whole, join(b, exponent, f, b.add(log_tail(b, f), low)), exponent)


def log1p_unit(b: Builder, e: Value) -> Value:
    """Return log(1 + e) for e in [0, 1]."""
    half, zero, one = (constant(b, e, c) for c in (0.5, 0.0, 1.0))
    upper = b.gt(e, constant(b, e, 0.41421356))
    f = b.select(upper, b.fma(e, half, constant(b, e, -0.5)), e)
    return join(b, b.select(upper, one, zero), f, log_tail(b, f))


def logaddexp(b: Builder, x: Value, y: Value) -> Value:
    """Return max + log1p(exp(-abs(x - y))); equal arguments give x + log(2), so that equal infinities stay.

    Its error is below 2 ulp of the greatest of abs(result), abs(max) and log(2); where max is in (-log(2), 0) digits cancel.
    """
    e = exp_minus_abs(b, b.sub(x, y))
    greater = b.select(b.gt(x, y), x, y)
    joined = b.add(greater, log1p_unit(b, e))
    return b.select(b.eq(x, y), b.add(x, constant(b, x, 0.6931471805599453)), joined)


def logistic_logpdf(b: Builder, x: Value) -> Value:
    """Return the logarithm of expit(x) expit(-x)."""
    e = exp_minus_abs(b, x)
    return b.sub(b.mul(log1p_unit(b, e), constant(b, x, -2.0)), b.abs(x))


def asinh(b: Builder, x: Value) -> Value:
    """Return log1p(a + a**2 / (1 + sqrt(a**2 + 1))) for a = abs(x); log(2 a) where 1 is negligible against a**2."""
    fmt = format_of(x)
    size = b.abs(x)
    one = constant(b, x, 1.0)
    large = b.gt(size, constant(b, x, 2.0 ** (fmt.digits + 2)))
    held = b.select(large, one, size)
    square = b.mul(held, held)
    root = b.sqrt(b.add(square, one))
    inner = b.add(held, b.div(square, b.add(one, root)))
    return b.copysign(_log1p_or_twice(b, large, size, inner), x)


def acosh(b: Builder, x: Value) -> Value:
    """Return log1p(t + sqrt(2 t + t**2)) for t = x - 1; log(2 x) where 1 is negligible against x**2; NaN below 1."""
    fmt = format_of(x)
    one = constant(b, x, 1.0)
    large = b.gt(x, constant(b, x, 2.0 ** (fmt.digits + 2)))
    t = b.sub(b.select(large, one, x), one)
    root = b.sqrt(b.fma(t, t, b.add(t, t)))
    inner = b.add(root, t)
    low = b.sub(t, b.sub(inner, root))
    y = _log1p_or_twice(b, large, x, inner, low)
    return b.select(b.lt(x, one), constant(b, x, float("nan")), y)


def _log1p_or_twice(b: Builder, large: Value, x: Value, inner: Value, low: Value | None = None) -> Value:
    """Return log(1 + inner + low), or log(2 x) where ``x`` is ``large``."""
    zero = constant(b, x, 0.0)
    low = None if low is None else b.select(large, zero, low)
    exponent, f, tail = log1p_parts(b, b.select(large, x, inner), low)
    exponent = b.add(exponent, b.select(large, constant(b, x, 1.0), zero))
    y = join(b, exponent, f, tail)
    return b.select(b.lt(x, constant(b, x, float("inf"))), y, x)


def atanh(b: Builder, x: Value) -> Value:
    """Return log1p(2 a / (1 - a)) / 2 for a = abs(x); NaN for abs(x) > 1."""
    size = b.abs(x)
    one = constant(b, x, 1.0)
    quotient = b.div(b.add(size, size), b.sub(one, size))
    y = b.mul(constant(b, x, 0.5), join(b, *log1p_parts(b, quotient)))
    y = b.select(b.lt(size, constant(b, x, 2.0 ** -(format_of(x).digits // 2 + 2))), size, y)
    y = b.select(b.eq(size, one), constant(b, x, float("inf")), y)
    return b.copysign(b.select(b.le(size, one), y, constant(b, x, float("nan"))), x)
