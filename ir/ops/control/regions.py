"""Control: ``gradient``, ``jvp`` and ``vmap`` (a region with its gradients, with its tangents, along an axis more), ``group`` (a
region that becomes one kernel) and ``check`` (a condition that must hold)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.structure import NOWHERE, Loc
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value


class Group(Op):
    """Runs its closed region on its operands; made by ``fuse``, one kernel each."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        if tuple(v.type for v in region.parameters) != tuple(types):
            raise TypeError("operands and region parameters must have the same types")
        return tuple(v.type for v in region.results)


class Transform(Op):
    """Something done to a closed region; the grad pass expands it. Operands after the region's first ones may be data of the
    transform itself: the region has parameters for them too, and does not read them."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        if tuple(v.type for v in region.parameters) != self.inside(types, params):
            raise TypeError("operands and region parameters must have the same types")
        return self.transformed(types, params, tuple(v.type for v in region.results), same)

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        """The result types, given those of the region."""
        raise NotImplementedError(self.name)


def _floats(types: Sequence[Type], positions: Sequence[int], what: str) -> tuple[Type, ...]:
    found = tuple(types[k] for k in positions)
    if any(not isinstance(t, ArrayType) or not t.dtype.is_inexact for t in found):
        raise TypeError(f"only floats have {what}")
    return found


def _pairs(types: Sequence[Type], given: Sequence[int], of: Sequence[Type], same: Same) -> None:
    """Each operand at ``given`` has the type of its partner in ``of``."""
    if len(given) != len(of):
        raise TypeError(f"{len(given)} operands for {len(of)} values")
    for t, expected in zip((types[k] for k in given), of, strict=True):
        if t.dtype is not expected.dtype or t.rank != expected.rank:
            raise TypeError(f"takes {expected} where there is {t}")
        for e, f in zip(t.shape, expected.shape, strict=True):
            same(e, f)


class Gradient(Transform):
    """The results of its region, then the derivatives with respect to each operand whose position is in ``wrt``, in reverse mode:
    of the first result, a float scalar; or, if there is a param ``results``, of the results at these positions, each times a
    cotangent, the operand whose position is in ``seeds``."""

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        if "results" in params:
            _pairs(types, params["seeds"], _floats(results, params["results"], "cotangents"), same)
        elif not results or results[0].rank or not isinstance(results[0], ArrayType) or not results[0].dtype.is_inexact:
            raise TypeError("the region's first result must be a float scalar")
        return results + _floats(types, params["wrt"], "gradients")


class Jvp(Transform):
    """The results of its region, then the derivatives of the results at the positions ``results``, in forward mode: along the
    tangents, operands at the positions ``tangents``, of the operands at the positions ``wrt``."""

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        _pairs(types, params["tangents"], _floats(types, params["wrt"], "tangents"), same)
        return results + _floats(results, params["results"], "tangents")


class Vmap(Transform):
    """The results of its region for each index of the leading axis of the operands at the positions ``batched``, along a leading
    axis of the results; but those at the positions ``fixed``, which do not depend on the batched operands, as they are."""

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        batched = params["batched"]
        return tuple(ArrayType(t.dtype, t.shape[1:]) if k in batched else t for k, t in enumerate(types))

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        batched = [types[k] for k in params["batched"]]
        if not batched or not all(t.rank for t in batched):
            raise TypeError("takes at least one array with a leading axis")
        size = batched[0].shape[0]
        for t in batched[1:]:
            same(t.shape[0], size)
        fixed = params["fixed"]
        return tuple(t if k in fixed else ArrayType(t.dtype, (size, *t.shape)) for k, t in enumerate(results))


class Check(Op):
    """Fails with ``error`` (the name of a builtin exception) and ``message`` unless every element of its operand is true.
    ``rows``, if there is such a param: so many of its first axes are those of maps."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (condition,) = types
        if not isinstance(condition, ArrayType) or not condition.dtype.is_bool:
            raise TypeError("takes a bool array")
        return ()

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        found: tuple[Value, ...] = b.emit(self, operands, {**params, "rows": params.get("rows", 0) + 1})
        return found


class CheckFailed(Exception):
    """A check found a false condition; ``error`` is the exception the user should see, ``loc`` the check's place and
    ``condition`` what it read, if known; ``row`` the first row of maps for which it is false."""

    def __init__(self, error: str, message: str, row: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.error = error
        self.row = row
        self.loc: Loc = NOWHERE
        self.condition: Value | None = None


def _check(condition: Any, error: str, message: str, rows: int = 0) -> tuple[()]:
    if not condition.all():
        raise CheckFailed(error, message, tuple(np.argwhere(~condition)[0][:rows].tolist()))
    return ()


group = Group(name="group", extents=("space",))
gradient = Gradient(name="gradient")
jvp = Jvp(name="jvp")
vmap = Vmap(name="vmap")
check = Check(name="check", reference=_check, effect="fails")
