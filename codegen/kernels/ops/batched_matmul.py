"""The kernel of a batch of matrix products: the op ``product`` in a loop over the batch, which reads each operand as it lies.

The axes of an operand come in any order, and one operand may be without the batch: all products share it. Of products up to 16 by
16 each lane of a vector has one (``product_lanes``); extents choose when the kernel runs.
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
from pullback.ir.ops.kernel.small_matrices import MOST, MOST_OF_PRODUCT, Lane, Own, multiply


def batch_kernel(i: Instruction) -> Draft:
    """The kernel of a contraction in canonical form that has a batch."""
    return Batch(i).run()


def sized(b: KernelBuilder, extents: Sequence[Extent]) -> Value:
    """Whether the products of a batch are small."""
    found: Value = b.const(True, "bool")
    for extent in extents:
        found = b.bitand(found, b.le(b.extent_of(extent), b.const(MOST_OF_PRODUCT, I64)))
    return found


def side_by_side(
    b: KernelBuilder, count: Value, dtype: DType, matrices: Callable[[Value, Value], Sequence[Any]],
    multiply: Callable[..., None] = multiply,
) -> None:  # fmt: skip
    """``count`` small products, in blocks of which each lane has one: ``matrices`` of a product and its lane."""
    lanes, shift = b.const(LANES, I64), b.const(LANES.bit_length() - 1, I64)
    blocks = b.raw_shr(b.add(count, b.const(LANES - 1, I64)), shift)
    block = b.open("z")
    first = b.raw_shl(block, shift)
    here = b.minimum(lanes, b.sub(count, first))
    room = b.here("local", dtype=dtype, shape=(MOST * MOST * LANES,))
    lane = b.open("l")
    at = b.here("add", first, lane)
    multiply(Lane(b, lambda columns: Own(b, room, columns, lane, LANES), True), *matrices(at, lane))
    b.close(lane, here, independent=True, way="vector")
    b.close(block, blocks, independent=True)


class Batch:
    """The kernel of one such contraction in the making."""

    def __init__(self, i: Instruction) -> None:
        self.b = b = KernelBuilder()
        b.place = i.loc
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
        """``count`` products, one after the other."""
        b = self.b
        counts = [b.extent_of(self.extents[k]) for k in "mnk"]
        z = b.open("z")
        names = ({"m": "i", "k": "p"}, {"k": "p", "n": "j"}, {"m": "i", "n": "j"})
        regions = [self.region(named, position, z) for position, named in enumerate(names)]
        b.put(len(b.levels) - 1, OPS["product"], counts, dict(self.params), regions)
        b.close(z, count, independent=True)

    def region(self, names: Mapping[str, str], position: int, z: Value) -> Block:
        """The region of an operand, or of the results."""
        b, ref, word = self.b, self.refs[position], self.words[position]
        b.enter()
        at = {letter: b.bound(I64, name) for letter, name in names.items()}
        index = [(at | {"z": z})[k] for k in word]
        given: Sequence[Value] = ()
        yielded: Sequence[Value] = ()
        if position == 2:
            given = [b.bound(ref.type.dtype, "sum")]
            b.here("store", given[0], ref, *index)
        else:
            yielded = [b.here("load", ref, *index)]
        return Block((*at.values(), *given), tuple(b.levels.pop()), tuple(yielded))
