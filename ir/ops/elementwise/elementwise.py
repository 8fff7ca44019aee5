"""Elementwise ops: one scalar function applied at every index. They serve arrays and kernel scalars alike.

A record's ``pullback`` is ``each(...)``: one function per operand, called as ``(b, ct, out, *operands, **params)`` if that
operand's derivative is wanted. ``llvm`` and ``cuda`` are the code of the scalar function, by kind of element where kinds
differ: an instruction template over ``{t}`` (type), ``{m}`` (its intrinsic suffix) and ``{0}``, ``{1}``, ...; ``recipe`` for a
composition of kernel ops that codegen registers under the op's name; ``ufunc:NAME`` for the native loop of a NumPy or SciPy
ufunc, ``ufunc:NAME k/n`` for result k of a ufunc with n results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Region, Rule, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import BOOL, COMPLEX_OF, ArrayType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise import semantics

Partial = Callable[..., Contribution]
Template = str | Mapping[str, str]
"""The code of an op for a target: one template, or one for each element kind."""
FUNC_OR_KERNEL = frozenset({"func", "kernel"})


@dataclass(frozen=True, eq=False, kw_only=True)
class Elementwise(Op):
    """An op on scalars, mapped over arrays. ``kinds``: element kinds that the op takes. ``gives``: the result type: "same",
    "bool", "select" (bool, T, T -> T), "dtype" (a param), "part" (the type of a part of a complex operand; a real type
    unchanged) or "complex" (two parts -> the complex type).

    ``cheap``: a few machine instructions, so that recomputing it costs less than storing its result. ``steep(params)``:
    whether the slope may be infinite where the value is finite and at an end of its range, like a root's at 0;
    ``ir/passes/transforms/strong_zero.py`` handles zeros multiplied by such slopes. ``derivative_of``: the name of the
    function of which it is the derivative and with which it shares an exponential, so that computing both costs little more
    than one. ``parity``: "even" where f(-x) = f(x), "odd" where f(-x) = -f(x), for every x; else "".
    """

    arity: int = 1
    kinds: str = "f"
    gives: str = "same"
    cheap: bool = False
    steep: Callable[[Mapping[str, Any]], bool] | None = None
    derivative_of: str = ""
    parity: str = ""
    llvm: Template = "recipe"
    cuda: Template = ""
    vocabularies: frozenset[str] = FUNC_OR_KERNEL

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if len(types) != self.arity:
            raise TypeError(f"takes {self.arity} operands, got {len(types)}")
        operand = types[0]
        is_usual = self.gives == "same" and isinstance(operand, ArrayType) and operand.dtype.kind in self.kinds
        if is_usual and types.count(operand) == len(types):
            return (operand,)
        arrays: list[ArrayType] = []
        for t in types:
            if not isinstance(t, ArrayType):
                raise TypeError("takes arrays, not references")
            arrays.append(t)
        first = arrays[0]
        for other in arrays[1:]:
            if len(other.shape) != len(first.shape):
                raise TypeError("operands must have one shape")
            for a, b in zip(first.shape, other.shape, strict=True):
                same(a, b)
        data = arrays[1:] if self.gives == "select" else arrays
        if self.gives == "select" and first.dtype is not BOOL:
            raise TypeError("the first operand must be bool")
        dtype = data[0].dtype
        for t in data:
            if t.dtype is not dtype:
                raise TypeError("operands must have one dtype")
        if dtype.kind not in self.kinds:
            raise TypeError(f"is not defined for {dtype}")
        match self.gives:
            case "bool":
                return (ArrayType(BOOL, first.shape),)
            case "dtype":
                return (ArrayType(params["dtype"], first.shape),)
            case "part":
                return (ArrayType(first.dtype.part, first.shape),)
            case "complex":
                if first.dtype not in COMPLEX_OF:
                    raise TypeError(f"there are no complex numbers of {first.dtype}")
                return (ArrayType(COMPLEX_OF[first.dtype], first.shape),)
        return (first if first.dtype is dtype else ArrayType(dtype, first.shape),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            result = self.function(*operands, **params)
        return (np.asarray(result, types[0].dtype.numpy),)

    def template(self, target: str, kind: str) -> str:
        """Return the template for "llvm" or "cuda" and an element kind."""
        table: Template = getattr(self, target)
        return table if isinstance(table, str) else table[kind]


def each(*partials: Partial) -> Rule:
    """Return a rule that calls one function for each operand whose derivative is wanted."""

    def rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
        return [
            partial(b, cts[0], outputs[0], *inputs, **params) if want else ZERO
            for partial, want in zip(partials, wants, strict=True)
        ]

    return rule


def no(b: Any, ct: Value, out: Value, *inputs: Value, **params: Any) -> Contribution:
    """Return zero: the partial of an operand that selects, or whose derivative is zero almost everywhere."""
    return ZERO


def with_value(name: str, *partials: Partial) -> Elementwise:
    """Return a record whose value is its first operand and whose derivatives are those of a function of the other operands.

    The value is computed by a formula that is more accurate or cheaper than one with the right derivatives.
    """
    return Elementwise(
        name=name, reference=lambda value, *operands: np.array(value), arity=1 + len(partials), cheap=True, cuda="{0}",
        pullback=each(no, *partials),
    )  # fmt: skip


def const_like(b: Any, value: Any, x: Value) -> Value:
    """Return a constant with the type of ``x``."""
    constant: Value = b.full(value, x.type)
    return constant


def _scaled(b: Any, ct: Value, factor: float) -> Value:
    product: Value = b.mul(ct, const_like(b, factor, ct))
    return product


def _quotient(b: Any, x: Value, y: Value) -> Value:
    """Return x / y. If y is a root, x is multiplied by its inverse, which never overflows and is shared with the root's own
    derivative."""
    maker = b.maker(y)
    is_root = maker is not None and maker.op.name == "sqrt" and y.type.dtype.kind == "f"
    quotient: Value = b.mul(x, b.div(const_like(b, 1.0, y), y)) if is_root else b.div(x, y)
    return quotient


def _where(b: Any, condition: Value, x: Value) -> Value:
    result: Value = b.select(condition, x, b.zeros_like(x))
    return result


def _arith(llvm: Template, cuda: str) -> dict[str, Any]:
    return {"llvm": llvm, "cuda": cuda, "cheap": True}


def as_complex(b: Any, x: Value) -> Value:
    """Return a real value as a complex one."""
    result: Value = b.cast(x, dtype=COMPLEX_OF[x.type.dtype])
    return result


def _unary(name: str, partial: Partial, reference: Any = "", cuda: str = "", llvm: Template = "recipe", **kw: Any) -> Elementwise:
    """Return the record of a floating-point function of one operand; its reference is NumPy's function ``name`` by default."""
    return Elementwise(
        name=name, reference=reference or f"numpy.{name}", pullback=each(partial), cuda=cuda or f"{name}({{0}})", llvm=llvm, **kw
    )


