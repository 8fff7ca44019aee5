"""The kernel of a group with scans: elements are visited in the scans' order, once, and what is computed from the scanned values
is computed in the same loop.

Along the last axis a scan runs over vectors. One long row is cut into chunks: first each chunk is combined by itself, then the
chunks' totals in order, and then each chunk is scanned, starting with what comes before it. So chunks are independent, and their
number depends on the row's length alone. A processor with caches does that block by block, combining one block while it scans the
one before. On a GPU ``cuda_scan`` cuts the lines of any axis into chunks. Along another axis the scans of
neighbouring columns run side by side, some hundred columns at a time, whose states stay in the first cache.
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
"""Rows of so many elements are cut into a power of two of chunks."""
MOST_CHUNKS = 1 << CHUNKS[-1][1]
ALIGNMENT = 64
BLOCK, BLOCK_CHUNKS = 1 << 16, 16
"""Two blocks of elements stay in cache, each cut into so many chunks; a shorter row than these two is one chunk."""
COLUMNS = 512

Found = dict[Instruction, list[Value]]


class _ScanKernel(GroupKernel):
    """Every reduction is over all axes."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.scans = space.scans
        params = self.scans[0].params
        self.axis, self.is_reverse = params["axis"], params["reverse"]
        self.combiners = [i.op.combine for i in self.scans if isinstance(i.op, Accumulate)]

    def run(self) -> Draft:
        if self.axis < self.rank - 1:
            found = self.columns()
        elif self.rank > 1:
            found = self.around((), self.space.extents[:-1], lambda prefix: self.line(prefix, self.length(), self.nothing())[1])
        else:
            found = self.long_row()
        return self.drafted(found)

    # parts of all forms

    def length(self) -> Value:
        return self.b.extent_of(self.space.extents[self.axis])

    def nothing(self) -> list[Value]:
        """What each scan begins with."""
        return [self.b.const(i.op.first(d), d) for i, d in self.scanned() if isinstance(i.op, Accumulate)]

    def scanned(self) -> list[tuple[Instruction, DType]]:
        return [(i, i.result.type.dtype) for i in self.scans]

    def memory(self, name: str, dtype: DType, *shape: Extent) -> Value:
        """A scratch buffer."""
        t = RefType(dtype, self.b.shape(shape))
        self.scratch.append(RefType(dtype, shape))
        self.parameters.append(Value(t, name))
        return self.parameters[-1]

    def terms(self, index: tuple[Value, ...]) -> list[Value]:
        """The elements that the scans take in."""
        return [self.element(i.operands[0], index) for i in self.scans]

    def combined(self, before: Sequence[Value], elements: Sequence[Value]) -> list[Value]:
        """An instruction for each, also where an element changes nothing: it is what makes a loop a scan."""
        pairs = zip(self.combiners, before, elements, strict=True)
        return [self.b.here(name, *pair) for name, *pair in pairs]

    def visit(self, index: tuple[Value, ...], before: Sequence[Value]) -> tuple[list[Value], Found]:
        """Everything at one element, after the scans of those before it: the scans, and what reductions take."""
        after = self.combined(before, self.terms(index))
        self.memo.update(((i.result, index, None), value) for i, value in zip(self.scans, after, strict=True))
        return after, self.over_elements(index, self.rank)

    def place(self, index: Sequence[Value], step: Value) -> tuple[Value, ...]:
        """The index of an element, of which the scans are at a step."""
        last = self.b.sub(self.length(), self.b.const(1, I64))
        here = self.b.sub(last, step) if self.is_reverse else step
        return (*index[: self.axis], here, *index[self.axis :])

    def leave(
        self, index: Value, count: Value, found: Found, begun: Found | None = None, **how: Sequence[Value]
    ) -> tuple[list[Value], Found]:
        """Close a loop that combines what reductions found in it, with what they have ``begun`` with; what it scans, and what it
        combines to."""
        initial = [v for i in found for v in (self.identity(i) if begun is None else begun[i])]
        combine = [self.combiner(i) for i in found]
        started, ended, carried = (how.get(k, ()) for k in ("started", "ended", "carried"))
        scan = self.combiners * (len(started) // len(self.combiners))
        yields = [*ended, *(v for i in found for v in found[i])]
        values = list(self.b.close(index, count, (*started, *initial), yields, combine or None, carried, scan))
        after, values = values[: len(scan)], values[len(scan) :]
        return after, {i: [values.pop(0) for _ in self.identity(i)] for i in found}

    def around(self, prefix: tuple[Value, ...], extents: Sequence[Extent], inside: Callable[..., Found]) -> Found:
        """Loops over leading axes."""
        if not extents:
            return inside(prefix)
        index = self.b.open("ijklmnop"[min(len(prefix), 7)])
        found = self.around((*prefix, index), extents[1:], inside)
        return self.leave(index, self.b.extent_of(extents[0]), found)[1]

    def line(
        self,
        prefix: tuple[Value, ...],
        count: Value,
        started: Sequence[Value],
        first: Value | None = None,
        begun: Found | None = None,
    ) -> tuple[list[Value], Found]:
        """A scan of ``count`` steps, from ``first`` on: what it ends with, and what reductions found in it."""
        step = self.b.open("t")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        at = step if first is None else self.b.add(first, step)
        ended, found = self.visit(self.place(prefix, at), before)
        return self.leave(step, count, found, begun, started=started, ended=ended, carried=before)

    # one long row

    def long_row(self) -> Found:
        """All of it in chunks."""
        b = self.b
        shift, one = b.const(0, I64), b.const(1, I64)
        for least, bits in CHUNKS:
            shift = b.select(b.ge(self.length(), b.const(least, I64)), b.const(bits, I64), shift)
        count = b.raw_shl(one, shift)
        size = b.raw_shr(b.add(self.length(), b.sub(count, one)), shift)
        size = b.bitand(b.add(size, b.const(ALIGNMENT - 1, I64)), b.const(-ALIGNMENT, I64))
        totals = self.totals(MOST_CHUNKS)
        chunk = b.open("c")
        self.put_all(self.total(*self.part(chunk, size)), totals, chunk)
        b.close(chunk, b.sub(count, one), way="core")
        self.put_all(self.begin(totals, b.sub(count, one), self.nothing(), totals), totals, b.sub(count, one))
        chunk = b.open("c")
        first, steps = self.part(chunk, size)
        found = self.line((), steps, self.get_all(totals, chunk), first)[1]
        return self.join(chunk, count, found)

    def totals(self, number: int) -> list[Value]:
        """Room for a number for each of so many chunks and each scan."""
        return [self.memory("total", d, number) for _, d in self.scanned()]

    def put_all(self, values: Sequence[Value], refs: Sequence[Value], place: Value) -> None:
        for value, ref in zip(values, refs, strict=True):
            self.b.here("store", value, ref, place)

    def get_all(self, refs: Sequence[Value], place: Value) -> list[Value]:
        return [self.b.here("load", ref, place) for ref in refs]

    def part(self, chunk: Value, size: Value) -> tuple[Value, Value]:
        """The first step of a chunk, and how many it has."""
        b = self.b
        first = b.minimum(b.mul(chunk, size), self.length())
        return first, b.minimum(size, b.sub(self.length(), first))

    def total(self, first: Value, count: Value) -> list[Value]:
        """What so many elements combine to."""
        step = self.b.open("t")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        after = self.combined(before, self.terms(self.upwards(first, count, step)))
        return self.leave(step, count, {}, started=self.nothing(), ended=after, carried=before)[0]

    def upwards(self, first: Value, count: Value, step: Value) -> tuple[Value, ...]:
        """The index of one of so many elements of a row, which are combined in the order of memory, whichever way a scan goes."""
        b = self.b
        if self.is_reverse:
            first = b.sub(self.length(), b.add(first, count))
        return (b.add(first, step),)

    def begin(self, totals: Sequence[Value], count: Value, started: Sequence[Value], found: Sequence[Value]) -> list[Value]:
        """Combine the chunks' totals to what comes before each; gives what comes after all."""
        chunk = self.b.open("c")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        after = self.combined(before, self.get_all(totals, chunk))
        self.put_all(before, found, chunk)
        return list(self.b.close(chunk, count, started, after, None, before))

    def join(self, chunk: Value, count: Value, found: Found) -> Found:
        """Close a loop over chunks; joins in order what the reductions made of each."""
        b = self.b
        partials = {i: [self.memory("part", v.type.dtype, MOST_CHUNKS) for v in values] for i, values in found.items()}
        for i, values in found.items():
            self.put_all(values, partials[i], chunk)
        b.close(chunk, count, way="core")
        if not partials:
            return {}
        chunk = b.open("c")
        return self.leave(chunk, count, {i: self.get_all(refs, chunk) for i, refs in partials.items()})[1]

    # columns side by side

    def columns(self) -> Found:
        extents = self.space.extents
        outer = (*extents[: self.axis], *extents[self.axis + 1 : -1])
        states = [self.memory("state", d, *outer, extents[-1]) for _, d in self.scanned()]
        return self.around((), outer, lambda prefix: self.blocks(prefix, states))

    def blocks(self, prefix: tuple[Value, ...], states: Sequence[Value]) -> Found:
        b, block = self.b, self.b.open("b")
        total, most = b.extent_of(self.space.extents[-1]), b.const(COLUMNS, I64)
        first = b.mul(block, most)
        count = b.minimum(most, b.sub(total, first))
        column = b.open("j")
        for value, state in zip(self.nothing(), states, strict=True):
            b.here("store", value, state, *prefix, b.add(first, column))
        b.close(column, count)
        step = b.open("t")
        column = b.open("j")
        at = b.add(first, column)
        before = [b.here("load", state, *prefix, at) for state in states]
        after, found = self.visit(self.place((*prefix, at), step), before)
        for value, state in zip(after, states, strict=True):
            b.here("store", value, state, *prefix, at)
        _, found = self.leave(column, count, found)
        found = self.in_order(step, self.length(), found)
        blocks = b.raw_shr(b.add(total, b.const(COLUMNS - 1, I64)), b.const(COLUMNS.bit_length() - 1, I64))
        return self.leave(block, blocks, found)[1]

    def in_order(self, step: Value, count: Value, found: Found) -> Found:
        """Close a loop over steps, each of which needs the one before."""
        if not found:
            self.b.close_ordered(step, count)
            return {}
        initial = [v for i in found for v in self.identity(i)]
        yields = [v for values in found.values() for v in values]
        combine = [self.combiner(i) for i in found]
        values = list(self.b.close(step, count, initial, yields, combine, ordered=True))
        return {i: [values.pop(0) for _ in self.identity(i)] for i in found}


class _ScanBlocks(_ScanKernel):
    """A row goes block by block, each in chunks. While one is scanned, that in its place of the next block is combined, and is
    in cache when its turn comes: so a row is read from memory once, and what is read and written moves at the same time."""

    def long_row(self) -> Found:
        b = self.b
        two, one, zero = b.const(2 * BLOCK, I64), b.const(1, I64), b.const(0, I64)
        is_long = b.ge(self.length(), two)
        count = b.select(is_long, b.const(BLOCK_CHUNKS, I64), one)
        size = b.select(is_long, b.const(BLOCK // BLOCK_CHUNKS, I64), two)
        before, coming, sofar = self.totals(BLOCK_CHUNKS), self.totals(BLOCK_CHUNKS), self.totals(1)
        self.put_all(self.nothing(), sofar, zero)
        chunk = b.open("c")
        self.put_all(self.total(*self.part(chunk, size)), coming, chunk)
        b.close(chunk, b.select(is_long, count, zero), way="core")
        turn = b.open("b")
        self.put_all(self.begin(coming, count, self.get_all(sofar, zero), before), sofar, zero)
        chunk = b.open("c")
        at = b.add(b.mul(turn, count), chunk)
        totals, found = self.scan_and_total(self.part(at, size), self.part(b.add(at, count), size), self.get_all(before, chunk))
        self.put_all(totals, coming, chunk)
        found = self.join(chunk, count, found)
        block, shift = b.select(is_long, b.const(BLOCK, I64), two), b.const(BLOCK.bit_length() - 1, I64)
        turns = b.raw_shr(b.add(self.length(), b.sub(block, one)), b.select(is_long, shift, b.add(shift, one)))
        return self.in_order(turn, turns, found)

    def part(self, chunk: Value, size: Value) -> tuple[Value, Value]:
        """Chunks end where lines do: of a row that is walked down, the first has the odd elements at its end."""
        if not self.is_reverse:
            return super().part(chunk, size)
        b, zero = self.b, self.b.const(0, I64)
        odd = b.bitand(self.length(), b.const(ALIGNMENT - 1, I64))
        first = b.minimum(b.add(b.mul(chunk, size), b.select(b.gt(chunk, zero), odd, zero)), self.length())
        end = b.minimum(b.add(b.mul(b.add(chunk, b.const(1, I64)), size), odd), self.length())
        return first, b.sub(end, first)

    def scan_and_total(
        self, here: tuple[Value, Value], there: tuple[Value, Value], started: Sequence[Value]
    ) -> tuple[list[Value], Found]:
        """Scan one chunk, and combine another that is no longer."""
        b, number = self.b, len(started)
        (first, steps), (coming, ahead) = here, there
        step = b.open("t")
        before, others = ([b.bound(d, hint) for _, d in self.scanned()] for hint in ("h", "g"))
        ended, found = self.visit(self.place((), b.add(first, step)), before)
        totals = self.combined(others, self.terms(self.upwards(coming, ahead, step)))
        scans, found = self.leave(
            step, ahead, found,
            started=(*started, *self.nothing()), ended=(*ended, *totals), carried=(*before, *others),
        )  # fmt: skip
        rest = self.line((), b.sub(steps, ahead), scans[:number], b.add(first, ahead), found)
        return scans[number:], rest[1]


class _ScanLoops(_ScanKernel):
    """The lines and the scan of each, as loops of which the target takes chunks."""

    def run(self) -> Draft:
        extents = self.space.extents
        others = (*extents[: self.axis], *extents[self.axis + 1 :])
        return self.drafted(self.around((), others, lambda prefix: self.line(prefix, self.length(), self.nothing())[1]))


def _cost(space: Space) -> Cost:
    moved = moved_once(space)
    again = 0 if len(space.extents) > 1 else sum(nominal_bytes(i.operands[0].type) for i in space.scans)
    return Cost(bytes=moved + again, near=2 * moved, flops=4 * work(space.region.instructions))


def _blocks_cost(space: Space) -> Cost:
    moved = moved_once(space)
    return Cost(bytes=moved, near=2 * moved, flops=4 * work(space.region.instructions))


SCAN = Schedule(
    name="scan",
    fits=lambda space, layouts: None if space.scans else "nothing is scanned",
    cost=_cost,
    draft=lambda *given: _ScanKernel(*given).run(),
    targets=frozenset({"cpu"}),
)
SCAN_BLOCKS = Schedule(
    name="scan_blocks",
    fits=lambda space, layouts: None if space.scans and len(space.extents) == 1 else "no single row is scanned",
    cost=_blocks_cost,
    draft=lambda *given: _ScanBlocks(*given).run(),
    targets=frozenset({"cpu"}),
)
SCAN_LOOPS = Schedule(
    name="scan_loops",
    fits=SCAN.fits,
    cost=_cost,
    draft=lambda *given: _ScanLoops(*given).run(),
    targets=frozenset({"cuda"}),
)
