"""The rows of the sweep over derivatives: what each elementwise op is tried on.

A row's points are the powers of two of its domain, in both signs, the neighbourhood of its special points (poles, zeros, branch
points, thresholds of overflow and underflow) and ordinary numbers between. Of two or more arguments: all pairs of powers of two
in steps of 2^32, and ordinary numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special as special

Array = np.ndarray[Any, np.dtype[Any]]
Inside = Callable[..., Any]
FULL = (-1074, 1023)


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one op is tried on.

    ``call``: the function that users write. ``inside(*arguments)``: whether points are in the open domain. ``near``: special
    points of the first argument. ``exponents``: the least and the greatest power of two. ``wrt``: the arguments by which there
    are derivatives. ``ordinary(rng, count)``: further points, one array an argument. ``without(*arguments)``: points at which the
    row's bounds do not hold, for the reason that ``bounds.REASONS`` gives; ``without_second``: likewise those of
    second derivatives alone. ``count``: how many further points, where mpmath takes seconds for one; 0: as many as of other rows.
    """

    call: Callable[..., Any]
    arity: int = 1
    inside: Inside = lambda *x: np.isfinite(x[0])
    near: tuple[float, ...] = ()
    exponents: tuple[int, int] = FULL
    ordinary: Callable[[np.random.Generator, int], Sequence[Array]] | None = None
    without: Inside | None = None
    without_second: Inside | None = None
    count: int = 0
    absolute: float = 0.0


def positive(*x: Array) -> Array:
    return np.all([v > 0 for v in x], axis=0)


def between(low: float, high: float) -> Inside:
    return lambda x: (x > low) & (x < high)


def subnormal(x: Array) -> Array:
    return np.abs(x) < 4 * np.finfo(x.dtype).tiny


def _square_is_lost(x: Array) -> Array:
    return x < 4 * np.sqrt(np.finfo(x.dtype).tiny)


def _subnormal_length(x: Array, y: Array) -> Array:
    return np.hypot(x, y) < np.finfo(x.dtype).tiny


def _subnormal_power(x: Array, y: Array) -> Array:
    """Where the base or the value is subnormal."""
    tiny = np.finfo(x.dtype).tiny
    with np.errstate(all="ignore"):
        return (np.power(x, y) < tiny) | (x < tiny)


def uniform(*ranges: tuple[float, float]) -> Callable[[np.random.Generator, int], Sequence[Array]]:
    return lambda rng, count: [rng.uniform(low, high, count) for low, high in ranges]


