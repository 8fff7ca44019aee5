"""What elementary functions are tried on, what they should give there, and how far off they are.

``BOUNDS`` are the greatest errors allowed, in units in the last place of the exact result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import scipy.special

from pullback.ir.ops.elementwise import semantics
from tests.support.elementary.recipes import DTYPES, Array

# op: (float64, float32)
BOUNDS = {
    "exp": (0.95, 0.95),
    "log": (0.95, 0.95),
    "log1p": (0.95, 0.95),
    "tanh": (2.0, 2.0),
    "expit": (1.0, 1.0),
    "logaddexp": (1.6, 1.7),
    "sech2": (2.6, 2.6),
    "tanh_tail": (2.4, 2.4),
    "logistic_pdf": (1.7, 1.7),
    "logistic_logpdf": (1.7, 1.7),
    "gauss": (0.95, 0.95),
    "normal_pdf": (0.95, 0.95),
    "inverse_mills": (2.5, 2.5),
    "mills_gap": (5.0, 5.0),
    "erfcx": (2.0, 2.5),
    "ierfcx": (5.5, 5.5),
    "digamma_step": (5.0, 5.0),
    "trigamma_step": (6.0, 6.0),
    "erf": (0.95, 0.95),
    "sin": (0.95, 0.95),
    "cos": (0.95, 0.95),
    "expm1": (1.4, 1.4),
    "gammaln": (1.5, 1.5),
    "digamma": (1.5, 1.5),
    "pow": (1.0, 0.95),
    "exp2": (0.95, 0.95),
    "log2": (1.0, 1.0),
    "log10": (0.95, 0.95),
    "erfc": (2.0, 2.0),
    "ndtr": (2.0, 2.0),
    "log_ndtr": (2.0, 2.0),
    "logit": (1.2, 1.4),
    "erfinv": (1.2, 1.2),
    "erfcinv": (1.2, 1.2),
    "ndtri": (1.2, 1.2),
    "tan": (1.2, 1.3),
    "sinh": (1.8, 1.8),
    "cosh": (1.4, 1.5),
    "atan": (1.9, 1.7),
    "atan2": (1.9, 1.7),
    "asin": (1.7, 1.7),
    "acos": (0.9, 0.9),
    "hypot": (1.0, 1.0),
    "cbrt": (0.6, 0.6),
    "asinh": (1.9, 2.0),
    "acosh": (1.7, 1.7),
    "atanh": (2.0, 2.0),
}
STEPS = {"digamma_step", "trigamma_step"}
"""Above 0; below it they are differences, whose digits cancel."""
BINARY = {"logaddexp", "pow", "atan2", "hypot", "digamma_step", "trigamma_step"}
NUMPY: dict[str, Callable[..., Array]] = {
    **{
        name: getattr(semantics, name)
        for name in (
            "sech2",
            "tanh_tail",
            "logistic_pdf",
            "logistic_logpdf",
            "gauss",
            "normal_pdf",
            "inverse_mills",
            "mills_gap",
            "ierfcx",
            "digamma_step",
            "trigamma_step",
        )
    },
    "erfcx": scipy.special.erfcx,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "pow": np.power,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "ndtr": scipy.special.ndtr,
    "log_ndtr": scipy.special.log_ndtr,
    "logit": scipy.special.logit,
    "erfinv": scipy.special.erfinv,
    # SciPy's own is infinite at the least number.
    "erfcinv": lambda x: np.where((x > 0) & (x < 1e-323), 27.213293210812949, scipy.special.erfcinv(x)),
    "ndtri": scipy.special.ndtri,
    "digamma": scipy.special.digamma,
    # SciPy's own is infinite at subnormal numbers.
    "gammaln": lambda x: np.where((np.abs(x) > 0) & (np.abs(x) < 1e-300), -np.log(np.abs(x)), scipy.special.gammaln(x)),
    # SciPy's own flushes its subnormal values to 0.
    "expit": lambda x: np.where(x < 0, np.exp(-np.abs(x)), 1.0) / (1.0 + np.exp(-np.abs(x))),
}


def log_tail(x: Any) -> Any:
    """The logarithm of the normal distribution function at x <= 0; far out by the series of Abramowitz and Stegun, 26.2.12."""
    if x > -1000:
        return mpmath.log(mpmath.erfc(-x / mpmath.sqrt(2)) / 2)
    series = 1 - 1 / x**2 + 3 / x**4 - 15 / x**6
    return -x * x / 2 - mpmath.log(-x * mpmath.sqrt(2 * mpmath.pi)) + mpmath.log(series)


def inverse_erfc(z: Any) -> Any:
    """x with erfc(x) = z by Newton's method for the logarithms."""
    wanted = -mpmath.log(z)
    x = mpmath.sqrt(max(wanted - mpmath.log(mpmath.sqrt(mpmath.pi * (wanted + 0.3))), 0.01))
    while True:
        value = mpmath.erfc(x)
        step = (mpmath.log(value) + wanted) * value * mpmath.exp(x * x) * mpmath.sqrt(mpmath.pi) / 2
        x += step
        if abs(step) < mpmath.mpf(10) ** -30 * x:
            return x


