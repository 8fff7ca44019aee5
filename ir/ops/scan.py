"""Scans along an axis. ``recur`` is the first-order linear recurrence h[i] = a[i] * h[i - 1] + b[i], h before the first being 0
(``reverse``: from the end). Cumulative sums and products are recurrences, and its gradient is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import ZERO, Contribution, Op, Same
from pullback.ir.structure import Block
from pullback.ir.types import ArrayType, Type


@dataclass(frozen=True, eq=False, kw_only=True)
class Recur(Op):
    """Operands a and b of one type; params ``axis`` and ``reverse``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
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


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    axis, reverse = params["axis"], params["reverse"]
    by = -1 if reverse else 1
    g = b.recur(b.shift(inputs[0], axis=axis, by=-by), cts[0], axis=axis, reverse=not reverse)
    return [b.mul(g, b.shift(outputs[0], axis=axis, by=by)) if wants[0] else ZERO, g]


recur = Recur(name="recur", pullback=_rule)
