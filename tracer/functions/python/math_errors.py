"""Errors of Python's ``math`` on values outside a function's domain or range, as checks of the program, and bounds of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.make import emit, literal
from pullback.tracer.arrays.python_floats import ANY, INF, Bounds, bounds_of_float, error_text, forbid
from pullback.tracer.arrays.traced import TracedArray


def _const(value: float) -> TracedArray:
    return literal(value, np.float64)


def _all(*conditions: Any) -> Any:
    """Return whether all conditions hold."""
    result = conditions[0]
    for other in conditions[1:]:
        result = emit("bitand", result, other)
    return result


def _is_finite(x: TracedArray) -> Any:
    return emit("lt", emit("abs", x), _const(INF))


def _is_infinite(x: TracedArray) -> Any:
    return emit("eq", emit("abs", x), _const(INF))


@dataclass(frozen=True, kw_only=True)
class _Interval:
    """A function of one number that raises ``error`` for numbers below ``low`` or above ``high``, or, if it ``excludes_ends``,
    equal to one of them. If it ``takes_infinity``, infinities are not among these. ``sample`` is such a number."""

    error: str
    sample: float
    low: float = -INF
    high: float = INF
    excludes_ends: bool = False
    takes_infinity: bool = False

    def check(self, name: str, x: TracedArray) -> None:
        """Emit the check of an argument, unless its bounds are within the interval."""
        least, greatest = bounds_of_float(x)
        reaches_low = self.low > -INF and (least <= self.low if self.excludes_ends else least < self.low)
        reaches_high = self.high < INF and (greatest >= self.high if self.excludes_ends else greatest > self.high)
        below, above = ("le", "ge") if self.excludes_ends else ("lt", "gt")
        conditions = [emit(below, x, _const(self.low))] if reaches_low else []
        conditions += [emit(above, x, _const(self.high))] if reaches_high else []
        for is_outside in conditions:
            if self.takes_infinity:
                is_outside = _all(is_outside, _is_finite(x))
            forbid(is_outside, self.error, error_text(getattr(math, name), self.sample))


_LARGEST_EXP, _LARGEST_COSH = 709.782712893384, 710.4758600739439
"""The greatest numbers whose exp and cosh are finite."""
_LARGEST = float(np.finfo(np.float64).max)

_INTERVALS: dict[str, _Interval] = {
    **dict.fromkeys(("sin", "cos", "tan"), _Interval(error="ValueError", sample=INF, low=-_LARGEST, high=_LARGEST)),
    **dict.fromkeys(("asin", "acos"), _Interval(error="ValueError", sample=2.0, low=-1.0, high=1.0)),
    "acosh": _Interval(error="ValueError", sample=0.0, low=1.0),
    "atanh": _Interval(error="ValueError", sample=1.0, low=-1.0, high=1.0, excludes_ends=True),
    **dict.fromkeys(("log", "log2", "log10"), _Interval(error="ValueError", sample=-1.0, low=0.0, excludes_ends=True)),
    "log1p": _Interval(error="ValueError", sample=-2.0, low=-1.0, excludes_ends=True),
    "sqrt": _Interval(error="ValueError", sample=-1.0, low=0.0),
    **dict.fromkeys(
        ("exp", "expm1"), _Interval(error="OverflowError", sample=1000.0, high=_LARGEST_EXP, takes_infinity=True)
    ),
    "exp2": _Interval(error="OverflowError", sample=2000.0, high=1024.0, excludes_ends=True, takes_infinity=True),
    **dict.fromkeys(
        ("sinh", "cosh"),
        _Interval(error="OverflowError", sample=1000.0, low=-_LARGEST_COSH, high=_LARGEST_COSH, takes_infinity=True),
    ),
}


def _check_modulo(name: str, args: Sequence[TracedArray], result: TracedArray) -> None:
    """Emit the checks of ``fmod`` and ``remainder``: a divisor of 0, or an infinite dividend."""
    x, y = args
    text = error_text(getattr(math, name), 1.0, 0.0)
    low, high = bounds_of_float(y)
    if low <= 0 <= high:
        forbid(_all(emit("eq", y, _const(0.0)), emit("eq", x, x)), "ValueError", text)
    forbid(_all(_is_infinite(x), emit("eq", y, y)), "ValueError", text)


def _check_pow(name: str, args: Sequence[TracedArray], result: TracedArray) -> None:
    """Emit the checks of ``math.pow``, whose result is never complex."""
    x, y = args
    is_finite = _all(_is_finite(x), _is_finite(y))
    zero = _const(0.0)
    forbid(_all(emit("eq", x, zero), emit("lt", y, zero), _is_finite(y)), "ValueError", error_text(math.pow, 0.0, -1.0))
    is_fraction = emit("ne", y, emit("floor", y))
    forbid(_all(emit("lt", x, zero), is_fraction, is_finite), "ValueError", error_text(math.pow, -1.0, 0.5))
    is_beyond = _all(_is_infinite(result), emit("ne", x, zero), is_finite)
    forbid(is_beyond, "OverflowError", error_text(math.pow, 10.0, 400.0))


def _check_gamma(name: str, args: Sequence[TracedArray], result: TracedArray) -> None:
    """Emit the checks of ``gamma`` and ``lgamma``: poles, and results beyond the greatest float."""
    (x,) = args
    function = getattr(math, name)
    is_pole = _all(emit("le", x, _const(0.0)), emit("eq", x, emit("floor", x)))
    if name == "lgamma":
        is_pole = _all(is_pole, _is_finite(x))
    forbid(is_pole, "ValueError", error_text(function, -1.0))
    forbid(_all(_is_infinite(result), _is_finite(x)), "OverflowError", error_text(function, 1e306))


def _check_fma(name: str, args: Sequence[TracedArray], result: TracedArray) -> None:
    """Emit the checks of ``fma``: an invalid operation, and a result beyond the greatest float."""
    is_valid = _all(*(emit("eq", x, x) for x in args))
    function = getattr(math, name)
    forbid(_all(emit("ne", result, result), is_valid), "ValueError", error_text(function, INF, 0.0, 1.0))
    is_finite = _all(*map(_is_finite, args))
    forbid(_all(_is_infinite(result), is_finite), "OverflowError", error_text(function, 1e300, 1e300, 1.0))


_CHECKS: dict[str, Callable[[str, Sequence[TracedArray], TracedArray], None]] = {
    "fmod": _check_modulo, "remainder": _check_modulo, "pow": _check_pow, "gamma": _check_gamma, "lgamma": _check_gamma,
    "fma": _check_fma,
}  # fmt: skip

_WITHIN: dict[str, Bounds] = {
    **dict.fromkeys(("exp", "exp2", "sqrt", "fabs", "hypot"), (0.0, INF)),
    **dict.fromkeys(("sin", "cos", "tanh", "erf"), (-1.0001, 1.0001)),
    **dict.fromkeys(("atan", "asin"), (-1.6, 1.6)),
    "acos": (0.0, 3.2), "atan2": (-3.2, 3.2), "erfc": (0.0, 2.0001), "cosh": (0.9999, INF), "expm1": (-1.0001, INF),
    "acosh": (0.0, INF),
}  # fmt: skip
"""Bounds of results, with a margin for rounding."""


def check_arguments(name: str, args: Sequence[TracedArray]) -> None:
    """Emit the checks of a function of ``math`` on its arguments."""
    interval = _INTERVALS.get(name)
    if interval is not None:
        interval.check(name, args[0])


def check_result(name: str, args: Sequence[TracedArray], result: TracedArray) -> None:
    """Emit the checks of a function of ``math`` that depend on its result, and set the result's bounds."""
    check = _CHECKS.get(name)
    if check is not None:
        check(name, args, result)
    bounds = _WITHIN.get(name, ANY)
    if bounds != ANY:
        result.bounds = bounds
