"""Emit quotients and square roots as multiply-adds, with the same bits as the division instruction, where that is slower.

Some processors divide eight doubles in the time of thirty-two multiply-adds, in a divider that is busy meanwhile. In a vector
loop for such a processor, ``plan`` distributes the quotients and roots between the divider and the multipliers, so that
neither is the bottleneck. With b the divisor, p the bits of a significand and RN rounding to nearest:

- *Inverse.* The instruction's estimate has an error of 2**-14; each step y + y (1 - b y) squares it. The step before the last
  rounds up; its result is then less than a unit in the last place from 1 / b, so that e = 1 - b y is exact, and
  RN(y + y e) = RN(1 / b). (Markstein, IBM J. Res. Dev. 34, 1990: for all b except the one whose significand is all ones, and for
  that one too if y is the larger neighbour of 1 / b, which rounding up yields.)
- *Quotient.* With y = RN(1 / b) and q = RN(x y), r = x - b q is exact, and RN(q + r y) = RN(x / b). (Markstein, where q is within
  a unit of x / b; Brisebarre, Muller and Raina, IEEE Trans. Comput. 53, 2004, for this q.) All quotients by b share y.
- *Root.* g and h tend to sqrt(x) and 1 / (2 sqrt(x)): g + g d, h + h d with d = 1/2 - g h. Where g is within a unit of the root,
  x - g**2 is exact, and RN(g + h (x - g**2)) = RN(sqrt(x)): a root is at least 7 / 8 2**-p units from the midpoint of two
  neighbours, more than the error of h can move it, except for the two significands next to a power of four, which are tested.
  (Cornea, Harrison and Tang, Scientific Computing on Itanium-based Systems, 2002, chapters 8 and 10.)
- *Quotients by a root.* 2 h is within two units of 1 / RN(sqrt(x)): it replaces the estimate and all steps but the last two, and
  one test of x replaces all tests of the root and of its inverse.

All of this holds if nothing overflows, underflows or is flushed on the way. A vector in which some lane is zero, infinite,
NaN, or so large or small that this may happen (``LEAST``, ``MOST``) is computed by the instruction instead, behind a branch;
numerators of zero are exempt. The results assume the default rounding mode, to nearest; in other modes the last bit may
differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, splat, vector_of
from pullback.codegen.cpu.llvm.values import Values
from pullback.codegen.targets import Processor
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType, DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise

REGISTER = 64
"""Bytes of the vector registers for which multiply-adds replace divisions (AVX-512)."""


STEPS = {64: 3, 32: 2}
"""Number of Newton steps, by bits of the element type, that refine an estimate to full precision."""
LEAST, MOST = {64: 900, 32: 78}, {64: 120, 32: 46}
"""Numerators and operands of roots are at least 2**-LEAST, divisors at most 2**MOST: remainders and quotients are normal."""
SMALLEST = {64: -1022, 32: -126}
"""Exponent of the smallest normal number, by bits of the element type."""
# Classes of vfpclass: NaN, zeros, infinities, subnormal numbers.
UNUSUAL = 0x80 | 0x01 | 0x06 | 0x18 | 0x20
UP = 2 | 8
"""Rounding immediate: upwards, without exceptions."""
# Instructions of an estimate, of extracting or restoring a sign, of a test of one value, and of a branch.
ESTIMATE, SIGN, TEST, BRANCH = 3, 1, 2, 2


def plan(block: Block, processor: Processor, width: int) -> frozenset[Value]:
    """Return the quotients and roots of a vector loop's block that are faster as multiply-adds on ``processor``."""
    candidates = [i for i in block.instructions if _is_slow(i, width)]
    if not candidates:
        return frozenset()
    ratios = [[i] for i in candidates if i.op.name == "div_in_range"]
    families: dict[Value, list[Instruction]] = {}
    for i in candidates:
        if i.op.name != "div_in_range":
            families.setdefault(i.result if i.op.name == "sqrt" else i.operands[1], []).append(i)
    families_and_ratios = [*families.values(), *ratios]
    families_and_ratios += [family[:1] for family in families.values() if family[0].op.name == "sqrt" and len(family) > 1]
    unit_constants = {i.result for i in block.instructions if isinstance(i.op, Constant) and i.params["value"] == 1.0}
    busy = sum(processor.cycles(i) for i in candidates)
    work = float(sum(_is_work(i) for i in block.instructions if i not in candidates))
    priced = [
        (members, sum(processor.cycles(i) for i in members), _work(members, unit_constants)) for members in families_and_ratios
    ]
    chosen: set[Value] = set()
    for members, less, more in sorted(priced, key=lambda priced: priced[2] / priced[1]):
        if chosen.isdisjoint(i.result for i in members):
            shorter = max(busy - less, (work + more) / processor.others) < max(busy, work / processor.others)
            if shorter and work + more <= processor.longest:
                busy, work = busy - less, work + more
                chosen.update(i.result for i in members)
    return frozenset(chosen)


