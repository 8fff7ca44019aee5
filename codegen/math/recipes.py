"""Scalar functions that are ``recipe`` on a target: compositions of kernel ops, the same for every vector width.

``RECIPES`` maps an op's name to ``recipe(b, *operands, **params)``. The elementary functions are in
``pullback.codegen.math.table``; this module has integers, selection and bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pullback.codegen.math.basis import rarely
from pullback.codegen.math.error_function import i2erfcx
from pullback.codegen.math.gamma import trigamma
from pullback.codegen.math.power import hypot
from pullback.codegen.math.table import MATH
from pullback.ir.core.types import DTYPES
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.semantics import PHILOX, PHILOX_ROUNDS

WHOLE_QUOTIENTS = {64: 2.0**48, 32: 2.0**19}
"""By bits of a float, quotients below which NumPy's floor of a quotient is exact: it rounds a difference and its quotient, an
error of two units in the last place at most, and takes the nearest whole number, so that a 16th would do."""


def _like(b: Any, value: Any, x: Value) -> Value:
    constant_like: Value = b.const(value, x.type.dtype)
    return constant_like


def _zero(b: Any, x: Value) -> Value:
    return _like(b, 0, x)


def _is_float(x: Value) -> bool:
    return x.type.dtype.is_float


def _safe_divisor(b: Any, x: Value, y: Value) -> tuple[Value, Value]:
    """Return whether y is 0, and a divisor that never traps: 1 in place of 0, and of -1, by which the least integer cannot be
    divided."""
    is_zero = b.eq(y, _zero(b, y))
    unsafe = is_zero
    if x.type.dtype.kind == "i":
        unsafe = b.bitor(is_zero, b.eq(y, _like(b, -1, y)))
    return is_zero, b.select(unsafe, _like(b, 1, y), y)


def _int_quotient(b: Any, x: Value, y: Value) -> tuple[Value, Value]:
    """Return x / y rounded to zero and its remainder; 0 and 0 if y is 0; -x and 0 if y is -1."""
    is_zero, divisor = _safe_divisor(b, x, y)
    quotient = b.idiv(x, divisor)
    remainder = b.sub(x, b.mul(quotient, divisor))
    if x.type.dtype.kind == "i":
        quotient = b.select(b.eq(y, _like(b, -1, y)), b.neg(x), quotient)
    return b.select(is_zero, _zero(b, x), quotient), b.select(is_zero, _zero(b, x), remainder)


def _natural_quotient(b: Any, x: Value, y: Value) -> tuple[Value, Value]:
    """Return x / y and its remainder for an x that is not negative and a positive y; without a trap for others."""
    unsigned = DTYPES[f"u{x.type.dtype.bits}"]
    dividend, divisor = b.cast(x, dtype=unsigned), b.cast(y, dtype=unsigned)
    quotient = b.idiv(dividend, _safe_divisor(b, dividend, divisor)[1])
    remainder = b.sub(dividend, b.mul(quotient, divisor))
    return b.cast(quotient, dtype=x.type.dtype), b.cast(remainder, dtype=x.type.dtype)


def _rounds_down(b: Any, remainder: Value, y: Value) -> Value:
    """Return whether a quotient rounded to zero is one above the floor: the remainder is nonzero and its sign differs from the
    divisor's."""
    nonzero = b.ne(remainder, _zero(b, y))
    rounds_down: Value = b.bitand(nonzero, b.bitxor(b.lt(remainder, _zero(b, y)), b.lt(y, _zero(b, y))))
    return rounds_down


def floordiv(b: Any, x: Value, y: Value, natural: bool = False) -> Value:
    if natural:
        return _natural_quotient(b, x, y)[0]
    if not _is_float(x):
        quotient, remainder = _int_quotient(b, x, y)
        down = b.cast(_rounds_down(b, remainder, y), dtype=x.type.dtype)
        floored: Value = b.sub(quotient, down)
        return floored
    if x.type.dtype.bits == 16:
        return _divided_by_remainder(b, x, y)[0]
    floored, _, is_unusual = _floored(b, x, y)
    return rarely(b, is_unusual, [floored], _divided_by_remainder, x, y)[0]


