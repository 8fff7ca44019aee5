"""The kernel of a batch of products of complex matrices: as in ``batched_matmul``, with both parts of each element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.ops.batched_matmul import Batch, are_small, in_lanes
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.small_matrices import Lane, Matrix

PARTS = (0, 1)


@dataclass(frozen=True, eq=False)
class Part(Matrix):
    """The real or the imaginary part of a matrix of a batch. ``word`` names its axes; ``axes`` names its rows and its columns.
    ``minus``: its elements are negated when read."""

    word: str
    axes: str
    part: int
    minus: bool

    @property
    def shape(self) -> Shape:
        return tuple(self.ref.type.shape[self.word.index(k)] for k in self.axes)

    def full_index(self, index: Value | tuple[Value, ...]) -> list[Value]:
        assert isinstance(index, tuple)
        at = dict(zip("z" + self.axes, (self.at, *index), strict=True))
        return [*(at[k] for k in self.word), self.b.const(self.part, I64)]

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        loaded: Value = self.b.here("load", self.ref, *self.full_index(index))
        return self.b.here("neg", loaded) if self.minus else loaded

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        self.b.here("store", value, self.ref, *self.full_index(index))


def complex_batch_kernel(i: Instruction) -> Draft:
    """Return the kernel of a contraction of complex numbers in canonical form that has a batch."""
    return _ComplexBatch(i).run()


class _ComplexBatch(Batch):
    def __init__(self, i: Instruction) -> None:
        super().__init__(i)
        self.conj = self.params.pop("conj", (False, False))

    def run(self) -> Draft:
        b = self.b
        count, zero = b.extent_of(self.extents["z"]), b.const(0, I64)
        is_small = are_small(b, [self.extents[letter] for letter in "mnk"])
        in_lanes(b, b.select(is_small, count, zero), self.refs[0].type.dtype, self.parts, multiply)
        self.one_by_one(b.select(is_small, zero, count))
        return Draft(kernel=b.kernel(self.refs), sizes=b.sizes())

    def parts(self, at: Value, lane: Value) -> list[list[Part]]:
        """Return the real and imaginary parts of the matrices of a product."""
        named = zip(self.refs, self.words, ("mk", "kn", "mn"), (*self.conj, False), strict=True)
        return [[Part(self.b, ref, at, word, axes, part, part > 0 and sign) for part in PARTS] for ref, word, axes, sign in named]

    def region(self, names: Mapping[str, str], position: int, z: Value) -> Block:
        b, ref, word = self.b, self.refs[position], self.words[position]
        b.enter()
        at = {letter: b.bound(I64, name) for letter, name in names.items()}
        index = [(at | {"z": z})[k] for k in word]
        places = [[*index, b.here("const", value=part, dtype=I64)] for part in PARTS]
        sums: Sequence[Value] = ()
        yielded: Sequence[Value] = ()
        if position == 2:
            sums = [b.bound(ref.type.dtype, "sum") for _ in PARTS]
            for value, index_of_part in zip(sums, places, strict=True):
                b.here("store", value, ref, *index_of_part)
        else:
            re, im = (b.here("load", ref, *index_of_part) for index_of_part in places)
            yielded = [re, b.here("neg", im) if self.conj[position] else im]
        return Block((*at.values(), *sums), tuple(b.levels.pop()), tuple(yielded))


def multiply(lane: Lane, a: Sequence[Part], x: Sequence[Part], out: Sequence[Part]) -> None:
    """Emit the product a x of the parts of one lane's matrices: row by row, column by column."""
    b = lane.b
    m, n, depth = lane.extent(out[0], 0), lane.extent(out[0], 1), lane.extent(a[0], 1)
    zero, nothing = lane.constant(0), b.const(0, out[0].ref.type.dtype)
    row_size = b.emit(OPS["maximum"], (n, depth))[0]
    own = lane.own(b.add(row_size, row_size))

    def behind(k: Value, part: int) -> Value:
        return lane.op("add", k, row_size) if part else k

    def take(p: Value) -> None:
        def element(j: Value) -> None:
            for part in PARTS:
                own[p, behind(j, part)] = x[part][p, j]

        lane.each(None, n, element)

    def row(i: Value) -> None:
        def element(p: Value) -> None:
            for part in PARTS:
                own[depth, behind(p, part)] = a[part][i, p]

        def column(j: Value) -> None:
            def add(p: Value, re: Value, im: Value) -> list[Value]:
                (f, g), (u, v) = ([own[at, behind(k, part)] for part in PARTS] for at, k in ((depth, p), (p, j)))
                re, im = (lane.op("add", total, lane.op("mul", f, y)) for total, y in ((re, u), (im, v)))
                return [lane.op("sub", re, lane.op("mul", g, v)), lane.op("add", im, lane.op("mul", g, u))]

            for part, total in zip(PARTS, lane.carry(zero, depth, [nothing, nothing], add), strict=True):
                out[part][i, j] = total

        lane.each(None, depth, element)
        lane.each(None, n, column)

    lane.each(None, depth, take)
    lane.each(None, m, row)