LOG_MAX = (709.782712893384, 88.72283935546875)
LOG_LEAST = (-745.1332191019412, -103.97207641601562, -708.3964185322641, -87.33654475055310)
ROOTS = (9.3326361850321888, 13.5670, 26.2881, 37.5194)  # about where exp(x^2), exp(-x^2 / 2) leave the formats
UNARY: dict[str, Row] = {
    "abs": Row(call=np.abs),
    "neg": Row(call=np.negative),
    "cast": Row(call=lambda x: x.astype(np.float64)),
    "sign": Row(call=np.sign),
    "floor": Row(call=np.floor, near=(1.0, -1.0, 2.0**52)),
    "ceil": Row(call=np.ceil, near=(1.0, -1.0, 2.0**52)),
    "trunc": Row(call=np.trunc, near=(1.0, -1.0, 2.0**52)),
    "rint": Row(call=np.rint, near=(0.5, -0.5, 1.5, 2.0**52)),
    "exp": Row(call=np.exp, near=LOG_MAX + LOG_LEAST),
    "exp2": Row(call=np.exp2, near=(1024.0, 128.0, -1074.0, -149.0, -1022.0, -126.0)),
    "expm1": Row(call=np.expm1, near=(*LOG_MAX, *LOG_LEAST, -36.7368, -16.635)),
    "log": Row(call=np.log, inside=positive, near=(1.0,)),
    "log2": Row(call=np.log2, inside=positive, near=(1.0,)),
    "log10": Row(call=np.log10, inside=positive, near=(1.0,)),
    "log1p": Row(call=np.log1p, inside=lambda x: x > -1, near=(-1.0,)),
    "sqrt": Row(call=np.sqrt, inside=positive),
    "cbrt": Row(call=np.cbrt, inside=lambda x: x != 0),
    "sin": Row(call=np.sin, near=(np.pi, -np.pi, np.pi / 2, 1e22)),
    "cos": Row(call=np.cos, near=(np.pi, -np.pi, np.pi / 2, 1e22)),
    "tan": Row(call=np.tan, near=(np.pi, -np.pi, np.pi / 2, -np.pi / 2, 1e22)),
    "asin": Row(call=np.arcsin, inside=between(-1, 1), near=(1.0, -1.0)),
    "acos": Row(call=np.arccos, inside=between(-1, 1), near=(1.0, -1.0)),
    "atan": Row(call=np.arctan, near=(1.0, -1.0)),
    "sinh": Row(call=np.sinh, near=(710.4758600739439, 89.41598629223294, -710.4758600739439, -89.41598629223294)),
    "cosh": Row(call=np.cosh, near=(710.4758600739439, 89.41598629223294, -710.4758600739439, -89.41598629223294)),
    "tanh": Row(call=np.tanh, near=(19.06, -19.06, 9.01, 373.0, 52.0, -373.0)),
    "asinh": Row(call=np.arcsinh, near=(1.0,)),
    "acosh": Row(call=np.arccosh, inside=lambda x: x > 1, near=(1.0,)),
    "atanh": Row(call=np.arctanh, inside=between(-1, 1), near=(1.0, -1.0)),
    "erf": Row(call=special.erf, near=(26.6, -26.6, 9.3, -9.3)),
    "erfc": Row(call=special.erfc, near=(26.6, -26.6, 9.3, 10.05, 27.2)),
    "expit": Row(call=special.expit, near=(-745.13, 745.13, 36.7, 17.0, -103.9, 88.7)),
    "gammaln": Row(
        call=special.gammaln,
        inside=lambda x: (x != np.floor(x)) | (x > 0),
        near=(1.0, 2.0, -1.0, -2.0, -3.0, -10.0, -2.4570247382208006, -2.7476826467274126, 2.5e305, 4e36),
    ),
    "digamma": Row(
        call=special.digamma,
        inside=lambda x: (x != np.floor(x)) | (x > 0),
        near=(1.4616321449683622, -0.5040830082644554, -1.0, -2.0, -3.0, -10.0, -20.0),
    ),
    "polygamma": Row(
        call=lambda x: special.polygamma(1, x),
        inside=lambda x: (x != np.floor(x)) | (x > 0),
        near=(-1.0, -2.0, -3.0, -10.0, -20.0),
    ),
    "gamma": Row(
        call=special.gamma,
        inside=lambda x: (x != np.floor(x)) | (x > 0),
        near=(1.0, 2.0, -1.0, -2.0, -3.0, -20.0, 171.6243769563027, 35.0401, -170.5, 1.4616321449683622),
    ),
    "gammasgn": Row(call=special.gammasgn, inside=lambda x: (x != np.floor(x)) | (x > 0), near=(-1.0, -2.0)),
    "logit": Row(call=special.logit, inside=between(0, 1), near=(1.0, 0.5)),
    "ndtr": Row(call=special.ndtr, near=(-38.4, -13.1, 38.4, 13.1, 8.29, 5.4)),
    "log_ndtr": Row(call=special.log_ndtr, near=(-38.4, -13.1, 38.4, 13.1, 8.29, -1e4, -1e5, -1e8, -1e154)),
    "ndtri": Row(call=special.ndtri, inside=between(0, 1), near=(1.0, 0.5)),
    "ndtri_exp": Row(
        call=special.ndtri_exp,
        inside=lambda x: x < 0,
        near=(-0.6931471805599453, -745.0, -103.0, -2.0),
    ),
    "erfinv": Row(call=special.erfinv, inside=between(-1, 1), near=(1.0, -1.0)),
    "erfcinv": Row(call=special.erfcinv, inside=between(0, 2), near=(2.0, 1.0)),
    "erfcx": Row(call=special.erfcx, near=(-26.6, -9.3, 50.0, 5e7, 1e5, 1e10)),
    "erfi": Row(call=special.erfi, near=(26.6, -26.6, 9.3)),
    "dawsn": Row(call=special.dawsn, near=(0.92413887, 1e5, 1e8)),
    "exp1": Row(call=special.exp1, inside=positive, near=(1.0, 701.8, 88.0)),
    "expi": Row(call=special.expi, inside=lambda x: x != 0, near=(0.37250741078136663, 716.0, 91.0, -1.0, -701.8)),
    "expn": Row(without=lambda x: x > 708, call=lambda x: special.expn(2, x), inside=positive, near=(1.0, 701.8, 88.0)),
    "exprel": Row(call=special.exprel, near=(*LOG_MAX, 717.0, -1.0, 1.0)),
    "sici_si": Row(call=lambda x: special.sici(x)[0], near=(np.pi, 4.0, 1e9)),
    "sici_ci": Row(call=lambda x: special.sici(x)[1], inside=positive, near=(0.6165054856207162, np.pi / 2, 4.0, 1e9)),
    "shichi_shi": Row(call=lambda x: special.shichi(x)[0], near=(717.0, 91.0, 1e-9)),
    "shichi_chi": Row(call=lambda x: special.shichi(x)[1], inside=positive, near=(0.5238225713898644, 717.0, 91.0)),
    "fresnel_s": Row(call=lambda x: special.fresnel(x)[0], near=(1.6, 36974.0)),
    "fresnel_c": Row(call=lambda x: special.fresnel(x)[1], near=(1.6, 36974.0)),
    "spence": Row(call=special.spence, inside=positive, near=(1.0, 0.5, 1.5, 2.0)),
    "wrightomega": Row(call=special.wrightomega, near=(1.0, -1.0, -2.0, -50.0, -745.0, 1e20)),
    "zetac": Row(
        call=special.zetac,
        inside=lambda x: (x != 1) & (x > -20),
        near=(1.0, 60.0, 30.0, 127.0, -2.0, 0.5),
        exponents=(-1074, 9),
    ),
    "riemann_zeta": Row(
        call=special.zeta,
        inside=lambda x: (x != 1) & (x > -20),
        near=(1.0, 60.0, 30.0, 127.0, -2.0, 0.5),
        exponents=(-1074, 9),
    ),
    "j0": Row(without=subnormal, call=special.j0, near=(2.404825557695773, 3.8317059702075125, 5.0, 8.0)),
    "j1": Row(without=subnormal, call=special.j1, near=(3.8317059702075125, 1.8411837813406593, 5.0, 8.0)),
    "y0": Row(call=special.y0, inside=positive, near=(0.8935769662791675, 2.197141326031017, 5.0)),
    "y1": Row(call=special.y1, inside=positive, near=(2.197141326031017, 5.0)),
    "i0": Row(call=special.i0, near=(713.9, -713.9, 91.9, 8.0)),
    "i1": Row(call=special.i1, near=(713.9, -713.9, 91.9, 8.0)),
    "i0e": Row(call=special.i0e, near=(8.0, -8.0, 1e8)),
    "i1e": Row(call=special.i1e, near=(8.0, -8.0, 1e8, 1.5451)),
    "k0": Row(call=special.k0, inside=positive, near=(2.0, 705.0, 88.0)),
    "k1": Row(call=special.k1, inside=positive, near=(2.0, 705.0, 88.0)),
    "k0e": Row(call=special.k0e, inside=positive, near=(2.0, 1e8)),
    "k1e": Row(call=special.k1e, inside=positive, near=(2.0, 1e8)),
    "airy_ai": Row(call=lambda x: special.airy(x)[0], near=(-2.338107410459767, 103.8, 2.09), exponents=(-1074, 30)),
    "airy_aip": Row(call=lambda x: special.airy(x)[1], near=(-1.018792971647471, 103.8, 2.09), exponents=(-1074, 30)),
    "airy_bi": Row(call=lambda x: special.airy(x)[2], near=(-1.173713222709128, 103.8, 2.09), exponents=(-1074, 30)),
    "airy_bip": Row(call=lambda x: special.airy(x)[3], near=(-2.294439682614123, 103.8, 2.09), exponents=(-1074, 30)),
    **{
        name: Row(
            call=getattr(special, name),
            inside=positive if name.startswith("k") else lambda x: np.isfinite(x),
            near=(10.0, 1.0, 2.0),
            exponents=(-1074, 12),
            without=_square_is_lost if name.startswith("ke") else None,
        )
        for name in ["ber", "bei", "berp", "beip", "ker", "kei", "kerp", "keip"]
    },
    "ellipk": Row(call=special.ellipk, inside=lambda x: x < 1, near=(1.0, 0.5, -0.5)),
    "ellipkm1": Row(
        without=lambda p: p < 2.0**10 * np.finfo(p.dtype).tiny,
        call=special.ellipkm1,
        inside=positive,
        near=(1.0, 0.5, 1.5),
    ),
    "ellipe": Row(call=special.ellipe, inside=lambda x: x < 1, near=(1.0, 0.5, -0.5)),
}


