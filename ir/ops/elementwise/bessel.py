"""Bessel functions and related functions: native calls, with derivative rules.

Formulas: NIST Digital Library of Mathematical Functions, chapters 9 (Airy), 10 (Bessel, Kelvin) and 11 (Struve).
"""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.core.op import Contribution
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Partial, const_like
from pullback.ir.ops.elementwise.native_ufunc import (
    by_parameter,
    in_double,
    less,
    row,
    rows_of,
    scaled,
    shifted,
    size,
    steepness,
    where,
)

ASYMPTOTIC_START = 30.0
"""Asymptotic series are used for abs(x) above this value (plus 4 v**2 for an order v that is an operand)."""
SERIES_TERMS = 20
"""The number of terms of the asymptotic series."""


def _over(b: Any, y: Value, x: Value, sign: float, is_scaled: bool = False) -> Value:
    """Return y / x for y = J1(x), or with a ``sign`` of 1 for y = I1(x); ``is_scaled``: y is scaled by exp(-|x|). Near 0 the
    quotient is its series (DLMF 10.2.2, 10.25.2), which is differentiable there."""
    is_small = less(b, size(b, x), 1.0)
    inside = where(b, is_small, x, 0.0)
    square, total = scaled(b, b.mul(inside, inside), 0.25), const_like(b, 0.0, x)
    for k in range(9, -1, -1):
        total = shifted(b, b.mul(total, square), 0.5 * sign**k / (math.factorial(k) * math.factorial(k + 1)))
    if is_scaled:
        total = b.mul(total, b.exp(b.neg(size(b, inside))))
    return where(b, is_small, total, b.div(y, where(b, is_small, const_like(b, 1, x), x)))


def _asymptotic_slope(b: Any, v: Value | float, out: Value, x: Value, sign: float) -> tuple[Value, Value]:
    """Return whether x is in the asymptotic range, and the derivative of ``out`` there. ``out`` is a modified Bessel function
    times exp(-x), or with a ``sign`` of 1 times exp(x); the derivative is -out / x times a quotient of series in 1 / x
    (DLMF 10.40.1, 10.40.2). Differences of functions would cancel there."""
    square: Value | float = v * v * 4.0 if isinstance(v, float) else scaled(b, b.mul(v, v), 4.0)
    bound = const_like(b, ASYMPTOTIC_START, x) if isinstance(square, float) else shifted(b, square, ASYMPTOTIC_START)
    is_asymptotic = b.gt(size(b, x), bound)
    argument = where(b, is_asymptotic, x, const_like(b, ASYMPTOTIC_START, x))
    inverse = b.div(const_like(b, 1, x), size(b, argument))
    term = above = below = const_like(b, 1, x)
    above = scaled(b, above, 0.5)
    for k in range(1, SERIES_TERMS + 1):
        odd = (2.0 * k - 1.0) ** 2
        if isinstance(square, float):
            term = scaled(b, b.mul(term, inverse), sign * (square - odd) / (8.0 * k))
        else:
            term = scaled(b, b.mul(b.mul(term, inverse), shifted(b, square, -odd)), sign / (8.0 * k))
        above, below = b.add(above, scaled(b, term, k + 0.5)), b.add(below, term)
    derivative: Value = b.neg(b.mul(b.div(out, argument), b.div(above, below)))
    return is_asymptotic, derivative


def _scaled_partial(v: Value | float, sign: float, near_slope: Any) -> Partial:
    """Return the partial by x of a function times an exponential, computed in float64. ``near_slope(b, x)``: the derivative
    below the asymptotic range."""

    def partial(b: Any, ct: Value, out: Value, x: Value) -> Value:
        is_asymptotic, slope = _asymptotic_slope(b, v, out, x, sign)
        result: Value = b.mul(ct, where(b, is_asymptotic, slope, near_slope(b, x)))
        return result

    return in_double(partial)


# orders 0 and 1

