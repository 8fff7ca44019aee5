"""Batches of small plain matrix products, interleaved: each vector lane computes one product
(``ir.ops.kernel.small_matrices``).

Operands are copied into scratch memory in which the elements of different products are adjacent, so strides matter for reading
only: one shared function for each dtype serves any order of rows, columns and batch. Operands common to all products have a
variant that reads them once for all lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import FEW, MOST_CHUNKS, ceil_div_by, constant, loop
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.kernels.builder import KernelBuilder
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED
from pullback.ir.ops.kernel.small_matrices import MAX_PRODUCT_EXTENT, Lane, LaneScratch, Matrix, multiply

LANES = 16
"""Products of a block: the lanes of a vector of the narrowest dtype."""
REFS = ("left", "right", "out")
"""Names of the reference, stride and count parameters."""
STRIDES = ("row", "column", "next")
COUNTS = ("rows", "columns", "terms", "first", "count")
WORTH, EACH = 1 << 17, 4
"""Multiplications from which another thread pays for itself, and the cost of reading or writing an element, in
multiplications."""
Strides = tuple[Value, Value, Value | None]
"""Row, column and batch strides in elements; the batch stride is None if the operand is common to all products."""


@dataclass(frozen=True, eq=False)
class _Strided(Matrix):
    """A matrix of ``counts`` rows and columns in strided memory."""

    counts: tuple[Value, Value]
    strides: Strides

    def offset(self, index: Value | tuple[Value, ...]) -> Value:
        assert isinstance(index, tuple)
        b, (row, column, next_) = self.b, self.strides
        offset: Value = b.here("add", b.here("mul", index[0], row), b.here("mul", index[1], column))
        return offset if next_ is None else b.here("add", b.mul(self.at, next_), offset)

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        element: Value = self.b.here("load", self.ref, self.offset(index))
        return element

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        self.b.here("store", value, self.ref, self.offset(index))


class _Lane(Lane):
    """The operations on matrices whose extents are run-time values."""

    def extent(self, m: Matrix, axis: int) -> Value:
        assert isinstance(m, _Strided)
        return m.counts[axis]


def expand_lanes(
    b: Builder, dtype: DType, functions: Functions, counts: Sequence[Value], batch: Value,
    memory: Sequence[tuple[Value, Strides]],
) -> Value:  # fmt: skip
    """Expand the products if they are small; return how many are left for other forms. ``memory``: the reference and the
    strides of each operand and the result, from the first product on."""
    zero, one, is_small = constant(b, 0), constant(b, 1), b.const(True, BOOL)
    for count in counts:
        is_small = b.bitand(is_small, b.le(count, constant(b, MAX_PRODUCT_EXTENT)))
    few = b.select(is_small, batch, zero)
    common = tuple(name for name, (_, strides) in zip(REFS, memory, strict=True) if strides[2] is None)
    name = "_".join(("lanes", dtype.name, *common))
    with functions.under(b, few):
        functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (_function(dtype, common),))
    rows, columns, terms = counts
    elements = b.add(b.mul(terms, b.add(rows, columns)), b.mul(rows, columns))
    work = b.mul(few, b.add(b.mul(b.mul(rows, columns), terms), b.mul(elements, constant(b, EACH))))
    blocks = ceil_div_by(b, few, constant(b, LANES))
    most = b.mul(b.emit(OPS["threads"], (), {})[0], constant(b, MOST_CHUNKS))
    size = b.maximum(b.select(b.ge(work, constant(b, WORTH)), ceil_div_by(b, blocks, most), blocks), one)
    size = b.mul(size, constant(b, LANES))
    chunks = ceil_div_by(b, few, size)
    chunks = b.select(b.gt(chunks, one), b.maximum(chunks, constant(b, FEW)), chunks)

    def chunk(b: Builder, c: Value) -> None:
        first = b.mul(c, size)
        here = b.minimum(size, b.sub(few, first))
        stride_arguments = [stride for _, strides in memory for stride in strides if stride is not None]
        b.emit(OPS["call"], (*(ref for ref, _ in memory), *stride_arguments, *counts, first, here), {"function": name})

    loop(b, chunks, chunk, map="core")
    left: Value = b.select(is_small, zero, batch)
    return left


@functools.cache
def _function(dtype: DType, common: tuple[str, ...]) -> Block:
    """Build the function of some products of a batch; operands in ``common`` are the same for all."""
    refs = {name: Value(RefType(dtype, (UNBOUNDED,)), name) for name in REFS}
    stride_names = [(name, axis) for name in REFS for axis in STRIDES if axis != "next" or name not in common]
    strides = {(name, axis): Value(scalar(I64), f"{name}_{axis}") for name, axis in stride_names}
    n = {name: Value(scalar(I64), name) for name in COUNTS}
    b = KernelBuilder()
    lanes = b.const(LANES, I64)
    blocks = b.raw_shr(b.add(n["count"], b.const(LANES - 1, I64)), b.const(LANES.bit_length() - 1, I64))
    scratch = b.here("local", dtype=dtype, shape=((MAX_PRODUCT_EXTENT + 1) * MAX_PRODUCT_EXTENT * LANES,))
    block = b.open("z")
    done = b.mul(block, lanes)
    here = b.minimum(lanes, b.sub(n["count"], done))
    lane = b.open("l")
    at = b.here("add", b.add(n["first"], done), lane)
    sides = {"left": ("rows", "terms"), "right": ("terms", "columns"), "out": ("rows", "columns")}
    strides_of = {name: (strides[name, "row"], strides[name, "column"], strides.get((name, "next"))) for name in REFS}
    matrices = [
        _Strided(b, refs[name], at, (n[row_name], n[column_name]), strides_of[name])
        for name, (row_name, column_name) in sides.items()
    ]
    multiply(_Lane(b, lambda columns: LaneScratch(b, scratch, columns, lane, LANES), True), *matrices)
    b.close(lane, here, independent=True, way="vector")
    b.close_ordered(block, blocks)
    return Block((*refs.values(), *strides.values(), *n.values()), tuple(b.levels[0]), ())
