"""Markers for passes: ``cotangent_tap`` prints the cotangent of a value, ``stop_gradient`` has derivative zero, ``barrier``
keeps a second computation from being merged with the first, ``saved`` pairs a recomputed value with its saved copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Region, Same, with_leading_axis
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value


@dataclass(frozen=True, eq=False, kw_only=True)
class CotangentTap(Op):
    """Returns its operand; the gradient pass emits a ``print`` of the cotangent, ``untap`` removes the remaining taps."""

    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        if not isinstance(operand, ArrayType) or not operand.dtype.is_inexact:
            raise TypeError("takes an array of floats")
        return (operand,)


class Stop(Op):
    """Returns its operand, as a constant to derivatives; ``untap`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        return (operand,)


class Barrier(Op):
    """Returns its first operand: computations that use the result run after the second operand is computed, and are not merged
    with equal ones. ``unbarrier`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        operand, _ = types
        return (operand,)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        """Batch the first operand only; the second is unchanged."""
        results: tuple[Value, ...] = b.emit(self, (*with_leading_axis(b, operands[:1], batched[:1], size), operands[1]))
        return results


class Saved(Op):
    """Returns its second operand, the saved copy of the first; derivatives go to the first. ``untap`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        computed, kept = types
        if type(computed) is not type(kept) or computed.dtype is not kept.dtype or computed.rank != kept.rank:
            raise TypeError("takes two values of one type")
        for a, b in zip(computed.shape, kept.shape, strict=True):
            same(a, b)
        return (kept,)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        """Batch both operands."""
        results: tuple[Value, ...] = b.emit(self, with_leading_axis(b, operands, batched, size))
        return results


def _print_cotangent(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (ct,) = cts
    if isinstance(ct, Value):
        b.print(ct, text=params["text"], scalars=[""])
    return [ct]


def _same(x: Any, text: str = "") -> Any:
    return np.asarray(x)


cotangent_tap = CotangentTap(name="cotangent_tap", reference=_same, effect="effect", pullback=_print_cotangent)
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
