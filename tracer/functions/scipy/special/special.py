"""Functions of scipy.special that are composed: ufuncs without an op of their own, and functions of arrays.

Formulas are SciPy's (``scipy/special/_ufuncs.pyx`` and the headers of its library xsf), with its values at the edges of the
domain.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from pullback.ir import OPS
from pullback.tracer.arrays.arguments import refuse, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_shapes,
    broadcast_to,
    broadcast_together,
    cast,
    emit,
    full,
    promote,
    static_ints,
)
from pullback.tracer.arrays.promotion import late_composition
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.ufuncs import call_op
from pullback.tracer.functions.numpy.reductions import logsumexp
from pullback.tracer.user_code.errors import TraceError

Function = Any


def native(name: str) -> Function:
    """Return the op called ``name`` as a function of traced arrays and numbers."""
    return partial(call_op, OPS[name])


gammaln, digamma, betaln, gamma, expit, logit = map(native, ("gammaln", "digamma", "betaln", "gamma", "expit", "logit"))
ndtr, log_ndtr, ndtri, erf, erfc = map(native, ("ndtr", "log_ndtr", "ndtri", "erf", "erfc"))


def _ufunc(name: str) -> Any:
    """Register the decorated function as a ufunc of scipy.special; its operands have one shape and dtype."""
    return late_composition(f"scipy.special.{name}")


def _like(x: TracedArray, value: float) -> TracedArray:
    return full(x.shape, value, x.dtype)


# x log y and relatives


@_ufunc("xlogy")
def xlogy(x: Any, y: Any) -> Any:
    """Return x log y, 0 where x is 0; the derivative by x is log y there too, where the logarithm exists."""
    is_zero = (x == 0) & ((y <= 0) | (y == math.inf))
    return xp.where(is_zero, 0.0, x * xp.log(y))


@_ufunc("xlog1py")
def xlog1py(x: Any, y: Any) -> Any:
    is_zero = (x == 0) & ((y <= -1) | (y == math.inf))
    return xp.where(is_zero, 0.0, x * xp.log1p(y))


@_ufunc("entr")
def entr(x: Any) -> Any:
    return xp.where(x > 0, -x * xp.log(x), xp.where(x == 0, 0.0, xp.where(xp.isnan(x), x, -math.inf)))


@_ufunc("rel_entr")
def rel_entr(x: Any, y: Any) -> Any:
    inside = xp.where((x > 0) & (y > 0), x * xp.log(x / y), xp.where((x == 0) & (y >= 0), 0.0, math.inf))
    return xp.where(xp.isnan(x) | xp.isnan(y), math.nan, inside)


@_ufunc("kl_div")
def kl_div(x: Any, y: Any) -> Any:
    inside = xp.where((x > 0) & (y > 0), x * xp.log(x / y) - x + y, xp.where((x == 0) & (y >= 0), y, math.inf))
    return xp.where(xp.isnan(x) | xp.isnan(y), math.nan, inside)


# logistic functions


@_ufunc("softplus")
def softplus(x: Any) -> Any:
    return xp.logaddexp(0.0, x)


@_ufunc("log_expit")
def log_expit(x: Any) -> Any:
    return -xp.logaddexp(0.0, -x)


# losses and transforms


@_ufunc("huber")
def huber(delta: Any, r: Any) -> Any:
    size = xp.abs(r)
    return xp.where(delta < 0, math.inf, xp.where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta)))


@_ufunc("pseudo_huber")
def pseudo_huber(delta: Any, r: Any) -> Any:
    ratio = r / delta
    inside = delta * delta * xp.expm1(0.5 * xp.log1p(ratio * ratio))
    return xp.where(delta < 0, math.inf, xp.where((delta == 0) | ((r == 0) & ~xp.isfinite(delta)), 0.0, inside))


def log1prel(z: Any) -> Any:
    """Return log(1 + z) / z, for small z as a hypergeometric function, which has derivatives at 0."""
    is_small = xp.abs(z) < 0.5
    ones = _like(z, 1.0)
    series = emit("hyp2f1", ones, ones, _like(z, 2.0), -xp.where(is_small, z, 0.0))
    return xp.where(is_small, series, xp.log1p(z) / xp.where(is_small, 1.0, z))


@_ufunc("boxcox")
def boxcox(x: Any, lmbda: Any) -> Any:
    return _expm1_quotient(xp.log(x), lmbda, xp.abs(lmbda) < 1e-19)


@_ufunc("boxcox1p")
def boxcox1p(x: Any, lmbda: Any) -> Any:
    logarithm = xp.log1p(x)
    return _expm1_quotient(logarithm, lmbda, (xp.abs(lmbda) < 1e-19) | ((xp.abs(logarithm) < 1e-289) & (xp.abs(lmbda) < 1e273)))


def _expm1_quotient(logarithm: Any, lmbda: Any, is_log: Any) -> Any:
    """Return (exp(lmbda logarithm) - 1) / lmbda, continuous at lmbda = 0."""
    exponent = lmbda * logarithm
    is_small = (xp.abs(exponent) < 1.0) & xp.isfinite(lmbda)
    small = logarithm * emit("exprel", xp.where(is_small, exponent, 0.0))
    return xp.where(is_small | is_log, small, xp.expm1(exponent) / lmbda)


@_ufunc("inv_boxcox")
def inv_boxcox(y: Any, lmbda: Any) -> Any:
    return xp.exp(_log1p_quotient(y, lmbda))


@_ufunc("inv_boxcox1p")
def inv_boxcox1p(y: Any, lmbda: Any) -> Any:
    return xp.expm1(_log1p_quotient(y, lmbda))


def _log1p_quotient(y: Any, lmbda: Any) -> Any:
    """Return log(1 + lmbda y) / lmbda, continuous at lmbda = 0."""
    return xp.where(lmbda == 0, y * log1prel(lmbda * xp.where(xp.isinf(y), 0.0, y)), xp.log1p(lmbda * y) / lmbda)


# gamma functions and powers


@_ufunc("loggamma")
def loggamma(x: Any) -> Any:
    return xp.where(x < 0, math.nan, emit("gammaln", x))


@_ufunc("rgamma")
def rgamma(x: Any) -> Any:
    """Return 1 / gamma(x), below 0 by reflection (DLMF 5.5.3), which has no poles: its derivatives at the zeros are right too."""
    if x.dtype.kind == "c":
        return 1.0 / gamma(x)  # raises the error for complex gamma, which names the function
    least, largest = (-170.0, 1e308) if x.dtype.name == "float64" else (-34.0, 3e38)
    is_below, nearest = x < 0.5, xp.rint(x)
    is_far = (x == nearest) & (x < least)
    sign = 1.0 - 2.0 * xp.abs(xp.fmod(nearest, 2.0))
    mirrored = xp.where(is_far, largest, gamma(xp.where(is_below & ~is_far, 1.0 - x, 1.0)))
    below = sign * xp.sin(math.pi * (x - nearest)) / math.pi * mirrored
    result = xp.where(is_below, below, 1.0 / gamma(xp.where(is_below, 1.0, x)))
    return xp.where(x == -math.inf, 0.0, result)


@_ufunc("exp10")
def exp10(x: Any) -> Any:
    return emit("pow", _like(x, 10.0), x)


@_ufunc("powm1")
def powm1(x: Any, y: Any) -> Any:
    """Return x**y - 1, by expm1 of the logarithm for positive x."""
    product = y * xp.log(x)
    return xp.where((x > 0) & ~xp.isnan(product), xp.expm1(product), x**y - 1.0)


@_ufunc("cosm1")
def cosm1(x: Any) -> Any:
    half = xp.sin(0.5 * x)
    return -2.0 * half * half


@twin_of("scipy.special.polygamma")
def polygamma(n: Any, x: Any) -> Any:
    order = np.asarray(n) if not isinstance(n, TracedArray) else None
    if order is not None and order.size == 1 and order == int(order):
        argument = cast(as_traced(x), np.float64)
        argument = broadcast_to(argument, broadcast_shapes(argument.shape, order.shape))
        return emit("digamma", argument) if int(order) < 1 else emit("polygamma", argument, n=int(order))
    k, y = broadcast_together(*(cast(as_traced(v), np.float64) for v in (n, x)))
    sign = 1.0 - 2.0 * ((k + 1.0) % 2.0)
    return xp.where(k == 0, emit("digamma", y), sign * gamma(k + 1.0) * emit("zeta", k + 1.0, y))


@twin_of("scipy.special.zeta")
def zeta(x: Any, q: Any = None, out: Any = None) -> Any:
    refuse("scipy.special.zeta", out=out)
    return native("riemann_zeta")(x) if q is None else native("zeta")(x, q)


@_ufunc("agm")
def agm(a: Any, b: Any) -> Any:
    """Return the arithmetic-geometric mean, by the complete elliptic integral (DLMF 19.8.5)."""
    mean = 0.5 * (a + b)
    is_zero = (a == 0) | (b == 0)
    complement = xp.where(is_zero, 1.0, a / xp.where(is_zero, 1.0, mean) * (b / xp.where(is_zero, 1.0, mean)))
    result = xp.where(is_zero, 0.0, 0.5 * math.pi * mean / emit("ellipkm1", complement))
    is_bad = ((a > 0) & (b < 0)) | ((a < 0) & (b > 0)) | xp.isnan(a * b)
    return xp.where(is_bad, math.nan, xp.where(xp.isinf(mean), mean, result))


@twin_of("scipy.special.multigammaln")
def multigammaln(a: Any, d: Any) -> Any:
    d = static_ints(d)
    if not isinstance(d, int | np.integer):
        raise ValueError("d should be a positive integer (dimension)")
    x: Any = cast(as_traced(a), np.float64)
    terms = [gammaln(x - 0.5 * j) for j in range(d)]
    return sum(terms[1:], terms[0]) + (d * (d - 1) * 0.25) * math.log(math.pi)


@twin_of("scipy.special.comb")
def comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    if exact:
        raise TraceError("scipy.special.comb of traced values with exact=True is not supported; leave it out")
    if repetition:
        return comb(N + k - 1, k)
    n, m = broadcast_together(*(cast(x, np.float64) for x in promote(as_traced(N), as_traced(k))))
    return xp.where((m <= n) & (n >= 0) & (m >= 0), emit("binom", n, m), 0.0)


@twin_of("scipy.special.factorial")
def factorial(n: Any, exact: bool = False, **kwargs: Any) -> Any:
    if exact or kwargs:
        raise TraceError("scipy.special.factorial of traced values is the gamma function: leave out exact= and extend=")
    x = cast(as_traced(n), np.float64)
    return xp.where(x < 0, 0.0, gamma(x + 1.0))


@twin_of("scipy.special.perm")
def perm(N: Any, k: Any, exact: bool = False) -> Any:
    if exact:
        raise TraceError("scipy.special.perm of traced values with exact=True is not supported; leave it out")
    n, m = broadcast_together(*(cast(as_traced(x), np.float64) for x in (N, k)))
    return xp.where((m <= n) & (n >= 0) & (m >= 0), emit("poch", n - m + 1.0, m), 0.0)


# ufuncs with several results


def _register_parts(name: str, *parts: str) -> None:
    @_ufunc(name)
    def evaluate(*operands: Any) -> Any:
        return tuple(emit(f"{name}_{part}", *operands) for part in parts)


_register_parts("airy", "ai", "aip", "bi", "bip")
_register_parts("sici", "si", "ci")
_register_parts("shichi", "shi", "chi")
_register_parts("fresnel", "s", "c")
_register_parts("ellipj", "sn", "cn", "dn", "ph")

# functions of arrays


@twin_of("scipy.special.softmax")
def softmax(x: Any, axis: Any = None) -> Any:
    a = _float(x)
    shifted = xp.exp(a - xp.max(a, axis=axis, keepdims=True))
    return shifted / xp.sum(shifted, axis=axis, keepdims=True)


@twin_of("scipy.special.log_softmax")
def log_softmax(x: Any, axis: Any = None) -> Any:
    a = _float(x)
    return a - logsumexp(a, axis=axis, keepdims=True)


def _float(x: Any) -> TracedArray:
    array = as_traced(x)
    return array if array.dtype.kind == "f" else cast(array, np.float64)
