"""Custom derivatives: ``custom``, a function with its own rule for its derivatives.

The first region is the function: its results are the function's ``outputs`` and then the residuals, what the rules keep. The
regions after it are the rules that there are, of which the params ``vjp`` and ``jvp`` are the positions of the operands that they
differentiate by, or none. Both have as parameters the results of the first region, then the cotangents of the outputs that are
inexact, or the tangents of those operands, then the operands. The results of the vjp rule are the cotangents of those operands;
those of the jvp rule are the tangents of the outputs that are inexact. Where one of the two is missing it is the transpose of the
other. Where a derivative is taken the rules replace what the gradient pass would make of the first region; the instructions of
the rules, and what is left of the first region, are differentiated further like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.structure import Block
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value


class Custom(Op):
    """See the module. ``name`` is what errors call the function."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if len(regions) != 1 + len(_rules(params)):
            raise TypeError(f"{len(regions)} regions for {len(_rules(params))} rules")
        for number, region in enumerate(regions):
            if tuple(v.type for v in region.parameters) != self.inside(types, params, regions[:number]):
                raise TypeError(f"the parameters of region {number} have other types than what it is called with")
        results = [v.type for v in regions[0].results]
        for kind, region in zip(_rules(params), regions[1:], strict=True):
            expected = [types[k] for k in params["vjp"]] if kind == "vjp" else floats(results[: params["outputs"]])
            _agree(kind, [v.type for v in region.results], expected, same)
        return tuple(results)

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        if not before:
            return tuple(types)
        results = [v.type for v in before[0].results]
        kind = _rules(params)[len(before) - 1]
        seeds = floats(results[: params["outputs"]]) if kind == "vjp" else [types[k] for k in params["jvp"]]
        return (*results, *seeds, *types)


def floats(types: Sequence[Type]) -> list[Type]:
    """The types that have derivatives."""
    return [t for t in types if isinstance(t, ArrayType) and t.dtype.is_inexact]


def rule(params: Mapping[str, Any], regions: Sequence[Block], kind: str) -> Block | None:
    """The region of a rule, if there is one."""
    kinds = _rules(params)
    return regions[1 + kinds.index(kind)] if kind in kinds else None


def positions(params: Mapping[str, Any]) -> tuple[int, ...]:
    """The operands by which there is a derivative."""
    return tuple(dict.fromkeys(k for kind in _rules(params) for k in params[kind]))


def _rules(params: Mapping[str, Any]) -> list[str]:
    return [kind for kind in ("vjp", "jvp") if params[kind] is not None]


def _agree(kind: str, found: Sequence[Type], expected: Sequence[Type], same: Same) -> None:
    if [(t.dtype, t.rank) for t in found] != [(t.dtype, t.rank) for t in expected]:
        raise TypeError(f"the {kind} rule gives {', '.join(map(str, found))} for {', '.join(map(str, expected))}")
    for t, other in zip(found, expected, strict=True):
        for a, b in zip(t.shape, other.shape, strict=True):
            same(a, b)


def parameters_with(region: Block, count: int, captured: Sequence[Value], mine: Sequence[Value]) -> tuple[Value, ...]:
    """The parameters of a region, of which the first ``count`` are its own, for operands ``captured`` after them. ``mine`` are
    those of them that its further parameters stand for."""
    known = dict(zip(mine, region.parameters[count:], strict=True))
    return (*region.parameters[:count], *(known.get(v) or Value(v.type, v.name) for v in captured))


custom = Custom(name="custom")
