"""The tiles of a group: rows in chunks, a chunk in tiles of rows that stay in cache, a tile pass by pass.

For groups of rows and columns that sum over the rows, or compute functions of rows. Where no values are functions of rows, a
row may have several axes. A chunk is 64 rows, whatever the machine, and chunks are independent: sums over the rows are
combined after the chunks, column by column from a partial row of each chunk, in blocks of 64 chunks. So the sums are the same
in whatever order chunks run.

A pass over a tile processes two rows per iteration where it reduces values and is light, four where there is but one pass or
array: values that rows share are read once, and sums of columns are added several rows at a time. Missing rows at the end of a
tile are copies of the last one, whose values do not count. Between two passes, functions of rows are computed for all rows of
the tile in one vectorised loop, and stored.

A tile has 2 (or 4) to 64 rows, as many as L1 holds.

Cost: every operand and result moves from and to memory once, and 1/64 of a row more for each sum of columns, written and read.
From cache: each pass its operands, and for each sum of columns an element read and written every two rows. Footprint: the
elements of a tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule, elements, moved_once, weight, work
from pullback.codegen.kernels.elements import Elements, Out
from pullback.codegen.kernels.groups.strided import windows
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import quotient

CHUNK = 64
"""The number of rows of a chunk, and the number of chunks whose partial rows are combined as a block."""
ROWS_PER_ITERATION = 2
"""The number of rows that a light pass that reduces values processes per iteration; twice as many if there is one pass or
array."""
LIGHT = 24
"""The largest number of operations per element of a pass that processes several rows per iteration."""
TILE_BYTES = 1 << 15
"""The largest number of bytes of the elements of a tile, which L1 holds; the number of its rows is a power of two."""

Totals = dict[Instruction, Value]


def tiles(space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    """Return the kernel of a collapsed group; the arguments are the arguments of ``group_kernel``."""
    return _Tiles(space, layouts, over).run()


class _Tiles(Elements):
    """The kernel of a group in tiles under construction."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.scratch: list[RefType] = []
        self.places: dict[Value, Out] = {}
        self.done: set[Value] = set()
        self.partial: dict[Instruction, Value] = {}
        self.valid: list[Value | None] = []
        self.size: Value | None = None
        self.staged_refs: dict[Value, Value] = {}
        self.window: tuple[Value, Value] | None = None

        self.height, *self.widths = space.extents
        moved = {*self.region.parameters, *self.region.results}
        walked = [v.type.dtype.bytes for v in moved if self.is_element(v)]
        self.bytes = max(1, sum(walked))
        self.together = ROWS_PER_ITERATION if len(walked) > 1 and self.rows else 2 * ROWS_PER_ITERATION
        wanted = (i for i in self.reduces if i.result in self.outputs)
        self.columns = [i for i in wanted if tuple(i.params["axes"]) == (0,)]
        self.last = max((self.passes[v] for v in self.roots(None)), default=0)
        self.find_kept()
        self.find_rows()
        self.prefetches = self.find_prefetches()

    # analysis

    def is_element(self, value: Value) -> bool:
        return value.type.shape == self.space.extents

    def is_row(self, value: Value) -> bool:
        """Return whether a value, which is broadcast to elements or is a result, has one element per row."""
        return bool(self.rows) and value.type.shape == self.space.extents[:1] and not self.is_accumulated(value)

    def roots(self, pass_index: int | None) -> list[Value]:
        """Return the values that a pass computes for each element; for None, the values of all passes."""
        values = [i.operands[0] for i in (*self.reduces, *self.checks) if self.is_element(i.operands[0])]
        values += [v for v, _ in self.copies if self.is_element(v)]
        return [v for v in dict.fromkeys(values) if pass_index is None or self.passes[v] == pass_index]

    def find_kept(self) -> None:
        """Choose buffers for values that are expensive to compute and used in later passes: a result whose elements are
        written in the last of these passes or after it."""
        for pass_index in range(1, self.last + 1):
            for value in self.inside(self.roots(pass_index), pass_index):
                producer = self.producer[value]
                is_expensive = isinstance(producer.op, Elementwise) and not producer.op.cheap and self.passes[value] < pass_index
                last = self.last_pass_with(value) if is_expensive and value not in self.places else 0
                out = (self.outputs.get(value) or self.unused_result(value, last)) if last else None
                if out is not None:
                    self.places[value] = out

    def last_pass_with(self, value: Value) -> int:
        """Return the last pass that uses a value; 0 if later ones load it."""
        return max(
            (pass_index for pass_index in range(1, self.last + 1) if value in self.inside(self.roots(pass_index), pass_index)),
            default=0,
        )

    def inside(self, roots: Sequence[Value], pass_index: int) -> list[Value]:
        """Return the elements that a pass computes for ``roots``, themselves included; the search ends at elements that are
        stored."""
        values: dict[Value, None] = {}
        stack = list(roots)
        while stack:
            value = stack.pop()
            producer = self.producer.get(value)
            if producer is None or value in values or not self.is_element(value):
                continue
            values[value] = None
            is_kept = value in self.places and self.passes[value] < pass_index
            stack += () if is_kept else producer.operands
        return list(values)

    def kept(self, pass_index: int) -> list[Value]:
        """Return the values that a pass stores for later ones, in the memory of other results."""
        return [v for v in self.places if self.is_element(v) and self.passes[v] == pass_index and v not in self.outputs]

    def unused_result(self, value: Value, last: int) -> Out | None:
        """Return the memory of a result of the group that is unused until it is written, in pass ``last`` or later. None for a
        value that is read at other indices than its own, since it may be overwritten by then."""
        if value in self.elsewhere:
            return None
        taken = {out.ref for out in self.places.values()}
        for result, out in self.copies:
            is_free = out.ref not in taken and out.ref not in self.refs.values() and out is self.outputs[result]
            is_compatible = self.is_element(result) and result.type == value.type and not out.last
            if is_free and is_compatible and self.passes[result] >= last > self.passes[value]:
                return out
        return None

    def find_rows(self) -> None:
        """Choose a buffer for every reduction of rows, and for every function of rows that elements need."""
        for i in self.reduces:
            if self.is_row_reduce(i):
                self.place_row(i.result)
        for pass_index in range(self.last + 1):
            for value in self.rows_read(pass_index):
                self.place_row(value)

    def rows_read(self, pass_index: int) -> list[Value]:
        """Return the computed rows that a pass broadcasts to its elements."""
        sources: dict[Value, None] = {}
        for value in self.inside([*self.roots(pass_index), *self.kept(pass_index)], pass_index):
            producer = self.producer[value]
            if producer.op is broadcast and tuple(producer.params["axes"]) == (1,):
                source = producer.operands[0]
                origin = self.producer.get(source)
                if origin is not None and isinstance(origin.op, Elementwise | Reduce | Gather):
                    sources[source] = None
        return list(sources)

    def place_row(self, value: Value) -> None:
        if value in self.places:
            return
        out = self.outputs.get(value)
        if out is None or out.last:
            out = Out(self.memory(value, self.space.extents[:1], "rows"))
        self.places[value] = out

    def memory(self, value: Value, shape: Shape, name: str) -> Value:
        """Return a new scratch buffer of a shape."""
        self.scratch.append(RefType(value.type.dtype, shape))
        ref = Value(RefType(value.type.dtype, self.b.shape(shape)), name)
        self.parameters.append(ref)
        return ref

    def stored_at(self, value: Value, index: tuple[Value, ...]) -> tuple[Out, tuple[Value, ...]] | None:
        return (self.places[value], index) if value in self.done else None

    def find_prefetches(self) -> dict[int, list[tuple[Value, int]]]:
        """Return the references whose elements of the next tile each pass prefetches, and for which rows of an iteration.

        Operands are assigned to passes in a cycle from the last one on; passes that write elements of results come after the
        others, since memory is busy with these. Where nothing is written, passes that would prefetch nothing share the rows
        with the others. A pass whose values are kept in a result prefetches its memory, too.
        """
        writing = {self.passes[v] for v, _ in self.copies if self.is_element(v)}
        passes = sorted((n for n in range(self.last + 1) if self.roots(n)), key=lambda n: (n in writing, -n))
        if not passes:
            return {}
        operands = [ref for v, ref in self.refs.items() if self.is_element(v) and isinstance(ref.type, RefType)]
        assigned = [(ref, passes[k % len(passes)]) for k, ref in enumerate(operands)]
        waiting = [(out.ref, self.passes[v]) for v, out in self.places.items() if self.is_element(v) and not out.last]
        assigned += [(ref, pass_index) for ref, pass_index in waiting if ref not in operands]
        wanted = [(ref, k, n) for ref, n in assigned for k in range(self.rows_per_iteration(n))]
        if not writing and len(passes) > len(assigned) and len({self.rows_per_iteration(n) for n in passes}) == 1:
            wanted = [(ref, k, passes[position % len(passes)]) for position, (ref, k, _) in enumerate(wanted)]
        by_pass: dict[int, list[tuple[Value, int]]] = {}
        for ref, k, pass_index in wanted:
            by_pass.setdefault(pass_index, []).append((ref, k))
        return by_pass

    def rows_per_iteration(self, pass_index: int) -> int:
        """Return the number of rows that a pass processes per iteration."""
        roots = self.roots(pass_index)
        reduces = any(i.operands[0] in roots for i in (*self.reduces, *self.checks))
        is_light = sum(weight(self.producer[v]) for v in self.inside([*roots, *self.kept(pass_index)], pass_index)) <= LIGHT
        return self.together if reduces and is_light else 1

    # the kernel

    def run(self) -> Draft:
        b = self.b
        chunks = b.extent_of(quotient(self.height, CHUNK))
        for i in self.columns:
            self.partial[i] = self.memory(i.operands[0], (quotient(self.height, CHUNK), *self.widths), "partial")
        totals = self.loop(chunks, "c", self.chunk, independent=True)
        for i in self.columns:
            self.combine(i, chunks)
        self.finish({i: [v] for i, v in totals.items()})
        failures = tuple((i.params["error"], i.params["message"], str(i.loc)) for i in self.checks)
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes(), scratch=tuple(self.scratch), failures=failures)

    def loop(
        self, count: Value, hint: str, body: Callable[[Value], Totals], ordered: bool = False, independent: bool = False
    ) -> Totals:
        """Emit a loop whose iterations yield terms of totals."""
        index = self.b.open(hint)
        terms = body(index)
        if ordered:
            self.b.close_ordered(index, count)
            return {}
        initial = [self.identity(i)[0] for i in terms]
        combine = [self.combiner(i) for i in terms]
        totals = self.b.close(index, count, initial, list(terms.values()), combine or None, independent=independent)
        return dict(zip(terms, totals))

    def joined(self, i: Instruction, values: Sequence[Value]) -> Value:
        """Combine values in pairs."""
        combined = list(values)
        while len(combined) > 1:
            pairs = zip(combined[::2], combined[1::2])
            combined = [self.b.emit(OPS[self.combiner(i)], pair)[0] for pair in pairs] + combined[len(combined) & ~1 :]
        return combined[0]

    def merge(self, totals: Totals, more: Totals) -> None:
        """Add terms to totals."""
        for i, value in more.items():
            totals[i] = self.joined(i, [totals[i], value]) if i in totals else value

    def chunk(self, c: Value) -> Totals:
        b = self.b
        first = b.mul(c, b.const(CHUNK, I64))
        count = b.minimum(b.sub(b.extent_of(self.height), first), b.const(CHUNK, I64))
        for i in self.columns:
            self.along(lambda j, i=i: self.put(self.identity(i)[0], self.partial[i], c, *j))  # type: ignore[misc]
        if self.staged and not self.rows and len(self.columns) == len(self.reduces) and not self.checks:
            self.windows(c, first, count)
            return {}
        strided = self.stage(first, count)
        self.staged_refs = {strided[v]: self.refs[v] for v in self.staged}
        if not self.last and not self.rows:
            self.size = b.const(self.together, I64)
            return self.tile(c, first, count)
        shift = self.tile_shift()
        size = self.size = b.raw_shl(b.const(1, I64), shift)

        def tile(t: Value) -> Totals:
            at = b.raw_shl(t, shift)
            return self.tile(c, b.add(first, at), b.minimum(b.sub(count, at), size))

        return self.loop(b.raw_shr(b.add(count, b.sub(size, b.const(1, I64))), shift), "t", tile)

    def windows(self, c: Value, first: Value, count: Value) -> None:
        """Emit a chunk in which only columns are reduced, a window of columns at a time, so that strided matrices are staged
        in L1."""
        b = self.b
        log, window_count = windows(self)
        window = b.open("w")
        left = b.raw_shl(window, log)
        long = b.minimum(b.sub(b.extent_of(self.widths[0]), left), b.raw_shl(b.const(1, I64), log))
        before = self.stage(first, count, left, long)
        self.window = left, long
        self.tile(c, first, count)
        self.window, self.refs = None, before
        b.close_ordered(window, window_count)

    def tile_shift(self) -> Value:
        """Return the logarithm of the number of rows of a tile."""
        least = self.together.bit_length() - 1
        b, log_rows = self.b, self.b.const(least, I64)
        for shift in range(least + 1, CHUNK.bit_length()):
            most = TILE_BYTES // (self.bytes << shift)
            log_rows = b.select(b.le(b.extent_of(self.widths[0]), b.const(most, I64)), b.const(shift, I64), log_rows)
        return log_rows

    def along(self, body: Callable[[tuple[Value, ...]], object]) -> None:
        """Emit loops along a row."""
        index = self.opened()
        body(index)
        self.closed(index)

    def opened(self) -> tuple[Value, ...]:
        return tuple(self.b.open(hint) for hint in self.hints())

    def closed(
        self, index: Sequence[Value], initial: Sequence[Value] = (), yields: Sequence[Value] = (), combine: Sequence[str] = ()
    ) -> tuple[Value, ...]:
        """Leave loops along a row, which may combine values."""
        results = tuple(yields)
        for k, extent in reversed(list(zip(index, self.widths, strict=True))):
            count = self.b.extent_of(extent) if self.window is None else self.window[1]
            results = self.b.close(k, count, initial, results, combine or None)
        return results

    def hints(self) -> list[str]:
        return [chr(ord("j") + k) for k in range(len(self.widths))]

    def put(self, value: Value, ref: Value, *index: Value) -> None:
        self.b.here("store", value, ref, *index)

    def tile(self, c: Value, first: Value, count: Value) -> Totals:
        """Emit all passes over some rows, each after the functions of rows that it needs."""
        totals: Totals = {}
        self.done = set()
        for pass_index in range(self.last + 1):
            self.merge(totals, self.over_rows(pass_index, first, count))
            self.merge(totals, self.over_elements(pass_index, c, first, count))
        later = [self.passes[v] for v in self.row_values()]
        for pass_index in range(self.last + 1, max(later, default=0) + 1):
            self.merge(totals, self.over_rows(pass_index, first, count))
        return totals

    # functions of rows

    def row_values(self) -> list[Value]:
        """Return the values of rows that are stored or reduced, except reductions of elements."""
        values = [v for v in self.places if not self.is_element(v)]
        values += [v for v, _ in self.copies if self.is_row(v) and not self.is_element(v)]
        values += [i.operands[0] for i in self.row_reduces]
        return list(dict.fromkeys(values))

    def over_rows(self, pass_index: int, first: Value, count: Value) -> Totals:
        """Emit the computation, for all rows of a tile, of the row values that the previous pass has made available."""
        reduced_values = {i.result for i in self.reduces}
        now = [v for v in self.row_values() if self.passes[v] == pass_index]
        outs = [(v, out) for v, out in self.copies if v in now and self.is_row(v) and out is not self.places.get(v)]
        reduced = [i for i in self.row_reduces if i.operands[0] in now]
        placed = [v for v in now if v in self.places and v not in reduced_values]
        if not (outs or reduced or placed):
            return {}

        def row(r: Value) -> Totals:
            index = (self.b.add(first, r),)
            values = {v: self.element(v, index) for v in (*placed, *(v for v, _ in outs), *(i.operands[0] for i in reduced))}
            for value in placed:
                self.write(values[value], self.places[value], index)
            for value, out in outs:
                self.write(values[value], out, index)
            return {i: values[i.operands[0]] for i in reduced}

        totals = self.loop(count, "r", row)
        self.done.update(placed)
        return totals

    # passes over elements

    def over_elements(self, pass_index: int, c: Value, first: Value, count: Value) -> Totals:
        """Emit one pass over the elements of a tile."""
        roots, kept = self.roots(pass_index), self.kept(pass_index)
        if not roots and not kept:
            return {}
        reduces = [i for i in (*self.reduces, *self.checks) if i.operands[0] in roots]
        b, together = self.b, self.rows_per_iteration(pass_index)
        last = b.sub(b.add(first, count), b.const(1, I64))

        def some(g: Value) -> Totals:
            at = b.add(first, b.mul(g, b.const(together, I64)))
            rows = [at, *(b.add(at, b.const(k, I64)) for k in range(1, together))]
            self.valid = [None, *(b.le(row, last) for row in rows[1:])]
            rows = [at, *(b.minimum(row, last) for row in rows[1:])]
            return self.rows_together(c, rows, reduces, pass_index)

        shift = together.bit_length() - 1
        groups = b.raw_shr(b.add(count, b.const(together - 1, I64)), b.const(shift, I64))
        totals = self.loop(groups, "g", some)
        self.done.update(i.result for i in reduces if isinstance(i.op, Reduce) and self.is_row_reduce(i))
        self.done.update(v for v in self.places if self.is_element(v) and self.passes[v] == pass_index)
        return totals

    def rows_together(self, c: Value, rows: Sequence[Value], reduces: Sequence[Instruction], pass_index: int) -> Totals:
        b, roots, kept = self.b, self.roots(pass_index), self.kept(pass_index)
        for value in self.rows_read(pass_index):
            if value in self.done:
                for row in dict.fromkeys(rows):
                    self.memo[(value, (row,), None)] = self.read(self.places[value], (row,))
        of_rows = [i for i in reduces if isinstance(i.op, Reduce) and self.is_row_reduce(i)]
        of_all = [i for i in reduces if isinstance(i.op, Check) or tuple(i.params["axes"]) == tuple(range(self.rank))]
        along = self.opened()
        j = along if self.window is None else (b.add(self.window[0], along[0]),)
        self.prefetch(pass_index, rows, j)
        ended = self.ended_values()
        outs = [(v, out) for v, out in self.copies if v in roots and v not in ended]
        wanted = dict.fromkeys([*(i.operands[0] for i in reduces), *(v for v, _ in outs), *kept])
        values = {v: [self.element(v, (row, *j)) for row in rows] for v in wanted}
        for value, out in (*outs, *((v, self.places[v]) for v in kept)):
            for row, element in zip(rows, values[value], strict=True):
                self.write(element, out, (row, *j))
        for i in (i for i in reduces if i in self.columns):
            before = b.here("load", self.partial[i], c, *j)
            b.location = i.loc
            term = self.joined(i, self.counted(i, values[i.operands[0]]))
            b.here("store", b.emit(OPS[self.combiner(i)], (before, term))[0], self.partial[i], c, *j)
        yields = [v for i in of_rows for v in values[i.operands[0]]]
        yields += [self.joined(i, self.counted(i, values[i.operands[0]])) for i in of_all]
        carried = [i for i in of_rows for _ in rows] + of_all
        combine = [self.combiner(i) for i in carried]
        results = list(self.closed(along, [self.identity(i)[0] for i in carried], yields, combine))
        for i in of_rows:
            for row in rows:
                self.write(results.pop(0), self.places[i.result], (row,))
        return dict(zip(of_all, results, strict=True))

    def prefetch(self, pass_index: int, rows: Sequence[Value], j: Sequence[Value]) -> None:
        """Prefetch the same rows of the next tile, element by element."""
        b = self.b
        for ref, k in self.prefetches.get(pass_index, ()) if self.size is not None else ():
            b.here("prefetch", self.staged_refs.get(ref, ref), b.add(rows[k], self.size), *j)

    def counted(self, i: Instruction, values: Sequence[Value]) -> list[Value]:
        """Return values of rows of one iteration, with the values of copies of the last row replaced by the identity."""
        none = self.identity(i)[0]
        return [v if valid is None else self.b.select(valid, v, none) for v, valid in zip(values, self.valid, strict=True)]

    # sums of columns

    def combine(self, i: Instruction, chunks: Value) -> None:
        """Combine the partial rows of chunks, in blocks."""
        b, ref, out = self.b, self.partial[i], self.outputs[i.result]
        size = b.const(CHUNK, I64)
        blocks = b.raw_shr(b.add(chunks, b.const(CHUNK - 1, I64)), b.const(CHUNK.bit_length() - 1, I64))

        def add(target: Out, index: tuple[Value, ...], more: Value) -> Totals:
            def column(j: tuple[Value, ...]) -> None:
                before, term = self.read(target, (*index, *j)), b.here("load", ref, more, *j)
                b.location = i.loc
                self.write(b.emit(OPS[self.combiner(i)], (before, term))[0], target, (*index, *j))

            self.along(column)
            return {}

        def block(k: Value) -> Totals:
            first = b.mul(k, size)
            count = b.sub(b.minimum(b.sub(chunks, first), size), b.const(1, I64))
            after = b.add(first, b.const(1, I64))
            return self.loop(count, "c", lambda c: add(Out(ref), (first,), b.add(after, c)), ordered=True)

        self.loop(blocks, "k", block, independent=True)
        self.along(lambda j: self.put(self.identity(i)[0], out.ref, *out.at(j)))
        self.loop(blocks, "k", lambda k: add(out, (), b.mul(k, size)), ordered=True)