def _floored(b: Any, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """Return the floor of a quotient of floats, the remainder ``x - floor * y``, and whether they are not NumPy's.

    The floor of the rounded quotient is that of the quotient, or one more if it was rounded up to a whole number: then the
    remainder and ``y`` have different signs. A sum of multiples of the least subnormal does not underflow, so its sign is right.
    NumPy divides a rounded difference: beyond ``WHOLE_QUOTIENTS`` its result may be another.
    """
    quotient = b.div(x, y)
    whole = b.floor(quotient)
    remainder = b.fma(b.neg(whole), y, x)
    down = _rounds_down(b, remainder, y)
    floored = b.select(down, b.sub(whole, _like(b, 1, x)), whole)
    corrected = b.select(down, b.fma(b.neg(floored), y, x), remainder)
    is_whole = b.lt(b.abs(quotient), _like(b, WHOLE_QUOTIENTS[x.type.dtype.bits], x))
    return floored, corrected, b.bitor(b.bitnot(is_whole), b.ne(remainder, remainder))


def _divided_by_remainder(b: Any, x: Value, y: Value) -> tuple[Value]:
    """Return NumPy's floor of a quotient of floats: by the exact remainder."""
    remainder, adjusted, zero = b.fmod(x, y), None, _zero(b, x)
    down = _rounds_down(b, remainder, y)
    adjusted = b.div(b.sub(x, remainder), y)
    adjusted = b.select(down, b.sub(adjusted, _like(b, 1, x)), adjusted)
    below = b.floor(adjusted)
    nearest = b.select(b.gt(b.sub(adjusted, below), _like(b, 0.5, x)), b.add(below, _like(b, 1, x)), below)
    whole = b.select(b.eq(adjusted, zero), b.copysign(zero, b.div(x, y)), nearest)
    return (b.select(b.eq(y, zero), b.div(x, y), whole),)


def mod(b: Any, x: Value, y: Value, natural: bool = False) -> Value:
    if natural:
        return _natural_quotient(b, x, y)[1]
    if not _is_float(x):
        _, remainder = _int_quotient(b, x, y)
        adjusted: Value = b.select(_rounds_down(b, remainder, y), b.add(remainder, y), remainder)
        return adjusted
    if x.type.dtype.bits == 16:
        return _remainder(b, x, y)[0]
    _, remainder, is_unusual = _floored(b, x, y)
    signed = b.select(b.eq(remainder, _zero(b, x)), b.copysign(_zero(b, x), y), remainder)
    return rarely(b, is_unusual, [signed], _remainder, x, y)[0]


def _remainder(b: Any, x: Value, y: Value) -> tuple[Value]:
    """Return NumPy's remainder of floats, which has the sign of ``y``."""
    remainder, zero = b.fmod(x, y), _zero(b, x)
    moved = b.select(_rounds_down(b, remainder, y), b.add(remainder, y), remainder)
    signed = b.select(b.eq(remainder, zero), b.copysign(zero, y), moved)
    return (b.select(b.eq(y, zero), remainder, signed),)


def nextafter(b: Any, x: Value, y: Value) -> Value:
    """Return the next float after ``x`` towards ``y``. Floats of one sign are ordered as their bits."""
    dtype = x.type.dtype
    bits = b.bitcast(x, dtype=DTYPES[f"i{dtype.bits}"])
    one, zero = _like(b, 1, bits), _zero(b, x)
    grows = b.eq(b.lt(x, y), b.gt(x, zero))
    moved = b.bitcast(b.select(grows, b.add(bits, one), b.sub(bits, one)), dtype=dtype)
    least = b.copysign(b.bitcast(one, dtype=dtype), y)
    neighbour = b.select(b.eq(x, y), y, b.select(b.eq(x, zero), least, moved))
    is_nan = b.bitor(b.ne(x, x), b.ne(y, y))
    result: Value = b.select(is_nan, b.add(x, y), neighbour)
    return result


def fmod(b: Any, x: Value, y: Value) -> Value:
    return _int_quotient(b, x, y)[1]


def absolute(b: Any, x: Value) -> Value:
    return x


def sign(b: Any, x: Value) -> Value:
    zero, one = _zero(b, x), _like(b, 1, x)
    positive = b.select(b.gt(x, zero), one, zero)
    if x.type.dtype.kind == "u":
        return positive
    either = b.select(b.lt(x, zero), _like(b, -1, x), positive)
    return b.select(b.ne(x, x), x, either) if _is_float(x) else either


def one_minus_square(b: Any, x: Value) -> Value:
    one = _like(b, 1, x)
    result: Value = b.mul(b.sub(one, x), b.add(one, x))
    return result


def lorentzian(b: Any, x: Value) -> Value:
    """Return 1 / (1 + x**2). Where the square would overflow, the inverse is squared instead, which may be subnormal."""
    one = _like(b, 1, x)
    usual = b.div(one, b.add(b.mul(x, x), one))
    bound = _like(b, 2.0 ** (500 if x.type.dtype.bits == 64 else 60), x)
    return rarely(b, b.gt(b.abs(x), bound), (usual,), _inverse_square, x)[0]


def _inverse_square(b: Any, x: Value) -> tuple[Value, ...]:
    inverse = b.div(_like(b, 1, x), x)
    return (b.mul(inverse, inverse),)


def over_hypot(b: Any, x: Value, y: Value, h: Value) -> Value:
    """Return x / h, 0 where h is 0. A subnormal ``h`` has too few digits, so there x and y are scaled first."""
    is_origin = b.eq(h, _zero(b, h))
    usual = b.select(is_origin, _zero(b, x), b.div(x, h))
    least = _like(b, 2.0 ** (-1022 if x.type.dtype.bits == 64 else -126), h)
    return rarely(b, b.bitand(b.lt(h, least), b.gt(h, _zero(b, h))), (usual,), _over_small_hypot, x, y)[0]


def _over_small_hypot(b: Any, x: Value, y: Value) -> tuple[Value, ...]:
    up = _like(b, 2.0 ** (60 if x.type.dtype.bits == 64 else 30), x)
    scaled_x, scaled_y = b.mul(x, up), b.mul(y, up)
    return (b.div(scaled_x, hypot(b, scaled_x, scaled_y)),)


def integer_power(b: Any, x: Value, y: Value) -> Value:
    """Return x**y by squaring and multiplying over the bits of the exponent; 0 for a negative exponent."""
    dtype = x.type.dtype
    result, square = _like(b, 1, x), x
    for bit in range(dtype.bits if dtype.kind == "u" else dtype.bits - 1):
        is_set = b.ne(b.bitand(y, _like(b, 1 << bit, y)), _zero(b, y))
        result = b.select(is_set, b.mul(result, square), result)
        square = b.mul(square, square)
    if dtype.kind == "u":
        return result
    result_or_zero: Value = b.select(b.lt(y, _zero(b, y)), _zero(b, x), result)
    return result_or_zero


def power(b: Any, x: Value, y: Value, **params: bool) -> Value:
    return MATH["pow"](b, x, y) if _is_float(x) else integer_power(b, x, y)


def fmax(b: Any, x: Value, y: Value) -> Value:
    result: Value = b.select(b.ne(x, x), y, b.select(b.ne(y, y), x, b.maximum(x, y)))
    return result


def fmin(b: Any, x: Value, y: Value) -> Value:
    result: Value = b.select(b.ne(x, x), y, b.select(b.ne(y, y), x, b.minimum(x, y)))
    return result


def clip(b: Any, x: Value, lo: Value, hi: Value) -> Value:
    result: Value = b.minimum(b.maximum(x, lo), hi)
    return result


def bitnot(b: Any, x: Value) -> Value:
    result: Value = b.bitxor(
        x,
        b.const(True if x.type.dtype.is_bool else -1 if x.type.dtype.kind == "i" else (1 << x.type.dtype.bits) - 1, x.type.dtype),
    )
    return result


def _shift(b: Any, x: Value, n: Value, raw: str, past: Value) -> Value:
    width = _like(b, x.type.dtype.bits, n)
    inside = b.lt(n, width)
    if n.type.dtype.kind == "i":
        inside = b.bitand(inside, b.ge(n, _zero(b, n)))
    safe = b.select(inside, n, _zero(b, n))
    result: Value = b.select(inside, getattr(b, raw)(x, safe), past)
    return result


def is_index(b: Any, x: Value, n: Value) -> Value:
    result: Value = b.below(b.select(b.lt(x, _zero(b, x)), b.add(x, n), x), n)
    return result


def shl(b: Any, x: Value, n: Value) -> Value:
    return _shift(b, x, n, "raw_shl", _zero(b, x))


def shr(b: Any, x: Value, n: Value) -> Value:
    past = _zero(b, x)
    if x.type.dtype.kind == "i":
        past = b.select(b.lt(x, past), _like(b, -1, x), past)
    return _shift(b, x, n, "raw_shr", past)


def mulhi(b: Any, x: Value, y: Value) -> Value:
    """Return the high half of a product, by products of halves."""
    half = x.type.dtype.bits // 2
    low, shift = _like(b, (1 << half) - 1, x), _like(b, half, x)
    x0, x1, y0, y1 = b.bitand(x, low), b.raw_shr(x, shift), b.bitand(y, low), b.raw_shr(y, shift)
    first = b.add(b.mul(x1, y0), b.raw_shr(b.mul(x0, y0), shift))
    second = b.add(b.mul(x0, y1), b.bitand(first, low))
    result: Value = b.add(b.mul(x1, y1), b.add(b.raw_shr(first, shift), b.raw_shr(second, shift)))
    return result


def philox(b: Any, c0: Value, c1: Value, c2: Value, c3: Value, k0: Value, k1: Value, word: int) -> Value:
    mask = (1 << c0.type.dtype.bits) - 1
    (m0, m1), (w0, w1) = ([_like(b, v & mask, c0) for v in pair] for pair in PHILOX)
    for _ in range(PHILOX_ROUNDS):
        left, right = b.bitxor(mulhi(b, c2, m1), b.bitxor(c1, k0)), b.bitxor(mulhi(b, c0, m0), b.bitxor(c3, k1))
        c0, c1, c2, c3 = left, b.mul(c2, m1), right, b.mul(c0, m0)
        k0, k1 = b.add(k0, w0), b.add(k1, w1)
    return (c0, c1, c2, c3)[word]


def polygamma(b: Any, x: Value, n: int) -> Value:
    """Return (-1)^(n+1) n! zeta(n + 1, x) with Hurwitz's zeta."""
    if n == 1:
        return trigamma(b, x)
    sign_ = 1.0 if n % 2 else -1.0
    result: Value = b.mul(b.zeta(_like(b, n + 1, x), x), _like(b, sign_ * math.factorial(n), x))
    return result


def expn(b: Any, x: Value, n: int) -> Value:
    result: Value = b.expn_at(_like(b, n, x), x)
    return result


PRECOMPUTED = ("pow_slope_at", "over_squares_at", "normal_pdf_at", "inverse_mills_at", "exp_square_at")
"""Functions whose first operand is their value."""
RECIPES: Mapping[str, Callable[..., Value]] = {
    **MATH,
    "floordiv": floordiv,
    "mod": mod,
    "fmod": fmod,
    "nextafter": nextafter,
    "abs": absolute,
    "i2erfcx": i2erfcx,
    "one_minus_square": one_minus_square,
    "lorentzian": lorentzian,
    "over_hypot": over_hypot,
    "sign": sign,
    "pow": power,
    "fmax": fmax,
    "fmin": fmin,
    "clip": clip,
    "bitnot": bitnot,
    "is_index": is_index,
    "shl": shl,
    "shr": shr,
    "mulhi": mulhi,
    "philox": philox,
    "ordered_after": lambda b, x, after: x,
    **dict.fromkeys(("log_gamma_draw", "inverse_gaussian_draw"), lambda b, parameter, x: x),
    **dict.fromkeys(PRECOMPUTED, lambda b, value, *operands: value),
    "polygamma": polygamma,
    "expn": expn,
}
HALF = (DTYPES["f16"], DTYPES["bf16"])
TAKES_16_BITS = frozenset({"nextafter"})
"""Recipes that take 16-bit floats directly; the others compute them in float32."""
