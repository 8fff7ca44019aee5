"""Give the extents of an abstract function that are rows one name, and the others their values.

Requires: a func with named extents, in which gradients are expanded. The extents that type rules force to be equal to that of an
axis of rows have its name already. A reshape that keeps the rows as an axis, and indices that count the rows, force others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import I64, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Count
from pullback.ir.ops.array.index import Gather, RollBy, Scatter
from pullback.ir.ops.array.reindex import reshape
from pullback.ir.passes.rows.rules import ROWS, Coupled, is_row_index
from pullback.ir.shapes.extents import Abstract, rename, value_of


def with_rows(named: Abstract, axes: Mapping[int, int], total: int, is_known: bool = True) -> Function:
    """Return the function with the extent ``ROWS`` and numbers for all others.

    ``axes``: the axis of rows by parameter; ``total``: the number of rows of a call. What the program computes from the number
    of rows is computed from ``total``, or if that ``is_known`` not, by a reduction where an instruction counts rows. The
    constants of the function become instructions. Raises Coupled if the program is one for this number of rows only.
    """
    function = named.function
    names: set[Extent] = set()
    for k, axis in axes.items():
        extent = function.parameters[k].type.shape[axis]
        if isinstance(extent, int):
            raise Coupled("the program is one for this number of rows only")
        names.add(extent)
    body = function.body
    while (further := _further(body, names, named.sizes, total)) - names:
        names |= further
    mapping: dict[str, Extent] = {name: ROWS if name in names else size for name, size in named.sizes.items()}
    return _with_constants(_counted(rename(function, mapping), total if is_known else None), named)


def _further(block: Block, names: set[Extent], sizes: Mapping[str, int], total: int) -> set[Extent]:
    """Return the names that an instruction forces to be rows, given those that are."""
    makers = {v: i for i in walk(block) for v in i.results}
    result: set[Extent] = set()
    for i in walk(block):
        if i.op is reshape:
            result |= _kept_by_reshape(i, names, sizes)
        elif isinstance(i.op, Gather | Scatter) and not isinstance(i.op, RollBy):
            for index, axis in zip(i.operands[1:], i.params["axes"]):
                if i.operands[0].type.shape[axis] in names:
                    result |= {
                        e
                        for k, e in enumerate(index.type.shape)
                        if isinstance(e, str) and sizes.get(e) == total and is_row_index(index, k, makers.get)
                    }
    return result


def _kept_by_reshape(i: Instruction, names: set[Extent], sizes: Mapping[str, int]) -> set[Extent]:
    """Return the names of the axes on one side of a reshape that are the axis of rows on the other side."""
    shapes: Sequence[Sequence[Extent]] = i.operands[0].type.shape, i.result.type.shape
    result: set[Extent] = set()
    for before, after in (shapes, shapes[::-1]):
        for k, e in enumerate(before):
            if e not in names:
                continue
            outside = math.prod(value_of(f, sizes) for f in before[:k])
            for j, f in enumerate(after):
                is_same = math.prod(value_of(g, sizes) for g in after[:j]) == outside
                if is_same and isinstance(f, str) and value_of(f, sizes) == value_of(e, sizes):
                    result.add(f)
    return result


def _counted(function: Function, total: int | None) -> Function:
    """Return the function with the counts of elements of arrays by rows as constants, or as sums of ones if ``total`` is
    None."""

    def block(old: Block) -> Block:
        instructions = []
        for i in old.instructions:
            counts = isinstance(i.op, Count) and ROWS in i.params["shape"]
            if counts and total is None:
                b, shape = Builder(i.loc), tuple(i.params["shape"])
                b.sum(b.full(1, ArrayType(I64, shape)), axes=tuple(range(len(shape))))
                *before, last = b.instructions
                instructions += [*before, replace(last, results=i.results)]
                continue
            if counts and total is not None:
                count: int = math.prod(total if e == ROWS else e for e in i.params["shape"])
                i = Instruction(OPS["const"], (), i.results, {"value": count, "dtype": I64}, (), i.loc)
            instructions.append(replace(i, regions=tuple(map(block, i.regions))) if i.regions else i)
        return replace(old, instructions=tuple(instructions))

    return replace(function, body=block(function.body))


def _with_constants(function: Function, named: Abstract) -> Function:
    """Return the function with its last parameters, the constants, as instructions."""
    count = len(named.constants)
    if not count:
        return function
    parameters, last = function.parameters[:-count], function.parameters[-count:]
    instructions = [_constant(p, c) for p, c in zip(last, named.constants, strict=True)]
    return replace(function, body=Block(parameters, (*instructions, *function.instructions), function.results))


def _constant(parameter: Value, value: object) -> Instruction:
    dtype = parameter.type.dtype
    return Instruction(OPS["const"], (), (parameter,), {"value": np.asarray(value, dtype.numpy).item(), "dtype": dtype})


