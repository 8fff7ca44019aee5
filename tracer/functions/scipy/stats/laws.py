"""Probability laws in their standard form (location 0, scale 1): what scipy.stats computes by them, as plain NumPy formulas.

A law has a formula for some of SciPy's methods; ``of`` derives others from these. Arguments are x (k for integers) or q, and
the shape parameters, as float64 arrays that broadcast. A formula need only be right inside the support and for valid parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pullback.tracer.arrays.arguments import xp

Formula = Callable[..., Any]

EULER = 0.5772156649015329
LOG_2 = math.log(2.0)
LOG_PI = math.log(math.pi)
LOG_2PI = math.log(2.0 * math.pi)

LAWS: dict[str, Law] = {}


class Law:
    """``support`` gives the bounds, ``valid`` whether parameters are; by default they must be positive. Other keywords are the
    formulas of methods, named as scipy.stats names them."""

    def __init__(
        self, name: str, support: Any = (-math.inf, math.inf), valid: Formula | None = None, **formulas: Formula
    ) -> None:
        self.support: Formula = support if callable(support) else lambda *args: support
        self.valid = valid or all_positive
        self.formulas: Mapping[str, Formula] = formulas
        LAWS[name] = self


def all_positive(*args: Any) -> Any:
    found: Any = True
    for a in args:
        found = found & (a > 0)
    return found


def of(law: Any, method: str) -> Formula | None:
    """The formula of a law for a method, its own or derived; None if there is none."""
    formulas = law.formulas
    found: Formula | None = formulas.get(method)
    if found is not None:
        return found
    for source, derive in _DERIVED.get(method, ()):
        known = formulas.get(source)
        if known is not None:
            return _composed(derive, known)
    return None


def _composed(derive: Formula, known: Formula) -> Formula:
    return lambda *args: derive(known, *args)


def _outside(function: Formula) -> Formula:
    return lambda known, *args: function(known(*args))


def _complement(known: Formula, *args: Any) -> Any:
    return 1.0 - known(*args)


def _log_complement(known: Formula, *args: Any) -> Any:
    """log(1 - exp(f))."""
    f = known(*args)
    return xp.where(f > -LOG_2, xp.log(-xp.expm1(f)), xp.log1p(-xp.exp(f)))


_DERIVED: dict[str, tuple[tuple[str, Formula], ...]] = {
    "pdf": (("logpdf", _outside(xp.exp)),),
    "logpdf": (("pdf", _outside(xp.log)),),
    "pmf": (("logpmf", _outside(xp.exp)),),
    "logpmf": (("pmf", _outside(xp.log)),),
    "cdf": (("logcdf", _outside(xp.exp)), ("sf", _complement), ("logsf", lambda f, *args: -xp.expm1(f(*args)))),
    "sf": (("logsf", _outside(xp.exp)), ("cdf", _complement), ("logcdf", lambda f, *args: -xp.expm1(f(*args)))),
    "logcdf": (("cdf", _outside(xp.log)), ("sf", lambda f, *args: xp.log1p(-f(*args))), ("logsf", _log_complement)),
    "logsf": (("sf", _outside(xp.log)), ("cdf", lambda f, *args: xp.log1p(-f(*args))), ("logcdf", _log_complement)),
    "ppf": (("isf", lambda f, q, *args: f(1.0 - q, *args)),),
    "isf": (("ppf", lambda f, q, *args: f(1.0 - q, *args)),),
}