def _analytic(name: str, partial: Partial, reference: Any = "", **kw: Any) -> Elementwise:
    """Return the record of a function of one real or complex operand that has a complex derivative."""
    return _unary(name, partial, reference, kinds="fc", **kw)


def _compare(name: str, reference: str, llvm: str, cuda: str, commutative: bool = False) -> Elementwise:
    return Elementwise(
        name=name, reference=f"numpy.{reference}", arity=2, kinds="bifuc", gives="bool", pullback=each(no, no), cheap=True,
        commutative=commutative, finite=True,
        llvm={
            "f": f"fcmp {'une' if llvm == 'ne' else 'o' + llvm} {{t}} {{0}}, {{1}}",
            "i": f"icmp {llvm if llvm in ('eq', 'ne') else 's' + llvm} {{t}} {{0}}, {{1}}",
            "u": f"icmp {llvm if llvm in ('eq', 'ne') else 'u' + llvm} {{t}} {{0}}, {{1}}",
            "b": f"icmp {llvm if llvm in ('eq', 'ne') else 'u' + llvm} {{t}} {{0}}, {{1}}",
        },
        cuda=f"{{0}} {cuda} {{1}}",
    )  # fmt: skip


# arithmetic

add = Elementwise(
    name="add", reference="numpy.add", arity=2, kinds="bifuc", linear=True,
    pullback=each(lambda b, ct, out, x, y: ct, lambda b, ct, out, x, y: ct),
    **_arith({"f": "fadd {t} {0}, {1}", "i": "add {t} {0}, {1}", "u": "add {t} {0}, {1}", "b": "or {t} {0}, {1}"}, "{0} + {1}"),
    commutative=True, finite=True,
)  # fmt: skip
sub = Elementwise(
    name="sub", reference="numpy.subtract", arity=2, kinds="ifuc", linear=True,
    pullback=each(lambda b, ct, out, x, y: ct, lambda b, ct, out, x, y: b.neg(ct)),
    **_arith({"f": "fsub {t} {0}, {1}", "i": "sub {t} {0}, {1}", "u": "sub {t} {0}, {1}"}, "{0} - {1}"), finite=True,
)  # fmt: skip
mul = Elementwise(
    name="mul", reference="numpy.multiply", arity=2, kinds="bifuc",
    pullback=each(lambda b, ct, out, x, y: b.mul(ct, y), lambda b, ct, out, x, y: b.mul(ct, x)),
    **_arith({"f": "fmul {t} {0}, {1}", "i": "mul {t} {0}, {1}", "u": "mul {t} {0}, {1}", "b": "and {t} {0}, {1}"}, "{0} * {1}"),
    commutative=True, finite=True,
)  # fmt: skip
div = Elementwise(
    name="div", reference="numpy.true_divide", arity=2, kinds="fc",
    pullback=each(
        lambda b, ct, out, x, y: b.div(ct, y),
        lambda b, ct, out, x, y: b.neg(b.mul(ct, _quotient(b, out, y))),
    ),
    **_arith("fdiv {t} {0}, {1}", "{0} / {1}"),
)  # fmt: skip
floordiv = Elementwise(
    name="floordiv", reference=semantics.floordiv, also=("numpy.floor_divide",), arity=2, kinds="ifu", pullback=each(no, no),
    cuda="pb_floordiv({0}, {1})",
)  # fmt: skip
mod = Elementwise(
    name="mod", reference=semantics.mod, also=("numpy.remainder",), arity=2, kinds="ifu",
    pullback=each(lambda b, ct, out, x, y: ct, lambda b, ct, out, x, y: b.neg(b.mul(ct, b.floordiv(x, y)))),
    cuda="pb_mod({0}, {1})",
)  # fmt: skip
"""Param of ``floordiv`` and ``mod``: ``natural``, the dividend is not negative and the divisor is positive
(``ir/passes/loops/index_ranges.py``). With other operands the result is any integer; there is no trap."""
fmod = Elementwise(
    name="fmod", reference=semantics.fmod, also=("numpy.fmod",), arity=2, kinds="ifu",
    pullback=each(lambda b, ct, out, x, y: ct, lambda b, ct, out, x, y: b.neg(b.mul(ct, b.trunc(b.div(x, y))))),
    llvm={"f": "ufunc:numpy.fmod", "i": "recipe", "u": "recipe"},
    cuda={"f": "fmod({0}, {1})", "i": "pb_rem({0}, {1})", "u": "pb_rem({0}, {1})"},
)  # fmt: skip
idiv = Elementwise(
    name="idiv", reference=semantics.idiv, arity=2, kinds="iu", pullback=each(no, no),
    llvm={"i": "sdiv {t} {0}, {1}", "u": "udiv {t} {0}, {1}"}, cuda="{0} / {1}", vocabularies=frozenset({"kernel"}),
)  # fmt: skip
floor_quotient, floor_remainder = (
    Elementwise(
        name=name, reference=reference, arity=2, kinds="i", pullback=each(no, no), llvm=name, cuda=cuda,
        vocabularies=frozenset({"kernel"}),
    )
    for name, reference, cuda in (
        ("floor_quotient", semantics.floordiv, "pb_floordiv({0}, {1})"), ("floor_remainder", semantics.mod, "pb_mod({0}, {1})"),
    )
)  # fmt: skip
"""``floordiv`` and ``mod`` of 64-bit integers by a scalar parameter of the kernel: a loop divides by it in all iterations."""
neg = Elementwise(
    name="neg", reference="numpy.negative", kinds="ifuc", linear=True, pullback=each(lambda b, ct, out, x: b.neg(ct)),
    **_arith({"f": "fneg {t} {0}", "i": "sub {t} zeroinitializer, {0}", "u": "sub {t} zeroinitializer, {0}"}, "-{0}"),
    finite=True,
)  # fmt: skip
fma = Elementwise(
    name="fma", reference=semantics.fma, arity=3,
    pullback=each(
        lambda b, ct, out, x, y, z: b.mul(ct, y), lambda b, ct, out, x, y, z: b.mul(ct, x), lambda b, ct, out, x, y, z: ct
    ),
    **_arith("call {t} @llvm.fma.{m}({t} {0}, {t} {1}, {t} {2})", "fma({0}, {1}, {2})"), finite=True,
)  # fmt: skip


