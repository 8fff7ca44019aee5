"""Markers for passes: ``cotangent_tap`` prints the cotangent that arrives at a value, ``stop_gradient`` lets none through,
``barrier`` keeps a second computation from being merged with the first, ``saved`` names the saved copy of a recomputed value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Region, Same, leading
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value


@dataclass(frozen=True, eq=False, kw_only=True)
class CotangentTap(Op):
    """Its operand; the gradient pass leaves a ``print`` of the cotangent behind, ``untap`` removes what is left."""

    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        if not isinstance(operand, ArrayType) or not operand.dtype.is_inexact:
            raise TypeError("takes an array of floats")
        return (operand,)


class Stop(Op):
    """Its operand, a constant to derivatives; ``untap`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        return (operand,)


class Barrier(Op):
    """Its first operand: what is computed from it comes after the second operand, and is not merged with what is equal.
    ``unbarrier`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        operand, _ = types
        return (operand,)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        """The second operand is as it is."""
        found: tuple[Value, ...] = b.emit(self, (*leading(b, operands[:1], batched[:1], size), operands[1]))
        return found


class Saved(Op):
    """Its second operand, the saved copy of the first; derivatives go to the first. ``untap`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        computed, kept = types
        if type(computed) is not type(kept) or computed.dtype is not kept.dtype or computed.rank != kept.rank:
            raise TypeError("takes two values of one type")
        for a, b in zip(computed.shape, kept.shape, strict=True):
            same(a, b)
        return (kept,)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        """Both with the axis."""
        found: tuple[Value, ...] = b.emit(self, leading(b, operands, batched, size))
        return found


def _shown(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (ct,) = cts
    if isinstance(ct, Value):
        b.print(ct, text=params["text"], scalars=[""])
    return [ct]


def _same(x: Any, text: str = "") -> Any:
    return np.asarray(x)


cotangent_tap = CotangentTap(name="cotangent_tap", reference=_same, effect="effect", pullback=_shown)
stop_gradient = Stop(name="stop_gradient", reference=_same, nondifferentiable="the user says so")
barrier = Barrier(
    name="barrier",
    reference=lambda x, after: np.asarray(x),
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [cts[0], ZERO],
)
saved = Saved(
    name="saved",
    reference=lambda computed, kept: np.asarray(kept),
    pullback=lambda b, op, inputs, outputs, cts, params, wants: [cts[0], ZERO],
)
