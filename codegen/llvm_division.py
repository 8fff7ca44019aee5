"""Quotients and roots by multiply-adds in emitted LLVM code: the bits of the instruction, where that is slower.

Some processors divide eight doubles in the time of thirty-two multiply-adds, in a unit that takes nothing else meanwhile. A
vector loop of theirs shares its quotients and roots out between that unit and the multipliers, so that neither waits (``plan``).
With b the divisor, p the bits of a significand and RN rounding to nearest:

- *Inverse.* The instruction's estimate has an error of 2**-14; each step y + y (1 - b y) squares it. The step before the last
  rounds up; its result is then less than a unit in the last place from 1 / b, so that e = 1 - b y is exact, and
  RN(y + y e) = RN(1 / b). (Markstein, IBM J. Res. Dev. 34, 1990: for all b but that whose significand is all ones, and there
  as well if y is the larger neighbour of 1 / b, as which rounding up gives it.)
- *Quotient.* With y = RN(1 / b) and q = RN(x y), r = x - b q is exact, and RN(q + r y) = RN(x / b). (Markstein, where q is within
  a unit of x / b; Brisebarre, Muller and Raina, IEEE Trans. Comput. 53, 2004, for this q.) All quotients by b share y.
- *Root.* g and h tend to sqrt(x) and 1 / (2 sqrt(x)): g + g d, h + h d with d = 1/2 - g h. Where g is within a unit of the root,
  x - g**2 is exact, and RN(g + h (x - g**2)) = RN(sqrt(x)): a root is at least 7 / 8 2**-p units from the middle between two
  neighbours, more than the error of h can move it, but for the two significands beside a power of four, which are tested.
  (Cornea, Harrison and Tang, Scientific Computing on Itanium-based Systems, 2002, chapters 8 and 10.)

All of it holds where nothing overflows, underflows or is flushed on the way. A vector in which some lane is zero, infinite, NaN,
or so large or small that something may (``LEAST``, ``MOST``) takes the instruction instead, behind a branch; numerators of zero
need not. Rounding is that of the caller, which is to nearest unless asked otherwise; for other ways the last bit may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pullback.codegen.lanes import Lanes, element, literal, splat, wide
from pullback.codegen.processors import Processor
from pullback.ir.ops.create import Constant
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import I64, ArrayType, DType

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter

REGISTER = 64


WINDOWS = 2
"""A body of more windows is not made longer: it waits for its own results, which multiply-adds give later than the divider."""
STEPS = {64: 3, 32: 2}
"""How many times an estimate is made better before it has all bits."""
LEAST, MOST = {64: 900, 32: 78}, {64: 120, 32: 46}
"""Numerators and operands of roots are at least 2**-LEAST, divisors at most 2**MOST: remainders and quotients are normal."""
SMALLEST = {64: -1022, 32: -126}
# As vfpclass tells them apart: NaN, zeros, infinities, subnormal numbers; and numbers below zero.
UNUSUAL, BELOW_ZERO = 0x80 | 0x01 | 0x06 | 0x18 | 0x20, 0x40
UP = 2 | 8
# Instructions of an estimate, of taking a sign apart or putting it back, of a test of one value, and of a branch.
ESTIMATE, SIGN, TEST, BRANCH = 3, 1, 2, 2


def plan(block: Block, processor: Processor, width: int) -> frozenset[Value]:
    """The quotients and roots of a block of a vector loop that had better come of multiply-adds."""
    found = [i for i in block.instructions if _is_slow(i, width)]
    groups = [[i] for i in found if i.op.name in ("ratio", "sqrt")]
    by_divisor: dict[Value, list[Instruction]] = {}
    for i in found:
        if i.op.name == "div":
            by_divisor.setdefault(i.operands[1], []).append(i)
    groups += by_divisor.values()
    ones = {i.result for i in block.instructions if isinstance(i.op, Constant) and i.params["value"] == 1.0}
    busy = sum(processor.cycles(i) for i in found)
    work = sum(_is_work(i) for i in block.instructions if i not in found)
    ways = [(group, sum(processor.cycles(i) for i in group), _work(group, ones)) for group in groups]
    chosen: set[Value] = set()
    for group, less, more in sorted(ways, key=lambda way: way[2] / way[1]):
        if max(busy - less, (work + more) / processor.others) < busy and work + more <= WINDOWS * processor.window:
            busy, work = busy - less, work + more
            chosen.update(i.result for i in group)
    return frozenset(chosen)


def _is_slow(i: Instruction, width: int) -> bool:
    if not isinstance(i.op, Elementwise) or i.op.name not in ("div", "ratio", "sqrt"):
        return False
    dtype = i.result.type.dtype
    return dtype.is_float and dtype.bits in STEPS and width * dtype.bytes == REGISTER


def _is_work(i: Instruction) -> bool:
    """Whether an instruction is one of a vector loop's on registers."""
    return isinstance(i.op, Elementwise) and isinstance(i.result.type, ArrayType) and i.result.type.dtype is not I64


