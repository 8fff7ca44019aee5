"""Python's ``math`` on traced scalars: computed in float64, returned as Python numbers.

Outside a function's domain or range, the program raises ValueError or OverflowError as ``math`` does (``math_errors.py``).
``floor``, ``ceil`` and ``trunc`` return integers, and raise as Python does for NaN and infinities.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.make import as_traced, cast, emit, literal
from pullback.tracer.arrays.python_floats import ANY, bounds_of_float, error_text, forbid
from pullback.tracer.arrays.python_scalars import integer, scalar, weak
from pullback.tracer.arrays.replacements import takes_traced, twin, twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.python.math_errors import check_arguments, check_result
from pullback.tracer.user_code.errors import TraceError

Function = Callable[..., Any]


def traced(name: str, kind: str = "float") -> Callable[[Function], Function]:
    """Register the decorated function as ``math.<name>``; it takes float64 scalars and its result is a Python number."""

    def register(function: Function) -> Function:
        def call(*args: Any) -> Any:
            if kind == "int" and len(args) == 1 and as_traced(args[0]).dtype.kind in "iub":
                return scalar(args[0], "int")
            scalars = [_as_float(a) for a in args]
            check_arguments(name, scalars)
            result = function(*scalars)
            if isinstance(result, tuple):
                return result
            result = weak(result, kind) if result.weak != kind else result
            check_result(name, scalars, result)
            result.known = _known(getattr(math, name), args)
            return result

        twin_of(f"math.{name}")(call)
        return function

    return register


def _as_float(x: Any) -> TracedArray:
    """Return a number as a Python float, with the bounds that are known."""
    array = as_traced(x)
    result = scalar(array, "float")
    if array.weak in ("float", "int") and result.literal is None and bounds_of_float(array) != ANY:
        result.bounds = bounds_of_float(array)
    return result


def _known(function: Function, args: Any) -> Any:
    """Return the value and its sources if the values of all arguments are known at trace time, else None."""
    values = [known_value(as_traced(a)) for a in args]
    if any(k is None for k in values):
        return None
    try:
        return function(*(k[0] for k in values if k)), frozenset().union(*(k[1] for k in values if k))
    except (ValueError, OverflowError):
        return None


def _ufunc(ufunc: np.ufunc) -> Function:
    return lambda *args: cast(ufunc(*args), np.float64)


for _name, _other in (
    ("sin", "sin"), ("cos", "cos"), ("tan", "tan"), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"),
    ("sinh", "sinh"), ("cosh", "cosh"), ("tanh", "tanh"), ("asinh", "arcsinh"), ("acosh", "arccosh"), ("atanh", "arctanh"),
    ("exp", "exp"), ("exp2", "exp2"), ("expm1", "expm1"), ("log1p", "log1p"), ("log2", "log2"), ("log10", "log10"),
    ("sqrt", "sqrt"), ("cbrt", "cbrt"), ("fabs", "fabs"), ("atan2", "arctan2"), ("copysign", "copysign"), ("fmod", "fmod"),
    ("pow", "power"), ("degrees", "degrees"), ("radians", "radians"),
):  # fmt: skip
    traced(_name)(_ufunc(getattr(np, _other)))
for _name in ("erf", "erfc", "gamma"):
    traced(_name)(functools.partial(emit, _name))
traced("lgamma")(functools.partial(emit, "gammaln"))
for _name in ("isnan", "isinf", "isfinite"):
    traced(_name, "bool")(getattr(np, _name))
traced("floor", "int")(lambda x: integer(x, np.floor))
traced("ceil", "int")(lambda x: integer(x, np.ceil))
traced("trunc", "int")(lambda x: integer(x, np.trunc))


@traced("log")
def log(x: TracedArray, base: Any = None) -> Any:
    if base is None:
        return np.log(x)
    check_arguments("log", [base])
    low, high = bounds_of_float(base)
    if low <= 1 <= high:
        is_one = emit("eq", base, literal(1.0, np.float64))
        forbid(is_one, "ZeroDivisionError", error_text(math.log, 2.0, 1.0))
    return np.log(x) / np.log(base)


@traced("fma")
def fma(x: TracedArray, y: TracedArray, z: TracedArray) -> Any:
    return emit("fma", *(cast(v, np.float64) for v in (x, y, z)))


@traced("hypot")
def hypot(*coordinates: TracedArray) -> Any:
    return functools.reduce(np.hypot, coordinates[1:], np.abs(coordinates[0]))


@traced("remainder")
def remainder(x: TracedArray, y: TracedArray) -> Any:
    """Return x - n * y, exactly, for the integer n nearest to x / y, by CPython's method."""
    a, b = np.abs(x), np.abs(y)
    low = np.fmod(a, b)
    high = b - low
    tie = low - 2.0 * np.fmod(0.5 * (a - low), b)
    magnitude = xp.where(low < high, low, xp.where(low > high, -high, tie))
    result = xp.copysign(1.0, x) * magnitude
    return xp.where(np.isfinite(x) & np.isinf(y), x, result)


