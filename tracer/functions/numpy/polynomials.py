"""Polynomials as vectors of coefficients, highest power first, after ``numpy/lib/_polynomial_impl.py``."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.value_extents import check_extents
from pullback.tracer.user_code.errors import TraceError


@implements(np.polyval)
def polyval(p: Any, x: Any) -> Any:
    coefficients, at = as_traced(p), as_traced(x)
    result: Any = full(at.shape, 0, at.dtype)
    if is_value_size(coefficients.shape[0]):
        raise TraceError("np.polyval of a number of coefficients that depends on values is not supported; multiply by np.vander")
    for k in range(coefficients.shape[0]):
        result = result * at + coefficients[k]
    return result


@implements(np.polyder)
def polyder(p: Any, m: Any = 1) -> Any:
    result: Any = as_traced(p)
    if operator.index(m) < 0:
        raise ValueError("Order of derivative must be positive (see polyint)")
    for _ in range(operator.index(m)):
        n = result.shape[0] - 1
        result = result[:-1] * lifted(np.arange, n, 0, -1)
    return result


@implements(np.polyint)
def polyint(p: Any, m: Any = 1, k: Any = None) -> Any:
    result: Any = as_traced(p)
    constants: Any = [0.0] * operator.index(m) if k is None else xp.ravel(as_traced(k))
    for i in range(operator.index(m)):
        n = result.shape[0]
        last = reshaped(as_traced(constants[min(i, len(constants) - 1)]), (1,))
        result = xp.concatenate([result / lifted(np.arange, n, 0, -1), last])
    return result


def _padded(a: Any, b: Any) -> tuple[Any, Any]:
    x, y = (xp.atleast_1d(as_traced(v)) for v in (a, b))
    n = max(x.shape[0], y.shape[0])
    return tuple(xp.pad(v, (n - v.shape[0], 0)) for v in (x, y))


@implements(np.polyadd)
def polyadd(a1: Any, a2: Any) -> Any:
    a, b = _padded(a1, a2)
    return a + b


@implements(np.polysub)
def polysub(a1: Any, a2: Any) -> Any:
    a, b = _padded(a1, a2)
    return a - b


@implements(np.polymul)
def polymul(a1: Any, a2: Any) -> Any:
    return xp.convolve(as_traced(a1), as_traced(a2))


@implements(np.polydiv)
def polydiv(u: Any, v: Any) -> Any:
    """Return quotient and remainder; the remainder has one coefficient less than the divisor.

    NumPy drops leading zeros of the remainder; here a leading zero fails the check, because the shape would depend on values.
    """
    dividend, divisor = (xp.atleast_1d(as_traced(p)) + 0.0 for p in (u, v))
    remainder = cast(dividend, np.result_type(dividend.dtype, divisor.dtype))
    count, width = dividend.shape[0] - divisor.shape[0] + 1, divisor.shape[0]
    scale = 1.0 / divisor[0]
    quotients = []
    for k in range(count):
        quotients.append(scale * remainder[k])
        used = remainder[k : k + width] - quotients[-1] * divisor
        remainder = xp.concatenate([remainder[:k], used, remainder[k + width :]])
    quotient: Any = xp.stack(quotients) if quotients else full((1,), 0, remainder.dtype)
    if count > 0:
        remainder = remainder[count:] if width > 1 else remainder[-1:]
    if remainder.shape[0] > 1:
        is_short = xp.allclose(remainder[0], 0, rtol=1e-14)
        emit("check", as_traced(~is_short), error="ValueError", message=_LEADING_ZERO)
    return cast(as_traced(quotient), remainder.dtype), remainder


_LEADING_ZERO = "np.polydiv of traced coefficients: the remainder begins with 0, so its length in NumPy depends on values"


@implements(np.poly)
def poly(seq_of_zeros: Any) -> Any:
    zeros = xp.atleast_1d(as_traced(seq_of_zeros))
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.shape[0]:
        raise TraceError(
            "np.poly of a traced matrix: the dtype of its result depends on values; write np.poly of its eigenvalues"
        )
    if zeros.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    if zeros.dtype.kind == "c":
        raise TraceError(
            "np.poly of traced complex zeros: the dtype of its result depends on values; multiply the factors by np.convolve"
        )
    if zeros.dtype.kind != "f" or zeros.dtype == np.float16:
        zeros = cast(zeros, np.float64)
    if not zeros.shape[0]:
        return 1.0
    coefficients: Any = full((1,), 1, zeros.dtype)
    for k in range(zeros.shape[0]):
        coefficients = xp.concatenate([coefficients, -coefficients[-1:] * zeros[k]]) if not k else _times(coefficients, zeros[k])
    return coefficients


def _times(p: Any, zero: Any) -> Any:
    """Return the coefficients of p(x) (x - zero)."""
    nothing = full((1,), 0, p.dtype)
    return xp.concatenate([p, nothing]) - zero * xp.concatenate([nothing, p])


@implements(np.roots)
def roots(p: Any) -> Any:
    """Return the eigenvalues of the companion matrix, complex also where all are real."""
    coefficients = xp.atleast_1d(as_traced(p))
    if coefficients.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    if coefficients.dtype.kind not in "fc":
        coefficients = cast(coefficients, np.float64)
    n = coefficients.shape[0] - 1
    if n < 1:
        return full((0,), 0, np.float64)
    emit("check", as_traced((coefficients[0] != 0) & (coefficients[-1] != 0)), error="ValueError", message=_ZERO_END)
    below = lifted(np.eye, n - 1, n, dtype=coefficients.dtype)
    return xp.linalg.eigvals(xp.concatenate([(-coefficients[1:] / coefficients[0])[None], below]))


_ZERO_END = "np.roots of traced coefficients: the first or the last is 0; the number of roots would depend on values"


@implements(np.polyfit)
def polyfit(x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False) -> Any:
    order = operator.index(deg) + 1
    at, values = as_traced(x) + 0.0, as_traced(y) + 0.0
    if order < 1:
        raise ValueError("expected deg >= 0")
    if at.ndim != 1:
        raise TypeError("expected 1D vector for x")
    if not at.size:
        raise TypeError("expected non-empty vector for x")
    if values.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if is_value_size(at.shape[0]) or is_value_size(values.shape[0]):
        check_extents(at.shape[0], values.shape[0], "expected x and y to have same length", "TypeError")
    elif at.shape[0] != values.shape[0]:
        raise TypeError("expected x and y to have same length")
    limit = at.shape[0] * np.finfo(at.dtype).eps if rcond is None else rcond
    powers = xp.vander(at, order)
    if w is not None:
        weights = as_traced(w) + 0.0
        if weights.ndim != 1:
            raise TypeError("expected a 1-d array for weights")
        if weights.shape[0] != values.shape[0]:
            raise TypeError("expected w and y to have the same length")
        powers = powers * weights[:, None]
        values = values * (weights[:, None] if values.ndim == 2 else weights)
    scale = xp.sqrt(xp.sum(powers * powers, axis=0))
    powers = powers / scale
    coefficients, residuals, rank, singular = xp.linalg.lstsq(powers, values, limit)
    coefficients = (coefficients.T / scale).T
    if full:
        return coefficients, residuals, rank, singular, limit
    if not cov:
        return coefficients
    covariance = xp.linalg.inv(powers.T @ powers) / xp.outer(scale, scale)
    if isinstance(cov, str) and cov == "unscaled":
        factor: Any = 1
    elif at.shape[0] <= order:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    else:
        factor = residuals / (at.shape[0] - order)
    return coefficients, (covariance if values.ndim == 1 else covariance[:, :, None]) * factor
