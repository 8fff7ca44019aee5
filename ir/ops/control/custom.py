"""Custom derivatives: ``custom``, a function with its own rules for its derivatives.

The first region is the function: its results are the function's ``outputs`` and then the residuals that the rules read. The
regions after it are the rules, if any, in the order vjp, jvp; the params ``vjp`` and ``jvp`` are the positions of the operands
that each rule differentiates by, or None if there is no such rule. A rule's parameters are the results of the first region,
then the cotangents of the inexact outputs (vjp) or the tangents of those operands (jvp), then the operands. The results of the
vjp rule are the cotangents of those operands; the results of the jvp rule are the tangents of the inexact outputs. If one of
the two is missing, the transpose of the other stands in. The rules replace the derivative that the gradient pass would take of
the first region; the instructions of the rules, and what is left of the first region, are differentiated further like any
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.structure import Block
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value


class Custom(Op):
    """A function with custom derivatives (see the module). ``name`` is the function's name in error messages."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if len(regions) != 1 + len(_rules(params)):
            raise TypeError(f"{len(regions)} regions for {len(_rules(params))} rules")
        for index, region in enumerate(regions):
            if tuple(v.type for v in region.parameters) != self.inside(types, params, regions[:index]):
                raise TypeError(f"the parameters of region {index} have other types than what it is called with")
        results = [v.type for v in regions[0].results]
        for kind, region in zip(_rules(params), regions[1:], strict=True):
            expected = [types[k] for k in params["vjp"]] if kind == "vjp" else floats(results[: params["outputs"]])
            _check_types(kind, [v.type for v in region.results], expected, same)
        return tuple(results)

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        if not before:
            return tuple(types)
        results = [v.type for v in before[0].results]
        kind = _rules(params)[len(before) - 1]
        seeds = floats(results[: params["outputs"]]) if kind == "vjp" else [types[k] for k in params["jvp"]]
        return (*results, *seeds, *types)


def floats(types: Sequence[Type]) -> list[Type]:
    """Return the types that have derivatives."""
    return [t for t in types if isinstance(t, ArrayType) and t.dtype.is_inexact]


def rule(params: Mapping[str, Any], regions: Sequence[Block], kind: str) -> Block | None:
    """Return the region of the rule ``kind`` ("vjp" or "jvp"), or None."""
    kinds = _rules(params)
    return regions[1 + kinds.index(kind)] if kind in kinds else None


def positions(params: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the positions of the operands that a rule differentiates by."""
    return tuple(dict.fromkeys(k for kind in _rules(params) for k in params[kind]))


def _rules(params: Mapping[str, Any]) -> list[str]:
    return [kind for kind in ("vjp", "jvp") if params[kind] is not None]


def _check_types(kind: str, actual: Sequence[Type], expected: Sequence[Type], same: Same) -> None:
    if [(t.dtype, t.rank) for t in actual] != [(t.dtype, t.rank) for t in expected]:
        raise TypeError(f"the {kind} rule gives {', '.join(map(str, actual))} for {', '.join(map(str, expected))}")
    for t, other in zip(actual, expected, strict=True):
        for a, b in zip(t.shape, other.shape, strict=True):
            same(a, b)


def parameters_with(region: Block, count: int, captured: Sequence[Value], mine: Sequence[Value]) -> tuple[Value, ...]:
    """Return the parameters of a region that takes ``captured`` after its first ``count`` own parameters.

    ``mine``: the captured values that the region's further parameters already stand for; new parameters are created for the
    others.
    """
    existing = dict(zip(mine, region.parameters[count:], strict=True))
    return (*region.parameters[:count], *(existing.get(v) or Value(v.type, v.name) for v in captured))


custom = Custom(name="custom")
