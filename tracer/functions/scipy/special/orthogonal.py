"""scipy.special functions with an order: orthogonal polynomials, Bessel functions of integer order, and others.

Polynomials of static degree are computed by their recurrences, which have derivatives of every order; the others by
hypergeometric functions. Formulas: NIST Digital Library of Mathematical Functions, chapters 10 and 18.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import refuse, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_shapes,
    broadcast_together,
    cast,
    emit,
    full,
    promote,
    static_array,
    static_ints,
)
from pullback.tracer.arrays.promotion import late_composition
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.scipy.special.special import gamma, native
from pullback.tracer.user_code.errors import TraceError

jv, yv, iv, kv = map(native, ("jv", "yv", "iv", "kv"))
hyp0f1, hyp1f1, hyp2f1, poch = map(native, ("hyp0f1", "hyp1f1", "hyp2f1", "poch"))

Recurrence = Callable[[int, Any, Any], Any]
MOST_DEGREES = 512
"""The largest degree whose recurrence is unrolled."""


def _floats(*xs: Any) -> list[Any]:
    """Convert the arguments to the dtype of SciPy's result: float32 if all are, else float64."""
    promoted = promote(*(as_traced(x) for x in xs))
    return [cast(x, x.dtype if x.dtype.kind == "f" and x.dtype.itemsize > 2 else np.float64) for x in promoted]


def _static_orders(n: Any) -> np.ndarray[Any, Any] | None:
    """Return the orders as an integer array if they are static and integral, else None."""
    static = static_array(n)
    if isinstance(static, TracedArray):
        return None
    values = np.asarray(static)
    return values.astype(np.int64) if values.size and np.all(values == np.round(values)) else None


def _by_order(orders: np.ndarray[Any, Any], of: Callable[[int], Any], like: Any) -> Any:
    """Return ``of(order)`` elementwise: each position has the value for its order. ``orders`` broadcast with the array
    ``like``."""
    shape = broadcast_shapes(orders.shape, like.shape)
    order_at = np.broadcast_to(orders, shape)
    total: Any = None
    for n in sorted(set(orders.ravel().tolist())):
        value = xp.broadcast_to(of(n), shape)
        total = value if total is None else xp.where(order_at == n, value, total)
    return total


# orthogonal polynomials


def _by_recurrence(n: int, first: Any, second: Any, step: Recurrence) -> Any:
    """Return the polynomial of degree n; ``step(k, p, q)`` returns degree k + 1 from the polynomials p of degree k and q of
    degree k - 1."""
    if n == 0:
        return first
    previous, current = first, second
    for k in range(1, n):
        previous, current = current, step(k, current, previous)
    return current


def _jacobi(n: int, x: Any, a: Any, b: Any) -> Any:
    def step(k: int, p: Any, q: Any) -> Any:
        c = 2 * k + a + b
        top = (c + 1) * ((c + 2) * c * x + (a * a - b * b)) * p - 2 * (k + a) * (k + b) * (c + 2) * q
        return top / (2 * (k + 1) * (k + a + b + 1) * c)

    return _by_recurrence(n, 1.0 + 0.0 * x, (a + 1.0) + 0.5 * (a + b + 2.0) * (x - 1.0), step)


def _gegenbauer(n: int, x: Any, a: Any) -> Any:
    def step(k: int, p: Any, q: Any) -> Any:
        return (2.0 * (k + a) * x * p - (k + 2.0 * a - 1.0) * q) / (k + 1.0)

    return _by_recurrence(n, 1.0 + 0.0 * x, 2.0 * a * x, step)


def _legendre(n: int, x: Any) -> Any:
    return _by_recurrence(n, 1.0 + 0.0 * x, x, lambda k, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1))


def _chebyt(n: int, x: Any) -> Any:
    return _by_recurrence(abs(n), 1.0 + 0.0 * x, x, lambda k, p, q: 2.0 * x * p - q)


def _chebyu(n: int, x: Any) -> Any:
    return _by_recurrence(n, 1.0 + 0.0 * x, 2.0 * x, lambda k, p, q: 2.0 * x * p - q)


def _hermite(n: int, x: Any) -> Any:
    return _by_recurrence(n, 1.0 + 0.0 * x, 2.0 * x, lambda k, p, q: 2.0 * x * p - 2.0 * k * q)