@traced("modf")
def modf(x: TracedArray) -> Any:
    return tuple(weak(part, "float") for part in xp.modf(x))


@traced("frexp")
def frexp(x: TracedArray) -> Any:
    fraction, exponent = xp.frexp(x)
    return weak(fraction, "float"), weak(cast(exponent, np.int64), "int")


@twin_of("math.ldexp")
def ldexp(x: Any, i: Any) -> Any:
    fraction = cast(scalar(x, "float"), np.float64)
    result = xp.ldexp(fraction, cast(scalar(i, "int"), np.int64))
    is_beyond = emit("bitand", as_traced(np.isinf(result)), as_traced(np.isfinite(fraction)))
    forbid(is_beyond, "OverflowError", error_text(math.ldexp, 1.0, 5000))
    return weak(result, "float")


@twin_of("math.isclose")
def isclose(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> Any:
    x, y = scalar(a, "float"), scalar(b, "float")
    close = xp.abs(x - y) <= xp.maximum(rel_tol * xp.maximum(xp.abs(x), xp.abs(y)), abs_tol)
    return weak((xp.isfinite(x) & xp.isfinite(y) & close) | (x == y), "bool")


@twin_of("math.dist")
def dist(p: Any, q: Any) -> Any:
    p, q = list(p), list(q)
    if len(p) != len(q):
        raise ValueError("both points must have the same number of dimensions")
    return weak(cast(as_traced(hypot(*(scalar(a, "float") - scalar(b, "float") for a, b in zip(p, q)))), np.float64), "float")


# functions of iterables, which need not be lists


def _register_of_items(name: str, function: Function) -> None:
    real = getattr(math, name, None)
    if real is None:
        return

    def call(*iterables: Any, **kwargs: Any) -> Any:
        items = [i if isinstance(i, TracedArray) else list(i) for i in iterables]
        return function(*items, **kwargs) if takes_traced(items, kwargs) else real(*items, **kwargs)

    twin(f"math.{name}")(call)


def _product(iterable: Any, *, start: Any = 1) -> Any:
    return functools.reduce(lambda a, b: a * b, iterable, start)


def _sum(iterable: Any) -> Any:
    return scalar(xp.sum(cast(as_traced(iterable), np.float64)), "float")


def _sumprod(p: Any, q: Any) -> Any:
    if len(p) != len(q):
        raise ValueError("Inputs are not the same length")
    return functools.reduce(lambda total, pair: total + pair[0] * pair[1], zip(p, q), 0)


_register_of_items("prod", _product)
_register_of_items("fsum", _sum)
_register_of_items("sumprod", _sumprod)


def _register_refused(name: str, instead: str, is_of_ints: bool = False) -> None:
    """Register a function that needs the values of its arguments: integers known at trace time are passed to Python's
    function."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if is_of_ints and not kwargs and all(known_value(as_traced(a)) for a in args):
            return getattr(math, name)(*map(operator.index, args))
        raise TraceError(f"math.{name} of traced values is not supported; {instead}")

    twin_of(f"math.{name}")(call)


_INTEGERS = "name the argument in static_argnames if it is a Python int"
for _name in ("comb", "factorial", "perm"):
    _register_refused(_name, f"{_INTEGERS}, or use scipy.special.gammaln", is_of_ints=True)
for _name in ("gcd", "lcm", "isqrt"):
    _register_refused(_name, _INTEGERS, is_of_ints=True)
for _name in ("nextafter", "ulp"):
    _register_refused(_name, "compute it outside the traced function")
