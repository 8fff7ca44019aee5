"""What is there for the gradient pass alone: ``tap`` shows the cotangent that arrives at a value, ``stop_gradient`` lets none
through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import Contribution, Op, Same
from pullback.ir.structure import Block, Value
from pullback.ir.types import ArrayType, Type


@dataclass(frozen=True, eq=False, kw_only=True)
class Tap(Op):
    """Its operand; the gradient pass leaves a ``print`` of the cotangent behind, ``untap`` removes what is left."""

    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        if not isinstance(operand, ArrayType) or not operand.dtype.is_inexact:
            raise TypeError("takes an array of floats")
        return (operand,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Stop(Op):
    """Its operand, a constant to derivatives; ``untap`` removes it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        return (operand,)


def _shown(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (ct,) = cts
    if isinstance(ct, Value):
        b.print(ct, text=params["text"], scalars=[""])
    return [ct]


def _same(x: Any, text: str = "") -> Any:
    return np.asarray(x)


tap = Tap(name="tap", reference=_same, effect="effect", pullback=_shown)
stop_gradient = Stop(name="stop_gradient", reference=_same, nondifferentiable="the user says so")
