"""Annotate roots with what is known of the signs of their operands, in params that gradient rules read.

    sqrt(sum x**2 + 1e-6)   ->  sqrt {positive}: its slope is never infinite
    (sum |x|**3) ** (1/3)   ->  pow {root}: where the base is 0 it is at its minimum, so its derivative is 0

A power with an exponent from 1/2 to 1 is a root for any base: along a smooth path the base is 0 at an end of the domain, or
touches 0 with a zero of even order, and so the root has order 1 at least. For an exponent below 1/2, and for ``cbrt``, the
base must be known not to be negative: cbrt(x**3) is x. The derivative of a power with an exponent between 1 and 2 is 0 at 0,
but sqrt(x**1.5) is steep there: such zeros do not cancel an infinity (``fractional``). A scalar known only at run time that is
added to a differentiated value under a square root counts as positive: it is a softening.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.control.regions import Transform
from pullback.ir.ops.elementwise.elementwise import add
from pullback.ir.passes.singular.signs import Sign, Signs


def roots(function: Function) -> Function:
    """Set the params ``positive`` of square roots, ``root`` of powers and cube roots, and ``fractional`` of powers.

    Requires: a func before ``grad`` (other kinds, and functions without transforms, are returned unchanged). Keeps: everything
    but those params, which are only ever added.
    """
    if function.kind != "func" or not any(isinstance(i.op, Transform) for i in walk(function.body)):
        return function
    body = _marked(function.body, (), ())
    return function if body is function.body else replace(function, body=body)


def _marked(block: Block, parameter_signs: Sequence[Sign], reached: Sequence[int]) -> Block:
    """Annotate the roots of a block. ``reached``: positions of the parameters that depend on differentiated values."""
    signs = Signs(block.parameters, parameter_signs)
    active = {block.parameters[k] for k in reached}
    softened: set[Value] = set()
    lone = {v for v in block.parameters if not v.type.shape}
    out = []
    for i in block.instructions:
        is_active = not active.isdisjoint(i.operands)
        is_rearranged = isinstance(i.op, Reindex) and len(i.operands) == 1
        lone.update(v for v in i.results if not v.type.shape or (is_rearranged and i.operands[0] in lone))
        if is_active:
            active.update(i.results)
        if i.regions:
            wrt = i.params.get("wrt", ())
            inner = [k for k, v in enumerate(i.operands) if v in active or k in wrt]
            if isinstance(i.op, Loop | Switch):
                inner = list(range(min(len(r.parameters) for r in i.regions))) if is_active else []
            regions = tuple(_marked(region, signs.region_signs(i, region), inner) for region in i.regions)
            if any(new is not old for new, old in zip(regions, i.regions, strict=True)):
                i = replace(i, regions=regions)
        is_softened = i.op is add and is_active and any(v in lone and _is_unknown(v, active, signs) for v in i.operands)
        if is_softened or (is_rearranged and i.operands[0] in softened):
            softened.update(i.results)
        i = _with_params(i, signs, softened)
        signs.note(i)
        out.append(i)
    is_same = all(new is old for new, old in zip(out, block.instructions, strict=True))
    return block if is_same else replace(block, instructions=tuple(out))


def _is_unknown(x: Value, active: Collection[Value], signs: Signs) -> bool:
    """Return whether a value is constant for derivatives and known only at run time."""
    return x not in active and x not in signs.constants


def _with_params(i: Instruction, signs: Signs, softened: Collection[Value]) -> Instruction:
    name = i.op.name
    if name not in ("sqrt", "pow", "cbrt") or not i.result.type.dtype.is_float:
        return i
    of = signs.of(i.operands[0])
    if name == "sqrt":
        is_new = (of is Sign.POSITIVE or i.operands[0] in softened) and not i.params.get("positive")
        return replace(i, params={**i.params, "positive": True}) if is_new else i
    exponent = 1 / 3 if name == "cbrt" else signs.constants.get(i.operands[1])
    if of is Sign.POSITIVE or not {"root", "fractional"}.isdisjoint(i.params) or not isinstance(exponent, int | float):
        return i
    if 1 < exponent < 2:
        return replace(i, params={**i.params, "fractional": True})
    if not 0 < exponent < 1:
        return i
    is_root = of is Sign.NOT_NEGATIVE or exponent >= 0.5
    return replace(i, params={**i.params, "root": True}) if is_root else i
