"""Expansions of kernel ops that are one instruction on some processors, for the others: the ops of
``ir.ops.kernel.float_parts``, and ``fma``.

Recipes like the ones of ``pullback.codegen.math.table``, in ops that every processor has.
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.codegen.math.basis import Recipe, bits_of, constant, format_of, two_sum
from pullback.ir.core.builder import Builder
from pullback.ir.core.types import F32, F64
from pullback.ir.core.value import Value


def scalb(b: Builder, x: Value, k: Value) -> Value:
    """Return x * 2**k for abs(k) <= 2 * bias, in two steps of which only the second can round."""
    fmt = format_of(x)
    digits, one = b.const(fmt.digits, fmt.unsigned), b.const(1, fmt.unsigned)
    exponent = bits_of(b, b.add(k, constant(b, x, fmt.round + 2 * fmt.bias)))
    half = b.raw_shr(exponent, one)
    for part in (half, b.sub(exponent, half)):
        x = b.mul(x, b.bitcast(b.raw_shl(part, digits), dtype=fmt.dtype))
    return x


def _split(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Return the bits of abs(x), scaled to a normal number; its biased exponent field; and the exponent that the scaling
    added."""
    fmt = format_of(x)
    small = b.lt(x, constant(b, x, fmt.smallest_normal))
    lift = fmt.digits + 2
    lifted = b.select(small, b.mul(x, constant(b, x, 2.0**lift)), x)
    bits = bits_of(b, b.abs(lifted))
    # The sum is biased so that it stays positive: its exponent field is k + bias, with k of a significand in [3/4, 3/2).
    moved = b.add(bits, b.const(1 << (fmt.digits - 1), fmt.unsigned))
    return bits, b.raw_shr(moved, b.const(fmt.digits, fmt.unsigned)), b.select(small, constant(b, x, lift), constant(b, x, 0.0))


def significand(b: Builder, x: Value) -> Value:
    fmt = format_of(x)
    bits, field, _ = _split(b, x)
    scale = b.raw_shl(b.sub(field, b.const(fmt.bias, fmt.unsigned)), b.const(fmt.digits, fmt.unsigned))
    scaled = b.bitcast(b.sub(bits, scale), dtype=fmt.dtype)
    return b.select(b.ge(x, constant(b, x, 0.0)), scaled, constant(b, x, float("nan")))


def exponent(b: Builder, x: Value) -> Value:
    fmt = format_of(x)
    _, field, added = _split(b, x)
    two_to_digits = (fmt.bias + fmt.digits) << fmt.digits
    biased = b.bitcast(b.bitor(field, b.const(two_to_digits, fmt.unsigned)), dtype=fmt.dtype)
    exponent_value = b.sub(b.sub(biased, constant(b, x, 2.0**fmt.digits + fmt.bias)), added)
    exponent_value = b.select(b.lt(x, constant(b, x, float("inf"))), exponent_value, x)
    return b.select(b.eq(x, constant(b, x, 0.0)), constant(b, x, float("-inf")), exponent_value)


def _two_product(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return x * y rounded, and the rounding error, by products of halves (Dekker, Veltkamp)."""
    product = b.mul(x, y)
    (x1, x0), (y1, y0) = (_halves(b, v) for v in (x, y))
    low = b.sub(b.mul(x1, y1), product)
    low = b.add(b.add(low, b.mul(x1, y0)), b.mul(x0, y1))
    return product, b.add(low, b.mul(x0, y0))


def _halves(b: Builder, x: Value) -> tuple[Value, Value]:
    """Return the upper 26 bits of a float64 and the remaining ones. It works on the bits, so that nothing overflows."""
    fmt = format_of(x)
    rounded_bits = b.add(bits_of(b, x), b.const(1 << 26, fmt.unsigned))
    high = b.bitcast(b.bitand(rounded_bits, b.const((1 << 64) - (1 << 27), fmt.unsigned)), dtype=F64)
    return high, b.sub(x, high)


def _odd_sum(b: Builder, x: Value, y: Value) -> Value:
    """Return x + y rounded to odd: the neighbour whose last bit is set, if the sum is not exact (Boldo and Melquiond, 2008)."""
    fmt = format_of(x)
    total, error = two_sum(b, x, y)
    zero, one = constant(b, x, 0.0), b.const(1, fmt.unsigned)
    bits = bits_of(b, total)
    even = b.eq(b.bitand(bits, one), b.const(0, fmt.unsigned))
    away = b.eq(b.gt(error, zero), b.gt(total, zero))
    moved = b.select(away, b.add(bits, one), b.sub(bits, one))
    is_known = b.lt(b.abs(error), constant(b, x, float("inf")))
    inexact = b.bitand(b.bitand(b.ne(error, zero), is_known), even)
    return b.bitcast(b.select(inexact, moved, bits), dtype=F64)


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return x * y + z rounded once: float32 in float64; float64 as a sum of three, two of which are added with rounding to
    odd.

    A product or sum that overflows, or whose parts underflow, is rounded twice, unless z is 0.
    """
    if x.type.dtype is F32:
        product = b.mul(b.cast(x, dtype=F64), b.cast(y, dtype=F64))
        rounded: Value = b.cast(_odd_sum(b, product, b.cast(z, dtype=F64)), dtype=F32)
        return rounded
    product, product_low = _two_product(b, x, y)
    first, first_low = two_sum(b, z, product_low)
    total, total_low = two_sum(b, product, first)
    exact = b.add(total, _odd_sum(b, total_low, first_low))
    simple = b.add(product, z)
    rounded = b.select(b.eq(b.sub(exact, exact), constant(b, x, 0.0)), exact, simple)
    zero = constant(b, x, 0.0)
    return b.select(b.bitor(b.eq(product, zero), b.eq(z, zero)), simple, rounded)


PLAIN: Mapping[str, Recipe] = {"scalb": scalb, "significand": significand, "exponent": exponent, "fma": fma}
