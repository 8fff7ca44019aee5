"""The kernel of a batch of matrix products: the op ``product`` in a loop over the batch, which reads each operand in its own
layout.

The axes of an operand come in any order, and one operand may be without the batch: all products share it. Products up to 16 by
16 are computed one per vector lane (``product_lanes``); extents select the variant when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.kernels.ops.linalg import LANES, memory
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import others, split
from pullback.ir.ops.kernel.small_matrices import MAX_EXTENT, MAX_PRODUCT_EXTENT, Lane, LaneScratch, multiply


def batch_kernel(i: Instruction) -> Draft:
    """Return the kernel of a contraction in canonical form that has a batch."""
    return Batch(i).run()


def are_small(b: KernelBuilder, extents: Sequence[Extent]) -> Value:
    """Return whether the products of a batch are small."""
    is_small: Value = b.const(True, "bool")
    for extent in extents:
        is_small = b.bitand(is_small, b.le(b.extent_of(extent), b.const(MAX_PRODUCT_EXTENT, I64)))
    return is_small


def in_lanes(
    b: KernelBuilder, count: Value, dtype: DType, matrices: Callable[[Value, Value], Sequence[Any]],
    multiply: Callable[..., None] = multiply,
) -> None:  # fmt: skip
    """Emit ``count`` small products in blocks of one product per lane. ``matrices`` returns the matrices of a product and its
    lane."""
    lanes, shift = b.const(LANES, I64), b.const(LANES.bit_length() - 1, I64)
    blocks = b.raw_shr(b.add(count, b.const(LANES - 1, I64)), shift)
    block = b.open("z")
    first = b.raw_shl(block, shift)
    block_size = b.minimum(lanes, b.sub(count, first))
    scratch = b.here("local", dtype=dtype, shape=(MAX_EXTENT * MAX_EXTENT * LANES,))
    lane = b.open("l")
    at = b.here("add", first, lane)
    multiply(Lane(b, lambda columns: LaneScratch(b, scratch, columns, lane, LANES), True), *matrices(at, lane))
    b.close(lane, block_size, independent=True, way="vector")
    b.close(block, blocks, independent=True)


class Batch:
    """The kernel of a batched contraction under construction."""

    def __init__(self, i: Instruction) -> None:
        self.b = b = KernelBuilder()
        b.location = i.loc
        (left, right), out = split(i.params["spec"])
        self.words, self.params = (left, right, out), others(i.params)
        values = (*i.operands, *i.results)
        self.extents: dict[str, Extent] = {}
        for word, value in zip(self.words, values, strict=True):
            self.extents |= dict(zip(word, value.type.shape, strict=True))
        self.refs = [Value(memory(b, v.type), f"x{k}") for k, v in enumerate(values)]

    def run(self) -> Draft:
        b = self.b
        self.one_by_one(b.extent_of(self.extents["z"]))
        return Draft(kernel=b.kernel(self.refs), sizes=b.sizes())

    def one_by_one(self, count: Value) -> None:
        """Emit ``count`` products, one after the other."""
        b = self.b
        counts = [b.extent_of(self.extents[k]) for k in "mnk"]
        z = b.open("z")
        names = ({"m": "i", "k": "p"}, {"k": "p", "n": "j"}, {"m": "i", "n": "j"})
        regions = [self.region(named, position, z) for position, named in enumerate(names)]
        b.put(len(b.levels) - 1, OPS["product"], counts, dict(self.params), regions)
        b.close(z, count, independent=True)

    def region(self, names: Mapping[str, str], position: int, z: Value) -> Block:
        """Return the region of an operand, or of the results."""
        b, ref, word = self.b, self.refs[position], self.words[position]
        b.enter()
        at = {letter: b.bound(I64, name) for letter, name in names.items()}
        index = [(at | {"z": z})[k] for k in word]
        sums: Sequence[Value] = ()
        yielded: Sequence[Value] = ()
        if position == 2:
            sums = [b.bound(ref.type.dtype, "sum")]
            b.here("store", sums[0], ref, *index)
        else:
            yielded = [b.here("load", ref, *index)]
        return Block((*at.values(), *sums), tuple(b.levels.pop()), tuple(yielded))
