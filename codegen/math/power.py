"""Powers and roots: pow, cbrt, hypot.

pow is exp(y log(abs(x))) with the logarithm and the product as sums of two floats (Dekker, A floating-point
technique for extending the available precision, 1971; Muller, Elementary Functions, 2016, section 11.5). cbrt refines
a polynomial for the inverse cube root by one Halley and one Newton step.
"""

from __future__ import annotations

from pullback.codegen.math.basis import Coefficients, bits_of, clamp, constant, format_of, polynomial, power_of_two
from pullback.codegen.math.exponential import EXP_RANGE, exp_of_sum
from pullback.codegen.math.logarithm import split_positive
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value

# (atanh(s) / s - 1 - z / 3) / z**2 in z = s**2 for s = (m - 1) / (m + 1), m in [3/4, 3/2]; the error in atanh(s) is below
# 2**-67 and 2**-34 of it.
ATANH_REST: Coefficients = {
    "f64": (
        0.1999999999999986, 0.1428571428578999, 0.11111111095397413, 0.09090910782260006, 0.07692202279258682,
        0.06670608810436399, 0.05795471006972109, 0.06291290250696896,
    ),
    "f32": (0.20000196, 0.14262807, 0.11936672),
}  # fmt: skip
THIRD = {"f64": (0.3333333333333333, 1.850371707708594e-17), "f32": (0.3333333432674408, -9.934108e-09)}
# a**(-1/3) on [3/4, 3/2], relative error 2**-12.
INVERSE_CBRT: Coefficients = {
    "f64": (1.6970656, -1.1886336, 0.6217526, -0.13028125),
    "f32": (1.6970656, -1.1886336, 0.6217526, -0.13028125),
}
# A value above the first constant is multiplied by the second before squaring, a value below the third
# by the fourth.
HYPOT_SCALES = {
    "f64": (2.0**500, 2.0**-600, 2.0**-450, 2.0**600),
    "f32": (2.0**60, 2.0**-80, 2.0**-40, 2.0**100),
}
# Every x except 1, raised to this power, overflows or is 0.
POW_HIGH = 2.0**65


