"""Integrals and hypergeometric functions: native calls, with derivative rules.

Formulas: NIST Digital Library of Mathematical Functions, chapters 6 (exponential integrals), 7 (Dawson, Fresnel), 13, 15
(hypergeometric functions), 14 (Legendre), 19 (elliptic integrals), 22 (Jacobi), 25 (zeta).
"""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.core.op import Contribution
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise import semantics
from pullback.ir.ops.elementwise.elementwise import Elementwise, Partial, const_like, each, no
from pullback.ir.ops.elementwise.native_ufunc import (
    by_parameter,
    in_double,
    less,
    row,
    rows_of,
    scaled,
    shifted,
    size,
    slope,
    steepness,
    where,
)


def _one(b: Any, x: Value) -> Value:
    return const_like(b, 1, x)


def _quotient(b: Any, ct: Value, top: Value, x: Value, sign: float) -> Value:
    """Return ct * top / x, where ``top`` is sin(x), or with a ``sign`` of 1 sinh(x). Near 0 the quotient is its series, which
    is differentiable there."""
    is_small = less(b, size(b, x), 1.0)
    inside = where(b, is_small, x, 0.0)
    square, total = b.mul(inside, inside), const_like(b, sign**9 / math.factorial(19), x)
    for k in range(8, -1, -1):
        total = shifted(b, b.mul(total, square), sign**k / math.factorial(2 * k + 1))
    result: Value = b.mul(ct, where(b, is_small, total, b.div(top, where(b, is_small, _one(b, x), x))))
    return result


# exponential and trigonometric integrals

exp1 = row("exp1", lambda b, ct, out, x: b.neg(b.mul(ct, b.div(b.exp(b.neg(x)), x))))
# in float64, since exp(x) in float32 overflows before the quotient does
expi = row("expi", in_double(lambda b, ct, out, x: b.mul(ct, b.div(b.exp(x), x))))


def _expn(b: Any, ct: Value, out: Value, x: Value, n: int) -> Value:
    """Return -ct E(n - 1)."""
    below = b.expn(x, n=n - 1) if n else b.div(b.mul(b.exp(b.neg(x)), shifted(b, b.div(_one(b, x), x), 1.0)), x)
    result: Value = b.neg(b.mul(ct, below))
    return result


expn = Elementwise(name="expn", reference=semantics.expn, pullback=each(_expn))
expn_at = Elementwise(
    name="expn_at", reference=semantics.expn_at, arity=2, llvm="ufunc:scipy.special.expn", vocabularies=frozenset({"kernel"})
)
rows_of(
    "sici",
    sici_si=(lambda b, ct, out, x: _quotient(b, ct, b.sin(x), x, -1.0),),
    sici_ci=(lambda b, ct, out, x: b.mul(ct, b.div(b.cos(x), x)),),
)
rows_of(
    "shichi",
    shichi_shi=(in_double(lambda b, ct, out, x: _quotient(b, ct, b.sinh(x), x, 1.0)),),
    shichi_chi=(in_double(lambda b, ct, out, x: b.mul(ct, b.div(b.cosh(x), x))),),
)


def _phase(b: Any, x: Value) -> Value:
    """Return pi / 2 times x^2, reduced by whole periods before the multiplication, so that the rounding of pi does not grow."""
    square = b.mul(x, x)
    periods = scaled(b, b.floor(scaled(b, square, 0.25)), 4.0)
    return scaled(b, b.sub(square, periods), math.pi / 2)


rows_of(
    "fresnel",
    fresnel_s=(in_double(lambda b, ct, out, x: b.mul(ct, b.sin(_phase(b, x)))),),
    fresnel_c=(in_double(lambda b, ct, out, x: b.mul(ct, b.cos(_phase(b, x)))),),
)


def _dawsn(b: Any, ct: Value, out: Value, x: Value) -> Value:
    """Return ct (1 - 2 x F(x)); where that cancels, as a hypergeometric function, and for large x by the asymptotic series
    (DLMF 7.12.4)."""
    is_large, is_small = b.gt(size(b, x), const_like(b, 30.0, x)), less(b, size(b, x), 1.0)
    middle = where(b, b.bitor(is_small, is_large), const_like(b, 2, x), x)
    between = b.hyp1f1(_one(b, x), const_like(b, 0.5, x), b.neg(b.mul(middle, middle)))
    inverse = b.div(_one(b, x), where(b, is_large, x, 30.0))
    square, series = b.mul(inverse, inverse), _one(b, x)
    for k in range(8, 0, -1):
        series = shifted(b, scaled(b, b.mul(series, square), k + 0.5), 1.0)
    outside = scaled(b, b.mul(b.mul(series, inverse), inverse), -0.5)
    inside = shifted(b, scaled(b, b.mul(x, b.dawsn(x)), -2.0), 1.0)
    result: Value = b.mul(ct, where(b, is_small, inside, where(b, is_large, outside, between)))
    return result


