"""SciPy's gamma, beta and error functions: native calls of ufuncs on the CPU, with derivative rules.

Formulas: NIST Digital Library of Mathematical Functions, chapters 5 (gamma), 7 (error functions), 8 (incomplete gamma and
beta); Owen, Tables for computing bivariate normal probabilities, 1956.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise import semantics
from pullback.ir.ops.elementwise.elementwise import Elementwise, Partial, const_like, each, no, with_value
from pullback.ir.ops.elementwise.native_ufunc import in_double, less, row, scaled, shifted, slope, steepness, where

LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


def _normal(b: Any, x: Value) -> Value:
    """Return the logarithm of the normal density."""
    return shifted(b, scaled(b, b.mul(x, x), -0.5), -LOG_SQRT_2PI)


def _op(name: str, reference: Any, *partials: Partial, **properties: Any) -> Elementwise:
    """Return the record of a function that is lowered as a recipe; ``properties`` are further fields of the record."""
    return Elementwise(name=name, reference=reference, arity=len(partials), pullback=each(*partials), **properties)


STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
"""The coefficients of Stirling's series for log gamma in 1 / a, lowest order first."""
STIRLING_START = 10.0
"""The argument from which Stirling's formula gives gamma(a) to full precision."""
EXP_UNDERFLOW = 4096.0
"""The argument from which exp(-x) is 0 even in float64; below it no power with an exponent below ``STIRLING_START`` overflows."""


def _gamma_density(b: Any, a: Value, x: Value) -> Value:
    """Return exp(-x) x^(a - 1) / gamma(a). Where a is large, it is computed from the relative deviation of x from a, so that
    large terms do not cancel (C. Loader, Fast and accurate computation of binomial probabilities, 2000)."""
    one = const_like(b, 1, x)
    is_large = b.ge(a, const_like(b, STIRLING_START, a))
    small, large = where(b, is_large, one, a), where(b, is_large, a, STIRLING_START)
    power = b.pow(b.minimum(x, const_like(b, EXP_UNDERFLOW, x)), shifted(b, small, -1.0))
    small_density = b.mul(power, b.exp(b.neg(b.add(x, b.gammaln(small)))))
    argument = where(b, is_large, x, STIRLING_START)
    deviation = b.div(b.sub(argument, large), large)
    is_near = less(b, b.abs(deviation), 0.5)
    logarithm = b.select(is_near, b.log1p(where(b, is_near, deviation, 0.0)), b.log(b.div(argument, large)))
    inverse = b.div(one, large)
    square, series = b.mul(inverse, inverse), const_like(b, STIRLING[-1], x)
    for coefficient in reversed(STIRLING[:-1]):
        series = shifted(b, b.mul(series, square), coefficient)
    exponent = b.add(b.mul(large, b.sub(logarithm, deviation)), b.neg(b.mul(series, inverse)))
    large_density = b.div(b.mul(b.exp(exponent), b.sqrt(scaled(b, large, 0.5 / math.pi))), argument)
    return where(b, is_large, large_density, small_density)


def _beta_density(b: Any, p: Value, q: Value, x: Value) -> Value:
    """Return x^(p - 1) (1 - x)^(q - 1) / beta(p, q)."""
    complement = b.sub(const_like(b, 1, x), x)
    powers = b.mul(b.pow(x, shifted(b, p, -1.0)), b.pow(complement, shifted(b, q, -1.0)))
    density: Value = b.mul(powers, b.exp(b.neg(b.betaln(p, q))))
    return density


def _student_density(b: Any, df: Value, t: Value) -> Value:
    half, more = scaled(b, df, 0.5), scaled(b, shifted(b, df, 1.0), 0.5)
    size = b.neg(b.add(b.betaln(half, const_like(b, 0.5, df)), scaled(b, b.log(df), 0.5)))
    density: Value = b.exp(b.sub(size, b.mul(more, b.log1p(b.div(b.mul(t, t), df)))))
    return density


def _where_positive(b: Any, condition: Value, density: Value, factor: Value) -> Value:
    """Return the product where the condition holds and the density is above 0, else 0."""
    zero = b.zeros_like(density)
    product: Value = b.select(b.bitand(condition, b.gt(density, zero)), b.mul(density, factor), zero)
    return product


def _from_one(b: Any, a: Value) -> tuple[Value, Value]:
    """Return whether a parameter is below 1, and the parameter, plus 1 where it is below 1."""
    is_small = less(b, a, 1.0)
    return is_small, where(b, is_small, shifted(b, a, 1.0), a)


