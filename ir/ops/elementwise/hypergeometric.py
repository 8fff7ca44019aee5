"""Integrals and hypergeometric functions, called natively, with derivatives of their own.

Formulas: NIST Digital Library of Mathematical Functions, chapters 6 (exponential integrals), 7 (Dawson, Fresnel), 13, 15
(hypergeometric functions), 14 (Legendre), 19 (elliptic integrals), 22 (Jacobi), 25 (zeta).
"""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.core.op import Contribution
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise import semantics as meaning
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
    """ct * top / x for a sine, or with a ``sign`` of 1 a hyperbolic one, as ``top``; near 0 by its series, which has derivatives
    there."""
    near = less(b, size(b, x), 1.0)
    inside = where(b, near, x, 0.0)
    square, total = b.mul(inside, inside), const_like(b, sign**9 / math.factorial(19), x)
    for k in range(8, -1, -1):
        total = shifted(b, b.mul(total, square), sign**k / math.factorial(2 * k + 1))
    found: Value = b.mul(ct, where(b, near, total, b.div(top, where(b, near, _one(b, x), x))))
    return found


# exponential and trigonometric integrals

exp1 = row("exp1", lambda b, ct, out, x: b.neg(b.mul(ct, b.div(b.exp(b.neg(x)), x))))
# in float64, since exp(x) of float32 overflows before the quotient does
expi = row("expi", in_double(lambda b, ct, out, x: b.mul(ct, b.div(b.exp(x), x))))


def _expn(b: Any, ct: Value, out: Value, x: Value, n: int) -> Value:
    """-E(n - 1)."""
    below = b.expn(x, n=n - 1) if n else b.div(b.mul(b.exp(b.neg(x)), shifted(b, b.div(_one(b, x), x), 1.0)), x)
    found: Value = b.neg(b.mul(ct, below))
    return found


