"""Float formats, constants, polynomials and scaling by powers of two, shared by the recipes of elementary functions.

A recipe is a function of a builder and rank-0 float values that appends straight-line code and returns a value of the same
type; its only branch leads to code for rare arguments (``rarely``). Equal subexpressions of two recipes are built alike, so
that they merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block
from pullback.ir.core.types import DTYPES, F32, F64, DType
from pullback.ir.core.value import Value

Recipe = Callable[..., Value]
Coefficients = Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Format:
    """Constants of a binary float format.

    ``round`` is 1.5 * 2**digits: adding it rounds to an integer, which is then in the low bits of the sum. ``ln2`` and
    ``half_pi`` are split into parts that sum to the constant; the first part of ``ln2`` has enough trailing zeros for its
    product with an exponent to be exact.
    """

    dtype: DType
    signed: DType
    unsigned: DType
    digits: int
    bias: int
    round: float
    smallest_normal: float
    ln2: tuple[float, float]
    half_pi: tuple[float, float, float]


FORMATS = {
    "f64": Format(
        dtype=F64,
        signed=DTYPES["i64"],
        unsigned=DTYPES["u64"],
        digits=52,
        bias=1023,
        round=1.5 * 2.0**52,
        smallest_normal=2.0**-1022,
        ln2=(0.6931471805598903, 5.497923018708371e-14),
        half_pi=(1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
    ),
    "f32": Format(
        dtype=F32,
        signed=DTYPES["i32"],
        unsigned=DTYPES["u32"],
        digits=23,
        bias=127,
        round=1.5 * 2.0**23,
        smallest_normal=2.0**-126,
        ln2=(0.693145751953125, 1.428606765330187e-06),
        half_pi=(1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    ),
}


def format_of(x: Value) -> Format:
    return FORMATS[x.type.dtype.name]


def constant(b: Builder, x: Value, value: float) -> Value:
    """Return a constant of the type of ``x``."""
    return b.const(value, x.type.dtype)


def polynomial(b: Builder, x: Value, coefficients: Coefficients, steps: int = 0) -> Value:
    """Return the sum of c[k] * x**k with the coefficients of the format of ``x``.

    Estrin's scheme (Muller, Elementary Functions, 2016, section 5.1): pairs, then pairs of pairs; n - 1 fused operations in a
    chain of log2(n). The first ``steps`` coefficients are added last by Horner's rule, which rounds less.
    """
    constants = [constant(b, x, c) for c in coefficients[x.type.dtype.name]]
    terms = constants[steps:]
    power = x
    while len(terms) > 1:
        paired = [b.fma(power, terms[i + 1], terms[i]) for i in range(0, len(terms) - 1, 2)]
        terms = paired + terms[len(paired) * 2 :]
        if len(terms) > 1:
            power = b.mul(power, power)
    total = terms[0]
    for coefficient in reversed(constants[:steps]):
        total = b.fma(x, total, coefficient)
    return total


def halves(b: Builder, x: Value, square: Value, coefficients: Coefficients) -> Value:
    """Return the sum of c[k] * x**k, even and odd powers separately, each by Horner's rule, in n - 1 fused operations."""
    even, odd = ([constant(b, x, c) for c in coefficients[x.type.dtype.name][k::2]] for k in (0, 1))
    sums = []
    for terms in (even, odd):
        total = terms[-1]
        for coefficient in reversed(terms[:-1]):
            total = b.fma(square, total, coefficient)
        sums.append(total)
    return b.fma(x, sums[1], sums[0])


def clamp(b: Builder, x: Value, low: float | None, high: float | None) -> Value:
    """Return ``x`` clamped to [low, high]; NaN stays NaN."""
    if high is not None:
        bound = constant(b, x, high)
        x = b.select(b.gt(x, bound), bound, x)
    if low is not None:
        bound = constant(b, x, low)
        x = b.select(b.lt(x, bound), bound, x)
    return x


def two_sum(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Return x + y rounded, and the rounding error (Knuth)."""
    total = b.add(x, y)
    part = b.sub(total, x)
    return total, b.add(b.sub(x, b.sub(total, part)), b.sub(y, part))


def bits_of(b: Builder, x: Value) -> Value:
    """Return the bits of ``x`` as an unsigned integer."""
    return b.bitcast(x, dtype=format_of(x).unsigned)


def power_of_two(b: Builder, biased: Value, like: Value) -> Value:
    """Return 2**k from an unsigned integer whose low bits hold k + bias; higher bits are shifted out."""
    fmt = format_of(like)
    return b.bitcast(b.shl(biased, b.const(fmt.digits, fmt.unsigned)), dtype=fmt.dtype)


def rarely(
    b: Builder, condition: Value, usual: Sequence[Value], compute: Callable[..., Sequence[Value]], *arguments: Value
) -> tuple[Value, ...]:
    """Return the results of ``compute(b, *arguments)`` where the condition holds, and ``usual`` elsewhere. It costs nothing
    where the condition never holds. ``compute`` is identified by its name and the dtypes of its arguments."""
    key = compute, type(b), tuple(v.type for v in arguments)
    if key not in _REGIONS:
        inside = b.region()
        inside.loc = NOWHERE
        parameters = [Value(v.type, "x") for v in arguments]
        _REGIONS[key] = inside.block(parameters, compute(inside, *parameters))
    function = "_".join([compute.__name__.strip("_"), *(v.type.dtype.name for v in arguments)])
    b.emit(OPS["cold_function"], (), {"function": function}, [_REGIONS[key]])
    return b.emit(OPS["cold_call"], (condition, *usual, *arguments), {"function": function, "defaults": len(usual)})


_REGIONS: dict[tuple[Any, ...], Block] = {}
