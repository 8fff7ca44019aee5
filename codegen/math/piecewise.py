"""Functions by pieces: polynomials whose coefficients depend on the interval of the argument.

Coefficients are looked up lane by lane in tables of 8 or 16 numbers, one table for each power. One or two registers of
64 bytes hold such a table, and a look-up is one permutation of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.math.basis import format_of, number
from pullback.ir.core.builder import Builder
from pullback.ir.core.value import Value

Pieces = Mapping[str, Sequence[Sequence[float]]]
"""By the name of a format: rows of as many numbers as there are pieces, one row for each coefficient."""


def looked_up(b: Builder, index: Value, row: Sequence[float], like: Value) -> Value:
    """The number at the low bits of ``index``."""
    return b.lookup(index, values=tuple(row), dtype=like.type.dtype)


def piecewise(b: Builder, t: Value, index: Value, rows: Sequence[Sequence[float]]) -> Value:
    """The sum of rows[k][index] * t**k: even and odd powers apart, each by Horner's rule."""
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
    """The number of the multiple of ``step`` next to a small x >= 0, as an index."""
    shifted = b.fma(x, number(b, x, 1.0 / step), number(b, x, format_of(x).round))
    return b.bitcast(shifted, dtype=format_of(x).unsigned)
