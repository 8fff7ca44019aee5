"""The kernel of a group with a contraction: a matrix product that is fused with the computation of its operands and the uses
of its result.

It is the op ``product`` (``ir/ops/kernel/matmul.py``) with its three regions, in loops over the batch axes. The first two
regions evaluate the operands where they are read. The third stores results, and yields the values that are reduced down the
columns: into a row of a *part* for some rows; the rows of the part are combined after the product. The target's ``schedule``
determines how the op runs.

Cost: operands and results each move once, and each term of a sum is a multiplication and an addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pullback.codegen.fuse.matmul_fusion import sums_left_operand
from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule, elements, moved_once, work
from pullback.codegen.kernels.elements import Elements
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, DType, Extent, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import split
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.kernel.matmul import ROWS
from pullback.ir.shapes.extents import nominal_bytes, quotient


class ProductKernel(Elements):
    """The kernel of a group with a contraction under construction."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        assert space.product is not None
        self.product = space.product
        self.along = [i for i in self.region.instructions if sums_left_operand(i, self.product)]
        self.reduces = [i for i in self.reduces if i not in self.along]
        (self.left, self.right), self.out = split(self.product.params["spec"])
        x, y = self.product.operands
        self.extents = dict(zip(self.left + self.right, x.type.shape + y.type.shape, strict=True))
        self.sums = [i for i in self.reduces if i.result in self.outputs or not i.result.type.shape]
        self.scratch: list[RefType] = []
        self.parts = {i: self.part(i) for i in self.sums}

    def part(self, i: Instruction) -> Value:
        """Return the scratch buffer in which a reduction down the columns begins: a row for each ``ROWS`` rows of the product."""
        *batch, rows, columns = self.space.extents
        t = i.result.type.dtype
        shape = (*batch, quotient(rows, ROWS), columns)
        self.scratch.append(RefType(t, shape))
        ref = Value(RefType(t, self.b.shape(shape)), "part")
        self.parameters.append(ref)
        return ref

    def run(self) -> Draft:
        b = self.b
        b.location = self.product.loc
        for i, t in zip(self.sums, self.scratch, strict=True):
            (first,) = self.identity(i)
            self.nest(t.shape, partial(self.fill, self.parts[i], first))
        *batch, _, _ = self.space.extents
        self.nest(batch, self.multiply)
        totals = {i: [self.total(i)] for i in self.sums if not i.result.type.shape}
        for i in self.sums:
            if i.result.type.shape:
                self.nest(i.result.type.shape, partial(self.put_total, i))
        self.finish(totals)
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes(), scratch=tuple(self.scratch))

    def fill(self, part: Value, value: Value, index: tuple[Value, ...]) -> None:
        self.b.here("store", value, part, *index)

    def put_total(self, i: Instruction, index: tuple[Value, ...]) -> None:
        self.write(self.total(i, index), self.outputs[i.result], index)

    def nest(self, shape: Sequence[Extent], body: Callable[[tuple[Value, ...]], object]) -> None:
        """Emit loops over a shape of the program's extents."""
        counts = [self.b.extent_of(e) for e in shape]
        index = tuple(self.b.open() for _ in shape)
        body(index)
        for position, count in zip(reversed(index), reversed(counts), strict=True):
            self.b.close(position, count)

    def multiply(self, batch: tuple[Value, ...]) -> None:
        """Emit one matrix product of a batch."""
        b = self.b
        around = dict(zip(self.out, batch, strict=False))
        row, column = self.out[-2], self.out[-1]
        (reduced,) = set(self.left) - set(self.out)
        x, y = self.product.operands
        counts = [b.extent_of(self.extents[k]) for k in (row, column, reduced)]
        parts = [self.at(part, batch) for part in self.parts.values()]
        params = {name: value for name, value in self.product.params.items() if name != "spec"}
        if parts:
            params["combine"] = tuple(map(self.combiner, self.sums))
        regions = (
            self.region_of({row: "i", reduced: "p"}, lambda at: [self.element(x, tuple((around | at)[k] for k in self.left))]),
            self.region_of(
                {reduced: "p", column: "j"}, lambda at: [self.element(y, tuple((around | at)[k] for k in self.right))]
            ),
            self.region_of({row: "i", column: "j"}, lambda at, total: self.each((*batch, *at.values()), total), x.type.dtype),
        )
        b.location = self.product.loc
        b.put(len(b.levels) - 1, OPS["product"], [*counts, *parts], params, regions)

    def at(self, part: Value, batch: Sequence[Value]) -> Value:
        for position in batch:
            part = self.b.here("subview", part, position)
        return part

    def region_of(self, names: Mapping[str, str], body: Callable[..., list[Value]], total: DType | None = None) -> Block:
        """Return the region that yields ``body`` at positions of two letters, and of a sum if ``total`` is its dtype."""
        self.b.enter()
        at = {letter: self.b.bound(I64, name) for letter, name in names.items()}
        sums = [] if total is None else [self.b.bound(total, "sum")]
        yielded = body(at, *sums)
        return Block((*at.values(), *sums), tuple(self.b.levels.pop()), tuple(yielded))

    def each(self, index: tuple[Value, ...], total: Value) -> list[Value]:
        """Store the values that depend on an element of the product, whose sum is ``total``; return the values to be reduced.
        Everything is read before anything is written."""
        self.memo[(self.product.result, index, None)] = total
        stored = [(v, out) for v, out in self.copies if v.type.shape == self.space.extents]
        elements = [(self.element(v, index), out) for v, out in stored]
        reduced = [self.element(i.operands[0], index) for i in self.sums]
        for value, out in elements:
            self.write(value, out, index)
        return reduced

    def total(self, i: Instruction, kept: Sequence[Value] = (), way: str = "") -> Value:
        """Return a reduction, at an index of its result, over the contents of its part; ``way``: the mapping of the loops."""
        b, axes, at = self.b, i.params["axes"], list(kept)
        shape = self.scratch[self.sums.index(i)].shape
        counts = {axis: b.extent_of(shape[axis]) for axis in axes}
        opened = {axis: b.open() for axis in axes}
        for axis in axes:
            at.insert(axis, opened[axis])
        value = b.here("load", self.parts[i], *at)
        for axis in reversed(axes):
            (value,) = b.close(opened[axis], counts[axis], self.identity(i), [value], [self.combiner(i)], way=way)
        return value


