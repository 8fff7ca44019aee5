"""Polynomials with integer coefficients over numbered unknowns, in canonical form: equal ones are equal tuples."""

from __future__ import annotations

from collections.abc import Mapping

Monomial = tuple[int, ...]
Polynomial = tuple[tuple[Monomial, int], ...]
"""The sorted terms of a polynomial: the indices of the unknowns in a product, and its coefficient."""


def ordered(coefficients: Mapping[Monomial, int]) -> Polynomial:
    """Return the polynomial with these terms."""
    return tuple(sorted((m, f) for m, f in coefficients.items() if f))


def added(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    """Return ``a + factor * b``."""
    total = dict(a)
    for m, f in b:
        total[m] = total.get(m, 0) + factor * f
    return ordered(total)


def scaled(a: Polynomial, factor: int) -> Polynomial:
    """Return ``factor * a``."""
    return tuple((m, f * factor) for m, f in a)


def multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return ``a * b``."""
    coefficients: dict[Monomial, int] = {}
    for m, f in a:
        for n, g in b:
            key = tuple(sorted(m + n))
            coefficients[key] = coefficients.get(key, 0) + f * g
    return ordered(coefficients)


def substituted(terms: Polynomial, atom: int, by: Polynomial) -> Polynomial:
    """Substitute the polynomial ``by`` for an unknown."""
    total: Polynomial = ()
    for m, f in terms:
        term: Polynomial = ((tuple(a for a in m if a != atom), f),)
        for _ in range(m.count(atom)):
            term = multiplied(term, by)
        total = added(total, term)
    return total


def without(m: Monomial, atoms: Monomial) -> Monomial | None:
    """Divide a monomial by another; returns None if it is not a multiple of it."""
    left = list(m)
    for a in atoms:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)