dawsn = row("dawsn", in_double(_dawsn))
erfi = row("erfi", lambda b, ct, out, x: b.mul(ct, scaled(b, b.exp(b.mul(x, x)), 2.0 / math.sqrt(math.pi))))


def _spence(b: Any, ct: Value, out: Value, z: Value) -> Value:
    """Return ct log(z) / (1 - z); near 1 as a hypergeometric function."""
    w = shifted(b, z, -1.0)
    is_close = less(b, size(b, w), 0.5)
    ones = _one(b, z)
    inside = b.hyp2f1(ones, ones, const_like(b, 2, z), b.neg(where(b, is_close, w, 0.0)))
    result: Value = b.neg(b.mul(ct, where(b, is_close, inside, b.div(b.log(z), where(b, is_close, ones, w)))))
    return result


spence = row("spence", _spence)


def _exprel(b: Any, ct: Value, out: Value, x: Value) -> Value:
    is_small = less(b, size(b, x), 1.0)
    inside = scaled(b, b.hyp1f1(const_like(b, 2, x), const_like(b, 3, x), where(b, is_small, x, 0.0)), 0.5)
    result: Value = b.mul(ct, where(b, is_small, inside, b.div(b.sub(b.exp(x), out), where(b, is_small, _one(b, x), x))))
    return result


exprel = row("exprel", in_double(_exprel))


def _ndtri_exp(b: Any, ct: Value, out: Value, y: Value) -> Value:
    """Return ct over the derivative of log_ndtr at ``out``; for positive ``out`` by 1 - exp(y), since exp(y) near 1 has lost
    the digits."""
    is_low = less(b, out, 0.0)
    low = b.inverse_mills(where(b, is_low, out, 0.0))
    log_p = where(b, is_low, const_like(b, -0.5, y), y)
    high = b.div(b.mul(b.neg(b.expm1(log_p)), b.inverse_mills(b.neg(where(b, is_low, const_like(b, 0, y), out)))), b.exp(log_p))
    result: Value = b.div(ct, b.inverse_mills_at(where(b, is_low, low, high), out))
    return result


ndtri_exp = row("ndtri_exp", _ndtri_exp)


def _wrightomega(b: Any, ct: Value, out: Value, x: Value) -> Value:
    """Return ct out / (1 + out), as 1 - 1 / (1 + out) where out is above 1."""
    inverse = b.div(_one(b, x), shifted(b, out, 1.0))
    result: Value = b.mul(ct, where(b, less(b, out, 1.0), b.mul(out, inverse), b.sub(_one(b, x), inverse)))
    return result


wrightomega = row("wrightomega", _wrightomega)
gammasgn = row("gammasgn", no)
poch = row(
    "poch",
    in_double(lambda b, ct, out, a, m: b.mul(ct, b.mul(out, b.digamma_step(a, m)))),
    in_double(lambda b, ct, out, a, m: b.mul(ct, b.mul(out, b.digamma(b.add(a, m))))),
)

# zeta


def _zeta_length(b: Any, x: Value, *rest: Value) -> Value:
    """Return the step length: the distance to the pole at 1, limited by the steepness of the first term's power."""
    start = rest[0] if rest else const_like(b, 2, x)
    length: Value = b.fmin(size(b, shifted(b, x, -1.0)), b.div(_one(b, x), steepness(b, start)))
    return length


BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
)  # fmt: skip
"""The Bernoulli numbers B2, B4, ..., B20."""
TERMS = 10
"""The number of terms that are summed before the Euler-Maclaurin remainder."""


