"""Batches of small plain matrix products: each lane of a vector has one (``ir.ops.kernel.small_matrices``).

The operands are brought into memory beside each other, lane by lane, so where they lie matters to how they are read alone: one
function for each dtype, which all kernels share, serves any order of rows, columns and batch. Operands that all products have in
common have another one, which reads them once for all lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import FEW, MOST_CHUNKS, loop, number, shared
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.kernels.builder import KernelBuilder
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR
from pullback.ir.ops.kernel.small_matrices import MOST_OF_PRODUCT, Lane, Matrix, Own, multiply

LANES = 16
"""So many products make a block: a vector of the narrowest numbers."""
REFS = ("left", "right", "out")
STRIDES = ("row", "column", "next")
COUNTS = ("rows", "columns", "terms", "first", "count")
WORTH, EACH = 1 << 17, 4
"""So many multiplications are worth another thread; to read or write an element takes as long as so many."""
Strides = tuple[Value, Value, Value | None]
"""How many elements are from one row to the next, from one column, and from one product of the batch; None if it is the same in
all of these."""


@dataclass(frozen=True, eq=False)
class _Strided(Matrix):
    """A matrix of so many rows and columns; elements lie at multiples of strides."""

    counts: tuple[Value, Value]
    strides: Strides

    def place(self, index: Value | tuple[Value, ...]) -> Value:
        assert isinstance(index, tuple)
        b, (row, column, next_) = self.b, self.strides
        found: Value = b.here("add", b.here("mul", index[0], row), b.here("mul", index[1], column))
        return found if next_ is None else b.here("add", b.mul(self.at, next_), found)

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        found: Value = self.b.here("load", self.ref, self.place(index))
        return found

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        self.b.here("store", value, self.ref, self.place(index))


class _Lane(Lane):
    """The work on matrices of which a value says how many rows and columns there are."""

    def extent(self, m: Matrix, axis: int) -> Value:
        assert isinstance(m, _Strided)
        return m.counts[axis]


def spell_lanes(
    b: Builder, dtype: DType, functions: Functions, counts: Sequence[Value], of: Value,
    memory: Sequence[tuple[Value, Strides]],
) -> Value:  # fmt: skip
    """Spell out products of so many rows, columns and terms, if these are few, and give how many are left. ``memory``: where the
    operands and the results of the first product begin, and their strides."""
    zero, one, is_small = number(b, 0), number(b, 1), b.const(True, BOOL)
    for count in counts:
        is_small = b.bitand(is_small, b.le(count, number(b, MOST_OF_PRODUCT)))
    few = b.select(is_small, of, zero)
    same = tuple(name for name, (_, strides) in zip(REFS, memory, strict=True) if strides[2] is None)
    name = "_".join(("lanes", dtype.name, *same))
    with functions.under(b, few):
        functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (_function(dtype, same),))
    rows, columns, terms = counts
    elements = b.add(b.mul(terms, b.add(rows, columns)), b.mul(rows, columns))
    work = b.mul(few, b.add(b.mul(b.mul(rows, columns), terms), b.mul(elements, number(b, EACH))))
    blocks = shared(b, few, number(b, LANES))
    most = b.mul(b.emit(OPS["threads"], (), {})[0], number(b, MOST_CHUNKS))
    size = b.maximum(b.select(b.ge(work, number(b, WORTH)), shared(b, blocks, most), blocks), one)
    size = b.mul(size, number(b, LANES))
    chunks = shared(b, few, size)
    chunks = b.select(b.gt(chunks, one), b.maximum(chunks, number(b, FEW)), chunks)

    def chunk(b: Builder, c: Value) -> None:
        first = b.mul(c, size)
        here = b.minimum(size, b.sub(few, first))
        apart = [stride for _, strides in memory for stride in strides if stride is not None]
        b.emit(OPS["call"], (*(ref for ref, _ in memory), *apart, *counts, first, here), {"function": name})

    loop(b, chunks, chunk, map="core")
    left: Value = b.select(is_small, zero, of)
    return left


@functools.cache
def _function(dtype: DType, same: tuple[str, ...]) -> Block:
    """The function of some products of a batch, which have the ``same`` operands."""
    refs = {name: Value(RefType(dtype, (FAR,)), name) for name in REFS}
    ways = [(name, way) for name in REFS for way in STRIDES if way != "next" or name not in same]
    strides = {(name, way): Value(scalar(I64), f"{name}_{way}") for name, way in ways}
    n = {name: Value(scalar(I64), name) for name in COUNTS}
    b = KernelBuilder()
    lanes = b.const(LANES, I64)
    blocks = b.raw_shr(b.add(n["count"], b.const(LANES - 1, I64)), b.const(LANES.bit_length() - 1, I64))
    room = b.here("local", dtype=dtype, shape=((MOST_OF_PRODUCT + 1) * MOST_OF_PRODUCT * LANES,))
    block = b.open("z")
    done = b.mul(block, lanes)
    here = b.minimum(lanes, b.sub(n["count"], done))
    lane = b.open("l")
    at = b.here("add", b.add(n["first"], done), lane)
    sides = {"left": ("rows", "terms"), "right": ("terms", "columns"), "out": ("rows", "columns")}
    apart = {name: (strides[name, "row"], strides[name, "column"], strides.get((name, "next"))) for name in REFS}
    matrices = [_Strided(b, refs[name], at, (n[high], n[wide]), apart[name]) for name, (high, wide) in sides.items()]
    multiply(_Lane(b, lambda columns: Own(b, room, columns, lane, LANES), True), *matrices)
    b.close(lane, here, independent=True, way="vector")
    b.close_ordered(block, blocks)
    return Block((*refs.values(), *strides.values(), *n.values()), tuple(b.levels[0]), ())