def _width(b: Any, a: Value, ratio: Value) -> Value:
    """Return the length on which an incomplete function changes with a parameter: sqrt(a), or 1 / log(ratio) in its tails."""
    steep = shifted(b, steepness(b, ratio), -1.0)
    length: Value = b.div(const_like(b, 1, a), b.add(b.div(const_like(b, 1, a), b.sqrt(a)), steep))
    return length


def _gamma_slope(op: str, sign: float) -> Any:
    """Return the derivative of gammainc or gammaincc by a, as a function. For a below 1 it is taken at a + 1, and the
    derivative of the difference is added (DLMF 8.8.5)."""

    def by_shape(b: Any, a: Value, x: Value) -> Value:
        is_small, top = _from_one(b, a)
        inside = slope(b, lambda t: getattr(b, op)(t, x), top, _width(b, top, b.div(x, top)))
        more = shifted(b, a, 1.0)
        step = b.exp(b.sub(b.sub(b.mul(a, b.log(x)), x), b.gammaln(more)))
        difference = _where_positive(b, is_small, step, b.sub(b.log(x), b.digamma(more)))
        total: Value = b.add(inside, scaled(b, difference, sign))
        return total

    return by_shape


def _beta_slope(op: str, position: int, sign: float) -> Any:
    """Return the derivative of betainc or betaincc by p or q, as a function. For a parameter below 1 it is taken at one more
    (DLMF 8.17.20, 8.17.21)."""

    def by_parameter(b: Any, p: Value, q: Value, x: Value) -> Value:
        parameter, other = (q, p) if position else (p, q)
        side = b.sub(const_like(b, 1, x), x) if position else x
        is_small, top = _from_one(b, parameter)
        length = _width(b, top, b.mul(side, b.div(b.add(top, other), top)))
        inside = slope(b, lambda t: getattr(b, op)(*((p, t) if position else (t, q)), x), top, length)
        log_complement = b.log1p(b.neg(x))
        step = b.div(b.exp(b.sub(b.add(b.mul(p, b.log(x)), b.mul(q, log_complement)), b.betaln(p, q))), parameter)
        factor = b.sub(
            b.add(log_complement if position else b.log(x), b.digamma(b.add(p, q))), b.digamma(shifted(b, parameter, 1.0))
        )
        total: Value = b.add(inside, scaled(b, _where_positive(b, is_small, step, factor), sign))
        return total

    return by_parameter


def _student_slope(b: Any, df: Value, t: Value) -> Value:
    """Return the derivative of stdtr by df."""
    length = b.div(df, steepness(b, shifted(b, b.div(b.mul(t, t), df), 1.0)))
    return slope(b, lambda at: b.stdtr(at, t), df, length)


def _partial(derivative: Any) -> Any:
    """Return the partial with this derivative, computed in float64."""
    return in_double(lambda b, ct, out, *operands: b.mul(ct, derivative(b, *operands)))


def _inverse(derivative: Any, density: Any, sign: float = -1.0) -> Any:
    """Return the partial by a parameter of the inverse of a function in its last operand: minus the function's derivative by
    the parameter, over its density."""

    def partial(b: Any, ct: Value, out: Value, *operands: Value) -> Value:
        arguments = (*operands[:-1], out)
        total: Value = b.mul(ct, scaled(b, b.div(derivative(b, *arguments), density(b, *arguments)), sign))
        return total

    return in_double(partial)


# gamma and beta

gamma = row("gamma", lambda b, ct, out, x: b.mul(ct, b.mul(out, b.digamma(x))), cuda="tgamma({0})")
digamma_step = _op(
    "digamma_step", semantics.digamma_step, lambda b, ct, out, x, d: b.mul(ct, b.trigamma_step(x, d)),
    lambda b, ct, out, x, d: b.mul(ct, b.polygamma(b.add(x, d), n=1)), cuda="pb_polygamma_step({0}, {1}, 0)",
)  # fmt: skip
"""digamma(x + d) - digamma(x), to full precision where both are nearly equal."""
trigamma_step = _op(
    "trigamma_step", semantics.trigamma_step,
    lambda b, ct, out, x, d: b.mul(ct, b.sub(b.polygamma(b.add(x, d), n=2), b.polygamma(x, n=2))),
    lambda b, ct, out, x, d: b.mul(ct, b.polygamma(b.add(x, d), n=2)), cuda="pb_polygamma_step({0}, {1}, 1)",
)  # fmt: skip
# In float32 the quotient of two arguments may overflow where the derivative does not.
betaln = row(
    "betaln",
    in_double(lambda b, ct, out, p, q: b.neg(b.mul(ct, b.digamma_step(p, q)))),
    in_double(lambda b, ct, out, p, q: b.neg(b.mul(ct, b.digamma_step(q, p)))),
)
beta = row(
    "beta",
    in_double(lambda b, ct, out, p, q: b.neg(b.mul(ct, b.mul(out, b.digamma_step(p, q))))),
    in_double(lambda b, ct, out, p, q: b.neg(b.mul(ct, b.mul(out, b.digamma_step(q, p))))),
)