def _hermitenorm(n: int, x: Any) -> Any:
    return _by_recurrence(n, 1.0 + 0.0 * x, x, lambda k, p, q: x * p - k * q)


def _genlaguerre(n: int, x: Any, a: Any) -> Any:
    return _by_recurrence(n, 1.0 + 0.0 * x, 1.0 + a - x, lambda k, p, q: ((2 * k + 1 + a - x) * p - (k + a) * q) / (k + 1))


def _laguerre(n: int, x: Any) -> Any:
    return _genlaguerre(n, x, 0.0)


# polynomials of traced degree


def _legendre_of(n: Any, x: Any) -> Any:
    return hyp2f1(-n, n + 1.0, 1.0, 0.5 * (1.0 - x))


def _chebyt_of(n: Any, x: Any) -> Any:
    return hyp2f1(-n, n, 0.5, 0.5 * (1.0 - x))


def _chebyu_of(n: Any, x: Any) -> Any:
    return (n + 1.0) * hyp2f1(-n, n + 2.0, 1.5, 0.5 * (1.0 - x))


def _binomial(n: Any, k: Any) -> Any:
    return emit("binom", *broadcast_together(*promote(as_traced(n), as_traced(k))))


def _jacobi_of(n: Any, x: Any, a: Any, b: Any) -> Any:
    return _binomial(n + a, n) * hyp2f1(-n, n + a + b + 1.0, a + 1.0, 0.5 * (1.0 - x))


def _gegenbauer_of(n: Any, x: Any, a: Any) -> Any:
    return gamma(n + 2.0 * a) / (gamma(n + 1.0) * gamma(2.0 * a)) * hyp2f1(-n, n + 2.0 * a, a + 0.5, 0.5 * (1.0 - x))


def _genlaguerre_of(n: Any, x: Any, a: Any) -> Any:
    return _binomial(n + a, n) * hyp1f1(-n, a + 1.0, x)


def _laguerre_of(n: Any, x: Any) -> Any:
    return hyp1f1(-n, 1.0, x)


def _register_polynomial(name: str, of_static: Callable[..., Any], of_any: Callable[..., Any] | None, map_x: Any = None) -> None:
    """Register scipy.special.eval_NAME(n, *parameters, x). ``map_x``: a function applied to x first."""

    def evaluate(n: Any, *rest: Any, **kwargs: Any) -> Any:
        refuse(f"eval_{name}", **kwargs)
        *parameters, x = _floats(*rest)
        x = x if map_x is None else map_x(x)
        orders = _static_orders(n)
        least = -MOST_DEGREES if name.endswith("chebyt") else 0
        if orders is not None and least <= orders.min() and orders.max() <= MOST_DEGREES:
            like = xp.broadcast_arrays(x, *parameters)[0]
            return _by_order(orders, lambda k: of_static(k, x, *parameters), like)
        if of_any is None:
            raise TraceError(f"scipy.special.eval_{name} of a traced degree is not supported; pass it as a constant integer")
        return of_any(cast(as_traced(n), x.dtype), x, *parameters)

    twin_of(f"scipy.special.eval_{name}")(evaluate)


def _to_unit(x: Any) -> Any:
    return 2.0 * x - 1.0


def _half(x: Any) -> Any:
    return 0.5 * x


_register_polynomial("legendre", _legendre, _legendre_of)
_register_polynomial("sh_legendre", _legendre, _legendre_of, _to_unit)
_register_polynomial("chebyt", _chebyt, _chebyt_of)
_register_polynomial("sh_chebyt", _chebyt, _chebyt_of, _to_unit)
_register_polynomial("chebyu", _chebyu, _chebyu_of)
_register_polynomial("sh_chebyu", _chebyu, _chebyu_of, _to_unit)
_register_polynomial("chebyc", lambda n, x: 2.0 * _chebyt(n, x), lambda n, x: 2.0 * _chebyt_of(n, x), _half)
_register_polynomial("chebys", _chebyu, _chebyu_of, _half)
_register_polynomial("hermite", _hermite, None)
_register_polynomial("hermitenorm", _hermitenorm, None)
_register_polynomial("laguerre", _laguerre, _laguerre_of)
_register_polynomial("genlaguerre", lambda n, x, a: _genlaguerre(n, x, a), _genlaguerre_of)
_register_polynomial("gegenbauer", _gegenbauer, _gegenbauer_of)
_register_polynomial("jacobi", _jacobi, _jacobi_of)