j0 = row("j0", lambda b, ct, out, x: b.neg(b.mul(ct, b.j1(x))), cuda="j0({0})")
j1 = row("j1", lambda b, ct, out, x: b.mul(ct, b.sub(b.j0(x), _over(b, out, x, -1.0))), cuda="j1({0})")
y0 = row("y0", lambda b, ct, out, x: b.neg(b.mul(ct, b.y1(x))), cuda="y0({0})")
y1 = row("y1", lambda b, ct, out, x: b.mul(ct, b.sub(b.y0(x), b.div(out, x))), cuda="y1({0})")
i0 = row("i0", lambda b, ct, out, x: b.mul(ct, b.i1(x)), cuda="cyl_bessel_i0({0})")
i1 = row("i1", lambda b, ct, out, x: b.mul(ct, b.sub(b.i0(x), _over(b, out, x, 1.0))), cuda="cyl_bessel_i1({0})")
i0e = row("i0e", _scaled_partial(0.0, -1.0, lambda b, x: b.sub(b.i1e(x), b.mul(b.sign(x), b.i0e(x)))))


def _i1e(b: Any, x: Value) -> Value:
    out = b.i1e(x)
    derivative: Value = b.sub(b.sub(b.i0e(x), _over(b, out, x, 1.0, is_scaled=True)), b.mul(b.sign(x), out))
    return derivative


i1e = row("i1e", _scaled_partial(1.0, -1.0, _i1e))
k0 = row("k0", lambda b, ct, out, x: b.neg(b.mul(ct, b.k1(x))))
k1 = row("k1", lambda b, ct, out, x: b.neg(b.mul(ct, b.add(b.k0(x), b.div(out, x)))))
k0e = row("k0e", _scaled_partial(0.0, 1.0, lambda b, x: b.sub(b.k0e(x), b.k1e(x))))
k1e = row("k1e", _scaled_partial(1.0, 1.0, lambda b, x: b.sub(b.k1e(x), b.add(b.k0e(x), b.div(b.k1e(x), x)))))

# any order


def _length(b: Any, v: Value, x: Value) -> Value:
    length: Value = b.div(const_like(b, 1, v), steepness(b, scaled(b, x, 0.5)))
    return length


def _neighbours(b: Any, op: str, v: Value, x: Value, sign: float) -> Value:
    """Return half the sum (difference, if ``sign`` is negative) of the functions of order v - 1 and v + 1."""
    below, above = (getattr(b, op)(shifted(b, v, step), x) for step in (-1.0, 1.0))
    result: Value = scaled(b, b.add(below, above) if sign > 0 else b.sub(below, above), 0.5)
    return result


def _of_order(name: str, sign: float, by_argument: Partial | None = None) -> None:
    def plain(b: Any, ct: Value, out: Value, v: Value, x: Value) -> Contribution:
        result: Value = b.mul(ct, _neighbours(b, name, v, x, sign))
        return result

    row(name, by_parameter(name, 0, _length), by_argument or plain)


def _ive(b: Any, ct: Value, out: Value, v: Value, x: Value) -> Value:
    is_asymptotic, slope = _asymptotic_slope(b, v, out, x, -1.0)
    near_slope = b.sub(_neighbours(b, "ive", v, x, 1.0), b.mul(b.sign(x), b.ive(v, x)))
    result: Value = b.mul(ct, where(b, is_asymptotic, slope, near_slope))
    return result


def _kv(b: Any, ct: Value, out: Value, v: Value, x: Value) -> Value:
    result: Value = b.neg(b.mul(ct, _neighbours(b, "kv", v, x, 1.0)))
    return result


def _kve(b: Any, ct: Value, out: Value, v: Value, x: Value) -> Value:
    is_asymptotic, slope = _asymptotic_slope(b, v, out, x, 1.0)
    near_slope = b.sub(b.kve(v, x), _neighbours(b, "kve", v, x, 1.0))
    result: Value = b.mul(ct, where(b, is_asymptotic, slope, near_slope))
    return result


