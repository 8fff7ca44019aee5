"""Special functions that SciPy has as ufuncs: called natively on the CPU, with derivatives of their own.

Formulas: NIST Digital Library of Mathematical Functions, chapters 5 (gamma), 7 (error functions), 8 (incomplete gamma and
beta), 10 (Bessel); Owen, Tables for computing bivariate normal probabilities, 1956.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.ops.elementwise import Elementwise, Partial, const_like, each, no
from pullback.ir.structure import Value

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_ORDER = "its derivative by a parameter that sets the shape has no closed form; keep that parameter out of argnums, or constant"


def _row(name: str, *partials: Partial, cuda: str = "", missing: tuple[int, ...] = ()) -> Elementwise:
    """A ufunc of scipy.special. ``missing``: operands by which there is no derivative."""
    reference = f"scipy.special.{name}"
    return Elementwise(
        name=name, reference=reference, arity=len(partials), pullback=each(*partials), llvm=f"ufunc:{reference}", cuda=cuda,
        missing=dict.fromkeys(missing, _ORDER),
    )  # fmt: skip


def _scaled(b: Any, x: Value, factor: float) -> Value:
    found: Value = b.mul(x, const_like(b, factor, x))
    return found


def _shifted(b: Any, x: Value, term: float) -> Value:
    found: Value = b.add(x, const_like(b, term, x))
    return found


def _normal(b: Any, x: Value) -> Value:
    """The logarithm of the normal density."""
    return _shifted(b, _scaled(b, b.mul(x, x), -0.5), -LOG_SQRT_2PI)


def _gamma_density(b: Any, a: Value, x: Value) -> Value:
    """exp(-x) x^(a - 1) / gamma(a)."""
    power = b.pow(x, _shifted(b, a, -1.0))
    found: Value = b.mul(power, b.exp(b.neg(b.add(x, b.gammaln(a)))))
    return found


def _beta_density(b: Any, p: Value, q: Value, x: Value) -> Value:
    """x^(p - 1) (1 - x)^(q - 1) / beta(p, q)."""
    rest = b.sub(const_like(b, 1, x), x)
    powers = b.mul(b.pow(x, _shifted(b, p, -1.0)), b.pow(rest, _shifted(b, q, -1.0)))
    found: Value = b.mul(powers, b.exp(b.neg(b.betaln(p, q))))
    return found


def _student_density(b: Any, df: Value, t: Value) -> Value:
    half, more = _scaled(b, df, 0.5), _scaled(b, _shifted(b, df, 1.0), 0.5)
    size = b.sub(b.sub(b.gammaln(more), b.gammaln(half)), _scaled(b, b.log(_scaled(b, df, math.pi)), 0.5))
    found: Value = b.exp(b.sub(size, b.mul(more, b.log1p(b.div(b.mul(t, t), df)))))
    return found


# gamma and beta

gamma = _row("gamma", lambda b, ct, out, x: b.mul(ct, b.mul(out, b.digamma(x))), cuda="tgamma({0})")
betaln = _row(
    "betaln",
    lambda b, ct, out, p, q: b.mul(ct, b.sub(b.digamma(p), b.digamma(b.add(p, q)))),
    lambda b, ct, out, p, q: b.mul(ct, b.sub(b.digamma(q), b.digamma(b.add(p, q)))),
)
beta = _row(
    "beta",
    lambda b, ct, out, p, q: b.mul(ct, b.mul(out, b.sub(b.digamma(p), b.digamma(b.add(p, q))))),
    lambda b, ct, out, p, q: b.mul(ct, b.mul(out, b.sub(b.digamma(q), b.digamma(b.add(p, q))))),
)
binom = _row(
    "binom",
    lambda b, ct, out, n, k: b.mul(
        ct, b.mul(out, b.sub(b.digamma(_shifted(b, n, 1.0)), b.digamma(_shifted(b, b.sub(n, k), 1.0))))
    ),
    lambda b, ct, out, n, k: b.mul(
        ct, b.mul(out, b.sub(b.digamma(_shifted(b, b.sub(n, k), 1.0)), b.digamma(_shifted(b, k, 1.0))))
    ),
)
gammainc = _row("gammainc", no, lambda b, ct, out, a, x: b.mul(ct, _gamma_density(b, a, x)), missing=(0,))
gammaincc = _row("gammaincc", no, lambda b, ct, out, a, x: b.neg(b.mul(ct, _gamma_density(b, a, x))), missing=(0,))
gammaincinv = _row("gammaincinv", no, lambda b, ct, out, a, y: b.div(ct, _gamma_density(b, a, out)), missing=(0,))
gammainccinv = _row("gammainccinv", no, lambda b, ct, out, a, y: b.neg(b.div(ct, _gamma_density(b, a, out))), missing=(0,))
betainc = _row("betainc", no, no, lambda b, ct, out, p, q, x: b.mul(ct, _beta_density(b, p, q, x)), missing=(0, 1))
betaincc = _row("betaincc", no, no, lambda b, ct, out, p, q, x: b.neg(b.mul(ct, _beta_density(b, p, q, x))), missing=(0, 1))
betaincinv = _row("betaincinv", no, no, lambda b, ct, out, p, q, y: b.div(ct, _beta_density(b, p, q, out)), missing=(0, 1))
betainccinv = _row(
    "betainccinv", no, no, lambda b, ct, out, p, q, y: b.neg(b.div(ct, _beta_density(b, p, q, out))), missing=(0, 1)
)
stdtr = _row("stdtr", no, lambda b, ct, out, df, t: b.mul(ct, _student_density(b, df, t)), missing=(0,))
stdtrit = _row("stdtrit", no, lambda b, ct, out, df, p: b.div(ct, _student_density(b, df, out)), missing=(0,))

# the normal distribution and error functions

ndtr = _row("ndtr", lambda b, ct, out, x: b.mul(ct, b.exp(_normal(b, x))), cuda="normcdf({0})")
log_ndtr = _row("log_ndtr", lambda b, ct, out, x: b.mul(ct, b.exp(b.sub(_normal(b, x), out))), cuda="log(normcdf({0}))")
ndtri = _row("ndtri", lambda b, ct, out, p: b.mul(ct, b.exp(b.neg(_normal(b, out)))), cuda="normcdfinv({0})")
erfinv = _row(
    "erfinv", lambda b, ct, out, y: b.mul(ct, _scaled(b, b.exp(b.mul(out, out)), math.sqrt(math.pi) / 2)), cuda="erfinv({0})"
)
erfcinv = _row(
    "erfcinv", lambda b, ct, out, y: b.mul(ct, _scaled(b, b.exp(b.mul(out, out)), -math.sqrt(math.pi) / 2)), cuda="erfcinv({0})"
)
erfcx = _row(
    "erfcx",
    lambda b, ct, out, x: b.mul(ct, _shifted(b, _scaled(b, b.mul(x, out), 2.0), -2.0 / math.sqrt(math.pi))),
    cuda="erfcx({0})",
)
owens_t = _row(
    "owens_t",
    lambda b, ct, out, h, a: b.neg(b.mul(ct, b.mul(b.exp(_normal(b, h)), _shifted(b, b.ndtr(b.mul(a, h)), -0.5)))),
    lambda b, ct, out, h, a: b.mul(
        ct,
        b.div(
            b.exp(_scaled(b, b.mul(b.mul(h, h), _shifted(b, b.mul(a, a), 1.0)), -0.5)),
            _scaled(b, _shifted(b, b.mul(a, a), 1.0), 2.0 * math.pi),
        ),
    ),
)

# Bessel functions


def _over(b: Any, y: Value, x: Value) -> Value:
    """y / x, and 1/2 at 0, as of functions that start with x / 2."""
    at_zero = b.eq(x, b.zeros_like(x))
    found: Value = b.select(at_zero, const_like(b, 0.5, x), b.div(y, b.select(at_zero, const_like(b, 1, x), x)))
    return found


j0 = _row("j0", lambda b, ct, out, x: b.neg(b.mul(ct, b.j1(x))), cuda="j0({0})")
j1 = _row("j1", lambda b, ct, out, x: b.mul(ct, b.sub(b.j0(x), _over(b, out, x))), cuda="j1({0})")
y0 = _row("y0", lambda b, ct, out, x: b.neg(b.mul(ct, b.y1(x))), cuda="y0({0})")
y1 = _row("y1", lambda b, ct, out, x: b.mul(ct, b.sub(b.y0(x), b.div(out, x))), cuda="y1({0})")
i0 = _row("i0", lambda b, ct, out, x: b.mul(ct, b.i1(x)), cuda="cyl_bessel_i0({0})")
i1 = _row("i1", lambda b, ct, out, x: b.mul(ct, b.sub(b.i0(x), _over(b, out, x))), cuda="cyl_bessel_i1({0})")
i0e = _row("i0e", lambda b, ct, out, x: b.mul(ct, b.sub(b.i1e(x), b.mul(b.sign(x), out))))
i1e = _row("i1e", lambda b, ct, out, x: b.mul(ct, b.sub(b.sub(b.i0e(x), _over(b, out, x)), b.mul(b.sign(x), out))))

# draws that move with a parameter as quantiles do, while the level stays (Figurnov, Mohamed, Mnih, Implicit reparameterization
# gradients, 2018): the derivative is that of the distribution function by the parameter, over minus the density


class Draw(Elementwise):
    """Operands: a parameter and a value drawn with it, which is the result."""


NODES = 72
"""Of the double-exponential rule for integrals over [0, infinity) (Takahasi, Mori, 1974)."""
_FIRST, _LAST = -4.2, 6.2


def log_gamma_slope(b: Any, a: Value, x: Value) -> Value:
    """How the quantile of the logarithm of a gamma variable at ``x`` moves with its shape ``a``: the integral of (log t -
    digamma(a)) times the density from exp(x) to infinity, or minus that from 0, over the density of the logarithm at x."""
    shape = (*x.type.shape, NODES)
    last = len(shape) - 1

    def wide(v: Value) -> Value:
        found: Value = b.broadcast(v, axes=(last,), shape=shape)
        return found

    def one(v: Value) -> Value:
        return const_like(b, 1, v)

    z = b.exp(x)
    position = b.cast(b.iota(shape=shape, axis=last, dtype=x.type.dtype), dtype=x.type.dtype)
    step = (_LAST - _FIRST) / (NODES - 1)
    s = _shifted(b, _scaled(b, position, step), _FIRST)
    sharp = b.exp(b.neg(s))
    node, weight = b.exp(b.sub(s, sharp)), _scaled(b, _shifted(b, sharp, 1.0), step)
    root = b.sqrt(_shifted(b, z, 1.0))
    below = b.le(z, a)
    scale = b.div(
        one(z), b.select(below, b.add(b.sub(a, z), b.div(z, root)), b.add(b.sub(one(z), b.div(a, z)), b.div(one(z), root)))
    )
    y = b.mul(node, wide(scale))
    is_below, shape_, top = wide(below), wide(a), wide(z)
    ratio = b.log1p(b.div(y, b.select(is_below, one(y), top)))
    level = b.select(is_below, b.neg(y), ratio)
    under = b.neg(b.add(b.mul(shape_, y), b.mul(top, b.expm1(b.neg(y)))))
    over = b.sub(b.mul(_shifted(b, shape_, -1.0), ratio), y)
    density = b.exp(b.select(is_below, under, over))
    terms = b.mul(b.mul(b.add(wide(b.sub(x, b.digamma(a))), level), density), b.mul(weight, y))
    total = b.sum(terms, axes=(last,))
    found: Value = b.select(below, b.neg(total), b.div(total, z))
    return found


def _inverse_gaussian_slope(b: Any, mean: Value, x: Value) -> Value:
    """The same of an inverse Gaussian variable of shape 1 and its mean."""
    root = b.sqrt(x)
    upper = b.div(_shifted(b, b.div(x, mean), 1.0), root)
    gap = b.div(b.sub(x, mean), mean)
    log_density = b.sub(_shifted(b, _scaled(b, b.log(x), -1.5), -LOG_SQRT_2PI), b.div(_scaled(b, b.mul(gap, gap), 0.5), x))
    power = b.sub(b.add(b.div(const_like(b, 2, mean), mean), b.log_ndtr(b.neg(upper))), log_density)
    found: Value = b.mul(b.div(const_like(b, 2, mean), b.mul(mean, mean)), b.exp(power))
    return found


def _draw(name: str, slope: Any) -> Draw:
    return Draw(
        name=name, reference=lambda parameter, x: np.array(x), arity=2, cuda="{1}",
        pullback=each(lambda b, ct, out, parameter, x: b.mul(ct, slope(b, parameter, out)), no),
    )  # fmt: skip


log_gamma_draw = _draw("log_gamma_draw", log_gamma_slope)
inverse_gaussian_draw = _draw("inverse_gaussian_draw", _inverse_gaussian_slope)
