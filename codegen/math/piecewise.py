"""Piecewise functions: polynomials whose coefficients depend on the interval of the argument.

Coefficients are looked up in each lane in tables of 8 or 16 numbers, one table for each power. One or two registers of 64
bytes hold such a table, and a look-up is one permutation of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.math.basis import constant, format_of
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value

Pieces = Mapping[str, Sequence[Sequence[float]]]
"""Coefficients by the name of a float format: one row for each power, with one number for each piece."""


def looked_up(b: Builder, index: Value, row: Sequence[float], like: Value) -> Value:
    """Return the number at the position in the low bits of ``index``."""
    return b.lookup(index, values=tuple(row), dtype=like.type.dtype)


def piecewise(b: Builder, t: Value, index: Value, rows: Sequence[Sequence[float]]) -> Value:
    """Return the sum of rows[k][index] * t**k, even and odd powers separately, each by Horner's rule."""
    terms = [looked_up(b, index, row, t) for row in rows]
    if len(terms) < 4:
        return _horner(b, t, terms)
    square = b.mul(t, t)
    return b.fma(t, _horner(b, square, terms[1::2]), _horner(b, square, terms[::2]))


def _horner(b: Builder, t: Value, terms: Sequence[Value]) -> Value:
    total = terms[-1]
    for term in reversed(terms[:-1]):
        total = b.fma(t, total, term)
    return total


def nearest_multiple(b: Builder, x: Value, step: float) -> Value:
    """Return k, as an index, of the multiple k * step nearest to a small x >= 0."""
    shifted = b.fma(x, constant(b, x, 1.0 / step), constant(b, x, format_of(x).round))
    return b.bitcast(shifted, dtype=format_of(x).unsigned)
