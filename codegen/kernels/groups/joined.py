"""The kernel of a group that joins arrays: one loop for each part instead of a loop that selects among the parts.

    concat x, y          for j in 0..n: out[j] = x[j];  for j in 0..m: out[n + j] = y[j]

Each part is evaluated, with all functions of the joined array, in its own loop, and stored where it belongs. A run of parts that
are the same function of different arrays is one loop over a table of these arrays, so that code does not grow with the number
of parts. A long row is cut into blocks, which are independent: a block visits the parts that it overlaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Cost, Schedule
from pullback.codegen.kernels.groups.joined_parts import Run, flattened, has_borders, join_of, runs_of, same_parts
from pullback.codegen.kernels.groups.rows import FLAT, GroupKernel
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import concat
from pullback.ir.ops.control.regions import Check
from pullback.ir.passes.editing.activity import dependents

BLOCK = 1 << 14
"""The least number of elements of a block of a long row, about 5 us of a copy."""
PARTS_PER_BLOCK = 32
"""The number of parts for each ``BLOCK`` elements of a block, which visits all parts to find those that it overlaps."""
MOST_LOOPS = 4
"""Most loops over parts that follow one another without blocks; each is cut into chunks by itself."""
Results = dict[Instruction, list[Value]]


class JoinedKernel(GroupKernel):
    """The kernel of a group that joins arrays along ``axis``.

    ``local``: for each index along the axis, the part in which it is and the index in that part. ``entries``: in a loop over a
    run, the references of the present part by parameter, with the length of a row or None if there is one row.
    """

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        join = join_of(space)
        assert join is not None
        self.join, self.axis = join, int(join.params["axis"])
        self.local: dict[Value, tuple[int, Value]] = {}
        self.entries: dict[Value, tuple[Value, Value | None]] = {}
        self.runs = runs_of(join, space, layouts)

    # evaluation

    def sources(
        self, producer: Instruction, index: tuple[Value, ...], guard: Value | None
    ) -> list[tuple[Value, tuple[Value, ...], Value | None, Value | None]]:
        """Return the part that is known at an index as the only source of a joined array."""
        if same_parts(producer, self.join):
            part, at = self.local.get(index[self.axis], (None, None))
            if part is not None and at is not None:
                return [(producer.operands[part], (*index[: self.axis], at, *index[self.axis + 1 :]), None, guard)]
        return super().sources(producer, index, guard)

    def load(self, value: Value, index: tuple[Value, ...], guard: Value | None) -> Value:
        if value not in self.entries:
            return super().load(value, index, guard)
        ref, length = self.entries[value]
        self.b.result_name = value.name
        if isinstance(ref.type, ArrayType):
            return ref
        position = index[-1] if index else self.b.const(0, I64)
        if length is not None:
            position = self.b.add(self.b.mul(index[0], length), position)
        loaded: Value = self.b.load(ref, position) if guard is None else self.b.load_if(ref, guard, position)
        return loaded

    # loops

    def loop(self, prefix: tuple[Value, ...], axis: int, inside: Callable[..., Results]) -> Results:
        """Emit one loop of the nest, or, along the axis of the parts, their loops."""
        if axis != self.axis:
            return super().loop(prefix, axis, inside)
        if axis or self.rank > 1 or (len(self.runs) <= MOST_LOOPS and all(run.count == 1 for run in self.runs)):
            return self.over_parts(prefix, inside, None)
        b, total = self.b, self.b.extent_of(self.space.extents[axis])
        size = b.const(BLOCK * -(-len(self.join.operands) // PARTS_PER_BLOCK), I64)
        block = b.open("c")
        results = self.over_parts(prefix, inside, (b.mul(block, size), size))
        count = b.idiv(b.sub(b.add(total, size), b.const(1, I64)), size)
        return self.closed(block, count, results, None, independent=True)

    def over_parts(self, prefix: tuple[Value, ...], inside: Callable[..., Results], block: tuple[Value, Value] | None) -> Results:
        """Emit the loops over all parts. ``block``: the first index and the number of the elements that are visited."""
        results: Results | None = None
        for run in self.runs:
            if run.count == 1:
                start = self.join.params["starts"][run.first]
                length = self.join.operands[run.first].type.shape[self.axis]
                bounds = self.b.extent_of(start), self.b.extent_of(length)
                results = self.over_part(prefix, inside, run.first, bounds, block, results)
                continue
            before = dict(self.memo)
            of_parts = dependents(self.space.region, run.tables, smooth=False)
            self.memo = {key: value for key, value in before.items() if key[0] not in of_parts}
            position = self.b.open("p")
            bounds = self.select_part(run, position)
            inner = self.over_part(prefix, inside, run.first, bounds, block, None)
            self.entries.clear()
            self.memo = before  # what was computed of one part is not another's
            results = self.closed(position, self.b.const(run.count, I64), inner, results)
        assert results is not None
        return results

    def select_part(self, run: Run, position: Value) -> tuple[Value, Value]:
        """Select the references and scalars of a part of a run; return where the part begins and its length."""
        b, members = self.b, range(run.first, run.first + run.count)
        starts = [self.join.params["starts"][k] for k in members]
        lengths = [self.join.operands[k].type.shape[self.axis] for k in members]
        length = self.entry(position, lengths)
        start = b.add(b.mul(position, length), b.extent_of(starts[0])) if len(set(lengths)) == 1 else self.entry(position, starts)
        for parameter, parameters in run.tables.items():
            (entry,) = b.emit(OPS["table_entry"], (position, *(self.refs[v] for v in parameters)))
            rows = parameter.type.rank > 1
            self.entries[parameter] = entry, self.entry(position, [v.type.shape[-1] for v in parameters]) if rows else None
        return start, length

    def entry(self, position: Value, extents: Sequence[Extent]) -> Value:
        """Return one of several extents."""
        values = list(map(self.b.extent_of, extents))
        return values[0] if len(set(extents)) == 1 else self.b.emit(OPS["table_entry"], (position, *values))[0]

    def over_part(
        self,
        prefix: tuple[Value, ...],
        inside: Callable[..., Results],
        part: int,
        bounds: tuple[Value, Value],
        block: tuple[Value, Value] | None,
        before: Results | None,
    ) -> Results:
        """Emit the loop over a part, or over the elements of it in a block. ``bounds``: its first index and its length;
        ``before``: the reductions so far."""
        b, (start, length) = self.b, bounds
        if b.constants.get(length) == 1 and block is None:
            index, at = start, b.const(0, I64)
            self.local[index] = part, at
            return self.combined(before, inside((*prefix, index), self.axis + 1))
        first, count = None, length
        if block is not None:
            zero = b.const(0, I64)
            first = b.maximum(b.sub(block[0], start), zero)
            last = b.minimum(b.sub(b.add(block[0], block[1]), start), length)
            count = b.maximum(b.sub(last, first), zero)
        counter = b.open("j")
        at = counter if first is None else b.add(counter, first)
        index = b.add(at, start)
        self.local[index] = part, at
        yielded = inside((*prefix, index), self.axis + 1)
        trip_count = 0 if block is None else max(1, BLOCK // len(self.join.operands))
        return self.closed(counter, count, yielded, before, trip_count=trip_count)

    def closed(
        self, index: Value, count: Value, yielded: Results, before: Results | None, trip_count: int = 0, independent: bool = False
    ) -> Results:
        """Leave a loop that reduces; return the reductions, which continue those ``before``."""
        carried = list(yielded)
        initial = [v for i in carried for v in (self.identity(i) if before is None else before[i])]
        yields = [v for i in carried for v in yielded[i]]
        combine = [self.combiner(i) for i in carried] or None
        results = self.b.close(index, count, initial, yields, combine, trip_count=trip_count, independent=independent)
        return {i: [value] for i, value in zip(carried, results, strict=True)}

    def combined(self, before: Results | None, after: Results) -> Results:
        """Emit the combination of reductions."""
        if before is None:
            return after
        return {i: [self.b.emit(OPS[self.combiner(i)], (before[i][0], after[i][0]))[0]] for i in after}


def _reason(space: Space, layouts: Sequence[str]) -> str | None:
    """Return why a group cannot have loops over parts, None if it can."""
    if space.rows or space.order is not None:
        return space.order or "elements need reductions of their rows"
    join = join_of(space)
    if join is None:
        return "nothing is joined at the elements"
    if has_borders(space, join):
        return "elements are selected along several axes"
    axes = tuple(range(len(space.extents)))
    for i in space.region.instructions:
        if isinstance(i.op, Reduce) and (i.op.gives_position or tuple(i.params["axes"]) != axes):
            return "a reduction is not over all elements"
        if isinstance(i.op, Check) and i.operands[0].type.shape not in ((), space.extents):
            return "a check is of other elements"
    shapes = {v.type.shape for v in space.region.results}
    return None if shapes <= {(), space.extents} else "a result has another shape"


def _draft(space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    return JoinedKernel(replace(flattened(space, layouts), nears=False), layouts, over).run()


def _cost(space: Space) -> Cost:
    """Return the cost of one pass without selections."""
    instructions = tuple(i for i in space.region.instructions if i.op is not concat)
    return FLAT.cost(replace(space, region=replace(space.region, instructions=instructions)))


JOINED = Schedule(name="joined", fits=_reason, cost=_cost, draft=_draft, targets=frozenset({"cpu"}))