def _power(b: Any, v: Value, x: Value) -> Value:
    """Return (x / 2)^v / (sqrt(pi) gamma(v + 3 / 2)); half of it is the extra term in derivatives of Struve functions."""
    power: Value = b.div(b.pow(scaled(b, x, 0.5), v), b.gamma(shifted(b, v, 1.5)))
    return scaled(b, power, 1.0 / math.sqrt(math.pi))


def _struve(name: str, sign: float) -> Partial:
    def partial(b: Any, ct: Value, out: Value, v: Value, x: Value) -> Contribution:
        result: Value = b.mul(ct, b.add(_neighbours(b, name, v, x, sign), scaled(b, _power(b, v, x), 0.5)))
        return result

    return partial


_of_order("jv", -1.0)
_of_order("yv", -1.0)
_of_order("iv", 1.0)
_of_order("ive", 1.0, in_double(_ive))
_of_order("kv", 1.0, _kv)
_of_order("kve", 1.0, in_double(_kve))
_of_order("struve", -1.0, _struve("struve", -1.0))
_of_order("modstruve", 1.0, _struve("modstruve", 1.0))

# Airy functions

rows_of(
    "airy",
    airy_ai=(lambda b, ct, out, x: b.mul(ct, b.airy_aip(x)),),
    airy_aip=(lambda b, ct, out, x: b.mul(ct, b.mul(x, b.airy_ai(x))),),
    airy_bi=(lambda b, ct, out, x: b.mul(ct, b.airy_bip(x)),),
    airy_bip=(lambda b, ct, out, x: b.mul(ct, b.mul(x, b.airy_bi(x))),),
)

# Kelvin functions

ber = row("ber", lambda b, ct, out, x: b.mul(ct, b.berp(x)))
bei = row("bei", lambda b, ct, out, x: b.mul(ct, b.beip(x)))
ker = row("ker", lambda b, ct, out, x: b.mul(ct, b.kerp(x)))
kei = row("kei", lambda b, ct, out, x: b.mul(ct, b.keip(x)))


def _kelvin(real: str, sign: float, start: float, first: int | None = None) -> Partial:
    """Return the partial of a derivative of a Kelvin function, by the differential equation. ``start``: the limit of out / x
    at 0. ``first``: near 0 use the second derivative of the series (DLMF 10.65.1) with terms of powers ``2 first``, ``2
    first + 4``, ..."""

    def partial(b: Any, ct: Value, out: Value, x: Value) -> Contribution:
        is_small = b.eq(x, b.zeros_like(x)) if first is None else b.lt(b.abs(x), const_like(b, 1, x))
        ratio = b.div(out, b.select(is_small, const_like(b, 1, x), x))
        if first is None:
            ratio = b.select(is_small, const_like(b, start, x), ratio)
        slope = b.sub(scaled(b, getattr(b, real)(x), sign), ratio)
        if first is not None:
            inside = b.select(is_small, x, b.zeros_like(x))
            fourth = b.mul(b.mul(inside, inside), b.mul(inside, inside))
            total = b.zeros_like(x)
            for k in reversed(range(first, first + 12, 2)):
                power = 2 * k
                term = (-1) ** ((k - first) // 2 + (first == 2)) * power * (power - 1) / (math.factorial(k) ** 2 * 2.0**power)
                total = shifted(b, b.mul(total, fourth), term)
            total = b.mul(total, b.mul(inside, inside)) if first == 2 else total
            slope = b.select(is_small, total, slope)
        result: Value = b.mul(ct, slope)
        return result

    return partial


berp = row("berp", _kelvin("bei", -1.0, 0.0, first=2))
beip = row("beip", _kelvin("ber", 1.0, 0.5, first=1))
kerp = row("kerp", _kelvin("kei", -1.0, -math.inf))
keip = row("keip", _kelvin("ker", 1.0, math.inf))
