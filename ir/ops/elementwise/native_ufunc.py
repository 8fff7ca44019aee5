"""Shared parts of SciPy's ufuncs: the record of a ufunc that is called natively, and derivatives by parameters that have no
closed form.

Such derivatives are differences of the eighth order (Fornberg, Generation of finite difference formulas on arbitrarily spaced
grids, 1988) of the function itself, in float64. The step is a power of two, about a sixtieth of the length on which the
function changes: at least ten digits for first derivatives. The step counts as constant, so that derivatives of such
derivatives are right too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.core.op import Contribution, resolve
from pullback.ir.core.types import F64
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise, Partial, const_like, each

WEIGHTS = (4.0 / 5.0, -1.0 / 5.0, 4.0 / 105.0, -1.0 / 280.0)
"""The weights of the central differences at 1, 2, 3 and 4 steps."""
STEEPEST = 1e3
"""The upper bound of the logarithm in ``steepness``."""


def row(name: str, *partials: Partial, llvm: str = "", cuda: str = "", missing: Mapping[int, str] | None = None) -> Elementwise:
    """Return the record of a ufunc of scipy.special, which is called natively unless ``llvm`` is a template. ``missing``:
    operands without a derivative, and the reasons."""
    reference = f"scipy.special.{name}"
    return Elementwise(
        name=name, reference=reference, arity=len(partials), pullback=each(*partials), llvm=llvm or f"ufunc:{reference}",
        cuda=cuda, missing=missing or {},
    )  # fmt: skip


def rows_of(ufunc: str, **partials: tuple[Partial, ...]) -> None:
    """Register one op for each result of a ufunc of scipy.special, in the order of the results."""
    for index, (name, rules) in enumerate(partials.items()):
        Elementwise(
            name=name, reference=_result(f"scipy.special.{ufunc}", index), arity=len(rules), pullback=each(*rules),
            llvm=f"ufunc:scipy.special.{ufunc} {index}/{len(partials)}",
        )  # fmt: skip


def _result(ufunc: str, index: int) -> Callable[..., Any]:
    return lambda *operands: resolve(ufunc)(*operands)[index]


def scaled(b: Any, x: Value, factor: float) -> Value:
    product: Value = b.mul(x, const_like(b, factor, x))
    return product


def shifted(b: Any, x: Value, term: float) -> Value:
    total: Value = b.add(x, const_like(b, term, x))
    return total


def where(b: Any, condition: Value, x: Value, y: Value | float) -> Value:
    result: Value = b.select(condition, x, y if isinstance(y, Value) else const_like(b, y, x))
    return result


def less(b: Any, x: Value, bound: float) -> Value:
    result: Value = b.lt(x, const_like(b, bound, x))
    return result


def size(b: Any, x: Value) -> Value:
    result: Value = b.abs(x)
    return result


def steepness(b: Any, x: Value) -> Value:
    """Return 1 + abs(log(abs(x))), bounded: the rate at which x**a changes with a."""
    rate: Value = shifted(b, b.fmin(b.abs(b.log(b.abs(x))), const_like(b, STEEPEST, x)), 1.0)
    return rate


def slope(b: Any, function: Callable[[Value], Value], x: Value, length: Value) -> Value:
    """Return the derivative at x of a function that changes on the scale ``length`` or a larger one."""
    step = b.exp2(b.floor(b.log2(scaled(b, length, 1.0 / 32.0))))
    total = None
    for k, weight in enumerate(WEIGHTS, 1):
        offset = scaled(b, step, float(k))
        term = scaled(b, b.sub(function(b.add(x, offset)), function(b.sub(x, offset))), weight)
        total = term if total is None else b.add(total, term)
    derivative: Value = b.div(total, step)
    return derivative


def in_double(partial: Callable[..., Value]) -> Partial:
    """Return a partial that computes in float64, whatever the operands' dtype."""

    def converted(b: Any, ct: Value, out: Value, *operands: Value) -> Contribution:
        dtype = ct.type.dtype
        if dtype is F64:
            return partial(b, ct, out, *operands)
        result: Value = b.cast(partial(b, *(b.cast(v, dtype=F64) for v in (ct, out, *operands))), dtype=dtype)
        return result

    return converted


def by_parameter(op: str, position: int, length: Callable[..., Value]) -> Partial:
    """Return the partial of an op by an operand that is a shape parameter. ``length(b, *operands)``: see ``slope``."""

    def partial(b: Any, ct: Value, out: Value, *operands: Value) -> Value:
        def function(at: Value) -> Value:
            value: Value = getattr(b, op)(*operands[:position], at, *operands[position + 1 :])
            return value

        result: Value = b.mul(ct, slope(b, function, operands[position], length(b, *operands)))
        return result

    return in_double(partial)
