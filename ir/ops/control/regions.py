"""Control: ``gradient`` (a region with its gradients), ``jvp`` (a region with its tangents), ``vmap`` (a region mapped along
an added axis), ``group`` (a region that becomes one kernel) and ``check`` (a condition that must hold)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same, with_leading_axis
from pullback.ir.core.structure import NOWHERE, Loc
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value


class Group(Op):
    """Runs its closed region on its operands. ``fuse`` creates groups; each becomes one kernel."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        if tuple(v.type for v in region.parameters) != tuple(types):
            raise TypeError("operands and region parameters must have the same types")
        return tuple(v.type for v in region.results)


class Transform(Op):
    """A transform of a closed region, which the grad pass expands. Operands after the region's own may be data of the
    transform, such as cotangents: the region has parameters for them too, and does not read them."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        if tuple(v.type for v in region.parameters) != self.inside(types, params):
            raise TypeError("operands and region parameters must have the same types")
        return self.transformed(types, params, tuple(v.type for v in region.results), same)

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        """Return the result types; ``results`` are the types of the region's results."""
        raise NotImplementedError(self.name)


def _float_types(types: Sequence[Type], positions: Sequence[int], derivatives: str) -> tuple[Type, ...]:
    selected = tuple(types[k] for k in positions)
    if any(not isinstance(t, ArrayType) or not t.dtype.is_inexact for t in selected):
        raise TypeError(f"only floats have {derivatives}")
    return selected


def _check_pairs(types: Sequence[Type], positions: Sequence[int], expected_types: Sequence[Type], same: Same) -> None:
    """Check that each operand at ``positions`` has the type of its partner in ``expected_types``. Raises TypeError."""
    if len(positions) != len(expected_types):
        raise TypeError(f"{len(positions)} operands for {len(expected_types)} values")
    for t, expected in zip((types[k] for k in positions), expected_types, strict=True):
        if t.dtype is not expected.dtype or t.rank != expected.rank:
            raise TypeError(f"takes {expected} where there is {t}")
        for e, f in zip(t.shape, expected.shape, strict=True):
            same(e, f)


class Gradient(Transform):
    """Reverse mode: the results of its region, then the gradients with respect to the operands whose positions are in ``wrt``.

    They are gradients of the first result, a float scalar; or, with a param ``results``, of the results at these positions,
    each weighted by a cotangent, the operand at the matching position in ``seeds``.
    """

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        if "results" in params:
            _check_pairs(types, params["seeds"], _float_types(results, params["results"], "cotangents"), same)
        elif not results or results[0].rank or not isinstance(results[0], ArrayType) or not results[0].dtype.is_inexact:
            raise TypeError("the region's first result must be a float scalar")
        return results + _float_types(types, params["wrt"], "gradients")


class Jvp(Transform):
    """Forward mode: the results of its region, then the tangents of the results at the positions ``results``.

    ``tangents`` are the positions of the operands that are tangents of the operands at the positions ``wrt``.
    """

    def transformed(
        self, types: Sequence[Type], params: Mapping[str, Any], results: tuple[Type, ...], same: Same
    ) -> tuple[Type, ...]:
        _check_pairs(types, params["tangents"], _float_types(types, params["wrt"], "tangents"), same)
        return results + _float_types(results, params["results"], "tangents")


class Vmap(Transform):
    """Maps its region along the leading axis of the operands at the positions ``batched``; the results have that leading axis.

    Results at the positions ``fixed``, which do not depend on the batched operands, are returned without it.
    """

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
    """Fails with ``error`` (the name of a builtin exception) and ``message`` unless every element of its first operand is true.
    ``rows`` (optional): the number of leading axes that were added by maps. ``raises`` (optional): the index of the exception of
    the user's that the trace raises then, which shows the values of the other operands."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        condition, *_ = types
        if not isinstance(condition, ArrayType) or not condition.dtype.is_bool:
            raise TypeError("takes a bool array")
        return ()

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        results: tuple[Value, ...] = b.emit(
            self, with_leading_axis(b, operands, batched, size), {**params, "rows": params.get("rows", 0) + 1}
        )  # fmt: skip
        return results


class CheckFailed(Exception):
    """Raised when a check's condition is false. ``error``: the exception that the user sees; ``loc``: the source location of
    the check; ``condition``: the value that it read, if known; ``row``: the first index along the mapped axes for which it
    is false; ``raises``: the index of the exception of the user's, or None, and ``values``: those that it shows."""

    def __init__(self, error: str, message: str, row: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.error = error
        self.row = row
        self.loc: Loc = NOWHERE
        self.condition: Value | None = None
        self.raises: int | None = None
        self.values: tuple[Any, ...] = ()


def _check(
    condition: Any, *values: Any, error: str, message: str, rows: int = 0, raises: int | None = None
) -> tuple[()]:  # fmt: skip
    if not condition.all():
        failed = CheckFailed(error, message, tuple(np.argwhere(~condition)[0][:rows].tolist()))
        failed.raises, failed.values = raises, tuple(np.asarray(v)[failed.row] for v in values)
        raise failed
    return ()


group = Group(name="group", extents=("space",))
gradient = Gradient(name="gradient")
jvp = Jvp(name="jvp")
vmap = Vmap(name="vmap")
check = Check(name="check", reference=_check, effect="fails")
