"""Quotients by the differences of eigenvalues or singular values: the contributions of pairs of vectors.

Where two values are equal, to rounding, their vectors are determined up to a rotation. For a cotangent that does not depend on
the rotation, the contribution of the pair is 0, and the quotient counts as 0. Otherwise the quotient is infinite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import adjoint, as_dtype, columns_of, off_diagonal, real_of, rows_and_columns, rows_of, spread

ROUNDINGS = 64
"""Values that differ by at most this many units of rounding of the largest one count as equal: LAPACK's values have errors of
that size for matrices of some hundred rows."""


def zero_bound(b: Any, x: Value) -> Value:
    """Return, for matrices of non-negative values, the largest value that counts as zero, as a full matrix."""
    last = x.type.rank - 1
    unit = b.full(ROUNDINGS * float(np.finfo(x.type.dtype.numpy).eps), x.type)
    bound: Value = b.mul(spread(b, b.max(x, axes=(last - 1, last)), x.type), unit)
    return bound


def equal(b: Any, values: Value, t: Any) -> Value:
    """Return, as a matrix of the shape of ``t``, whether two values at different indices are equal, to rounding."""
    real = t.with_dtype(values.type.dtype)
    rows, columns = rows_of(b, values, real), columns_of(b, values, real)
    is_close = b.le(b.abs(b.sub(columns, rows)), zero_bound(b, b.abs(columns)))
    result: Value = b.bitand(b.ne(*rows_and_columns(b, real)), is_close)
    return result


def is_negligible(b: Any, x: Value, reference: Value) -> Value:
    """Return where a matrix is zero, to rounding in the elements of ``reference``."""
    result: Value = b.le(b.abs(x), zero_bound(b, b.abs(reference)))
    return result


def over_gaps(b: Any, gaps: Value, is_equal: Value, x: Value, reference: Value) -> Value:
    """Return x over the gaps off the diagonal, and 0 on it; where values are equal, 0 if x is zero. The gaps are real or of
    the type of x. In a linear builder, which traces transposed rules, x is symbolic and the quotient must stay linear in
    it."""
    quotient: Value = b.mul(as_dtype(b, off_diagonal(b, gaps), x.type.dtype), x)
    if b.is_linear:
        return quotient
    return b.select(b.bitand(is_equal, is_negligible(b, x, reference)), b.zeros_like(quotient), quotient)


def unless_unknown(b: Any, result: Value, is_equal: Value, products: Value, ct: Value) -> Value:
    """Return ``result``, with NaN where its derivative is undetermined: two values are equal and have a cotangent ``ct``, and
    the vectors have a cotangent as well that does not depend on their rotation. A function of the matrix that combines both
    depends there on the function's own derivative, which is unknown here."""
    if b.is_linear:
        return result
    t = real_type(products.type)
    zero = b.zeros_like(b.full(0, t))
    has_cotangent = b.bitor(b.ne(rows_of(b, ct, t), zero), b.ne(columns_of(b, ct, t), zero))
    is_unknown = b.bitand(b.bitand(is_equal, has_cotangent), b.bitnot(is_negligible(b, products, products)))
    return b.select(is_unknown, b.full(math.nan, result.type), result)


def skew(b: Any, x: Value) -> Value:
    """Return x - x^H."""
    result: Value = b.sub(x, adjoint(b, x))
    return result


def real_type(t: Any) -> Any:
    return t.with_dtype(real_of(t.dtype))
