"""Ops that create arrays from params alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import NoDerivative, Op, Region, RuleBuilder, Same
from pullback.ir.core.types import I64, ArrayType, Extent, Type, is_by_value
from pullback.ir.core.value import Value

EVERYWHERE = frozenset({"func", "kernel", "program"})


class Constant(Op):
    """A rank-0 constant; params ``value`` and ``dtype``. Larger constants are parameters of the function."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (ArrayType(params["dtype"]),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        return (np.asarray(params["value"], params["dtype"].numpy),)


class Iota(Op):
    """The index along ``axis``, as integers of ``dtype``, in an array of ``shape``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        if not 0 <= params["axis"] < len(params["shape"]):
            raise TypeError("the axis is outside the shape")
        return (ArrayType(params["dtype"], tuple(params["shape"])),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        shape, axis = params["shape"], params["axis"]
        line = np.arange(shape[axis], dtype=params["dtype"].numpy)
        return (np.broadcast_to(line.reshape([-1 if k == axis else 1 for k in range(len(shape))]), shape),)


class Count(Op):
    """The number of elements of an array of ``shape``, as an i64: the divisor of a mean, the same instruction for all sizes.

    An optional operand supplies these extents, along ``axes``; its elements are not read, and ``simplify`` removes it.
    """

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            (counted,) = types
            for extent, axis in zip(params["shape"], params["axes"], strict=True):
                same(extent, counted.shape[axis])
        return (ArrayType(I64),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        return (np.asarray(math.prod(params["shape"]), np.int64),)

    def batch(
        self, b: RuleBuilder, operands: Sequence[Value], batched: Sequence[bool], params: Mapping[str, Any], size: Extent
    ) -> tuple[Value, ...]:
        return (b.broadcast(b.count(shape=params["shape"]), axes=(0,), shape=(size,)),)


class DefineExtent(Op):
    """The definition of an extent by value: from here on, the name in ``extent`` is the extent whose number is the operand, an
    i64 that is at least 0. The result is that number.

        %n: i64[] = define_extent %count {extent=[v0]}
        %p: i64[v0] = slice %positions {start=[0], step=[1], ...}

    A block may use names that it, or a block around it, has defined before. ``capacity=true``: the extent is that of a buffer
    which may be longer than needed, so the rows of a batch share the largest.
    """

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if tuple(types) != (ArrayType(I64),):
            raise TypeError("takes an i64")
        if len(params["extent"]) != 1 or not is_by_value(params["extent"][0]):
            raise TypeError("defines one extent by value")
        return (ArrayType(I64),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        return (operands[0],)

    def batch(
        self, b: RuleBuilder, operands: Sequence[Value], batched: Sequence[bool], params: Mapping[str, Any], size: Extent
    ) -> tuple[Value, ...]:
        if params.get("capacity"):
            least = b.const(0, I64)
            b.define_extent(b.maximum(b.max(operands[0], axes=(0,)), least), extent=params["extent"], capacity=True)
            return (operands[0],)
        raise NoDerivative(
            "the number of elements depends on values of the mapped axis, so that it may differ from row to row; "
            "keep all elements, as by np.where(mask, x, 0) and where=mask in reductions"
        )


const = Constant(name="const", typed=("dtype",), vocabularies=EVERYWHERE)
iota = Iota(name="iota", typed=("dtype", "shape"), extents=("shape",), finite=True)
define_extent = DefineExtent(
    name="define_extent", extents=("extent",), effect="fails", nondifferentiable="a number of elements", finite=True
)
count = Count(name="count", extents=("shape",), nondifferentiable="a number of elements", finite=True)
