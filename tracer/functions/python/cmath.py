"""Python's ``cmath`` on traced scalars: computed in complex128, returned as Python numbers.

Where ``cmath`` raises ValueError or OverflowError, the program does. Special values are those of C99, which ``cmath`` and NumPy
follow.
"""

from __future__ import annotations

import cmath
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, emit
from pullback.tracer.arrays.python_floats import error_text, forbid
from pullback.tracer.arrays.python_scalars import scalar, weak
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray

Condition = Callable[[TracedArray], Any]

_DOMAIN = error_text(cmath.log, 0.0)
_RANGE = error_text(cmath.exp, 1e4)
_LEAST = -sys.float_info.max


def _both(a: Any, b: Any) -> Any:
    return emit("bitand", as_traced(a), as_traced(b))


def _is_zero(z: TracedArray) -> Any:
    return _both(z.real == 0.0, z.imag == 0.0)


def _is_unit(part: Any, other: Any) -> Any:
    """Return whether one part is 1 or -1 and the other is 0, where the inverse tangents have poles."""
    return _both(np.abs(part) == 1.0, other == 0.0)


def _has_no_phase(part: Any, angle: Any, least: float) -> Any:
    """Return whether an angle is infinite, and the other part at least ``least``."""
    return _both(np.abs(angle) == np.inf, part >= least)


_FORBIDDEN: dict[str, Condition] = {
    "exp": lambda z: _has_no_phase(z.real, z.imag, _LEAST),
    "sinh": lambda z: _has_no_phase(z.real, z.imag, -np.inf),
    "cosh": lambda z: _has_no_phase(z.real, z.imag, -np.inf),
    "sin": lambda z: _has_no_phase(z.imag, z.real, -np.inf),
    "cos": lambda z: _has_no_phase(z.imag, z.real, -np.inf),
    "tanh": lambda z: _both(np.abs(z.imag) == np.inf, np.isfinite(z.real)),
    "tan": lambda z: _both(np.abs(z.real) == np.inf, np.isfinite(z.imag)),
    "log": _is_zero,
    "log10": _is_zero,
    "atanh": lambda z: _is_unit(z.real, z.imag),
    "atan": lambda z: _is_unit(z.imag, z.real),
}
"""The arguments for which a function raises ValueError."""

_OVERFLOWING = frozenset(("exp", "sinh", "cosh", "sin", "cos"))
"""The functions that raise OverflowError where the result is infinite for a finite argument."""


def _is_infinite(z: Any) -> Any:
    return (np.abs(z.real) == np.inf) | (np.abs(z.imag) == np.inf)


def _is_finite(z: Any) -> Any:
    return np.isfinite(z.real) & np.isfinite(z.imag)


def _function(name: str, ufunc: np.ufunc) -> Callable[[Any], TracedArray]:
    """Return ``cmath.<name>`` on traced numbers."""

    def call(z: Any, /) -> TracedArray:
        z = scalar(z, "complex")
        if name in _FORBIDDEN:
            forbid(as_traced(_FORBIDDEN[name](z)), "ValueError", _DOMAIN)
        result = ufunc(z)
        if name in _OVERFLOWING:
            forbid(_both(_is_infinite(result), _is_finite(z)), "OverflowError", _RANGE)
        return weak(as_traced(result), "complex")

    return call


for _name, _ufunc in (
    ("exp", np.exp), ("log10", np.log10), ("sqrt", np.sqrt), ("sin", np.sin), ("cos", np.cos), ("tan", np.tan),
    ("sinh", np.sinh), ("cosh", np.cosh), ("tanh", np.tanh), ("asin", np.arcsin), ("acos", np.arccos), ("atan", np.arctan),
    ("asinh", np.arcsinh), ("acosh", np.arccosh), ("atanh", np.arctanh),
):  # fmt: skip
    twin_of(f"cmath.{_name}")(_function(_name, _ufunc))

_log_of = _function("log", np.log)


@twin_of("cmath.log")
def log(z: Any, base: Any = None, /) -> TracedArray:
    if base is None:
        return _log_of(z)
    above, below = np.log(scalar(z, "complex")), _log_of(base)  # with a base, cmath returns the logarithm of 0
    forbid(_is_zero(below), "ValueError", _DOMAIN)
    return weak(as_traced(above / below), "complex")


@twin_of("cmath.phase")
def phase(z: Any, /) -> TracedArray:
    z = scalar(z, "complex")
    return weak(as_traced(xp.arctan2(z.imag, z.real)), "float")


@twin_of("cmath.polar")
def polar(z: Any, /) -> tuple[TracedArray, TracedArray]:
    z = scalar(z, "complex")
    radius: Any = np.hypot(z.real, z.imag)
    forbid(_both(radius == np.inf, _is_finite(z)), "OverflowError", _RANGE)
    return weak(as_traced(radius), "float"), phase(z)


@twin_of("cmath.rect")
def rect(r: Any, phi: Any, /) -> TracedArray:
    r, phi = scalar(r, "float"), scalar(phi, "float")
    forbid(_both(np.abs(phi) == np.inf, (r != 0.0) & (r == r)), "ValueError", _DOMAIN)
    angle = xp.where(as_traced(r == 0.0) & ~as_traced(np.isfinite(phi)), 0.0, phi)
    is_real = as_traced((phi == 0.0) & ~np.isfinite(r))
    imag = xp.where(is_real, xp.copysign(1.0, r) * phi, r * np.sin(angle))
    return weak(as_traced(emit("complex", as_traced(r * np.cos(angle)), as_traced(imag))), "complex")


def _predicate(of_parts: Callable[[Any, Any], Any]) -> Callable[[Any], TracedArray]:
    def call(z: Any, /) -> TracedArray:
        z = scalar(z, "complex")
        return weak(as_traced(of_parts(z.real, z.imag)), "bool")

    return call


twin_of("cmath.isfinite")(_predicate(lambda x, y: np.isfinite(x) & np.isfinite(y)))
twin_of("cmath.isinf")(_predicate(lambda x, y: np.isinf(x) | np.isinf(y)))
twin_of("cmath.isnan")(_predicate(lambda x, y: np.isnan(x) | np.isnan(y)))


@twin_of("cmath.isclose")
def isclose(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> TracedArray:
    x, y = scalar(a, "complex"), scalar(b, "complex")
    size = lambda z: np.hypot(z.real, z.imag)  # noqa: E731
    is_near = size(x - y) <= xp.maximum(rel_tol * xp.maximum(size(x), size(y)), abs_tol)
    return weak(as_traced((_is_finite(x) & _is_finite(y) & is_near) | (x == y)), "bool")
