"""Truncated Taylor polynomials of several variables over mpmath numbers: exact derivatives of orders 1 to 3 of a written formula.

A ``Jet`` holds, by multi-index, the Taylor coefficients of a function at a point. Arithmetic and ``compose`` are exact but for
the precision of mpmath, and know nothing of the rules of the compiler.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from mpmath import mp

ORDER = 3
Index = tuple[int, ...]
Derivatives = Sequence[Any]


@cache
def indices(count: int) -> tuple[Index, ...]:
    """The multi-indices of ``count`` variables up to ``ORDER``, of low degree first."""
    every = itertools.product(range(ORDER + 1), repeat=count)
    return tuple(sorted((k for k in every if sum(k) <= ORDER), key=lambda k: (sum(k), k)))


class Jet:
    """A function near a point by its Taylor coefficients; those not there are 0."""

    def __init__(self, count: int, terms: dict[Index, Any]) -> None:
        self.count, self.terms = count, terms

    @property
    def at(self) -> Any:
        """The function's value at the point."""
        return self.terms.get((0,) * self.count, mp.zero)

    def derivative(self, index: Index) -> Any:
        """The partial derivative of that multi-index at the point."""
        return self.terms.get(index, mp.zero) * math.prod(math.factorial(k) for k in index)

    def moved(self) -> Jet:
        """The function minus its value at the point."""
        return Jet(self.count, {k: v for k, v in self.terms.items() if any(k)})

    def _lift(self, other: Any) -> Jet:
        return other if isinstance(other, Jet) else constant(self.count, other)

    def __add__(self, other: Any) -> Jet:
        total = dict(self.terms)
        for k, v in self._lift(other).terms.items():
            total[k] = total[k] + v if k in total else v
        return Jet(self.count, total)

    def __neg__(self) -> Jet:
        return Jet(self.count, {k: -v for k, v in self.terms.items()})

    def __sub__(self, other: Any) -> Jet:
        return self + -self._lift(other)

    def __rsub__(self, other: Any) -> Jet:
        return -self + other

    def __mul__(self, other: Any) -> Jet:
        if not isinstance(other, Jet):
            return Jet(self.count, {k: v * other for k, v in self.terms.items()})
        total: dict[Index, Any] = {}
        for (k, v), (j, w) in itertools.product(self.terms.items(), other.terms.items()):
            index = tuple(map(sum, zip(k, j, strict=True)))
            if sum(index) <= ORDER:
                total[index] = total.get(index, mp.zero) + v * w
        return Jet(self.count, total)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Jet:
        return self * inverse(other) if isinstance(other, Jet) else self * (1 / mp.mpf(other))

    def __rtruediv__(self, other: Any) -> Jet:
        return inverse(self) * other

    def __pow__(self, power: int) -> Jet:
        return math.prod((self for _ in range(power - 1)), start=self)


def constant(count: int, value: Any) -> Jet:
    """The jet of a constant."""
    return Jet(count, {(0,) * count: mp.mpf(value)})


def variables(point: Sequence[Any]) -> list[Jet]:
    """The jets of the coordinates at a point."""
    count = len(point)
    unit = [tuple(int(i == k) for i in range(count)) for k in range(count)]
    return [Jet(count, {(0,) * count: mp.mpf(x), unit[k]: mp.one}) for k, x in enumerate(point)]


def compose(outer: Derivatives, x: Jet) -> Jet:
    """The jet of a function of one variable at ``x``, from its derivatives of orders 0, 1, ... at the value of ``x``."""
    step = x.moved()
    total, power = constant(x.count, outer[0]), constant(x.count, 1)
    for k, d in enumerate(outer[1 : ORDER + 1], 1):
        power = power * step
        total = total + power * (d / mp.factorial(k))
    return total


def lifted(derivatives: Callable[[Any], Derivatives]) -> Callable[[Jet], Jet]:
    """A function of jets, from the one that gives the derivatives of orders 0 to 3 at a number."""
    return lambda x: compose(derivatives(x.at), x)


def combined(outer: Callable[[Index], Any], *arguments: Jet) -> Jet:
    """The jet of a function of several variables at ``arguments``. ``outer(index)``: its partial derivatives at their values."""
    steps = [x.moved() for x in arguments]
    count = arguments[0].count
    total = constant(count, 0)
    for index in indices(len(arguments)):
        term = constant(count, outer(index) / math.prod(math.factorial(k) for k in index))
        for k, step in zip(index, steps, strict=True):
            for _ in range(k):
                term = term * step
        total = total + term
    return total


def inverse(x: Jet) -> Jet:
    """1 / x."""
    v = 1 / x.at
    return compose((v, -(v**2), 2 * v**3, -6 * v**4), x)


def _exp(x: Any) -> Derivatives:
    return (mp.exp(x),) * 4


def _log(x: Any) -> Derivatives:
    return mp.log(x), 1 / x, -1 / x**2, 2 / x**3


def _sqrt(x: Any) -> Derivatives:
    y = mp.sqrt(x)
    return y, 1 / (2 * y), -1 / (4 * x * y), 3 / (8 * x**2 * y)


def _sin(x: Any) -> Derivatives:
    s, c = mp.sin(x), mp.cos(x)
    return s, c, -s, -c


def _cos(x: Any) -> Derivatives:
    s, c = mp.sin(x), mp.cos(x)
    return c, -s, -c, s


def _atan(x: Any) -> Derivatives:
    d = 1 / (1 + x * x)
    return mp.atan(x), d, -2 * x * d**2, (6 * x * x - 2) * d**3


def _gammaln(x: Any) -> Derivatives:
    return mp.log(abs(mp.gamma(x))) if x < 1e6 else mp.loggamma(x).real, mp.psi(0, x), mp.psi(1, x), mp.psi(2, x)


def _digamma(x: Any) -> Derivatives:
    return tuple(mp.psi(k, x) for k in range(4))


exp, log, sqrt, sin, cos, atan = map(lifted, (_exp, _log, _sqrt, _sin, _cos, _atan))
gammaln, digamma = map(lifted, (_gammaln, _digamma))


def differences(function: Callable[..., Any], point: Sequence[Any], steps: Sequence[Any]) -> Callable[[Index], Any]:
    """The partial derivatives of ``function`` at ``point`` up to ``ORDER`` by central differences of second order, whose error
    is the square of the steps: these are so small, and the precision is so high, that it does not matter."""
    known: dict[Index, Any] = {}

    def value(offset: Index) -> Any:
        if offset not in known:
            known[offset] = function(*(x + k * h for x, k, h in zip(point, offset, steps, strict=True)))
        return known[offset]

    stencils: dict[int, dict[int, Any]] = {
        0: {0: mp.one}, 1: {1: mp.mpf(0.5), -1: mp.mpf(-0.5)}, 2: {1: mp.one, 0: mp.mpf(-2), -1: mp.one},
        3: {2: mp.mpf(0.5), 1: -mp.one, -1: mp.one, -2: mp.mpf(-0.5)},
    }  # fmt: skip

    def partial(index: Index) -> Any:
        total = mp.zero
        for offset in itertools.product(*(stencils[k] for k in index)):
            weight = math.prod((stencils[k][o] for k, o in zip(index, offset, strict=True)), start=mp.one)
            total += weight * value(offset)
        return total / math.prod((h**k for h, k in zip(steps, index, strict=True)), start=mp.one)

    return partial
