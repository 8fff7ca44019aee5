"""Emit quotients and remainders of 64-bit integers by a number that all iterations of a loop divide by, without divisions.

For a divisor d > 0 that is no power of 2 and l = ceil(log2 d), the *reciprocal* m = floor(2**(63 + l) / d) + 1 has 64 bits.
For 0 <= n < 2**63, floor(n / d) = floor(m n / 2**(63 + l)), since 0 < m d - 2**(63 + l) <= 2**l. (Granlund and Montgomery,
Division by invariant integers using multiplication, PLDI 1994, theorem 4.2.) For n < 0, floor(n / d) = ~floor(~n / d).

The reciprocal of a power of 2 is ``POWER``: a shift divides by it. That of a divisor below 1 is ``NONE``: the instruction
divides; the quotient is 0 for the divisor 0, and -n for -1. The program computes reciprocals, by long division, before its loops.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.text import RARELY, Writer

NONE, POWER = 0, 1
"""The reciprocals that are no multipliers, which are at least 2**63."""
BITS = ("declare i64 @llvm.ctlz.i64(i64, i1)", "declare i64 @llvm.cttz.i64(i64, i1)")
RECIPROCAL = f"""
define internal i64 @reciprocal(i64 %d) noinline nounwind {{
  %is.small = icmp slt i64 %d, 1
  br i1 %is.small, label %small, label %positive
small:
  ret i64 {NONE}
positive:
  %less = sub i64 %d, 1
  %common = and i64 %d, %less
  %is.power = icmp eq i64 %common, 0
  br i1 %is.power, label %power, label %begin
power:
  ret i64 {POWER}
begin:
  %zeros = call i64 @llvm.ctlz.i64(i64 %less, i1 false)
  %bits = sub i64 64, %zeros
  %first = udiv i64 -9223372036854775808, %d
  %left = urem i64 -9223372036854775808, %d
  br label %digit
digit:
  %k = phi i64 [ 0, %begin ], [ %next.k, %digit ]
  %q = phi i64 [ %first, %begin ], [ %next.q, %digit ]
  %r = phi i64 [ %left, %begin ], [ %next.r, %digit ]
  %twice.q = shl i64 %q, 1
  %twice.r = shl i64 %r, 1
  %is.one = icmp uge i64 %twice.r, %d
  %one = zext i1 %is.one to i64
  %next.q = or i64 %twice.q, %one
  %taken = select i1 %is.one, i64 %d, i64 0
  %next.r = sub i64 %twice.r, %taken
  %next.k = add i64 %k, 1
  %is.last = icmp eq i64 %next.k, %bits
  br i1 %is.last, label %end, label %digit
end:
  %m = add i64 %next.q, 1
  ret i64 %m
}}
"""
MULTIPLIED = """
define internal i64 @multiplied(i64 %n, i64 %d, i64 %m) alwaysinline nounwind {
  %sign = ashr i64 %n, 63
  %size = xor i64 %n, %sign
  %wide.size = zext i64 %size to i128
  %wide.m = zext i64 %m to i128
  %product = mul i128 %wide.size, %wide.m
  %wide.high = lshr i128 %product, 64
  %high = trunc i128 %wide.high to i64
  %less = sub i64 %d, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %less, i1 false)
  %shift = sub i64 63, %zeros
  %bounded = and i64 %shift, 63
  %quotient = lshr i64 %high, %bounded
  %floored = xor i64 %quotient, %sign
  ret i64 %floored
}
"""
DIVIDED = """
define internal i64 @divided(i64 %n, i64 %d) alwaysinline nounwind {
  %is.zero = icmp eq i64 %d, 0
  %is.minus = icmp eq i64 %d, -1
  %is.unsafe = or i1 %is.zero, %is.minus
  %divisor = select i1 %is.unsafe, i64 1, i64 %d
  %truncated = sdiv i64 %n, %divisor
  %product = mul i64 %truncated, %divisor
  %is.inexact = icmp ne i64 %product, %n
  %signs = xor i64 %n, %divisor
  %is.negative = icmp slt i64 %signs, 0
  %is.below = and i1 %is.inexact, %is.negative
  %below = sext i1 %is.below to i64
  %floored = add i64 %truncated, %below
  %negated = sub i64 0, %n
  %by.minus = select i1 %is.minus, i64 %negated, i64 %floored
  %quotient = select i1 %is.zero, i64 0, i64 %by.minus
  ret i64 %quotient
}
"""
LEFT = """
define internal i64 @left(i64 %n, i64 %d, i64 %quotient) alwaysinline nounwind {
  %is.zero = icmp eq i64 %d, 0
  %product = mul i64 %quotient, %d
  %remainder = sub i64 %n, %product
  %result = select i1 %is.zero, i64 0, i64 %remainder
  ret i64 %result
}
"""
BY_RECIPROCAL = f"""
define internal i64 @{{name}}(i64 %n, i64 %d, i64 %m) alwaysinline nounwind {{{{
  %is.small = icmp eq i64 %m, {NONE}
  br i1 %is.small, label %small, label %positive, !prof !9000
positive:
  %is.power = icmp eq i64 %m, {POWER}
  br i1 %is.power, label %power, label %usual
power:
{{power}}
  ret i64 %of.power
usual:
  %floor = call i64 @multiplied(i64 %n, i64 %d, i64 %m)
{{usual}}
  ret i64 %of.usual
small:
  %quotient = call i64 @divided(i64 %n, i64 %d)
{{small}}
  ret i64 %of.small
}}}}
"""
QUOTIENT = BY_RECIPROCAL.format(
    name="floor_quotient",
    power="""  %digits = call i64 @llvm.cttz.i64(i64 %d, i1 false)
  %bounded = and i64 %digits, 63
  %of.power = ashr i64 %n, %bounded""",
    usual="  %of.usual = bitcast i64 %floor to i64",
    small="  %of.small = bitcast i64 %quotient to i64",
)
REMAINDER = BY_RECIPROCAL.format(
    name="floor_remainder",
    power="  %mask = sub i64 %d, 1\n  %of.power = and i64 %n, %mask",
    usual="  %product = mul i64 %floor, %d\n  %of.usual = sub i64 %n, %product",
    small="  %of.small = call i64 @left(i64 %n, i64 %d, i64 %quotient)",
)
FUNCTIONS = {"floor_quotient": QUOTIENT, "floor_remainder": REMAINDER}
"""By the ops' names, the functions of a dividend, a divisor and its reciprocal."""


def reciprocal(e: Writer, divisor: str) -> str:
    """Return the reciprocal of a divisor that is known at entry, computed there."""
    e.declared.update(dict.fromkeys((*BITS, RECIPROCAL)))
    return e.at_entry(f"call i64 @reciprocal(i64 {divisor})")


def floor_division(e: Writer, name: str, dividend: str, divisor: str, reciprocal: str | None) -> str:
    """Emit the floor of a quotient, or the remainder. ``reciprocal``: that of the divisor, or None for code that divides by it
    only once."""
    e.declared.update(dict.fromkeys((DIVIDED, LEFT)))
    if reciprocal is None:
        quotient = e.let(f"call i64 @divided(i64 {dividend}, i64 {divisor})")
        if name == "floor_quotient":
            return quotient
        return e.let(f"call i64 @left(i64 {dividend}, i64 {divisor}, i64 {quotient})")
    e.declared.update(dict.fromkeys((RARELY, *BITS, MULTIPLIED, FUNCTIONS[name])))
    return e.let(f"call i64 @{name}(i64 {dividend}, i64 {divisor}, i64 {reciprocal})")
