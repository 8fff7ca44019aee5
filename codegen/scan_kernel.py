"""The kernel of a group with scans: elements are visited in the scans' order, once, and what is computed from the scanned values
is computed in the same loop.

Along the last axis a scan runs over vectors. One long row is cut into chunks: first each chunk is combined by itself, then the
chunks' totals in order, and then each chunk is scanned, starting with what comes before it. So chunks are independent, and their
number depends on the row's length alone. Along another axis the scans of neighbouring columns run side by side, some hundred
columns at a time, whose states stay in the first cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.collapse import Space
from pullback.codegen.cost import Cost, Schedule, moved_once, work
from pullback.codegen.draft import Draft
from pullback.codegen.group_kernel import GroupKernel
from pullback.ir.op import OPS
from pullback.ir.ops.scan import Accumulate
from pullback.ir.structure import Instruction, Value
from pullback.ir.types import I64, DType, Extent, RefType

CHUNKS = ((1 << 17, 2), (1 << 20, 4), (1 << 22, 6))
"""Rows of so many elements are cut into a power of two of chunks."""
MOST_CHUNKS = 1 << CHUNKS[-1][1]
ALIGNMENT = 64
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
            found = self.around((), self.space.extents[:-1], lambda prefix: self.line(prefix, self.length(), self.nothing()))
        else:
            found = self.chunks()
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
        pairs = zip(self.combiners, before, elements, strict=True)
        return [self.b.emit(OPS[name], pair)[0] for name, *pair in pairs]

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

    def leave(self, index: Value, count: Value, found: Found, **how: Sequence[Value]) -> tuple[list[Value], Found]:
        """Close a loop that combines what reductions found in it; what it scans, and what it combines to."""
        initial = [v for i in found for v in self.identity(i)]
        combine = [self.combiner(i) for i in found]
        scan = self.combiners if how else []
        started, ended, carried = (how.get(k, ()) for k in ("started", "ended", "carried"))
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

    def line(self, prefix: tuple[Value, ...], count: Value, started: Sequence[Value], first: Value | None = None) -> Found:
        """A scan of ``count`` steps, from ``first`` on."""
        step = self.b.open("t")
        before = [self.b.bound(d, "h") for _, d in self.scanned()]
        at = step if first is None else self.b.add(first, step)
        ended, found = self.visit(self.place(prefix, at), before)
        return self.leave(step, count, found, started=started, ended=ended, carried=before)[1]

    # one row in chunks

    def chunks(self) -> Found:
        b = self.b
        shift = b.const(0, I64)
        for least, bits in CHUNKS:
            shift = b.select(b.ge(self.length(), b.const(least, I64)), b.const(bits, I64), shift)
        one = b.const(1, I64)
        count = b.raw_shl(one, shift)
        size = b.raw_shr(b.add(self.length(), b.sub(count, one)), shift)
        size = b.bitand(b.add(size, b.const(ALIGNMENT - 1, I64)), b.const(-ALIGNMENT, I64))
        totals = [self.memory("before", d, MOST_CHUNKS) for _, d in self.scanned()]
        self.add_chunks(totals, size, b.sub(count, one))
        return self.scan_chunks(totals, size, count)

    def part(self, chunk: Value, size: Value) -> tuple[Value, Value]:
        """The first step of a chunk, and how many it has."""
        b = self.b
        first = b.minimum(b.mul(chunk, size), self.length())
        return first, b.minimum(size, b.sub(self.length(), first))

    def add_chunks(self, totals: Sequence[Value], size: Value, count: Value) -> None:
        """Combine each chunk but the last by itself, then all in order: the totals become what comes before each."""
        b = self.b
        chunk = b.open("c")
        first, steps = self.part(chunk, size)
        step = b.open("t")
        before = [b.bound(d, "h") for _, d in self.scanned()]
        after = self.combined(before, self.terms(self.place((), b.add(first, step))))
        found = self.leave(step, steps, {}, started=self.nothing(), ended=after, carried=before)[0]
        for value, total in zip(found, totals, strict=True):
            b.here("store", value, total, chunk)
        b.close(chunk, count, way="core")
        chunk = b.open("c")
        before = [b.bound(d, "h") for _, d in self.scanned()]
        after = self.combined(before, [b.here("load", total, chunk) for total in totals])
        for value, total in zip(before, totals, strict=True):
            b.here("store", value, total, chunk)
        last = b.close(chunk, count, self.nothing(), after, None, before)
        for value, total in zip(last, totals, strict=True):
            b.here("store", value, total, count)

    def scan_chunks(self, totals: Sequence[Value], size: Value, count: Value) -> Found:
        """Scan each chunk, then join in order what the reductions made of each."""
        b = self.b
        chunk = b.open("c")
        first, steps = self.part(chunk, size)
        found = self.line((), steps, [b.here("load", total, chunk) for total in totals], first)
        partials = {i: [self.memory("part", v.type.dtype, MOST_CHUNKS) for v in values] for i, values in found.items()}
        for i, values in found.items():
            for value, ref in zip(values, partials[i], strict=True):
                b.here("store", value, ref, chunk)
        b.close(chunk, count, way="core")
        if not partials:
            return {}
        chunk = b.open("c")
        joined = {i: [b.here("load", ref, chunk) for ref in refs] for i, refs in partials.items()}
        return self.leave(chunk, count, joined)[1]

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
        found = self.in_order(step, found)
        blocks = b.raw_shr(b.add(total, b.const(COLUMNS - 1, I64)), b.const(COLUMNS.bit_length() - 1, I64))
        return self.leave(block, blocks, found)[1]

    def in_order(self, step: Value, found: Found) -> Found:
        """Close the loop over steps, each of which needs the one before."""
        if not found:
            self.b.close_ordered(step, self.length())
            return {}
        initial = [v for i in found for v in self.identity(i)]
        yields = [v for values in found.values() for v in values]
        combine = [self.combiner(i) for i in found]
        values = list(self.b.close(step, self.length(), initial, yields, combine, ordered=True))
        return {i: [values.pop(0) for _ in self.identity(i)] for i in found}


def _draft(space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    return _ScanKernel(space, layouts, over).run()


def _cost(space: Space) -> Cost:
    moved = moved_once(space)
    return Cost(bytes=moved, near=2 * moved, flops=4 * work(space.region.instructions))


SCAN = Schedule(
    name="scan",
    fits=lambda space, layouts: None if space.scans else "nothing is scanned",
    cost=_cost,
    draft=_draft,
)
