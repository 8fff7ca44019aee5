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
- *Quotients by a root.* 2 h is within two units of 1 / RN(sqrt(x)): it takes the place of the estimate and of all steps but the
  last two, and one test of x that of all tests of the root and of its inverse.

All of it holds where nothing overflows, underflows or is flushed on the way. A vector in which some lane is zero, infinite, NaN,
or so large or small that something may (``LEAST``, ``MOST``) takes the instruction instead, behind a branch; numerators of zero
need not. Rounding is that of the caller, which is to nearest unless asked otherwise; for other ways the last bit may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, splat, wide
from pullback.codegen.cpu.llvm.values import Values
from pullback.codegen.targets import Processor
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType, DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise

REGISTER = 64


STEPS = {64: 3, 32: 2}
"""How many times an estimate is made better before it has all bits."""
LEAST, MOST = {64: 900, 32: 78}, {64: 120, 32: 46}
"""Numerators and operands of roots are at least 2**-LEAST, divisors at most 2**MOST: remainders and quotients are normal."""
SMALLEST = {64: -1022, 32: -126}
# As vfpclass tells them apart: NaN, zeros, infinities, subnormal numbers.
UNUSUAL = 0x80 | 0x01 | 0x06 | 0x18 | 0x20
UP = 2 | 8
# Instructions of an estimate, of taking a sign apart or putting it back, of a test of one value, and of a branch.
ESTIMATE, SIGN, TEST, BRANCH = 3, 1, 2, 2


def plan(block: Block, processor: Processor, width: int) -> frozenset[Value]:
    """The quotients and roots of a block of a vector loop that had better come of multiply-adds."""
    found = [i for i in block.instructions if _is_slow(i, width)]
    if not found:
        return frozenset()
    ratios = [[i] for i in found if i.op.name == "div_in_range"]
    families: dict[Value, list[Instruction]] = {}
    for i in found:
        if i.op.name != "div_in_range":
            families.setdefault(i.result if i.op.name == "sqrt" else i.operands[1], []).append(i)
    ways = [*families.values(), *ratios]
    ways += [family[:1] for family in families.values() if family[0].op.name == "sqrt" and len(family) > 1]
    ones = {i.result for i in block.instructions if isinstance(i.op, Constant) and i.params["value"] == 1.0}
    busy = sum(processor.cycles(i) for i in found)
    work = float(sum(_is_work(i) for i in block.instructions if i not in found))
    priced = [(way, sum(processor.cycles(i) for i in way), _work(way, ones)) for way in ways]
    chosen: set[Value] = set()
    for way, less, more in sorted(priced, key=lambda priced: priced[2] / priced[1]):
        if chosen.isdisjoint(i.result for i in way):
            shorter = max(busy - less, (work + more) / processor.others) < max(busy, work / processor.others)
            if shorter and work + more <= processor.longest:
                busy, work = busy - less, work + more
                chosen.update(i.result for i in way)
    return frozenset(chosen)


def _is_slow(i: Instruction, width: int) -> bool:
    if not isinstance(i.op, Elementwise) or i.op.name not in ("div", "div_in_range", "sqrt"):
        return False
    dtype = i.result.type.dtype
    return dtype.is_float and dtype.bits in STEPS and width * dtype.bytes == REGISTER


def _is_work(i: Instruction) -> bool:
    """Whether an instruction is one of a vector loop's on registers."""
    return isinstance(i.op, Elementwise) and isinstance(i.result.type, ArrayType) and i.result.type.dtype is not I64


def _work(way: Sequence[Instruction], ones: set[Value]) -> int:
    """The instructions of a root, of quotients by one divisor, or of both."""
    steps = STEPS[way[0].result.type.dtype.bits]
    if way[0].op.name == "div_in_range":
        return ESTIMATE + 2 * steps + 3
    divided = [i.operands[0] not in ones for i in way if i.op.name == "div"]
    quotients = len(divided) * BRANCH + sum(divided) * (3 + TEST + 1)
    if way[0].op.name != "sqrt":
        return ESTIMATE + 2 * steps + SIGN + TEST + len(divided) * SIGN + quotients
    return ESTIMATE + 3 * steps + 1 + TEST + BRANCH + (5 if divided else 0) + quotients