# exponential integrals and polygamma functions


@twin_of("scipy.special.expn")
def expn(n: Any, x: Any, **kwargs: Any) -> Any:
    refuse("expn", **kwargs)
    orders = _static_orders(n)
    if orders is None:
        raise TraceError("scipy.special.expn of a traced order is not supported; pass it as a constant integer")
    (arg,) = _floats(x)
    return _by_order(orders, lambda k: emit("expn", arg, n=k) if k >= 0 else full(arg.shape, math.nan, arg.dtype), arg)


# Bessel functions


@late_composition("scipy.special.yn")
def yn(n: Any, x: Any) -> Any:
    return emit("yv", xp.trunc(cast(n, x.dtype)), x)


@late_composition("scipy.special.kn")
def kn(n: Any, x: Any) -> Any:
    return emit("kv", xp.trunc(cast(n, x.dtype)), x)


def _register_derivative(name: str, function: Callable[..., Any], sign: float) -> None:
    """Register scipy.special.NAME(v, z, n), the n-th derivative of a Bessel function."""

    def evaluate(v: Any, z: Any, n: Any = 1) -> Any:
        n = static_ints(n)
        if not isinstance(n, int | np.integer) or n < 0:
            raise ValueError("n must be a non-negative integer.")
        order, x = _floats(v, z)
        total: Any = None
        for k in range(int(n) + 1):
            term = sign**k * math.comb(n, k) * function(order - n + 2 * k, x)
            total = term if total is None else total + term
        return total / 2.0 ** int(n)

    twin_of(f"scipy.special.{name}")(evaluate)


_register_derivative("jvp", jv, -1.0)
_register_derivative("yvp", yv, -1.0)
_register_derivative("ivp", iv, 1.0)


@twin_of("scipy.special.kvp")
def kvp(v: Any, z: Any, n: Any = 1) -> Any:
    n = static_ints(n)
    if not isinstance(n, int | np.integer) or n < 0:
        raise ValueError("n must be a non-negative integer.")
    order, x = _floats(v, z)
    terms = [math.comb(n, k) * kv(order - n + 2 * k, x) for k in range(int(n) + 1)]
    return sum(terms[1:], terms[0]) * (-0.5) ** int(n)


def _register_spherical(name: str, value: Callable[[Any, Any], Any], slope: Callable[[Any, Any], Any]) -> None:
    """Register scipy.special.spherical_NAME(n, z, derivative)."""

    def evaluate(n: Any, z: Any, derivative: bool = False) -> Any:
        order, x = broadcast_together(*(cast(as_traced(v), np.float64) for v in (n, z)))
        return (slope if derivative else value)(order, x)

    twin_of(f"scipy.special.spherical_{name}")(evaluate)


def _near_zero(n: Any, x: Any, sign: float) -> Any:
    """Return the spherical Bessel function of the first kind for abs(x) < 1, by its series."""
    small = xp.where(xp.abs(x) < 1.0, x, 0.0)
    power = xp.where(n == 0, 1.0, (0.5 * small) ** n)
    return power * (0.5 * math.sqrt(math.pi)) / gamma(n + 1.5) * hyp0f1(n + 1.5, sign * 0.25 * small * small)


def _scale(x: Any) -> Any:
    return xp.sqrt(0.5 * math.pi / x)


def _spherical_jn(n: Any, x: Any) -> Any:
    z = xp.where(xp.abs(x) < 1.0, 1.0, xp.abs(x))
    mirror = xp.where((x < 0) & (n % 2 == 1), -1.0, 1.0)
    return xp.where(xp.abs(x) < 1.0, _near_zero(n, x, -1.0), mirror * xp.where(xp.isinf(x), 0.0, _scale(z) * jv(n + 0.5, z)))


