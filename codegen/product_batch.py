"""The kernel of a batch of matrix products: the op ``product`` in a loop over the batch, which reads each operand as it lies.

The axes of an operand come in any order, and one operand may be without the batch: all products share it. Of products up to 16 by
16 each lane of a vector has one (``linalg_kernel``); extents choose when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.codegen.draft import Draft, KernelBuilder
from pullback.codegen.linalg_kernel import LANES, memory
from pullback.ir.op import OPS
from pullback.ir.ops.contract import others, split
from pullback.ir.ops.small import MOST, MOST_OF_PRODUCT, Lane, Matrix, Own, product
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import I64, DType, Extent, Shape


@dataclass(frozen=True, eq=False)
class Placed(Matrix):
    """A matrix of a batch whose axes ``word`` names; ``axes`` names its rows and its columns."""

    word: str
    axes: str

    @property
    def shape(self) -> Shape:
        return tuple(self.ref.type.shape[self.word.index(k)] for k in self.axes)

    def place(self, index: Value | tuple[Value, ...]) -> list[Value]:
        assert isinstance(index, tuple)
        at = dict(zip("z" + self.axes, (self.at, *index), strict=True))
        return [at[k] for k in self.word]

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        found: Value = self.b.here("load", self.ref, *self.place(index))
        return found

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        self.b.here("store", value, self.ref, *self.place(index))


def batch_kernel(i: Instruction) -> Draft:
    """The kernel of a contraction in canonical form that has a batch."""
    return Batch(i).run()


def sized(b: KernelBuilder, extents: Sequence[Extent]) -> Value:
    """Whether the products of a batch are small."""
    found: Value = b.const(True, "bool")
    for extent in extents:
        found = b.bitand(found, b.le(b.extent_of(extent), b.const(MOST_OF_PRODUCT, I64)))
    return found


def multiply(lane: Lane, *matrices: Matrix) -> None:
    product(lane, {"ta": False, "tb": False}, *matrices)


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
    b.close(lane, here, apart=True, way="vector")
    b.close(block, blocks, apart=True)


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
        count, zero = b.extent_of(self.extents["z"]), b.const(0, I64)
        is_small = sized(b, [self.extents[letter] for letter in "mnk"])
        self.side_by_side(b.select(is_small, count, zero))
        self.one_by_one(b.select(is_small, zero, count))
        return Draft(kernel=b.kernel(self.refs), sizes=b.sizes())

    def side_by_side(self, count: Value) -> None:
        """``count`` small products."""
        side_by_side(self.b, count, self.refs[0].type.dtype, self.matrices)

    def matrices(self, at: Value, lane: Value) -> list[Placed]:
        """Those of a product."""
        named = zip(self.refs, self.words, ("mk", "kn", "mn"), strict=True)
        return [Placed(self.b, ref, at, word, axes) for ref, word, axes in named]

    def one_by_one(self, count: Value) -> None:
        """``count`` products that have their tiles."""
        b = self.b
        counts = [b.extent_of(self.extents[k]) for k in "mnk"]
        z = b.open("z")
        names = ({"m": "i", "k": "p"}, {"k": "p", "n": "j"}, {"m": "i", "n": "j"})
        regions = [self.region(named, position, z) for position, named in enumerate(names)]
        b.put(len(b.levels) - 1, OPS["product"], counts, dict(self.params), regions)
        b.close(z, count, apart=True)

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
