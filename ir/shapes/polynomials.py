"""Polynomials with integer coefficients over numbered unknowns, in one form each: equal ones are equal tuples."""

from __future__ import annotations

from collections.abc import Mapping

Monomial = tuple[int, ...]
Polynomial = tuple[tuple[Monomial, int], ...]
"""Terms in order: the numbers of the unknowns of a product, and its coefficient."""


def ordered(found: Mapping[Monomial, int]) -> Polynomial:
    """The polynomial of these terms."""
    return tuple(sorted((m, f) for m, f in found.items() if f))


def added(a: Polynomial, b: Polynomial, factor: int = 1) -> Polynomial:
    """``a + factor * b``."""
    found = dict(a)
    for m, f in b:
        found[m] = found.get(m, 0) + factor * f
    return ordered(found)


def scaled(a: Polynomial, factor: int) -> Polynomial:
    """Times a number."""
    return tuple((m, f * factor) for m, f in a)


def multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    """The product."""
    found: dict[Monomial, int] = {}
    for m, f in a:
        for n, g in b:
            key = tuple(sorted(m + n))
            found[key] = found.get(key, 0) + f * g
    return ordered(found)


def substituted(terms: Polynomial, atom: int, by: Polynomial) -> Polynomial:
    """A polynomial in place of an unknown."""
    found: Polynomial = ()
    for m, f in terms:
        made: Polynomial = ((tuple(a for a in m if a != atom), f),)
        for _ in range(m.count(atom)):
            made = multiplied(made, by)
        found = added(found, made)
    return found


def without(m: Monomial, atoms: Monomial) -> Monomial | None:
    """A monomial divided by another; None if it is no multiple of that."""
    left = list(m)
    for a in atoms:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)
