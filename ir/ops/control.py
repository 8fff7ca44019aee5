"""Control: ``gradient`` (a region with its gradients), ``group`` (a region that becomes one kernel) and ``check`` (a condition
that must hold)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.op import Op, Same
from pullback.ir.structure import NOWHERE, Block, Loc, Value
from pullback.ir.types import ArrayType, Type


@dataclass(frozen=True, eq=False, kw_only=True)
class Group(Op):
    """Runs its closed region on its operands; made by ``fuse``, one kernel each."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        if tuple(v.type for v in region.parameters) != tuple(types):
            raise TypeError("operands and region parameters must have the same types")
        return tuple(v.type for v in region.results)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gradient(Op):
    """The results of its closed region, then the gradient of the first of them, a float scalar, with respect to each operand
    whose position is in ``wrt``. The grad pass expands it."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        if tuple(v.type for v in region.parameters) != tuple(types):
            raise TypeError("operands and region parameters must have the same types")
        results = tuple(v.type for v in region.results)
        if not results or not isinstance(results[0], ArrayType) or results[0].rank or not results[0].dtype.is_inexact:
            raise TypeError("the region's first result must be a float scalar")
        wanted = tuple(types[k] for k in params["wrt"])
        if any(isinstance(t, ArrayType) and not t.dtype.is_inexact for t in wanted):
            raise TypeError("only floats have gradients")
        return results + wanted


@dataclass(frozen=True, eq=False, kw_only=True)
class Check(Op):
    """Fails with ``error`` (the name of a builtin exception) and ``message`` unless every element of its operand is true."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (condition,) = types
        if not isinstance(condition, ArrayType) or not condition.dtype.is_bool:
            raise TypeError("takes a bool array")
        return ()


class CheckFailed(Exception):
    """A check found a false condition; ``error`` is the exception the user should see, ``loc`` the check's place and
    ``condition`` what it read, if known."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.loc: Loc = NOWHERE
        self.condition: Value | None = None


def _check(condition: Any, error: str, message: str) -> tuple[()]:
    if not condition.all():
        raise CheckFailed(error, message)
    return ()


group = Group(name="group", extents=("space",))
gradient = Gradient(name="gradient")
check = Check(name="check", reference=_check, effect="fails")
