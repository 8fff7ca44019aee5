"""Errors of Python's arithmetic on floats with unknown values: the program raises what Python raises.

A Python float has bounds, as a Python int has: a division by what they keep from 0, or a power that they keep in range, needs no
check. NaN is within all bounds, since Python raises no error for it.
"""

from __future__ import annotations

import functools
import math
import operator
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays import tables, traced
from pullback.tracer.arrays.make import emit, literal
from pullback.tracer.arrays.mixed_numbers import Condition, as_condition
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.ownership import is_own_file

Bounds = tuple[float, float]

INF = math.inf
ANY: Bounds = (-INF, INF)
LEAST_ROOT_BEYOND = 2.0**512
"""The least float whose square exceeds all floats."""
BECOMES_COMPLEX = Limit(
    "a negative number to a fractional power, which Python makes complex; write complex(x) ** y, or abs(x) ** y"
)


def error_text(operation: Callable[..., Any], *arguments: Any) -> str:
    """Return the text of Python's error for an operation, without the value that some versions append."""
    try:
        operation(*arguments)
    except (ArithmeticError, ValueError) as error:
        return str(error).partition(", got ")[0]
    raise AssertionError(operation)


_BY_ZERO: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.true_divide: operator.truediv, np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.divmod: divmod,
}  # fmt: skip


def require(condition: Any, error: str, message: str, where: Condition = True) -> None:
    """Emit a check that raises ``error`` unless a condition holds. ``where``: whether the operands are Python's."""
    if where is not True:
        condition = emit("bitor", emit("bitnot", as_condition(where)), condition)
    emit("check", condition, error=error, message=message)


def forbid(condition: Any, error: str, message: str, where: Condition = True) -> None:
    """Emit a check that raises ``error`` if a condition holds; comparisons with NaN do not hold. ``where``: see ``require``."""
    require(emit("bitnot", condition), error, message, where)


def bounds_of_float(x: TracedArray) -> Bounds:
    """Return the least and the greatest value of a Python float or int, unless it is NaN."""
    if x.literal is not None:
        value = x.literal
        is_real = not is_size(value) and not isinstance(value, complex) and abs(value) < 2**1000
        return (float(value), float(value)) if is_real else ANY
    if x.weak == "bool":
        return 0.0, 1.0
    return (float(x.bounds[0]), float(x.bounds[1])) if isinstance(x.bounds, tuple) else ANY


def is_never_zero(x: TracedArray) -> bool:
    """Return whether the bounds of a number exclude 0."""
    low, high = bounds_of_float(x)
    return low > 0 or high < 0


def is_users_operation(depth: int = 2) -> bool:
    """Return whether the caller's operator is applied by code outside this package. ``depth``: of the operator's frame."""
    frame = sys._getframe(depth)
    while frame.f_code.co_filename in _OPERATORS and frame.f_back is not None:
        frame = frame.f_back
    return not _is_own(frame.f_code.co_filename)


_is_own = functools.lru_cache(maxsize=4096)(is_own_file)
_TRACER = os.path.dirname(os.path.dirname(traced.__file__))
_APPLYING = ("functions/python/builtins.py", "statements/choices.py")
_OPERATORS = {traced.__file__, tables.__file__, *(os.path.join(_TRACER, *name.split("/")) for name in _APPLYING)}
"""The files of functions through which the user's operators are applied."""


def check_float_operands(
    ufunc: np.ufunc, xs: Sequence[TracedArray], where: Condition = True, whole: Condition = False
) -> None:  # fmt: skip
    """Emit the check of a division of Python floats, or complex numbers, by zero. ``where``: see ``require``; ``whole``: whether
    the numbers are ints, of which Python's error says something else."""
    kinds = {x.weak for x in xs}
    if ufunc not in _BY_ZERO or "" in kinds or not kinds & {"float", "complex"} or is_never_zero(xs[1]):
        return
    one = 1j if "complex" in kinds else 1.0
    message, is_divisor = error_text(_BY_ZERO[ufunc], one, 0 * one), emit("ne", xs[1], literal(0, xs[1].dtype))
    if isinstance(whole, TracedArray):
        text = error_text(_BY_ZERO[ufunc], 1, 0)
        require(emit("bitor", is_divisor, emit("bitnot", whole)), "ZeroDivisionError", text, where)
        is_divisor = emit("bitor", is_divisor, whole)
    require(is_divisor, "ZeroDivisionError", message, where)


