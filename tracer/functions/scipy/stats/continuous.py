"""The continuous distributions of scipy.stats. Formulas: SciPy (``scipy/stats/_continuous_distns.py``); Johnson, Kotz and
Balakrishnan, Continuous Univariate Distributions, 1994."""

from __future__ import annotations

import math
from typing import Any

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.functions.scipy.special.special import (
    betaln,
    cosm1,
    digamma,
    erf,
    expit,
    gamma,
    gammaln,
    log1prel,
    log_expit,
    log_ndtr,
    logit,
    native,
    ndtr,
    ndtri,
    xlog1py,
    xlogy,
)
from pullback.tracer.functions.scipy.stats.laws import EULER, LOG_2, LOG_2PI, LOG_PI, Law

INF = math.inf
POSITIVE = (0.0, INF)

gammainc, gammaincc, gammaincinv, gammainccinv = map(native, ("gammainc", "gammaincc", "gammaincinv", "gammainccinv"))
betainc, betaincc, betaincinv, betainccinv = map(native, ("betainc", "betaincc", "betaincinv", "betainccinv"))
stdtr, stdtrit, owens_t, i0e, i1e = map(native, ("stdtr", "stdtrit", "owens_t", "i0e", "i1e"))


def log_phi(x: Any) -> Any:
    """Return the logarithm of the normal density."""
    return -0.5 * x * x - 0.5 * LOG_2PI


def _const(value: float) -> Any:
    return lambda *args: value


# the normal family

Law(
    "norm", logpdf=log_phi, cdf=ndtr, logcdf=log_ndtr, sf=lambda x: ndtr(-x), logsf=lambda x: log_ndtr(-x), ppf=ndtri,
    isf=lambda q: -ndtri(q), mean=_const(0.0), var=_const(1.0), entropy=_const(0.5 * (LOG_2PI + 1.0)),
)  # fmt: skip
Law(
    "halfnorm", POSITIVE, logpdf=lambda x: 0.5 * (LOG_2 - LOG_PI) - 0.5 * x * x, cdf=lambda x: erf(x / math.sqrt(2.0)),
    sf=lambda x: 2.0 * ndtr(-x), logsf=lambda x: LOG_2 + log_ndtr(-x), ppf=lambda q: ndtri(0.5 * (1.0 + q)),
    isf=lambda q: -ndtri(0.5 * q), mean=_const(math.sqrt(2.0 / math.pi)), var=_const(1.0 - 2.0 / math.pi),
    entropy=_const(0.5 * math.log(math.pi / 2.0) + 0.5),
)  # fmt: skip
Law(
    "lognorm", POSITIVE,
    logpdf=lambda x, s: xp.where(x > 0, log_phi(xp.log(x) / s) - xp.log(s) - xp.log(x), -INF),
    cdf=lambda x, s: ndtr(xp.log(x) / s), logcdf=lambda x, s: log_ndtr(xp.log(x) / s), sf=lambda x, s: ndtr(-xp.log(x) / s),
    logsf=lambda x, s: log_ndtr(-xp.log(x) / s), ppf=lambda q, s: xp.exp(s * ndtri(q)), isf=lambda q, s: xp.exp(-s * ndtri(q)),
    mean=lambda s: xp.exp(0.5 * s * s), var=lambda s: xp.expm1(s * s) * xp.exp(s * s),
    entropy=lambda s: 0.5 * (1.0 + LOG_2PI + 2.0 * xp.log(s)),
)  # fmt: skip


def _skew(a: Any) -> Any:
    return math.sqrt(2.0 / math.pi) * a / xp.sqrt(1.0 + a * a)


def _skewnorm_cdf(x: Any, a: Any) -> Any:
    return xp.clip(ndtr(x) - 2.0 * owens_t(x, a), 0.0, 1.0)


Law(
    "skewnorm", valid=xp.isfinite, logpdf=lambda x, a: LOG_2 + log_phi(x) + log_ndtr(a * x), cdf=_skewnorm_cdf,
    sf=lambda x, a: _skewnorm_cdf(-x, -a), mean=_skew, var=lambda a: 1.0 - _skew(a) ** 2,
)  # fmt: skip


def _log_difference(large: Any, small: Any) -> Any:
    """Return log(exp(large) - exp(small))."""
    return large + xp.log1p(-xp.exp(small - large))