def _is_slow(i: Instruction, width: int) -> bool:
    """Return whether an instruction is a quotient or root of floats that fills a register of 64 bytes."""
    if not isinstance(i.op, Elementwise) or i.op.name not in ("div", "div_in_range", "sqrt"):
        return False
    dtype = i.result.type.dtype
    return dtype.is_float and dtype.bits in STEPS and width * dtype.bytes == REGISTER


def _is_work(i: Instruction) -> bool:
    """Return whether an instruction of a vector loop works on vector registers."""
    return isinstance(i.op, Elementwise) and isinstance(i.result.type, ArrayType) and i.result.type.dtype is not I64


def _work(members: Sequence[Instruction], unit_constants: set[Value]) -> int:
    """Return the number of instructions of a root, of the quotients by one divisor, or of both."""
    steps = STEPS[members[0].result.type.dtype.bits]
    if members[0].op.name == "div_in_range":
        return ESTIMATE + 2 * steps + 3
    divided = [i.operands[0] not in unit_constants for i in members if i.op.name == "div"]
    quotients = len(divided) * BRANCH + sum(divided) * (3 + TEST + 1)
    if members[0].op.name != "sqrt":
        return ESTIMATE + 2 * steps + SIGN + TEST + len(divided) * SIGN + quotients
    return ESTIMATE + 3 * steps + 1 + TEST + BRANCH + (5 if divided else 0) + quotients


