"""Quotients by the differences of eigenvalues or singular values: what the vectors between two of them contribute.

Where two values are equal, to rounding, the vectors between them are determined but for a rotation. A cotangent that does not see
the rotation is 0 in the combination of the two, and so is the quotient. One that sees it has a quotient that is infinite.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import adjoint, as_dtype, columns_of, off_diagonal, real_of, rows_and_columns, rows_of, spread

ROUNDINGS = 64
"""Numbers that differ by so many roundings of the largest of them count as equal: LAPACK's values are that close in matrices of
some hundred rows."""


def least(b: Any, x: Value) -> Value:
    """For matrices of real numbers not below 0, the largest number that counts as zero, at all places."""
    last = x.type.rank - 1
    unit = b.full(ROUNDINGS * float(np.finfo(x.type.dtype.numpy).eps), x.type)
    found: Value = b.mul(spread(b, b.max(x, axes=(last - 1, last)), x.type), unit)
    return found


def equal(b: Any, values: Value, t: Any) -> Value:
    """Whether two values at different places are equal, to rounding: a matrix of the shape of ``t``."""
    whole = t.with_dtype(values.type.dtype)
    rows, columns = rows_of(b, values, whole), columns_of(b, values, whole)
    is_close = b.le(b.abs(b.sub(columns, rows)), least(b, b.abs(columns)))
    found: Value = b.bitand(b.ne(*rows_and_columns(b, whole)), is_close)
    return found


def is_none(b: Any, x: Value, beside: Value) -> Value:
    """Where a matrix is zero, to rounding in the elements of ``beside``."""
    found: Value = b.le(b.abs(x), least(b, b.abs(beside)))
    return found


def over(b: Any, gaps: Value, is_equal: Value, x: Value, beside: Value) -> Value:
    """x over the gaps, which are real or of the type of x, off the diagonal, and 0 on it; where values are equal, 0 if x is.
    Where rules are transposed x is a symbol, and the quotient must be linear in it."""
    found: Value = b.mul(as_dtype(b, off_diagonal(b, gaps), x.type.dtype), x)
    if b.is_linear:
        return found
    return b.select(b.bitand(is_equal, is_none(b, x, beside)), b.zeros_like(found), found)


def unless_unknown(b: Any, found: Value, is_equal: Value, products: Value, ct: Value) -> Value:
    """NaN where values are equal and have a cotangent, and vectors have one, too, which does not see their rotation: a function
    of the matrix that is made of both moves there with the function's own derivative, of which nothing is known."""
    if b.is_linear:
        return found
    t = real_type(products.type)
    zero = b.zeros_like(b.full(0, t))
    is_asked = b.bitor(b.ne(rows_of(b, ct, t), zero), b.ne(columns_of(b, ct, t), zero))
    is_unknown = b.bitand(b.bitand(is_equal, is_asked), b.bitnot(is_none(b, products, products)))
    return b.select(is_unknown, b.full(math.nan, found.type), found)


def skew(b: Any, x: Value) -> Value:
    """A matrix less its adjoint."""
    found: Value = b.sub(x, adjoint(b, x))
    return found


def real_type(t: Any) -> Any:
    return t.with_dtype(real_of(t.dtype))
