"""The kernel of a group with a batch of matrix products, on the CPU: the product of ``ops/batched_matmul`` fused with the
group's other values.

The axes of operands and results come in any order, as in ``ops/batched_matmul``, and so do the variants: products up to 16 by
16 are computed one per vector lane, others in tiles. The values that operands are computed from are evaluated where they are
packed. Results may be reduced along their rows: the total of ``COLUMNS`` elements goes to a *part*, and from there, or
directly if that is all, to its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pullback.codegen.fuse.matmul_fusion import sums_left_operand
from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Schedule
from pullback.codegen.kernels.elements import Out
from pullback.codegen.kernels.groups.matmul import PRODUCT, ProductKernel, is_across, reduces
from pullback.codegen.kernels.iteration_space import Space
from pullback.codegen.kernels.ops.batched_matmul import are_small, in_lanes
from pullback.codegen.kernels.ops.linalg import LANES
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, Extent, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import others
from pullback.ir.ops.kernel.matmul import COLUMNS
from pullback.ir.ops.kernel.small_matrices import MAX_PRODUCT_EXTENT, Matrix
from pullback.ir.shapes.extents import quotient


@dataclass(frozen=True, eq=False)
class _Operand(Matrix):
    """A matrix of a batch whose elements are computed when read; ``axes`` names its rows and its columns."""

    element: Callable[[Mapping[str, Value]], Value]
    axes: str
    extents: Shape

    @property
    def shape(self) -> tuple[Extent, ...]:
        return self.extents

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        assert isinstance(index, tuple)
        return self.element(dict(zip("z" + self.axes, (self.at, *index), strict=True)))


@dataclass(frozen=True, eq=False)
class _Result(_Operand):
    """The result of a product, whose elements are passed to ``put``."""

    put: Callable[[Mapping[str, Value], Value], None]

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        assert isinstance(index, tuple)
        self.put(dict(zip("z" + self.axes, (self.at, *index), strict=True)), value)


class _Batched(ProductKernel):
    """The kernel of a group with a batch of products under construction."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        b = self.b
        written = {self.region.results[k] for k in over}
        self.ended: dict[Instruction, Out] = {i: self.outputs[i.result] for i in self.sums}
        self.late = [i for i in self.sums if i.result in written]
        columns = b.extent_of(self.extents["n"])
        self.is_all: Value = b.le(columns, b.const(COLUMNS, I64))

    def part(self, i: Instruction) -> Value:
        """Return the scratch buffer of a reduction along rows: one element for each row and each ``COLUMNS`` of its elements."""
        *kept, columns = self.space.extents
        shape = (*kept, quotient(columns, COLUMNS))
        self.scratch.append(RefType(i.result.type.dtype, shape))
        ref = Value(RefType(i.result.type.dtype, self.b.shape(shape)), "part")
        self.parameters.append(ref)
        return ref

    def run(self) -> Draft:
        b = self.b
        b.location = self.product.loc
        count, zero = b.extent_of(self.extents["z"]), b.const(0, I64)
        if self.may_be_small():
            is_small = are_small(b, [self.extents[k] for k in "mnk"])
            in_lanes(b, b.select(is_small, count, zero), self.product.result.type.dtype, self.matrices)
            count = b.select(is_small, zero, count)
        z = b.open("z")
        self.product_at(z)
        b.close(z, count, independent=True)
        for i in self.sums:
            self.collect(i)
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes(), scratch=tuple(self.scratch))

    def may_be_small(self) -> bool:
        """Return whether products may be small enough to be computed one per lane."""
        return not self.along and not any(isinstance(e, int) and e > MAX_PRODUCT_EXTENT for e in self.extents.values())

    # small products, one per lane

    def matrices(self, z: Value, lane: Value) -> list[Any]:
        """Return the matrices of one small product of a lane."""
        b = self.b
        x, y = self.product.operands
        matrices: list[Any] = []
        for value, word, axes in ((x, self.left, "mk"), (y, self.right, "kn")):
            extents = tuple(b.size(self.extents[k]) for k in axes)
            matrices.append(_Operand(b, value, z, partial(self.read_at, value, word), axes, extents))
        rooms = ({"dtype": i.result.type.dtype, "shape": (LANES,)} for i in self.sums)
        sums = [b.put(len(b.levels) - 2, OPS["local"], (), params)[0] for params in rooms]

        def put(at: Mapping[str, Value], total: Value) -> None:
            """Emit the store of one element; the running reduction along its row is stored each time, and complete at the end."""
            if not self.sums:
                self.each(tuple(at[k] for k in self.out), total)
                return
            first = b.eq(at["n"], b.const(0, I64))
            last = b.eq(b.add(at["n"], b.const(1, I64)), b.extent_of(self.extents["n"]))
            reduced = self.each(tuple(at[k] for k in self.out), total)
            for i, value, room in zip(self.sums, reduced, sums, strict=True):
                joined = b.here(self.combiner(i), b.here("load", room, lane), value)
                now = b.select(first, value, joined)
                b.here("store", now, room, lane)
                self.put_row(i, at, b.const(0, I64), now, last)

        extents = tuple(b.size(self.extents[k]) for k in "mn")
        matrices.append(
            _Result(b, self.product.result, z, partial(self.read_at, self.product.result, self.out), "mn", extents, put)
        )
        return matrices

    def read_at(self, value: Value, word: str, at: Mapping[str, Value]) -> Value:
        """Return an element of a value whose axes are the letters of a word."""
        return self.element(value, tuple(at[k] for k in word))

    # one product after the other

    def product_at(self, z: Value) -> None:
        b, around = self.b, {"z": z}
        x, y = self.product.operands
        counts = [b.extent_of(self.extents[k]) for k in "mnk"]
        params = others(self.product.params)
        regions = [
            self.region_of({"m": "i", "k": "p"}, lambda at: [self.read_at(x, self.left, around | at)]),
            self.region_of({"k": "p", "n": "j"}, lambda at: [self.read_at(y, self.right, around | at)]),
            self.region_of(
                {"m": "i", "n": "j"}, lambda at, total: self.each(tuple((around | at)[k] for k in self.out), total), x.type.dtype
            ),
        ]
        if self.sums:
            params["row_combine"] = tuple(map(self.combiner, self.sums))
            regions.append(self.rows_region(z))
        if self.along:
            params["left_row_sums"] = True
            regions.append(self.along_region(z))
        b.location = self.product.loc
        b.put(len(b.levels) - 1, OPS["product"], counts, params, regions)

    def rows_region(self, z: Value) -> Block:
        b = self.b
        b.enter()
        i, q = b.bound(I64, "i"), b.bound(I64, "q")
        totals = [b.bound(reduction.result.type.dtype, "total") for reduction in self.sums]
        index = [{"z": z, "m": i}[k] for k in self.out[:-1]]
        places = list(zip(self.sums, totals, strict=True))

        def at_once() -> None:
            for reduction, total in places:
                if reduction not in self.late:
                    b.here("store", total, self.ended[reduction].ref, *index)

        def in_parts(always: bool) -> None:
            for reduction, total in places:
                if (reduction in self.late) is always:
                    b.here("store", total, self.parts[reduction], *index, q)

        b.when(self.is_all, at_once)
        b.when(b.bitnot(self.is_all), lambda: in_parts(False))
        in_parts(True)
        return Block((i, q, *totals), tuple(b.levels.pop()), ())

    def along_region(self, z: Value) -> Block:
        b = self.b
        b.enter()
        i, total = b.bound(I64, "i"), b.bound(self.product.result.type.dtype, "total")
        index = [{"z": z, "m": i}[k] for k in self.left if k != "k"]
        for reduction in self.along:
            b.here("store", total, self.outputs[reduction.result].ref, *index)
        return Block((i, total), tuple(b.levels.pop()), ())

    def put_row(self, i: Instruction, at: Mapping[str, Value], q: Value, total: Value, condition: Value) -> None:
        """Emit the store of a row's total: to its result if that is all, else to its part."""
        b, out = self.b, self.ended[i]
        index = [at[k] for k in self.out[:-1]]
        is_all = b.const(False, BOOL) if i in self.late else self.is_all
        b.here("store_if", total, out.ref, b.bitand(condition, is_all), *index)
        b.here("store_if", total, self.parts[i], b.bitand(condition, b.bitnot(is_all)), *index, q)

    def collect(self, i: Instruction) -> None:
        """Emit the reductions of rows that have several entries in a part, or whose result's memory was still being read.
        These are few, so the code is kept small."""
        b = self.b
        first, *rest = i.result.type.shape
        count = b.extent_of(first)
        if i not in self.late:
            count = b.select(self.is_all, b.const(0, I64), count)
        index = [b.open() for _ in (first, *rest)]
        self.write(self.total(i, index, "serial"), self.ended[i], index)
        for position, extent in zip(reversed(index[1:]), reversed(rest), strict=True):
            b.close(position, b.extent_of(extent), way="serial")
        b.close(index[0], count)


def _fits(space: Space, layouts: Sequence[str]) -> str | None:
    if space.product is None or "z" not in space.product.params["spec"]:
        return "nothing is a batch of matrix products"
    fits = all(is_across(i, space.extents) or sums_left_operand(i, space.product) for i in reduces(space))
    return None if fits else "something is reduced down the columns"


BATCH = Schedule(
    name="product_batch",
    fits=_fits,
    cost=PRODUCT.cost,
    draft=lambda *arguments: _Batched(*arguments).run(),
    targets=frozenset({"cpu"}),
)