def _log_range(low: float, high: float, *more: tuple[float, float]) -> Any:
    def draw(rng: np.random.Generator, count: int) -> Sequence[Array]:
        return [np.exp2(rng.uniform(a, b, count)) for a, b in ((low, high), *more)]

    return draw


def _signed(low: float, high: float, count_: int = 2) -> Any:
    def draw(rng: np.random.Generator, count: int) -> Sequence[Array]:
        return [np.exp2(rng.uniform(low, high, count)) * rng.choice([-1, 1], count) for _ in range(count_)]

    return draw


def _all_sizes(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Near one; of one size anywhere in either format; of any two sizes in the narrower one."""
    part = count // 4
    ranges = ((-6.0, 6.0), (-1070.0, 1022.0), (-145.0, 126.0), (-145.0, 126.0))
    sizes = np.concatenate([rng.uniform(low, high, part) for low, high in ranges])
    others = sizes + rng.uniform(-3, 3, 4 * part)
    others[3 * part :] = rng.uniform(*ranges[-1], part)
    return [np.exp2(v) * rng.choice([-1, 1], 4 * part) for v in (sizes, np.minimum(others, 1022.0))]


def _all_powers(rng: np.random.Generator, count: int) -> Sequence[Array]:
    """Near one, and numbers of any size with exponents that keep the power within twice the range of a format."""
    part = count // 3
    x = np.concatenate([rng.uniform(-8, 8, part), rng.uniform(-1070, 1022, part), rng.uniform(-145, 126, part)])
    reach = np.concatenate([np.full(part, 3.0), 2100 / np.abs(x[part : 2 * part]), 300 / np.abs(x[2 * part :])])
    return [np.exp2(x), rng.uniform(-1, 1, 3 * part) * reach]


everywhere: Inside = lambda *x: np.ones_like(x[0], bool)  # noqa: E731
NEAR_ONE = _signed(-6.0, 6.0)
BINARY: dict[str, Row] = {
    "add": Row(call=np.add, arity=2, ordinary=NEAR_ONE),
    "sub": Row(call=np.subtract, arity=2, ordinary=NEAR_ONE),
    "mul": Row(call=np.multiply, arity=2, ordinary=NEAR_ONE),
    "div": Row(call=np.divide, arity=2, ordinary=NEAR_ONE),
    "mod": Row(call=np.mod, arity=2, ordinary=NEAR_ONE, inside=lambda x, y: np.mod(x, y) != 0),
    "fmod": Row(call=np.fmod, arity=2, ordinary=NEAR_ONE, inside=lambda x, y: np.fmod(x, y) != 0),
    "floordiv": Row(call=np.floor_divide, arity=2, ordinary=NEAR_ONE, inside=lambda x, y: np.fmod(x, y) != 0),
    "copysign": Row(call=np.copysign, arity=2, ordinary=NEAR_ONE),
    "nextafter": Row(call=np.nextafter, arity=2, ordinary=NEAR_ONE, inside=lambda x, y: x != y),
    "maximum": Row(call=np.maximum, arity=2, ordinary=NEAR_ONE),
    "minimum": Row(call=np.minimum, arity=2, ordinary=NEAR_ONE),
    "fmax": Row(call=np.fmax, arity=2, ordinary=NEAR_ONE),
    "fmin": Row(call=np.fmin, arity=2, ordinary=NEAR_ONE),
    "pow": Row(without_second=_subnormal_power, call=np.power, arity=2, inside=lambda x, y: x > 0, ordinary=_all_powers),
    "logaddexp": Row(call=np.logaddexp, arity=2, ordinary=NEAR_ONE),
    "hypot": Row(without_second=_subnormal_length, call=np.hypot, arity=2, ordinary=_all_sizes),
    "atan2": Row(call=np.arctan2, arity=2, ordinary=_all_sizes),
    "beta": Row(call=special.beta, arity=2, inside=positive, exponents=(-96, 96), ordinary=_log_range(-4, 6, (-4, 6))),
    "betaln": Row(call=special.betaln, arity=2, inside=positive, exponents=(-96, 96), ordinary=_log_range(-8, 40, (-8, 8))),
    "binom": Row(
        exponents=(-96, 96),
        call=special.binom,
        arity=2,
        inside=lambda n, k: (k > 0) & (n > k),
        ordinary=_log_range(3, 7, (-4, 3)),
    ),
    "poch": Row(
        without_second=lambda a, m: a < 2.0**-20,
        call=special.poch,
        arity=2,
        inside=positive,
        exponents=(-96, 96),
        ordinary=_log_range(-4, 7, (-4, 3)),
    ),
    "owens_t": Row(
        without=lambda h, a: np.maximum(np.abs(h), np.abs(a)) > 2.0**20,
        call=special.owens_t,
        arity=2,
        ordinary=_signed(-4, 2.5),
        exponents=(-96, 64),
    ),
    "zeta": Row(
        call=special.zeta,
        arity=2,
        inside=lambda x, q: (x > 1) & (q > 0),
        ordinary=_log_range(0.05, 6, (-4, 4)),
        exponents=(-64, 32),
    ),
    "gammainc": Row(
        without=lambda a, x: np.minimum(a, x) < 2.0**-20,
        absolute=2.0**-36,
        call=special.gammainc,
        arity=2,
        inside=positive,
        ordinary=_log_range(-6, 8, (-6, 8)),
        exponents=(-64, 32),
    ),
    "gammaincc": Row(
        without=lambda a, x: np.minimum(a, x) < 2.0**-20,
        absolute=2.0**-36,
        call=special.gammaincc,
        arity=2,
        inside=positive,
        ordinary=_log_range(-6, 8, (-6, 8)),
        exponents=(-64, 32),
    ),
    "gammaincinv": Row(
        call=special.gammaincinv,
        arity=2,
        inside=lambda a, y: (a > 0) & (y > 0) & (y < 1),
        ordinary=uniform((0.2, 9), (0.01, 0.99)),
        exponents=(0, 0),
    ),
    "gammainccinv": Row(
        call=special.gammainccinv,
        arity=2,
        inside=lambda a, y: (a > 0) & (y > 0) & (y < 1),
        ordinary=uniform((0.2, 9), (0.01, 0.99)),
        exponents=(0, 0),
    ),
    "stdtr": Row(
        absolute=2.0**-36,
        without=lambda df, t: df < 2.0**-6,
        call=special.stdtr,
        arity=2,
        inside=lambda d, t: d > 0,
        ordinary=lambda rng, n: [np.exp2(rng.uniform(-2, 8, n)), rng.uniform(-20, 20, n)],
        exponents=(-32, 32),
    ),
    "stdtrit": Row(
        call=special.stdtrit,
        arity=2,
        inside=lambda d, p: (d > 0) & (p > 0) & (p < 1),
        ordinary=uniform((0.8, 30), (0.01, 0.99)),
        exponents=(0, 0),
    ),
    **{
        name: Row(
            call=getattr(special, name),
            arity=2,
            inside=lambda v, x: x > 0,
            count=48 if name in ("kv", "kve") else 0,
            ordinary=uniform((-3.3, 12.7), (0.05, 30)),
            exponents=(0, 0),
        )
        for name in ["jv", "yv", "iv", "ive", "kv", "kve", "struve", "modstruve"]
    },
    "hyp0f1": Row(call=special.hyp0f1, arity=2, ordinary=uniform((0.3, 9), (-9, 9)), exponents=(0, 0)),
    "ellipkinc": Row(
        count=48,
        without=lambda u, m: np.abs(u) < 2.0**-8,
        call=special.ellipkinc,
        arity=2,
        ordinary=uniform((-1.5, 1.5), (-4, 1)),
        exponents=(-64, -32),
    ),
    "ellipeinc": Row(
        count=48,
        without=lambda u, m: np.abs(u) < 2.0**-8,
        call=special.ellipeinc,
        arity=2,
        ordinary=uniform((-1.5, 1.5), (-4, 1)),
        exponents=(-64, -32),
    ),
    **{
        f"ellipj_{p}": Row(
            without=lambda u, m: np.abs(u) < 2.0**-8,
            call=lambda u, m, k=k: special.ellipj(u, m)[k],
            arity=2,
            inside=lambda u, m: (m > 0) & (m < 1),
            ordinary=uniform((-6, 6), (0.001, 0.999)),
            exponents=(-64, -32),
        )
        for k, p in enumerate(("sn", "cn", "dn", "ph"))
    },
}
MORE: dict[str, Row] = {
    "clip": Row(
        call=np.clip,
        arity=3,
        inside=lambda x, a, b: (a < b) & (x != a) & (x != b),
        ordinary=_signed(-6, 6, 3),
        exponents=(-64, 64),
    ),
    "betainc": Row(
        absolute=2.0**-36,
        call=special.betainc,
        arity=3,
        ordinary=lambda rng, n: [*_log_range(-4, 6, (-4, 6))(rng, n), rng.uniform(0.001, 0.999, n)],
        exponents=(1, 0),
    ),
    "betaincc": Row(
        absolute=2.0**-36,
        call=special.betaincc,
        arity=3,
        ordinary=lambda rng, n: [*_log_range(-4, 6, (-4, 6))(rng, n), rng.uniform(0.001, 0.999, n)],
        exponents=(1, 0),
    ),
    "betaincinv": Row(call=special.betaincinv, arity=3, ordinary=uniform((0.3, 6), (0.3, 6), (0.01, 0.99)), exponents=(1, 0)),
    "betainccinv": Row(call=special.betainccinv, arity=3, ordinary=uniform((0.3, 6), (0.3, 6), (0.01, 0.99)), exponents=(1, 0)),
    "hyp1f1": Row(call=special.hyp1f1, arity=3, ordinary=uniform((0.3, 5), (0.3, 5), (-6, 6)), exponents=(1, 0)),
    "hyperu": Row(count=24, call=special.hyperu, arity=3, ordinary=uniform((0.3, 3), (0.3, 3), (0.3, 9)), exponents=(1, 0)),
    "hyp2f1": Row(
        count=16, call=special.hyp2f1, arity=4, ordinary=uniform((0.3, 4), (0.3, 4), (0.3, 4), (-0.9, 0.9)), exponents=(1, 0)
    ),
}
ROWS: dict[str, Row] = {**UNARY, **BINARY, **MORE}
EXACT_FORM = 24  # bits of ordinary numbers: numbers of both formats
ORDINARY = {1: 96, 2: 96, 3: 64, 4: 48}


def points(name: str) -> Array:
    """The points of a row, one line each, those of both formats; those that are no float32 are for float64 alone."""
    row = ROWS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    low, high = row.exponents
    if row.arity == 1:
        powers = np.ldexp(1.0, range(low, high + 1))
        ordinary = np.ldexp(1 + rng.random(ORDINARY[1]), rng.integers(max(low, -24), min(high, 11), ORDINARY[1]))
        ordinary = ordinary.astype(np.float32).astype(np.float64)
        x = np.concatenate([powers, ordinary, _around(row.near)])
        lines = np.unique(np.concatenate([x, -x]))[:, None]
    else:
        exponents = [k for k in range(-1056, 1024, 32) if low <= k <= high]
        signed = [s * np.ldexp(1.0, k) for k in exponents for s in (-1, 1)]
        grid = np.array(list(itertools.product(signed, repeat=row.arity))).reshape(-1, row.arity)
        assert row.ordinary is not None
        free = np.stack([np.asarray(v) for v in row.ordinary(rng, row.count or ORDINARY[row.arity])], axis=-1)
        lines = np.concatenate([grid, _short(free)])
    with np.errstate(all="ignore"):
        return lines[row.inside(*lines.T)]


def _short(x: Array) -> Array:
    """Numbers of as many digits as float32 has."""
    mantissa, exponent = np.frexp(x)
    with np.errstate(under="ignore"):
        return np.ldexp(np.rint(np.ldexp(mantissa, EXACT_FORM)), exponent - EXACT_FORM)


def _around(special_points: Sequence[float]) -> Array:
    """The neighbours of special points in both formats, and points at distances of powers of two."""
    lines = []
    for p in special_points:
        scale = 2.0 ** np.floor(np.log2(abs(p)))
        for kind, digits in ((np.float64, 52), (np.float32, 23)):
            if abs(p) >= float(np.finfo(kind).max):
                continue
            centre = kind(p)
            close = [centre, np.nextafter(centre, kind(np.inf)), np.nextafter(centre, kind(-np.inf))]
            close += [kind(centre + s * scale * 2.0**-j) for j in range(1, digits, 3 if digits < 30 else 5) for s in (-1, 1)]
            lines.append(np.asarray(close, np.float64))
    result = np.concatenate(lines) if lines else np.empty(0)
    return result[np.isfinite(result)]
