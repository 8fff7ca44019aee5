"""Fit formulas of named sizes to integers and floats, from their values at several points.

A template treats its sizes as independent: that one is twice another is known only to the user's Python code. Traces at
several points yield the value of each size and constant there. The simplest formula that reproduces all of them is taken,
provided that there are more points than coefficients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import isfinite, lcm, prod, sqrt
from typing import Any

from pullback.ir.core.records import dataclass

DIVISORS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256)
"""Divisors that are tried for rounded quotients."""
NUMBER_KINDS = ("times", "over", "times root", "over root")
"""Forms of a float: a factor times or divided by a formula, or by the square root of one."""

Point = Mapping[str, int]
Monomial = tuple[str, ...]


@dataclass(frozen=True)
class Formula:
    """The sum of ``terms``, which are integers times products of names, divided by ``divisor`` and rounded down."""

    terms: tuple[tuple[int, Monomial], ...]
    divisor: int = 1

    def at(self, point: Point) -> int:
        """Evaluate the formula at a point."""
        return sum(c * prod(point[name] for name in names) for c, names in self.terms) // self.divisor

    @property
    def constant_value(self) -> int | None:
        """The value if the formula has no names; else None."""
        return self.at({}) if all(not names for _, names in self.terms) else None

    def __str__(self) -> str:
        """Write the formula as C and Python do; valid for a dividend that is not negative."""
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
    """A float that depends on sizes: ``factor`` times or divided by a formula or its square root, as ``kind`` says."""

    kind: str
    factor: float
    formula: Formula

    def at(self, point: Point) -> float:
        """Evaluate the float at a point, with Python's rounding."""
        n = float(self.formula.at(point))
        if self.kind.endswith("root"):
            n = sqrt(n) if n >= 0 else float("nan")
        if self.kind.startswith("over"):
            return self.factor / n if n else float("inf")
        return self.factor * n


def constant(value: int) -> Formula:
    """Return the formula of a constant."""
    return Formula(((value, ()),) if value else ())


def fit_integer(values: Sequence[int], points: Sequence[Point]) -> Formula | None:
    """Fit a formula to values at points: a polynomial of degree 2 at most, or a rounded quotient of a linear function of one
    name. Returns None if no formula fits, or if there are too few points."""
    names = list(points[0]) if points else []
    if len(set(values)) == 1:
        return constant(values[0])
    for name in names:
        if all(v == p[name] for v, p in zip(values, points, strict=True)):
            return Formula(((1, (name,)),))
    linear: list[Monomial] = [(), *((n,) for n in names)]
    squares: list[Monomial] = [(a, b) for k, a in enumerate(names) for b in names[k:]]
    for basis in (linear, [*linear, *squares]):
        formula = _polynomial(values, points, basis)
        if formula is not None:
            return formula
    return _quotient(values, points, names)


def fit_float(values: Sequence[float], points: Sequence[Point], formulas: Iterable[Formula]) -> Scaled | None:
    """Fit a float to values at points: a factor times or divided by one of ``formulas``, such a formula plus or minus 1 or 2,
    a product of two of them, or the square root of one of these."""
    if not all(map(isfinite, values)):
        return None
    single = list(dict.fromkeys(formulas))
    shifted = [Formula(_added(f.terms, k), f.divisor) for f in single for k in (-1, 1, -2, 2) if f.divisor == 1]
    products = [_multiply(f, g) for k, f in enumerate(single) for g in single[k:] if f.divisor == g.divisor == 1]
    for formula in dict.fromkeys([*single, *products, *shifted]):
        for kind in NUMBER_KINDS:
            unit = [Scaled(kind, 1.0, formula).at(p) for p in points]
            if not all(map(isfinite, unit)) or not all(unit):
                continue
            guess = values[0] / unit[0]
            for factor in dict.fromkeys((*(round(guess, digits) for digits in range(16)), guess)):
                candidate = Scaled(kind, factor, formula)
                if all(candidate.at(p) == v for p, v in zip(points, values, strict=True)):
                    return candidate
    return None


def _polynomial(values: Sequence[int], points: Sequence[Point], basis: Sequence[Monomial]) -> Formula | None:
    """Fit a linear combination of the monomials in ``basis``."""
    if len(points) <= len(basis):
        return None
    rows = [[Fraction(prod(p[n] for n in m)) for m in basis] + [Fraction(v)] for p, v in zip(points, values, strict=True)]
    solved = _solve(rows, len(basis))
    if solved is None:
        return None
    divisor = lcm(*(c.denominator for c in solved))
    terms = tuple((int(c * divisor), m) for c, m in zip(solved, basis, strict=True) if c)
    ordered = tuple(sorted(terms, key=lambda term: (-len(term[1]), term[0] < 0, term[1])))
    formula = Formula(ordered, divisor)
    return formula if all(formula.at(p) == v for p, v in zip(points, values, strict=True)) else None


def _solve(rows: list[list[Fraction]], unknowns: int) -> list[Fraction] | None:
    """Solve linear equations by elimination; returns None if there is no solution or more than one."""
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
    """Fit (a name times an integer, plus an integer) divided by an integer and rounded down."""
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


def _added(terms: tuple[tuple[int, Monomial], ...], addend: int) -> tuple[tuple[int, Monomial], ...]:
    """Add an integer to a sum of terms."""
    total = sum(c for c, names in terms if not names) + addend
    symbolic = tuple(term for term in terms if term[1])
    return (*symbolic, (total, ())) if total else symbolic


def _multiply(f: Formula, g: Formula) -> Formula:
    """Multiply two formulas without divisors."""
    terms: dict[Monomial, int] = {}
    for a, m in f.terms:
        for b, n in g.terms:
            key = tuple(sorted(m + n))
            terms[key] = terms.get(key, 0) + a * b
    return Formula(tuple((c, m) for m, c in terms.items() if c))


def as_data(value: Formula) -> Any:
    """Return a formula as nested lists, which ``from_data`` reads."""
    return [[[c, list(names)] for c, names in value.terms], value.divisor]


def from_data(data: Any) -> Formula:
    """Return the formula that ``as_data`` wrote. Raises ValueError for malformed data."""
    try:
        terms, divisor = data
        formula = Formula(tuple((int(c), tuple(map(str, names))) for c, names in terms), int(divisor))
    except (TypeError, ValueError):
        raise ValueError(f"no formula: {data!r}") from None
    if formula.divisor < 1:
        raise ValueError(f"no formula: {data!r}")
    return formula
