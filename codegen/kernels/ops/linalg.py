"""Kernels of linear algebra: a loop over the batch around what an op does with one element of it.

Of many small matrices each lane of a vector has one (``ir.ops.kernel.small_matrices``), in blocks whose own memory is near; of
others one comes after the other, by calls of a library. The kernel has both, and the extents choose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.analysis.library_loops import apart
from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.kernels.ops.strided_operand import lying_product
from pullback.ir.core.structure import Function, Instruction, walk
from pullback.ir.core.types import I64, ArrayType, RefType, interleaved
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import others, split
from pullback.ir.ops.kernel.small_matrices import MOST, MOST_OF_PRODUCT, Lane, Matrix, Own, product
from pullback.ir.ops.library.family import Linalg
from pullback.ir.ops.library.routines import Library
from pullback.ir.shapes.extents import product as extents_product

LANES = 16
"""So many matrices make a block: a vector of the narrowest numbers there are routines for."""


def memory(b: KernelBuilder, t: Any) -> RefType:
    """The reference that a kernel is given for a type."""
    real = interleaved(ArrayType(t.dtype, t.shape)) if t.dtype.is_complex else t
    return RefType(real.dtype, b.shape(real.shape))


def linalg_kernel(i: Instruction, target: str) -> Draft:
    """The kernel of a ``Linalg`` op. ``target``: "cpu", which has lanes for small matrices, or "cuda", where all elements of a
    batch run side by side: each has memory of its own, and every call of a library loops of its own."""
    op = i.op
    assert isinstance(op, Linalg)
    values = (*i.operands, *i.results)
    first = values[0].type
    assert isinstance(first, ArrayType)
    rank, scratch = first.rank - op.core[0], op.scratch(first, i.params)
    small = op.small if target == "cpu" and not any(v.type.dtype.is_complex for v in values) else None
    found = _over_batch(i, op, rank, scratch, (), small)
    if target == "cpu":
        return found
    shared = _work_arrays(found.kernel)
    own = tuple(k for k in range(len(scratch)) if len(values) + k not in shared) if rank else ()
    found = _over_batch(i, op, rank, scratch, own, None) if own else found
    return replace(found, kernel=apart(found.kernel, min(rank, 1)))


def _over_batch(
    i: Instruction, op: Linalg, rank: int, scratch: Sequence[RefType], own: Sequence[int], small: Callable[..., None] | None
) -> Draft:
    work = _Batch(i, rank, scratch, own)
    return work.run(lambda *refs: op.body(work.b, i.params, *refs), small, MOST)


def _work_arrays(kernel: Function) -> set[int]:
    """The positions of parameters in which nothing but a library works."""
    work: set[Value] = set()
    used: set[Value] = set()
    for i in walk(kernel.body):
        places = i.op.work if isinstance(i.op, Library) else ()
        for position, value in enumerate(i.operands):
            (work if position in places else used).add(value)
    return {k for k, v in enumerate(kernel.parameters) if v in work - used}


def product_kernel(i: Instruction, target: str, layouts: Sequence[str] = ()) -> Draft:
    """The kernel of a canonical contraction, likewise. ``layouts`` of its operands; strided ones are matrices."""
    (left, right), out = split(i.params["spec"])
    params = {"transpose_a": left[-1] == out[-2], "transpose_b": right[-1] != out[-1], **others(i.params)}
    work = _Batch(replace(i, params=params), len(out) - 2, ())
    if "strided" in layouts:
        return lying_product(i, layouts, params)
    small = product if target == "cpu" else None
    return work.run(lambda *refs: work.b.here("gemm", *refs, **params), small, MOST_OF_PRODUCT)


class _Batch:
    """A kernel in the making: the axes of the batch, ``rank`` of them, are one. ``own``: the numbers of scratch buffers of which
    each element has one."""

    def __init__(self, i: Instruction, rank: int, scratch: Sequence[RefType], own: Sequence[int] = ()) -> None:
        self.b = b = KernelBuilder()
        b.place = i.loc
        self.params, self.own = i.params, own
        values = (*i.operands, *i.results)
        self.core = [v.type.shape[rank:] for v in values]
        self.flat = (extents_product(values[0].type.shape[:rank]),) if rank else ()
        self.scratch = tuple(replace(t, shape=(*self.flat, *t.shape)) if k in own else t for k, t in enumerate(scratch))
        types = [ArrayType(v.type.dtype, (*self.flat, *shape)) for v, shape in zip(values, self.core, strict=True)]
        given = [Value(memory(b, t), f"x{k}") for k, t in enumerate((*types, *self.scratch))]
        self.refs, self.shared = given[: len(types)], given[len(types) :]

    def run(self, body: Callable[..., None], small: Callable[..., None] | None, most: int) -> Draft:
        """``body`` on each matrix, or ``small`` on those of at most so many rows and columns side by side."""
        b = self.b
        if not self.flat:
            body(*self.refs, *self.shared)
            return self.draft()
        count: Value = b.extent_of(*self.flat)
        if small is not None:
            is_small, zero = self.is_small(most), b.const(0, I64)
            self.side_by_side(small, b.select(is_small, count, zero))
            count = b.select(is_small, zero, count)
        at = b.open("z")
        given = [*self.refs, *self.shared]
        each = {*range(len(self.refs)), *(len(self.refs) + k for k in self.own)}
        body(*(b.here("subview", ref, at) if k in each else ref for k, ref in enumerate(given)))
        b.close(at, count)
        return self.draft()

    def draft(self) -> Draft:
        return Draft(kernel=self.b.kernel([*self.refs, *self.shared]), sizes=self.b.sizes(), scratch=self.scratch)

    def is_small(self, most: int) -> Value:
        b = self.b
        found = b.const(True, "bool")
        for extent in dict.fromkeys(e for shape in self.core for e in shape):
            found = b.bitand(found, b.le(b.extent_of(extent), b.const(most, I64)))
        return found

    def side_by_side(self, small: Callable[..., None], count: Value) -> None:
        """The work on ``count`` small matrices, in blocks."""
        b = self.b
        lanes, shift = b.const(LANES, I64), b.const(LANES.bit_length() - 1, I64)
        blocks = b.raw_shr(b.add(count, b.const(LANES - 1, I64)), shift)
        block = b.open("z")
        first = b.raw_shl(block, shift)
        here = b.minimum(lanes, b.sub(count, first))
        dtype = self.refs[0].type.dtype
        room = b.here("local", dtype=dtype, shape=(MOST * MOST * LANES,)) if dtype.is_float else None
        lane = b.open("l")
        at = b.here("add", first, lane)

        def own(columns: Value) -> Own:
            assert room is not None
            return Own(b, room, columns, lane, LANES)

        small(Lane(b, own, True), self.params, *(Matrix(b, ref, at) for ref in self.refs))
        b.close(lane, here, independent=True, way="vector")
        b.close(block, blocks, independent=True)
