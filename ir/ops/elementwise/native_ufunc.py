"""What the rows of SciPy's ufuncs share: the record of a ufunc that is called natively, and derivatives by parameters that
have no closed form.

Those are differences of the eighth order (Fornberg, Generation of finite difference formulas on arbitrarily spaced grids, 1988)
of the function itself, in float64, with a step that is a power of two, some sixtieth of the length on which the function changes:
ten digits or more, at the first order. The step counts as constant, so that derivatives of such derivatives are right too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pullback.ir.core.op import Contribution, resolve
from pullback.ir.core.types import F64
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise, Partial, const_like, each

WEIGHTS = (4.0 / 5.0, -1.0 / 5.0, 4.0 / 105.0, -1.0 / 280.0)
STEEPEST = 1e3


def row(name: str, *partials: Partial, llvm: str = "", cuda: str = "", missing: Mapping[int, str] | None = None) -> Elementwise:
    """A ufunc of scipy.special, called natively if it has no spelling of its own. ``missing``: operands by which there is no
    derivative, and why."""
    reference = f"scipy.special.{name}"
    return Elementwise(
        name=name, reference=reference, arity=len(partials), pullback=each(*partials), llvm=llvm or f"ufunc:{reference}",
        cuda=cuda, missing=missing or {},
    )  # fmt: skip


def rows_of(ufunc: str, **partials: tuple[Partial, ...]) -> None:
    """The results of a ufunc of scipy.special that has several: one op each, in their order."""
    for place, (name, given) in enumerate(partials.items()):
        Elementwise(
            name=name, reference=_result(f"scipy.special.{ufunc}", place), arity=len(given), pullback=each(*given),
            llvm=f"ufunc:scipy.special.{ufunc} {place}/{len(partials)}",
        )  # fmt: skip


def _result(ufunc: str, place: int) -> Callable[..., Any]:
    return lambda *operands: resolve(ufunc)(*operands)[place]


def scaled(b: Any, x: Value, factor: float) -> Value:
    found: Value = b.mul(x, const_like(b, factor, x))
    return found


def shifted(b: Any, x: Value, term: float) -> Value:
    found: Value = b.add(x, const_like(b, term, x))
    return found


def where(b: Any, condition: Value, x: Value, y: Value | float) -> Value:
    found: Value = b.select(condition, x, y if isinstance(y, Value) else const_like(b, y, x))
    return found


def less(b: Any, x: Value, bound: float) -> Value:
    found: Value = b.lt(x, const_like(b, bound, x))
    return found


def size(b: Any, x: Value) -> Value:
    found: Value = b.abs(x)
    return found


def steepness(b: Any, x: Value) -> Value:
    """1 + abs(log(abs(x))), bounded: how fast x**a changes with a."""
    found: Value = shifted(b, b.fmin(b.abs(b.log(b.abs(x))), const_like(b, STEEPEST, x)), 1.0)
    return found


def slope(b: Any, function: Callable[[Value], Value], x: Value, length: Value) -> Value:
    """The derivative of a function at x that changes on that length or a longer one."""
    step = b.exp2(b.floor(b.log2(scaled(b, length, 1.0 / 32.0))))
    total = None
    for k, weight in enumerate(WEIGHTS, 1):
        far = scaled(b, step, float(k))
        term = scaled(b, b.sub(function(b.add(x, far)), function(b.sub(x, far))), weight)
        total = term if total is None else b.add(total, term)
    found: Value = b.div(total, step)
    return found


def in_double(partial: Callable[..., Value]) -> Partial:
    """A partial that is computed in float64, whatever the operands are."""

    def wide(b: Any, ct: Value, out: Value, *operands: Value) -> Contribution:
        dtype = ct.type.dtype
        if dtype is F64:
            return partial(b, ct, out, *operands)
        found: Value = b.cast(partial(b, *(b.cast(v, dtype=F64) for v in (ct, out, *operands))), dtype=dtype)
        return found

    return wide


def by_parameter(op: str, place: int, length: Callable[..., Value]) -> Partial:
    """The partial of an op by an operand that sets the shape. ``length(b, *operands)``: see ``slope``."""

    def partial(b: Any, ct: Value, out: Value, *operands: Value) -> Value:
        def function(at: Value) -> Value:
            found: Value = getattr(b, op)(*operands[:place], at, *operands[place + 1 :])
            return found

        found: Value = b.mul(ct, slope(b, function, operands[place], length(b, *operands)))
        return found

    return in_double(partial)
