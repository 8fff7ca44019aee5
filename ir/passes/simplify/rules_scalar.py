"""Rules for single elements: arithmetic, selection, conversion. tests/golden/passes holds one example of each, under its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.op import OPS, Op, must_match
from pullback.ir.core.types import ArrayType, DType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.cse import key
from pullback.ir.passes.simplify.rewrite import Rewriter, constant_like, rule

# constants


@rule(Elementwise)
def fold_constants(b: Rewriter, *operands: Value, op: Op, **params: Any) -> Value | None:
    # f(c, d) = the constant f(c, d), for cheap functions, whose bits are the same on every target
    constants = [b.constant(v) for v in operands]
    if any(c is None for c in constants) or not (isinstance(op, Elementwise) and op.cheap):
        return None
    dtypes = [v.type.dtype for v in operands]
    (t,) = op.infer([scalar(d) for d in dtypes], params, (), must_match)
    if any(d.kind == "c" for d in (*dtypes, t.dtype)):
        return None
    (result,) = op.evaluate([np.asarray(c, d.numpy) for c, d in zip(constants, dtypes)], params, [t])
    folded = result.astype(float).item() if t.dtype.is_float else result.item()
    return b.full(folded, ArrayType(t.dtype, operands[0].type.shape))


@rule(*sorted(op.name for op in OPS.values() if op.commutative))
def constant_right(b: Rewriter, x: Value, y: Value, op: Op, **_: Any) -> Value | None:
    # c + x = x + c
    return b.emit(op, (y, x))[0] if b.constant(x) is not None and b.constant(y) is None else None


# sums


@rule("add")
def add_zero(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x + -0.0 = x; of integers and bools x + 0 = x. x + 0.0 is left: it turns -0.0 into 0.0
    zero = -0.0 if x.type.dtype.is_float else 0
    return x if x.type.dtype.kind != "c" and b.equals(y, zero) else None


@rule("add")
def add_neg(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x + -y = x - y
    other = b.operand(y, "neg")
    return None if other is None else b.sub(x, other)


@rule("add")
def add_to_neg(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # -x + y = y - x
    other = b.operand(x, "neg")
    return None if other is None else b.sub(y, other)


@rule("sub")
def sub_zero(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x - 0 = x. x - -0.0 is left: it turns -0.0 into 0.0
    return x if x.type.dtype.kind in "ifu" and b.equals(y, 0.0) else None


@rule("sub")
def sub_from_zero(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # -0.0 - y = -y; of integers 0 - y = -y
    return b.neg(y) if x.type.dtype.kind in "ifu" and b.equals(x, -0.0 if x.type.dtype.is_float else 0) else None


@rule("sub")
def sub_neg(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x - -y = x + y
    other = b.operand(y, "neg")
    return None if other is None else b.add(x, other)


@rule("sub")
def sub_itself(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x - x = 0 of integers
    return constant_like(b, 0, x) if x is y and x.type.dtype.is_integer else None


# products

HALVES = (0.5, -0.5)
"""Factors that scale exactly."""


@rule("mul", "div")
def times_one(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x * 1 = x, x / 1 = x. Complex x is left: inf * 0 is NaN
    return x if x.type.dtype.kind != "c" and b.equals(y, 1) else None


@rule("mul", "div")
def times_minus_one(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x * -1 = -x, x / -1 = -x
    return b.neg(x) if x.type.dtype.kind in "if" and b.equals(y, -1) else None


@rule("div")
def halve(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x / 2 = x * 0.5
    return b.mul(x, constant_like(b, 0.5, x)) if x.type.dtype.is_float and b.equals(y, 2) else None


@rule("mul")
def halves(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    """Exact, except where the first product is subnormal and rounded twice."""
    # (x * c) * d = x * cd, for c and d of 1/2 and -1/2
    producer = b.producer(x, "mul")
    c, d = None if producer is None else b.constant(producer.operands[1]), b.constant(y)
    if producer is None or c not in HALVES or d not in HALVES or x.type.dtype.kind != "f":
        return None
    return b.mul(producer.operands[0], constant_like(b, c * d, x))


@rule("mul", "bitand")
def times_zero(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x * 0 = 0 of integers and bools
    return y if x.type.dtype.kind in "biu" and b.equals(y, 0) else None


@rule("mul", "div")
def signs_cancel(b: Rewriter, x: Value, y: Value, op: Op, **_: Any) -> Value | None:
    # -x * -y = x * y, -x / -y = x / y. Complex x is left: a zero part may change its sign
    p, q = b.operand(x, "neg"), b.operand(y, "neg")
    return None if p is None or q is None or x.type.dtype.kind == "c" else b.emit(op, (p, q))[0]


@rule("mul", "div")
def sign_into_constant(b: Rewriter, x: Value, y: Value, op: Op, **_: Any) -> Value | None:
    # -x * c = x * -c, -x / c = x / -c
    negated = b.operand(x, "neg")
    if negated is None or b.constant(y) is None or x.type.dtype.kind not in "if":
        return None
    return b.emit(op, (negated, b.neg(y)))[0]


@rule("div")
def negated_quotient(b: Rewriter, x: Value, y: Value, op: Op, **_: Any) -> Value | None:
    # -x / y = -(x / y) if x / y is computed already
    negated = b.operand(x, "neg")
    quotient = b.known.get(key(op, (negated, y), {})) if negated is not None and x.type.dtype.kind == "f" else None
    return b.neg(quotient[0]) if quotient is not None else None


@rule("neg")
def neg_of_multiple(b: Rewriter, x: Value, **_: Any) -> Value | None:
    # -(x * c) = x * -c, -(x / c) = x / -c
    producer = b.producer(x, "mul", "div")
    if producer is None or b.constant(producer.operands[1]) is None or x.type.dtype.kind != "f":
        return None
    return b.emit(producer.op, (producer.operands[0], b.neg(producer.operands[1])))[0]


@rule("neg", "bitnot", "conj")
def twice(b: Rewriter, x: Value, op: Op, **_: Any) -> Value | None:
    # -(-x) = x, ~~x = x, conj(conj(x)) = x
    return b.operand(x, op.name)


@rule("mul")
def square_of_abs(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # |x| * |x| = x * x. Complex x is left: its square is another number
    inner = b.operand(x, "abs") if x is y else None
    return None if inner is None or inner.type.dtype.is_complex else b.mul(inner, inner)


@rule("abs")
def abs_of_sign(b: Rewriter, x: Value, **_: Any) -> Value | None:
    # |-x| = |x|, | |x| | = |x|, and |x| = x of unsigned integers
    if x.type.dtype.kind == "u":
        return x
    negated = b.operand(x, "neg")
    return b.abs(negated) if negated is not None else x if b.producer(x, "abs") else None


@rule("pow")
def small_power(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    """Within one unit in the last place: powers 2, -1 and 1/2 are rounded once, the power 3 twice."""
    # x ** 0 = 1, x ** 1 = x, x ** 2 = x * x, x ** 3 = x * x * x, of floats x ** -1 = 1 / x, x ** 0.5 = sqrt(x)
    if b.equals(y, -1) and x.type.dtype.is_float:
        return b.div(constant_like(b, 1, x), x)
    if b.equals(y, 0.5) and x.type.dtype.is_float:
        return b.sqrt(x)
    exponent = b.constant(y)
    if exponent == 0:
        return constant_like(b, 1, x)
    count = next((n for n in (1, 2, 3) if exponent == n), 0)
    product = x
    for _more in range(count - 1):
        product = b.mul(product, x)
    return product if count else None


@rule("div")
def logistic(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    """Within three units in the last place. Where the exponential overflows, its derivatives are those of the logistic
    function."""
    # x / (exp(z) + 1) = x * expit(-z), if nothing else reads the exponential
    total = b.producer(y, "add")
    z = b.operand(total.operands[0], "exp") if total is not None and b.equals(total.operands[1], 1) else None
    if z is None or total is None or not z.type.dtype.is_float or b.reads.get(y) != 1 or b.reads.get(total.operands[0]) != 1:
        return None
    return b.mul(x, b.expit(b.neg(z)))


@rule("exp")
def logistic_of_log(b: Rewriter, x: Value, **_: Any) -> Value | None:
    """Within three units in the last place for results near 1, and more accurate than the left side for smaller ones."""
    # exp(-logaddexp(0, z)) = expit(-z)
    negated = b.operand(x, "neg")
    producer = None if negated is None else b.producer(negated, "logaddexp")
    if producer is None:
        return None
    zeros = [k for k, v in enumerate(producer.operands) if b.constant(v) == 0]
    return b.expit(b.neg(producer.operands[1 - zeros[0]])) if zeros else None


# parts of complex numbers


@rule("real", "imag")
def part_of_complex(b: Rewriter, x: Value, op: Op, **_: Any) -> Value | None:
    # real(complex(x, y)) = x, imag(complex(x, y)) = y
    producer = b.producer(x, "complex")
    return None if producer is None else producer.operands[op.name == "imag"]


@rule("real")
def real_of_conj(b: Rewriter, x: Value, **_: Any) -> Value | None:
    # real(conj(x)) = real(x)
    inner = b.operand(x, "conj")
    return None if inner is None else b.real(inner)


# choice


@rule("select")
def select_same(b: Rewriter, c: Value, x: Value, y: Value, **_: Any) -> Value | None:
    # c ? x : x = x
    return x if x is y else None


@rule("select")
def select_known(b: Rewriter, c: Value, x: Value, y: Value, **_: Any) -> Value | None:
    # true ? x : y = x, false ? x : y = y
    condition = b.constant(c)
    return None if condition is None else x if condition else y


@rule("select")
def select_again(b: Rewriter, c: Value, x: Value, y: Value, **_: Any) -> Value | None:
    # c ? (c ? p : q) : y = c ? p : y, c ? x : (c ? p : q) = c ? x : q
    first, second = b.producer(x, "select"), b.producer(y, "select")
    if first is not None and first.operands[0] is c:
        return b.select(c, first.operands[1], y)
    if second is not None and second.operands[0] is c:
        return b.select(c, x, second.operands[2])
    return None


@rule("select")
def select_not(b: Rewriter, c: Value, x: Value, y: Value, **_: Any) -> Value | None:
    # !c ? x : y = c ? y : x
    negated = b.operand(c, "bitnot")
    return None if negated is None else b.select(negated, y, x)


@rule("select")
def select_bools(b: Rewriter, c: Value, x: Value, y: Value, **_: Any) -> Value | None:
    # c ? true : false = c
    return c if x.type.dtype.is_bool and b.equals(x, True) and b.equals(y, False) else None


@rule("maximum", "minimum", "fmax", "fmin", "bitand", "bitor")
def with_itself(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # max(x, x) = x, x & x = x
    return x if x is y else None


@rule("maximum")
def count_not_negative(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # max(count, 0) = count
    return x if b.producer(x, "count") and b.equals(y, 0) else None


@rule("bitand")
def and_true(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x & true = x
    return x if x.type.dtype.is_bool and b.equals(y, True) else None


@rule("bitor", "bitxor")
def or_nothing(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x | 0 = x, x ^ 0 = x
    return x if b.equals(y, 0) else None


@rule("bitor", "add")
def or_true(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x | true = true
    return y if x.type.dtype.is_bool and b.equals(y, True) else None


@rule("bitxor")
def xor_itself(b: Rewriter, x: Value, y: Value, **_: Any) -> Value | None:
    # x ^ x = 0
    return constant_like(b, 0, x) if x is y else None


OPPOSITE = {"eq": "ne", "ne": "eq"}
"""Comparisons whose negation holds for NaN as well."""
REVERSED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt"}
"""Negations of orders, valid where no operand is NaN."""


@rule("bitnot")
def not_of_comparison(b: Rewriter, x: Value, **_: Any) -> Value | None:
    # !(x == y) = x != y; for integers !(x < y) = x >= y
    producer = b.producer(x, *OPPOSITE, *REVERSED)
    if producer is None:
        return None
    name = OPPOSITE.get(producer.op.name)
    if name is None and not producer.operands[0].type.dtype.is_inexact:
        name = REVERSED[producer.op.name]
    return None if name is None else getattr(b, name)(*producer.operands)


@rule("ne", "eq")
def truth_as_number(b: Rewriter, x: Value, y: Value, op: Op, **_: Any) -> Value | None:
    # (x as t) != 0 = x, (x as t) == 0 = !x, for bools x
    source = b.operand(x, "cast")
    if source is None or not source.type.dtype.is_bool or not b.equals(y, 0):
        return None
    return source if op.name == "ne" else b.bitnot(source)


# conversion


@rule("cast")
def cast_to_same(b: Rewriter, x: Value, dtype: DType, **_: Any) -> Value | None:
    # x as its own dtype = x
    return x if x.type.dtype is dtype else None


@rule("cast")
def cast_of_trunc(b: Rewriter, x: Value, dtype: DType, **_: Any) -> Value | None:
    # trunc x as an integer = x as an integer: a cast rounds to zero
    inner = b.operand(x, "trunc")
    return b.cast(inner, dtype=dtype) if inner is not None and dtype.is_integer else None


MANTISSA = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}
"""Bits of the significand, the implicit one included."""
EXPONENT = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}
"""Bits of the exponent."""


def holds(outer: DType, inner: DType) -> bool:
    """Return whether every value of ``inner`` is representable in ``outer``."""
    match inner.kind, outer.kind:
        case _ if inner is outer:
            return True
        case "b", _:
            return True
        case ("u", "u") | ("i", "i") | ("u", "i"):
            return inner.bits < outer.bits
        case (("u" | "i"), "f"):
            return inner.bits - (inner.kind == "i") <= MANTISSA[outer.name] and inner.bits <= 2 ** (EXPONENT[outer.name] - 1)
        case "f", "f":
            return MANTISSA[inner.name] <= MANTISSA[outer.name] and EXPONENT[inner.name] <= EXPONENT[outer.name]
    return False


@rule("cast")
def cast_of_cast(b: Rewriter, x: Value, dtype: DType, **_: Any) -> Value | None:
    # (x as wider) as t = x as t; from an integer through a float to an integer only if t holds every value of x
    source = b.operand(x, "cast")
    if source is None or not holds(x.type.dtype, source.type.dtype):
        return None
    if x.type.dtype.is_float and dtype.is_integer and not source.type.dtype.is_float and not holds(dtype, source.type.dtype):
        return None
    return b.cast(source, dtype=dtype)