def _abs_partial(b: Any, ct: Value, out: Value, x: Value) -> Value:
    derivative = b.mul(as_complex(b, ct), b.conj(b.sign(x))) if x.type.dtype.is_complex else b.mul(ct, b.sign(x))
    return _where(b, b.ne(x, b.zeros_like(x)), derivative)


def _sign_partial(b: Any, ct: Value, out: Value, x: Value) -> Contribution:
    """Return, for complex z / |z|, (ct - conj(ct out^2)) / 2|z|, and 0 at 0; zero for real operands."""
    if not x.type.dtype.is_complex:
        return ZERO
    difference = b.sub(ct, b.conj(b.mul(ct, b.mul(out, out))))
    return _where(b, b.ne(x, b.zeros_like(x)), b.div(_scaled(b, difference, 0.5), as_complex(b, b.abs(x))))


abs = Elementwise(
    name="abs", reference="numpy.absolute", also=("numpy.abs", "numpy.fabs"), kinds="ifuc", gives="part",
    pullback=each(_abs_partial),
    **_arith(
        {"f": "call {t} @llvm.fabs.{m}({t} {0})", "i": "call {t} @llvm.abs.{m}({t} {0}, i1 false)", "u": "recipe"},
        "pb_abs({0})",
    ), parity="even", finite=True,
)  # fmt: skip
sign = Elementwise(
    name="sign", reference=semantics.sign, also=("numpy.sign",), kinds="ifuc", pullback=each(_sign_partial), cheap=True,
    cuda="pb_sign({0})", parity="odd", finite=True,
)  # fmt: skip
copysign = Elementwise(
    name="copysign", reference="numpy.copysign", arity=2, cheap=True,
    pullback=each(
        lambda b, ct, out, x, y: b.mul(ct, b.mul(b.copysign(const_like(b, 1, x), x), b.copysign(const_like(b, 1, x), y))),
        no,
    ),
    llvm="call {t} @llvm.copysign.{m}({t} {0}, {t} {1})", cuda="copysign({0}, {1})", finite=True,
)  # fmt: skip
nextafter = Elementwise(
    name="nextafter", reference="numpy.nextafter", arity=2, cuda="nextafter({0}, {1})",
    pullback=each(
        lambda b, ct, out, x, y: b.select(b.eq(x, y), b.zeros_like(ct), ct), lambda b, ct, out, x, y: _where(b, b.eq(x, y), ct)
    ),
)  # fmt: skip
"""The next representable value after x towards y. Its derivative is by x, but by y where they are equal."""
gcd = Elementwise(name="gcd", reference="numpy.gcd", arity=2, kinds="iu", pullback=each(no, no), llvm="ufunc:numpy.gcd",
                  cuda="pb_gcd({0}, {1})")  # fmt: skip


def always(params: Mapping[str, Any]) -> bool:
    return True


def if_root(params: Mapping[str, Any]) -> bool:
    """Return whether the param ``root`` marks a power as a root whose argument has its minimum where it is 0."""
    return bool(params.get("root", False))


def is_fractional(params: Mapping[str, Any]) -> bool:
    """Return whether the param ``fractional`` marks the exponent of a power as between 1 and 2."""
    return bool(params.get("fractional", False))


def _smallest_normal(b: Any, x: Value) -> Value:
    return const_like(b, float(np.finfo(x.type.dtype.numpy).smallest_normal), x)


