"""The kernel of a group with segment sums: elements are visited in the order of the rows that they are summed to.

So a value that is computed from the rows of a table, and the gradient of the table, are one pass: the row that is looked up
stays in L1 while its sums are computed, and the other operand is read once. Full reductions are accumulated by rows, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule, moved_once, work
from pullback.codegen.kernels.groups.rows import GroupKernel
from pullback.codegen.kernels.iteration_space import Space
from pullback.codegen.kernels.ops.cooperative_sort import OrderedLists
from pullback.codegen.kernels.ops.segment_sum import Lists, row_of
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import Extent
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import product

Reductions = dict[Instruction, list[Value]]
"""The values of reductions."""


class _RowSums(GroupKernel):
    """The kernel of a group with segment sums under construction."""

    lists = Lists

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.sums = space.row_sums
        *self.indices, _ = self.sums[0].operands
        self.axes = self.sums[0].result.type.shape[: len(self.indices)]
        self.lookup_shape = self.indices[0].type.shape

    def ended_values(self) -> set[Value]:
        return super().ended_values() | {i.result for i in self.sums}

    def run(self) -> Draft:
        b = self.b
        lists = self.lists(b, product(self.lookup_shape), product(self.axes), self.looked_up)
        self.scratch += lists.scratch
        self.parameters += lists.parameters
        lists.make()
        row = b.open("r")
        places = self.unravel(row, self.axes)
        self.clear(places, len(places))
        first, count = lists.span(row)
        step = b.open("k")
        position, later_position = lists.value(b.add(first, step))
        index, self.later = self.unravel(position, self.lookup_shape), self.unravel(later_position, self.lookup_shape)
        if len(places) == 1:
            self.memo[self.indices[0], index, None] = row
        reductions = self.close_loop(step, count, self.elements(index, places), ordered=True)
        return self.finished_draft(self.close_loop(row, lists.rows, reductions, independent=True))

    def looked_up(self, k: Value) -> Value:
        """Return the row of a look-up."""
        index = self.unravel(k, self.lookup_shape)
        places = [self.load(v, index, None) for v in self.indices]
        self.b.result_name = ""
        return row_of(self.b, places, self.axes)

    def unravel(self, position: Value, extents: Sequence[Extent]) -> tuple[Value, ...]:
        """Return the index into some axes of a flat position."""
        index = []
        for extent in reversed(extents[1:]):
            size = self.b.extent_of(extent)
            quotient = self.b.idiv(position, size)
            index.append(self.b.sub(position, self.b.mul(quotient, size)))
            position = quotient
        return (position, *reversed(index))

    def clear(self, index: tuple[Value, ...], axis: int) -> None:
        """Set a row of each sum to zero."""
        extents = self.sums[0].result.type.shape
        if axis < len(extents):
            position = self.b.open("ijklmnop"[min(axis, 7)])
            self.clear((*index, position), axis + 1)
            self.b.close(position, self.b.extent_of(extents[axis]))
            return
        for i in self.sums:
            self.write(self.b.const(0, i.result.type.dtype), self.outputs[i.result], index)

    def elements(self, index: tuple[Value, ...], row: tuple[Value, ...]) -> Reductions:
        """Emit all elements of one look-up: add to its row; return the values to be reduced."""
        axis = len(index)
        if axis < self.rank:
            position = self.b.open("ijklmnop"[min(axis, 7)])
            self.later = (*self.later, position)
            reductions = self.elements((*index, position), (*row, position))
            return self.close_loop(position, self.b.extent_of(self.space.extents[axis]), reductions)
        for value, ref in self.refs.items():
            if value.type.shape == self.space.extents:
                self.b.here("prefetch", ref, *self.later)
        reductions = {i: [self.element(i.operands[0], index)] for i in self.reduces}
        added = [self.element(i.operands[-1], index) for i in self.sums]
        full_size = [(v, out) for v, out in self.copies if v.type.shape == self.space.extents]
        stored = [(self.element(v, index), out) for v, out in full_size if v not in self.ended_values()]
        for element, out in stored:
            self.write(element, out, index)
        for i, element in zip(self.sums, added, strict=True):
            out = self.outputs[i.result]
            self.write(self.b.add(self.read(out, row), element), out, row)
        return reductions

    def close_loop(
        self, index: Value, count: Value, reductions: Reductions, ordered: bool = False, independent: bool = False
    ) -> Reductions:
        """Close a loop that combines reductions."""
        initial = [v for i in reductions for v in self.identity(i)]
        yields = [v for values in reductions.values() for v in values]
        combine = [self.combiner(i) for i in reductions]
        values = list(self.b.close(index, count, initial, yields, combine or None, ordered=ordered, independent=independent))
        return {i: [values.pop(0) for _ in self.identity(i)] for i in reductions}


class _OrderedSums(_RowSums):
    """The kernel for a target on which many threads sort together."""

    lists = OrderedLists


def _cost(space: Space) -> Cost:
    moved = moved_once(space)
    return Cost(bytes=moved, cached=2 * moved, flops=work(space.region.instructions))


ROW_SUMS = Schedule(
    name="row_sums",
    fits=lambda space, layouts: None if space.row_sums else "nothing is summed to rows",
    cost=_cost,
    draft=lambda *arguments: _RowSums(*arguments).run(),
    targets=frozenset({"cpu"}),
)
ORDERED_SUMS = Schedule(
    name="ordered_sums",
    fits=ROW_SUMS.fits,
    cost=_cost,
    draft=lambda *arguments: _OrderedSums(*arguments).run(),
    targets=frozenset({"cuda"}),
)