def _cost(space: Space) -> Cost:
    contraction = space.product
    assert contraction is not None
    (letters, _), out = split(contraction.params["spec"])
    (extent,) = (e for k, e in zip(letters, contraction.operands[0].type.shape, strict=True) if k not in out)
    depth = nominal_bytes(ArrayType(BOOL, (extent,)))
    others = [i for i in space.region.instructions if i is not contraction]
    return Cost(bytes=moved_once(space), cached=moved_once(space), flops=2 * depth * elements(space) + work(others))


def _fits(space: Space) -> str | None:
    if space.product is None:
        return "nothing is a matrix product"
    _, out = split(space.product.params["spec"])
    if any(is_across(i, space.extents) or sums_left_operand(i, space.product) for i in reduces(space)):
        return "something is reduced along the rows"
    return None if out in ("mn", "zmn") else "the batch is not in front"


def reduces(space: Space) -> list[Instruction]:
    """Return the reductions of elements."""
    return [i for i in space.region.instructions if isinstance(i.op, Reduce)]


def is_across(i: Instruction, shape: Shape) -> bool:
    """Return whether a reduction is along the rows of elements of a shape, and along no other axis."""
    return i.operands[0].type.shape == shape and tuple(i.params["axes"]) == (len(shape) - 1,)


PRODUCT = Schedule(
    name="product",
    fits=lambda space, layouts: _fits(space),
    cost=_cost,
    draft=lambda *arguments: ProductKernel(*arguments).run(),
)