def check_power(x: TracedArray, y: TracedArray, result: TracedArray, where: Condition = True) -> None:
    """Emit the checks of a power of Python numbers that is a float: by zero, complex, or beyond the greatest float. ``where``:
    see ``require``."""
    (low, high), (least, greatest) = bounds_of_float(x), bounds_of_float(y)
    zero, infinity = literal(0.0, np.float64), literal(INF, np.float64)
    x, y = (emit("cast", v, dtype=np.float64) if v.dtype != np.float64 else v for v in (x, y))
    if least < 0 and low <= 0 <= high:
        is_zero = emit("eq", x, zero)
        by_zero = is_zero if y.literal is not None else emit("bitand", is_zero, emit("lt", y, zero))
        if least == -INF:
            by_zero = emit("bitand", by_zero, emit("gt", y, literal(-INF, np.float64)))
        forbid(by_zero, "ZeroDivisionError", error_text(operator.pow, 0.0, -1.0), where)
    is_whole = least == greatest and least == math.floor(least) if abs(least) < INF else False
    if low < 0 and not is_whole:
        is_negative = emit("bitand", emit("lt", x, zero), emit("gt", x, literal(-INF, np.float64)))
        if y.literal is None:
            is_fraction = emit("bitand", emit("ne", y, emit("floor", y)), emit("lt", emit("abs", y), infinity))
            is_negative = emit("bitand", is_negative, is_fraction)
        forbid(is_negative, "ValueError", BECOMES_COMPLEX, where)
    if _stays_finite((low, high), (least, greatest)):
        return
    size = emit("abs", x)
    if (least, greatest) == (2.0, 2.0):
        is_beyond = emit("bitand", emit("ge", size, literal(LEAST_ROOT_BEYOND, np.float64)), emit("lt", size, infinity))
    else:
        is_beyond = emit("bitand", emit("eq", emit("abs", result), infinity), emit("lt", size, infinity))
        if y.literal is None:
            is_beyond = emit("bitand", is_beyond, emit("lt", emit("abs", y), infinity))
        if least < 0:
            is_beyond = emit("bitand", is_beyond, emit("ne", x, zero))
    forbid(is_beyond, "OverflowError", error_text(operator.pow, 10.0, 400.0), where)


def _stays_finite(base: Bounds, exponent: Bounds) -> bool:
    """Return whether a power of finite numbers with these bounds is finite."""
    least, greatest = exponent
    size = max(abs(base[0]), abs(base[1]))
    smallest = min(abs(base[0]), abs(base[1])) if base[0] > 0 or base[1] < 0 else 0.0
    is_small_above = greatest <= 1 or size <= 1 or greatest * math.log2(size) < 1000
    is_small_below = least >= 0 or (smallest > 0 and least * math.log2(min(smallest, 1.0)) < 1000)
    return is_small_above and is_small_below


def _corners(function: Callable[[float, float], float]) -> Callable[[Bounds, Bounds], Bounds]:
    """Return the bounds of a function that is monotonic in each operand. Rounding keeps them."""

    def bounds(a: Bounds, b: Bounds) -> Bounds:
        with np.errstate(all="ignore"):
            values = [float(function(np.float64(x), np.float64(y))) for x in a for y in b]
        return ANY if any(map(math.isnan, values)) else (min(values), max(values))

    return bounds


def _product(x: float, y: float) -> float:
    """Return a corner of a product: infinity times 0 bounds finite numbers times 0."""
    return 0.0 if x == 0 or y == 0 else x * y


def _quotient(a: Bounds, b: Bounds) -> Bounds:
    return _corners(operator.truediv)(a, b) if b[0] > 0 or b[1] < 0 else ANY


def _power(a: Bounds, b: Bounds) -> Bounds:
    is_even = b[0] == b[1] and abs(b[0]) < INF and b[0] % 2 == 0
    return (0.0, INF) if is_even or a[0] >= 0 else ANY


_BOUNDS: dict[np.ufunc, Callable[..., Bounds]] = {
    np.add: _corners(operator.add),
    np.subtract: _corners(operator.sub),
    np.multiply: _corners(_product),
    np.true_divide: _quotient,
    np.power: _power,
    np.negative: lambda a: (-a[1], -a[0]),
    np.absolute: lambda a: (max(a[0], -a[1], 0.0), max(abs(a[0]), abs(a[1]))),
    np.positive: lambda a: a,
}  # fmt: skip


def bound_float(ufunc: np.ufunc, xs: Sequence[TracedArray], result: TracedArray) -> None:
    """Set the bounds of a float that an operation on Python numbers returns."""
    if ufunc not in _BOUNDS:
        return
    if ufunc is np.multiply and _is_same(*xs):
        low, high = _power(bounds_of_float(xs[0]), (2.0, 2.0))
    else:
        low, high = _BOUNDS[ufunc](*map(bounds_of_float, xs))
    if (low, high) != ANY:
        result.bounds = (low, high)


def _is_same(x: TracedArray, y: TracedArray) -> bool:
    return x is y or (x.literal is None and y.literal is None and x.value is y.value)


