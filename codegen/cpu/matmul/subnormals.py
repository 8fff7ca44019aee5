"""Panels of matrix products with subnormal numbers: a multiply-add of one takes a hundred cycles and more, and they are many.

Such a panel is multiplied by a power of two that makes all its numbers normal, as long as the sums of a tile leave room: this is
exact, and so is what takes the scale from a tile's sums again, but for results that are subnormal themselves. What a tile of sums
is depends on its two panels alone: each is brought to the scale that the next tile asks for, which seldom changes.

Cost: each packed panel is read once more, as integers, among which none is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from pullback.codegen.cpu.loops.nest_builder import number, parts, serial, vector, when
from pullback.codegen.cpu.matmul.blocking import BESIDE, Shape
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.types import DTYPES, F32, I64, DType, scalar
from pullback.ir.core.value import Value

SLOW, GREATEST, SCALED = range(3)
"""What is known of a panel, or ``UNKNOWN``: whether it has subnormal numbers; the exponent of its greatest number; whether it is
scaled."""
KNOWN = 3
UNKNOWN = -1


@dataclass(frozen=True)
class Scales:
    """The scale of panels of floats, kept in vectors of so many lanes, of which sums have at most so many terms; so many vectors
    are ``behind`` their end."""

    dtype: DType
    lanes: int
    terms: int
    behind: int

    @classmethod
    def of_shape(cls, dtype: DType, shape: Shape) -> Scales:
        """Those of the panels of a tile."""
        return cls(dtype, shape.lanes, shape.terms * shape.planes, shape.behind)

    @property
    def fraction(self) -> int:
        """The bits of a fraction."""
        return 23 if self.dtype is F32 else 52

    @property
    def shift(self) -> int:
        """The scale's power of two."""
        return self.fraction + 1

    @property
    def bias(self) -> int:
        """The exponent of 1. That of subnormal numbers is 0; that of what is not finite, twice this and one more."""
        return (1 << (self.dtype.bits - 2 - self.fraction)) - 1

    @property
    def bits(self) -> DType:
        return DTYPES[f"u{self.dtype.bits}"]

    def forget(self, b: Builder, panel: Value, known: Value, count: Value) -> None:
        """A panel of so many numbers was packed just now. Makes zeros of what is behind its end."""
        def end(b: Builder, v: Value) -> None:
            for k in range(self.behind):
                b.store(b.const(0.0, self.dtype), panel, b.add(b.add(count, v), number(b, k * self.lanes)))

        vector(b, number(b, self.lanes), self.lanes, end)
        for at, value in ((SLOW, UNKNOWN), (GREATEST, UNKNOWN), (SCALED, 0)):
            b.store(number(b, value), known, number(b, at))

    def least(self, b: Builder, panel: Value, count: Value, changed: Value, less: Value) -> Value:
        """The least of a panel's numbers as unsigned integers, without signs, with some bits changed and then less."""
        lanes, v = Builder(b.loc), Value(scalar(I64), "v")
        inner, q = Builder(b.loc), Value(scalar(I64), "q")
        most = b.sub(b.const(0, self.bits), b.const(1, self.bits))
        before = [Value(scalar(self.bits), "least") for _ in range(BESIDE)]
        start = inner.add(inner.mul(q, number(inner, BESIDE * self.lanes)), v)
        after = []
        for k, found in enumerate(before):
            size = self.unsigned(inner, inner.load(panel, inner.add(start, number(inner, k * self.lanes))))
            after.append(inner.minimum(found, inner.sub(inner.bitxor(size, changed), less)))
        steps = parts(lanes, count, BESIDE * self.lanes)
        each = lanes.emit(OPS["for"], (steps, *[most] * BESIDE), {"map": "serial"}, [inner.block([q, *before], after)])
        total = reduce(lanes.minimum, each)
        params = {"map": "vector", "multiple": self.lanes, "combine": ("minimum",)}
        results = b.emit(OPS["for"], (number(b, self.lanes), most), params, [lanes.block([v], [total])])
        return results[0]

    def unsigned(self, b: Builder, x: Value) -> Value:
        found: Value = b.bitand(b.bitcast(x, dtype=self.bits), b.const((1 << (self.dtype.bits - 1)) - 1, self.bits))
        return found

    def settle(self, b: Builder, panels: Value, known: Value, two: Value, counts: tuple[Value, Value]) -> Value:
        """Bring the first panel and another one, of so many numbers, to the scales that the sums of their tile want. Gives what
        these are multiplied by then."""
        zero, one = number(b, 0), number(b, 1)

        def slow(b: Builder) -> Value:
            found: Value = b.bitor(self.of(b, known, zero, SLOW), self.of(b, known, two, SLOW))
            return found

        def change(b: Builder) -> None:
            def look(b: Builder, q: Value) -> None:
                what = b.raw_shr(q, one)
                k = b.mul(two, b.bitand(q, one))
                wanted = b.bitor(b.eq(what, zero), b.ne(slow(b), zero))
                asked = b.bitand(wanted, b.eq(b.load(known, k, what), number(b, UNKNOWN)))
                when(b, asked, lambda b: self.look(b, b.subview(panels, k), b.subview(known, k), self.count(b, k, counts), what))

            serial(b, number(b, 4), look)
            fits = self.fits(b, known, two)

            def bring(b: Builder, q: Value) -> None:
                k = b.mul(two, q)
                self.bring(b, b.subview(panels, k), b.subview(known, k), self.count(b, k, counts), fits)

            serial(b, b.select(b.ne(slow(b), zero), number(b, 2), zero), bring)

        when(b, b.ne(slow(b), zero), change)
        scaled = b.add(self.of(b, known, zero, SCALED), self.of(b, known, two, SCALED))
        exponent = b.sub(number(b, self.bias), b.mul(scaled, number(b, self.shift)))
        bits = b.raw_shl(b.cast(exponent, dtype=self.bits), b.const(self.fraction, self.bits))
        found: Value = b.bitcast(bits, dtype=self.dtype)
        return found

    def count(self, b: Builder, k: Value, counts: tuple[Value, Value]) -> Value:
        found: Value = b.select(b.eq(k, number(b, 0)), *counts)
        return found

    def of(self, b: Builder, known: Value, panel: Value, what: int) -> Value:
        found: Value = b.load(known, panel, number(b, what))
        return found

    def look(self, b: Builder, panel: Value, known: Value, count: Value, what: Value) -> None:
        """Find out whether a panel has subnormal numbers, by the least one but zero, or else the exponent of its greatest."""
        none, one = b.const(0, self.bits), b.const(1, self.bits)
        all_ = b.sub(none, one)
        is_slow = b.eq(what, number(b, SLOW))
        changed, less = b.select(is_slow, none, all_), b.select(is_slow, one, none)
        least = self.least(b, panel, count, changed, less)
        slow = b.cast(b.lt(least, b.const((1 << self.fraction) - 1, self.bits)), dtype=I64)
        exponent = b.cast(b.raw_shr(b.bitxor(least, all_), b.const(self.fraction, self.bits)), dtype=I64)
        b.store(b.select(is_slow, slow, exponent), known, what)

    def fits(self, b: Builder, known: Value, two: Value) -> Value:
        """Whether scaled numbers are finite, and all sums of products of two panels' are. With exponents x and y they are below
        2 ** (x + 1 - bias) and 2 ** (y + 1 - bias)."""
        x, y = self.of(b, known, number(b, 0), GREATEST), self.of(b, known, two, GREATEST)
        slow = b.add(self.of(b, known, number(b, 0), SLOW), self.of(b, known, two, SLOW))
        shift = number(b, self.shift)
        most = 3 * self.bias - 2 - self.terms.bit_length()
        is_low = b.le(b.add(b.add(x, y), b.mul(slow, shift)), number(b, most))
        found: Value = b.bitand(is_low, b.le(b.add(b.maximum(x, y), shift), number(b, 2 * self.bias)))
        return found

    def bring(self, b: Builder, panel: Value, known: Value, count: Value, fits: Value) -> None:
        """Scale a panel, or take its scale away, if it is not as wanted."""
        zero, place = number(b, 0), number(b, SCALED)
        wanted = b.select(fits, b.load(known, number(b, SLOW)), zero)

        def change(b: Builder) -> None:
            b.store(wanted, known, place)
            up, down = (b.const(2.0**k, self.dtype) for k in (self.shift, -self.shift))
            factor = b.select(b.eq(wanted, zero), down, up)
            vectors = b.mul(parts(b, count, self.lanes), number(b, self.lanes))
            vector(b, vectors, self.lanes, lambda b, v: b.store(self.times(b, b.load(panel, v), factor), panel, v))

        when(b, b.ne(wanted, b.load(known, place)), change)

    def times(self, b: Builder, x: Value, factor: Value) -> Value:
        """A number times the scale or its inverse. A subnormal one is not multiplied, which would be slow: with the exponent of a
        power of two it is that plus itself, scaled."""
        size = self.unsigned(b, x)
        is_small = b.lt(size, b.const(1 << self.fraction, self.bits))
        base = b.const(2.0 ** (self.shift + 1 - self.bias), self.dtype)
        grown = b.sub(b.bitcast(b.bitor(size, b.bitcast(base, dtype=self.bits)), dtype=self.dtype), base)
        others = b.mul(b.select(is_small, b.const(0.0, self.dtype), x), factor)
        found: Value = b.select(is_small, b.copysign(grown, x), others)
        return found