def _spherical_in(n: Any, x: Any) -> Any:
    z = xp.where(xp.abs(x) < 1.0, 1.0, xp.abs(x))
    mirror = xp.where((x < 0) & (n % 2 == 1), -1.0, 1.0)
    return xp.where(xp.abs(x) < 1.0, _near_zero(n, x, 1.0), mirror * xp.where(xp.isinf(x), xp.inf, _scale(z) * iv(n + 0.5, z)))


def _spherical_yn(n: Any, x: Any) -> Any:
    z = xp.abs(x)
    mirror = xp.where((x < 0) & (n % 2 == 0), -1.0, 1.0)
    return mirror * xp.where(xp.isinf(x), 0.0, _scale(z) * yv(n + 0.5, z))


def _spherical_kn(n: Any, x: Any) -> Any:
    return xp.where(x < 0, math.nan, xp.where(xp.isposinf(x), 0.0, _scale(x) * kv(n + 0.5, x)))


def _slope_of(value: Callable[[Any, Any], Any], sign: float, following: float) -> Callable[[Any, Any], Any]:
    """Return the derivative (sign n f(n - 1) + following (n + 1) f(n + 1)) / (2 n + 1); for order 0 it is following f(1)."""

    def slope(n: Any, x: Any) -> Any:
        below = xp.where(n > 0, n * value(xp.where(n > 0, n - 1.0, 0.0), x), 0.0)
        return (sign * below + following * (n + 1.0) * value(n + 1.0, x)) / (2.0 * n + 1.0)

    return slope


_register_spherical("jn", _spherical_jn, _slope_of(_spherical_jn, 1.0, -1.0))
_register_spherical("yn", _spherical_yn, _slope_of(_spherical_yn, 1.0, -1.0))
_register_spherical("in", _spherical_in, _slope_of(_spherical_in, 1.0, 1.0))
_register_spherical("kn", _spherical_kn, _slope_of(_spherical_kn, -1.0, -1.0))


# functions with complex results


@twin_of("scipy.special.sph_harm_y")
def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, *, diff_n: int = 0) -> Any:
    """Return spherical harmonics of static degrees and orders, by the recurrence in the degree (DLMF 14.10.3)."""
    degrees, orders = _static_orders(n), _static_orders(m)
    if degrees is None or orders is None or diff_n:
        raise TraceError("scipy.special.sph_harm_y takes constant degrees and orders, and diff_n=0; differentiate its result")
    polar, azimuth = broadcast_together(*_floats(theta, phi))
    shape = broadcast_shapes(degrees.shape, orders.shape, polar.shape)
    first, second = np.broadcast_to(degrees, shape), np.broadcast_to(orders, shape)
    total: Any = None
    for k, j in sorted(set(zip(first.ravel().tolist(), second.ravel().tolist()))):
        value = xp.broadcast_to(_harmonic(k, j, polar, azimuth), shape)
        total = value if total is None else xp.where((first == k) & (second == j), value, total)
    return total


def _harmonic(n: int, m: int, theta: Any, phi: Any) -> Any:
    if n < 0 or abs(m) > n:
        return 0.0 * xp.exp(1j * phi)
    sine, cosine, order = xp.abs(xp.sin(theta)), xp.cos(theta), abs(m)
    current: Any = math.sqrt(0.25 / math.pi) + 0.0 * sine
    for k in range(1, order + 1):
        current = current * sine * -math.sqrt((2 * k + 1) / (2 * k))
    previous: Any = 0.0 * current
    for k in range(order + 1, n + 1):
        scale = math.sqrt((4 * k * k - 1) / (k * k - order * order))
        factor = math.sqrt(((k - 1) ** 2 - order * order) / (4 * (k - 1) ** 2 - 1)) if k > order + 1 else 0.0
        previous, current = current, scale * (cosine * current - factor * previous)
    sign = -1.0 if m < 0 and order % 2 else 1.0
    return sign * current * xp.exp(1j * m * phi)


@twin_of("scipy.special.wofz")
def wofz(z: Any, **kwargs: Any) -> Any:
    refuse("wofz", **kwargs)
    if as_traced(z).dtype.kind == "c":
        raise TraceError("scipy.special.wofz of traced complex numbers is not supported; of real ones it is")
    (x,) = _floats(z)
    return xp.exp(-x * x) + 1j * (2.0 / math.sqrt(math.pi) * emit("dawsn", x))