def _zeta_slope(b: Any, x: Value, q: Value | None) -> Value:
    """Return the derivative of zeta(x, q) by x, or of Riemann's zeta if q is None: the Euler-Maclaurin sum (DLMF 25.11.5),
    differentiated term by term. It is accurate for large x, where the terms of zeta's own sum vanish against 1."""
    total = b.zeros_like(x)
    minus = b.neg(x)
    for n in range(TERMS):
        if q is None and n == 0:
            continue
        base = const_like(b, n + 1.0, x) if q is None else shifted(b, q, float(n))
        logarithm = const_like(b, math.log(n + 1.0), x) if q is None else b.log(base)
        total = b.sub(total, b.mul(logarithm, b.pow(base, minus)))
    last = const_like(b, TERMS + 1.0, x) if q is None else shifted(b, q, float(TERMS))
    logarithm = const_like(b, math.log(TERMS + 1.0), x) if q is None else b.log(last)
    power, inverse = b.pow(last, minus), b.div(_one(b, x), last)
    square, below = b.mul(inverse, inverse), b.div(_one(b, x), shifted(b, x, -1.0))
    rest = b.neg(b.mul(b.mul(last, below), b.add(logarithm, below)))
    rest = b.sub(rest, scaled(b, logarithm, 0.5))
    term, slope_ = b.mul(x, inverse), inverse
    for k, bernoulli in enumerate(BERNOULLI, 1):
        coefficient = bernoulli / math.factorial(2 * k)
        rest = b.add(rest, scaled(b, b.sub(slope_, b.mul(logarithm, term)), coefficient))
        factor = b.mul(b.mul(shifted(b, x, 2.0 * k - 1.0), shifted(b, x, 2.0 * k)), square)
        change = b.mul(shifted(b, scaled(b, x, 2.0), 4.0 * k - 1.0), square)
        slope_, term = b.add(b.mul(slope_, factor), b.mul(term, change)), b.mul(term, factor)
    derivative: Value = b.add(total, b.mul(power, rest))
    return derivative


def _by_order(op: str) -> Partial:
    """Return the partial of a zeta function by its first operand: by the sum for x > 1/2 and positive q, else by differences."""
    differences = by_parameter(op, 0, _zeta_length)

    def partial(b: Any, ct: Value, out: Value, x: Value, *rest: Value) -> Value:
        holds = b.gt(x, const_like(b, 0.5, x))
        if rest:
            holds = b.bitand(holds, b.gt(rest[0], b.zeros_like(x)))
        inside = [where(b, holds, v, 2.0) for v in (x, *rest)]
        sums = b.mul(ct, _zeta_slope(b, inside[0], inside[1] if rest else None))
        outside = [where(b, holds, const_like(b, -0.5, x), x), *rest]
        result: Value = b.select(holds, sums, differences(b, ct, out, *outside))
        return result

    return in_double(partial)


zeta = Elementwise(
    name="zeta", reference="scipy.special.zeta", arity=2, llvm="ufunc:scipy.special._ufuncs._zeta", cuda="pb_zeta({0}, {1})",
    pullback=each(
        _by_order("zeta"), lambda b, ct, out, x, q: b.neg(b.mul(ct, b.mul(x, b.zeta(shifted(b, x, 1.0), q)))),
    ),
)  # fmt: skip
zetac = row("zetac", _by_order("zetac"))
riemann_zeta = Elementwise(
    name="riemann_zeta", reference="scipy.special._ufuncs._riemann_zeta", llvm="ufunc:scipy.special._ufuncs._riemann_zeta",
    pullback=each(_by_order("riemann_zeta")),
)  # fmt: skip

# hypergeometric functions


def _length_without_poles(b: Any, x: Value, *others: Value) -> Value:
    """Return the step length for a parameter without poles; it is shorter where the argument is large or near a singular
    point."""
    length: Value = b.div(_one(b, x), shifted(b, steepness(b, shifted(b, b.abs(x), 1.0)), 1.0))
    for other in others:
        length = b.div(length, steepness(b, other))
    return length


def _length_with_poles(b: Any, c: Value, length: Value) -> Value:
    """Return the step length for a parameter with poles at 0, -1, -2, ..."""
    distance = where(b, less(b, c, 0.5), size(b, b.sub(c, b.rint(c))), c)
    result: Value = b.mul(length, b.fmin(distance, _one(b, c)))
    return result