def log_mass(a: Any, b: Any) -> Any:
    """Return the logarithm of the normal probability between a and b."""
    left = _log_difference(log_ndtr(b), log_ndtr(a))
    right = _log_difference(log_ndtr(-a), log_ndtr(-b))
    central = xp.log1p(-ndtr(a) - ndtr(-b))
    return xp.where(b <= 0, left, xp.where(a > 0, right, central))


def _truncnorm_ppf(q: Any, a: Any, b: Any) -> Any:
    left = ndtri(ndtr(a) * (1.0 - q) + ndtr(b) * q)
    right = -ndtri(ndtr(-a) * (1.0 - q) + ndtr(-b) * q)
    return xp.where(a < 0, left, right)


def _power_phi(x: Any, power: int) -> Any:
    """Return x**power times the normal density, 0 at the infinities."""
    return xp.where(xp.isinf(x), 0.0, x**power * xp.exp(log_phi(x)))


def _truncnorm_mean(a: Any, b: Any) -> Any:
    return (_power_phi(a, 0) - _power_phi(b, 0)) / xp.exp(log_mass(a, b))


def _truncnorm_var(a: Any, b: Any) -> Any:
    mass = xp.exp(log_mass(a, b))
    return 1.0 + (_power_phi(a, 1) - _power_phi(b, 1)) / mass - ((_power_phi(a, 0) - _power_phi(b, 0)) / mass) ** 2


Law(
    "truncnorm", lambda a, b: (a, b), lambda a, b: a < b, logpdf=lambda x, a, b: log_phi(x) - log_mass(a, b),
    logcdf=lambda x, a, b: log_mass(a, x) - log_mass(a, b), logsf=lambda x, a, b: log_mass(x, b) - log_mass(a, b),
    ppf=_truncnorm_ppf, mean=_truncnorm_mean, var=_truncnorm_var,
)  # fmt: skip


def _invgauss_parts(x: Any, mu: Any) -> tuple[Any, Any, Any]:
    root = 1.0 / xp.sqrt(x)
    return root * (x / mu - 1.0), -root * (x / mu + 1.0), 2.0 / mu


def _invgauss_logcdf(x: Any, mu: Any) -> Any:
    first, second, shift = _invgauss_parts(x, mu)
    a = log_ndtr(first)
    return a + xp.log1p(xp.exp(shift + log_ndtr(second) - a))


def _invgauss_logsf(x: Any, mu: Any) -> Any:
    first, second, shift = _invgauss_parts(x, mu)
    a = log_ndtr(-first)
    return a + xp.log1p(-xp.exp(shift + log_ndtr(second) - a))


Law(
    "invgauss", POSITIVE,
    logpdf=lambda x, mu: xp.where((x > 0) & (x < INF), -0.5 * LOG_2PI - 1.5 * xp.log(x) - (x / mu - 1.0) ** 2 / (2.0 * x), -INF),
    logcdf=_invgauss_logcdf, logsf=_invgauss_logsf, mean=lambda mu: mu, var=lambda mu: mu**3,
)  # fmt: skip


# Student's t and relatives


def _t_log_density_at_zero(df: Any) -> Any:
    """Return the logarithm of the density at 0; for many degrees of freedom by a series (DLMF 5.11.13), which avoids
    cancellation."""
    is_large = df > LARGE_DF
    half = 2.0 / xp.where(is_large, df, LARGE_DF)
    square = half * half
    series: Any = 0.0
    for coefficient in reversed(STUDENT_SERIES):
        series = series * square + coefficient
    few = xp.where(is_large, LARGE_DF, df)
    return xp.where(is_large, half * series - 0.5 * LOG_2PI, -betaln(0.5, 0.5 * few) - 0.5 * xp.log(few))


def _t_logpdf(x: Any, df: Any) -> Any:
    """Return the log density; for small x**2 / df, log(1 + x**2 / df) is computed as x**2 / df times a quotient near 1."""
    square = x * x
    ratio = square / df
    is_small = ratio < 0.5
    small_log = 0.5 * square * (1.0 + 1.0 / df) * log1prel(xp.where(is_small, ratio, 0.0))
    large_log = 0.5 * (df + 1.0) * xp.log1p(xp.where(is_small, 1.0, ratio))
    return xp.where(df == INF, log_phi(x), _t_log_density_at_zero(df) - xp.where(is_small, small_log, large_log))


