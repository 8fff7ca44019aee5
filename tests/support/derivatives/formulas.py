"""The elementwise ops as formulas over jets of mpmath numbers, so that their derivatives are exact.

Written from the definitions (NIST Digital Library of Mathematical Functions) and not from the rules of the ops: derivatives come
from Taylor arithmetic, differential equations and recurrences, and by parameters from differences in high precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import scipy.special
from mpmath import mp

from tests.support.derivatives.jets import (
    Derivatives,
    Index,
    Jet,
    atan,
    combined,
    compose,
    constant,
    cos,
    differences,
    digamma,
    exp,
    gammaln,
    indices,
    lifted,
    log,
    sin,
    sqrt,
)

Formula = Callable[..., Jet]


def number(x: Any) -> Any:
    return mp.mpf(x)


def _flat(value: Callable[[Any], Any]) -> Formula:
    """A function that is constant by pieces."""
    return lambda x: constant(x.count, value(x.at))


# elementary functions


def _abs(x: Jet) -> Jet:
    return -x if x.at < 0 else x


def _expm1(x: Any) -> Derivatives:
    return (mp.expm1(x), *(mp.exp(x),) * 3)


def _log1p(x: Any) -> Derivatives:
    d = 1 / (1 + x)
    return mp.log1p(x), d, -(d**2), 2 * d**3


def _tanh(x: Any) -> Derivatives:
    t, d = mp.tanh(x), mp.sech(x) ** 2
    return t, d, -2 * t * d, (4 * t * t - 2 * d) * d


def _expit(x: Any) -> Derivatives:
    """(1 + tanh(x / 2)) / 2."""
    value = 1 / (1 + mp.exp(-x)) if x > 0 else mp.exp(x) / (1 + mp.exp(x))
    return (value, *(d / 2 ** (k + 2) for k, d in enumerate(_tanh(x / 2)[1:])))


def _sinh(x: Any) -> Derivatives:
    s, c = mp.sinh(x), mp.cosh(x)
    return s, c, s, c


def _cosh(x: Any) -> Derivatives:
    s, c = mp.sinh(x), mp.cosh(x)
    return c, s, c, s


def _asin(x: Any) -> Derivatives:
    d = 1 / mp.sqrt((1 - x) * (1 + x))
    return mp.asin(x), d, x * d**3, (1 + 2 * x * x) * d**5


def _acos(x: Any) -> Derivatives:
    _, *rest = _asin(x)
    return (mp.acos(x), *(-d for d in rest))


def _asinh(x: Any) -> Derivatives:
    d = 1 / mp.sqrt(1 + x * x)
    return mp.asinh(x), d, -x * d**3, (2 * x * x - 1) * d**5


def _acosh(x: Any) -> Derivatives:
    d = 1 / mp.sqrt((x - 1) * (x + 1))
    return mp.acosh(x), d, -x * d**3, (2 * x * x + 1) * d**5


def _atanh(x: Any) -> Derivatives:
    d = 1 / ((1 - x) * (1 + x))
    return mp.atanh(x), d, 2 * x * d**2, (2 + 6 * x * x) * d**3


def _cbrt(x: Any) -> Derivatives:
    y = mp.sign(x) * mp.cbrt(abs(x))
    return y, y / (3 * x), -2 * y / (9 * x**2), 10 * y / (27 * x**3)


def _power(x: Jet, y: Jet) -> Jet:
    return exp(y * log(x))


def _logaddexp(x: Jet, y: Jet) -> Jet:
    if x.at < y.at:
        return _logaddexp(y, x)
    return x + lifted(_log1p)(exp(y - x))


def _hypot(x: Jet, y: Jet) -> Jet:
    return sqrt(x * x + y * y)


def _atan2(y: Jet, x: Jet) -> Jet:
    """The angle from the nearer axis, so that nothing is divided by 0."""
    if abs(y.at) <= abs(x.at):
        turned = atan(y / x)
    else:
        turned = -atan(x / y)
    return turned + (mp.atan2(y.at, x.at) - turned.at)


def _quotient_part(rounded: Callable[[Any], Any]) -> Formula:
    return lambda x, y: x - y * rounded(x.at / y.at)


def _smaller(x: Jet, y: Jet) -> Jet:
    return x if x.at < y.at else y if y.at < x.at else (x + y) / 2


def _greater(x: Jet, y: Jet) -> Jet:
    return x if x.at > y.at else y if y.at > x.at else (x + y) / 2


# error functions and the normal distribution

TWO_OVER_ROOT_PI = lambda: 2 / mp.sqrt(mp.pi)  # noqa: E731


def _with_gauss(value: Callable[[Any], Any], sign: int, kind: int = -1) -> Callable[[Any], Derivatives]:
    """A function with the derivative sign * 2 / sqrt(pi) * exp(kind * x^2)."""

    def derivatives(x: Any) -> Derivatives:
        d = sign * 2 / mp.sqrt(mp.pi) * mp.exp(kind * x * x)
        return value(x), d, 2 * kind * x * d, (2 * kind + 4 * x * x) * d

    return derivatives


def asymptotic(term: Callable[[int], Any]) -> Any:
    """The sum of a series whose terms are known to fall below the precision before they grow."""
    total, k = mp.zero, 0
    while True:
        change = term(k)
        total += change
        if abs(change) <= mp.ldexp(abs(total), -mp.prec - 8):
            return total
        k += 1


def _odd_product(k: int) -> Any:
    """1 * 3 * ... * (2 k - 1)."""
    return mp.fac2(2 * k - 1)


FAR = 4096
"""The argument from which on asymptotic series have all digits of every precision in use."""


def _erfc(x: Any) -> Any:
    """Return erfc, for x from FAR on by DLMF 7.12.1."""
    if x < FAR:
        return mp.erfc(x)
    return mp.exp(-x * x) / (x * mp.sqrt(mp.pi)) * asymptotic(lambda k: _odd_product(k) / (-2 * x * x) ** k)


erf = lifted(_with_gauss(lambda x: mp.erf(x), 1))
erfc = lifted(_with_gauss(_erfc, -1))
erfi = lifted(_with_gauss(lambda x: mp.erfi(x), 1, 1))


def _root2() -> Any:
    return mp.sqrt(2)


def _ndtr(x: Jet) -> Jet:
    return erfc(x * (-1 / _root2())) * mp.mpf(0.5)


def _log_ndtr(x: Jet) -> Jet:
    if x.at < -FAR * 2:
        return x * x * mp.mpf(-0.5) + log(_over_x(-1, 1 / mp.sqrt(mp.pi), x * (-1 / _root2())) * mp.mpf(0.5))
    if x.at <= 0:
        return log(_ndtr(x))
    return lifted(_log1p)(-_ndtr(-x))


def _inverse_erfc(z: Any, start: float | None = None) -> Any:
    """x > 0 with erfc(x) = z, by Newton's method for the logarithms."""
    wanted = -mp.log(z)
    x = mp.mpf(start) if start else mp.sqrt(max(wanted - mp.log(mp.sqrt(mp.pi * (wanted + 0.3))), mp.mpf(0.01)))
    for _ in range(200):
        value = mp.erfc(x)
        step = (mp.log(value) + wanted) * value * mp.exp(x * x) * mp.sqrt(mp.pi) / 2
        x += step
        if abs(step) < mp.ldexp(abs(x), -mp.prec // 2 - 8):
            return x
    raise ArithmeticError("no root")


def _inverse_erf(y: Any) -> Any:
    if abs(y) > 0.5:
        return mp.sign(y) * _inverse_erfc(1 - abs(y))
    x = mp.sqrt(mp.pi) / 2 * y
    for _ in range(200):
        step = (mp.erf(x) - y) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
        x -= step
        if abs(step) <= mp.ldexp(abs(x), -mp.prec // 2 - 8):
            return x
    raise ArithmeticError("no root")


def _erfinv(y: Any) -> Derivatives:
    x = _inverse_erf(y)
    d = mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
    return x, d, 2 * x * d**2, (2 + 8 * x * x) * d**3


def _erfcinv(z: Any) -> Derivatives:
    x = _inverse_erfc(z) if z < 0.5 else _inverse_erf(1 - z) if z < 1.5 else -_inverse_erfc(2 - z)
    d = -mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
    return x, d, 2 * x * d**2, (2 + 8 * x * x) * d**3


def _ndtri(p: Jet) -> Jet:
    return lifted(_erfcinv)(2 * p) * -_root2()


def _ndtri_exp(y: Jet) -> Jet:
    if y.at < -0.5:
        return _ndtri(exp(y))
    return lifted(_erfcinv)(2 * -lifted(_expm1)(y)) * _root2()


def _over_x(signs: int, factor: Any, x: Jet) -> Jet:
    """factor / x times the sum of the terms signs^k (2 k - 1)!! / (2 x^2)^k, as a series of powers of x."""
    scale = factor / x.at
    powers = [
        asymptotic(lambda k, n=n: _odd_product(k) * mp.rf(2 * k + 1, n) / (signs * 2 * x.at**2) ** k) / (-x.at) ** n
        for n in range(4)
    ]
    return compose([scale * p for p in powers], x)


def _erfcx(x: Jet) -> Jet:
    if x.at > FAR:
        return _over_x(-1, 1 / mp.sqrt(mp.pi), x)
    return exp(x * x) * erfc(x)


def _dawsn(x: Jet) -> Jet:
    """DLMF 7.5.1, and far from 0 its asymptotic series."""
    if abs(x.at) > FAR:
        return _over_x(1, mp.one / 2, x)
    return exp(-(x * x)) * erfi(x) * (mp.sqrt(mp.pi) / 2)


def _owens_t(h: Jet, a: Jet) -> Jet:
    """Its value by quadrature, its derivatives from theirs, which are elementary."""
    with mp.workprec(90):
        top = h.at**2
        value = mp.quad(lambda t: mp.exp(-top * (1 + t * t) / 2) / (1 + t * t), [0, a.at]) / (2 * mp.pi)

    def outer(index: Index) -> Any:
        if index == (0, 0):
            return value
        x, y = (Jet(2, {(0, 0): v.at, unit: mp.one}) for v, unit in ((h, (1, 0)), (a, (0, 1))))
        if index[0]:
            slope = exp(x * x * mp.mpf(-0.5)) * erf(x * y * (1 / _root2())) * (-1 / (2 * mp.sqrt(2 * mp.pi)))
            return slope.derivative((index[0] - 1, index[1]))
        slope = exp(x * x * (1 + y * y) * mp.mpf(-0.5)) / (1 + y * y) * (1 / (2 * mp.pi))
        return slope.derivative((index[0], index[1] - 1))

    return combined(outer, h, a)


# gamma and beta


def _gamma(x: Jet) -> Jet:
    v = mp.gamma(x.at)
    logarithm = compose((mp.zero, *(mp.psi(k, x.at) for k in range(3))), x)
    return exp(logarithm) * v


def _polygamma(n: int) -> Formula:
    return lifted(lambda x: tuple(mp.psi(n + k, x) for k in range(4)))


def _signless_gammaln(x: Jet) -> Jet:
    return gammaln(x)


def _betaln(p: Jet, q: Jet) -> Jet:
    return gammaln(p) + gammaln(q) - gammaln(p + q)


def _beta(p: Jet, q: Jet) -> Jet:
    return exp(_betaln(p, q))


def _binom(n: Jet, k: Jet) -> Jet:
    return exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))