def _has_slope(b: Any, x: Value, y: Value) -> Value:
    """Return where y * x**(y - 1) is not 0 times infinity or NaN: x**-1 overflows for subnormal x."""
    if x.type.dtype.kind == "f":
        is_usual = b.ge(b.abs(x), _smallest_normal(b, x))
    else:
        is_usual = b.bitand(b.ne(x, b.zeros_like(x)), b.eq(x, x))
    return b.bitor(b.ne(y, b.zeros_like(y)), is_usual)


def _is_constant(b: Any, x: Value) -> bool:
    maker = b.maker(x)
    while maker is not None and maker.op.name in ("broadcast", "cast", "reshape"):
        maker = b.maker(maker.operands[0])
    return maker is not None and maker.op.name == "const"


def _is_flat(b: Any, y: Value) -> Value:
    """Return where the exponent is so small that x**y underflows only for x = 0."""
    result: Value = b.lt(b.abs(y), const_like(b, 2.0**-3, y))
    return result


def _pow_by_base(b: Any, ct: Value, out: Value, x: Value, y: Value, **params: Any) -> Value:
    """Return ct y x**(y - 1). For subnormal x and small y the power may overflow where the product does not; there it is out y
    / x."""
    has_slope, less = _has_slope(b, x, y), b.sub(y, const_like(b, 1, y))
    slope = b.mul(y, b.pow(x, less))
    if x.type.dtype.kind == "f" and not params and not _is_constant(b, y):
        size = b.abs(x)
        is_subnormal = b.bitand(b.lt(size, _smallest_normal(b, x)), b.gt(size, b.zeros_like(x)))
        by_value = b.bitand(is_subnormal, _is_flat(b, y))
        slope = b.pow_slope_at(b.select(by_value, b.div(b.mul(out, y), x), slope), x, y)
    return _where(b, has_slope, b.mul(ct, slope))


def _pow_by_exponent(b: Any, ct: Value, out: Value, x: Value, y: Value, **params: Any) -> Value:
    """Return ct out log(x); ``out`` is multiplied last because it may be subnormal."""
    has_slope = b.bitor(b.ne(x, b.zeros_like(x)), b.le(y, b.zeros_like(y)))
    return _where(b, has_slope, b.mul(b.mul(ct, b.log(x)), out))


def _pow_slope_by_base(b: Any, ct: Value, out: Value, value: Value, x: Value, y: Value) -> Value:
    """Return ct y (y - 1) x**(y - 2); as y (y - 1) x**(y - 1) / x where that power may overflow alone."""
    less = b.sub(y, const_like(b, 1, y))
    power = b.pow(x, less)
    usual = _pow_by_base(b, b.mul(ct, y), power, x, less)
    by_value = b.bitand(_is_flat(b, y), b.ne(x, b.zeros_like(x)))
    result: Value = b.select(by_value, b.mul(ct, b.div(b.mul(b.mul(y, power), less), x)), usual)
    return result


def _pow_slope_by_exponent(b: Any, ct: Value, out: Value, value: Value, x: Value, y: Value) -> Value:
    """Return ct (1 + y log(x)) x**(y - 1), as a product, so that no infinite terms cancel."""
    one = const_like(b, 1, y)
    less = b.sub(y, one)
    has_slope = b.bitor(b.ne(x, b.zeros_like(x)), b.le(less, b.zeros_like(y)))
    return _where(b, has_slope, b.mul(ct, b.mul(b.add(b.mul(y, b.log(x)), one), b.pow(x, less))))


pow_slope_at = with_value("pow_slope_at", _pow_slope_by_base, _pow_slope_by_exponent)
"""y x**(y - 1), computed in one of two ways (``_pow_by_base``)."""
pow = Elementwise(
    name="pow", reference=semantics.pow, also=("numpy.power", "numpy.float_power"), arity=2, kinds="ifuc",
    pullback=each(_pow_by_base, _pow_by_exponent), cuda="pb_pow({0}, {1})", steep=if_root,
)  # fmt: skip
"""Params, used by gradients alone (``ir/passes/singular/roots.py``): ``root``, ``fractional``."""

# minimum and maximum propagate NaN; +0 is above -0, so that no result depends on the operands' order


def _extreme(name: str, reference: Any, also: str, llvm: str, wins: str, ignores_nan: bool = False) -> Elementwise:
    def side(b: Any, ct: Value, x: Value, y: Value) -> Value:
        above = getattr(b, wins)(x, y)
        if ignores_nan:
            above = b.bitor(above, b.ne(y, y))
        tie = _where(b, b.eq(x, y), _scaled(b, ct, 0.5))
        result: Value = b.select(above, ct, tie)
        return result

    int_name = "max" if wins == "gt" else "min"
    templates = {
        "f": f"call {{t}} @llvm.{llvm}.{{m}}({{t}} {{0}}, {{t}} {{1}})" if not ignores_nan else "recipe",
        "i": f"call {{t}} @llvm.s{int_name}.{{m}}({{t}} {{0}}, {{t}} {{1}})",
        "u": f"call {{t}} @llvm.u{int_name}.{{m}}({{t}} {{0}}, {{t}} {{1}})",
        "b": ("or" if wins == "gt" else "and") + " {t} {0}, {1}",
    }
    return Elementwise(
        name=name, reference=reference, also=(also,), arity=2, kinds="bifuc", cheap=True, commutative=True, finite=True,
        pullback=each(lambda b, ct, out, x, y: side(b, ct, x, y), lambda b, ct, out, x, y: side(b, ct, y, x)),
        llvm=templates, cuda=f"pb_{name}({{0}}, {{1}})",
    )  # fmt: skip


