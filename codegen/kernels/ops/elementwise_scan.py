"""The kernel of an elementwise scan, in one of two orders.

*Elements around iterations*: the carried elements stay in registers, and elements run in lanes. The instructions of one vector
depend on each other, so this order is for few elements, and for short iterations, which the target jams.

*Blocks around iterations around elements*: the carried elements of a block stay in L1, and vectors are independent. Rows are
read and stored in parts of several pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import weight
from pullback.codegen.kernels.elements import Elements
from pullback.codegen.kernels.iteration_space import Space, collapse
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.control.loops import ElementwiseScan
from pullback.ir.ops.control.regions import group
from pullback.ir.ops.elementwise.elementwise import Elementwise

MOST_WORK = 5
"""Greatest weight of an iteration (``cost.weight``) whose elements stay in registers however many they are."""
FEW = 16
"""Most elements of a longer iteration that stay in registers."""
MOST_REPEATED = 100
"""Greatest weight of an iteration that is compiled in both orders."""
BLOCK, ROW_BLOCK = 256, 2048
"""Elements of a block: a few arrays of it take a part of L1. The second one is where iterations read or store rows: parts of
rows of several pages are prefetched as whole rows are."""
TRIP_COUNT = 64
"""The expected number of iterations where it is a value: it decides from how many elements on several threads share them."""


def elementwise_scan_kernel(i: Instruction, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    """Return the kernel of an elementwise scan. ``layouts`` of its operands; ``over``: as in ``group_draft``."""
    assert isinstance(i.op, ElementwiseScan)
    (region,) = i.regions
    length = tuple(i.params["length"])
    shape = next(v.type.shape for v in i.results if v.type.shape)
    index, *others = region.parameters
    counts = () if length else (Value(index.type, "count"),)
    body = Block((*counts, *others, index), region.instructions, region.results)
    elements = Instruction(group, body.parameters, body.results, {"space": shape, "rows": 0}, (body,), i.loc)
    layouts = (*layouts, "value")
    return _ElementwiseScan(collapse(elements, layouts), layouts, over, i).run()


class _ElementwiseScan(Elements):
    """The kernel under construction. The last parameter of the region is the index of the iteration, which is none of the
    kernel's."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int], i: Instruction) -> None:
        carried, region = i.params["carried"], space.region
        super().__init__(replace(space, region=replace(region, results=region.results[:carried])), layouts, over)
        self.scan = i
        self.row_results = [(v, self.row_memory(v, k)) for k, v in enumerate(region.results[carried:])]
        self.parameters += [ref for _, ref in self.row_results]
        takes_rows = any(isinstance(k.op, Gather) and k.result.type.shape for k in region.instructions)
        self.block = ROW_BLOCK if takes_rows or self.row_results else BLOCK
        self.index = self.region.parameters[-1]
        self.parameters.remove(self.refs[self.index])
        first = 0 if i.params["length"] else 1
        self.states = self.region.parameters[first : first + i.params["carried"]]

    def row_memory(self, value: Value, k: int) -> Value:
        """Return the reference to the result whose rows are a value of the iterations."""
        shape = (self.scan.params["length"][0], *value.type.shape)
        return Value(RefType(value.type.dtype, self.b.shape(shape)), value.name or f"rows{k}")

    def position(self, step: Value) -> Value:
        """Return the position of a step: the index of the iteration."""
        if not self.scan.params["reverse"]:
            return step
        return self.b.sub(self.b.sub(self.trip_count(), self.b.const(1, I64)), step)

    def store_rows(self, step: Value, index: tuple[Value, ...]) -> None:
        """Store the elements of result rows."""
        for value, ref in [(self.element(v, index), ref) for v, ref in self.row_results]:
            self.b.here("store", value, ref, self.position(step), *index)

    def run(self) -> Draft:
        b = self.b
        b.location = self.scan.loc
        counts = [b.extent_of(e) for e in self.space.extents]
        prefix = tuple(b.open("ijklmnop"[min(k, 7)]) for k in range(self.rank - 1))
        work = sum(weight(i) for i in self.region.instructions if isinstance(i.op, Elementwise) and i.result.type.shape)
        few = counts[-1]
        if work > MOST_WORK or self.block == ROW_BLOCK:
            is_few = b.le(few, b.const(FEW if work <= MOST_REPEATED else 0, I64))
            self.in_blocks(prefix, b.select(is_few, b.const(0, I64), few))
            few = b.select(is_few, few, b.const(0, I64))
        if work <= MOST_REPEATED:
            self.memo.clear()
            index = b.open("j")
            self.iterations((*prefix, index))
            b.close(index, few)
        for i, extent in zip(reversed(prefix), reversed(counts[:-1]), strict=True):
            b.close(i, extent)
        if any(not v.type.shape for v in self.states):
            self.memo.clear()
            self.iterations(())
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes())

    def trip_count(self) -> Value:
        """Return the number of iterations."""
        length = tuple(self.scan.params["length"])
        return self.b.extent_of(length[0]) if length else self.element(self.region.parameters[0], ())

    def in_blocks(self, prefix: tuple[Value, ...], total: Value) -> None:
        """Emit the loop over blocks of the last axis, which has ``total`` elements."""
        b, trips = self.b, self.trip_count()
        size = b.const(self.block, I64)
        block = b.open("c")
        first = b.mul(block, size)
        count = b.minimum(size, b.sub(total, first))
        arrays = [k for k, v in enumerate(self.states) if v.type.shape]
        moved = [k for k in arrays if self.copies[k][1].ref is not self.refs[self.states[k]]]
        if moved:
            i = b.open("i")
            at = (*prefix, b.add(first, i))
            for k, value in [(k, b.here("load", self.refs[self.states[k]], *at)) for k in moved]:
                self.write(value, self.copies[k][1], at)
            b.close(i, count, trip_count=self.block)
        scalars = [k for k, v in enumerate(self.states) if not v.type.shape]
        starts = [self.load(self.states[k], (), None) for k in scalars]
        step = b.open("t")
        carried = [b.bound(self.states[k].type.dtype, self.states[k].name or "h") for k in scalars]
        self.memo.update(((self.states[k], (), None), value) for k, value in zip(scalars, carried, strict=True))
        self.memo[self.index, (), None] = self.position(step)
        i = b.open("i")
        at = (*prefix, b.add(first, i))
        self.memo.update(((self.states[k], at, None), self.read(self.copies[k][1], at)) for k in arrays)
        self.store_rows(step, at)
        for k, value in [(k, self.element(self.region.results[k], at)) for k in arrays]:
            self.write(value, self.copies[k][1], at)
        b.close(i, count, trip_count=self.block)
        if scalars:
            after = [self.element(self.region.results[k], ()) for k in scalars]
            b.close(step, trips, starts, after, None, carried, trip_count=TRIP_COUNT)
        else:
            b.close(step, trips, ordered=True, trip_count=TRIP_COUNT)
        blocks = b.raw_shr(b.add(total, b.const(self.block - 1, I64)), b.const(self.block.bit_length() - 1, I64))
        b.close(block, blocks, independent=True)

    def iterations(self, index: tuple[Value, ...]) -> None:
        """Emit the loop over iterations at an index of the elements, and store the carried elements after it. Without an index,
        only scalars are carried, and stored."""
        b = self.b
        count = self.trip_count()
        states = [k for k, v in enumerate(self.states) if index or not v.type.shape]
        at = {k: index if self.states[k].type.shape else () for k in states}
        starts = [self.load(self.states[k], at[k], None) for k in states]
        step = b.open("t")
        carried = [b.bound(self.states[k].type.dtype, self.states[k].name or "h") for k in states]
        self.memo.update(((self.states[k], at[k], None), value) for k, value in zip(states, carried, strict=True))
        self.memo[self.index, (), None] = self.position(step)
        if index:
            self.store_rows(step, index)
        after = [self.element(self.region.results[k], at[k]) for k in states]
        ends = b.close(step, count, starts, after, None, carried, trip_count=TRIP_COUNT)
        for k, value in zip(states, ends, strict=True):
            if bool(self.states[k].type.shape) == bool(index):
                self.write(value, self.copies[k][1], at[k])
