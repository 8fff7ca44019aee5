"""Rescale packed panels that contain subnormal numbers: a multiply-add of a subnormal takes a hundred cycles or more.

Such a panel is multiplied by a power of two that makes all its numbers normal, as long as the sums of a tile cannot overflow.
This is exact, and so is removing the scale from the sums, except for results that are subnormal themselves. The sums of a tile
depend on its two panels alone: each panel is brought to the scale that the next tile requires, which seldom changes.

Cost: each packed panel is read once more, as integers, which are never slow.
"""

from __future__ import annotations

from functools import reduce

from pullback.codegen.cpu.loops.nest_builder import ceil_div, constant, serial, vector, when
from pullback.codegen.cpu.matmul.blocking import SCAN_UNROLL, Blocking
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES, F32, I64, DType, scalar
from pullback.ir.core.value import Value

SLOW, GREATEST, SCALED = range(3)
"""The marks of a panel, each possibly ``UNKNOWN``: whether it contains subnormals, the exponent of its largest number, whether
it is scaled."""
MARKS = 3
"""Marks per panel."""
UNKNOWN = -1
"""A mark that was not computed."""


@dataclass(frozen=True)
class Scales:
    """The rescaling of panels of a float dtype with ``lanes`` per vector, sums of at most ``terms`` products, and ``behind``
    padding vectors."""

    dtype: DType
    lanes: int
    k_block: int
    padding_vectors: int

    @classmethod
    def of_shape(cls, dtype: DType, shape: Blocking) -> Scales:
        """Return the rescaling for the panels of a blocking."""
        return cls(dtype, shape.lanes, shape.k_block * shape.planes, shape.padding_vectors)

    @property
    def fraction(self) -> int:
        """Bits of the fraction."""
        return 23 if self.dtype is F32 else 52

    @property
    def shift(self) -> int:
        """Binary logarithm of the scale."""
        return self.fraction + 1

    @property
    def bias(self) -> int:
        """The biased exponent of 1. Subnormals have exponent 0; infinities and NaN twice this plus one."""
        return (1 << (self.dtype.bits - 2 - self.fraction)) - 1

    @property
    def bits(self) -> DType:
        """The unsigned integer dtype of the same width."""
        return DTYPES[f"u{self.dtype.bits}"]

    def reset(self, b: Builder, panel: Value, known: Value, count: Value) -> None:
        """Reset the marks of a panel that was just packed, and clear its padding."""

        def end(b: Builder, v: Value) -> None:
            for k in range(self.padding_vectors):
                b.store(b.const(0.0, self.dtype), panel, b.add(b.add(count, v), constant(b, k * self.lanes)))

        vector(b, constant(b, self.lanes), self.lanes, end)
        for at, value in ((SLOW, UNKNOWN), (GREATEST, UNKNOWN), (SCALED, 0)):
            b.store(constant(b, value), known, constant(b, at))

    def least(self, b: Builder, panel: Value, count: Value, xor_mask: Value, subtrahend: Value) -> Value:
        """Return the minimum over a panel of its magnitudes as unsigned integers, after ``xor_mask`` and ``subtrahend`` are
        applied."""
        lanes, v = Builder(b.loc), Value(scalar(I64), "v")
        inner, q = Builder(b.loc), Value(scalar(I64), "q")
        most = b.sub(b.const(0, self.bits), b.const(1, self.bits))
        before = [Value(scalar(self.bits), "least") for _ in range(SCAN_UNROLL)]
        start = inner.add(inner.mul(q, constant(inner, SCAN_UNROLL * self.lanes)), v)
        after = []
        for k, minimum in enumerate(before):
            size = self.unsigned(inner, inner.load(panel, inner.add(start, constant(inner, k * self.lanes))))
            after.append(inner.minimum(minimum, inner.sub(inner.bitxor(size, xor_mask), subtrahend)))
        steps = ceil_div(lanes, count, SCAN_UNROLL * self.lanes)
        each = lanes.emit(OPS["for"], (steps, *[most] * SCAN_UNROLL), {"map": "serial"}, [inner.block([q, *before], after)])
        total = reduce(lanes.minimum, each)
        params = {"map": "vector", "multiple": self.lanes, "combine": ("minimum",)}
        results = b.emit(OPS["for"], (constant(b, self.lanes), most), params, [lanes.block([v], [total])])
        return results[0]

    def unsigned(self, b: Builder, x: Value) -> Value:
        """Return the bits of a number without its sign."""
        magnitude: Value = b.bitand(b.bitcast(x, dtype=self.bits), b.const((1 << (self.dtype.bits - 1)) - 1, self.bits))
        return magnitude

    def rescale(self, b: Builder, panels: Value, known: Value, second: Value, counts: tuple[Value, Value]) -> Value:
        """Bring panel 0 and panel ``second`` to the scales that their tile requires; return the factor by which its sums are
        multiplied."""
        zero, one = constant(b, 0), constant(b, 1)

        def slow(b: Builder) -> Value:
            is_slow: Value = b.bitor(self.mark(b, known, zero, SLOW), self.mark(b, known, second, SLOW))
            return is_slow

        def change(b: Builder) -> None:
            def look(b: Builder, q: Value) -> None:
                mark = b.raw_shr(q, one)
                k = b.mul(second, b.bitand(q, one))
                wanted = b.bitor(b.eq(mark, zero), b.ne(slow(b), zero))
                is_needed = b.bitand(wanted, b.eq(b.load(known, k, mark), constant(b, UNKNOWN)))
                when(
                    b,
                    is_needed,
                    lambda b: self.scan(b, b.subview(panels, k), b.subview(known, k), self.count(b, k, counts), mark),
                )

            serial(b, constant(b, 4), look)
            fits = self.fits(b, known, second)

            def bring(b: Builder, q: Value) -> None:
                k = b.mul(second, q)
                self.set_scale(b, b.subview(panels, k), b.subview(known, k), self.count(b, k, counts), fits)

            serial(b, b.select(b.ne(slow(b), zero), constant(b, 2), zero), bring)

        when(b, b.ne(slow(b), zero), change)
        scaled = b.add(self.mark(b, known, zero, SCALED), self.mark(b, known, second, SCALED))
        exponent = b.sub(constant(b, self.bias), b.mul(scaled, constant(b, self.shift)))
        bits = b.raw_shl(b.cast(exponent, dtype=self.bits), b.const(self.fraction, self.bits))
        factor: Value = b.bitcast(bits, dtype=self.dtype)
        return factor

    def count(self, b: Builder, k: Value, counts: tuple[Value, Value]) -> Value:
        """Return the numbers in a panel."""
        result: Value = b.select(b.eq(k, constant(b, 0)), *counts)
        return result

    def mark(self, b: Builder, known: Value, panel: Value, index: int) -> Value:
        """Load a mark."""
        mark: Value = b.load(known, panel, constant(b, index))
        return mark

    def scan(self, b: Builder, panel: Value, known: Value, count: Value, mark: Value) -> None:
        """Compute a mark: whether the smallest nonzero magnitude is subnormal, or the exponent of the largest."""
        zero, one = b.const(0, self.bits), b.const(1, self.bits)
        all_bits = b.sub(zero, one)
        is_slow = b.eq(mark, constant(b, SLOW))
        xor_mask, subtrahend = b.select(is_slow, zero, all_bits), b.select(is_slow, one, zero)
        least = self.least(b, panel, count, xor_mask, subtrahend)
        slow = b.cast(b.lt(least, b.const((1 << self.fraction) - 1, self.bits)), dtype=I64)
        exponent = b.cast(b.raw_shr(b.bitxor(least, all_bits), b.const(self.fraction, self.bits)), dtype=I64)
        b.store(b.select(is_slow, slow, exponent), known, mark)

    def fits(self, b: Builder, known: Value, second: Value) -> Value:
        """Return whether scaled numbers are finite, and all sums of products of the two panels are. With exponents x and y the
        numbers are below 2 ** (x + 1 - bias) and 2 ** (y + 1 - bias)."""
        x, y = self.mark(b, known, constant(b, 0), GREATEST), self.mark(b, known, second, GREATEST)
        slow = b.add(self.mark(b, known, constant(b, 0), SLOW), self.mark(b, known, second, SLOW))
        shift = constant(b, self.shift)
        most = 3 * self.bias - 2 - self.k_block.bit_length()
        is_low = b.le(b.add(b.add(x, y), b.mul(slow, shift)), constant(b, most))
        result: Value = b.bitand(is_low, b.le(b.add(b.maximum(x, y), shift), constant(b, 2 * self.bias)))
        return result

    def set_scale(self, b: Builder, panel: Value, known: Value, count: Value, fits: Value) -> None:
        """Scale a panel, or remove its scale, if it differs from the required one."""
        zero, mark = constant(b, 0), constant(b, SCALED)
        wanted = b.select(fits, b.load(known, constant(b, SLOW)), zero)

        def change(b: Builder) -> None:
            b.store(wanted, known, mark)
            up, down = (b.const(2.0**k, self.dtype) for k in (self.shift, -self.shift))
            factor = b.select(b.eq(wanted, zero), down, up)
            vectors = b.mul(ceil_div(b, count, self.lanes), constant(b, self.lanes))
            vector(b, vectors, self.lanes, lambda b, v: b.store(self.times(b, b.load(panel, v), factor), panel, v))

        when(b, b.ne(wanted, b.load(known, mark)), change)

    def times(self, b: Builder, x: Value, factor: Value) -> Value:
        """Return a number times the scale or its inverse. A subnormal is not multiplied, which would be slow: its bits with
        the exponent of a power of two are that power plus the scaled subnormal."""
        size = self.unsigned(b, x)
        is_small = b.lt(size, b.const(1 << self.fraction, self.bits))
        base = b.const(2.0 ** (self.shift + 1 - self.bias), self.dtype)
        grown = b.sub(b.bitcast(b.bitor(size, b.bitcast(base, dtype=self.bits)), dtype=self.dtype), base)
        others = b.mul(b.select(is_small, b.const(0.0, self.dtype), x), factor)
        product: Value = b.select(is_small, b.copysign(grown, x), others)
        return product