maximum = _extreme("maximum", semantics.maximum, "numpy.maximum", "maximum", "gt")
minimum = _extreme("minimum", semantics.minimum, "numpy.minimum", "minimum", "lt")
fmax = _extreme("fmax", semantics.fmax, "numpy.fmax", "maxnum", "gt", ignores_nan=True)
fmin = _extreme("fmin", semantics.fmin, "numpy.fmin", "minnum", "lt", ignores_nan=True)
clip = Elementwise(
    name="clip", reference=semantics.clip, arity=3, kinds="ifu", cheap=True,
    pullback=each(
        lambda b, ct, out, x, lo, hi: _where(b, b.bitand(b.ge(x, lo), b.le(x, hi)), ct),
        lambda b, ct, out, x, lo, hi: _where(b, b.bitand(b.lt(x, lo), b.le(lo, hi)), ct),
        lambda b, ct, out, x, lo, hi: _where(b, b.gt(b.maximum(x, lo), hi), ct),
    ),
    cuda="pb_minimum(pb_maximum({0}, {1}), {2})", finite=True,
)  # fmt: skip

# exponentials and logarithms

LN2 = 0.6931471805599453
LN10 = 2.302585092994046
exp = _analytic("exp", lambda b, ct, out, x: b.mul(ct, out))
exp2 = _analytic("exp2", lambda b, ct, out, x: b.mul(ct, _scaled(b, out, LN2)), also=("scipy.special.exp2",))
expm1 = _analytic("expm1", lambda b, ct, out, x: b.mul(ct, b.exp(x)), also=("scipy.special.expm1",))
log = _analytic("log", lambda b, ct, out, x: b.div(ct, x))
log2 = _analytic("log2", lambda b, ct, out, x: b.div(_scaled(b, ct, 1.0 / LN2), x))
log10 = _analytic("log10", lambda b, ct, out, x: b.div(_scaled(b, ct, 1.0 / LN10), x))
log1p = _analytic("log1p", lambda b, ct, out, x: b.div(ct, b.add(const_like(b, 1, x), x)), also=("scipy.special.log1p",))


def _difference(b: Any, x: Value, y: Value) -> Value:
    """Return x - y, and 0 for equal infinities."""
    d = b.sub(x, y)
    return b.select(b.bitand(b.eq(x, y), b.ne(d, d)), b.zeros_like(d), d)


logaddexp = Elementwise(
    name="logaddexp", reference="numpy.logaddexp", arity=2, cuda="pb_logaddexp({0}, {1})",
    pullback=each(
        lambda b, ct, out, x, y: b.mul(ct, b.expit(_difference(b, x, y))),
        lambda b, ct, out, x, y: b.mul(ct, b.expit(_difference(b, y, x))),
    ), finite=True,
)  # fmt: skip


def _sqrt_partial(b: Any, ct: Value, out: Value, x: Value, norm: bool = False, positive: bool = False) -> Value:
    d: Value = b.mul(_scaled(b, ct, 0.5), b.div(const_like(b, 1.0, out), out))
    return _where(b, b.ne(out, b.zeros_like(out)), d) if norm else d


sqrt = _analytic(
    "sqrt", _sqrt_partial, reference=semantics.sqrt, also=("numpy.sqrt",), cheap=True,
    steep=lambda params: not params.get("norm") and not params.get("positive"), llvm="call {t} @llvm.sqrt.{m}({t} {0})",
)  # fmt: skip
"""Params ``norm``: it is the root of a sum of squares, whose derivatives at 0 are 0; ``positive``: the operand counts as
positive (``ir/passes/singular/roots.py``)."""
cbrt = _unary(
    "cbrt", lambda b, ct, out, x, root=False: b.div(b.div(_scaled(b, ct, 1 / 3), out), out), reference=semantics.cbrt,
    also=("numpy.cbrt", "scipy.special.cbrt"), steep=if_root, parity="odd",
)  # fmt: skip


def _across(b: Any, ct: Value, x: Value, y: Value, h: Value) -> Value:
    """Return ct x y / h**3, minus the derivative of x / hypot(x, y) by y."""
    result: Value = b.div(b.mul(ct, b.mul(b.over_hypot(x, y, h), b.over_hypot(y, x, h))), h)
    return _where(b, b.ne(h, b.zeros_like(h)), result)


def _along(b: Any, ct: Value, x: Value, y: Value, h: Value) -> Value:
    """Return ct y**2 / h**3, the derivative of x / hypot(x, y) by x. (y / h)**2 may underflow where this does not."""
    side = b.over_hypot(y, x, h)
    result: Value = b.mul(ct, b.mul(side, b.div(side, h)))
    return _where(b, b.ne(h, b.zeros_like(h)), result)


over_hypot = Elementwise(
    name="over_hypot", reference=semantics.over_hypot, arity=3, cheap=True, cuda="pb_over_hypot({0}, {1}, {2})",
    pullback=each(
        lambda b, ct, out, x, y, h: _along(b, ct, x, y, h), lambda b, ct, out, x, y, h: b.neg(_across(b, ct, x, y, h)), no
    ), finite=True,
)  # fmt: skip
"""x / hypot(x, y), the derivative of hypot. The third operand is hypot(x, y), which is already computed where this op is used;
the op has no derivative by it. The derivatives of the plain quotient would cancel where one of x and y is much larger."""
hypot = Elementwise(
    name="hypot", reference="numpy.hypot", arity=2, cuda="pb_hypot({0}, {1})",
    pullback=each(
        lambda b, ct, out, x, y: b.mul(ct, b.over_hypot(x, y, out)),
        lambda b, ct, out, x, y: b.mul(ct, b.over_hypot(y, x, out)),
    ), commutative=True, finite=True,
)  # fmt: skip