def _t_entropy(df: Any) -> Any:
    half, more = 0.5 * df, 0.5 * (df + 1.0)
    inside = more * (digamma(more) - digamma(half)) + 0.5 * xp.log(df) + betaln(half, 0.5)
    return xp.where(df == INF, 0.5 * (LOG_2PI + 1.0), inside)


Law(
    "t", logpdf=_t_logpdf, cdf=lambda x, df: stdtr(df, x), sf=lambda x, df: stdtr(df, -x), ppf=lambda q, df: stdtrit(df, q),
    isf=lambda q, df: -stdtrit(df, q), mean=lambda df: xp.where(df > 1, 0.0, INF),
    var=lambda df: xp.where(df > 2, xp.where(df == INF, 1.0, df / (df - 2.0)), xp.where(df > 1, INF, math.nan)),
    entropy=_t_entropy,
)  # fmt: skip


LARGE_DF = 60.0
"""The degrees of freedom above which the series below is accurate to 16 digits."""

STUDENT_SERIES = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432, 691 / 180224)
"""The coefficients of the odd powers of 2 / df in log(gamma((df + 1) / 2) / gamma(df / 2)) - log(df / 2) / 2."""


def _cauchy_ppf(q: Any) -> Any:
    """Return tan(pi (q - 1/2)), in the tails by its reciprocal."""
    tail = xp.minimum(q, 1.0 - q)
    return xp.where(tail > 0.25, xp.tan(math.pi * (q - 0.5)), xp.copysign(1.0, q - 0.5) / xp.tan(math.pi * tail))


Law(
    "cauchy", logpdf=lambda x: -LOG_PI - xp.log1p(x * x), cdf=lambda x: xp.arctan2(1.0, -x) / math.pi,
    sf=lambda x: xp.arctan2(1.0, x) / math.pi, ppf=_cauchy_ppf,
    isf=lambda q: -_cauchy_ppf(q), entropy=_const(math.log(4.0 * math.pi)),
)  # fmt: skip
Law(
    "halfcauchy", POSITIVE, logpdf=lambda x: LOG_2 - LOG_PI - xp.log1p(x * x), cdf=lambda x: 2.0 / math.pi * xp.arctan(x),
    sf=lambda x: 2.0 / math.pi * xp.arctan2(1.0, x), ppf=lambda q: xp.tan(0.5 * math.pi * q),
    isf=lambda q: 1.0 / xp.tan(0.5 * math.pi * q), mean=_const(INF), var=_const(INF), entropy=_const(LOG_2PI),
)  # fmt: skip


def _f_to_beta(x: Any, n: Any, m: Any) -> Any:
    return n * x / (n * x + m)


def _f_ppf(q: Any, n: Any, m: Any) -> Any:
    complement = betaincinv(0.5 * m, 0.5 * n, 1.0 - q)
    y = betaincinv(0.5 * n, 0.5 * m, q)
    return xp.where(q > 0.5, m * (1.0 - complement) / (n * complement), m * y / (n * (1.0 - y)))


def _f_entropy(n: Any, m: Any) -> Any:
    p, q = 0.5 * n, 0.5 * m
    return xp.log(m) - xp.log(n) + betaln(p, q) + (1.0 - p) * digamma(p) - (1.0 + q) * digamma(q) + (p + q) * digamma(p + q)


Law(
    "f", POSITIVE,
    logpdf=lambda x, n, m: 0.5 * m * xp.log(m) + 0.5 * n * xp.log(n) + xlogy(0.5 * n - 1.0, x)
    - (0.5 * (n + m) * xp.log(m + n * x) + betaln(0.5 * n, 0.5 * m)),
    cdf=lambda x, n, m: betainc(0.5 * n, 0.5 * m, _f_to_beta(x, n, m)),
    sf=lambda x, n, m: betainc(0.5 * m, 0.5 * n, m / (m + n * x)), ppf=_f_ppf,
    isf=lambda q, n, m: _f_ppf(1.0 - q, n, m), mean=lambda n, m: xp.where(m > 2, m / (m - 2.0), INF) + 0.0 * n,
    var=lambda n, m: xp.where(m > 4, 2.0 * m * m * (n + m - 2.0) / (n * (m - 2.0) ** 2 * (m - 4.0)), INF), entropy=_f_entropy,
)  # fmt: skip

