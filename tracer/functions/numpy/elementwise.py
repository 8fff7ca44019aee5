"""Elementwise functions without an op of their own, composed of functions that have one.

The composition of a ufunc receives operands of the ufunc loop's dtypes and of one shape; its result is cast to the loop's
output dtype.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import same_extent, same_shape, shapes_differ
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.arguments import NOVALUE, as_array, as_bool, as_number, choose_where, positions, refuse, reshaped, xp
from pullback.tracer.arrays.make import (
    as_traced,
    broadcast_shapes,
    broadcast_to,
    broadcast_together,
    cast,
    emit,
    fresh,
    full,
    literal,
    number_of_extent,
    promote,
)
from pullback.tracer.arrays.promotion import composition
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import seen
from pullback.tracer.arrays.views import update
from pullback.tracer.user_code.errors import TraceError

LN2 = math.log(2.0)


def _like(x: TracedArray, value: Any) -> TracedArray:
    return full(x.shape, value, x.dtype)


def _all(x: TracedArray, value: bool) -> TracedArray:
    return full(x.shape, value, np.bool_)


# ufuncs


@composition(np.square)
def square(x: TracedArray) -> TracedArray:
    return emit("mul", x, x)


@composition(np.reciprocal)
def reciprocal(x: TracedArray) -> TracedArray:
    if x.dtype.kind == "c":
        return emit("reciprocal", x)
    if x.dtype.kind == "f":
        return emit("div", _like(x, 1), x)
    widened = cast(x, np.float64)
    return emit("div", _like(widened, 1), widened)


@composition(np.positive)
def positive(x: TracedArray) -> TracedArray:
    return fresh(x)


@composition(np.conjugate)
def conjugate(x: TracedArray) -> TracedArray:
    return emit("conj", x) if x.dtype.kind == "c" else fresh(x)


@composition(np.absolute)
def absolute(x: TracedArray) -> TracedArray:
    return fresh(x) if x.dtype.kind == "b" else emit("abs", x)


@composition(np.floor)
def floor(x: TracedArray) -> TracedArray:
    return emit("floor", x) if x.dtype.kind == "f" else fresh(x)


@composition(np.ceil)
def ceil(x: TracedArray) -> TracedArray:
    return emit("ceil", x) if x.dtype.kind == "f" else fresh(x)


@composition(np.trunc)
def trunc(x: TracedArray) -> TracedArray:
    return emit("trunc", x) if x.dtype.kind == "f" else fresh(x)


@composition(np.logaddexp2)
def logaddexp2(x: TracedArray, y: TracedArray) -> TracedArray:
    ln2 = _like(x, LN2)
    return emit("div", emit("logaddexp", emit("mul", x, ln2), emit("mul", y, ln2)), ln2)


@composition(np.isnan)
def isnan(x: TracedArray) -> TracedArray:
    return emit("ne", x, x) if x.dtype.kind in "fc" else _all(x, False)


@composition(np.isinf)
def isinf(x: TracedArray) -> TracedArray:
    if x.dtype.kind == "c":
        return emit("bitor", isinf(x.real), isinf(x.imag))
    return emit("eq", emit("abs", x), _like(x, math.inf)) if x.dtype.kind == "f" else _all(x, False)


@composition(np.isfinite)
def isfinite(x: TracedArray) -> TracedArray:
    if x.dtype.kind == "c":
        return emit("bitand", isfinite(x.real), isfinite(x.imag))
    return emit("lt", emit("abs", x), _like(x, math.inf)) if x.dtype.kind == "f" else _all(x, True)


@composition(np.signbit)
def signbit(x: TracedArray) -> TracedArray:
    bits = emit("bitcast", x, dtype=f"i{x.dtype.itemsize * 8}")
    return emit("lt", bits, _like(bits, 0))


@composition(np.logical_and)
def logical_and(x: TracedArray, y: TracedArray) -> TracedArray:
    return emit("bitand", as_bool(x), as_bool(y))


@composition(np.logical_or)
def logical_or(x: TracedArray, y: TracedArray) -> TracedArray:
    return emit("bitor", as_bool(x), as_bool(y))


@composition(np.logical_xor)
def logical_xor(x: TracedArray, y: TracedArray) -> TracedArray:
    return emit("bitxor", as_bool(x), as_bool(y))


@composition(np.logical_not)
def logical_not(x: TracedArray) -> TracedArray:
    return emit("bitnot", as_bool(x))


@composition(np.deg2rad, np.radians)
def deg2rad(x: TracedArray) -> TracedArray:
    return emit("mul", x, _like(x, math.pi / 180.0))


@composition(np.rad2deg, np.degrees)
def rad2deg(x: TracedArray) -> TracedArray:
    return emit("mul", x, _like(x, 180.0 / math.pi))


@composition(np.heaviside)
def heaviside(x: TracedArray, h: TracedArray) -> TracedArray:
    zero, one = _like(x, 0), _like(x, 1)
    side = choose_where(emit("lt", x, zero), zero, choose_where(emit("eq", x, zero), h, one))
    return choose_where(emit("ne", x, x), x, side)


@composition(np.divmod)
def divmod_(x: TracedArray, y: TracedArray) -> tuple[TracedArray, TracedArray]:
    return emit("floordiv", x, y), emit("mod", x, y)


@composition(np.modf)
def modf(x: TracedArray) -> tuple[TracedArray, TracedArray]:
    integral = emit("trunc", x)
    part = choose_where(emit("eq", emit("abs", x), _like(x, math.inf)), _like(x, 0), emit("sub", x, integral))
    return emit("copysign", part, x), integral


@composition(np.ldexp)
def ldexp(x: TracedArray, n: TracedArray) -> TracedArray:
    """Return x * 2**n, rounded once.

    No power of two overflows or underflows before the product does, and no step but the last produces a subnormal number
    unless the result is 0.
    """
    if x.dtype != np.float64:
        most = 400  # an exponent of this magnitude takes any float32 to 0 or to infinity
        exponent = n if n.dtype.itemsize == 1 else emit("clip", n, _like(n, -most), _like(n, most))
        return cast(_scaled(cast(x, np.float64), exponent), x.dtype)
    left = cast(n, np.int64)
    for _ in range(2):
        step = choose_where(emit("lt", left, _like(left, -1022)), _like(left, -969), emit("minimum", left, _like(left, 1023)))
        x, left = _scaled(x, step), emit("sub", left, step)
    return _scaled(x, emit("clip", left, _like(left, -1022), _like(left, 1023)))


def _scaled(x: TracedArray, n: TracedArray) -> TracedArray:
    return emit("mul", x, emit("exp2", cast(n, x.dtype)))


@composition(np.frexp)
def frexp(x: TracedArray) -> tuple[TracedArray, TracedArray]:
    """Return fraction and exponent. The exponent is read from the bits, after scaling if x is subnormal; the fraction is x /
    2**exponent."""
    widened = x if x.dtype == np.float64 else cast(x, np.float64)
    is_small = emit("lt", emit("abs", widened), _like(widened, 2.0**-1000))
    scaled = choose_where(is_small, emit("mul", widened, _like(widened, 2.0**100)), widened)
    bits = emit("bitcast", scaled, dtype="i64")
    field = emit("bitand", emit("shr", bits, _like(bits, 52)), _like(bits, 2047))
    exponent = emit("sub", field, choose_where(is_small, _like(bits, 1122), _like(bits, 1022)))
    is_plain = emit("bitand", emit("ne", widened, _like(widened, 0)), isfinite(widened))
    exponent = choose_where(is_plain, exponent, _like(bits, 0))
    return cast(ldexp(widened, emit("neg", exponent)), x.dtype), cast(exponent, np.int32)


# clipping and rounding


def _bound(value: Any, dtype: np.dtype[Any], is_lower: bool) -> Any:
    """Return a bound of numpy.clip; None where a Python int is outside the dtype's range and so has no effect."""
    if value is NOVALUE:
        return None
    if dtype.kind not in "iu":
        return value
    info = np.iinfo(dtype)
    if isinstance(value, TracedArray) and value.weak == "int" and value.literal is None:
        bound = int(info.min if is_lower else info.max)
        if not -(2**63) <= bound < 2**63:
            return value
        result = emit("maximum" if is_lower else "minimum", value, literal(bound, np.int64), weak="int")
        if value.known is not None:
            result.known = (builtins.max if is_lower else builtins.min)(value.known[0], bound), value.known[1]
        return result
    if type(value) is int and ((value <= info.min) if is_lower else (value >= info.max)):
        return None
    return value