# trigonometric and hyperbolic functions


def _over_squares(b: Any, ct: Value, x: Value, y: Value) -> Value:
    """Return ct x / (x**2 + y**2), in two divisions, since the squares may underflow or overflow; 0 at the origin and at
    infinity."""
    size = b.hypot(x, y)
    quotient = b.over_squares_at(b.div(b.div(x, size), size), x, y)
    return _where(b, _has_angle(b, size), b.mul(ct, quotient))


def _has_angle(b: Any, size: Value) -> Value:
    result: Value = b.bitand(b.ne(size, b.zeros_like(size)), b.ne(size, const_like(b, math.inf, size)))
    return result


def _with_squares(b: Any, ct: Value, x: Value, y: Value, is_own: bool) -> Value:
    """Return ct (y**2 - x**2) / (x**2 + y**2)**2, the derivative of x / (x**2 + y**2) by x if ``is_own``; else the derivative
    by y, -2 ct x y / (x**2 + y**2)**2."""
    size = b.hypot(x, y)
    c, s = b.over_hypot(x, y, size), b.over_hypot(y, x, size)
    product = b.mul(b.sub(s, c), b.add(s, c)) if is_own else _scaled(b, b.mul(c, s), -2.0)
    return _where(b, _has_angle(b, size), b.div(b.div(b.mul(ct, product), size), size))


over_squares_at = with_value(
    "over_squares_at",
    lambda b, ct, out, value, x, y: _with_squares(b, ct, x, y, True),
    lambda b, ct, out, value, x, y: _with_squares(b, ct, x, y, False),
)
"""x / (x**2 + y**2). The derivatives of the formula that computes it are sums of terms that overflow where they cancel."""


sin = _analytic("sin", lambda b, ct, out, x: b.mul(ct, b.cos(x)), parity="odd", finite=True)
cos = _analytic("cos", lambda b, ct, out, x: b.neg(b.mul(ct, b.sin(x))), parity="even", finite=True)
tan = _analytic("tan", lambda b, ct, out, x: b.mul(ct, b.add(const_like(b, 1, x), b.mul(out, out))), parity="odd")
one_minus_square = _analytic(
    "one_minus_square", lambda b, ct, out, x: b.mul(ct, _scaled(b, x, -2.0)), semantics.one_minus_square, cheap=True,
    cuda="((1 - {0}) * (1 + {0}))", parity="even", finite=True,
)  # fmt: skip
"""1 - x**2 as (1 - x) (1 + x), which is accurate near 1, with a derivative that is accurate near 0."""
lorentzian = _analytic(
    "lorentzian", lambda b, ct, out, x: b.mul(b.mul(b.mul(_scaled(b, ct, -2.0), out), x), out), semantics.lorentzian, cheap=True,
    cuda="(1 / (1 + {0} * {0}))", parity="even", finite=True,
)  # fmt: skip
"""1 / (1 + x**2), with a derivative whose factors do not overflow or underflow before the derivative does."""
asin = _analytic(
    "asin",
    lambda b, ct, out, x: b.div(ct, b.sqrt(b.one_minus_square(x))),
    "numpy.arcsin",
    also=("numpy.asin",),
    steep=always,
    parity="odd",
)
acos = _analytic(
    "acos", lambda b, ct, out, x: b.neg(b.div(ct, b.sqrt(b.one_minus_square(x)))), "numpy.arccos", also=("numpy.acos",),
    steep=always,
)  # fmt: skip
atan = _analytic(
    "atan", lambda b, ct, out, x: b.mul(ct, b.lorentzian(x)), "numpy.arctan", also=("numpy.atan",), parity="odd", finite=True
)
atan2 = Elementwise(
    name="atan2", reference="numpy.arctan2", also=("numpy.atan2",), arity=2, cuda="atan2({0}, {1})",
    pullback=each(
        lambda b, ct, out, y, x: _over_squares(b, ct, x, y),
        lambda b, ct, out, y, x: b.neg(_over_squares(b, ct, y, x)),
    ),
)  # fmt: skip
sinh = _analytic("sinh", lambda b, ct, out, x: b.mul(ct, b.cosh(x)), parity="odd")
cosh = _analytic("cosh", lambda b, ct, out, x: b.mul(ct, b.sinh(x)), parity="even")


def _tanh_partial(b: Any, ct: Value, out: Value, x: Value) -> Value:
    """Return the partial from x rather than from out, since 1 - out**2 loses digits where out is near 1."""
    if not x.type.dtype.is_complex:
        result: Value = b.mul(ct, b.sech2(x))
        return result
    inverse = b.div(const_like(b, 1, x), b.cosh(x))
    complex_result: Value = b.mul(b.mul(ct, inverse), inverse)
    return complex_result


sech2 = _unary(
    "sech2", lambda b, ct, out, x: b.mul(b.mul(_scaled(b, ct, -2.0), b.tanh(x)), out), semantics.sech2, cuda="pb_sech2({0})",
    derivative_of="tanh", parity="even", finite=True,
)  # fmt: skip
"""The derivative of tanh, sech(x)**2, which shares the exponential of tanh where both are computed."""
tanh = _analytic("tanh", _tanh_partial, parity="odd", finite=True)
tanh_tail = _unary(
    "tanh_tail", lambda b, ct, out, x: b.neg(b.mul(ct, b.copysign(b.sech2(x), x))), semantics.tanh_tail, cuda="pb_tanh_tail({0})",
    parity="even", finite=True,
)  # fmt: skip
"""1 - abs(tanh(x)), which shares the exponential of tanh where both are computed."""


