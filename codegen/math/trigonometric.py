"""Trigonometric functions: sin, cos, tan, asin, acos, atan, atan2.

Method: x = k pi/2 + r by three parts of pi/2 and fused operations (Cody and Waite, Software Manual for the Elementary
Functions, 1980; Muller, Elementary Functions, 2016, section 11.2), minimax polynomials for sin and cos of r; the first step of
the reduction is exact, and r comes with its rounding error. This holds for abs(x) <= LIMIT; larger arguments are reduced by
``_reduce_large``.
"""

from __future__ import annotations

import itertools
import math

from pullback.codegen.math.basis import Coefficients, bits_of, constant, format_of, polynomial, rarely
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value

LIMIT = {"f64": 2.0**30, "f32": 2.0**16}

# (sin(r) - r) / r**3 in r**2 on abs(r) <= pi / 4, least error relative to sin(r): 2**-57.8 and 2**-27.8.
SIN: Coefficients = {
    "f64": (
        -0.1666666666666663, 0.00833333333332184, -0.00019841269829358536, 2.7557313538517165e-06,
        -2.5050734389279278e-08, 1.589543324162024e-10,
    ),
    "f32": (
        -0.16666655, 0.008332187, -0.00019517897,
    ),
}  # fmt: skip
# (cos(r) - 1 + r**2 / 2) / r**4 in r**2, least error relative to cos(r): 2**-63.9 and 2**-32.9.
COS: Coefficients = {
    "f64": (
        0.041666666666666595, -0.0013888888888873307, 2.480158728896523e-05, -2.7557314203079376e-07,
        2.0875703139473965e-09, -1.1358616991976792e-11,
    ),
    "f32": (
        0.041666646, -0.001388731, 2.4432327e-05,
    ),
}  # fmt: skip
# (atan(t) - t) / t**3 in t**2 on [0, 1], least error relative to atan(t): 2**-56.0 and 2**-27.8.
ATAN: Coefficients = {
    "f64": (
        -0.3333333333333307, 0.19999999999935633, -0.14285714281142173, 0.11111110954969046,
        -0.09090905957655708, 0.0769226653450638, -0.06666288166658131, 0.058798027727575156,
        -0.05250154259450008, 0.04710491560890473, -0.041872081650180915, 0.03597281232581801,
        -0.028817057457388242, 0.020619749982633204, -0.012588239127160812, 0.006249489033181664,
        -0.002388681419630263, 0.0006531274414124539, -0.00011295437559426339, 9.240396157895382e-06,
    ),
    "f32": (
        -0.33333313, 0.19998907, -0.1426757, 0.10967876, -0.08445627, 0.05863179, -0.03181203, 0.011238753,
        -0.0018630717,
    ),
}  # fmt: skip
# (asin(s) - s) / s**3 in s**2 on [0, 1/2], least error relative to asin(s): 2**-59.7 and 2**-27.4.
ASIN: Coefficients = {
    "f64": (
        0.16666666666666702, 0.07499999999982764, 0.044642857165313625, 0.03038194308894017,
        0.022372205531091826, 0.017351764735866863, 0.013979149345142121, 0.011411539720674966,
        0.01071428837591189, 0.003940375048400761, 0.021169584053163035, -0.020276131278852378,
        0.03219732587344324,
    ),
    "f32": (
        0.16666731, 0.074959576, 0.045401365, 0.024476372, 0.041714534,
    ),
}  # fmt: skip

# The first 1,248 bits of 2 / pi.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee882"
    "35f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f66"
    "9e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc20",
    16,
)


def _words(bits: int, count: int) -> tuple[int, ...]:
    """Return a word of zeros, then the bits of 2 / pi in words of ``bits``; ``count`` words in all."""
    total = TWO_OVER_PI << (bits * count) >> (1248 + bits)
    return tuple((total >> (bits * (count - 1 - k))) & ((1 << bits) - 1) for k in range(count))


# All words that arguments of the format reach, padded with zeros to a power of two.
TABLES = {64: _words(64, 20) + (0,) * 12, 32: _words(32, 8)}