expn = Elementwise(name="expn", reference=meaning.expn, pullback=each(_expn))
expn_at = Elementwise(
    name="expn_at", reference=meaning.expn_at, arity=2, llvm="ufunc:scipy.special.expn", vocabularies=frozenset({"kernel"})
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
    """pi / 2 times x^2 but for whole turns, which are taken off before the rounding of pi counts."""
    square = b.mul(x, x)
    turns = scaled(b, b.floor(scaled(b, square, 0.25)), 4.0)
    return scaled(b, b.sub(square, turns), math.pi / 2)


rows_of(
    "fresnel",
    fresnel_s=(in_double(lambda b, ct, out, x: b.mul(ct, b.sin(_phase(b, x)))),),
    fresnel_c=(in_double(lambda b, ct, out, x: b.mul(ct, b.cos(_phase(b, x)))),),
)


def _dawsn(b: Any, ct: Value, out: Value, x: Value) -> Value:
    """1 - 2 x F(x); where that cancels as a hypergeometric function, and further out by the asymptotic series (DLMF 7.12.4)."""
    far, near = b.gt(size(b, x), const_like(b, 30.0, x)), less(b, size(b, x), 1.0)
    middle = where(b, b.bitor(near, far), const_like(b, 2, x), x)
    between = b.hyp1f1(_one(b, x), const_like(b, 0.5, x), b.neg(b.mul(middle, middle)))
    inverse = b.div(_one(b, x), where(b, far, x, 30.0))
    square, series = b.mul(inverse, inverse), _one(b, x)
    for k in range(8, 0, -1):
        series = shifted(b, scaled(b, b.mul(series, square), k + 0.5), 1.0)
    outside = scaled(b, b.mul(b.mul(series, inverse), inverse), -0.5)
    inside = shifted(b, scaled(b, b.mul(x, b.dawsn(x)), -2.0), 1.0)
    found: Value = b.mul(ct, where(b, near, inside, where(b, far, outside, between)))
    return found


dawsn = row("dawsn", in_double(_dawsn))
erfi = row("erfi", lambda b, ct, out, x: b.mul(ct, scaled(b, b.exp(b.mul(x, x)), 2.0 / math.sqrt(math.pi))))


def _spence(b: Any, ct: Value, out: Value, z: Value) -> Value:
    """log(z) / (1 - z), near 1 as a hypergeometric function."""
    w = shifted(b, z, -1.0)
    near = less(b, size(b, w), 0.5)
    ones = _one(b, z)
    inside = b.hyp2f1(ones, ones, const_like(b, 2, z), b.neg(where(b, near, w, 0.0)))
    found: Value = b.neg(b.mul(ct, where(b, near, inside, b.div(b.log(z), where(b, near, ones, w)))))
    return found


spence = row("spence", _spence)


def _exprel(b: Any, ct: Value, out: Value, x: Value) -> Value:
    near = less(b, size(b, x), 1.0)
    inside = scaled(b, b.hyp1f1(const_like(b, 2, x), const_like(b, 3, x), where(b, near, x, 0.0)), 0.5)
    found: Value = b.mul(ct, where(b, near, inside, b.div(b.sub(b.exp(x), out), where(b, near, _one(b, x), x))))
    return found


exprel = row("exprel", in_double(_exprel))


def _ndtri_exp(b: Any, ct: Value, out: Value, y: Value) -> Value:
    """One over the derivative of log_ndtr at ``out``; above 0 with 1 - exp(y), of which that has no digits near 1."""
    is_low = less(b, out, 0.0)
    low = b.inverse_mills(where(b, is_low, out, 0.0))
    rest = where(b, is_low, const_like(b, -0.5, y), y)
    high = b.div(b.mul(b.neg(b.expm1(rest)), b.inverse_mills(b.neg(where(b, is_low, const_like(b, 0, y), out)))), b.exp(rest))
    found: Value = b.div(ct, b.inverse_mills_at(where(b, is_low, low, high), out))
    return found


ndtri_exp = row("ndtri_exp", _ndtri_exp)


def _wrightomega(b: Any, ct: Value, out: Value, x: Value) -> Value:
    """out / (1 + out), as 1 - 1 / (1 + out) where out is above 1."""
    inverse = b.div(_one(b, x), shifted(b, out, 1.0))
    found: Value = b.mul(ct, where(b, less(b, out, 1.0), b.mul(out, inverse), b.sub(_one(b, x), inverse)))
    return found


wrightomega = row("wrightomega", _wrightomega)
gammasgn = row("gammasgn", no)
poch = row(
    "poch",
    in_double(lambda b, ct, out, a, m: b.mul(ct, b.mul(out, b.digamma_step(a, m)))),
    in_double(lambda b, ct, out, a, m: b.mul(ct, b.mul(out, b.digamma(b.add(a, m))))),
)

# zeta


def _zeta_length(b: Any, x: Value, *rest: Value) -> Value:
    """The distance to the pole at 1, and not more than the power of the first term allows."""
    start = rest[0] if rest else const_like(b, 2, x)
    found: Value = b.fmin(size(b, shifted(b, x, -1.0)), b.div(_one(b, x), steepness(b, start)))
    return found


BERNOULLI = (
    1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330,
)  # fmt: skip
TERMS = 10


def _zeta_slope(b: Any, x: Value, q: Value | None) -> Value:
    """The derivative of zeta(x, q) by x, for Riemann's without q: Euler and Maclaurin's sum (DLMF 25.11.5), term by term. It
    holds the sizes of terms that zeta itself adds to 1."""
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
    for k, number in enumerate(BERNOULLI, 1):
        coefficient = number / math.factorial(2 * k)
        rest = b.add(rest, scaled(b, b.sub(slope_, b.mul(logarithm, term)), coefficient))
        factor = b.mul(b.mul(shifted(b, x, 2.0 * k - 1.0), shifted(b, x, 2.0 * k)), square)
        change = b.mul(shifted(b, scaled(b, x, 2.0), 4.0 * k - 1.0), square)
        slope_, term = b.add(b.mul(slope_, factor), b.mul(term, change)), b.mul(term, factor)
    found: Value = b.add(total, b.mul(power, rest))
    return found


def _by_order(op: str) -> Partial:
    """The partial of a zeta function by its first operand: the sum's, and differences where that does not hold."""
    differences = by_parameter(op, 0, _zeta_length)

    def partial(b: Any, ct: Value, out: Value, x: Value, *rest: Value) -> Value:
        holds = b.gt(x, const_like(b, 0.5, x))
        if rest:
            holds = b.bitand(holds, b.gt(rest[0], b.zeros_like(x)))
        inside = [where(b, holds, v, 2.0) for v in (x, *rest)]
        sums = b.mul(ct, _zeta_slope(b, inside[0], inside[1] if rest else None))
        outside = [where(b, holds, const_like(b, -0.5, x), x), *rest]
        found: Value = b.select(holds, sums, differences(b, ct, out, *outside))
        return found

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


def _free(b: Any, x: Value, *others: Value) -> Value:
    """The length for a parameter without poles; it is shorter where the argument is large or near a singular point."""
    found: Value = b.div(_one(b, x), shifted(b, steepness(b, shifted(b, b.abs(x), 1.0)), 1.0))
    for other in others:
        found = b.div(found, steepness(b, other))
    return found


def _beside_poles(b: Any, c: Value, length: Value) -> Value:
    """The length for a parameter with poles at 0, -1, -2, ..."""
    distance = where(b, less(b, c, 0.5), size(b, b.sub(c, b.rint(c))), c)
    found: Value = b.mul(length, b.fmin(distance, _one(b, c)))
    return found


hyp0f1 = row(
    "hyp0f1",
    by_parameter("hyp0f1", 0, lambda b, v, x: _beside_poles(b, v, _free(b, x))),
    lambda b, ct, out, v, x: b.mul(ct, b.div(b.hyp0f1(shifted(b, v, 1.0), x), v)),
)
hyp1f1 = row(
    "hyp1f1",
    by_parameter("hyp1f1", 0, lambda b, p, q, x: _free(b, x)),
    by_parameter("hyp1f1", 1, lambda b, p, q, x: _beside_poles(b, q, _free(b, x))),
    lambda b, ct, out, p, q, x: b.mul(ct, b.mul(b.div(p, q), b.hyp1f1(shifted(b, p, 1.0), shifted(b, q, 1.0), x))),
)


def _gauss(b: Any, p: Value, q: Value, r: Value, x: Value) -> Value:
    return _free(b, x, b.sub(_one(b, x), x))


def _hyp2f1(b: Any, ct: Value, out: Value, p: Value, q: Value, r: Value, x: Value) -> Value:
    found: Value = b.mul(ct, b.mul(b.div(b.mul(p, q), r), b.hyp2f1(*(shifted(b, v, 1.0) for v in (p, q, r)), x)))
    return found


hyp2f1 = row(
    "hyp2f1",
    by_parameter("hyp2f1", 0, _gauss),
    by_parameter("hyp2f1", 1, _gauss),
    by_parameter("hyp2f1", 2, lambda b, p, q, r, x: _beside_poles(b, r, _gauss(b, p, q, r, x))),
    _hyp2f1,
)


def _hyperu_length(b: Any, p: Value, q: Value, x: Value) -> Value:
    found: Value = b.div(_one(b, x), shifted(b, steepness(b, x), 1.0))
    return found


hyperu = row(
    "hyperu",
    by_parameter("hyperu", 0, _hyperu_length),
    by_parameter("hyperu", 1, _hyperu_length),
    lambda b, ct, out, p, q, x: b.neg(b.mul(ct, b.mul(p, b.hyperu(shifted(b, p, 1.0), shifted(b, q, 1.0), x)))),
)


def _lpmv(b: Any, ct: Value, out: Value, m: Value, v: Value, x: Value) -> Value:
    """((v + m) P(v - 1) - v x P(v)) / (1 - x^2)."""
    top = b.sub(b.mul(b.add(v, m), b.lpmv(m, shifted(b, v, -1.0), x)), b.mul(v, b.mul(x, out)))
    found: Value = b.mul(ct, b.div(top, b.mul(b.sub(_one(b, x), x), shifted(b, x, 1.0))))
    return found


lpmv = row(
    "lpmv", no, by_parameter("lpmv", 1, lambda b, m, v, x: const_like(b, 0.5, x)), _lpmv,
    missing={0: "its order is an integer; keep it out of argnums, or constant"},
)  # fmt: skip

# elliptic integrals and functions


def _complete(b: Any, ct: Value, m: Value, series: tuple[float, float, float, float], far: Value) -> Value:
    """A derivative of a complete integral: factor * 2F1(p, q; r; m) where m is small, else its closed form."""
    factor, *orders = series
    near = less(b, size(b, shifted(b, m, 0.25)), 0.75)
    inside = b.hyp2f1(*(const_like(b, v, m) for v in orders), where(b, near, m, 0.0))
    found: Value = b.mul(ct, where(b, near, scaled(b, inside, factor), far))
    return found


def _ellipk(b: Any, ct: Value, out: Value, m: Value) -> Value:
    rest = b.sub(_one(b, m), m)
    far = b.div(b.sub(b.div(b.ellipe(m), rest), out), scaled(b, m, 2.0))
    return _complete(b, ct, m, (math.pi / 8, 1.5, 1.5, 2.0), far)


def _ellipkm1(b: Any, ct: Value, out: Value, p: Value) -> Value:
    """E of 1 - p by Legendre's relation (DLMF 19.7.1), since 1 - p has no digits of a small p."""
    m, is_small = b.sub(_one(b, p), p), less(b, p, 0.5)
    small = where(b, is_small, p, 0.5)
    first, second = b.ellipk(small), b.ellipe(small)
    of_small = b.div(shifted(b, b.mul(out, b.sub(first, second)), math.pi / 2), first)
    big_e = where(b, is_small, of_small, b.ellipe(where(b, is_small, const_like(b, 0.5, m), m)))
    far = b.div(b.sub(b.div(big_e, p), out), scaled(b, m, 2.0))
    return _complete(b, b.neg(ct), m, (math.pi / 8, 1.5, 1.5, 2.0), far)


def _ellipe(b: Any, ct: Value, out: Value, m: Value) -> Value:
    far = b.div(b.sub(out, b.ellipk(m)), scaled(b, m, 2.0))
    return _complete(b, ct, m, (-math.pi / 8, 0.5, 1.5, 2.0), far)


ellipk = row("ellipk", _ellipk)
ellipkm1 = row("ellipkm1", _ellipkm1)
ellipe = row("ellipe", _ellipe)


def _root(b: Any, phi: Value, m: Value) -> Value:
    """sqrt(1 - m sin^2 phi)."""
    sine = b.sin(phi)
    found: Value = b.sqrt(b.sub(_one(b, m), b.mul(m, b.mul(sine, sine))))
    return found


def _by_modulus(b: Any, op: str, phi: Value, m: Value, far: Value) -> Value:
    """The derivative of an incomplete integral by m: differences where m is small, else its closed form."""
    near = less(b, size(b, m), 0.25)
    inside = slope(b, lambda at: getattr(b, op)(phi, at), where(b, near, m, 0.0), const_like(b, 0.5, m))
    return where(b, near, inside, far)


def _first_kind(b: Any, phi: Value, m: Value) -> Value:
    rest = b.sub(_one(b, m), m)
    first, second = b.ellipkinc(phi, m), b.ellipeinc(phi, m)
    far = b.sub(b.div(second, b.mul(m, rest)), b.div(first, m))
    far = b.sub(far, b.div(b.mul(b.sin(phi), b.cos(phi)), b.mul(rest, _root(b, phi, m))))
    return _by_modulus(b, "ellipkinc", phi, m, scaled(b, far, 0.5))


def _second_kind(b: Any, phi: Value, m: Value) -> Value:
    far = b.div(b.sub(b.ellipeinc(phi, m), b.ellipkinc(phi, m)), scaled(b, m, 2.0))
    return _by_modulus(b, "ellipeinc", phi, m, far)


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
    """Partials of a function of the amplitude. ``factor(b, u, m)``: its derivative by the amplitude, and by m beside that."""

    def by_argument(b: Any, ct: Value, out: Value, u: Value, m: Value) -> Contribution:
        found: Value = b.mul(ct, b.mul(factor(b, out, u, m)[0], b.ellipj_dn(u, m)))
        return found

    def by_modulus(b: Any, ct: Value, out: Value, u: Value, m: Value) -> Value:
        by_amplitude, direct = factor(b, out, u, m)
        amplitude = b.neg(b.mul(b.ellipj_dn(u, m), _first_kind(b, b.ellipj_ph(u, m), m)))
        found: Value = b.mul(ct, b.add(b.mul(by_amplitude, amplitude), direct))
        return found

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
