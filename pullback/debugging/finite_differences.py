"""Compare derivatives with central differences.

Differences of two step sizes are extrapolated (Richardson, 1911) and also give the uncertainty of the result; at a corner of
the function, every slope between the slopes of its two sides is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass

Array = np.ndarray[Any, Any]

MOST_COORDINATES = 128
"""Largest array, in elements, whose derivatives are checked one by one."""
DIRECTIONS = 6
"""Number of random directions along which larger arrays are checked."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """``rtol``, ``atol``: tolerances of a derivative beyond the errors of rounding and step size; ``rng`` draws the
    directions."""

    rtol: float | None
    atol: float
    rng: np.random.Generator


@dataclass(frozen=True, kw_only=True)
class Slope:
    """One derivative and its difference quotient.

    ``name``: the argument or the part of it; ``index``: the coordinate, None for a random direction through all elements.
    ``order``: the order of the derivative. ``found`` is the compiled derivative, ``expected`` the difference quotient,
    ``allowed`` the tolerance of their difference. ``what``: "of" an element of the result, or how it was computed; empty for
    the gradient of a random combination of all results.
    """

    name: str
    index: tuple[int, ...] | None
    order: int
    found: float
    expected: float
    allowed: float
    what: str = ""

    @property
    def is_right(self) -> bool:
        return bool(abs(self.found - self.expected) <= self.allowed)

    @property
    def excess(self) -> float:
        """The error in units of the tolerance; infinite if it is not a number."""
        ratio = abs(self.found - self.expected) / self.allowed if self.allowed else np.inf
        return float(ratio) if np.isfinite(ratio) else np.inf

    def __str__(self) -> str:
        at = "in a random direction" if self.index is None else f"at {list(self.index)}" if self.index else ""
        order = "" if self.order == 1 else f" of order {self.order}"
        order += f" {self.what}" if self.what else ""
        where = f"{self.name} {at}".strip()
        return f"derivative{order} by {where}: found {self.found:.10g}, expected {self.expected:.10g} ± {self.allowed:.2g}"


class Differences:
    """Derivatives of a scalar function of ``values``, compared with its difference quotients.

    ``dtype``: the coarsest dtype that the function computes in. An ``rtol`` of None depends on that dtype.
    """

    def __init__(self, function: Callable[..., Any], values: Sequence[Any], dtype: Any, options: Options) -> None:
        self.function = function
        self.values = list(values)
        digits = np.finfo(dtype).nmant if np.dtype(dtype).kind == "f" else 7
        self.eps = 2.0**-digits
        usual = 1e-6 if digits > 40 else 1e-2 if digits > 20 else 0.2
        self.rtol = usual if options.rtol is None else options.rtol
        self.atol = options.atol
        self.rng = options.rng
        self.middle = float(function(*self.values))

    def compare(self, position: int, name: str, slope: Array, order: int) -> Iterator[Slope]:
        """Compare the derivatives by one of the values: one by one if there are few, otherwise along random directions."""
        x = np.asarray(self.values[position], float)
        if x.size <= MOST_COORDINATES:
            yield from (self.coordinate(position, name, slope, order, index) for index in np.ndindex(x.shape))
            return
        wrong = False
        for _ in range(DIRECTIONS):
            direction = self.rng.choice([-1.0, 1.0], x.shape) * np.maximum(np.abs(x), 0.1 * _typical(x))
            compared = self.slope(position, name, slope, order, None, direction / _typical(direction))
            wrong |= not compared.is_right
            yield compared
        if wrong:
            for flat in self.rng.choice(x.size, MOST_COORDINATES, replace=False):
                index = tuple(int(k) for k in np.unravel_index(flat, x.shape))
                yield self.coordinate(position, name, slope, order, index)

    def coordinate(self, position: int, name: str, slope: Array, order: int, index: tuple[int, ...]) -> Slope:
        direction = np.zeros(slope.shape)
        direction[index] = 1.0
        return self.slope(position, name, slope, order, index, direction)

    def slope(self, position: int, name: str, slope: Array, order: int, index: tuple[int, ...] | None, direction: Array) -> Slope:
        x = np.asarray(self.values[position], float)
        actual = float(np.sum(slope * direction) if index is None else slope[index])
        steepest = float(np.max(np.abs(slope), where=np.isfinite(slope), initial=0.0))
        for size in _sizes(x, index):
            coarse, fine = (self.quotients(position, direction, self.eps**0.25 * size * part) for part in (1.0, 0.5))
            if np.isfinite([coarse.central, fine.central]).all():
                break
        expected = fine.limit(coarse)
        noise = 8 * self.eps * (max(abs(self.middle), fine.largest) / fine.step + steepest)
        allowed = self.atol + self.rtol * abs(expected) + noise + 2 * abs(fine.best - coarse.best)
        if fine.bend > 0.75 * coarse.bend and fine.bend > allowed and np.isfinite(actual):
            low, high = sorted((fine.right, fine.left))
            expected = min(max(actual, low), high)
        return Slope(name=name, index=index, order=order, found=actual, expected=expected, allowed=allowed)

    def quotients(self, position: int, direction: Array, step: float) -> _Quotients:
        up, ahead = self.at(position, direction, step)
        down, behind = self.at(position, direction, -step)
        return _Quotients(
            step=step,
            central=(up - down) / (ahead - behind),
            right=(up - self.middle) / ahead,
            left=(down - self.middle) / behind,
            largest=float(np.nanmax(np.abs([up, down, 0.0]))),
        )

    def at(self, position: int, direction: Array, step: float) -> tuple[float, float]:
        """Return the function at a shifted argument, and the length of the shift along the direction after rounding to the
        dtype."""
        value = self.values[position]
        old = np.asarray(value)
        new = (old.astype(float) + step * direction).astype(old.dtype)
        length = float(np.sum((new.astype(float) - old.astype(float)) * direction) / np.sum(direction * direction))
        values = list(self.values)
        values[position] = new.item() if type(value) is float else new[()]
        return float(self.function(*values)), length or step


@dataclass(frozen=True, kw_only=True)
class _Quotients:
    """Difference quotients of one step size; ``largest``: the greatest function value seen."""

    step: float
    central: float
    right: float
    left: float
    largest: float

    @property
    def bend(self) -> float:
        return abs(self.right - self.left)

    @property
    def best(self) -> float:
        """The central quotient, or that of the side on which the function is finite."""
        return next((q for q in (self.central, self.right, self.left) if np.isfinite(q)), np.nan)

    def limit(self, coarse: _Quotients) -> float:
        """Extrapolate these quotients and the ``coarse`` ones of twice the step to step zero."""
        is_central = np.isfinite(self.central) and np.isfinite(coarse.central)
        return (4 * self.best - coarse.best) / 3 if is_central else 2 * self.best - coarse.best


def _sizes(x: Array, index: tuple[int, ...] | None) -> list[float]:
    """Return the magnitudes from which step sizes are tried: of all elements, then, near the end of a domain, of the one
    element."""
    typical = _typical(x)
    if index is None:
        return [typical]
    own = abs(float(x[index]))
    return [max(own, 0.1 * typical), own] if own else [0.1 * typical]


def _typical(x: Array) -> float:
    """Return the root mean square of an array's elements, or 1 if that is zero or not finite."""
    size = float(np.sqrt(np.mean(np.square(x)))) if x.size else 0.0
    return size if np.isfinite(size) and size else 1.0