def _over(b: Any, x: Value, y: Value) -> Value:
    quotient: Value = b.div(x, y)
    return quotient


def _asinh_partial(b: Any, ct: Value, out: Value, x: Value) -> Value:
    one = const_like(b, 1, x)
    if not x.type.dtype.is_complex:
        return _over(b, ct, b.hypot(x, one))
    ix = b.mul(x, const_like(b, 1j, x))
    roots: Value = b.mul(b.sqrt(b.add(one, ix)), b.sqrt(b.sub(one, ix)))
    return _over(b, ct, roots)


asinh = _analytic("asinh", _asinh_partial, "numpy.arcsinh", also=("numpy.asinh",), parity="odd", finite=True)
acosh = _analytic(
    "acosh",
    lambda b, ct, out, x: b.div(ct, b.mul(b.sqrt(b.sub(x, const_like(b, 1, x))), b.sqrt(b.add(x, const_like(b, 1, x))))),
    "numpy.arccosh", also=("numpy.acosh",), steep=always,
)  # fmt: skip
atanh = _analytic(
    "atanh", lambda b, ct, out, x: b.div(ct, b.one_minus_square(x)), "numpy.arctanh", also=("numpy.atanh",), parity="odd"
)

# special functions

TWO_OVER_SQRT_PI = 1.1283791670955126
gauss = _unary(
    "gauss",
    lambda b, ct, out, x: b.mul(_scaled(b, ct, -2.0), b.mul(x, out)),
    semantics.gauss,
    cuda="pb_gauss({0}, 1)",
    parity="even",
    finite=True,
)
"""exp(-x**2), accurate to the last digits also where the square is large."""
erf = _unary(
    "erf", lambda b, ct, out, x: b.mul(_scaled(b, ct, TWO_OVER_SQRT_PI), b.gauss(x)), "scipy.special.erf", parity="odd",
    finite=True,
)  # fmt: skip
erfc = _unary(
    "erfc", lambda b, ct, out, x: b.mul(_scaled(b, ct, -TWO_OVER_SQRT_PI), b.gauss(x)), "scipy.special.erfc", finite=True
)
logistic_pdf = _unary(
    "logistic_pdf", lambda b, ct, out, x: b.neg(b.mul(b.mul(ct, b.tanh(_scaled(b, x, 0.5))), out)), semantics.logistic_pdf,
    cuda="pb_logistic_pdf({0})", derivative_of="expit", parity="even", finite=True,
)  # fmt: skip
"""The derivative of expit, which shares the exponential of expit where both are computed."""
expit = _unary(
    "expit",
    lambda b, ct, out, x: b.mul(ct, b.logistic_pdf(x)),
    "scipy.special.expit",
    cuda="pb_expit({0})",
    finite=True,
)
gammaln = _unary(
    "gammaln",
    lambda b, ct, out, x: b.mul(ct, b.digamma(x)),
    reference=semantics.gammaln,
    also=("scipy.special.gammaln",),
    cuda="lgamma({0})",
)
digamma = _unary(
    "digamma", lambda b, ct, out, x: b.mul(ct, b.polygamma(x, n=1)), "scipy.special.digamma", also=("scipy.special.psi",),
    cuda="pb_digamma({0})",
)  # fmt: skip
polygamma = _unary(
    "polygamma",
    lambda b, ct, out, x, n: b.mul(ct, b.polygamma(x, n=n + 1)),
    reference=semantics.polygamma,
    cuda="pb_polygamma({0}, {n})",
)

# rounding

floor = _unary("floor", no, cheap=True, llvm="call {t} @llvm.floor.{m}({t} {0})", finite=True)
ceil = _unary("ceil", no, cheap=True, llvm="call {t} @llvm.ceil.{m}({t} {0})", finite=True)
trunc = _unary("trunc", no, cheap=True, also=("numpy.fix",), llvm="call {t} @llvm.trunc.{m}({t} {0})", parity="odd", finite=True)
rint = _unary("rint", no, cheap=True, kinds="fc", llvm="call {t} @llvm.rint.{m}({t} {0})", parity="odd", finite=True)

# comparisons, choice, bits

eq = _compare("eq", "equal", "eq", "==", commutative=True)
ne = _compare("ne", "not_equal", "ne", "!=", commutative=True)
lt = _compare("lt", "less", "lt", "<")
le = _compare("le", "less_equal", "le", "<=")
gt = _compare("gt", "greater", "gt", ">")
ge = _compare("ge", "greater_equal", "ge", ">=")
is_index = Elementwise(
    name="is_index", reference=semantics.is_index, arity=2, kinds="i", gives="bool", pullback=each(no, no), cheap=True,
    cuda="pb_is_index({0}, {1})", finite=True,
)  # fmt: skip
"""Whether an integer is an index into an axis whose extent is the second operand: at least minus the extent, and less than it."""


def _fits(name: str) -> Elementwise:
    """Return the op of whether the exact result of integer arithmetic has the bits of its operands."""
    return Elementwise(
        name=f"{name}_fits", reference=getattr(semantics, f"{name}_fits"), arity=2, kinds="i", gives="bool",
        pullback=each(no, no), cheap=True, llvm=f"fits:s{name}", cuda=f"pb_{name}_fits({{0}}, {{1}})", finite=True,
    )  # fmt: skip