class Multipliers:
    """Emits quotients and roots of full registers as multiply-adds."""

    def __init__(self, e: Values, dtype: DType) -> None:
        self.e, self.dtype = e, dtype
        self.bits, self.width = dtype.bits, REGISTER // dtype.bytes
        self.t, self.c = vector_of(element(dtype), self.width), vector_of("i1", self.width)
        self.suffix = "pd" if dtype.bits == 64 else "ps"

    def quotient(self, x: Lanes, y: Lanes) -> str:
        """Emit x / y, computed as x with the sign of y divided by abs(y)."""
        e = self.e
        numerator, divisor = e.vector(x, self.dtype), e.vector(y, self.dtype)
        exact = f"fdiv {self.t} {numerator}, {divisor}"
        size, inverse, inexact = self.inverse(divisor)
        signed = partial(self.with_sign_of, sign=divisor) if size != divisor else lambda x: x
        if x.text == literal(1.0, self.dtype):
            return self.emit_with_fallback(inexact, signed(inverse), exact)
        first = e.let(f"fmul {self.t} {signed(numerator)}, {inverse}")
        # first is too large by the excess; with this sign, a zero keeps its own sign.
        excess = self.fma(size, first, self.negated(signed(numerator)))
        result = self.fma(self.negated(excess), inverse, first)
        # About x, and NaN where the quotient is NaN. Zeros are frequent: they are excluded on the rare path.
        small = e.let(f"fmul {self.t} {size}, {self.power(SMALLEST[self.bits] + LEAST[self.bits])}")
        unusual = e.let(f"or {self.c} {inexact}, {self.is_one_of(e.let(f'fmul {self.t} {result}, {small}'), UNUSUAL)}")

        def worse() -> str:
            is_not_zero = e.let(f"fcmp une {self.t} {numerator}, {self.constant(0.0)}")
            return e.let(f"or {self.c} {inexact}, {e.let(f'and {self.c} {is_not_zero}, {unusual}')}")

        return self.emit_with_fallback(unusual, result, exact, worse)

    def ratio(self, x: str, y: str) -> str:
        """Emit x / y for operands that need no test (``div_in_range``)."""
        less = self.negated(y)
        inverse = self.refine(self.estimate("rcp14", y), less, STEPS[self.bits])
        first = self.e.let(f"fmul {self.t} {x}, {inverse}")
        return self.fma(self.fma(less, first, x), inverse, first)

    def refine(self, y: str, negated_divisor: str, steps: int) -> str:
        """Refine the estimate ``y`` of the inverse of -``negated_divisor`` in ``steps`` Newton steps; the result is rounded to
        nearest."""
        unit = self.constant(1.0)
        for left in reversed(range(steps)):
            residual = self.fma(negated_divisor, y, unit)
            y = self.fma_up(y, residual, y) if left == 1 else self.fma(y, residual, y)
        return y

    def inverse(self, divisor: str) -> tuple[str, str, str]:
        """Return the absolute value of a divisor, its inverse rounded to nearest, and an i1 vector of the lanes where that is
        not exact."""
        e, (size, inverse, inexact) = self.e, self.divisor_keys(divisor)
        if inverse in e.available:
            return e.available[size], e.available[inverse], e.available[inexact]
        if inexact in e.available:  # of a root
            y, steps = e.let(f"fadd {self.t} {e.available[self.half(divisor)]}, {e.available[self.half(divisor)]}"), 2
            e.available[size] = divisor
        else:
            e.available[size] = e.intrinsic(self.t, f"llvm.fabs.v{self.width}f{self.bits}", [(self.t, divisor)])
            y, steps = self.estimate("rcp14", e.available[size]), STEPS[self.bits]
        y = e.available[inverse] = self.refine(y, self.negated(e.available[size]), steps)
        if inexact not in e.available:
            small = e.let(f"fmul {self.t} {y}, {self.power(SMALLEST[self.bits] + MOST[self.bits])}")
            e.available[inexact] = self.is_one_of(small, UNUSUAL)
        return e.available[size], y, e.available[inexact]

    def divisor_keys(self, divisor: str) -> tuple[str, str, str]:
        """Return the keys under which the absolute value of a divisor, its inverse and the inexact lanes are memoised."""
        size, inverse, bad = (f"{word} {self.t} {divisor}" for word in ("size", "inverse", "bad"))
        return size, inverse, bad

    def half(self, root: str) -> str:
        """Return the key under which half the inverse of a root is memoised."""
        return f"half {self.t} {root}"

    def with_sign_of(self, x: str, sign: str) -> str:
        """Return x, negated in lanes where ``sign`` is negative."""
        e, words = self.e, vector_of(f"i{self.bits}", self.width)
        mask = splat(f"i{self.bits}", str(-(1 << self.bits - 1)), self.width)
        bits = [e.let(f"bitcast {self.t} {v} to {words}") for v in (x, sign)]
        flipped = e.let(f"xor {words} {bits[0]}, {e.let(f'and {words} {bits[1]}, {mask}')}")
        return e.let(f"bitcast {words} {flipped} to {self.t}")

    def root(self, x: str) -> str:
        """Emit sqrt(x); later quotients by it reuse its inverse."""
        e, half = self.e, self.constant(0.5)
        y = self.estimate("rsqrt14", x)
        g, h = e.let(f"fmul {self.t} {x}, {y}"), e.let(f"fmul {self.t} {y}, {half}")
        for _ in range(STEPS[self.bits] - 1):
            d = self.fma(self.negated(g), h, half)
            g, h = self.fma(g, d, g), self.fma(h, d, h)
        refined = self.fma(self.fma(self.negated(g), g, x), h, g)
        m, bad = f"v{self.width}f{self.bits}", self.is_outside(x, -LEAST[self.bits], 2 * MOST[self.bits])
        e.declared[f"declare {self.t} @llvm.sqrt.{m}({self.t})"] = None
        root = self.emit_with_fallback(bad, refined, f"call {self.t} @llvm.sqrt.{m}({self.t} {x})")
        e.available[self.divisor_keys(root)[2]], e.available[self.half(root)] = bad, h
        return root

    def is_outside(self, x: str, least: int, most: int) -> str:
        """Return whether elements are outside 2**least to 2**most; negative numbers and NaN are."""
        e, word = self.e, f"i{self.bits}"
        digits = {64: 52, 32: 23}[self.bits]
        low, span = least + 1 - SMALLEST[self.bits] << digits, most - least << digits
        bits = e.let(f"bitcast {self.t} {x} to {vector_of(word, self.width)}")
        above = e.let(f"sub {vector_of(word, self.width)} {bits}, {splat(word, str(low), self.width)}")
        return e.let(f"icmp ugt {vector_of(word, self.width)} {above}, {splat(word, str(span), self.width)}")

    def emit_with_fallback(self, bad: str, value: str, exact: str, worse: Callable[[], str] | None = None) -> str:
        """Return ``value``, or the result of the instruction ``exact`` if any lane is ``bad``.

        ``worse``: emits a stricter test on that rare path; the instruction runs only if that test is true in some lane.
        """
        e = self.e
        slot = e.slot(self.t)
        e.line(f"store {self.t} {value}, ptr {slot}")
        with e.when(self.any_lane(bad), rarely=True):
            if worse is None:
                e.line(f"store {self.t} {e.let(exact)}, ptr {slot}")
            else:
                with e.when(self.any_lane(worse())):
                    e.line(f"store {self.t} {e.let(exact)}, ptr {slot}")
        return e.let(f"load {self.t}, ptr {slot}")

    def any_lane(self, lanes: str) -> str:
        """Return an i1: whether any of the lanes is set."""
        return self.e.intrinsic("i1", f"llvm.vector.reduce.or.v{self.width}i1", [(self.c, lanes)])

    # instructions

    def constant(self, value: float) -> str:
        """Return a constant in all lanes."""
        return splat(element(self.dtype), literal(value, self.dtype), self.width)

    def power(self, exponent: int) -> str:
        """Return 2**exponent in all lanes."""
        return self.constant(float(np.ldexp(1.0, exponent)))

    def negated(self, x: str) -> str:
        """Return -x."""
        return self.e.let(f"fneg {self.t} {x}")

    def fma(self, x: str, y: str, z: str) -> str:
        """Return x y + z."""
        return self.e.intrinsic(self.t, f"llvm.fma.v{self.width}f{self.bits}", [(self.t, v) for v in (x, y, z)])

    def fma_up(self, x: str, y: str, z: str) -> str:
        """Return x y + z, rounded up."""
        operands = [*((self.t, v) for v in (x, y, z)), ("i32", str(UP))]
        return self.e.intrinsic(self.t, f"llvm.x86.avx512.vfmadd.{self.suffix}.512", operands)

    def estimate(self, name: str, x: str) -> str:
        """Emit an estimate instruction, whose error is 2**-14."""
        operands = [(self.t, x), (self.t, "zeroinitializer"), (f"i{self.width}", "-1")]
        return self.e.intrinsic(self.t, f"llvm.x86.avx512.{name}.{self.suffix}.512", operands)

    def is_one_of(self, x: str, classes: int) -> str:
        """Return the lanes that belong to any of some classes of vfpclass."""
        return self.e.intrinsic(self.c, f"llvm.x86.avx512.fpclass.{self.suffix}.512", [(self.t, x), ("i32", str(classes))])


def divided(e: Values, i: Instruction, operands: Sequence[Lanes]) -> str:
    """Emit a quotient or root of the current vector loop that ``plan`` selected."""
    dtype = i.result.type.dtype
    multipliers = Multipliers(e, dtype)
    if i.op.name == "div":
        return multipliers.quotient(*operands)
    vectors = [e.vector(x, dtype) for x in operands]
    return multipliers.root(*vectors) if i.op.name == "sqrt" else multipliers.ratio(*vectors)