def reduce_half_pi(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return r, its rounding error, and an unsigned integer whose low bits hold k, for x = k pi/2 + r and finite ``x``; r is
    NaN for other x."""
    fmt = format_of(x)
    size = b.abs(x)
    large = b.gt(size, constant(b, x, LIMIT[fmt.dtype.name]))
    large = b.bitand(large, b.lt(size, constant(b, x, float("inf"))))
    r, rest, k = rarely(b, large, _reduce_small(b, x), _reduce_large, x)
    return r, rest, k


def _reduce_small(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return the reduction for abs(x) <= LIMIT."""
    first, second, third = (constant(b, x, part) for part in format_of(x).half_pi)
    shift = constant(b, x, format_of(x).round)
    shifted = b.fma(x, constant(b, x, 2.0 / math.pi), shift)
    minus_k = b.sub(shift, shifted)
    high = b.fma(minus_k, first, x)
    product = b.mul(minus_k, second)
    product_low = b.fma(minus_k, second, b.neg(product))
    r = b.add(high, product)
    r_low = b.sub(product, b.sub(r, high))
    return r, b.fma(minus_k, third, b.add(r_low, product_low)), bits_of(b, shifted)


def _reduce_large(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return the reduction for LIMIT < abs(x) < inf, by Payne and Hanek's method: abs(x) = m 2**e with an integer m is
    multiplied by the bits of 2/pi that matter modulo 4, three words of them, and the top words of the product are k and a
    fraction."""
    fmt = format_of(x)
    word = fmt.unsigned.bits

    def const(value: int) -> Value:
        return b.const(value, fmt.unsigned)

    # Lanes with other arguments are clamped to the limit, so that they read inside the table.
    limit = constant(b, x, LIMIT[fmt.dtype.name])
    bits = bits_of(b, b.select(b.gt(b.abs(x), limit), b.abs(x), limit))
    mantissa = b.bitor(b.bitand(bits, const((1 << fmt.digits) - 1)), const(1 << fmt.digits))
    # The table begins with a word of zeros. Bit p of it counts m 2**1.
    bit_position = b.sub(b.shr(bits, const(fmt.digits)), const(fmt.bias + fmt.digits + 2 - word))
    top, middle = _product_modulo_4(b, mantissa, _bits_at(b, bit_position))
    high = b.bitor(b.shl(top, const(2)), b.shr(middle, const(word - 2)))
    down = b.shr(high, const(word - 1))
    k = b.add(b.shr(top, const(word - 2)), down)
    negative = b.sub(const(0), down)
    high, low = b.bitxor(high, negative), b.bitxor(b.shl(middle, const(2)), negative)
    r, rest = _times_half_pi(b, x, high, low)
    sign = b.shr(bits_of(b, x), const(word - 1))
    flip = b.shl(b.bitxor(sign, down), const(word - 1))
    r, rest = (b.bitcast(b.bitxor(bits_of(b, v), flip), dtype=fmt.dtype) for v in (r, rest))
    mask = b.sub(const(0), sign)
    return r, rest, b.sub(b.bitxor(k, mask), mask)


def _bits_at(b: Builder, bit_position: Value) -> list[Value]:
    """Return three words of the table of 2/pi, starting at one of its bits."""
    word = bit_position.type.dtype.bits

    def const(value: int) -> Value:
        return b.const(value, bit_position.type.dtype)

    index = b.shr(bit_position, const(word.bit_length() - 1))
    words = [b.lookup(b.add(index, const(k)), values=TABLES[word], dtype=bit_position.type.dtype) for k in range(4)]
    shift = b.bitand(bit_position, const(word - 1))
    back = b.sub(const(word - 1), shift)
    return [b.bitor(b.shl(a, shift), b.shr(b.shr(c, const(1)), back)) for a, c in itertools.pairwise(words)]


def _product_modulo_4(b: Builder, mantissa: Value, words: list[Value]) -> tuple[Value, Value]:
    """Return the upper two of the three low words of the product of a number and three words; the third is left out."""
    first, second, third = words
    part = b.mul(mantissa, second)
    middle = b.add(b.mulhi(mantissa, third), part)
    top = b.add(b.mul(mantissa, first), b.mulhi(mantissa, second))
    return b.add(top, b.cast(b.lt(middle, part), dtype=mantissa.type.dtype)), middle


def _times_half_pi(b: Builder, x: Value, high: Value, low: Value) -> tuple[Value, Value]:
    """Return pi/2 times the fraction with these two words, at most 1/2, and its rounding error."""
    fmt = format_of(x)
    parts = [_half_word(b, x, words, half, 2 * k + half) for k, words in enumerate((high, low)) for half in (0, 1)]
    rounded = b.add(parts[0], parts[1])
    missing = b.add(b.sub(parts[1], b.sub(rounded, parts[0])), b.add(parts[2], parts[3]))
    fraction = b.add(rounded, missing)
    fraction_low = b.sub(missing, b.sub(fraction, rounded))
    first, second, _ = (constant(b, x, part) for part in fmt.half_pi)
    product = b.mul(fraction, first)
    product_low = b.fma(fraction, first, b.neg(product))
    product_low = b.fma(fraction_low, first, b.fma(fraction, second, product_low))
    r = b.add(product, product_low)
    return r, b.sub(product_low, b.sub(r, product))


def _half_word(b: Builder, x: Value, words: Value, is_lower: int, position: int) -> Value:
    """Return the upper or lower half of a word as a float of the type of ``x``, scaled to its position in a fraction."""
    fmt = format_of(x)
    half = fmt.unsigned.bits // 2
    mask = b.const((1 << half) - 1, fmt.unsigned)
    piece = b.bitand(words, mask) if is_lower else b.shr(words, b.const(half, fmt.unsigned))
    # An integer below 2**digits is the low bits of 2**digits + integer.
    biased = b.bitor(piece, b.const((fmt.bias + fmt.digits) << fmt.digits, fmt.unsigned))
    whole = b.sub(b.bitcast(biased, dtype=fmt.dtype), constant(b, x, 2.0**fmt.digits))
    return b.mul(whole, constant(b, x, 2.0 ** -(half * (position + 1))))


def sin_parts(b: Builder, r: Value, rest: Value) -> tuple[Value, Value]:
    """Return sin of r + rest as a sum of two, for abs(r) <= pi / 4."""
    z = b.mul(r, r)
    return r, b.fma(b.mul(z, r), polynomial(b, z, SIN), rest)


def cos_parts(b: Builder, r: Value, rest: Value) -> tuple[Value, Value]:
    """Return cos of r + rest as a sum of two, for abs(r) <= pi / 4."""
    z = b.mul(r, r)
    one, minus_half = constant(b, r, 1.0), constant(b, r, -0.5)
    first = b.fma(z, minus_half, one)
    low = b.fma(z, minus_half, b.sub(one, first))
    return first, b.fma(b.mul(z, z), polynomial(b, z, COS), b.fma(b.neg(r), rest, low))


def is_odd(b: Builder, x: Value, k: Value) -> Value:
    unsigned = format_of(x).unsigned
    return b.ne(b.bitand(k, b.const(1, unsigned)), b.const(0, unsigned))


def flip_by_second_bit(b: Builder, y: Value, k: Value) -> Value:
    """Return ``y`` with its sign changed where bit 1 of ``k`` is set."""
    fmt = format_of(y)
    top = fmt.bias.bit_length() + fmt.digits + 1
    sign = b.bitand(b.shl(k, b.const(top - 1, fmt.unsigned)), b.const(1 << top, fmt.unsigned))
    return b.bitcast(b.bitxor(bits_of(b, y), sign), dtype=fmt.dtype)


def sin(b: Builder, x: Value) -> Value:
    r, rest, k = reduce_half_pi(b, x)
    sine, cosine = b.add(*sin_parts(b, r, rest)), b.add(*cos_parts(b, r, rest))
    y = flip_by_second_bit(b, b.select(is_odd(b, x, k), cosine, sine), k)
    return b.select(b.eq(x, constant(b, x, 0.0)), x, y)


def cos(b: Builder, x: Value) -> Value:
    r, rest, k = reduce_half_pi(b, x)
    sine, cosine = b.add(*sin_parts(b, r, rest)), b.add(*cos_parts(b, r, rest))
    quadrant = b.add(k, b.const(1, format_of(x).unsigned))
    return flip_by_second_bit(b, b.select(is_odd(b, x, k), sine, cosine), quadrant)


def tan(b: Builder, x: Value) -> Value:
    """Return sin / cos, or -cos / sin in the odd quadrants, with one correction of the quotient."""
    r, rest, k = reduce_half_pi(b, x)
    pairs = []
    for first, second in (sin_parts(b, r, rest), cos_parts(b, r, rest)):
        total = b.add(first, second)
        pairs.append((total, b.add(b.sub(first, total), second)))
    (sine, sine_low), (cosine, cosine_low) = pairs
    odd = is_odd(b, x, k)
    top, top_low = b.select(odd, b.neg(cosine), sine), b.select(odd, b.neg(cosine_low), sine_low)
    bottom, bottom_low = b.select(odd, sine, cosine), b.select(odd, sine_low, cosine_low)
    inverse = b.div(constant(b, x, 1.0), bottom)
    y = b.mul(top, inverse)
    residual = b.fma(b.neg(y), bottom_low, b.add(b.fma(b.neg(y), bottom, top), top_low))
    return b.select(b.eq(x, constant(b, x, 0.0)), x, b.fma(residual, inverse, y))


def parts_of_pi(b: Builder, x: Value, multiple: float) -> tuple[Value, Value]:
    """Return multiple * pi/2 as a sum of two; ``multiple`` is a power of two."""
    high, low, _ = format_of(x).half_pi
    return constant(b, x, high * multiple), constant(b, x, low * multiple)


def atan_unit(b: Builder, t: Value) -> Value:
    """Return atan of ``t`` in [0, 1]."""
    z = b.mul(t, t)
    return b.fma(b.mul(z, t), polynomial(b, z, ATAN), t)


def atan(b: Builder, x: Value) -> Value:
    size = b.abs(x)
    one = constant(b, x, 1.0)
    large = b.gt(size, one)
    y = atan_unit(b, b.select(large, b.div(one, size), size))
    high, low = parts_of_pi(b, x, 1.0)
    return b.copysign(b.select(large, b.sub(high, b.sub(y, low)), y), x)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """Return the angle of the point (x, y), with C99's values at zeros and infinities of either sign."""
    fmt = format_of(x)
    width, height = b.abs(x), b.abs(y)
    zero = constant(b, x, 0.0)
    steep = b.gt(height, width)
    small, great = b.select(steep, width, height), b.select(steep, height, width)
    same = b.select(b.eq(small, zero), zero, constant(b, x, 1.0))
    angle = atan_unit(b, b.select(b.eq(small, great), same, b.div(small, great)))
    left = b.lt(b.bitcast(x, dtype=fmt.signed), b.const(0, fmt.signed))
    half_high, half_low = parts_of_pi(b, x, 1.0)
    full_high, full_low = parts_of_pi(b, x, 2.0)
    high = b.select(steep, half_high, b.select(left, full_high, zero))
    low = b.select(steep, half_low, b.select(left, full_low, zero))
    signed_angle = b.select(b.bitxor(steep, left), b.neg(angle), angle)
    return b.copysign(b.add(high, b.add(signed_angle, low)), y)


def asin_parts(b: Builder, x: Value) -> tuple[Value, Value, Value, Value]:
    """Return large, s, c, d: asin(abs(x)) = s + c, or pi/2 - 2 (s + c + d) where abs(x) > 1/2 ("large").

    In the second case s is sqrt((1 - abs(x)) / 2), and d its rounding error.
    """
    size = b.abs(x)
    half = constant(b, x, 0.5)
    large = b.gt(size, half)
    z = b.select(large, b.fma(b.neg(size), half, half), b.mul(size, size))
    root = b.sqrt(z)
    s = b.select(large, root, size)
    missing = b.div(b.fma(b.neg(root), root, z), b.add(root, b.select(large, root, constant(b, x, 1.0))))
    missing = b.select(b.gt(root, constant(b, x, 0.0)), missing, constant(b, x, 0.0))
    return large, s, b.mul(b.mul(z, s), polynomial(b, z, ASIN)), missing


def asin(b: Builder, x: Value) -> Value:
    large, s, c, missing = asin_parts(b, x)
    high, low = parts_of_pi(b, x, 1.0)
    two = constant(b, x, 2.0)
    rest = b.fma(two, b.add(c, missing), b.neg(low))
    beyond = b.sub(b.fma(b.neg(two), s, high), rest)
    return b.copysign(b.select(large, beyond, b.add(s, c)), x)


def acos(b: Builder, x: Value) -> Value:
    large, s, c, missing = asin_parts(b, x)
    half_high, half_low = parts_of_pi(b, x, 1.0)
    full_high, full_low = parts_of_pi(b, x, 2.0)
    two, zero = constant(b, x, 2.0), constant(b, x, 0.0)
    negative = b.lt(x, zero)
    small_result = b.sub(half_high, b.sub(x, b.sub(half_low, b.copysign(c, x))))
    twice = b.mul(two, b.add(s, b.add(c, missing)))
    negative_result = b.sub(full_high, b.fma(two, s, b.fma(two, b.add(c, missing), b.neg(full_low))))
    return b.select(large, b.select(negative, negative_result, twice), small_result)