def log_pair(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return log(x) as a sum of two, with a relative error about 2**-64 and 2**-33; at 0 and inf the first is infinite."""
    exponent, f = split_positive(b, x)
    one, two = constant(b, x, 1.0), constant(b, x, 2.0)
    total = b.add(f, two)
    total_low = b.sub(f, b.sub(total, two))
    inverse = b.div(one, total)
    s = b.mul(f, inverse)
    s_low = b.mul(inverse, b.fma(b.neg(s), total_low, b.fma(b.neg(s), total, f)))
    z = b.mul(s, s)
    z_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(z)))
    third, third_low = (constant(b, x, part) for part in THIRD[x.type.dtype.name])
    factor = polynomial(b, z, ATANH_REST)
    rest = b.mul(z, factor)
    w = b.add(third, rest)
    w_low = b.add(b.add(b.sub(third, w), rest), b.add(b.fma(z, factor, b.neg(rest)), third_low))
    p = b.mul(z, w)
    p_low = b.fma(z, w_low, b.fma(z_low, w, b.fma(z, w, b.neg(p))))
    q = b.mul(s, p)
    q_low = b.fma(s, p_low, b.fma(s_low, p, b.fma(s, p, b.neg(q))))
    half = b.add(s, q)
    half_low = b.add(b.add(b.sub(s, half), q), b.add(s_low, q_low))
    ln2, ln2_low = (constant(b, x, part) for part in format_of(x).ln2)
    whole = b.mul(exponent, ln2)
    high = b.fma(two, half, whole)
    low = b.fma(two, half, b.sub(whole, high))
    return high, b.add(low, b.fma(two, half_low, b.mul(exponent, ln2_low)))


def power_of_size(b: Builder, size: Value, y: Value) -> Value:
    """Return size**y for size >= 0 and finite y: exp(y * log(size)); 0 and inf take the limits of their logarithms."""
    high, low = log_pair(b, size)
    product = b.mul(y, high)
    product_low = b.fma(y, low, b.fma(y, high, b.neg(product)))
    held = clamp(b, product, *EXP_RANGE[size.type.dtype.name])
    return exp_of_sum(b, held, b.select(b.eq(held, product), product_low, constant(b, size, 0.0)))


def pow(b: Builder, x: Value, y: Value, **params: bool) -> Value:
    """Return x**y with the special cases of C99 (F.10.4.4); a negative x has only integer powers, others are NaN."""
    one, zero = constant(b, x, 1.0), constant(b, x, 0.0)
    size, held = b.abs(x), clamp(b, y, -POW_HIGH, POW_HIGH)
    result = power_of_size(b, size, held)
    half = b.mul(held, constant(b, x, 0.5))
    is_integer = b.eq(b.rint(held), held)
    is_odd = b.bitand(is_integer, b.ne(b.rint(half), half))
    result = b.copysign(result, b.select(is_odd, x, one))
    undefined = b.bitand(b.bitand(b.lt(x, zero), b.gt(x, constant(b, x, float("-inf")))), b.bitnot(is_integer))
    result = b.select(undefined, constant(b, x, float("nan")), result)
    return b.select(b.bitor(b.eq(x, one), b.eq(y, zero)), one, result)


def cbrt(b: Builder, x: Value, root: bool = False) -> Value:
    """Return the real cube root; subnormal arguments are as exact as others."""
    fmt = format_of(x)
    size = b.abs(x)
    one, zero, third = (constant(b, x, c) for c in (1.0, 0.0, 1.0 / 3.0))
    exponent, f = split_positive(b, size)
    shift = constant(b, x, fmt.round + fmt.bias)
    shifted = b.fma(exponent, third, shift)
    remainder = b.fma(b.sub(shifted, shift), constant(b, x, -3.0), exponent)
    above, below = b.gt(remainder, zero), b.lt(remainder, zero)

    def by_remainder(low: float, high: float) -> Value:
        return b.select(above, constant(b, x, high), b.select(below, constant(b, x, low), one))

    mantissa = b.add(f, one)
    a = b.mul(mantissa, by_remainder(0.5, 2.0))
    v = b.mul(polynomial(b, mantissa, INVERSE_CBRT), by_remainder(2.0 ** (1 / 3), 2.0 ** (-1 / 3)))
    h = b.fma(b.mul(a, v), b.neg(b.mul(v, v)), one)
    v = b.fma(b.mul(v, h), b.fma(h, constant(b, x, 2.0 / 9.0), third), v)
    y = b.mul(b.mul(a, v), v)
    square = b.mul(y, y)
    square_low = b.fma(y, y, b.neg(square))
    residual = b.fma(b.neg(square_low), y, b.fma(b.neg(square), y, a))
    y = b.fma(b.mul(residual, third), b.mul(v, v), y)
    y = b.mul(y, power_of_two(b, bits_of(b, shifted), x))
    usual = b.bitand(b.gt(size, zero), b.lt(size, constant(b, x, float("inf"))))
    return b.copysign(b.select(usual, y, size), x)


def hypot(b: Builder, x: Value, y: Value) -> Value:
    """Return sqrt(x**2 + y**2) without intermediate overflow or underflow; inf where either argument is infinite, even if the
    other is NaN."""
    width, height = b.abs(x), b.abs(y)
    one, infinity = constant(b, x, 1.0), constant(b, x, float("inf"))
    steep = b.gt(height, width)
    great, small = b.select(steep, height, width), b.select(steep, width, height)
    high, down, low, up = HYPOT_SCALES[x.type.dtype.name]
    above, below = b.gt(great, constant(b, x, high)), b.lt(great, constant(b, x, low))
    scale = b.select(above, constant(b, x, down), b.select(below, constant(b, x, up), one))
    back = b.select(above, constant(b, x, 1 / down), b.select(below, constant(b, x, 1 / up), one))
    great, small = b.mul(great, scale), b.mul(small, scale)
    length = b.mul(b.sqrt(b.fma(great, great, b.mul(small, small))), back)
    return b.select(b.bitor(b.eq(width, infinity), b.eq(height, infinity)), infinity, length)
