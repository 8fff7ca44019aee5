"""Functions whose value and derivative are recomputed, without an exponential, from one saved number of the argument's type.

    expit(z)    kept = copysign(q, z) for q = expit(-abs(z))
                value = 1 - q, or q if the sign is set;  derivative = q (1 - q)
    tanh(z)     p = tanh_tail(z) = 1 - abs(tanh(z))
                kept = tanh(z) where p > 1/2, else p with the sign of z and the highest bit of the exponent set
                value = kept, or 1 - p with the sign of kept;  derivative = p (2 - p)

Values and derivatives are bit-identical to the functions', and stay accurate for large arguments. Where p is kept it is below
1, so the highest bit of its exponent is free: numbers with that bit set are at least 2, which no value of tanh is. abs(z)
decides whether p is kept, at the threshold where tanh itself is computed as 1 - p.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES, F32, F64, I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.semantics import TANH_NEAR

SIGNED = {F64: I64, F32: DTYPES["i32"]}
"""Integer types for the bits of floats; the sign is the same."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Tail:
    """A function and its derivative. ``split(b, z)`` emits the function's value and the number to save, ``join(b, kept)``
    value and derivative from that number, ``slope(b, z)`` the derivative alone, with the exponential of the function."""

    function: Op
    derivative: Op
    split: Callable[[Builder, Value], tuple[Value, Value]]
    join: Callable[[Builder, Value], tuple[Value, Value]]
    slope: Callable[[Builder, Value], Value]


def _split_expit(b: Builder, z: Value) -> tuple[Value, Value]:
    tail = b.expit(b.neg(b.abs(z)))
    y = b.select(b.lt(z, b.zeros_like(z)), tail, b.sub(b.full(1.0, z.type), tail))
    return y, b.copysign(tail, z)


def _join_expit(b: Builder, kept: Value) -> tuple[Value, Value]:
    """The sign bit decides, since a zero may be saved too."""
    tail = b.abs(kept)
    rest = b.sub(b.full(1.0, kept.type), tail)
    bits = b.bitcast(kept, dtype=SIGNED[kept.type.dtype])
    return b.select(b.lt(bits, b.zeros_like(bits)), tail, rest), b.mul(tail, rest)


def _slope_of_expit(b: Builder, z: Value) -> Value:
    tail = b.expit(b.neg(b.abs(z)))
    slope: Value = b.mul(tail, b.sub(b.full(1.0, z.type), tail))
    return slope


def _split_tanh(b: Builder, z: Value) -> tuple[Value, Value]:
    y, tail = b.tanh(z), b.tanh_tail(z)
    bits = b.bitcast(tail, dtype=SIGNED[z.type.dtype])
    marked = b.bitcast(b.bitor(bits, b.full(_marker(bits), bits.type)), dtype=z.type.dtype)
    return y, b.select(b.ge(b.abs(z), b.full(TANH_NEAR, z.type)), b.copysign(marked, z), y)


def _join_tanh(b: Builder, kept: Value) -> tuple[Value, Value]:
    size, one, two = b.abs(kept), b.full(1.0, kept.type), b.full(2.0, kept.type)
    is_tail = b.ge(size, two)
    bits = b.bitcast(size, dtype=SIGNED[kept.type.dtype])
    tail = b.bitcast(b.bitand(bits, b.full(_marker(bits) - 1, bits.type)), dtype=kept.type.dtype)
    part = b.select(is_tail, tail, size)
    rest = b.sub(one, part)
    p = b.select(is_tail, part, rest)
    return b.copysign(b.select(is_tail, rest, part), kept), b.mul(p, b.sub(two, p))


def _slope_of_tanh(b: Builder, z: Value) -> Value:
    tail = b.tanh_tail(z)
    slope: Value = b.mul(tail, b.sub(b.full(2.0, z.type), tail))
    return slope


def _marker(bits: Value) -> int:
    """Return the highest bit of the exponent, which is the only bit set in 2.0."""
    return 1 << bits.type.dtype.bits - 2


TAILS: Mapping[Op, Tail] = {
    t.function: t
    for t in (
        Tail(
            function=OPS["expit"], derivative=OPS["logistic_pdf"], split=_split_expit, join=_join_expit, slope=_slope_of_expit
        ),
        Tail(function=OPS["tanh"], derivative=OPS["sech2"], split=_split_tanh, join=_join_tanh, slope=_slope_of_tanh),
    )
}  # fmt: skip


def tail_of(function: Op, z: Value) -> Tail | None:
    """Return the tail of a function of ``z``, or None if it has none."""
    return TAILS.get(function) if isinstance(z.type, ArrayType) and z.type.dtype in SIGNED else None