def _fits(space: Space, layouts: Sequence[str]) -> str | None:
    rank = len(space.extents)
    if rank < 2 or (space.rows and rank > 2):
        return "its space has not two axes"
    if space.order:
        return space.order
    reduces = [i for i in space.region.instructions if isinstance(i.op, Reduce)]
    if any(isinstance(i.op, Reduce) and i.op.gives_position for i in reduces):
        return "a reduction gives a position"
    if not space.rows and not any(_is_of_columns(space, i) for i in reduces):
        return "nothing is summed over rows"
    of_elements = [i for i in reduces if i.operands[0].type.shape == space.extents]
    if rank > 2 and any(tuple(i.params["axes"]) not in ((0,), tuple(range(rank))) for i in of_elements):
        return "something is summed along a part of a row"
    return None


def _is_of_columns(space: Space, i: Instruction) -> bool:
    return i.operands[0].type.shape == space.extents and tuple(i.params["axes"]) == (0,)


def _cost(space: Space) -> Cost:
    """Return the cost that the module's docstring describes."""
    instructions = space.region.instructions
    columns = [i for i in instructions if isinstance(i.op, Reduce) and _is_of_columns(space, i)]
    sums = elements(space) * sum(i.result.type.dtype.bytes for i in columns)
    passes = 1 + sum(isinstance(i.op, Reduce) for i in instructions) - len(columns)
    moved = moved_once(space) + 2 * sums // CHUNK
    return Cost(
        bytes=moved, cached=passes * moved + 2 * sums // ROWS_PER_ITERATION, flops=work(instructions), footprint=TILE_BYTES
    )


TILED = Schedule(name="tiles", fits=_fits, cost=_cost, draft=tiles, targets=frozenset({"cpu"}))
