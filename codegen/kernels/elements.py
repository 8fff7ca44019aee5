"""Evaluation of the elements of a group's values at an index, on demand: a chain of elementwise ops and reindexing becomes
scalar code in one loop body. Schedules emit the loops around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.kernels.builder import KernelBuilder
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, Extent, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather, RollBy
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, roll, roll_source
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import is_strided
from pullback.ir.shapes.extents import product

LEAST_STAGED_BYTES = 4
"""The least bytes of an element of a matrix that is transposed in registers."""
Key = tuple[Value, tuple[Value, ...], Value | None]


@dataclass(frozen=True, eq=False)
class Out:
    """Where a value is stored: in the memory of ``ref`` at its index, into which ``last`` is inserted before axis ``axis``, or
    appended if that is None."""

    ref: Value
    last: tuple[Value, ...] = ()
    axis: int | None = None

    def at(self, index: Sequence[Value]) -> tuple[Value, ...]:
        """Return the index of an element in memory."""
        axis = len(index) if self.axis is None else self.axis
        return (*index[:axis], *self.last, *index[axis:])


@dataclass(frozen=True)
class Rolled:
    """The index that is ``distance`` positions after ``base``, modulo ``extent``. ``largest``: the largest offset of the rolls
    that it composes, at most half the extent."""

    base: Value
    extent: Extent
    distance: int
    largest: int

    def position(self, b: KernelBuilder) -> Value:
        """Emit the index: ``base`` plus the distance where that is in the axis."""
        count, by = b.extent_of(self.extent), b.const(abs(self.distance), I64)
        last = b.sub(count, by)
        if abs(self.distance) <= 2 * self.largest:
            other = self.moved(b, by, last)[1]
        else:
            least = b.maximum(count, b.const(1, I64))
            by_remainder = b.sub(by, b.mul(b.idiv(by, least), least))
            last_remainder = b.sub(count, by_remainder)
            inside = b.lt(self.base, last_remainder) if self.distance > 0 else b.ge(self.base, by_remainder)
            other = b.select(inside, *self.moved(b, by_remainder, last_remainder))
        inside = b.lt(self.base, last) if self.distance > 0 else b.ge(self.base, by)
        result: Value = b.select(inside, self.moved(b, by, last)[0], other)
        return result

    def moved(self, b: KernelBuilder, by: Value, last: Value) -> tuple[Value, Value]:
        """Emit the index ``by`` positions from ``base``, and the one ``last`` positions away in the opposite direction."""
        ahead, behind = (b.add, b.sub) if self.distance > 0 else (b.sub, b.add)
        return ahead(self.base, by), behind(self.base, last)


LONG = 24
"""Fewest scalar operations that are computed in the order of the program, before any result is stored. Computed result by
result, independent chains of operations would come one after another, and a processor sees only the next few hundred."""


class Elements:
    """The kernel of a group under construction: its parameters, where each value is stored, and the scalars computed so far by
    value and index."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        self.space = space
        self.region = space.region
        self.rank, self.rows = len(space.extents), space.rows
        self.b = KernelBuilder()
        self.producer = {v: i for i in self.region.instructions for v in i.results}
        self.memo: dict[Key, Value] = {}
        self.rolled: dict[Value, Rolled] = {}
        self.refs: dict[Value, Value] = {}
        self.parameters: list[Value] = []
        for value, layout in zip(self.region.parameters, layouts, strict=True):
            t = value.type
            shape = self.b.shape(t.shape)
            kind = scalar(t.dtype) if layout == "value" else RefType(t.dtype, shape, layout)
            self.refs[value] = Value(kind, value.name)
            self.parameters.append(self.refs[value])
        self.outputs: dict[Value, Out] = {}
        self.copies: list[tuple[Value, Out]] = []
        for position, value in enumerate(self.region.results):
            if position in over:
                ref = self.refs[self.region.parameters[over[position]]]
            else:
                ref = Value(RefType(value.type.dtype, self.b.shape(value.type.shape)), value.name or f"out{position}")
                self.parameters.append(ref)
            for stored, out in self.stored_parts(value, ref):
                self.outputs.setdefault(stored, out)
                self.copies.append((stored, out))
        self.reduces = [
            i for i in self.region.instructions if isinstance(i.op, Reduce) and i.operands[0].type.shape == space.extents
        ]
        self.reduces = [i for i in self.reduces if self.rank]
        self.row_reduces = [
            i
            for i in self.region.instructions
            if isinstance(i.op, Reduce) and self.rows and i.operands[0].type.shape == space.extents[: self.rows]
        ]
        self.elsewhere = self.read_elsewhere()
        self.staged = [v for v, ref in self.refs.items() if space.nears and is_strided(ref) and self.is_matrix(v)]
        self.checks = [i for i in self.region.instructions if isinstance(i.op, Check)]
        self.passes = self.find_passes()

    def read_elsewhere(self) -> set[Value]:
        """Return the values whose elements are read at other indices than the element that is computed."""
        values = set[Value]()
        for i in reversed(self.region.instructions):
            is_here = isinstance(i.op, Elementwise | Check | Reduce) or i.op is broadcast
            if not is_here or (isinstance(i.op, Elementwise) and not values.isdisjoint(i.results)):
                values.update(i.operands)
        return values

    def is_matrix(self, value: Value) -> bool:
        """Return whether an operand is a matrix that is read element by element, in order, to be reduced, so that its rows can
        be staged in cache."""
        is_whole = self.rank == 2 and value.type.shape == self.space.extents and value not in self.elsewhere
        return is_whole and bool(self.reduces) and value.type.dtype.bytes >= LEAST_STAGED_BYTES

    def stage(self, *window: Value) -> dict[Value, Value]:
        """Stage some rows of strided matrices, or a tile of them, in cache, and read them from there from now on; return the
        previous references. ``window``: the first row and the number of rows, followed, for a tile, by the first column and
        the number of columns."""
        before = dict(self.refs)
        for value in self.staged:
            self.refs[value] = self.b.here("stage_rows", self.refs[value], *window)
        return before

    def stored_parts(self, value: Value, ref: Value) -> list[tuple[Value, Out]]:
        """Return what is stored for a result: the value itself, or its interleaved parts."""
        producer = self.producer.get(value)
        if producer is None or not isinstance(producer.op, Interleave):
            return [(value, Out(ref))]
        axis = producer.params.get("axis")
        return [(part, Out(ref, (self.b.const(k, I64),), axis)) for k, part in enumerate(producer.operands)]

    def is_row_reduce(self, i: Instruction) -> bool:
        return bool(self.rows) and tuple(i.params["axes"]) == tuple(range(self.rows, self.rank))

    def is_accumulated(self, value: Value) -> bool:
        """Return whether a value of a row's shape is a reduction that is accumulated in memory."""
        producer = self.producer.get(value)
        return producer is not None and producer in self.reduces and not self.is_row_reduce(producer)

    def find_passes(self) -> dict[Value, int]:
        """Return the pass that computes each value; for a row's value, the first pass that may read it."""
        passes: dict[Value, int] = dict.fromkeys(self.region.parameters, 0)
        for i in self.region.instructions:
            latest = max((passes[v] for v in i.operands), default=0)
            if isinstance(i.op, Reduce) and i in self.reduces and self.is_row_reduce(i):
                latest += 1
            passes.update((v, latest) for v in i.results)
        return passes

    # evaluation

    def element(self, value: Value, index: tuple[Value, ...], guard: Value | None = None) -> Value:
        """Return the scalar at an index. Where ``guard`` is false nothing is read and the scalar is arbitrary."""
        stack: list[Key] = [(value, index, guard)]
        while stack:
            key = stack[-1]
            if key in self.memo:
                stack.pop()
                continue
            missing = [k for k in self.requires(key) if k not in self.memo]
            if missing:
                stack.extend(missing)
                continue
            producer = self.producer.get(key[0])
            if producer is not None:
                self.b.location, self.b.result_name = producer.loc, key[0].name
            self.memo[key] = self.make(key)
            self.b.result_name = ""
            stack.pop()
        return self.memo[(value, index, guard)]

    def stored_at(self, value: Value, index: tuple[Value, ...]) -> tuple[Out, tuple[Value, ...]] | None:
        """Return where an earlier pass has stored an element for the present one, or None."""
        return None

    def requires(self, key: Key) -> list[Key]:
        value, index, guard = key
        producer = self.producer.get(value)
        if producer is None or self.stored_at(value, index) is not None:
            return []
        if isinstance(producer.op, Elementwise):
            return [(v, index, guard) for v in producer.operands]
        if isinstance(producer.op, Reindex):
            return [(v, i, g) for v, i, _, g in self.sources(producer, index, guard)]
        if isinstance(producer.op, Gather):
            rank = producer.operands[1].type.rank
            return [(v, index[:rank], guard) for v in producer.operands[1:]]
        return []

    def sources(
        self, producer: Instruction, index: tuple[Value, ...], guard: Value | None
    ) -> list[tuple[Value, tuple[Value, ...], Value | None, Value | None]]:
        """Return the alternatives of a reindex op: operand, index, condition, and the guard under which it is read."""
        assert isinstance(producer.op, Reindex)
        if producer.op is roll:
            return [(producer.operands[0], self.roll_source(producer, index), None, guard)]
        types = [v.type for v in producer.operands]
        alternatives, before = [], guard
        for position, source, condition in producer.op.access(self.b, list(index), types, producer.params, self.b.extent_of):
            inner = before
            if condition is not None:
                inner = condition if before is None else self.b.bitand(before, condition)
                outside = self.b.bitnot(condition)
                before = outside if before is None else self.b.bitand(before, outside)
            operand = producer.operands[position]
            read = None if self.is_in_bounds(operand, source) else inner
            alternatives.append((operand, tuple(source), condition, read))
        return alternatives

    def roll_source(self, producer: Instruction, index: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return the index of the element that a roll moves to ``index``. The constant offsets of rolls of rolls are added."""
        b, (axis, *others), (offset,) = self.b, producer.params["axes"], producer.params["offset"]
        if others or not isinstance(offset, int):
            ((_, source, _),) = roll.access(b, list(index), [producer.operands[0].type], producer.params, b.extent_of)
            return tuple(source)
        extent = producer.operands[0].type.shape[axis]
        first = Rolled(index[axis], extent, 0, 0)
        before = self.rolled.get(index[axis], first)
        before = before if before.extent == extent else first
        total = before.distance + (offset if producer.params["backward"] else -offset)
        after = Rolled(before.base, extent, total, max(before.largest, offset))
        position = after.position(b) if total else before.base
        if total:
            self.rolled[position] = after
        return (*index[:axis], position, *index[axis + 1 :])

    def is_in_bounds(self, value: Value, index: Sequence[Value]) -> bool:
        """Return whether an index is a constant within a value's static shape. Such an element is read without a guard, and so
        once, hoisted out of all loops."""
        at = zip(index, value.type.shape, strict=True)
        return all(isinstance(e, int) and 0 <= self.b.constants.get(v, -1) < e for v, e in at)

    def make(self, key: Key) -> Value:
        """Compute the scalar of a key, whose requirements have been computed. Raises AssertionError for a value that its group
        does not compute at this index."""
        value, index, guard = key
        producer = self.producer.get(value)
        if producer is None:
            return self.load(value, index, guard)
        stored = self.stored_at(value, index)
        if stored is not None:
            return self.read(*stored)
        match producer.op:
            case Elementwise():
                scalars = [self.memo[(v, index, guard)] for v in producer.operands]
                return self.b.emit(producer.op, scalars, dict(producer.params))[0]
            case Constant():
                return self.b.emit(producer.op, (), dict(producer.params))[0]
            case Count():
                return self.b.extent_of(product(producer.params["shape"]))
            case Iota():
                position = index[producer.params["axis"]]
                dtype = producer.params["dtype"]
                return position if dtype is I64 else self.b.cast(position, dtype=dtype)
            case Reindex():
                return self.choose(self.sources(producer, index, guard), value)
            case Gather():
                return self.gather(producer, index, guard)
        # Results of loops are valid under any guard.
        computed = self.memo.get((value, index, None))
        if computed is not None:
            return computed
        raise AssertionError(f"{producer.op.name} is not known at this place of its group")

    def choose(self, sources: Any, value: Value) -> Value:
        chosen: Value | None = None
        for operand, index, condition, guard in reversed(sources):
            scalar_value = self.memo[(operand, index, guard)]
            if condition is None:
                chosen = scalar_value
                continue
            other = self.b.const(0, value.type.dtype) if chosen is None else chosen
            chosen = self.b.select(condition, scalar_value, other)
        assert chosen is not None
        return chosen

    def load(self, value: Value, index: tuple[Value, ...], guard: Value | None) -> Value:
        ref = self.refs[value]
        self.b.result_name = value.name
        if isinstance(ref.type, ArrayType):
            return ref
        loaded: Value = self.b.load(ref, *index) if guard is None else self.b.load_if(ref, guard, *index)
        return loaded

    def gather(self, producer: Instruction, index: tuple[Value, ...], guard: Value | None) -> Value:
        """Return an element at computed positions. Negative positions count from the end, and those out of range read another
        element of the array, unless they are proved in range."""
        x, *indices = producer.operands
        b, rank = self.b, indices[0].type.rank
        if isinstance(producer.op, RollBy):
            return self.load(x, self.roll_by_source(producer, index, guard), guard)
        source, remaining = [], list(index[rank:])
        index_by_axis = dict(zip(producer.params["axes"], indices, strict=True))
        for axis, extent in enumerate(x.type.shape):
            if axis not in index_by_axis:
                source.append(remaining.pop(0))
                continue
            position = self.memo[(index_by_axis[axis], index[:rank], guard)]
            is_proved = axis in producer.params.get("in_range", ())
            inside = wrapped if not rank else clamped
            source.append(position if is_proved else inside(b, position, b.extent_of(extent)))
        return self.load(x, tuple(source), guard)

    def roll_by_source(self, producer: Instruction, index: tuple[Value, ...], guard: Value | None) -> tuple[Value, ...]:
        """Return the index of the element that a roll by a value moves to ``index``. The value is clamped to the axis."""
        b, (x, count), axes = self.b, producer.operands, producer.params["axes"]
        extents = [b.extent_of(e) for e in x.type.shape]
        by = b.maximum(b.minimum(self.memo[(count, (), guard)], extents[axes[-1]]), b.const(0, I64))
        return tuple(roll_source(b, index, extents, axes, by, producer.params["backward"]))

    def read(self, out: Out, index: Sequence[Value]) -> Value:
        loaded: Value = self.b.here("load", out.ref, *out.at(index))
        return loaded

    def write(self, value: Value, out: Out, index: Sequence[Value]) -> None:
        self.b.here("store", value, out.ref, *out.at(index))

    # reductions

    def identity(self, i: Instruction) -> list[Value]:
        if isinstance(i.op, Check):
            return [self.b.const(True, BOOL)]
        assert isinstance(i.op, Reduce)
        dtype = i.operands[0].type.dtype
        first = self.b.const(i.op.identity(dtype), dtype)
        return [first, self.b.const(-1, I64)] if i.op.gives_position else [first]

    def combiner(self, i: Instruction) -> str:
        return i.op.combine if isinstance(i.op, Reduce) else "bitand"

    # after all loops

    def finish(self, results: dict[Instruction, list[Value]]) -> None:
        """Emit the code after all loops: store full reductions and scalars computed from them, and report failed checks. Checks
        of few scalars come first, so that the accesses that follow need not test their indices again."""
        for i, values in results.items():
            if isinstance(i.op, Reduce):
                self.memo[(i.result, (), None)] = values[-1]
        scalars = [i.result for i in self.region.instructions if isinstance(i.op, Elementwise) and not i.result.type.shape]
        is_long = not self.rank and len(scalars) >= LONG
        for value in scalars if is_long else ():
            self.element(value, ())
        if not is_long:
            self.report(results)
        for value, out in self.copies:
            if not value.type.shape:
                self.write(self.element(value, ()), out, ())
        if is_long:
            self.report(results)
        self.copy_repeats()

    def report(self, results: dict[Instruction, list[Value]]) -> None:
        """Emit the failures of checks."""
        for code, i in enumerate(self.checks, 1):
            held = results[i][0] if i in results else self.element(i.operands[0], ())
            self.b.here("fail", self.b.bitnot(held), code=code)

    def copy_repeats(self) -> None:
        """Copy results that repeat another one: a reduction that is accumulated in memory is computed once."""
        for value, out in self.copies:
            first = self.outputs[value]
            if out is first or value not in self.ended_values() or not value.type.shape:
                continue
            loops = [(self.b.open(), self.b.extent_of(e)) for e in value.type.shape]
            index = [i for i, _ in loops]
            self.write(self.read(first, index), out, index)
            for i, count in reversed(loops):
                self.b.close(i, count)

    def ended_values(self) -> set[Value]:
        """Return the values that are stored by their own code at the end of a loop, not with the elements."""
        return {i.result for i in self.reduces}


def clamped(b: KernelBuilder, position: Value, extent: Value) -> Value:
    """Return an index into an axis: counted from the end if negative, and clamped to the axis, as vectors do at less cost than by
    a comparison."""
    zero, one = b.const(0, I64), b.const(1, I64)
    moved = b.select(b.lt(position, zero), b.add(position, extent), position)
    result: Value = b.maximum(b.minimum(moved, b.sub(extent, one)), zero)
    return result


def wrapped(b: Builder, position: Value, extent: Value) -> Value:
    """Return an index into an axis: counted from the end if negative, and 0 if it is out of range. LLVM removes the test if it
    knows the outcome of ``is_index``, which computes the same."""
    zero = b.const(0, I64)
    moved = b.select(b.lt(position, zero), b.add(position, extent), position)
    inside: Value = b.select(b.below(moved, extent), moved, zero)
    return inside


def in_part(b: KernelBuilder, i: Instruction, axis: int, position: Value) -> Value:
    """Return the index along an axis of an array of a position in the regular part that an update writes: its ``start`` and
    ``step``. An update without them writes the axis in full."""
    if "start" not in i.params:
        return position
    start, step = i.params["start"][axis], i.params["step"][axis]
    scaled = position if step == 1 else b.mul(position, b.extent_of(step))
    moved: Value = scaled if start in (None, 0) else b.add(scaled, b.extent_of(start))
    return moved