def _binom_step(b: Any, n: Value, k: Value) -> Value:
    """Return digamma(n - k + 1) - digamma(k + 1)."""
    difference: Value = b.digamma_step(shifted(b, k, 1.0), b.sub(b.sub(n, k), k))
    return difference


binom = row(
    "binom",
    in_double(lambda b, ct, out, n, k: b.mul(ct, b.mul(out, b.digamma_step(shifted(b, b.sub(n, k), 1.0), k)))),
    in_double(lambda b, ct, out, n, k: b.mul(ct, b.mul(out, _binom_step(b, n, k)))),
)
_P, _Q = _gamma_slope("gammainc", 1.0), _gamma_slope("gammaincc", -1.0)
gammainc = row("gammainc", _partial(_P), in_double(lambda b, ct, out, a, x: b.mul(ct, _gamma_density(b, a, x))))
gammaincc = row("gammaincc", _partial(_Q), in_double(lambda b, ct, out, a, x: b.neg(b.mul(ct, _gamma_density(b, a, x)))))
gammaincinv = row("gammaincinv", _inverse(_P, _gamma_density), lambda b, ct, out, a, y: b.div(ct, _gamma_density(b, a, out)))
gammainccinv = row(
    "gammainccinv", _inverse(_Q, _gamma_density, 1.0), lambda b, ct, out, a, y: b.neg(b.div(ct, _gamma_density(b, a, out)))
)
_I = [_beta_slope("betainc", position, sign) for position, sign in ((0, 1.0), (1, -1.0))]
_J = [_beta_slope("betaincc", position, sign) for position, sign in ((0, -1.0), (1, 1.0))]
betainc = row("betainc", *map(_partial, _I), in_double(lambda b, ct, out, p, q, x: b.mul(ct, _beta_density(b, p, q, x))))
betaincc = row("betaincc", *map(_partial, _J), in_double(lambda b, ct, out, p, q, x: b.neg(b.mul(ct, _beta_density(b, p, q, x)))))
betaincinv = row(
    "betaincinv", *(_inverse(f, _beta_density) for f in _I), lambda b, ct, out, p, q, y: b.div(ct, _beta_density(b, p, q, out))
)
betainccinv = row(
    "betainccinv",
    *(_inverse(f, _beta_density, 1.0) for f in _J),
    lambda b, ct, out, p, q, y: b.neg(b.div(ct, _beta_density(b, p, q, out))),
)
stdtr = row("stdtr", _partial(_student_slope), in_double(lambda b, ct, out, df, t: b.mul(ct, _student_density(b, df, t))))
stdtrit = row(
    "stdtrit", _inverse(_student_slope, _student_density), lambda b, ct, out, df, p: b.div(ct, _student_density(b, df, out))
)

# the logistic distribution, the normal distribution and error functions

logit = row(
    "logit",
    lambda b, ct, out, p: b.add(b.div(ct, p), b.div(ct, b.sub(const_like(b, 1, p), p))),
    llvm="recipe",
    cuda="({0} > 0.3 && {0} < 0.65 ? 2 * atanh(2 * {0} - 1) : log({0} / (1 - {0})))",
)

logistic_logpdf = _op(
    "logistic_logpdf", semantics.logistic_logpdf, lambda b, ct, out, x: b.neg(b.mul(ct, b.tanh(scaled(b, x, 0.5)))),
    cuda="(-fabs({0}) - 2 * log1p(exp(-fabs({0}))))",
)  # fmt: skip
normal_pdf = _op(
    "normal_pdf", semantics.normal_pdf, lambda b, ct, out, x: b.neg(b.mul(ct, b.mul(x, out))),
    cuda="(pb_gauss({0}, 0.5) * 0.3989422804014327)", parity="even", finite=True,
)  # fmt: skip
ndtr = row("ndtr", lambda b, ct, out, x: b.mul(ct, b.normal_pdf(x)), llvm="recipe", cuda="normcdf({0})")

