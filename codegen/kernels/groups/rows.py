"""The kernel of a group: loops over its rows and, pass by pass, over the elements of a row.

Elements are evaluated on demand at an index: a chain of elementwise ops and reindexing becomes scalar code in one loop body.
A value that is dear to compute and needed again in a later pass is kept: in the result it goes to, or in a scratch row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule, elements, elements_of, moved_once, work
from pullback.codegen.kernels.elements import Elements, Out
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import nominal_bytes


def group_kernel(space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    """Return the kernel of a collapsed group. ``layouts`` of its operands: "c", "strided", or "value" for scalars by value.
    ``over``: maps the position of each result that is written over an operand to the position of that operand; the kernel
    has one reference for both."""
    return GroupKernel(space, layouts, over).run()


def read_in_step(region: Block, space: Shape) -> set[Value]:
    """Return the parameters that the kernel of a group reads only at the index of the element that it computes, for results at
    that index and for reductions."""
    reduced, elsewhere = set[Value](), set[Value]()
    if any(isinstance(i.op, ScatterSum) for i in region.instructions):
        return set()
    for i in region.instructions:
        if isinstance(i.op, Reduce) or not reduced.isdisjoint(i.operands):
            reduced.update(i.results)
    for i in reversed(region.instructions):
        if not isinstance(i.op, Elementwise | Check | Reduce | Accumulate):
            if not reduced.isdisjoint(i.operands):
                return set()
            elsewhere.update(i.operands)
        elif not elsewhere.isdisjoint(i.results):
            elsewhere.update(i.operands)
    return {p for p in region.parameters if p.type.shape == space and p not in elsewhere and p not in region.results}


BLOCK, LOW_BLOCK = 64, 32
"""The number of rows of strided matrices that are staged in cache at a time; the second one is for matrices of few blocks, so
that several threads have work."""
LEAST_BLOCKS = 8
"""The number of blocks below which a matrix has blocks of ``LOW`` rows."""


class GroupKernel(Elements):
    """The kernel of a group under construction: loops over rows, and in them passes over the elements of a row."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.kept: dict[Value, Out] = {}
        self.scratch: list[RefType] = []
        if self.rows:
            self.find_kept()
        self.pass_index = 0
        self.ended: dict[Instruction, list[Value]] = {}

    # analysis

    def find_kept(self) -> None:
        """Select the values that later passes load instead of recomputing: the ones that are expensive to compute."""
        for pass_index in range(1, self.last_pass() + 1):
            roots = [i.operands[0] for i in (*self.reduces, *self.checks)] + [v for v, _ in self.copies]
            stack = [v for v in roots if v.type.shape == self.space.extents and self.passes[v] == pass_index]
            seen: set[Value] = set()
            while stack:
                value = stack.pop()
                producer = self.producer.get(value)
                if producer is None or value in seen or value in self.kept:
                    continue
                seen.add(value)
                is_expensive = (
                    isinstance(producer.op, Elementwise) and not producer.op.cheap and value.type.shape == self.space.extents
                )
                if is_expensive and self.passes[value] < pass_index:
                    self.keep(value)
                elif not isinstance(producer.op, Reduce):
                    stack.extend(producer.operands)

    def keep(self, value: Value) -> None:
        """Keep a value for later passes: in its result if it is one, else in a scratch row."""
        if value in self.outputs:
            self.kept[value] = self.outputs[value]
            return
        shape = self.space.extents[self.rows :]
        self.scratch.append(RefType(value.type.dtype, shape))
        self.kept[value] = Out(Value(RefType(value.type.dtype, self.b.shape(shape)), "row"))

    # loops

    def stored_at(self, value: Value, index: tuple[Value, ...]) -> tuple[Out, tuple[Value, ...]] | None:
        if value not in self.kept or self.passes[value] >= self.pass_index:
            return None
        return self.kept[value], index if value in self.outputs else index[self.rows :]

    def run(self) -> Draft:
        for value in self.kept:
            if value not in self.outputs:
                self.parameters.append(self.kept[value].ref)
        self.prepare()
        return self.finished_draft(self.over_rows((), 0))

    def finished_draft(self, results: dict[Instruction, list[Value]]) -> Draft:
        """Emit the code after all loops; return the kernel."""
        self.finish(results)
        failures = tuple((i.params["error"], i.params["message"], str(i.loc)) for i in self.checks)
        kernel = self.b.kernel(self.parameters)
        return Draft(kernel=kernel, sizes=self.b.sizes(), scratch=tuple(self.scratch), failures=failures)

    def suffix(self, i: Instruction) -> int:
        """Return the first of the trailing axes that a reduction (or a check) runs over."""
        axes = range(self.rank) if isinstance(i.op, Check) or i in self.row_reduces else i.params["axes"]
        first = self.rank
        while first and first - 1 in axes:
            first -= 1
        return first

    def accumulates_in_memory(self, i: Instruction) -> bool:
        """Return whether a reduction also runs over axes other than the trailing ones, and so is accumulated in memory."""
        return not isinstance(i.op, Check) and len(i.params["axes"]) > self.rank - self.suffix(i)

    def prepare(self) -> None:
        """Fill every result that is accumulated in memory with its identity."""
        for i in self.reduces:
            if not self.accumulates_in_memory(i) or i.result not in self.outputs:
                continue
            out, (value,) = self.outputs[i.result], self.identity(i)
            loops = []
            for extent in i.result.type.shape:
                loops.append((self.b.open(), self.b.extent_of(extent)))
            self.write(value, out, [index for index, _ in loops])
            for index, count in reversed(loops):
                self.b.close(index, count)

    def over_rows(self, prefix: tuple[Value, ...], axis: int) -> dict[Instruction, list[Value]]:
        """Emit the loops over rows; return the values that their bodies yield for reductions that continue outside."""
        if axis == self.rows:
            return self.row(prefix)
        return self.loop(prefix, axis, self.over_rows)

    def row(self, prefix: tuple[Value, ...]) -> dict[Instruction, list[Value]]:
        """Emit all passes over one row, and its row results."""
        results: dict[Instruction, list[Value]] = {}
        for pass_index in range(self.last_pass() + 1):
            self.pass_index = pass_index
            results.update(self.over_elements(prefix, self.rows))
        self.pass_index += 1
        if self.rows:
            for value, out in self.copies:
                if value.type.shape == self.space.extents[: self.rows] and value.type.shape != self.space.extents:
                    if value in self.refs or not self.is_accumulated(value):
                        self.write(self.element(value, prefix), out, prefix)
        results.update((i, [self.element(i.operands[0], prefix)]) for i in self.row_reduces)
        return results

    def last_pass(self) -> int:
        work = [self.passes[v] for v, _ in self.copies if v.type.shape == self.space.extents]
        work += [self.passes[i.operands[0]] for i in (*self.reduces, *self.checks)]
        return max(work, default=0)

    def work(self) -> list[Instruction]:
        """Return the reductions and checks of elements in the present pass."""
        checks = [i for i in self.checks if i.operands[0].type.shape == self.space.extents and self.rank]
        return [i for i in (*self.reduces, *checks) if self.passes[i.operands[0]] == self.pass_index]

    def over_elements(self, prefix: tuple[Value, ...], axis: int) -> dict[Instruction, list[Value]]:
        """Emit the loops of one pass over the elements of a row; return the values that they yield for reductions."""
        if axis < self.rank:
            if not self.has_work():
                return {}
            return self.loop(prefix, axis, self.over_elements)
        results: dict[Instruction, list[Value]] = {}
        if not self.rank:
            return results
        for i in self.work():
            value = self.element(i.operands[0], prefix)
            values = [value, prefix[i.params["axes"][0]]] if isinstance(i.op, Reduce) and i.op.gives_position else [value]
            if self.suffix(i) == self.rank:
                self.accumulate(i, values, prefix)
            else:
                results[i] = values
        ended = self.ended_values()
        stored = [
            (self.element(value, prefix), out)
            for value, out in self.copies
            if value.type.shape == self.space.extents and self.passes[value] == self.pass_index and value not in ended
        ]
        for element, out in stored:
            self.write(element, out, prefix)
        for value, out in self.kept.items():
            if self.passes[value] == self.pass_index and value not in self.outputs:
                self.write(self.element(value, prefix), out, prefix[self.rows :])
        return results

    def has_work(self) -> bool:
        outputs = any(v.type.shape == self.space.extents and self.passes[v] == self.pass_index for v, _ in self.copies)
        return bool(self.work()) or outputs or any(self.passes[v] == self.pass_index for v in self.kept)

    def loop(self, prefix: tuple[Value, ...], axis: int, inside: Any) -> dict[Instruction, list[Value]]:
        """Emit one loop of the nest. Reductions whose trailing axes begin at or before ``axis`` are combined by it."""
        if not axis and self.staged and self.has_independent_rows():
            return self.in_blocks(inside)
        index = self.b.open("ijklmnop"[axis] if axis < 8 else "i")
        yielded = inside((*prefix, index), axis + 1)
        carried = list(yielded)
        initial = [v for i in carried for v in self.identity(i)]
        yields = [v for i in carried for v in yielded[i]]
        combine = [self.combiner(i) for i in carried]
        count = self.b.extent_of(self.space.extents[axis])
        closed = list(self.b.close(index, count, initial, yields, combine or None))
        results: dict[Instruction, list[Value]] = {}
        for i in carried:
            width = len(self.identity(i))
            values, closed = closed[:width], closed[width:]
            if self.suffix(i) == axis and axis:
                self.end(i, values, prefix)
            else:
                results[i] = values
        return results

    def has_independent_rows(self) -> bool:
        """Return whether the rows of a matrix are independent."""
        return not self.checks and not self.row_reduces and all(tuple(i.params["axes"]) == (1,) for i in self.reduces)

    def in_blocks(self, inside: Any) -> dict[Instruction, list[Value]]:
        """Emit the loop over rows in blocks; the rows of strided matrices are staged in cache."""
        b, height = self.b, self.space.extents[0]
        rows = b.extent_of(height)
        is_low = b.lt(rows, b.const(LEAST_BLOCKS * BLOCK, I64))
        size = b.select(is_low, b.const(LOW_BLOCK, I64), b.const(BLOCK, I64))
        block = b.open("c")
        first = b.mul(block, size)
        count = b.minimum(b.sub(rows, first), size)
        before = self.stage(first, count)
        row = b.open("i")
        inside((b.add(first, row),), 1)
        b.close(row, count, trip_count=BLOCK)
        self.refs = before
        b.close(block, b.idiv(b.sub(b.add(rows, size), b.const(1, I64)), size), independent=True)
        return {}

    def end(self, i: Instruction, values: list[Value], prefix: tuple[Value, ...]) -> None:
        """End a reduction over exactly the loops just closed, or a part of one that is accumulated in memory."""
        if self.accumulates_in_memory(i):
            self.accumulate(i, values, prefix)
            return
        result = values[-1]
        if self.is_row_reduce(i):
            self.memo[(i.result, prefix, None)] = result
        elif i.result in self.outputs:
            self.write(result, self.outputs[i.result], prefix)

    def accumulate(self, i: Instruction, values: list[Value], prefix: tuple[Value, ...]) -> None:
        """Combine a value with an element of a reduction's result in memory."""
        if i.result not in self.outputs:
            return
        out = self.outputs[i.result]
        kept = [v for axis, v in enumerate(prefix) if axis not in i.params["axes"]]
        before = self.read(out, kept)
        self.b.location = i.loc
        after = self.b.emit(OPS[self.combiner(i)], (before, values[0]))[0]
        self.write(after, out, kept)