@implements(np.clip)
def clip(
    a: Any,
    a_min: Any = NOVALUE,
    a_max: Any = NOVALUE,
    out: Any = None,
    *,
    min: Any = NOVALUE,
    max: Any = NOVALUE,
    **kwargs: Any,
) -> TracedArray:
    dtype = kwargs.pop("dtype", None)
    refuse("clip", **kwargs)
    if a_min is NOVALUE and a_max is NOVALUE:
        a_min, a_max = min, max
    elif min is not NOVALUE or max is not NOVALUE:
        raise ValueError("Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is forbidden.")
    x = as_traced(a)
    low, high = _bound(a_min, x.dtype, True), _bound(a_max, x.dtype, False)
    if low is None and high is None:
        return fresh(x)
    if low is None or high is None:
        result = np.minimum(x, high, dtype=dtype) if low is None else np.maximum(x, low, dtype=dtype)
        if result.dtype.kind != "f":
            return result
        low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    if any(not is_size(v) and np.iscomplexobj(v) for v in (x, low, high)):
        return np.minimum(np.maximum(x, low), high)
    operands = promote(x, as_traced(low), as_traced(high))
    if dtype is not None:
        operands = [cast(v, dtype) for v in operands]
    if operands[0].dtype == np.bool_:
        return xp.minimum(xp.maximum(operands[0], operands[1]), operands[2])
    if operands[0].dtype.kind == "c":
        return xp.minimum(xp.maximum(operands[0], operands[1]), operands[2])
    return emit("clip", *broadcast_together(*operands))


