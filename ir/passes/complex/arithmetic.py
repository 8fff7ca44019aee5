"""Complex arithmetic in real ops, with NumPy's algorithms: products, quotients by R. Smith's algorithm (Communications of the
ACM 5, 1962), comparisons by the real part and then the imaginary part.

``PARTS`` maps an elementwise op's name to ``parts(b, *operands, **params)``, in which complex operands and results are pairs
of a real and an imaginary part.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pullback.ir.core.types import DType
from pullback.ir.core.value import Value

Pair = tuple[Value, Value]
Parts = Callable[..., Any]

PARTS: dict[str, Parts] = {}


def parts(*names: str) -> Callable[[Parts], Parts]:
    """Decorator: register a function as the lowering of the named ops for complex operands."""

    def register(function: Parts) -> Parts:
        for name in names:
            PARTS[name] = function
        return function

    return register


def like(b: Any, value: Any, x: Value) -> Value:
    """Emit a constant of the type of ``x``."""
    constant: Value = b.full(value, x.type)
    return constant


def is_nan(b: Any, z: Pair) -> Value:
    """Emit whether either part is NaN."""
    result: Value = b.bitor(b.ne(z[0], z[0]), b.ne(z[1], z[1]))
    return result


def choose(b: Any, condition: Value, x: Pair, y: Pair) -> Pair:
    """Emit ``x`` where the condition holds, else ``y``."""
    return b.select(condition, x[0], y[0]), b.select(condition, x[1], y[1])


# parts


@parts("real")
def real(b: Any, z: Pair) -> Value:
    return z[0]


@parts("imag")
def imag(b: Any, z: Pair) -> Value:
    return z[1]


@parts("conj")
def conj(b: Any, z: Pair) -> Pair:
    return z[0], b.neg(z[1])


@parts("complex")
def complex_(b: Any, x: Value, y: Value) -> Pair:
    return x, y


@parts("cast")
def cast(b: Any, z: Any, dtype: DType, **params: Any) -> Any:
    if not isinstance(z, tuple):
        x = b.cast(z, dtype=dtype.part, **params)
        return x, like(b, 0, x)
    if dtype.is_complex:
        return b.cast(z[0], dtype=dtype.part), b.cast(z[1], dtype=dtype.part)
    if dtype.is_bool:
        return b.bitor(b.cast(z[0], dtype=dtype), b.cast(z[1], dtype=dtype))
    return b.cast(z[0], dtype=dtype, **params)


# arithmetic


@parts("add")
def add(b: Any, z: Pair, w: Pair) -> Pair:
    return b.add(z[0], w[0]), b.add(z[1], w[1])


@parts("sub")
def sub(b: Any, z: Pair, w: Pair) -> Pair:
    return b.sub(z[0], w[0]), b.sub(z[1], w[1])


@parts("neg")
def neg(b: Any, z: Pair) -> Pair:
    return b.neg(z[0]), b.neg(z[1])


@parts("mul")
def mul(b: Any, z: Pair, w: Pair) -> Pair:
    (x, y), (u, v) = z, w
    return b.sub(b.mul(x, u), b.mul(y, v)), b.add(b.mul(x, v), b.mul(y, u))


@parts("div")
def div(b: Any, z: Pair, w: Pair) -> Pair:
    (x, y), (u, v) = z, w
    zero, one = like(b, 0, u), like(b, 1, u)
    is_wide = b.ge(b.abs(u), b.abs(v))
    large, small = b.select(is_wide, u, v), b.select(is_wide, v, u)
    first, second = b.select(is_wide, x, y), b.select(is_wide, y, x)
    ratio = b.div(small, large)
    scale = b.div(one, b.add(large, b.mul(small, ratio)))
    re = b.mul(b.add(first, b.mul(second, ratio)), scale)
    crossed = b.mul(first, ratio)
    im = b.mul(b.select(is_wide, b.sub(second, crossed), b.sub(crossed, second)), scale)
    is_zero = b.bitand(b.eq(u, zero), b.eq(v, zero))
    size = b.abs(u)
    return choose(b, is_zero, (b.div(x, size), b.div(y, size)), (re, im))


@parts("reciprocal")
def reciprocal(b: Any, z: Pair) -> Pair:
    x, y = z
    one = like(b, 1, x)
    is_wide = b.le(b.abs(y), b.abs(x))
    large, small = b.select(is_wide, x, y), b.select(is_wide, y, x)
    ratio = b.div(small, large)
    below = b.add(large, b.mul(small, ratio))
    return b.div(b.select(is_wide, one, ratio), below), b.div(b.neg(b.select(is_wide, ratio, one)), below)


@parts("abs")
def abs_(b: Any, z: Pair) -> Value:
    magnitude: Value = b.hypot(*z)
    return magnitude


@parts("sign")
def sign(b: Any, z: Pair) -> Pair:
    """Emit z / |z|: 0 at 0; a unit along an axis where one part is infinite; NaN where both are."""
    size = abs_(b, z)
    zero, infinity = like(b, 0, size), like(b, float("inf"), size)
    is_infinite = b.eq(size, infinity)

    def part(x: Value, other: Value) -> Value:
        has_limit = b.eq(b.abs(x), infinity)
        limit = b.select(has_limit, b.copysign(like(b, 1, x), x), zero)
        limit = b.select(b.bitand(has_limit, b.eq(b.abs(other), infinity)), like(b, float("nan"), x), limit)
        quotient: Value = b.select(b.eq(size, zero), zero, b.select(is_infinite, limit, b.div(x, size)))
        return quotient

    return part(z[0], z[1]), part(z[1], z[0])


@parts("rint")
def rint(b: Any, z: Pair) -> Pair:
    return b.rint(z[0]), b.rint(z[1])


# choice and order


@parts("select")
def select(b: Any, condition: Value, z: Pair, w: Pair) -> Pair:
    return choose(b, condition, z, w)


@parts("eq")
def eq(b: Any, z: Pair, w: Pair) -> Value:
    result: Value = b.bitand(b.eq(z[0], w[0]), b.eq(z[1], w[1]))
    return result


@parts("ne")
def ne(b: Any, z: Pair, w: Pair) -> Value:
    result: Value = b.bitor(b.ne(z[0], w[0]), b.ne(z[1], w[1]))
    return result


def _compared(strict: str, name: str) -> Parts:
    """Return an order by the real part, then the imaginary part; false if the real parts differ and an imaginary part is NaN."""

    def compare(b: Any, z: Pair, w: Pair) -> Value:
        (x, y), (u, v) = z, w
        is_ordered = b.bitand(b.eq(y, y), b.eq(v, v))
        first = b.bitand(getattr(b, strict)(x, u), is_ordered)
        result: Value = b.bitor(first, b.bitand(b.eq(x, u), getattr(b, name)(y, v)))
        return result

    return compare


lt, le = parts("lt")(_compared("lt", "lt")), parts("le")(_compared("lt", "le"))
gt, ge = parts("gt")(_compared("gt", "gt")), parts("ge")(_compared("gt", "ge"))


@parts("maximum")
def maximum(b: Any, z: Pair, w: Pair) -> Pair:
    return choose(b, b.bitor(is_nan(b, z), ge(b, z, w)), z, w)


@parts("minimum")
def minimum(b: Any, z: Pair, w: Pair) -> Pair:
    return choose(b, b.bitor(is_nan(b, z), le(b, z, w)), z, w)


@parts("fmax")
def fmax(b: Any, z: Pair, w: Pair) -> Pair:
    return choose(b, b.bitor(is_nan(b, w), ge(b, z, w)), z, w)


@parts("fmin")
def fmin(b: Any, z: Pair, w: Pair) -> Pair:
    return choose(b, b.bitor(is_nan(b, w), le(b, z, w)), z, w)