class Multipliers:
    """Quotients and roots of full registers by multiply-adds, in the code of an emitter."""

    def __init__(self, e: Values, dtype: DType) -> None:
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
        turned = partial(self.turned, sign=divisor) if size != divisor else lambda x: x
        if x.text == literal(1.0, self.dtype):
            return self.unless(bad, turned(inverse), exact)
        first = e.let(f"fmul {self.t} {turned(numerator)}, {inverse}")
        # That much too great: with this sign a zero keeps its own.
        excess = self.fma(size, first, self.negated(turned(numerator)))
        found = self.fma(self.negated(excess), inverse, first)
        # About x, and not a number where the quotient is none. A zero is usual: it is told apart where it is met.
        small = e.let(f"fmul {self.t} {size}, {self.power(SMALLEST[self.bits] + LEAST[self.bits])}")
        unusual = e.let(f"or {self.c} {bad}, {self.is_one_of(e.let(f'fmul {self.t} {found}, {small}'), UNUSUAL)}")

        def worse() -> str:
            is_not_zero = e.let(f"fcmp une {self.t} {numerator}, {self.number(0.0)}")
            return e.let(f"or {self.c} {bad}, {e.let(f'and {self.c} {is_not_zero}, {unusual}')}")

        return self.unless(unusual, found, exact, worse)

    def ratio(self, x: str, y: str) -> str:
        """x / y where nothing can go wrong on the way."""
        less = self.negated(y)
        inverse = self.better(self.estimate("rcp14", y), less, STEPS[self.bits])
        first = self.e.let(f"fmul {self.t} {x}, {inverse}")
        return self.fma(self.fma(less, first, x), inverse, first)

    def better(self, y: str, less: str, steps: int) -> str:
        """The inverse of -less rounded to nearest, of an estimate so many steps from it."""
        one = self.number(1.0)
        for left in reversed(range(steps)):
            rest = self.fma(less, y, one)
            y = self.fma_up(y, rest, y) if left == 1 else self.fma(y, rest, y)
        return y

    def inverse(self, divisor: str) -> tuple[str, str, str]:
        """The size of a vector's elements, its inverse rounded to nearest, and where that is not known."""
        e, (size, inverse, bad) = self.e, self.about(divisor)
        if inverse in e.known:
            return e.known[size], e.known[inverse], e.known[bad]
        if bad in e.known:  # of a root
            y, steps = e.let(f"fadd {self.t} {e.known[self.half(divisor)]}, {e.known[self.half(divisor)]}"), 2
            e.known[size] = divisor
        else:
            e.known[size] = e.intrinsic(self.t, f"llvm.fabs.v{self.width}f{self.bits}", [(self.t, divisor)])
            y, steps = self.estimate("rcp14", e.known[size]), STEPS[self.bits]
        y = e.known[inverse] = self.better(y, self.negated(e.known[size]), steps)
        if bad not in e.known:
            small = e.let(f"fmul {self.t} {y}, {self.power(SMALLEST[self.bits] + MOST[self.bits])}")
            e.known[bad] = self.is_one_of(small, UNUSUAL)
        return e.known[size], y, e.known[bad]

    def about(self, divisor: str) -> tuple[str, str, str]:
        """Names of what is known of a divisor: its size, its inverse, and where that is not known."""
        size, inverse, bad = (f"{word} {self.t} {divisor}" for word in ("size", "inverse", "bad"))
        return size, inverse, bad

    def half(self, root: str) -> str:
        """The name of about half the inverse of a root."""
        return f"half {self.t} {root}"

    def turned(self, x: str, sign: str) -> str:
        """x, or -x where ``sign`` is below zero."""
        e, words = self.e, wide(f"i{self.bits}", self.width)
        mask = splat(f"i{self.bits}", str(-(1 << self.bits - 1)), self.width)
        bits = [e.let(f"bitcast {self.t} {v} to {words}") for v in (x, sign)]
        found = e.let(f"xor {words} {bits[0]}, {e.let(f'and {words} {bits[1]}, {mask}')}")
        return e.let(f"bitcast {words} {found} to {self.t}")

    def root(self, x: str) -> str:
        """sqrt(x), which is then known as a divisor."""
        e, half = self.e, self.number(0.5)
        y = self.estimate("rsqrt14", x)
        g, h = e.let(f"fmul {self.t} {x}, {y}"), e.let(f"fmul {self.t} {y}, {half}")
        for _ in range(STEPS[self.bits] - 1):
            d = self.fma(self.negated(g), h, half)
            g, h = self.fma(g, d, g), self.fma(h, d, h)
        found = self.fma(self.fma(self.negated(g), g, x), h, g)
        m, bad = f"v{self.width}f{self.bits}", self.is_outside(x, -LEAST[self.bits], 2 * MOST[self.bits])
        e.declared[f"declare {self.t} @llvm.sqrt.{m}({self.t})"] = None
        root = self.unless(bad, found, f"call {self.t} @llvm.sqrt.{m}({self.t} {x})")
        e.known[self.about(root)[2]], e.known[self.half(root)] = bad, h
        return root

    def is_outside(self, x: str, least: int, most: int) -> str:
        """Whether elements are not from 2**least to 2**most; a number below zero or none is not."""
        e, word = self.e, f"i{self.bits}"
        digits = {64: 52, 32: 23}[self.bits]
        low, span = least + 1 - SMALLEST[self.bits] << digits, most - least << digits
        bits = e.let(f"bitcast {self.t} {x} to {wide(word, self.width)}")
        above = e.let(f"sub {wide(word, self.width)} {bits}, {splat(word, str(low), self.width)}")
        return e.let(f"icmp ugt {wide(word, self.width)} {above}, {splat(word, str(span), self.width)}")

    def unless(self, bad: str, found: str, exact: str, worse: Callable[[], str] | None = None) -> str:
        """What was found, and what the instruction gives if any lane is bad; or if any is ``worse``, which is asked then."""
        e = self.e
        slot = e.slot(self.t)
        e.line(f"store {self.t} {found}, ptr {slot}")
        with e.when(self.any(bad), rarely=True):
            if worse is None:
                e.line(f"store {self.t} {e.let(exact)}, ptr {slot}")
            else:
                with e.when(self.any(worse())):
                    e.line(f"store {self.t} {e.let(exact)}, ptr {slot}")
        return e.let(f"load {self.t}, ptr {slot}")

    def any(self, lanes: str) -> str:
        return self.e.intrinsic("i1", f"llvm.vector.reduce.or.v{self.width}i1", [(self.c, lanes)])

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


def divided(e: Values, i: Instruction, operands: Sequence[Lanes]) -> str:
    """A quotient or root of the present vector loop that ``plan`` chose."""
    dtype = i.result.type.dtype
    multipliers = Multipliers(e, dtype)
    if i.op.name == "div":
        return multipliers.quotient(*operands)
    vectors = [e.vector(x, dtype) for x in operands]
    return multipliers.root(*vectors) if i.op.name == "sqrt" else multipliers.ratio(*vectors)