def _poch(a: Jet, m: Jet) -> Jet:
    return exp(gammaln(a + m) - gammaln(a))


# integrals


def _over_argument(x: Jet, sign: int) -> Jet:
    """sin(x) / x, or with a sign of 1 sinh(x) / x: near 0 as a function of x^2 (DLMF 10.16.1), where nothing cancels."""
    if abs(x.at) > 1:
        return (sin(x) if sign < 0 else lifted(_sinh)(x)) / x
    half = mp.mpf(3) / 2
    z = x.at**2 * sign / 4
    return compose([mp.hyp0f1(half + k, z) / mp.rf(half, k) for k in range(4)], x * x * (mp.mpf(sign) / 4))


def _exprel(x: Jet) -> Jet:
    """(exp(x) - 1) / x; near 0 as 1F1(1; 2; x)."""
    if abs(x.at) > 1:
        return lifted(_expm1)(x) / x
    return compose([mp.hyp1f1(1 + k, 2 + k, x.at) / (k + 1) for k in range(4)], x)


def _integral(value: Any, slope: Jet, x: Jet) -> Jet:
    """The function with that value and that derivative, of one variable."""
    return compose((value, *(slope.derivative((k,)) for k in range(3))), x)


def _turned(x: Jet, position: int) -> Jet:
    """sin(pi x) or cos(pi x), whose argument is reduced exactly."""
    s, c = mp.sinpi(x.at), mp.cospi(x.at)
    cycle = (s, c, -s, -c)
    return compose([cycle[(position + k) % 4] * mp.pi**k for k in range(4)], x)


