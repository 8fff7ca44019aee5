"""Kernels of linear algebra: a loop over the batch around an op on one element of the batch.

Of many small matrices each vector lane has one (``ir.ops.kernel.small_matrices``), in blocks whose scratch stays in cache;
other matrices are processed one after the other, by calls of a library. The kernel has both variants, and the extents select
one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.analysis.library_loops import split_at_calls
from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.kernels.ops.strided_operand import strided_product
from pullback.ir.core.structure import Function, Instruction, walk
from pullback.ir.core.types import I64, ArrayType, RefType, interleaved
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import others, split
from pullback.ir.ops.kernel.small_matrices import MAX_EXTENT, MAX_PRODUCT_EXTENT, Lane, LaneScratch, Matrix, product
from pullback.ir.ops.library.family import Linalg
from pullback.ir.ops.library.routines import Library
from pullback.ir.shapes.extents import product as extents_product

LANES = 16
"""The number of matrices in a block: the lanes of a vector of the narrowest numbers that routines support."""


def memory(b: KernelBuilder, t: Any) -> RefType:
    """Return the reference type of a kernel's parameter for a type."""
    real = interleaved(ArrayType(t.dtype, t.shape)) if t.dtype.is_complex else t
    return RefType(real.dtype, b.shape(real.shape))


def linalg_kernel(i: Instruction, target: str) -> Draft:
    """Return the kernel of a ``Linalg`` op. ``target``: "cpu", which has lanes for small matrices, or "cuda", where all
    elements of a batch run in parallel: each has its own scratch, and every call of a library its own loops."""
    op = i.op
    assert isinstance(op, Linalg)
    values = (*i.operands, *i.results)
    first = values[0].type
    assert isinstance(first, ArrayType)
    rank, scratch = first.rank - op.core[0], op.scratch(first, i.params)
    small = op.small if target == "cpu" and not any(v.type.dtype.is_complex for v in values) else None
    draft = _over_batch(i, op, rank, scratch, (), small)
    if target == "cpu":
        return draft
    shared = _work_arrays(draft.kernel)
    own = tuple(k for k in range(len(scratch)) if len(values) + k not in shared) if rank else ()
    draft = _over_batch(i, op, rank, scratch, own, None) if own else draft
    return replace(draft, kernel=split_at_calls(draft.kernel, min(rank, 1)))


def _over_batch(
    i: Instruction, op: Linalg, rank: int, scratch: Sequence[RefType], own: Sequence[int], small: Callable[..., None] | None
) -> Draft:
    work = _Batch(i, rank, scratch, own)
    return work.run(lambda *refs: op.body(work.b, i.params, *refs), small, MAX_EXTENT)


def _work_arrays(kernel: Function) -> set[int]:
    """Return the positions of the parameters that only a library uses, as work arrays."""
    work: set[Value] = set()
    used: set[Value] = set()
    for i in walk(kernel.body):
        places = i.op.work if isinstance(i.op, Library) else ()
        for position, value in enumerate(i.operands):
            (work if position in places else used).add(value)
    return {k for k, v in enumerate(kernel.parameters) if v in work - used}


def product_kernel(i: Instruction, target: str, layouts: Sequence[str] = ()) -> Draft:
    """Return the kernel of a contraction in canonical form, as ``linalg_kernel`` does. ``layouts`` of its operands; strided
    ones are matrices."""
    (left, right), out = split(i.params["spec"])
    params = {"transpose_a": left[-1] == out[-2], "transpose_b": right[-1] != out[-1], **others(i.params)}
    work = _Batch(replace(i, params=params), len(out) - 2, ())
    if "strided" in layouts:
        return strided_product(i, layouts, params)
    small = product if target == "cpu" else None
    return work.run(lambda *refs: work.b.here("gemm", *refs, **params), small, MAX_PRODUCT_EXTENT)


class _Batch:
    """A kernel under construction: the ``rank`` axes of the batch are joined into one. ``own``: the indices of the scratch
    buffers that are replicated for each element."""

    def __init__(self, i: Instruction, rank: int, scratch: Sequence[RefType], own: Sequence[int] = ()) -> None:
        self.b = b = KernelBuilder()
        b.location = i.loc
        self.params, self.own = i.params, own
        values = (*i.operands, *i.results)
        self.core = [v.type.shape[rank:] for v in values]
        self.flat = (extents_product(values[0].type.shape[:rank]),) if rank else ()
        self.scratch = tuple(replace(t, shape=(*self.flat, *t.shape)) if k in own else t for k, t in enumerate(scratch))
        types = [ArrayType(v.type.dtype, (*self.flat, *shape)) for v, shape in zip(values, self.core, strict=True)]
        references = [Value(memory(b, t), f"x{k}") for k, t in enumerate((*types, *self.scratch))]
        self.refs, self.shared = references[: len(types)], references[len(types) :]

    def run(self, body: Callable[..., None], small: Callable[..., None] | None, most: int) -> Draft:
        """Apply ``body`` to each matrix, or ``small``, in lanes, to matrices of at most ``most`` rows and columns."""
        b = self.b
        if not self.flat:
            body(*self.refs, *self.shared)
            return self.draft()
        count: Value = b.extent_of(*self.flat)
        if small is not None:
            is_small, zero = self.is_small(most), b.const(0, I64)
            self.in_lanes(small, b.select(is_small, count, zero))
            count = b.select(is_small, zero, count)
        at = b.open("z")
        references = [*self.refs, *self.shared]
        each = {*range(len(self.refs)), *(len(self.refs) + k for k in self.own)}
        body(*(b.here("subview", ref, at) if k in each else ref for k, ref in enumerate(references)))
        b.close(at, count)
        return self.draft()

    def draft(self) -> Draft:
        return Draft(kernel=self.b.kernel([*self.refs, *self.shared]), sizes=self.b.sizes(), scratch=self.scratch)

    def is_small(self, most: int) -> Value:
        b = self.b
        is_small = b.const(True, "bool")
        for extent in dict.fromkeys(e for shape in self.core for e in shape):
            is_small = b.bitand(is_small, b.le(b.extent_of(extent), b.const(most, I64)))
        return is_small

    def in_lanes(self, small: Callable[..., None], count: Value) -> None:
        """Emit the loops over ``count`` small matrices, in blocks of one matrix per lane."""
        b = self.b
        lanes, shift = b.const(LANES, I64), b.const(LANES.bit_length() - 1, I64)
        blocks = b.raw_shr(b.add(count, b.const(LANES - 1, I64)), shift)
        block = b.open("z")
        first = b.raw_shl(block, shift)
        block_size = b.minimum(lanes, b.sub(count, first))
        dtype = self.refs[0].type.dtype
        scratch = b.here("local", dtype=dtype, shape=(MAX_EXTENT * MAX_EXTENT * LANES,)) if dtype.is_float else None
        lane = b.open("l")
        at = b.here("add", first, lane)

        def own(columns: Value) -> LaneScratch:
            assert scratch is not None
            return LaneScratch(b, scratch, columns, lane, LANES)

        small(Lane(b, own, True), self.params, *(Matrix(b, ref, at) for ref in self.refs))
        b.close(lane, block_size, independent=True, way="vector")
        b.close(block, blocks, independent=True)