# gamma and beta families

Law(
    "gamma", POSITIVE, logpdf=lambda x, a: xlogy(a - 1.0, x) - x - gammaln(a), cdf=lambda x, a: gammainc(a, x),
    sf=lambda x, a: gammaincc(a, x), ppf=lambda q, a: gammaincinv(a, q), isf=lambda q, a: gammainccinv(a, q),
    mean=lambda a: a, var=lambda a: a, entropy=lambda a: digamma(a) * (1.0 - a) + a + gammaln(a),
)  # fmt: skip
Law(
    "chi2", POSITIVE,
    logpdf=lambda x, df: xlogy(0.5 * df - 1.0, x) - 0.5 * x - gammaln(0.5 * df) - 0.5 * LOG_2 * df,
    cdf=lambda x, df: gammainc(0.5 * df, 0.5 * x), sf=lambda x, df: gammaincc(0.5 * df, 0.5 * x),
    ppf=lambda q, df: 2.0 * gammaincinv(0.5 * df, q), isf=lambda q, df: 2.0 * gammainccinv(0.5 * df, q), mean=lambda df: df,
    var=lambda df: 2.0 * df, entropy=lambda df: 0.5 * df + LOG_2 + gammaln(0.5 * df) + (1.0 - 0.5 * df) * digamma(0.5 * df),
)  # fmt: skip
Law(
    "invgamma", POSITIVE,
    logpdf=lambda x, a: xp.where(x > 0, -(a + 1.0) * xp.log(x) - gammaln(a) - 1.0 / x, -INF),
    cdf=lambda x, a: gammaincc(a, 1.0 / x), sf=lambda x, a: gammainc(a, 1.0 / x), ppf=lambda q, a: 1.0 / gammainccinv(a, q),
    isf=lambda q, a: 1.0 / gammaincinv(a, q), mean=lambda a: xp.where(a > 1, 1.0 / (a - 1.0), INF),
    var=lambda a: xp.where(a > 2, 1.0 / ((a - 1.0) ** 2 * (a - 2.0)), INF),
    entropy=lambda a: a - (a + 1.0) * digamma(a) + gammaln(a),
)  # fmt: skip
Law(
    "beta", (0.0, 1.0), logpdf=lambda x, a, b: xlog1py(b - 1.0, -x) + xlogy(a - 1.0, x) - betaln(a, b),
    cdf=lambda x, a, b: betainc(a, b, x), sf=lambda x, a, b: betaincc(a, b, x), ppf=lambda q, a, b: betaincinv(a, b, q),
    isf=lambda q, a, b: betainccinv(a, b, q), mean=lambda a, b: a / (a + b),
    var=lambda a, b: a * b / ((a + b) ** 2 * (a + b + 1.0)),
    entropy=lambda a, b: betaln(a, b) - (a - 1.0) * digamma(a) - (b - 1.0) * digamma(b) + (a + b - 2.0) * digamma(a + b),
)  # fmt: skip

# exponential family and extremes


def _laplace_logcdf(x: Any) -> Any:
    return xp.where(x > 0, xp.log1p(-0.5 * xp.exp(-xp.abs(x))), xp.where(x > 0, 0.0, x) - LOG_2)


