"""Define the derivative of the logarithm of a sum of exponentials where all of them underflow to 0.

    log (sum (exp z))   ->   sum (exp z) == 0 ? max z - inf : log (sum (exp z))

Both branches of the select are -infinity there. The derivative of the first is that of the maximum, shared by equal elements,
as for ``logaddexp``; the derivative of the second is infinity times 0. If a maximum was subtracted in the exponentials, one of
them is 1 and no rewrite is needed.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import max_, sum_
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import Transform
from pullback.ir.ops.elementwise.elementwise import add, div, exp, log, sub
from pullback.ir.passes.editing.replay import replay

MOST_TERMS = 16
"""Largest number of exponentials that are added one by one."""


def log_sums(function: Function) -> Function:
    """Rewrite such logarithms in regions of transforms.

    Requires: a func before ``grad`` (other kinds are returned unchanged). Keeps: values bit by bit.
    """
    if function.kind != "func" or not any(isinstance(i.op, Transform) for i in walk(function.body)):
        return function
    body = _block(function.body, is_inside=False)
    return function if body is function.body else replace(function, body=body)


def _block(block: Block, is_inside: bool) -> Block:
    b, new, is_changed = Builder(), dict[Value, Value](), False
    for i in block.instructions:
        operands = tuple(new.get(v, v) for v in i.operands)
        if i.regions:
            regions = tuple(_block(region, is_inside or isinstance(i.op, Transform)) for region in i.regions)
            if any(new_region is not old for new_region, old in zip(regions, i.regions, strict=True)):
                i, is_changed = replace(i, regions=regions), True
        if operands == i.operands:
            b.append(i)
        else:
            new.update(zip(i.results, replay(b, i, operands), strict=True))
        if is_inside and i.op is log and i.result.type.dtype.is_float:
            emitter = b.at(i.loc, i.result.name)
            largest = _largest(emitter, operands[0])
            if largest is not None:
                value, total = new.get(i.result, i.result), operands[0]
                below = emitter.add(largest, emitter.full(-math.inf, largest.type))
                new[i.result] = emitter.select(emitter.eq(total, emitter.zeros_like(total)), below, value)
                is_changed = True
    return b.block(block.parameters, [new.get(v, v) for v in block.results]) if is_changed else block


def _largest(b: Builder, total: Value) -> Value | None:
    """Emit the maximum of the exponents in a sum of exponentials; None if ``total`` is no such sum."""
    maker = b.maker(total)
    if maker is not None and maker.op is div:
        maker = b.maker(maker.operands[0])
    if maker is None:
        return None
    if maker.op is sum_:
        z = _exponent(b, maker.operands[0])
        largest: Value | None = None if z is None else b.max(z, axes=maker.params["axes"])
        return largest
    terms = _terms(b, maker)
    if terms is None:
        return None
    largest = terms[0]
    for z in terms[1:]:
        largest = b.maximum(largest, z)
    return largest


def _terms(b: Builder, maker: Instruction) -> list[Value] | None:
    """Return the exponents of a sum of exponentials that are added one by one; None for other values."""
    stack, exponents = [maker], list[Value]()
    while stack:
        i = stack.pop()
        if i.op is not add or len(exponents) > MOST_TERMS:
            return None
        for v in i.operands:
            z, inner = _exponent(b, v), b.maker(v)
            if z is not None:
                exponents.append(z)
            elif inner is None:
                return None
            else:
                stack.append(inner)
    return exponents


def _exponent(b: Builder, x: Value) -> Value | None:
    """Return the operand of an exponential, unless a maximum is subtracted in it; else None."""
    maker = b.maker(x)
    if maker is None or maker.op is not exp:
        return None
    (z,) = maker.operands
    inner = b.maker(z)
    return None if inner is not None and inner.op is sub and _is_maximum(b, inner.operands[1]) else z


def _is_maximum(b: Builder, x: Value) -> bool:
    maker = b.maker(x)
    while maker is not None and (isinstance(maker.op, Reindex) or maker.op.name in ("select", "stop_gradient")):
        maker = b.maker(maker.operands[-1] if maker.op.name != "select" else maker.operands[1])
    return maker is not None and (maker.op is max_ or maker.op.name == "maximum")
