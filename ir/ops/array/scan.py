"""Scans along an axis; ``reverse``: from the end.

``accumulate`` ops combine all elements up to each one: ``cumsum``, whose gradient is a ``cumsum`` in reverse. Kernels may
combine them in any grouping. ``linear_recurrence`` is the first-order recurrence h[i] = a[i] * h[i - 1] + b[i], with h = 0
before the first element, evaluated in order. Cumulative products are expressed by it, and its gradient is again a
``linear_recurrence``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Region, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType, Type


class LinearRecurrence(Op):
    """The recurrence h[i] = a[i] * h[i - 1] + b[i]. Operands a and b of one type; params ``axis`` and ``reverse``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        a, b = types
        if not isinstance(a, ArrayType) or not isinstance(b, ArrayType) or a.dtype is not b.dtype or a.rank != b.rank:
            raise TypeError("takes two arrays of one type")
        if a.dtype.kind not in "ifuc" or not 0 <= params["axis"] < a.rank:
            raise TypeError("takes numbers and an axis of the operands")
        for e, f in zip(a.shape, b.shape, strict=True):
            same(e, f)
        return (a,)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        a, b = (np.moveaxis(x, params["axis"], 0) for x in operands)
        out = np.empty(a.shape, a.dtype)
        order = range(len(a))
        state = np.zeros(a.shape[1:], a.dtype)
        with np.errstate(all="ignore"):
            for i in reversed(order) if params["reverse"] else order:
                state = out[i] = a[i] * state + b[i]
        return (np.moveaxis(out, 0, params["axis"]),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Accumulate(Op):
    """The running combination of one operand; params ``axis`` and ``reverse``. ``combine``: the elementwise op of two
    elements, associative but for rounding; ``first(dtype)`` is its identity."""

    combine: str
    kinds: str
    first: Callable[[Any], Any]

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (x,) = types
        if not isinstance(x, ArrayType) or x.dtype.kind not in self.kinds or not 0 <= params["axis"] < x.rank:
            raise TypeError("takes an array of numbers and an axis of it")
        return (x,)


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    axis, reverse = params["axis"], params["reverse"]
    by = -1 if reverse else 1
    g = b.linear_recurrence(b.shift(inputs[0], axis=axis, offset=-by), cts[0], axis=axis, reverse=not reverse)
    return [b.mul(g, b.shift(outputs[0], axis=axis, offset=by)) if wants[0] else ZERO, g]


def _cumsum(x: Any, axis: int, reverse: bool) -> Any:
    ordered = np.flip(x, axis) if reverse else x
    with np.errstate(all="ignore"):
        sums = np.add.accumulate(ordered, axis=axis, dtype=x.dtype)
    return np.flip(sums, axis) if reverse else sums


def _sum_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    return [b.cumsum(cts[0], axis=params["axis"], reverse=not params["reverse"])]


cumsum = Accumulate(
    name="cumsum", reference=_cumsum, combine="add", kinds="ifuc", linear=True, pullback=_sum_rule,
    first=lambda dtype: -0.0 if dtype.is_float else 0,
)  # fmt: skip
linear_recurrence = LinearRecurrence(name="linear_recurrence", pullback=_rule)
