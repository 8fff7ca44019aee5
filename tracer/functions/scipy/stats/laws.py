"""Probability distributions in their standard form (location 0, scale 1), as plain NumPy formulas.

A ``Law`` has formulas for some of SciPy's methods; ``formula_of`` derives others from these. Arguments are x (k for integers)
or q, then the shape parameters, as float64 arrays that broadcast. A formula need only be right inside the support and for
valid parameters.
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
    """The standard form of a distribution.

    ``support`` returns the bounds from the parameters, ``valid`` whether the parameters are valid (by default: all positive).
    The other keywords are the formulas of methods, under scipy.stats' names.
    """

    def __init__(
        self, name: str, support: Any = (-math.inf, math.inf), valid: Formula | None = None, **formulas: Formula
    ) -> None:
        self.support: Formula = support if callable(support) else lambda *args: support
        self.valid = valid or all_positive
        self.formulas: Mapping[str, Formula] = formulas
        LAWS[name] = self


def all_positive(*args: Any) -> Any:
    result: Any = True
    for a in args:
        result = result & (a > 0)
    return result


def formula_of(law: Any, method: str) -> Formula | None:
    """Return a law's formula for a method, its own or a derived one; None if there is neither."""
    formulas = law.formulas
    formula: Formula | None = formulas.get(method)
    if formula is not None:
        return formula
    for source, derive in _DERIVED.get(method, ()):
        base = formulas.get(source)
        if base is not None:
            return _derived_formula(derive, base)
    return None


def _derived_formula(derive: Formula, base: Formula) -> Formula:
    return lambda *args: derive(base, *args)


def _apply_to_base(function: Formula) -> Formula:
    return lambda base, *args: function(base(*args))


def _complement(base: Formula, *args: Any) -> Any:
    return 1.0 - base(*args)


def _log_complement(base: Formula, *args: Any) -> Any:
    """Return log(1 - exp(f)), where f is the base formula."""
    f = base(*args)
    return xp.where(f > -LOG_2, xp.log(-xp.expm1(f)), xp.log1p(-xp.exp(f)))


_DERIVED: dict[str, tuple[tuple[str, Formula], ...]] = {
    "pdf": (("logpdf", _apply_to_base(xp.exp)),),
    "logpdf": (("pdf", _apply_to_base(xp.log)),),
    "pmf": (("logpmf", _apply_to_base(xp.exp)),),
    "logpmf": (("pmf", _apply_to_base(xp.log)),),
    "cdf": (("logcdf", _apply_to_base(xp.exp)), ("sf", _complement), ("logsf", lambda f, *args: -xp.expm1(f(*args)))),
    "sf": (("logsf", _apply_to_base(xp.exp)), ("cdf", _complement), ("logcdf", lambda f, *args: -xp.expm1(f(*args)))),
    "logcdf": (("cdf", _apply_to_base(xp.log)), ("sf", lambda f, *args: xp.log1p(-f(*args))), ("logsf", _log_complement)),
    "logsf": (("sf", _apply_to_base(xp.log)), ("cdf", lambda f, *args: xp.log1p(-f(*args))), ("logcdf", _log_complement)),
    "ppf": (("isf", lambda f, q, *args: f(1.0 - q, *args)),),
    "isf": (("ppf", lambda f, q, *args: f(1.0 - q, *args)),),
}