def integral_of_erfc(n: int, x: Any) -> Any:
    """exp(x**2) times the integral of erfc of order n (DLMF 7.18), far out by the asymptotic series (7.18.14)."""
    if x > 40:
        terms = [(-1) ** m * mpmath.factorial(2 * m + n) / (mpmath.factorial(m) * (2 * x) ** (2 * m + n + 1)) for m in range(20)]
        return 2 / mpmath.sqrt(mpmath.pi) / mpmath.factorial(n) * mpmath.fsum(terms)
    if x >= 0:
        return mpmath.mpf(2) ** -n / mpmath.sqrt(mpmath.pi) * mpmath.hyperu((mpmath.mpf(n) + 1) / 2, mpmath.mpf(1) / 2, x * x)
    grown = mpmath.exp(x * x)
    if n == 0:
        return 2 * grown - integral_of_erfc(0, -x)
    return integral_of_erfc(1, -x) - 2 * x * grown if n == 1 else (x * x + 0.5) * grown - integral_of_erfc(2, -x)


def mills_gap(x: Any) -> Any:
    y = -x / mpmath.sqrt(2)
    return x + EXACT["inverse_mills"](x) if x > 0 else mpmath.sqrt(2) * integral_of_erfc(1, y) / integral_of_erfc(0, y)


def polygamma_step(n: int, x: Any, d: Any) -> Any:
    with mpmath.workdps(100):
        return mpmath.psi(n, x + d) - mpmath.psi(n, x)