add_fits, sub_fits, mul_fits = _fits("add"), _fits("sub"), _fits("mul")
select = Elementwise(
    name="select", reference="numpy.where", arity=3, kinds="bifuc", gives="select", linear=True, cheap=True,
    pullback=each(
        no,
        lambda b, ct, out, c, x, y: b.select(c, ct, b.zeros_like(ct)),
        lambda b, ct, out, c, x, y: b.select(c, b.zeros_like(ct), ct),
    ),
    llvm="select {c} {0}, {t} {1}, {t} {2}", cuda="{0} ? {1} : {2}", finite=True,
)  # fmt: skip
bitand = Elementwise(
    name="bitand",
    reference="numpy.bitwise_and",
    arity=2,
    kinds="biu",
    pullback=each(no, no),
    **_arith("and {t} {0}, {1}", "{0} & {1}"),
    commutative=True,
    finite=True,
)
bitor = Elementwise(
    name="bitor",
    reference="numpy.bitwise_or",
    arity=2,
    kinds="biu",
    pullback=each(no, no),
    **_arith("or {t} {0}, {1}", "{0} | {1}"),
    commutative=True,
    finite=True,
)
bitxor = Elementwise(
    name="bitxor",
    reference="numpy.bitwise_xor",
    arity=2,
    kinds="biu",
    pullback=each(no, no),
    **_arith("xor {t} {0}, {1}", "{0} ^ {1}"),
    commutative=True,
    finite=True,
)
bitnot = Elementwise(
    name="bitnot", reference="numpy.invert", kinds="biu", pullback=each(no), cheap=True,
    llvm="recipe", cuda={"b": "!{0}", "i": "~{0}", "u": "~{0}"}, finite=True,
)  # fmt: skip
shl = Elementwise(
    name="shl",
    reference=semantics.shl,
    also=("numpy.left_shift",),
    arity=2,
    kinds="iu",
    pullback=each(no, no),
    cheap=True,
    cuda="pb_shl({0}, {1})",
    finite=True,
)
shr = Elementwise(
    name="shr",
    reference=semantics.shr,
    also=("numpy.right_shift",),
    arity=2,
    kinds="iu",
    pullback=each(no, no),
    cheap=True,
    cuda="pb_shr({0}, {1})",
    finite=True,
)

# random bits

mulhi = Elementwise(
    name="mulhi",
    reference=semantics.mulhi,
    arity=2,
    kinds="u",
    pullback=each(no, no),
    cheap=True,
    cuda="pb_mulhi({0}, {1})",
    finite=True,
)
philox = Elementwise(
    name="philox", reference=semantics.philox, arity=6, kinds="u", pullback=each(*[no] * 6),
    cuda="pb_philox({0}, {1}, {2}, {3}, {4}, {5}, {word})", finite=True,
)  # fmt: skip

ordered_after = Elementwise(
    name="ordered_after", reference=lambda x, after: np.array(x), arity=2, kinds="f", cheap=True, cuda="{0}",
    pullback=each(lambda b, ct, out, x, after: ct, no),
)  # fmt: skip
"""The first operand, in a kernel that has the second one: computations from the result are not moved before the second
operand."""

# conversions


def _cast_partial(b: Any, ct: Value, out: Value, x: Value, dtype: Any) -> Contribution:
    if not dtype.is_inexact:
        return ZERO
    result: Value = b.cast(ct, dtype=x.type.dtype)
    return result


cast = Elementwise(
    name="cast", reference=semantics.cast, kinds="bifuc", gives="dtype", typed=("dtype",), linear=True, cheap=True,
    pullback=each(_cast_partial), llvm="cast", cuda="pb_cast<{t}>({0})", finite=True,
)  # fmt: skip
bitcast = Elementwise(
    name="bitcast", reference=semantics.bitcast, kinds="bifu", gives="dtype", typed=("dtype",), pullback=each(no), cheap=True,
    llvm="bitcast", cuda="pb_bitcast<{t}>({0})", finite=True,
)  # fmt: skip

# kernel-only ops

KERNEL = frozenset({"kernel"})
raw_shl = Elementwise(
    name="raw_shl",
    reference="numpy.left_shift",
    arity=2,
    kinds="iu",
    pullback=each(no, no),
    vocabularies=KERNEL,
    **_arith("shl {t} {0}, {1}", "{0} << {1}"),
)
raw_shr = Elementwise(
    name="raw_shr", reference="numpy.right_shift", arity=2, kinds="iu", pullback=each(no, no), vocabularies=KERNEL,
    **_arith({"i": "ashr {t} {0}, {1}", "u": "lshr {t} {0}, {1}"}, "{0} >> {1}"),
)  # fmt: skip
below = Elementwise(
    name="below", reference=semantics.below, arity=2, kinds="i", gives="bool", pullback=each(no, no), cheap=True,
    llvm="icmp ult {t} {0}, {1}", cuda="pb_below({0}, {1})", vocabularies=KERNEL,
)  # fmt: skip
"""Whether an integer is at least 0 and less than the second operand, which is at least 0: one comparison of unsigned numbers."""
div_in_range = Elementwise(
    name="div_in_range", reference=semantics.div_in_range, arity=2, pullback=each(no, no), cheap=True, vocabularies=KERNEL,
    llvm="fdiv {t} {0}, {1}", cuda="{0} / {1}",
)  # fmt: skip
lookup = Elementwise(
    name="lookup", reference=semantics.lookup, kinds="u", gives="dtype", typed=("dtype",), pullback=each(no), cheap=True,
    llvm="lookup", vocabularies=KERNEL,
)  # fmt: skip