def _work(group: Sequence[Instruction], ones: set[Value]) -> int:
    """The instructions of quotients by one divisor, or of a root."""
    steps = STEPS[group[0].result.type.dtype.bits]
    if group[0].op.name == "sqrt":
        return ESTIMATE + 3 * steps + 1 + TEST + BRANCH
    if group[0].op.name == "ratio":
        return ESTIMATE + 2 * steps + 3
    quotients = sum(i.operands[0] not in ones for i in group)
    return ESTIMATE + 2 * steps + SIGN + TEST + len(group) * (SIGN + BRANCH) + quotients * (4 + TEST)


class Multipliers:
    """Quotients and roots of full registers by multiply-adds, in the code of an emitter."""

    def __init__(self, e: Emitter, dtype: DType) -> None:
        self.e, self.dtype = e, dtype
        self.bits, self.width = dtype.bits, REGISTER // dtype.bytes
        self.t, self.c = wide(element(dtype), self.width), wide("i1", self.width)
        self.suffix = "pd" if dtype.bits == 64 else "ps"

    def quotient(self, x: Lanes, y: Lanes) -> str:
        """x / y, as x with the sign of y by the size of y."""
        e = self.e
        numerator, divisor = e.vector(x, self.dtype), e.vector(y, self.dtype)
        exact = f"fdiv {self.t} {numerator}, {divisor}"
        size, inverse, bad = self.inverse(divisor)
        if x.text == literal(1.0, self.dtype):
            return self.unless(bad, self.turned(inverse, divisor), exact)
        turned = self.turned(numerator, divisor)
        first = e.let(f"fmul {self.t} {turned}, {inverse}")
        rest = self.fma(self.negated(size), first, turned)
        # Of a zero the last step is +0.
        signed = [(self.t, self.fma(rest, inverse, first)), (self.t, turned)]
        found = e.intrinsic(self.t, f"llvm.copysign.v{self.width}f{self.bits}", signed)
        # About x, and not a number where the quotient is none.
        small = e.let(f"fmul {self.t} {size}, {self.power(SMALLEST[self.bits] + LEAST[self.bits])}")
        unusual = self.is_one_of(e.let(f"fmul {self.t} {found}, {small}"), UNUSUAL)
        is_not_zero = e.let(f"fcmp une {self.t} {numerator}, {self.number(0.0)}")
        return self.unless(e.let(f"or {self.c} {bad}, {e.let(f'and {self.c} {is_not_zero}, {unusual}')}"), found, exact)

    def ratio(self, x: str, y: str) -> str:
        """x / y where nothing can go wrong on the way."""
        less = self.negated(y)
        inverse = self.better(self.estimate("rcp14", y), less)
        first = self.e.let(f"fmul {self.t} {x}, {inverse}")
        return self.fma(self.fma(less, first, x), inverse, first)

    def better(self, y: str, less: str) -> str:
        """The inverse of -less rounded to nearest, of an estimate."""
        one = self.number(1.0)
        for step in range(STEPS[self.bits]):
            rest = self.fma(less, y, one)
            y = self.fma_up(y, rest, y) if step == STEPS[self.bits] - 2 else self.fma(y, rest, y)
        return y

    def inverse(self, divisor: str) -> tuple[str, str, str]:
        """The size of a vector's elements, its inverse rounded to nearest, and where that is not known."""
        e, keys = self.e, [f"{word} {self.t} {divisor}" for word in ("size", "inverse", "bad")]
        if keys[0] not in e.known:
            size = e.intrinsic(self.t, f"llvm.fabs.v{self.width}f{self.bits}", [(self.t, divisor)])
            y = self.better(self.estimate("rcp14", size), self.negated(size))
            small = e.let(f"fmul {self.t} {y}, {self.power(SMALLEST[self.bits] + MOST[self.bits])}")
            e.known.update(zip(keys, (size, y, self.is_one_of(small, UNUSUAL)), strict=True))
        size, y, bad = (e.known[key] for key in keys)
        return size, y, bad

    def turned(self, x: str, sign: str) -> str:
        """x, or -x where ``sign`` is below zero."""
        e, words = self.e, wide(f"i{self.bits}", self.width)
        mask = splat(f"i{self.bits}", str(-(1 << self.bits - 1)), self.width)
        bits = [e.let(f"bitcast {self.t} {v} to {words}") for v in (x, sign)]
        found = e.let(f"xor {words} {bits[0]}, {e.let(f'and {words} {bits[1]}, {mask}')}")
        return e.let(f"bitcast {words} {found} to {self.t}")

    def root(self, x: str) -> str:
        """sqrt(x)."""
        e, half = self.e, self.number(0.5)
        y = self.estimate("rsqrt14", x)
        g, h = e.let(f"fmul {self.t} {x}, {y}"), e.let(f"fmul {self.t} {y}, {half}")
        for _ in range(STEPS[self.bits] - 1):
            d = self.fma(self.negated(g), h, half)
            g, h = self.fma(g, d, g), self.fma(h, d, h)
        found = self.fma(self.fma(self.negated(g), g, x), h, g)
        near = e.let(f"fmul {self.t} {x}, {self.power(SMALLEST[self.bits] + LEAST[self.bits])}")
        m = f"v{self.width}f{self.bits}"
        e.declared[f"declare {self.t} @llvm.sqrt.{m}({self.t})"] = None
        return self.unless(self.is_one_of(near, UNUSUAL | BELOW_ZERO), found, f"call {self.t} @llvm.sqrt.{m}({self.t} {x})")

    def unless(self, bad: str, found: str, exact: str) -> str:
        """What was found, and what the instruction gives if any lane is bad."""
        e = self.e
        slot = e.slot(self.t)
        e.line(f"store {self.t} {found}, ptr {slot}")
        with e.when(e.intrinsic("i1", f"llvm.vector.reduce.or.v{self.width}i1", [(self.c, bad)]), rarely=True):
            e.line(f"store {self.t} {e.let(exact)}, ptr {slot}")
        return e.let(f"load {self.t}, ptr {slot}")

    # instructions

    def number(self, value: float) -> str:
        return splat(element(self.dtype), literal(value, self.dtype), self.width)

    def power(self, exponent: int) -> str:
        return self.number(float(np.ldexp(1.0, exponent)))

    def negated(self, x: str) -> str:
        return self.e.let(f"fneg {self.t} {x}")

    def fma(self, x: str, y: str, z: str) -> str:
        return self.e.intrinsic(self.t, f"llvm.fma.v{self.width}f{self.bits}", [(self.t, v) for v in (x, y, z)])

    def fma_up(self, x: str, y: str, z: str) -> str:
        operands = [*((self.t, v) for v in (x, y, z)), ("i32", str(UP))]
        return self.e.intrinsic(self.t, f"llvm.x86.avx512.vfmadd.{self.suffix}.512", operands)

    def estimate(self, name: str, x: str) -> str:
        operands = [(self.t, x), (self.t, "zeroinitializer"), (f"i{self.width}", "-1")]
        return self.e.intrinsic(self.t, f"llvm.x86.avx512.{name}.{self.suffix}.512", operands)

    def is_one_of(self, x: str, classes: int) -> str:
        return self.e.intrinsic(self.c, f"llvm.x86.avx512.fpclass.{self.suffix}.512", [(self.t, x), ("i32", str(classes))])


def divided(e: Emitter, i: Instruction, operands: Sequence[Lanes]) -> str:
    """A quotient or root of the present vector loop that ``plan`` chose."""
    dtype = i.result.type.dtype
    multipliers = Multipliers(e, dtype)
    if i.op.name == "div":
        return multipliers.quotient(*operands)
    vectors = [e.vector(x, dtype) for x in operands]
    return multipliers.root(*vectors) if i.op.name == "sqrt" else multipliers.ratio(*vectors)
