"""Integers and numbers as formulas of named sizes, and how they are found from their values at some points.

A template knows its sizes by number, each on its own: that one is twice another is in the user's Python. Traces at several points
say what each size and constant was there; the simplest formula that gives all of them, with more points than it has freedom, is
taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite, lcm, prod, sqrt
from typing import Any

DIVISORS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256)
NUMBER_KINDS = ("times", "over", "times root", "over root")

Point = Mapping[str, int]
Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """The sum of ``terms``, integers times products of names, divided by ``divisor`` and rounded down."""

    terms: tuple[tuple[int, Monomial], ...]
    divisor: int = 1

    def at(self, point: Point) -> int:
        """The value at a point."""
        return sum(c * prod(point[name] for name in names) for c, names in self.terms) // self.divisor

    @property
    def number(self) -> int | None:
        """The value, if it has no names in it."""
        return self.at({}) if all(not names for _, names in self.terms) else None

    def __str__(self) -> str:
        """As C and Python write it, where what is divided is not negative."""
        text = ""
        for c, names in self.terms:
            factors = " * ".join([*([str(abs(c))] if abs(c) != 1 or not names else []), *names])
            text += (" - " if c < 0 else " + ") + factors if text else ("-" if c < 0 else "") + factors
        text = text or "0"
        if self.divisor == 1:
            return text
        return f"({text}) / {self.divisor}" if len(self.terms) > 1 else f"{text} / {self.divisor}"


@dataclass(frozen=True)
class Scaled:
    """A float that depends on sizes: ``factor`` "times" or "over" a formula, or its square root."""

    kind: str
    factor: float
    formula: Formula

    def at(self, point: Point) -> float:
        """The value at a point, as Python computes it."""
        n = float(self.formula.at(point))
        if self.kind.endswith("root"):
            n = sqrt(n) if n >= 0 else float("nan")
        if self.kind.startswith("over"):
            return self.factor / n if n else float("inf")
        return self.factor * n


def constant(number: int) -> Formula:
    """The formula of a number."""
    return Formula(((number, ()),) if number else ())


def fitted(values: Sequence[int], points: Sequence[Point]) -> Formula | None:
    """The formula that gives these values at these points: a polynomial of degree 2 at most, or one name divided by a number and
    rounded. None if there is none, or if the points are too few to tell."""
    names = list(points[0]) if points else []
    if len(set(values)) == 1:
        return constant(values[0])
    for name in names:
        if all(v == p[name] for v, p in zip(values, points, strict=True)):
            return Formula(((1, (name,)),))
    linear: list[Monomial] = [(), *((n,) for n in names)]
    squares: list[Monomial] = [(a, b) for k, a in enumerate(names) for b in names[k:]]
    for basis in (linear, [*linear, *squares]):
        found = _polynomial(values, points, basis)
        if found is not None:
            return found
    return _quotient(values, points, names)


def fitted_number(values: Sequence[float], points: Sequence[Point], formulas: Iterable[Formula]) -> Scaled | None:
    """The same for floats: a number times or over one of these formulas, or of a product of two, or over their roots."""
    if not all(map(isfinite, values)):
        return None
    single = list(dict.fromkeys(formulas))
    near = [Formula(_added(f.terms, k), f.divisor) for f in single for k in (-1, 1, -2, 2) if f.divisor == 1]
    products = [_times(f, g) for k, f in enumerate(single) for g in single[k:] if f.divisor == g.divisor == 1]
    for formula in dict.fromkeys([*single, *products, *near]):
        for kind in NUMBER_KINDS:
            unit = [Scaled(kind, 1.0, formula).at(p) for p in points]
            if not all(map(isfinite, unit)) or not all(unit):
                continue
            guess = values[0] / unit[0]
            for factor in dict.fromkeys((*(round(guess, digits) for digits in range(16)), guess)):
                made = Scaled(kind, factor, formula)
                if all(made.at(p) == v for p, v in zip(points, values, strict=True)):
                    return made
    return None


def _polynomial(values: Sequence[int], points: Sequence[Point], basis: Sequence[Monomial]) -> Formula | None:
    """The combination of monomials that gives the values."""
    if len(points) <= len(basis):
        return None
    rows = [[Fraction(prod(p[n] for n in m)) for m in basis] + [Fraction(v)] for p, v in zip(points, values, strict=True)]
    solved = _solved(rows, len(basis))
    if solved is None:
        return None
    divisor = lcm(*(c.denominator for c in solved))
    terms = tuple((int(c * divisor), m) for c, m in zip(solved, basis, strict=True) if c)
    ordered = tuple(sorted(terms, key=lambda term: (-len(term[1]), term[0] < 0, term[1])))
    found = Formula(ordered, divisor)
    return found if all(found.at(p) == v for p, v in zip(points, values, strict=True)) else None


def _solved(rows: list[list[Fraction]], unknowns: int) -> list[Fraction] | None:
    """The solution of linear equations, by elimination; None if there is none or more than one."""
    for k in range(unknowns):
        pivot = next((r for r in range(k, len(rows)) if rows[r][k]), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        head = rows[k] = [x / rows[k][k] for x in rows[k]]
        for r, row in enumerate(rows):
            if r != k and row[k]:
                rows[r] = [x - row[k] * h for x, h in zip(row, head, strict=True)]
    if any(row[unknowns] for row in rows[unknowns:]):
        return None
    return [row[unknowns] for row in rows[:unknowns]]


def _quotient(values: Sequence[int], points: Sequence[Point], names: Sequence[str]) -> Formula | None:
    """(a name times a number, plus a number) divided by a number and rounded."""
    for name in names:
        at = [p[name] for p in points]
        low, high = at.index(min(at)), at.index(max(at))
        if at[low] == at[high]:
            continue
        slope = Fraction(values[high] - values[low], at[high] - at[low])
        for divisor in DIVISORS:
            a = round(slope * divisor)
            for b in sorted(range(-2 * divisor, 2 * divisor), key=lambda b: (b not in (0, divisor - 1), abs(b))):
                if a and all((a * n + b) // divisor == v for n, v in zip(at, values, strict=True)):
                    return Formula(((a, (name,)), *(((b, ()),) if b else ())), divisor)
    return None


def _added(terms: tuple[tuple[int, Monomial], ...], number: int) -> tuple[tuple[int, Monomial], ...]:
    total = sum(c for c, names in terms if not names) + number
    rest = tuple(term for term in terms if term[1])
    return (*rest, (total, ())) if total else rest


def _times(f: Formula, g: Formula) -> Formula:
    found: dict[Monomial, int] = {}
    for a, m in f.terms:
        for b, n in g.terms:
            key = tuple(sorted(m + n))
            found[key] = found.get(key, 0) + a * b
    return Formula(tuple((c, m) for m, c in found.items() if c))


def as_data(value: Formula) -> Any:
    """A formula as lists and numbers; ``of_data`` reads them."""
    return [[[c, list(names)] for c, names in value.terms], value.divisor]


def of_data(data: Any) -> Formula:
    """The formula of ``as_data``. Raises ValueError for anything else."""
    try:
        terms, divisor = data
        found = Formula(tuple((int(c), tuple(map(str, names))) for c, names in terms), int(divisor))
    except (TypeError, ValueError):
        raise ValueError(f"no formula: {data!r}") from None
    if found.divisor < 1:
        raise ValueError(f"no formula: {data!r}")
    return found
