"""``round`` of a traced number to a number of decimal digits, as Python's floats and ints round: the decimal number nearest to
the exact value, and of two the one whose last digit is even. NumPy rounds the product with a power of ten, which differs in the
last digit: of 2.55 to one digit, Python gives 2.5 and NumPy 2.6.

The product p of a float and a power of ten is exact with the error that a fused multiplication and addition returns; the error
decides where p is halfway between two integers. From 2**53 on, the digits that are dropped are less than half of the
float's last bit, and the float is its own rounding.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, cast, emit, literal
from pullback.tracer.arrays.mixed_numbers import as_numpys, as_python, is_mixed, is_pythons, mixed, traced_tag
from pullback.tracer.arrays.python_scalars import weak
from pullback.tracer.arrays.tables import METHODS
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError

MOST_DIGITS = 22
"""The greatest exponent of ten whose power is a float without an error."""
LEAST_WHOLE = 2.0**53
"""The least float from which on all floats are even integers."""


def rounded(x: TracedArray, digits: Any) -> Any:
    """Return a number rounded to a number of decimal digits, of its type. Raises TraceError for a power of ten that is no
    float."""
    count = operator.index(digits)
    if not x.weak and not is_mixed(x):
        return METHODS["round"](x, count)
    if x.weak == "complex":
        raise TypeError("type complex doesn't define __round__ method")
    if x.dtype.kind in "bi" and x.weak:
        return weak(_of_int(cast(x, np.int64), count), "int")
    if not is_mixed(x):
        return weak(_of_float(x, count), "float")
    pythons = as_python(x)
    own = _of_float(pythons, count) if pythons.weak == "float" else _of_int(cast(pythons, np.int64), count)
    if x.weak:
        return mixed(own, traced_tag(x), x.weak)
    numpys = METHODS["round"](as_numpys(x), count)
    condition = is_pythons(x)
    return mixed(as_traced(xp.where(condition, cast(own, numpys.dtype), numpys)), traced_tag(x))


def _of_int(x: Any, count: int) -> TracedArray:
    """Return a Python int rounded to a multiple of a power of ten, of two the even one."""
    if count >= 0:
        return as_traced(x)
    if count < -18:
        return as_traced(x * 0)
    power = 10**-count
    quotient = x // power
    rest = x - quotient * power
    is_up = (2 * rest > power) | ((2 * rest == power) & (quotient % 2 == 1))
    return as_traced((quotient + cast(is_up, np.int64)) * power)


def _of_float(x: TracedArray, count: int) -> TracedArray:
    """Return a float64 rounded to a number of decimal digits."""
    if abs(count) > MOST_DIGITS:
        raise TraceError(f"round() to {count} digits; write a number of digits of at most {MOST_DIGITS}")
    power = literal(10.0 ** abs(count), np.float64)
    value: Any = emit("stop_gradient", cast(as_numpys(x), np.float64))
    product: Any = value * power if count > 0 else value / power
    # The sign of the exact scaled value less the product.
    error: Any = emit("fma", value, power, -product) if count > 0 else emit("fma", -product, power, value)
    below: Any = xp.floor(product)
    rest = product - below
    is_tie = rest == 0.5
    is_odd = below - 2.0 * xp.floor(below / 2.0) == 1.0
    is_up = (rest > 0.5) | (is_tie & ((error > 0.0) | ((error == 0.0) & is_odd)))
    nearest: Any = xp.where(is_up, below + 1.0, below)
    scaled = nearest / power if count > 0 else nearest * power
    is_coarse = ~(xp.abs(product) < LEAST_WHOLE)
    return as_traced(xp.copysign(xp.where(is_coarse, value, scaled), value))
