"""The kernel of a group with scans: elements are visited in the order of the scans, once, and values that depend on the
scanned ones are computed in the same loop.

Along the last axis a scan runs over vectors. One long row is split into chunks: first each chunk is reduced, then the chunks'
totals are scanned in order, and then each chunk is scanned, starting from the total before it. So chunks are independent, and
their number depends on the row's length alone. A processor with caches does that block by block, reducing one block while it
scans the previous one. On a GPU ``cuda_scan`` splits the lines of any axis into chunks. Along another axis the scans of
adjacent columns are interleaved, ``COLUMNS`` columns at a time, whose states stay in L1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule, moved_once, work
from pullback.codegen.kernels.groups.rows import GroupKernel
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, DType, Extent, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.shapes.extents import nominal_bytes

CHUNKS = ((1 << 17, 2), (1 << 20, 4), (1 << 22, 6))
"""Pairs of the least length of a row and the logarithm of its number of chunks."""
MOST_CHUNKS = 1 << CHUNKS[-1][1]
"""The largest number of chunks of a row."""
ALIGNMENT = 64
"""The number of elements of which the size of a chunk is a multiple, so that chunks end at cache lines."""
BLOCK, BLOCK_CHUNKS = 1 << 16, 16
"""The elements of a block and its number of chunks; two blocks stay in cache, and a row shorter than two blocks is one chunk."""
COLUMNS = 512
"""The number of adjacent columns that are scanned together."""

Reductions = dict[Instruction, list[Value]]
"""The values of reductions."""


class _ScanKernel(GroupKernel):
    """The kernel of a group with scans, in which every reduction is over all axes."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.scans = space.scans
        params = self.scans[0].params
        self.axis, self.is_reverse = params["axis"], params["reverse"]
        self.combiners = [i.op.combine for i in self.scans if isinstance(i.op, Accumulate)]

    def run(self) -> Draft:
        if self.axis < self.rank - 1:
            reductions = self.columns()
        elif self.rank > 1:
            reductions = self.nest(
                (), self.space.extents[:-1], lambda prefix: self.line(prefix, self.length(), self.initial())[1]
            )
        else:
            reductions = self.long_row()
        return self.finished_draft(reductions)

    # parts of all forms

    def length(self) -> Value:
        return self.b.extent_of(self.space.extents[self.axis])

    def initial(self) -> list[Value]:
        """Return the initial value of each scan."""
        return [self.b.const(i.op.first(d), d) for i, d in self.scanned() if isinstance(i.op, Accumulate)]

    def scanned(self) -> list[tuple[Instruction, DType]]:
        return [(i, i.result.type.dtype) for i in self.scans]

    def memory(self, name: str, dtype: DType, *shape: Extent) -> Value:
        """Return a new scratch buffer."""
        t = RefType(dtype, self.b.shape(shape))
        self.scratch.append(RefType(dtype, shape))
        self.parameters.append(Value(t, name))
        return self.parameters[-1]

    def terms(self, index: tuple[Value, ...]) -> list[Value]:
        """Return the elements that the scans combine at an index."""
        return [self.element(i.operands[0], index) for i in self.scans]

    def combined(self, before: Sequence[Value], elements: Sequence[Value]) -> list[Value]:
        """Emit the combination of each scan, even with an element that changes nothing: the instruction is what makes a loop a
        scan."""
        pairs = zip(self.combiners, before, elements, strict=True)
        return [self.b.here(name, *pair) for name, *pair in pairs]

    def visit(self, index: tuple[Value, ...], before: Sequence[Value]) -> tuple[list[Value], Reductions]:
        """Emit everything at one element, after the scans of the elements before it; return the scans, and the values to be
        reduced."""
        after = self.combined(before, self.terms(index))
        self.memo.update(((i.result, index, None), value) for i, value in zip(self.scans, after, strict=True))
        return after, self.over_elements(index, self.rank)

    def index_at(self, index: Sequence[Value], step: Value) -> tuple[Value, ...]:
        """Return the index of the element at a step of the scans."""
        last = self.b.sub(self.length(), self.b.const(1, I64))
        position = self.b.sub(last, step) if self.is_reverse else step
        return (*index[: self.axis], position, *index[self.axis :])

    def close_loop(
        self, index: Value, count: Value, reductions: Reductions, starts: Reductions | None = None, **how: Sequence[Value]
    ) -> tuple[list[Value], Reductions]:
        """Close a loop that combines reductions, which start with ``starts``; return the ends of its scans, and the totals of
        the reductions."""
        initial = [v for i in reductions for v in (self.identity(i) if starts is None else starts[i])]
        combine = [self.combiner(i) for i in reductions]
        started, ended, carried = (how.get(k, ()) for k in ("started", "ended", "carried"))
        scan = self.combiners * (len(started) // len(self.combiners))
        yields = [*ended, *(v for i in reductions for v in reductions[i])]
        values = list(self.b.close(index, count, (*started, *initial), yields, combine or None, carried, scan))
        after, values = values[: len(scan)], values[len(scan) :]
        return after, {i: [values.pop(0) for _ in self.identity(i)] for i in reductions}

    def nest(self, prefix: tuple[Value, ...], extents: Sequence[Extent], inside: Callable[..., Reductions]) -> Reductions:
        """Emit loops over leading axes."""
        if not extents:
            return inside(prefix)
        index = self.b.open("ijklmnop"[min(len(prefix), 7)])
        reductions = self.nest((*prefix, index), extents[1:], inside)
        return self.close_loop(index, self.b.extent_of(extents[0]), reductions)[1]

    def line(
        self,
        prefix: tuple[Value, ...],
        count: Value,
        started: Sequence[Value],
        first: Value | None = None,
        starts: Reductions | None = None,
    ) -> tuple[list[Value], Reductions]:
        """Emit a scan of ``count`` steps, from ``first`` on; return its end, and the totals of the reductions."""
        step = self.b.open("t")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        at = step if first is None else self.b.add(first, step)
        ended, reductions = self.visit(self.index_at(prefix, at), before)
        return self.close_loop(step, count, reductions, starts, started=started, ended=ended, carried=before)

    # one long row

    def long_row(self) -> Reductions:
        """Emit the scan of one row in chunks."""
        b = self.b
        shift, one = b.const(0, I64), b.const(1, I64)
        for least, bits in CHUNKS:
            shift = b.select(b.ge(self.length(), b.const(least, I64)), b.const(bits, I64), shift)
        count = b.raw_shl(one, shift)
        size = b.raw_shr(b.add(self.length(), b.sub(count, one)), shift)
        size = b.bitand(b.add(size, b.const(ALIGNMENT - 1, I64)), b.const(-ALIGNMENT, I64))
        totals = self.totals(MOST_CHUNKS)
        chunk = b.open("c")
        self.store_all(self.total(*self.part(chunk, size)), totals, chunk)
        b.close(chunk, b.sub(count, one), way="core")
        self.store_all(self.scan_totals(totals, b.sub(count, one), self.initial(), totals), totals, b.sub(count, one))
        chunk = b.open("c")
        first, steps = self.part(chunk, size)
        reductions = self.line((), steps, self.load_all(totals, chunk), first)[1]
        return self.join(chunk, count, reductions)

    def totals(self, chunks: int) -> list[Value]:
        """Return scratch buffers for one total for each chunk and each scan."""
        return [self.memory("total", d, chunks) for _, d in self.scanned()]

    def store_all(self, values: Sequence[Value], refs: Sequence[Value], index: Value) -> None:
        for value, ref in zip(values, refs, strict=True):
            self.b.here("store", value, ref, index)

    def load_all(self, refs: Sequence[Value], index: Value) -> list[Value]:
        return [self.b.here("load", ref, index) for ref in refs]

    def part(self, chunk: Value, size: Value) -> tuple[Value, Value]:
        """Return the first step of a chunk, and its number of steps."""
        b = self.b
        first = b.minimum(b.mul(chunk, size), self.length())
        return first, b.minimum(size, b.sub(self.length(), first))

    def total(self, first: Value, count: Value) -> list[Value]:
        """Return the combination of ``count`` elements from ``first`` on."""
        step = self.b.open("t")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        after = self.combined(before, self.terms(self.index_in_memory_order(first, count, step)))
        return self.close_loop(step, count, {}, started=self.initial(), ended=after, carried=before)[0]

    def index_in_memory_order(self, first: Value, count: Value, step: Value) -> tuple[Value, ...]:
        """Return the index of an element of a part of a row. Elements are combined in the order of memory, in either direction
        of the scan."""
        b = self.b
        if self.is_reverse:
            first = b.sub(self.length(), b.add(first, count))
        return (b.add(first, step),)

    def scan_totals(
        self, totals: Sequence[Value], count: Value, started: Sequence[Value], starts: Sequence[Value]
    ) -> list[Value]:
        """Scan the chunks' totals, storing the value before each chunk; return the value after all of them."""
        chunk = self.b.open("c")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        after = self.combined(before, self.load_all(totals, chunk))
        self.store_all(before, starts, chunk)
        return list(self.b.close(chunk, count, started, after, None, before))

    def join(self, chunk: Value, count: Value, reductions: Reductions) -> Reductions:
        """Close a loop over chunks; combine the chunks' reductions in order, one by one: there is mostly a single chunk, whose
        results have just been stored, and no vector could be loaded before they are in memory."""
        b = self.b
        partials = {i: [self.memory("part", v.type.dtype, MOST_CHUNKS) for v in values] for i, values in reductions.items()}
        for i, values in reductions.items():
            self.store_all(values, partials[i], chunk)
        b.close(chunk, count, way="core")
        if not partials:
            return {}
        chunk = b.open("c")
        return self.in_order(chunk, count, {i: self.load_all(refs, chunk) for i, refs in partials.items()})

    # interleaved columns

    def columns(self) -> Reductions:
        extents = self.space.extents
        outer = (*extents[: self.axis], *extents[self.axis + 1 : -1])
        states = [self.memory("state", d, *outer, extents[-1]) for _, d in self.scanned()]
        return self.nest((), outer, lambda prefix: self.blocks(prefix, states))

    def blocks(self, prefix: tuple[Value, ...], states: Sequence[Value]) -> Reductions:
        b, block = self.b, self.b.open("b")
        total, most = b.extent_of(self.space.extents[-1]), b.const(COLUMNS, I64)
        first = b.mul(block, most)
        count = b.minimum(most, b.sub(total, first))
        column = b.open("j")
        for value, state in zip(self.initial(), states, strict=True):
            b.here("store", value, state, *prefix, b.add(first, column))
        b.close(column, count)
        step = b.open("t")
        column = b.open("j")
        at = b.add(first, column)
        before = [b.here("load", state, *prefix, at) for state in states]
        after, reductions = self.visit(self.index_at((*prefix, at), step), before)
        for value, state in zip(after, states, strict=True):
            b.here("store", value, state, *prefix, at)
        _, reductions = self.close_loop(column, count, reductions)
        reductions = self.in_order(step, self.length(), reductions)
        blocks = b.raw_shr(b.add(total, b.const(COLUMNS - 1, I64)), b.const(COLUMNS.bit_length() - 1, I64))
        return self.close_loop(block, blocks, reductions)[1]

    def in_order(self, step: Value, count: Value, reductions: Reductions) -> Reductions:
        """Close a loop over steps, each of which needs the previous one."""
        if not reductions:
            self.b.close_ordered(step, count)
            return {}
        initial = [v for i in reductions for v in self.identity(i)]
        yields = [v for values in reductions.values() for v in values]
        combine = [self.combiner(i) for i in reductions]
        values = list(self.b.close(step, count, initial, yields, combine, ordered=True))
        return {i: [values.pop(0) for _ in self.identity(i)] for i in reductions}


class _ScanBlocks(_ScanKernel):
    """The kernel of a long row that is scanned block by block, each in chunks. While a chunk is scanned, the chunk at the same
    position of the next block is reduced, and so is in cache when it is scanned: a row is read from memory once, and reads
    and writes overlap."""

    def long_row(self) -> Reductions:
        b = self.b
        two, one, zero = b.const(2 * BLOCK, I64), b.const(1, I64), b.const(0, I64)
        is_long = b.ge(self.length(), two)
        count = b.select(is_long, b.const(BLOCK_CHUNKS, I64), one)
        size = b.select(is_long, b.const(BLOCK // BLOCK_CHUNKS, I64), two)
        before, next_totals, running_total = self.totals(BLOCK_CHUNKS), self.totals(BLOCK_CHUNKS), self.totals(1)
        self.store_all(self.initial(), running_total, zero)
        chunk = b.open("c")
        self.store_all(self.total(*self.part(chunk, size)), next_totals, chunk)
        b.close(chunk, b.select(is_long, count, zero), way="core")
        step = b.open("b")
        self.store_all(self.scan_totals(next_totals, count, self.load_all(running_total, zero), before), running_total, zero)
        chunk = b.open("c")
        at = b.add(b.mul(step, count), chunk)
        totals, reductions = self.scan_and_total(
            self.part(at, size), self.part(b.add(at, count), size), self.load_all(before, chunk)
        )
        self.store_all(totals, next_totals, chunk)
        reductions = self.join(chunk, count, reductions)
        block, shift = b.select(is_long, b.const(BLOCK, I64), two), b.const(BLOCK.bit_length() - 1, I64)
        trip_count = b.raw_shr(b.add(self.length(), b.sub(block, one)), b.select(is_long, shift, b.add(shift, one)))
        return self.in_order(step, trip_count, reductions)

    def part(self, chunk: Value, size: Value) -> tuple[Value, Value]:
        """Return the first step of a chunk, and its number of steps. Chunks end at cache lines: of a row that is scanned in
        reverse, the first chunk has the odd elements at its end."""
        if not self.is_reverse:
            return super().part(chunk, size)
        b, zero = self.b, self.b.const(0, I64)
        odd = b.bitand(self.length(), b.const(ALIGNMENT - 1, I64))
        first = b.minimum(b.add(b.mul(chunk, size), b.select(b.gt(chunk, zero), odd, zero)), self.length())
        end = b.minimum(b.add(b.mul(b.add(chunk, b.const(1, I64)), size), odd), self.length())
        return first, b.sub(end, first)

    def scan_and_total(
        self, chunk: tuple[Value, Value], next_chunk: tuple[Value, Value], started: Sequence[Value]
    ) -> tuple[list[Value], Reductions]:
        """Scan one chunk, and reduce another that is not longer."""
        b, scan_count = self.b, len(started)
        (first, steps), (next_first, next_steps) = chunk, next_chunk
        step = b.open("t")
        before, others = ([b.bound(d, hint) for _, d in self.scanned()] for hint in ("h", "g"))
        ended, reductions = self.visit(self.index_at((), b.add(first, step)), before)
        totals = self.combined(others, self.terms(self.index_in_memory_order(next_first, next_steps, step)))
        scans, reductions = self.close_loop(
            step, next_steps, reductions,
            started=(*started, *self.initial()), ended=(*ended, *totals), carried=(*before, *others),
        )  # fmt: skip
        rest = self.line((), b.sub(steps, next_steps), scans[:scan_count], b.add(first, next_steps), reductions)
        return scans[scan_count:], rest[1]


class _ScanLoops(_ScanKernel):
    """The kernel of scans as plain loops, which the target splits into chunks."""

    def run(self) -> Draft:
        extents = self.space.extents
        others = (*extents[: self.axis], *extents[self.axis + 1 :])
        return self.finished_draft(self.nest((), others, lambda prefix: self.line(prefix, self.length(), self.initial())[1]))


def _cost(space: Space) -> Cost:
    moved = moved_once(space)
    reread = 0 if len(space.extents) > 1 else sum(nominal_bytes(i.operands[0].type) for i in space.scans)
    return Cost(bytes=moved + reread, cached=2 * moved, flops=4 * work(space.region.instructions))


def _blocks_cost(space: Space) -> Cost:
    moved = moved_once(space)
    return Cost(bytes=moved, cached=2 * moved, flops=4 * work(space.region.instructions))


SCAN = Schedule(
    name="scan",
    fits=lambda space, layouts: None if space.scans else "nothing is scanned",
    cost=_cost,
    draft=lambda *arguments: _ScanKernel(*arguments).run(),
    targets=frozenset({"cpu"}),
)
SCAN_BLOCKS = Schedule(
    name="scan_blocks",
    fits=lambda space, layouts: None if space.scans and len(space.extents) == 1 else "no single row is scanned",
    cost=_blocks_cost,
    draft=lambda *arguments: _ScanBlocks(*arguments).run(),
    targets=frozenset({"cpu"}),
)
SCAN_LOOPS = Schedule(
    name="scan_loops",
    fits=SCAN.fits,
    cost=_cost,
    draft=lambda *arguments: _ScanLoops(*arguments).run(),
    targets=frozenset({"cuda"}),
)