Law(
    "expon", POSITIVE, logpdf=lambda x: -x, cdf=lambda x: -xp.expm1(-x), logsf=lambda x: -x, ppf=lambda q: -xp.log1p(-q),
    isf=lambda q: -xp.log(q), mean=_const(1.0), var=_const(1.0), entropy=_const(1.0),
)  # fmt: skip
Law(
    "laplace", logpdf=lambda x: -LOG_2 - xp.abs(x), cdf=lambda x: xp.where(x > 0, 1.0 - 0.5 * xp.exp(-x), 0.5 * xp.exp(x)),
    sf=lambda x: xp.where(x < 0, 1.0 - 0.5 * xp.exp(x), 0.5 * xp.exp(-x)), logcdf=_laplace_logcdf,
    logsf=lambda x: _laplace_logcdf(-x),
    ppf=lambda q: xp.where(q > 0.5, -xp.log(2.0 * (1.0 - q)), xp.log(2.0 * q)),
    isf=lambda q: xp.where(q > 0.5, xp.log(2.0 * (1.0 - q)), -xp.log(2.0 * q)), mean=_const(0.0), var=_const(2.0),
    entropy=_const(LOG_2 + 1.0),
)  # fmt: skip
Law(
    "logistic", logpdf=native("logistic_logpdf"), cdf=expit, sf=lambda x: expit(-x),
    logcdf=log_expit, logsf=lambda x: log_expit(-x), ppf=logit, isf=lambda q: -logit(q), mean=_const(0.0),
    var=_const(math.pi**2 / 3.0), entropy=_const(2.0),
)  # fmt: skip
Law(
    "weibull_min", POSITIVE, logpdf=lambda x, c: xp.log(c) + xlogy(c - 1.0, x) - x**c, cdf=lambda x, c: -xp.expm1(-(x**c)),
    logsf=lambda x, c: -(x**c), ppf=lambda q, c: (-xp.log1p(-q)) ** (1.0 / c), isf=lambda q, c: (-xp.log(q)) ** (1.0 / c),
    mean=lambda c: gamma(1.0 + 1.0 / c), var=lambda c: gamma(1.0 + 2.0 / c) - gamma(1.0 + 1.0 / c) ** 2,
    entropy=lambda c: -EULER / c - xp.log(c) + EULER + 1.0,
)  # fmt: skip
Law(
    "gumbel_r", logpdf=lambda x: -x - xp.exp(-x), logcdf=lambda x: -xp.exp(-x), ppf=lambda q: -xp.log(-xp.log(q)),
    isf=lambda q: -xp.log(-xp.log1p(-q)), mean=_const(EULER), var=_const(math.pi**2 / 6.0), entropy=_const(EULER + 1.0),
)  # fmt: skip
Law(
    "gumbel_l", logpdf=lambda x: x - xp.exp(x), logsf=lambda x: -xp.exp(x), ppf=lambda q: xp.log(-xp.log1p(-q)),
    isf=lambda q: xp.log(-xp.log(q)), mean=_const(-EULER), var=_const(math.pi**2 / 6.0), entropy=_const(EULER + 1.0),
)  # fmt: skip
Law(
    "pareto", (1.0, INF), logpdf=lambda x, b: xp.log(b) - (b + 1.0) * xp.log(x), cdf=lambda x, b: -xp.expm1(-b * xp.log(x)),
    logsf=lambda x, b: -b * xp.log(x), ppf=lambda q, b: (1.0 - q) ** (-1.0 / b), isf=lambda q, b: q ** (-1.0 / b),
    mean=lambda b: xp.where(b > 1, b / (b - 1.0), INF), var=lambda b: xp.where(b > 2, b / ((b - 2.0) * (b - 1.0) ** 2), INF),
    entropy=lambda b: 1.0 + 1.0 / b - xp.log(b),
)  # fmt: skip
Law(
    "rayleigh", POSITIVE, logpdf=lambda x: xp.where(x < INF, xp.log(x) - 0.5 * x * x, -INF),
    cdf=lambda x: -xp.expm1(-0.5 * x * x),
    logsf=lambda x: -0.5 * x * x, ppf=lambda q: xp.sqrt(-2.0 * xp.log1p(-q)), isf=lambda q: xp.sqrt(-2.0 * xp.log(q)),
    mean=_const(math.sqrt(math.pi / 2.0)), var=_const((4.0 - math.pi) / 2.0), entropy=_const(EULER / 2.0 + 1.0 - 0.5 * LOG_2),
)  # fmt: skip
Law(
    "uniform", (0.0, 1.0), logpdf=lambda x: 0.0 * x, cdf=lambda x: x, sf=lambda x: 1.0 - x, ppf=lambda q: q,
    isf=lambda q: 1.0 - q, mean=_const(0.5), var=_const(1.0 / 12.0), entropy=_const(0.0),
)  # fmt: skip

# distributions on the circle

Law(
    "vonmises", valid=lambda kappa: kappa >= 0, logpdf=lambda x, kappa: kappa * cosm1(x) - LOG_2PI - xp.log(i0e(kappa)),
    entropy=lambda kappa: -kappa * i1e(kappa) / i0e(kappa) + LOG_2PI + xp.log(i0e(kappa)) + kappa,
)  # fmt: skip