def _flat_cost(space: Space) -> Cost:
    """Return the cost of one pass: each operand and result moves once. A reduction over axes that are not the last reads and
    writes its sums for each element, and these stay in cache."""
    sums = [i for i in space.region.instructions if isinstance(i.op, Reduce) and _is_scattered(space, i)]
    extra = 2 * elements(space) * sum(i.result.type.dtype.bytes for i in sums)
    footprint = sum(nominal_bytes(i.result.type) for i in sums)
    moved = moved_once(space)
    return Cost(bytes=moved, cached=moved + extra, flops=work(space.region.instructions), footprint=footprint, is_shared=not sums)


def _is_scattered(space: Space, i: Instruction) -> bool:
    """Return whether a reduction of elements is over axes that are not the last ones."""
    axes, rank = i.params["axes"], len(space.extents)
    return i.operands[0].type.shape == space.extents and tuple(axes) != tuple(range(rank - len(axes), rank))


def _is_scalar_function(space: Space, i: Instruction) -> bool:
    """Return whether an instruction is a function of rows, which is computed as a scalar."""
    return isinstance(i.op, Elementwise) and not i.op.cheap and i.result.type.shape == space.extents[: space.rows]


def _rows_cost(space: Space) -> Cost:
    """Return the cost of the passes over a row that its reductions require: its operands move from memory once and from cache
    in each pass, and cheap values are recomputed. Functions of rows are computed as scalars."""
    flat = _flat_cost(space)
    passes = 1 + len({i for i in space.region.instructions if isinstance(i.op, Reduce) and not _is_scattered(space, i)})
    row = sum(
        nominal_bytes(ArrayType(v.type.dtype, v.type.shape[space.rows :]))
        for v in (*space.region.parameters, *space.region.results)
        if v.type.shape == space.extents
    )
    return Cost(
        bytes=flat.bytes,
        cached=passes * flat.cached,
        flops=passes * flat.flops,
        footprint=flat.footprint + row,
        is_shared=flat.is_shared,
        scalar_functions=sum(elements_of(i.result) for i in space.region.instructions if _is_scalar_function(space, i)),
    )


FLAT = Schedule(
    name="flat",
    fits=lambda space, layouts: "elements need reductions of their rows" if space.rows else space.order,
    cost=_flat_cost,
    draft=group_kernel,
)
ROWS = Schedule(
    name="rows",
    fits=lambda space, layouts: space.order if space.rows else "no element needs a reduction of its row",
    cost=_rows_cost,
    draft=group_kernel,
)