EXACT: dict[str, Callable[..., Any]] = {
    "sech2": lambda x: 1 / mpmath.cosh(x) ** 2,
    "tanh_tail": lambda x: 2 / (1 + mpmath.exp(2 * abs(x))),
    "logistic_pdf": lambda x: 1 / (4 * mpmath.cosh(x / 2) ** 2),
    "logistic_logpdf": lambda x: -abs(x) - 2 * mpmath.log1p(mpmath.exp(-abs(x))),
    "gauss": lambda x: mpmath.exp(-x * x),
    "normal_pdf": mpmath.npdf,
    "inverse_mills": lambda x: (
        mpmath.npdf(x) / mpmath.ncdf(x) if x > 0 else mpmath.sqrt(2 / mpmath.pi) / integral_of_erfc(0, -x / mpmath.sqrt(2))
    ),
    "mills_gap": mills_gap,
    "erfcx": lambda x: integral_of_erfc(0, x),
    "ierfcx": lambda x: integral_of_erfc(1, x),
    "digamma_step": lambda x, d: polygamma_step(0, x, d),
    "trigamma_step": lambda x, d: polygamma_step(1, x, d),
    "exp2": lambda x: mpmath.power(2, x),
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "expit": lambda x: 1 / (1 + mpmath.exp(-x)),
    "logaddexp": lambda x, y: max(x, y) + mpmath.log1p(mpmath.exp(-abs(x - y))),
    "pow": mpmath.power,
    "gammaln": lambda x: mpmath.loggamma(x).real,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "ndtr": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "log_ndtr": lambda x: mpmath.log1p(-EXACT["ndtr"](-x)) if x > 0 else log_tail(x),
    "logit": lambda p: mpmath.log(p) - mpmath.log1p(-p),
    "erfinv": lambda x: inverse_erfc(1 - abs(x)) * mpmath.sign(x) if abs(x) > 0.5 else mpmath.erfinv(x),
    "erfcinv": lambda z: inverse_erfc(z) if z < 0.5 else EXACT["erfinv"](1 - z),
    "ndtri": lambda p: -mpmath.sqrt(2) * EXACT["erfcinv"](2 * p),
}
# Where results of float64 are finite; float32 has its own limits for the growing functions.
RANGES = {
    "sech2": (-372.0, 372.0, -52.0, 52.0),
    "tanh_tail": (-372.0, 372.0, -52.0, 52.0),
    "logistic_pdf": (-745.0, 745.0, -103.0, 103.0),
    "gauss": (-27.2, 27.2, -10.1, 10.1),
    "normal_pdf": (-38.5, 38.5, -14.3, 14.3),
    "inverse_mills": (-np.inf, 38.5, -np.inf, 14.3),
    "erfcx": (-26.6, np.inf, -9.3, np.inf),
    "ierfcx": (-26.5, 1e153, -9.1, 1e18),
    "exp": (-746.0, 709.0, -104.0, 88.7),
    "exp2": (-1075.0, 1023.9, -150.0, 127.9),
    "expm1": (-50.0, 709.0, -50.0, 88.7),
    "sinh": (-710.0, 710.0, -89.0, 89.0),
    "cosh": (-710.0, 710.0, -89.0, 89.0),
    "expit": (-745.0, 50.0, -103.0, 50.0),
    "erfc": (-7.0, 27.2, -7.0, 10.05),
    "ndtr": (-38.4, 10.0, -14.2, 10.0),
    "log_ndtr": (-1e154, 38.0, -1e19, 13.0),
    "logit": (0.0, 1.0, 0.0, 1.0),
    "erfinv": (-1.0, 1.0, -1.0, 1.0),
    "erfcinv": (0.0, 2.0, 0.0, 2.0),
    "ndtri": (0.0, 1.0, 0.0, 1.0),
    "gammaln": (0.0, 2.5e305, 0.0, 4e36),
    "digamma": (1e-300, np.inf, 1e-38, np.inf),
    "log": (0.0, np.inf, 0.0, np.inf),
    "log2": (0.0, np.inf, 0.0, np.inf),
    "log10": (0.0, np.inf, 0.0, np.inf),
    "log1p": (-1.0, np.inf, -1.0, np.inf),
    "acosh": (1.0, np.inf, 1.0, np.inf),
    "atanh": (-1.0, 1.0, -1.0, 1.0),
    "asin": (-1.0, 1.0, -1.0, 1.0),
    "acos": (-1.0, 1.0, -1.0, 1.0),
}
# The ends of arguments from 0 on.
PROBABILITIES = {"logit": 1.0, "ndtri": 1.0, "erfcinv": 2.0}


def arguments_of(name: str, dtype: str, count: int = 260, seed: int = 0) -> Array:
    """Arguments over the whole range: all magnitudes, the middle, near 1 and the multiples of pi/2, both signs."""
    rng = np.random.default_rng(sum(map(ord, name + dtype)) + 1000 * seed)
    least, most = (-1074, 1023) if dtype == "f64" else (-149, 127)
    multiples = np.round(np.exp2(rng.uniform(0, 15, count))) * np.pi / 2
    parts = [
        np.exp2(rng.uniform(least, most, count)),
        np.exp2(rng.uniform(-30, 10, count)),
        rng.uniform(0, 1, count),
        rng.uniform(0, 7, 2 * count),
        rng.uniform(0, 100, count),
        rng.uniform(0, 745, count),
        1 + rng.normal(0, 1, count) * np.exp2(rng.uniform(-45, 0, count)),
        multiples,
        multiples + rng.uniform(-0.8, 0.8, count),
    ]
    x = np.concatenate(parts)
    x = np.concatenate([x, PROBABILITIES.get(name, 0.0) - x]).astype(DTYPES[dtype])
    limits = RANGES.get(name, (-np.inf, np.inf) * 2)
    low, high = limits[:2] if dtype == "f64" else limits[2:]
    return x[(x > low) & (x < high) & np.isfinite(x)]