inverse_mills = _op(
    "inverse_mills", semantics.inverse_mills, lambda b, ct, out, x: b.neg(b.mul(ct, b.mul(out, b.mills_gap(x)))),
    cuda="pb_inverse_mills({0})",
)  # fmt: skip
"""The normal density over the normal distribution function, the derivative of log_ndtr."""
mills_gap = _op(
    "mills_gap", semantics.mills_gap,
    lambda b, ct, out, x: b.mul(ct, b.sub(const_like(b, 1, x), b.mul(b.inverse_mills(x), out))), cuda="pb_mills_gap({0})",
)  # fmt: skip
"""x + inverse_mills(x), which tends to -1 / x for large negative x."""
log_ndtr = row(
    "log_ndtr", lambda b, ct, out, x: b.mul(ct, b.inverse_mills(x)), llvm="recipe",
    cuda="({0} < -1 ? log(erfcx({0} * -0.7071067811865476) / 2) - {0} * {0} / 2 : log1p(-normcdf(-{0})))",
)  # fmt: skip


normal_pdf_at = with_value("normal_pdf_at", lambda b, ct, out, value, x: b.neg(b.mul(ct, b.mul(x, out))))
"""The normal density at a quantile. The derivative of its formula by the probability is a sum of terms that overflow with
opposite signs."""
exp_square_at = with_value("exp_square_at", lambda b, ct, out, value, x: b.mul(ct, scaled(b, b.mul(x, out), 2.0)))
"""exp(x**2) at a value of erfcinv, for the same reason as ``normal_pdf_at``."""
inverse_mills_at = with_value("inverse_mills_at", lambda b, ct, out, value, x: b.neg(b.mul(ct, b.mul(out, b.mills_gap(x)))))
"""inverse_mills at a value of ndtri_exp, for the same reason as ``normal_pdf_at``."""


def _ndtri(b: Any, ct: Value, out: Value, p: Value) -> Value:
    """Return ct over the density at ``out``, which is the smaller of p and 1 - p times its inverse Mills ratio: the square of
    ``out`` would carry a rounding error in proportion to the square."""
    complement = b.sub(const_like(b, 1, p), p)
    density = b.mul(b.minimum(p, complement), b.inverse_mills(b.neg(b.abs(out))))
    result: Value = b.div(ct, b.normal_pdf_at(density, out))
    return result


ndtri = row("ndtri", _ndtri, llvm="recipe", cuda="normcdfinv({0})")
erfinv = row(
    "erfinv", lambda b, ct, out, y: b.mul(ct, scaled(b, b.exp(b.mul(out, out)), math.sqrt(math.pi) / 2)),
    llvm="recipe", cuda="erfinv({0})",
)  # fmt: skip


def _erfcinv(b: Any, ct: Value, out: Value, y: Value) -> Value:
    """Return the partial, -sqrt(pi) / 2 exp(out^2), by erfcx of ``out`` over y, or over 2 - y for negative ``out``."""
    side = b.minimum(y, b.sub(const_like(b, 2, y), y))
    inverse = b.exp_square_at(b.div(b.erfcx(b.abs(out)), side), out)
    result: Value = b.mul(ct, scaled(b, inverse, -math.sqrt(math.pi) / 2))
    return result


erfcinv = Elementwise(
    name="erfcinv", reference=semantics.erfcinv, also=("scipy.special.erfcinv",), arity=1, llvm="recipe", cuda="erfcinv({0})",
    pullback=each(_erfcinv),
)  # fmt: skip
erfcx = row("erfcx", lambda b, ct, out, x: b.mul(ct, scaled(b, b.ierfcx(x), -2.0)), llvm="recipe", cuda="erfcx({0})")
# exp(x**2) times the repeated integrals of erfc; each is the derivative of the previous one up to a factor (DLMF 7.18.3)
ierfcx = _op("ierfcx", semantics.ierfcx, lambda b, ct, out, x: b.mul(ct, scaled(b, b.i2erfcx(x), -4.0)), cuda="pb_ierfcx({0}, 1)")
i2erfcx = _op(
    "i2erfcx", semantics.i2erfcx, lambda b, ct, out, x: b.mul(ct, b.sub(scaled(b, b.mul(x, out), 2.0), b.ierfcx(x))),
    cuda="pb_ierfcx({0}, 2)",
)  # fmt: skip
owens_t = row(
    "owens_t",
    lambda b, ct, out, h, a: b.mul(ct, b.mul(b.normal_pdf(h), scaled(b, b.erf(scaled(b, b.mul(a, h), math.sqrt(0.5))), -0.5))),
    lambda b, ct, out, h, a: b.mul(
        ct,
        b.div(
            b.exp(scaled(b, b.mul(b.mul(h, h), shifted(b, b.mul(a, a), 1.0)), -0.5)),
            scaled(b, shifted(b, b.mul(a, a), 1.0), 2.0 * math.pi),
        ),
    ),
)

