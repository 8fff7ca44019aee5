"""The discrete distributions of scipy.stats. Formulas: SciPy (``scipy/stats/_discrete_distns.py``); Johnson, Kemp and Kotz,
Univariate Discrete Distributions, 2005."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.functions.scipy.special.special import betaln, entr, gammaln, xlog1py, xlogy
from pullback.tracer.functions.scipy.stats.continuous import betainc, gammainc, gammaincc
from pullback.tracer.functions.scipy.stats.laws import Law

INF = math.inf


def _is_integer(x: Any) -> Any:
    return xp.round(x) == x


def _log_binomial(n: Any, k: Any) -> Any:
    """Return the logarithm of the binomial coefficient n over k."""
    return gammaln(n + 1.0) - (gammaln(k + 1.0) + gammaln(n - k + 1.0))


MOST_COUNTS = 400
"""The number of counts, from 0 on, in the sum for the Poisson entropy at means below 200."""


def _poisson_entropy(mu: Any) -> Any:
    """Return the sum over counts, or, for large means, the expansion of Evans and Boersma, The entropy of a Poisson
    distribution, 1988."""
    is_small = mu < 200.0
    mean = xp.where(is_small, mu, 1.0)[..., None]
    k = np.arange(float(MOST_COUNTS))
    logarithm = xlogy(k, mean) - gammaln(k + 1.0) - mean
    mass = xp.exp(logarithm)
    total = 0.0 - xp.sum(xp.where(mass > 0, mass * logarithm, 0.0), axis=-1)
    r = 1.0 / xp.where(is_small, 200.0, mu)
    large = 0.5 * xp.log(2.0 * math.pi * math.e / r) - r * (1.0 / 12.0 + r * (1.0 / 24.0 + r * (19.0 / 360.0 + r * (9.0 / 80.0))))
    return xp.where(is_small, total, large)


Law(
    "poisson", (0.0, INF), lambda mu: mu >= 0, logpmf=lambda k, mu: xlogy(k, mu) - gammaln(k + 1.0) - mu,
    cdf=lambda k, mu: gammaincc(k + 1.0, mu), sf=lambda k, mu: gammainc(k + 1.0, mu), mean=lambda mu: mu, var=lambda mu: mu,
    entropy=_poisson_entropy,
)  # fmt: skip


def _binom_logpmf(k: Any, n: Any, p: Any) -> Any:
    return _log_binomial(n, k) + xlogy(k, p) + xlog1py(n - k, -p)


Law(
    "binom", lambda n, p: (0.0, n), lambda n, p: (n >= 0) & _is_integer(n) & (p >= 0) & (p <= 1), logpmf=_binom_logpmf,
    cdf=lambda k, n, p: xp.where(k < n, betainc(n - k, k + 1.0, 1.0 - p), 1.0),
    sf=lambda k, n, p: xp.where(k < n, betainc(k + 1.0, n - k, p), 0.0), mean=lambda n, p: n * p,
    var=lambda n, p: n * p * (1.0 - p),
)  # fmt: skip
Law(
    "bernoulli", (0.0, 1.0), lambda p: (p >= 0) & (p <= 1), logpmf=lambda k, p: xlogy(k, p) + xlog1py(1.0 - k, -p),
    cdf=lambda k, p: 1.0 - p, sf=lambda k, p: p, mean=lambda p: p, var=lambda p: p * (1.0 - p),
    ppf=lambda q, p: xp.where(q <= 1.0 - p, 0.0, 1.0), entropy=lambda p: entr(p) + entr(1.0 - p),
)  # fmt: skip
Law(
    "nbinom", (0.0, INF), lambda n, p: (n > 0) & (p > 0) & (p <= 1),
    logpmf=lambda k, n, p: gammaln(n + k) - gammaln(k + 1.0) - gammaln(n) + n * xp.log(p) + xlog1py(k, -p),
    cdf=lambda k, n, p: betainc(n, k + 1.0, p), sf=lambda k, n, p: betainc(k + 1.0, n, 1.0 - p),
    mean=lambda n, p: n * (1.0 - p) / p, var=lambda n, p: n * (1.0 - p) / (p * p),
)  # fmt: skip


def _geom_ppf(q: Any, p: Any) -> Any:
    quantile = xp.ceil(xp.log1p(-q) / xp.log1p(-p))
    before = -xp.expm1(xp.log1p(-p) * (quantile - 1.0))
    return xp.where((before >= q) & (quantile > 0), quantile - 1.0, quantile)


Law(
    "geom", (1.0, INF), lambda p: (p > 0) & (p <= 1), logpmf=lambda k, p: xlog1py(k - 1.0, -p) + xp.log(p),
    cdf=lambda k, p: -xp.expm1(xp.log1p(-p) * k), logsf=lambda k, p: k * xp.log1p(-p), mean=lambda p: 1.0 / p,
    var=lambda p: (1.0 - p) / (p * p), ppf=_geom_ppf,
)  # fmt: skip
Law(
    "randint", lambda low, high: (low, high - 1.0), lambda low, high: (high > low) & _is_integer(low) & _is_integer(high),
    logpmf=lambda k, low, high: -xp.log(high - low) + 0.0 * k, cdf=lambda k, low, high: (k - low + 1.0) / (high - low),
    mean=lambda low, high: 0.5 * (high + low - 1.0), var=lambda low, high: ((high - low) ** 2 - 1.0) / 12.0,
)  # fmt: skip


def _betabinom_var(n: Any, a: Any, b: Any) -> Any:
    mean = a / (a + b)
    return n * (a + b + n) * mean * (1.0 - mean) / (a + b + 1.0)


Law(
    "betabinom", lambda n, a, b: (0.0, n), lambda n, a, b: (n >= 0) & _is_integer(n) & (a > 0) & (b > 0),
    logpmf=lambda k, n, a, b: -xp.log(n + 1.0) - betaln(n - k + 1.0, k + 1.0) + betaln(k + a, n - k + b) - betaln(a, b),
    mean=lambda n, a, b: n * a / (a + b), var=_betabinom_var,
)  # fmt: skip
