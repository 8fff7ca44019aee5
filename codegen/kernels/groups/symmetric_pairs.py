"""The triangle of a group: each unordered pair of a set once, for the sum of row j at i and of row i at j.

For groups of the pairs of one set, n x n, that only reduce: interactions of points. A value whose mirror image is itself, or
minus itself (by ``ir/passes/algebra/symmetric_sums.py``), is computed for i < j and counted for both. Other values, such as
the mass of one of the two, are computed for each. A block of 16 rows i runs over all j from its first row on: the values are
added to row i, and for j beyond the block also to row j, in a partial row, one per chunk of blocks. Chunks are 1, 4 or 16, by
the extent, and take blocks from both ends of the triangle alternately, so that their work is balanced; partial rows are
combined after them, in order. At most ``TERMS_PER_PARTIAL_ROW`` values are added to a partial row, which is then added to a
second one.

Cost: bytes are the bytes of the operands; half of the symmetric work, all of the other, and for each sum of a row an element
of the partial row read and written for every ``ROWS_PER_ITERATION`` pairs. Footprint: the partial rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule, elements, moved_once, weight
from pullback.codegen.kernels.elements import Elements, Key, Out
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, Extent, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.create import Constant, Iota
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.algebra.symmetric_sums import Forms
from pullback.ir.shapes.extents import nominal_bytes

BLOCK = 16
"""The number of rows of a block."""
ROWS_PER_ITERATION = 2
"""The number of rows that are processed per iteration."""
SHIFTS = (2, 4)
"""The logarithms of the numbers of chunks above one."""
MOST_CHUNKS = 1 << SHIFTS[-1]
"""The largest number of chunks."""
OPERATIONS_PER_THREAD = 1 << 21
"""The number of operations from which on a second thread is worth its cost."""
TERMS_PER_PARTIAL_ROW = 64
"""The largest number of values added to a partial row before it is added to the second one."""

Totals = dict[Instruction, Value]


def triangle(space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    """Return the kernel of a collapsed group of two axes; the arguments are the arguments of ``group_kernel``."""
    return _Triangle(space, layouts, over).run()


def signs(region: Block) -> dict[Value, int]:
    """Return the values of pairs whose mirror image is the value itself, with 1, or minus itself, with -1."""
    forms = Forms()
    for i in region.instructions:
        forms.note(i)
    sign_of = {}
    for value, (sign, form) in forms.known.items():
        image = forms.image(value)
        if image is not None and image[1] == form:
            sign_of[value] = sign * image[0]
    return sign_of


class _Triangle(Elements):
    """The kernel of a group of pairs under construction."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.scratch: list[RefType] = []
        self.signs = signs(self.region)
        self.mirrored: set[tuple[Value, ...]] = set()
        self.extent = space.extents[0]
        self.of_rows = [i for i in self.reduces if self.is_row(i)]
        self.of_all = [i for i in self.reduces if i not in self.of_rows]
        self.places = {i: self.outputs.get(i.result) or self.memory("row", i, self.extent) for i in self.of_rows}
        self.partial_rows = {i: self.memory("near", i, MOST_CHUNKS, self.extent) for i in self.of_rows}
        self.second_rows = {i: self.memory("far", i, MOST_CHUNKS, self.extent) for i in self.of_rows}

    def is_row(self, i: Instruction) -> bool:
        return tuple(i.params["axes"]) == (1,)

    def memory(self, name: str, i: Instruction, *shape: Extent) -> Out:
        """Return a new scratch buffer for a reduction."""
        dtype = i.result.type.dtype
        self.scratch.append(RefType(dtype, shape))
        self.parameters.append(Value(RefType(dtype, self.b.shape(shape)), name))
        return Out(self.parameters[-1])

    # mirror images

    def sign(self, key: Key) -> int:
        """Return the factor, 1 or -1, between an element of a mirrored pair and the element of the pair; 0 if the pair is not
        mirrored or there is no factor."""
        value, index, _ = key
        return self.signs.get(value, 0) if index in self.mirrored else 0

    def requires(self, key: Key) -> list[Key]:
        value, index, guard = key
        return [(value, index[::-1], guard)] if self.sign(key) else super().requires(key)

    def make(self, key: Key) -> Value:
        value, index, guard = key
        if not (sign := self.sign(key)):
            return super().make(key)
        mirrored = self.memo[(value, index[::-1], guard)]
        if sign > 0:
            return mirrored
        negative: Value = self.b.neg(mirrored)
        return negative

    # the kernel

    def run(self) -> Draft:
        b = self.b
        self.n, self.one = b.extent_of(self.extent), b.const(1, I64)
        shift = self.chunk_shift()
        chunks, blocks = b.raw_shl(self.one, shift), self.up(self.n, BLOCK)
        partials = {i: self.memory("part", i, MOST_CHUNKS) for i in self.of_all}
        c = b.open("c")
        for i, value in self.chunk(c, chunks, shift, blocks).items():
            self.write(value, partials[i], (c,))
        b.close(c, chunks, way="core")
        terms = lambda c: {i: self.read(out, (c,)) for i, out in partials.items()}  # noqa: E731
        totals = self.loop(chunks, "c", terms, ordered=True) if partials else {}
        self.join(chunks)
        self.finish({i: [v] for i, v in (totals | self.after_rows()).items()})
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes(), scratch=tuple(self.scratch))

    def chunk_shift(self) -> Value:
        """Return the logarithm of the number of chunks."""
        b, log_chunks = self.b, self.b.const(0, I64)
        weight_per_pair = sum(weight(i) for i in self.region.instructions if isinstance(i.op, Elementwise))
        for k, shift in enumerate(SHIFTS):
            least = isqrt((OPERATIONS_PER_THREAD << 2 * k) // max(1, weight_per_pair))
            log_chunks = b.select(b.ge(self.n, b.const(least, I64)), b.const(shift, I64), log_chunks)
        return log_chunks

    def up(self, count: Value, size: int) -> Value:
        """Return ``count`` divided by ``size``, a power of two, rounded up."""
        b = self.b
        return b.raw_shr(b.add(count, b.const(size - 1, I64)), b.const(size.bit_length() - 1, I64))

    def loop(self, count: Value, hint: str, body: Callable[[Value], Totals], ordered: bool = False) -> Totals:
        """Emit a loop whose iterations yield terms of totals. ``ordered``: they run one by one, since they add to memory, or read
        what has just been stored."""
        index = self.b.open(hint)
        terms = body(index)
        initial = [self.identity(i)[0] for i in terms]
        combine = [self.combiner(i) for i in terms] or None
        return dict(zip(terms, self.b.close(index, count, initial, list(terms.values()), combine, ordered=ordered)))

    def chunk(self, c: Value, chunks: Value, shift: Value, blocks: Value) -> Totals:
        """Emit one chunk: every ``chunks``-th block of rows, counted alternately from the first and the last."""
        b = self.b
        rounds = b.raw_shr(b.add(blocks, b.sub(chunks, self.one)), shift)
        other = b.sub(b.sub(chunks, self.one), c)
        few = b.const(TERMS_PER_PARTIAL_ROW * ROWS_PER_ITERATION // BLOCK, I64)

        def block(t: Value) -> Totals:
            is_odd = b.eq(b.bitand(t, self.one), self.one)
            at = b.add(b.raw_shl(t, shift), b.select(is_odd, other, c))
            return self.block(c, b.minimum(b.mul(at, b.const(BLOCK, I64)), self.n))

        def some(s: Value) -> Totals:
            first = b.mul(s, few)
            totals = self.loop(b.minimum(few, b.sub(rounds, first)), "t", lambda t: block(b.add(first, t)), ordered=True)
            self.over_columns(lambda j: self.flush(c, j))
            return totals

        self.over_columns(lambda j: self.clear(c, j))
        return self.loop(self.up(rounds, TERMS_PER_PARTIAL_ROW * ROWS_PER_ITERATION // BLOCK), "s", some, ordered=True)

    def over_columns(self, body: Callable[[Value], None]) -> None:
        if self.of_rows:
            j = self.b.open("j")
            body(j)
            self.b.close(j, self.n)

    def clear(self, c: Value, j: Value) -> None:
        for i in self.of_rows:
            for out in (self.partial_rows[i], self.second_rows[i]):
                self.write(self.identity(i)[0], out, (c, j))

    def flush(self, c: Value, j: Value) -> None:
        """Add the partial row to the second one."""
        for i in self.of_rows:
            self.add(i, self.second_rows[i], (c, j), self.read(self.partial_rows[i], (c, j)))
            self.write(self.identity(i)[0], self.partial_rows[i], (c, j))

    def add(self, i: Instruction, out: Out, index: tuple[Value, ...], more: Value) -> None:
        before = self.read(out, index)
        self.b.location = i.loc
        self.write(self.combine(i, before, more), out, index)

    def combine(self, i: Instruction, x: Value, y: Value) -> Value:
        return self.b.emit(OPS[self.combiner(i)], (x, y))[0]

    def block(self, c: Value, first: Value) -> Totals:
        """Emit the rows of a block, ``ROWS_PER_ITERATION`` rows at a time. Missing rows at the end are copies of the last one,
        which do not count."""
        b = self.b
        count = b.minimum(b.const(BLOCK, I64), b.sub(self.n, first))
        end = b.add(first, b.const(BLOCK, I64))
        last = b.sub(b.add(first, count), self.one)

        def some(g: Value) -> Totals:
            at = b.add(first, b.mul(g, b.const(ROWS_PER_ITERATION, I64)))
            more = [b.add(at, b.const(k, I64)) for k in range(1, ROWS_PER_ITERATION)]
            rows = [at, *(b.minimum(row, last) for row in more)]
            return self.pairs(c, first, end, rows, [None, *(b.le(row, last) for row in more)])

        return self.loop(self.up(count, ROWS_PER_ITERATION), "g", some, ordered=True)

    def pairs(self, c: Value, first: Value, end: Value, rows: Sequence[Value], valid: Sequence[Value | None]) -> Totals:
        """Emit some rows with every j from the first row of their block on: first j in the block, then j beyond it, of which
        there are none where rows of the block are copies."""
        b = self.b
        carried = [i for i in self.of_rows for _ in rows] + self.of_all
        within = b.minimum(end, self.n)
        sums_so_far = [self.identity(i)[0] for i in carried]
        for start, stop in ((first, within), (within, self.n)):
            is_beyond = start is within
            t = b.open("j")
            j = b.add(start, t)
            self.mirrored.update((j, row) for row in rows)
            row_values = {i: [self.element(i.operands[0], (row, j)) for row in rows] for i in self.reduces}
            mirrored = [i for i in self.reduces if is_beyond and not self.is_negated(i)]
            column_values = {i: [self.element(i.operands[0], (j, row)) for row in rows] for i in mirrored}
            for i in self.of_rows if is_beyond else ():
                self.add_mirrored(i, (c, j), row_values[i], column_values.get(i))
            yields = [v for i in self.of_rows for v in row_values[i]]
            for i in self.of_all:
                yields.append(self.of_pairs(i, row_values[i], column_values.get(i), valid))
            combine = [self.combiner(i) for i in carried]
            doubled = [
                is_beyond and i in self.of_all and self.is_doubled(i, row_values[i], column_values.get(i)) for i in carried
            ]
            start_at = [self.identity(i)[0] if twice else v for i, v, twice in zip(carried, sums_so_far, doubled, strict=True)]
            sums = b.close(t, b.sub(stop, start), start_at, yields, combine, short=not is_beyond)
            sums_so_far = [
                self.combine(i, before, self.combine(i, v, v)) if twice else v
                for i, before, v, twice in zip(carried, sums_so_far, sums, doubled, strict=True)
            ]
        for i in self.of_rows:
            for row in rows:
                self.write(sums_so_far.pop(0), self.places[i], (row,))
        return dict(zip(self.of_all, sums_so_far, strict=True))

    def is_negated(self, i: Instruction) -> bool:
        """Return whether the value of row j is minus the value of row i, and sums of rows may subtract it."""
        return i in self.of_rows and self.combiner(i) == "add" and self.signs.get(i.operands[0]) == -1

    def add_mirrored(
        self, i: Instruction, at: tuple[Value, ...], row_values: Sequence[Value], column_values: Sequence[Value] | None
    ) -> None:
        """Add the value of row j to the partial row, or subtract the value of row i where it is the negated one."""
        if column_values is None:
            before, term = self.read(self.partial_rows[i], at), self.joined(i, row_values)
            self.b.location = i.loc
            self.write(self.b.sub(before, term), self.partial_rows[i], at)
        else:
            self.add(i, self.partial_rows[i], at, self.joined(i, column_values))

    def of_pairs(
        self, i: Instruction, row_values: Sequence[Value], column_values: Sequence[Value] | None, valid: Sequence[Value | None]
    ) -> Value:
        """Return the contribution of pairs to a full reduction; pairs beyond the block contribute for both of their points."""
        if column_values is None:
            return self.joined(i, self.counted(i, row_values, valid))
        if self.is_doubled(i, row_values, column_values):
            return self.joined(i, row_values)
        return self.joined(i, [self.combine(i, x, y) for x, y in zip(row_values, column_values, strict=True)])

    def is_doubled(self, i: Instruction, row_values: Sequence[Value], column_values: Sequence[Value] | None) -> bool:
        """Return whether both points of all pairs contribute the same to a sum, which then is twice the sum of one of them."""
        return self.combiner(i) == "add" and column_values is not None and list(row_values) == list(column_values)

    def joined(self, i: Instruction, values: Sequence[Value]) -> Value:
        """Combine values in pairs."""
        combined = list(values)
        while len(combined) > 1:
            combined = [self.combine(i, x, y) for x, y in zip(combined[::2], combined[1::2])] + combined[len(combined) & ~1 :]
        return combined[0]

    def counted(self, i: Instruction, values: Sequence[Value], valid: Sequence[Value | None]) -> list[Value]:
        """Return values of rows of one iteration, with the values of copies of the last row replaced by the identity."""
        none = self.identity(i)[0]
        return [v if held is None else self.b.select(held, v, none) for v, held in zip(values, valid, strict=True)]

    # after the pairs

    def join(self, chunks: Value) -> None:
        """Add the partial rows of all chunks to the sums of the rows, in order; threads share the columns."""
        if not self.of_rows:
            return
        b = self.b
        lines = b.idiv(b.add(self.up(self.n, BLOCK), b.sub(chunks, self.one)), chunks)
        length = b.mul(lines, b.const(BLOCK, I64))
        p = b.open("p")
        first = b.minimum(b.mul(p, length), self.n)
        count = b.minimum(length, b.sub(self.n, first))

        def columns(c: Value) -> Totals:
            j = b.open("j")
            at = b.add(first, j)
            for i in self.of_rows:
                self.add(i, self.places[i], (at,), self.read(self.second_rows[i], (c, at)))
            b.close(j, count)
            return {}

        self.loop(chunks, "c", columns, ordered=True)
        b.close(p, chunks, way="core")

    def after_rows(self) -> Totals:
        """Emit functions of rows, and their reductions."""
        outs = [(v, out) for v, out in self.copies if v.type.rank == 1 and v not in self.ended_values()]
        if not outs and not self.row_reduces:
            return {}

        def row(r: Value) -> Totals:
            for i in self.of_rows:
                self.memo[(i.result, (r,), None)] = self.read(self.places[i], (r,))
            for value, out in outs:
                self.write(self.element(value, (r,)), out, (r,))
            return {i: self.element(i.operands[0], (r,)) for i in self.row_reduces}

        return self.loop(self.n, "r", row)


def _fits(space: Space, layouts: Sequence[str]) -> str | None:
    if len(space.extents) != 2 or space.extents[0] != space.extents[1]:
        return "its space is not the pairs of one set"
    region, pairs = space.region, space.extents
    if any(v.type.shape == pairs for v in (*region.parameters, *region.results)):
        return "pairs are read or stored"
    for i in region.instructions:
        if isinstance(i.op, Reduce):
            is_down = i.operands[0].type.shape == pairs and tuple(i.params["axes"]) == (0,)
            if is_down or i.op.gives_position or i.result.type.dtype.bits == 16:
                return "a reduction is down the columns, gives a position or is of f16"
        elif isinstance(i.op, Interleave):
            if i.operands[0].type.shape == pairs:
                return "pairs are read or stored"
        elif not isinstance(i.op, Elementwise | Constant | Iota) and i.op is not broadcast:
            return "an operand is read at other places than those of the pair"
    if _reads_rows(space):
        return "elements need reductions of their rows"
    return None if _reductions(space) else "nothing is reduced"


def _reductions(space: Space) -> list[Instruction]:
    instructions = space.region.instructions
    return [i for i in instructions if isinstance(i.op, Reduce) and i.operands[0].type.shape == space.extents]


def _reads_rows(space: Space) -> bool:
    """Return whether a value of pairs depends on a reduction."""
    late = set[Value]()
    for i in space.region.instructions:
        if isinstance(i.op, Reduce) or not late.isdisjoint(i.operands):
            late.update(i.results)
    return any(v.type.shape == space.extents for v in late)


def _cost(space: Space) -> Cost:
    """Return the cost that the module's docstring describes."""
    symmetric, count = signs(space.region), elements(space)
    of_pairs = [i for i in space.region.instructions if i.results and i.result.type.shape == space.extents]
    works = [i for i in of_pairs if isinstance(i.op, Elementwise)]
    each = sum(weight(i) * (1 if i.result in symmetric else 2) for i in works)
    rows = [i for i in _reductions(space) if len(i.params["axes"]) == 1]
    moved = moved_once(space)
    traffic = sum(count * i.result.type.dtype.bytes // ROWS_PER_ITERATION for i in rows)
    flops = count * (each + 2 * len(_reductions(space))) // 2
    return Cost(bytes=moved, cached=moved + traffic, flops=flops, footprint=2 * sum(nominal_bytes(i.result.type) for i in rows))


TRIANGLE = Schedule(name="triangle", fits=_fits, cost=_cost, draft=triangle, targets=frozenset({"cpu"}))
