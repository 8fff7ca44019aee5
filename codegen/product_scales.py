"""Panels of matrix products with subnormal numbers: a multiply-add of one takes a hundred cycles and more, and they are many.

Such a panel is multiplied by a power of two that makes all its numbers normal, as long as the sums of a tile leave room: this is
exact, and so is what takes the scale from a tile's sums again, but for results that are subnormal themselves. What a tile of sums
is depends on its two panels alone: each is brought to the scale that the next tile asks for, which seldom changes.

Cost: each packed panel is read once more, as integers, among which none is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pullback.codegen.product_parts import number, parts, serial, vector, when
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Value
from pullback.ir.types import DTYPES, F32, I64, DType, scalar

SLOW, GREATEST, SCALED = range(3)
"""What is known of a panel: whether it has subnormal numbers; the exponent of its greatest number, if any asked; whether it is
scaled now."""
KNOWN = 3
UNKNOWN = -1


@dataclass(frozen=True)
class Scales:
    """The scale of panels of floats, kept in vectors of so many lanes, of which sums have at most so many terms."""

    dtype: DType
    lanes: int
    terms: int

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

    def end(self, b: Builder, panel: Value, count: Value) -> None:
        """Zeros behind the end of a panel."""
        size = number(b, self.lanes)
        vector(b, size, self.lanes, lambda b, v: b.store(b.const(0.0, self.dtype), panel, b.add(count, v)))

    def learn(self, b: Builder, panel: Value, known: Value, count: Value) -> None:
        """Look for subnormal numbers in a panel that was packed just now; what its last vector has behind its end is zero."""
        one = b.const(1, self.bits)
        most = b.sub(b.const(0, self.bits), one)
        least = self.over(b, panel, count, "minimum", most, lambda b, size: b.sub(size, one))
        slow = b.cast(b.lt(least, b.const((1 << self.fraction) - 1, self.bits)), dtype=I64)
        for at, value in ((SLOW, slow), (GREATEST, number(b, UNKNOWN)), (SCALED, number(b, 0))):
            b.store(value, known, number(b, at))

    def over(
        self, b: Builder, panel: Value, count: Value, combine: str, first: Value, body: Callable[[Builder, Value], Value]
    ) -> Value:
        """A combination of what ``body`` makes of the bits of each number without its sign."""
        lanes, v = Builder(b.loc), Value(scalar(I64), "v")
        inner, q = Builder(b.loc), Value(scalar(I64), "q")
        before = Value(scalar(self.bits), combine)
        x = inner.load(panel, inner.add(inner.mul(q, number(inner, self.lanes)), v))
        step = inner.block([q, before], [getattr(inner, combine)(before, body(inner, self.unsigned(inner, x)))])
        found = lanes.emit(OPS["for"], (parts(lanes, count, self.lanes), first), {"map": "serial"}, [step])
        params = {"map": "vector", "multiple": self.lanes, "combine": (combine,)}
        results = b.emit(OPS["for"], (number(b, self.lanes), first), params, [lanes.block([v], found)])
        return results[0]

    def unsigned(self, b: Builder, x: Value) -> Value:
        found: Value = b.bitand(b.bitcast(x, dtype=self.bits), b.const((1 << (self.dtype.bits - 1)) - 1, self.bits))
        return found

    def settle(self, b: Builder, panels: Value, known: Value, two: Value, counts: tuple[Value, Value]) -> Value:
        """Bring the first panel and another one, of so many numbers, to the scales that the sums of their tile want. Gives what
        these are multiplied by then."""
        def both(b: Builder, body: Callable[[Builder, Value, Value, Value], None]) -> None:
            def each(b: Builder, k: Value) -> None:
                at = b.mul(two, k)
                body(b, b.sub_ref(panels, at), b.sub_ref(known, at), b.select(b.eq(k, number(b, 0)), *counts))

            serial(b, number(b, 2), each)

        def change(b: Builder) -> None:
            both(b, self.measure)
            fits = self.fits(b, known, two)
            both(b, lambda b, panel, known, count: self.bring(b, panel, known, count, fits))

        slow = b.bitor(self.of(b, known, number(b, 0), SLOW), self.of(b, known, two, SLOW))
        when(b, b.ne(slow, number(b, 0)), change)
        scaled = b.add(self.of(b, known, number(b, 0), SCALED), self.of(b, known, two, SCALED))
        exponent = b.sub(number(b, self.bias), b.mul(scaled, number(b, self.shift)))
        bits = b.raw_shl(b.cast(exponent, dtype=self.bits), b.const(self.fraction, self.bits))
        found: Value = b.bitcast(bits, dtype=self.dtype)
        return found

    def of(self, b: Builder, known: Value, panel: Value, what: int) -> Value:
        found: Value = b.load(known, panel, number(b, what))
        return found

    def measure(self, b: Builder, panel: Value, known: Value, count: Value) -> None:
        """Find the exponent of a panel's greatest number, if it is not known."""
        place = number(b, GREATEST)

        def find(b: Builder) -> None:
            most = self.over(b, panel, count, "maximum", b.const(0, self.bits), lambda b, size: size)
            b.store(b.cast(b.raw_shr(most, b.const(self.fraction, self.bits)), dtype=I64), known, place)

        when(b, b.eq(b.load(known, place), number(b, UNKNOWN)), find)

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
            vector(b, count, 1, lambda b, v: b.store(self.times(b, b.load(panel, v), factor), panel, v))

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