hyp0f1 = row(
    "hyp0f1",
    by_parameter("hyp0f1", 0, lambda b, v, x: _length_with_poles(b, v, _length_without_poles(b, x))),
    lambda b, ct, out, v, x: b.mul(ct, b.div(b.hyp0f1(shifted(b, v, 1.0), x), v)),
)
hyp1f1 = row(
    "hyp1f1",
    by_parameter("hyp1f1", 0, lambda b, p, q, x: _length_without_poles(b, x)),
    by_parameter("hyp1f1", 1, lambda b, p, q, x: _length_with_poles(b, q, _length_without_poles(b, x))),
    lambda b, ct, out, p, q, x: b.mul(ct, b.mul(b.div(p, q), b.hyp1f1(shifted(b, p, 1.0), shifted(b, q, 1.0), x))),
)


def _gauss(b: Any, p: Value, q: Value, r: Value, x: Value) -> Value:
    return _length_without_poles(b, x, b.sub(_one(b, x), x))


def _hyp2f1(b: Any, ct: Value, out: Value, p: Value, q: Value, r: Value, x: Value) -> Value:
    result: Value = b.mul(ct, b.mul(b.div(b.mul(p, q), r), b.hyp2f1(*(shifted(b, v, 1.0) for v in (p, q, r)), x)))
    return result


hyp2f1 = row(
    "hyp2f1",
    by_parameter("hyp2f1", 0, _gauss),
    by_parameter("hyp2f1", 1, _gauss),
    by_parameter("hyp2f1", 2, lambda b, p, q, r, x: _length_with_poles(b, r, _gauss(b, p, q, r, x))),
    _hyp2f1,
)


def _hyperu_length(b: Any, p: Value, q: Value, x: Value) -> Value:
    length: Value = b.div(_one(b, x), shifted(b, steepness(b, x), 1.0))
    return length


hyperu = row(
    "hyperu",
    by_parameter("hyperu", 0, _hyperu_length),
    by_parameter("hyperu", 1, _hyperu_length),
    lambda b, ct, out, p, q, x: b.neg(b.mul(ct, b.mul(p, b.hyperu(shifted(b, p, 1.0), shifted(b, q, 1.0), x)))),
)


def _lpmv(b: Any, ct: Value, out: Value, m: Value, v: Value, x: Value) -> Value:
    """Return ct ((v + m) P(v - 1) - v x P(v)) / (1 - x^2)."""
    top = b.sub(b.mul(b.add(v, m), b.lpmv(m, shifted(b, v, -1.0), x)), b.mul(v, b.mul(x, out)))
    result: Value = b.mul(ct, b.div(top, b.mul(b.sub(_one(b, x), x), shifted(b, x, 1.0))))
    return result


lpmv = row(
    "lpmv", no, by_parameter("lpmv", 1, lambda b, m, v, x: const_like(b, 0.5, x)), _lpmv,
    missing={0: "its order is an integer; keep it out of argnums, or constant"},
)  # fmt: skip

# elliptic integrals and functions


def _complete(b: Any, ct: Value, m: Value, series: tuple[float, float, float, float], closed_form: Value) -> Value:
    """Return a derivative of a complete integral: factor * 2F1(p, q; r; m) where m is small, else ``closed_form``."""
    factor, *orders = series
    is_small = less(b, size(b, shifted(b, m, 0.25)), 0.75)
    inside = b.hyp2f1(*(const_like(b, v, m) for v in orders), where(b, is_small, m, 0.0))
    result: Value = b.mul(ct, where(b, is_small, scaled(b, inside, factor), closed_form))
    return result


def _ellipk(b: Any, ct: Value, out: Value, m: Value) -> Value:
    rest = b.sub(_one(b, m), m)
    closed_form = b.div(b.sub(b.div(b.ellipe(m), rest), out), scaled(b, m, 2.0))
    return _complete(b, ct, m, (math.pi / 8, 1.5, 1.5, 2.0), closed_form)


def _ellipkm1(b: Any, ct: Value, out: Value, p: Value) -> Value:
    """Return the partial, with E of 1 - p from Legendre's relation (DLMF 19.7.1), since 1 - p has lost the digits of a small
    p."""
    m, is_small = b.sub(_one(b, p), p), less(b, p, 0.5)
    small = where(b, is_small, p, 0.5)
    first, second = b.ellipk(small), b.ellipe(small)
    of_small = b.div(shifted(b, b.mul(out, b.sub(first, second)), math.pi / 2), first)
    big_e = where(b, is_small, of_small, b.ellipe(where(b, is_small, const_like(b, 0.5, m), m)))
    closed_form = b.div(b.sub(b.div(big_e, p), out), scaled(b, m, 2.0))
    return _complete(b, b.neg(ct), m, (math.pi / 8, 1.5, 1.5, 2.0), closed_form)