@register_method("clip")
def clip_method(a: TracedArray, min: Any = None, max: Any = None, out: Any = None, **kwargs: Any) -> TracedArray:
    return clip(a, min, max, out, **kwargs)


@register_method("round")
@implements(np.round, np.around)
def round(a: Any, decimals: Any = 0, out: Any = None) -> TracedArray:
    x, digits = as_traced(a), operator.index(decimals)
    if x.dtype.kind == "b":
        if digits:
            raise TypeError("numpy.round of bools takes no decimals")
        x = cast(x, np.float16)
    if digits == 0 or (digits > 0 and x.dtype.kind in "iu"):
        return xp.rint(x) if x.dtype.kind in "fc" else fresh(x)
    if x.dtype.kind in "iu":
        scale = 10.0**-digits
        return cast(np.rint(cast(x, np.float64) / scale) * scale, x.dtype)
    if x.dtype.kind == "c":
        return emit("complex", round(x.real, digits), round(x.imag, digits))
    factor = 10.0 ** abs(digits)
    return np.rint(x * factor) / factor if digits > 0 else np.rint(x / factor) * factor


@twin(np.fix)
@implements(np.fix)
def fix(x: Any, out: Any = None) -> TracedArray:
    return xp.trunc(as_traced(x))


# other functions


@implements(np.sinc)
def sinc(x: Any) -> TracedArray:
    a = as_traced(x)
    angle = np.pi * (a if a.dtype.kind in "fc" else cast(a, np.float64))
    is_small = xp.abs(angle) < 0.5
    series: Any = -1 / math.factorial(15)
    for k in range(6, -1, -1):
        series = series * (angle * angle) + (-1) ** k / math.factorial(2 * k + 1)
    return as_number(xp.where(is_small, series, xp.sin(angle) / angle))


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> TracedArray:
    a = as_traced(x)
    result = _without_nans(a, nan, posinf, neginf)
    if copy or a is not x or not (a.ndim or a.is_cell):
        return result
    update(a, result)
    return a


def _without_nans(a: TracedArray, nan: Any, posinf: Any, neginf: Any) -> TracedArray:
    if a.dtype.kind == "c":
        return emit("complex", *(_without_nans(part, nan, posinf, neginf) for part in (a.real, a.imag)))
    if a.dtype.kind != "f":
        return fresh(a)
    largest = np.finfo(a.dtype)
    high = broadcast_to(cast(as_traced(largest.max if posinf is None else posinf), a.dtype), a.shape)
    low = broadcast_to(cast(as_traced(largest.min if neginf is None else neginf), a.dtype), a.shape)
    result = choose_where(emit("ne", a, a), broadcast_to(cast(as_traced(nan), a.dtype), a.shape), a)
    result = choose_where(emit("eq", a, _like(a, math.inf)), high, result)
    return choose_where(emit("eq", a, _like(a, -math.inf)), low, result)


@implements(np.real)
def real(val: Any) -> TracedArray:
    return as_traced(val).real


@implements(np.imag)
def imag(val: Any) -> TracedArray:
    return as_traced(val).imag


@register_method("conj", "conjugate")
def conjugate_method(a: TracedArray) -> TracedArray:
    if a.dtype.kind != "c":
        return a
    result = emit("conj", a)
    result.weak, result.type_tag = a.weak, a.type_tag
    return result


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> TracedArray:
    x = as_traced(z)
    result: TracedArray = xp.arctan2(x.imag if x.dtype.kind == "c" else 0, x.real)
    return result * (180 / math.pi) if deg else result