# Nearest to multiples of pi/2 (Muller, 2016, table 11.1; fdlibm), hardest to round or published as worst (Lefèvre and Muller,
# Worst cases for correct rounding of the elementary functions in double precision, 2001).
HARD = {
    "f64": (
        6381956970095103.0 * 2.0**797, 5.319372648326541e255, "0x1.6ac5b262ca1ffp+849", "0x1.33333333333p+843", 1e22, 2.0**1023,
        "0x1.fffffffffffffp+1023", "0x1.921fb54442d18p+0", "0x1.921fb54442d18p+1", "0x1.2d97c7f3321d2p+2", 7.5417527749959590e-10,
        "0x1.62a88613629b5p+678", "0x1.9e9cbbfd6080bp-31", "0x1.83d4bcdebb3f4p+2", "0x1.e07e71bfcf06fp+5", 2.0**30, 2.0**30 + 1,
        "0x1.accfbe46b4ef0p-1", "0x1.62e42fefa39efp+9", "-0x1.6232bdd7abcd2p+9", "-0x1.74910d52d3051p+9", "0x1.633ce8fb9f87dp+9",
    ),
    "f32": (
        16367173.0 * 2.0**72, 1.5707964, 3.1415927, 4.712389, 2.0**16, 65537.0, 3.4028235e38, 88.72284, -103.97208, -87.33655,
        89.41599, 1e22, 2.0**127, 0.693147, 1.0000001, 0.99999994, 10.0,
    ),
}  # fmt: skip


def hard(dtype: str) -> Array:
    """Arguments that are near-special or known to be hard, with their neighbours, of both signs."""
    kind = DTYPES[dtype]
    least, least_normal = np.finfo(kind).smallest_subnormal, np.finfo(kind).tiny
    arguments = [float.fromhex(v) if isinstance(v, str) else v for v in HARD[dtype]]
    quarter = [np.pi / 2 * k for k in range(1, 40)]
    limits = [least, 3 * least, least_normal, 0.5, 1.0, 1.5, 2.0, 709.782712893384, 710.475860073944, 745.1332191019412]
    x = np.array([*arguments, *quarter, *limits]).astype(kind)
    with np.errstate(over="ignore"):
        x = np.concatenate([x, np.nextafter(x, kind(0)), np.nextafter(x, kind(np.inf))])
    return np.concatenate([x, -x])


def pairs_of(name: str, dtype: str, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(sum(map(ord, name + dtype)) + 1000 * seed)
    kind = DTYPES[dtype]
    if name == "logaddexp":
        x = rng.uniform(-60, 60, 2000).astype(kind)
        return x, (x + rng.normal(0, 1, 2000) * np.exp2(rng.uniform(-20, 6, 2000))).astype(kind)
    if name in STEPS:
        x, d = np.exp2(rng.uniform(-20, 20, (2, 2000)))
        down = rng.random(2000) < 0.3
        return x.astype(kind), np.where(down, -x * rng.uniform(0.1, 0.9, 2000), d).astype(kind)
    if name == "pow":
        x = np.abs(arguments_of(name, dtype, 150, seed))
        x = x[(x != 0) & (x != 1)]
        span = 708.0 if dtype == "f64" else 87.0
        return x, (rng.uniform(-span, span, x.size) / np.log(x.astype(np.float64))).astype(kind)
    x = arguments_of(name, dtype, 100, seed)
    x = x[np.abs(x) < (1e300 if dtype == "f64" else 1e38)]
    near = x.astype(np.longdouble) * np.exp2(rng.uniform(-30, 30, x.size))
    y = np.where(rng.random(x.size) < 0.5, rng.permutation(x), near)
    keep = np.abs(y) < (1e300 if dtype == "f64" else 1e38)
    return x[keep], y[keep].astype(kind)


def errors(name: str, result: Array, *arguments: Array) -> Array:
    """Distances from the exact values in units in the last place of these."""
    exact = EXACT.get(name) or getattr(mpmath, name)
    digits, least = (53, -1074) if result.dtype == np.float64 else (24, -149)
    actual = []
    with mpmath.workdps(50):
        for y, *xs in zip(result.tolist(), *(a.tolist() for a in arguments), strict=True):
            value = exact(*(mpmath.mpf(x) for x in xs))
            scale = abs(value)
            if name == "logaddexp":
                scale = max(scale, abs(max(xs)), mpmath.log(2))
            exponent = max(mpmath.frexp(scale)[1] - digits, least)
            actual.append(float(abs(mpmath.mpf(y) - value) / mpmath.ldexp(1, exponent)))
    return np.array(actual)
