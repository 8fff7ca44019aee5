"""Special functions that SciPy has as ufuncs: called natively on the CPU, with derivatives of their own.

Formulas: NIST Digital Library of Mathematical Functions, chapters 5 (gamma), 7 (error functions), 8 (incomplete gamma and
beta), 10 (Bessel); Owen, Tables for computing bivariate normal probabilities, 1956.
"""

from __future__ import annotations

import math
from typing import Any

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