def _ellipe(b: Any, ct: Value, out: Value, m: Value) -> Value:
    closed_form = b.div(b.sub(out, b.ellipk(m)), scaled(b, m, 2.0))
    return _complete(b, ct, m, (-math.pi / 8, 0.5, 1.5, 2.0), closed_form)


ellipk = row("ellipk", _ellipk)
ellipkm1 = row("ellipkm1", _ellipkm1)
ellipe = row("ellipe", _ellipe)


def _root(b: Any, phi: Value, m: Value) -> Value:
    """Return sqrt(1 - m sin^2 phi)."""
    sine = b.sin(phi)
    root: Value = b.sqrt(b.sub(_one(b, m), b.mul(m, b.mul(sine, sine))))
    return root


def _by_modulus(b: Any, op: str, phi: Value, m: Value, closed_form: Value) -> Value:
    """Return the derivative of an incomplete integral by m: by differences where m is small, else ``closed_form``."""
    is_small = less(b, size(b, m), 0.25)
    inside = slope(b, lambda at: getattr(b, op)(phi, at), where(b, is_small, m, 0.0), const_like(b, 0.5, m))
    return where(b, is_small, inside, closed_form)


def _first_kind(b: Any, phi: Value, m: Value) -> Value:
    rest = b.sub(_one(b, m), m)
    first, second = b.ellipkinc(phi, m), b.ellipeinc(phi, m)
    closed_form = b.sub(b.div(second, b.mul(m, rest)), b.div(first, m))
    closed_form = b.sub(closed_form, b.div(b.mul(b.sin(phi), b.cos(phi)), b.mul(rest, _root(b, phi, m))))
    return _by_modulus(b, "ellipkinc", phi, m, scaled(b, closed_form, 0.5))


def _second_kind(b: Any, phi: Value, m: Value) -> Value:
    closed_form = b.div(b.sub(b.ellipeinc(phi, m), b.ellipkinc(phi, m)), scaled(b, m, 2.0))
    return _by_modulus(b, "ellipeinc", phi, m, closed_form)


ellipkinc = row(
    "ellipkinc",
    lambda b, ct, out, phi, m: b.div(ct, _root(b, phi, m)),
    in_double(lambda b, ct, out, phi, m: b.mul(ct, _first_kind(b, phi, m))),
)
ellipeinc = row(
    "ellipeinc",
    lambda b, ct, out, phi, m: b.mul(ct, _root(b, phi, m)),
    in_double(lambda b, ct, out, phi, m: b.mul(ct, _second_kind(b, phi, m))),
)


def _jacobi(factor: Any) -> tuple[Partial, Partial]:
    """Return the partials of a function of the amplitude. ``factor(b, out, u, m)`` returns its derivative by the amplitude,
    and its direct derivative by m."""

    def by_argument(b: Any, ct: Value, out: Value, u: Value, m: Value) -> Contribution:
        result: Value = b.mul(ct, b.mul(factor(b, out, u, m)[0], b.ellipj_dn(u, m)))
        return result

    def by_modulus(b: Any, ct: Value, out: Value, u: Value, m: Value) -> Value:
        by_amplitude, direct = factor(b, out, u, m)
        amplitude = b.neg(b.mul(b.ellipj_dn(u, m), _first_kind(b, b.ellipj_ph(u, m), m)))
        result: Value = b.mul(ct, b.add(b.mul(by_amplitude, amplitude), direct))
        return result

    return by_argument, in_double(by_modulus)


def _delta(b: Any, out: Value, u: Value, m: Value) -> tuple[Value, Value]:
    sn = b.ellipj_sn(u, m)
    return b.neg(b.div(b.mul(m, b.mul(sn, b.ellipj_cn(u, m))), out)), scaled(b, b.div(b.mul(sn, sn), out), -0.5)


rows_of(
    "ellipj",
    ellipj_sn=_jacobi(lambda b, out, u, m: (b.ellipj_cn(u, m), b.zeros_like(m))),
    ellipj_cn=_jacobi(lambda b, out, u, m: (b.neg(b.ellipj_sn(u, m)), b.zeros_like(m))),
    ellipj_dn=_jacobi(_delta),
    ellipj_ph=_jacobi(lambda b, out, u, m: (_one(b, m), b.zeros_like(m))),
)
