"""Effects: ``print`` shows values when the program runs, ``tap`` the cotangent that arrives at a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import Contribution, Op, Same
from pullback.ir.structure import Block, Value
from pullback.ir.types import ArrayType, Type


@dataclass(frozen=True, eq=False, kw_only=True)
class Print(Op):
    """Writes ``text`` to the standard output: a format string whose fields are the operands, by position.

    ``scalars`` names, for each operand, the Python type ("bool", "int", "float") that it is shown as, or is empty. Prints run
    once, in program order. As a program op it takes dense buffers.
    """

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        if len(params["scalars"]) != len(types):
            raise TypeError(f"{len(params['scalars'])} scalars for {len(types)} operands")
        return ()

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        """One print, of whole arrays."""
        scalars = tuple("" if axis else scalar for axis, scalar in zip(batched, params["scalars"], strict=True))
        found: tuple[Value, ...] = b.emit(self, operands, {**params, "scalars": scalars})
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class Tap(Op):
    """Its operand; the gradient pass leaves a ``print`` of the cotangent behind, ``untap`` removes what is left."""

    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (operand,) = types
        if not isinstance(operand, ArrayType) or not operand.dtype.is_inexact:
            raise TypeError("takes an array of floats")
        return (operand,)


class Shown:
    """A value as a field of a format string; arrays take the format of their elements."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __format__(self, spec: str) -> str:
        if spec and isinstance(self.value, np.ndarray) and self.value.ndim:
            return np.array2string(self.value, formatter={"all": lambda element: format(element, spec)})
        return format(self.value, spec)


def show(*values: Any, text: str, scalars: Sequence[str]) -> tuple[()]:
    """The meaning of ``print``."""
    plain = [np.asarray(v).item() if scalar else v[()] for v, scalar in zip(values, scalars, strict=True)]
    print(text.format(*map(Shown, plain)), end="")
    return ()


def _shown(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (ct,) = cts
    if isinstance(ct, Value):
        b.print(ct, text=params["text"], scalars=[""])
    return [ct]


def _same(x: Any, text: str) -> Any:
    return np.asarray(x)


print_ = Print(
    name="print",
    reference=show,
    effect="effect",
    nondifferentiable="it has no result",
    vocabularies=frozenset({"func", "program"}),
)
tap = Tap(name="tap", reference=_same, effect="effect", pullback=_shown)