def _fresnel(x: Any) -> tuple[Any, Any]:
    """S and C, far from 0 by DLMF 7.5.3, 7.5.4, 7.12.2 and 7.12.3."""
    if abs(x) < FAR:
        return mp.fresnels(x), mp.fresnelc(x)
    z, square = abs(x), mp.pi * x * x
    f, g = (asymptotic(lambda m, n=n: _odd_product(2 * m + n) / (square * square * -1) ** m) for n in (0, 1))
    f, g = f / (mp.pi * z), g / (mp.pi * z * square)
    s, c = mp.sinpi(x * x / 2), mp.cospi(x * x / 2)
    return mp.sign(x) * (0.5 - f * c - g * s), mp.sign(x) * (0.5 + f * s - g * c)


def _spence(z: Jet) -> Jet:
    w = z.at - 1
    if w == 0:
        return compose((mp.zero, -mp.one, mp.mpf(1) / 2, mp.mpf(-2) / 3), z)
    u = -w
    if u < -1:
        value = -(mp.pi**2) / 6 - mp.log(-u) ** 2 / 2 - mp.polylog(2, 1 / u)
    else:
        value = mp.polylog(2, u)
    return _integral(mp.re(value), log(z) / (1 - z), z)


def _wrightomega(x: Any) -> Derivatives:
    w = mp.exp(x) if x < -2 else mp.mpf(float(scipy.special.wrightomega(float(x))))
    for _ in range(200):
        step = (w + mp.log(w) - x) * w / (1 + w)
        w -= step
        if abs(step) <= mp.ldexp(abs(w), -mp.prec // 2 - 8):
            d = 1 / (1 + w)
            return w, w * d, w * d**3, w * (1 - 2 * w) * d**5
    raise ArithmeticError("no root")


def _expn(n: int) -> Formula:
    return lifted(lambda x: tuple((-1) ** k * mp.expint(n - k, x) for k in range(4)))


@cache
def _zeta_at_0(precision: int, terms: int) -> Derivatives:
    """The derivatives of zeta at 0."""
    with mp.workprec(precision):
        return [mp.zeta(0, 1, k) if k else mp.mpf(-0.5) for k in range(terms)]


def _zeta_from_2(s: Any) -> Derivatives:
    """zeta(s) - 1 and its derivatives; near 0 by Taylor's series, whose remainder is below the precision."""
    if abs(s) < mp.ldexp(1, -40):
        count = mp.prec // 40 + 2
        at_0 = _zeta_at_0(mp.prec + 40, count + 4)
        first, *rest = (sum(at_0[k + n] * s**n / mp.factorial(n) for n in range(count)) for k in range(4))
        return (first - 1, *rest)
    if s > 100:
        terms = [[(-mp.log(n)) ** k * mp.mpf(n) ** -s for n in range(2, 4 + int(mp.prec // 50))] for k in range(4)]
        return tuple(sum(t) for t in terms)
    first, *rest = (mp.zeta(s, 1, k) if k else mp.zeta(s) for k in range(4))
    return (first - 1, *rest)


def _zeta(s: Jet, q: Jet) -> Jet:
    def outer(index: Index) -> Any:
        """Return a derivative by s and q; the first one by q is -s zeta(s + 1, q)."""
        i, j = index
        t = compose((s.at, mp.one), Jet(1, {(0,): s.at, (1,): mp.one}))
        rising = math.prod((t + k for k in range(j)), start=constant(1, (-1) ** j))
        shifted = compose(tuple(mp.zeta(s.at + j, q.at, k) for k in range(i + 1)), Jet(1, {(0,): s.at, (1,): mp.one}))
        return (rising * shifted).derivative((i,))

    return combined(outer, s, q)


# Bessel functions and their relatives


def _orders_of(function: Callable[[Any, Any], Any], sign: int, down: int, last: int, z: Any) -> dict[int, Any]:
    """A cylinder function at the orders from -last to last, from those of 0 and 1 (DLMF 10.4.1, 10.6.1, 10.29.1): f(v - 1) -
    sign * f(v + 1) is down * 2 v / z * f(v); what cancels is a matter of the precision."""
    at = {0: function(0, z), 1: function(1, z)}
    for v in range(1, last):
        at[v + 1] = sign * (at[v - 1] - down * (2 * v / z) * at[v])
    for v in range(1, last + 1):
        at[-v] = at[v] * (-1 if sign < 0 and v % 2 else 1)
    return at


def _cylinder(
    function: Callable[[Any, Any], Any], order: int, sign: int, down: int, last: int = 3
) -> Callable[[Any], Derivatives]:
    """Derivatives by recurrence: f' = down * (f of one order less + sign * f of one more) / 2 (DLMF 10.6.1, 10.29.1)."""

    def derivatives(x: Any) -> Derivatives:
        if not x:
            raise ValueError("a special place")
        at = _orders_of(function, sign, down, last + order, x)
        return tuple(
            (mp.mpf(down) / 2) ** n * sum(sign**k * math.comb(n, k) * at[order + 2 * k - n] for k in range(n + 1))
            for n in range(last + 1)
        )

    return derivatives


def _far_bessel(v: int, x: Any, is_second: bool) -> Any:
    """J or Y of order 0 or 1, by DLMF 10.17.3 and 10.17.4."""
    with mp.workprec(mp.prec + max(0, mp.mag(x))):
        w = x - (mp.mpf(v) / 2 + mp.mpf(0.25)) * mp.pi
        s, c = mp.sin(w), mp.cos(w)
    half = mp.mpf(0.5)

    def coefficient(k: int) -> Any:
        return mp.rf(half - v, k) * mp.rf(half + v, k) / (mp.factorial(k) * mp.mpf(-2) ** k)

    p = asymptotic(lambda k: (-1) ** k * coefficient(2 * k) / x ** (2 * k))
    q = asymptotic(lambda k: (-1) ** k * coefficient(2 * k + 1) / x ** (2 * k + 1))
    return mp.sqrt(2 / (mp.pi * x)) * (p * s + q * c if is_second else p * c - q * s)


def _first(v: int, x: Any) -> Any:
    return mp.besselj(v, x) if abs(x) < FAR else _far_bessel(v, abs(x), False) * mp.sign(x) ** v


def _second(v: int, x: Any) -> Any:
    return mp.bessely(v, x) if x < FAR else _far_bessel(v, x, True)


def _bessel(name: str, order: int) -> Callable[[Any], Derivatives]:
    function = {"j": _first, "y": _second, "i": mp.besseli, "k": mp.besselk}[name]
    sign, down = {"j": (-1, 1), "y": (-1, 1), "i": (1, 1), "k": (1, -1)}[name]
    return _cylinder(lambda v, x: function(v, x), order, sign, down)


def _scaled(name: str, order: int) -> Formula:
    """By definition, far from 0 by DLMF 10.40.1 and 10.40.2: the exponential that they omit is below all precisions."""
    plain = lifted(_bessel(name, order))

    def coefficient(k: int) -> Any:
        return mp.rf(mp.mpf(0.5) - order, k) * mp.rf(mp.mpf(0.5) + order, k) / (mp.factorial(k) * mp.mpf(-2) ** k)

    def far(x: Any) -> Derivatives:
        z, sign, half = abs(x), -1 if name == "i" else 1, mp.mpf(0.5)
        scale = mp.sqrt(mp.pi / (2 * z)) if name == "k" else 1 / mp.sqrt(2 * mp.pi * z)
        powers = [
            asymptotic(lambda k, n=n: sign**k * coefficient(k) * mp.rf(k + half, n) / z**k) * scale / (-z) ** n for n in range(4)
        ]
        return [p * (mp.sign(x) ** (n + order)) for n, p in enumerate(powers)]

    def formula(x: Jet) -> Jet:
        if abs(x.at) > FAR:
            return compose(far(x.at), x)
        return plain(x) * exp(x if name == "k" else -_abs(x))

    return formula


def _kelvin_series(x: Any, order: int, weight: Callable[[int], Any]) -> Any:
    """Return the derivative of ``order`` of the sum of weight(k) (i x^2 / 4)^k / k!^2; parts of unlike size are separate."""
    parts, turn = [mp.zero, mp.zero], (1, 1, -1, -1)
    for k in range(mp.prec + 8):
        if 2 * k < order:
            continue
        size = weight(k) * mp.ff(2 * k, order) * x ** (2 * k - order) / (mp.mpf(4) ** k * mp.factorial(k) ** 2)
        parts[k % 2] += turn[k % 4] * size
        if k > order + 2 and abs(size) <= mp.ldexp(min(map(abs, parts)), -mp.prec - 8):
            return mp.mpc(*parts)
    raise ArithmeticError("no sum")


def _kelvin(name: str, part: int, raised: int = 0) -> Formula:
    """ber + i bei = J0(x exp(3 pi i / 4)), ker + i kei = K0(x exp(pi i / 4)) (DLMF 10.61)."""

    def near(x: Any) -> Derivatives:
        """By the series in powers of i x^2 / 4 (DLMF 10.65.1 to 10.65.5)."""
        of_one, of_harmonic = ([_kelvin_series(x, n, w) for n in range(5)] for w in (lambda k: 1, mp.harmonic))
        if name == "b":
            return of_one
        logarithm = [mp.mpc(mp.log(x / 2) + mp.euler, mp.pi / 4), *((-1) ** j * mp.factorial(j) / x ** (j + 1) for j in range(4))]
        return [of_harmonic[n] - sum(math.comb(n, j) * logarithm[j] * of_one[n - j] for j in range(n + 1)) for n in range(5)]

    def derivatives(x: Any) -> Derivatives:
        if abs(x) < 128:
            with mp.workprec(mp.prec + 4 * int(abs(x))):  # the terms are as large as exp(x), the sum may be as small as exp(-x)
                return [v.imag if part else v.real for v in near(x)[raised : raised + 4]]
        turn = mp.expjpi(mp.mpf(3 if name == "b" else 1) / 4)
        function, sign, down = (mp.besselj, -1, 1) if name == "b" else (mp.besselk, 1, -1)
        result = _cylinder(lambda v, z: function(v, z), 0, sign, down, 4)(x * turn)
        values = [turn**k * d for k, d in enumerate(result)]
        return [v.imag if part else v.real for v in values[raised : raised + 4]]

    return lifted(derivatives)


def _airy(function: Callable[..., Any], raised: int) -> Formula:
    def derivatives(x: Any) -> Derivatives:
        y, d = function(x), function(x, derivative=1)
        return (y, d, x * y, y + x * d, 2 * d + x * x * y)[raised : raised + 4]

    return lifted(derivatives)


# complete elliptic integrals, by the arithmetic-geometric mean and differential equations (DLMF 19.4.1, 19.4.2, 19.8.5, 19.8.6)


def _gauss_series(p: float, m: Any) -> list[Any]:
    """The derivatives by m of pi / 2 2F1(p, 1/2; 1; m) (DLMF 15.5.2, 19.5.1, 19.5.2)."""
    q = mp.mpf(0.5)
    weights = [mp.pi / 2 * mp.rf(p, k) * mp.rf(q, k) / mp.rf(1, k) for k in range(4)]
    return [w * mp.hyp2f1(mp.mpf(p) + k, q + k, 1 + k, m) for k, w in enumerate(weights)]


def _complete(m: Any, p: Any) -> tuple[list[Any], list[Any]]:
    """The derivatives by m of K and E at m = 1 - p."""
    if abs(m) < 0.5:
        return _gauss_series(0.5, m), _gauss_series(-0.5, m)
    a, b, total, weight = mp.one, mp.sqrt(p), m / 2, mp.mpf(1)
    while abs(a - b) > mp.ldexp(a, -mp.prec + 4):
        c = (a - b) / 2
        a, b = (a + b) / 2, mp.sqrt(a * b)
        total += weight * c * c
        weight *= 2
    k = mp.pi / (2 * a)
    first, second = [k], [k * (1 - total)]
    for n in range(3):
        at_m, at_p = Jet(1, {(0,): m, (1,): mp.one}), Jet(1, {(0,): p, (1,): -mp.one})
        big_k, big_e = (Jet(1, {(i,): v / math.factorial(i) for i, v in enumerate(d)}) for d in (first, second))
        by_k, by_e = (big_e - at_p * big_k) / (2 * at_m * at_p), (big_e - big_k) / (2 * at_m)
        first.append(by_k.derivative((n,)))
        second.append(by_e.derivative((n,)))
    return first, second


# functions whose derivatives by a parameter have no closed form


def numeric(function: Callable[..., Any], length: Callable[..., Sequence[Any]]) -> Formula:
    """``length(*point)``: on which lengths the function changes with each argument, or shorter ones."""

    def formula(*arguments: Jet) -> Jet:
        point = [x.at for x in arguments]
        bits = mp.prec // 8
        steps = [mp.ldexp(v, -bits) for v in length(*point)]
        with mp.workprec(mp.prec + mp.prec // 2 + 40):
            partial = differences(function, point, steps)
            terms = {k: partial(k) for k in indices(len(point))}
        return combined(terms.__getitem__, *arguments)

    return formula


def of_inverse(function: Callable[..., Any], length: Callable[..., Sequence[Any]], start: Callable[..., float]) -> Formula:
    """The inverse in its last argument of a function: Newton's method, on numbers and then on jets."""
    forward = numeric(function, length)

    def formula(*arguments: Jet) -> Jet:
        *parameters, y = arguments
        point = [p.at for p in parameters]
        x = mp.mpf(float(start(*map(float, point), float(y.at))))
        for _ in range(60):
            step = mp.ldexp(length(*point, x)[-1], -mp.prec // 4)
            slope = (function(*point, x + step) - function(*point, x - step)) / (2 * step)
            change = (function(*point, x) - y.at) / slope
            x -= change
            if abs(change) < mp.ldexp(abs(x), -mp.prec + 20):
                break
        else:
            raise ArithmeticError("no root")
        local = forward(
            *(
                Jet(len(arguments), {(0,) * len(arguments): v, _unit(k, len(arguments)): mp.one})
                for k, v in enumerate([*point, x])
            )
        )
        slope = local.derivative(_unit(len(point), len(arguments)))
        result = constant(y.count, x)
        for _ in range(3):
            value = combined(local.derivative, *parameters, result)
            result = result - (value - y).moved() * (1 / slope)
        return result

    return formula


def _unit(k: int, count: int) -> Index:
    return tuple(int(i == k) for i in range(count))


def _of_tails(lower: Formula, upper: Formula, is_low: Callable[..., bool], gives_lower: bool) -> Formula:
    """A function by the smaller of the two that add up to 1, of which differences have all digits."""

    def formula(*arguments: Jet) -> Jet:
        low = is_low(*(x.at for x in arguments))
        small = (lower if low else upper)(*arguments)
        return small if low == gives_lower else 1 - small

    return formula


def _near(*values: Any) -> list[Any]:
    """Lengths for arguments from which no pole is nearer than their size or 1."""
    return [max(mp.one, abs(v)) for v in values]


def _relative(*values: Any) -> list[Any]:
    return [abs(v) if v else mp.one for v in values]


def _shape_lengths(a: Any, x: Any) -> list[Any]:
    return [mp.sqrt(a) if a > 1 else a, x / (1 + abs(mp.sqrt(a)))]


def _beta_lengths(p: Any, q: Any, x: Any) -> list[Any]:
    return [mp.sqrt(p) if p > 1 else p, mp.sqrt(q) if q > 1 else q, min(x, 1 - x) / (1 + mp.sqrt(p + q))]


def _p(a: Any, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


def _q(a: Any, x: Any) -> Any:
    return mp.gammainc(a, x, regularized=True)


def _i(p: Any, q: Any, x: Any) -> Any:
    return mp.betainc(p, q, 0, x, regularized=True)


def _ic(p: Any, q: Any, x: Any) -> Any:
    return mp.betainc(q, p, 0, 1 - x, regularized=True)


def _below_mean(p: Any, q: Any, x: Any) -> bool:
    return bool(x * (p + q) < p)


def _stdtr(df: Any, t: Any) -> Any:
    tail = mp.betainc(df / 2, mp.mpf(0.5), 0, df / (df + t * t), regularized=True) / 2
    return tail if t < 0 else 1 - tail


def _student_lengths(df: Any, t: Any) -> list[Any]:
    return [df, max(abs(t), mp.ldexp(mp.one, -8))]


def _mod_lengths(u: Any, m: Any) -> list[Any]:
    return [mp.one / 4, min(mp.one / 4, abs(1 - m), max(abs(m), mp.one / 4))]


def _amplitude(u: Any, m: Any) -> Any:
    """Return the amplitude of Jacobi's functions: the angle whose sine and cosine are sn and cn, continuous in u."""
    sn, cn = mp.ellipfun("sn", u, m=m), mp.ellipfun("cn", u, m=m)
    turns = mp.nint(u / (2 * mp.ellipk(m)))
    angle = mp.atan2(mp.re(sn), mp.re(cn))
    wanted = turns * mp.pi
    return angle + 2 * mp.pi * mp.nint((wanted - angle) / (2 * mp.pi))


def _jacobi(name: str) -> Callable[..., Any]:
    return lambda u, m: mp.re(mp.ellipfun(name, u, m=m))


def _orders(v: Any, x: Any) -> list[Any]:
    return [mp.one / 4, abs(x) if x else mp.one]


def real(function: Callable[..., Any]) -> Callable[..., Any]:
    """The real part of a function that mpmath may give as a complex number."""
    return lambda *arguments: mp.re(function(*arguments))


_student = numeric(_stdtr, _student_lengths)
EXACT: dict[str, Formula] = {
    "abs": _abs,
    "neg": lambda x: -x,
    "sign": _flat(lambda x: mp.sign(x)),
    "floor": _flat(lambda x: mp.floor(x)),
    "ceil": _flat(lambda x: mp.ceil(x)),
    "trunc": _flat(lambda x: mp.sign(x) * mp.floor(abs(x))),
    "rint": _flat(lambda x: mp.nint(x)),
    "cast": lambda x: x,
    "exp": exp,
    "exp2": lambda x: compose(tuple(mp.power(2, x.at) * mp.log(2) ** k for k in range(4)), x),
    "expm1": lifted(_expm1),
    "log": log,
    "log2": lambda x: log(x) / mp.log(2),
    "log10": lambda x: log(x) / mp.log(10),
    "log1p": lifted(_log1p),
    "sqrt": sqrt,
    "cbrt": lifted(_cbrt),
    "sin": sin,
    "cos": cos,
    "tan": lambda x: compose(_tan(x.at), x),
    "asin": lifted(_asin),
    "acos": lifted(_acos),
    "atan": atan,
    "sinh": lifted(_sinh),
    "cosh": lifted(_cosh),
    "tanh": lifted(_tanh),
    "asinh": lifted(_asinh),
    "acosh": lifted(_acosh),
    "atanh": lifted(_atanh),
    "erf": erf,
    "erfc": erfc,
    "expit": lifted(_expit),
    "gammaln": _signless_gammaln,
    "digamma": digamma,
    "polygamma": _polygamma(1),
    "gamma": _gamma,
    "logit": lambda p: log(p) - lifted(_log1p)(-p),
    "ndtr": _ndtr,
    "log_ndtr": _log_ndtr,
    "ndtri": _ndtri,
    "ndtri_exp": _ndtri_exp,
    "erfinv": lifted(_erfinv),
    "erfcinv": lifted(_erfcinv),
    "erfcx": _erfcx,
    "erfi": erfi,
    "dawsn": _dawsn,
    "exp1": lambda x: _integral(mp.e1(x.at), -exp(-x) / x, x),
    "expi": lambda x: _integral(mp.ei(x.at), exp(x) / x, x),
    "expn": _expn(2),
    "exprel": _exprel,
    "sici_si": lambda x: _integral(mp.si(x.at), _over_argument(x, -1), x),
    "sici_ci": lambda x: _integral(mp.ci(x.at), cos(x) / x, x),
    "shichi_shi": lambda x: _integral(mp.shi(x.at), _over_argument(x, 1), x),
    "shichi_chi": lambda x: _integral(mp.chi(x.at), lifted(_cosh)(x) / x, x),
    "fresnel_s": lambda x: _integral(_fresnel(x.at)[0], _turned(x * x * mp.mpf(0.5), 0), x),
    "fresnel_c": lambda x: _integral(_fresnel(x.at)[1], _turned(x * x * mp.mpf(0.5), 1), x),
    "spence": _spence,
    "wrightomega": lifted(_wrightomega),
    "gammasgn": _flat(lambda x: mp.sign(mp.gamma(x))),
    "zetac": lifted(_zeta_from_2),
    "riemann_zeta": lambda x: lifted(_zeta_from_2)(x) + 1,
    **{f"{k}{n}": lifted(_bessel(k, n)) for k in "jyik" for n in (0, 1)},
    **{f"{k}{n}e": _scaled(k, n) for k in "ik" for n in (0, 1)},
    "airy_ai": _airy(lambda x, **kw: mp.airyai(x, **kw), 0),
    "airy_aip": _airy(lambda x, **kw: mp.airyai(x, **kw), 1),
    "airy_bi": _airy(lambda x, **kw: mp.airybi(x, **kw), 0),
    "airy_bip": _airy(lambda x, **kw: mp.airybi(x, **kw), 1),
    **{f"{k}e{p}{'p' * d}": _kelvin(k, p == "i", d) for k in "bk" for p in "ri" for d in (0, 1)},
    "ellipk": lifted(lambda m: _complete(m, 1 - m)[0]),
    "ellipkm1": lifted(lambda p: tuple((-1) ** k * d for k, d in enumerate(_complete(1 - p, p)[0]))),
    "ellipe": lifted(lambda m: _complete(m, 1 - m)[1]),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "mod": _quotient_part(lambda q: mp.floor(q)),
    "fmod": _quotient_part(lambda q: mp.sign(q) * mp.floor(abs(q))),
    "floordiv": lambda x, y: constant(2, mp.floor(x.at / y.at)),
    "copysign": lambda x, y: x if (x.at > 0) == (y.at > 0) else -x,
    "maximum": _greater,
    "minimum": _smaller,
    "fmax": _greater,
    "fmin": _smaller,
    "pow": _power,
    "logaddexp": _logaddexp,
    "hypot": _hypot,
    "atan2": _atan2,
    "beta": _beta,
    "betaln": _betaln,
    "binom": _binom,
    "poch": _poch,
    "owens_t": _owens_t,
    "zeta": _zeta,
    "gammainc": _of_tails(numeric(_p, _shape_lengths), numeric(_q, _shape_lengths), lambda a, x: x < a, True),
    "gammaincc": _of_tails(numeric(_p, _shape_lengths), numeric(_q, _shape_lengths), lambda a, x: x < a, False),
    "gammaincinv": of_inverse(_p, _shape_lengths, scipy.special.gammaincinv),
    "gammainccinv": of_inverse(_q, _shape_lengths, scipy.special.gammainccinv),
    "stdtr": lambda df, t: _student(df, t) if t.at < 0 else 1 - _student(df, -t),
    "stdtrit": of_inverse(_stdtr, _student_lengths, scipy.special.stdtrit),
    "betainc": _of_tails(numeric(_i, _beta_lengths), numeric(_ic, _beta_lengths), _below_mean, True),
    "betaincc": _of_tails(numeric(_i, _beta_lengths), numeric(_ic, _beta_lengths), _below_mean, False),
    "betaincinv": of_inverse(_i, _beta_lengths, scipy.special.betaincinv),
    "betainccinv": of_inverse(_ic, _beta_lengths, scipy.special.betainccinv),
    "jv": numeric(real(mp.besselj), _orders),
    "yv": numeric(real(mp.bessely), _orders),
    "iv": numeric(real(mp.besseli), _orders),
    "kv": numeric(real(mp.besselk), _orders),
    "ive": numeric(lambda v, x: mp.re(mp.besseli(v, x)) * mp.exp(-abs(x)), _orders),
    "kve": numeric(lambda v, x: mp.re(mp.besselk(v, x)) * mp.exp(x), _orders),
    "struve": numeric(real(mp.struveh), _orders),
    "modstruve": numeric(real(mp.struvel), _orders),
    "hyp0f1": numeric(real(mp.hyp0f1), _near),
    "hyp1f1": numeric(real(mp.hyp1f1), _near),
    "hyp2f1": numeric(real(mp.hyp2f1), lambda a, b, c, x: [1, 1, min(mp.one, abs(c)), (1 - x) / 2]),
    "hyperu": numeric(real(mp.hyperu), lambda a, b, x: [mp.one / 4, mp.one / 4, x]),
    "ellipkinc": numeric(real(mp.ellipf), _mod_lengths),
    "ellipeinc": numeric(real(mp.ellipe), _mod_lengths),
    "ellipj_sn": numeric(_jacobi("sn"), _mod_lengths),
    "ellipj_cn": numeric(_jacobi("cn"), _mod_lengths),
    "ellipj_dn": numeric(_jacobi("dn"), _mod_lengths),
    "ellipj_ph": numeric(_amplitude, _mod_lengths),
    "clip": lambda x, low, high: high if max(x.at, low.at) > high.at else low if x.at < low.at else x,
    "fma": lambda x, y, z: x * y + z,
}


def _tan(x: Any) -> Derivatives:
    t = mp.tan(x)
    d = 1 / mp.cos(x) ** 2
    return t, d, 2 * t * d, (4 * t * t + 2 * d) * d