@implements(np.real_if_close)
def real_if_close(a: Any, tol: Any = 100) -> TracedArray:
    return as_array(as_traced(a))


@implements(np.isreal)
def isreal(x: Any) -> TracedArray:
    return imag(x) == 0


@implements(np.iscomplex)
def iscomplex(x: Any) -> TracedArray:
    return imag(x) != 0


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return as_traced(x).dtype.kind == "c"


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return as_traced(x).dtype.kind != "c"


@twin(np.isscalar)
def isscalar(element: Any) -> bool:
    """Return whether a value is a number, and no array of rank 0."""
    if isinstance(element, TracedArray):
        return not (element.ndim or element.is_cell)
    return np.isscalar(element)


@implements(np.isposinf)
def isposinf(x: Any, out: Any = None) -> TracedArray:
    a = as_traced(x)
    return emit("eq", a, _like(a, math.inf)) if a.dtype.kind == "f" else _all(a, False)


@implements(np.isneginf)
def isneginf(x: Any, out: Any = None) -> TracedArray:
    a = as_traced(x)
    return emit("eq", a, _like(a, -math.inf)) if a.dtype.kind == "f" else _all(a, False)


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False) -> TracedArray:
    x, y = as_traced(a), as_traced(b)
    if y.dtype.kind not in "fc":
        y = cast(y, np.result_type(y.dtype, 1.0))
    close = np.less_equal(np.abs(x - y), atol + rtol * np.abs(y)) & np.isfinite(y) | (x == y)
    return close | (np.isnan(x) & np.isnan(y)) if equal_nan else close


@implements(np.allclose)
def allclose(a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False) -> TracedArray:
    return xp.all(isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = as_traced(a1), as_traced(a2)
    if shapes_differ(x.shape, y.shape):
        return False
    if not same_shape(x.shape, y.shape):
        return _equal_by_value(x, y, equal_nan)
    same = x == y
    return np.all(same | (np.isnan(x) & np.isnan(y))) if equal_nan else np.all(same)


def _equal_by_value(x: TracedArray, y: TracedArray, equal_nan: bool) -> Any:
    """Return ``np.array_equal`` of arrays whose extents are equal or not by values."""
    pairs = [(n, m) for n, m in zip(x.shape, y.shape, strict=True) if not same_extent(n, m)]
    fits = functools.reduce(operator.and_, (number_of_extent(n) == number_of_extent(m) for n, m in pairs))
    a, b = reshaped(x, (x.size,)), reshaped(y, (y.size,))
    others = xp.concatenate([b, full((1,), 0, b.dtype)])
    b = xp.take(others, xp.minimum(positions(a.shape, 0), number_of_extent(b.size)))
    return fits & array_equal(a, b, equal_nan)


@implements(np.array_equiv)
def array_equiv(a1: Any, a2: Any) -> Any:
    x, y = as_traced(a1), as_traced(a2)
    if x.ndim == y.ndim and not (same_shape(x.shape, y.shape) or shapes_differ(x.shape, y.shape)):
        return _equal_by_value(x, y, False)
    try:
        broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return np.all(x == y)


# queries about types and shapes, evaluated at trace time


@implements(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    return seen(as_traced(a).shape)


@implements(np.ndim)
def ndim(a: Any) -> int:
    return as_traced(a).ndim


@implements(np.size)
def size(a: Any, axis: Any = None) -> int:
    x = as_traced(a)
    if axis is None:
        return seen(x.size)
    return seen(math.prod(x.shape[k] for k in (axis if isinstance(axis, tuple) else (axis,))))


def _kind(value: Any) -> Any:
    """Return the operand that represents a value in a type promotion: a Python scalar of its kind if it is weakly typed, else
    its dtype."""
    if not isinstance(value, TracedArray):
        return value
    return {"bool": True, "int": 0, "float": 0.0, "complex": 0j}.get(value.weak, value.dtype)


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    return np.result_type(*(_kind(v) for v in arrays_and_dtypes))


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    if isinstance(from_, TracedArray):
        from_ = from_.dtype
    return np.can_cast(from_, to, casting)


@implements(np.common_type)
def common_type(*arrays: Any) -> Any:
    return np.common_type(*(np.empty(0, as_traced(a).dtype) for a in arrays))


@implements(np.shares_memory, np.may_share_memory)
def shares_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    raise TraceError("np.shares_memory of a traced array; a traced array has no memory while the function is traced")
