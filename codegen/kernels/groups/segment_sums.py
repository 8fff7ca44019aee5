"""The kernel of a group with sums of what goes to the same rows: elements are visited in the order of these rows.

So a value that is computed from the rows of a table, and the gradient of the table, are one pass: what is looked up in a row lies
in the first cache while the sums of that row are made, and the other operand is read once. Full reductions add up by rows, too.
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

Found = dict[Instruction, list[Value]]


class _RowSums(GroupKernel):
    lists = Lists

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.sums = space.row_sums
        *self.indices, _ = self.sums[0].operands
        self.axes = self.sums[0].result.type.shape[: len(self.indices)]
        self.given = self.indices[0].type.shape

    def ended_values(self) -> set[Value]:
        return super().ended_values() | {i.result for i in self.sums}

    def run(self) -> Draft:
        b = self.b
        lists = self.lists(b, product(self.given), product(self.axes), self.looked_up)
        self.scratch += lists.scratch
        self.parameters += lists.parameters
        lists.make()
        row = b.open("r")
        places = self.apart(row, self.axes)
        self.clear(places, len(places))
        first, count = lists.of(row)
        step = b.open("k")
        here, later = lists.value(b.add(first, step))
        index, self.later = self.apart(here, self.given), self.apart(later, self.given)
        if len(places) == 1:
            self.memo[self.indices[0], index, None] = row
        found = self.leave(step, count, self.elements(index, places), ordered=True)
        return self.drafted(self.leave(row, lists.rows, found, independent=True))

    def looked_up(self, k: Value) -> Value:
        """The row that a look-up leads to."""
        index = self.apart(k, self.given)
        places = [self.load(v, index, None) for v in self.indices]
        self.b.word = ""
        return row_of(self.b, places, self.axes)

    def apart(self, position: Value, extents: Sequence[Extent]) -> tuple[Value, ...]:
        """The index of a position in all of some axes."""
        found = []
        for extent in reversed(extents[1:]):
            size = self.b.extent_of(extent)
            quotient = self.b.idiv(position, size)
            found.append(self.b.sub(position, self.b.mul(quotient, size)))
            position = quotient
        return (position, *reversed(found))

    def clear(self, index: tuple[Value, ...], axis: int) -> None:
        """A row of each sum becomes zero."""
        extents = self.sums[0].result.type.shape
        if axis < len(extents):
            place = self.b.open("ijklmnop"[min(axis, 7)])
            self.clear((*index, place), axis + 1)
            self.b.close(place, self.b.extent_of(extents[axis]))
            return
        for i in self.sums:
            self.write(self.b.const(0, i.result.type.dtype), self.outputs[i.result], index)

    def elements(self, index: tuple[Value, ...], row: tuple[Value, ...]) -> Found:
        """All elements of one look-up: what they add to its row, and what is reduced of them."""
        axis = len(index)
        if axis < self.rank:
            place = self.b.open("ijklmnop"[min(axis, 7)])
            self.later = (*self.later, place)
            found = self.elements((*index, place), (*row, place))
            return self.leave(place, self.b.extent_of(self.space.extents[axis]), found)
        for value, ref in self.refs.items():
            if value.type.shape == self.space.extents:
                self.b.here("prefetch", ref, *self.later)
        found = {i: [self.element(i.operands[0], index)] for i in self.reduces}
        added = [self.element(i.operands[-1], index) for i in self.sums]
        whole = [(v, out) for v, out in self.copies if v.type.shape == self.space.extents]
        stored = [(self.element(v, index), out) for v, out in whole if v not in self.ended_values()]
        for element, out in stored:
            self.write(element, out, index)
        for i, element in zip(self.sums, added, strict=True):
            out = self.outputs[i.result]
            self.write(self.b.add(self.read(out, row), element), out, row)
        return found

    def leave(self, index: Value, count: Value, found: Found, ordered: bool = False, independent: bool = False) -> Found:
        """Close a loop that combines what reductions found in it."""
        initial = [v for i in found for v in self.identity(i)]
        yields = [v for values in found.values() for v in values]
        combine = [self.combiner(i) for i in found]
        values = list(self.b.close(index, count, initial, yields, combine or None, ordered=ordered, independent=independent))
        return {i: [values.pop(0) for _ in self.identity(i)] for i in found}


class _OrderedSums(_RowSums):
    """On a target on which many threads sort together."""

    lists = OrderedLists


def _cost(space: Space) -> Cost:
    moved = moved_once(space)
    return Cost(bytes=moved, near=2 * moved, flops=work(space.region.instructions))


ROW_SUMS = Schedule(
    name="row_sums",
    fits=lambda space, layouts: None if space.row_sums else "nothing is summed to rows",
    cost=_cost,
    draft=lambda *given: _RowSums(*given).run(),
    targets=frozenset({"cpu"}),
)
ORDERED_SUMS = Schedule(
    name="ordered_sums",
    fits=ROW_SUMS.fits,
    cost=_cost,
    draft=lambda *given: _OrderedSums(*given).run(),
    targets=frozenset({"cuda"}),
)