# draws that depend on a parameter as the quantile at a fixed level does (Figurnov, Mohamed, Mnih, Implicit reparameterization
# gradients, 2018): the derivative is the derivative of the distribution function by the parameter, over minus the density


class Draw(Elementwise):
    """A draw with a derivative by its parameter. Operands: a parameter and a value drawn with it, which is the result."""


NODES = 72
"""The number of nodes of the double-exponential rule for integrals over [0, infinity) (Takahasi, Mori, 1974)."""
_FIRST, _LAST = -4.2, 6.2


def log_gamma_slope(b: Any, a: Value, x: Value) -> Value:
    """Return the derivative by the shape ``a`` of the quantile ``x`` of the logarithm of a gamma variable: the integral of
    (log t - digamma(a)) times the density from exp(x) to infinity, or minus the integral from 0, over the density of the
    logarithm at x."""
    shape = (*x.type.shape, NODES)
    last = len(shape) - 1

    def along_nodes(v: Value) -> Value:
        result: Value = b.broadcast(v, axes=(last,), shape=shape)
        return result

    def one(v: Value) -> Value:
        return const_like(b, 1, v)

    z = b.exp(x)
    position = b.cast(b.iota(shape=shape, axis=last, dtype=x.type.dtype), dtype=x.type.dtype)
    step = (_LAST - _FIRST) / (NODES - 1)
    s = shifted(b, scaled(b, position, step), _FIRST)
    sharp = b.exp(b.neg(s))
    node, weight = b.exp(b.sub(s, sharp)), scaled(b, shifted(b, sharp, 1.0), step)
    root = b.sqrt(shifted(b, z, 1.0))
    below = b.le(z, a)
    scale = b.div(
        one(z), b.select(below, b.add(b.sub(a, z), b.div(z, root)), b.add(b.sub(one(z), b.div(a, z)), b.div(one(z), root)))
    )
    y = b.mul(node, along_nodes(scale))
    is_below, shape_, top = along_nodes(below), along_nodes(a), along_nodes(z)
    ratio = b.log1p(b.div(y, b.select(is_below, one(y), top)))
    level = b.select(is_below, b.neg(y), ratio)
    under = b.neg(b.add(b.mul(shape_, y), b.mul(top, b.expm1(b.neg(y)))))
    over = b.sub(b.mul(shifted(b, shape_, -1.0), ratio), y)
    density = b.exp(b.select(is_below, under, over))
    terms = b.mul(b.mul(b.add(along_nodes(b.sub(x, b.digamma(a))), level), density), b.mul(weight, y))
    total = b.sum(terms, axes=(last,))
    derivative: Value = b.select(below, b.neg(total), b.div(total, z))
    return derivative


def _inverse_gaussian_slope(b: Any, mean: Value, x: Value) -> Value:
    """Return the derivative by the mean of the quantile ``x`` of an inverse Gaussian variable of shape 1."""
    root = b.sqrt(x)
    upper = b.div(shifted(b, b.div(x, mean), 1.0), root)
    gap = b.div(b.sub(x, mean), mean)
    log_density = b.sub(shifted(b, scaled(b, b.log(x), -1.5), -LOG_SQRT_2PI), b.div(scaled(b, b.mul(gap, gap), 0.5), x))
    power = b.sub(b.add(b.div(const_like(b, 2, mean), mean), b.log_ndtr(b.neg(upper))), log_density)
    derivative: Value = b.mul(b.div(const_like(b, 2, mean), b.mul(mean, mean)), b.exp(power))
    return derivative


def _draw(name: str, rate: Any) -> Draw:
    return Draw(
        name=name, reference=lambda parameter, x: np.array(x), arity=2, cuda="{1}",
        pullback=each(lambda b, ct, out, parameter, x: b.mul(ct, rate(b, parameter, out)), no),
    )  # fmt: skip


log_gamma_draw = _draw("log_gamma_draw", log_gamma_slope)
inverse_gaussian_draw = _draw("inverse_gaussian_draw", _inverse_gaussian_slope)
