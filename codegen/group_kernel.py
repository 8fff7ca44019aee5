"""The kernel of a group: loops over its rows and, pass by pass, over the elements of a row.

Elements are evaluated on demand at an index: a chain of elementwise ops and reindexing becomes scalar code in one loop body.
A value that is dear to compute and needed again in a later pass is kept: in the result it goes to, or in a scratch row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.codegen.collapse import Space
from pullback.codegen.cost import Cost, Schedule, elements, moved_once, work
from pullback.codegen.draft import Draft, KernelBuilder
from pullback.ir.extents import nominal_bytes, product
from pullback.ir.op import OPS
from pullback.ir.ops.complexes import Interleave
from pullback.ir.ops.control import Check
from pullback.ir.ops.create import Constant, Count, Iota
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.ops.index import Gather
from pullback.ir.ops.reduce import Reduce
from pullback.ir.ops.reindex import Reindex
from pullback.ir.ops.scan import Accumulate
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import BOOL, I64, ArrayType, RefType, Shape, scalar

Key = tuple[Value, tuple[Value, ...], Value | None]


def group_kernel(space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> Draft:
    """The kernel of a collapsed group. ``layouts`` of its operands: "c", "strided", or "value" for scalars by value. ``over``:
    for the position of each result that is written over an operand, that operand's; the kernel has one reference for both."""
    return GroupKernel(space, layouts, over).run()


def read_in_step(region: Block, space: Shape) -> set[Value]:
    """The parameters that the kernel of a group reads element by element, for results of that element alone and reductions."""
    reduced, elsewhere = set[Value](), set[Value]()
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


@dataclass(frozen=True, eq=False)
class Out:
    """Where a value is stored: at its index, followed by ``last``, in the memory of ``ref``."""

    ref: Value
    last: tuple[Value, ...] = ()


class GroupKernel:
    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        self.space = space
        self.region = space.region
        self.rank, self.rows = len(space.extents), space.rows
        self.b = KernelBuilder()
        self.producer = {v: i for i in self.region.instructions for v in i.results}
        self.memo: dict[Key, Value] = {}
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
            for stored, out in self.outs(value, ref):
                self.outputs.setdefault(stored, out)
                self.copies.append((stored, out))
        self.reduces = [
            i for i in self.region.instructions if isinstance(i.op, Reduce) and i.operands[0].type.shape == space.extents
        ]
        self.reduces = [i for i in self.reduces if self.rank]
        self.checks = [i for i in self.region.instructions if isinstance(i.op, Check)]
        self.passes = self.find_passes()
        self.kept: dict[Value, Out] = {}
        self.scratch: list[RefType] = []
        if self.rows:
            self.find_kept()
        self.now = 0
        self.ended: dict[Instruction, list[Value]] = {}

    def outs(self, value: Value, ref: Value) -> list[tuple[Value, Out]]:
        """What is stored for a result: itself, or both parts side by side."""
        made = self.producer.get(value)
        if made is None or not isinstance(made.op, Interleave):
            return [(value, Out(ref))]
        return [(part, Out(ref, (self.b.const(k, I64),))) for k, part in enumerate(made.operands)]

    # analysis

    def is_row_reduce(self, i: Instruction) -> bool:
        return bool(self.rows) and tuple(i.params["axes"]) == tuple(range(self.rows, self.rank))

    def find_passes(self) -> dict[Value, int]:
        """The pass that computes each value; for a row's value, the first pass that may read it."""
        passes: dict[Value, int] = dict.fromkeys(self.region.parameters, 0)
        for i in self.region.instructions:
            latest = max((passes[v] for v in i.operands), default=0)
            if isinstance(i.op, Reduce) and i in self.reduces and self.is_row_reduce(i):
                latest += 1
            passes.update((v, latest) for v in i.results)
        return passes

    def find_kept(self) -> None:
        """Choose the values that later passes load instead of computing them again: those that are dear to compute."""
        for number in range(1, self.last_pass() + 1):
            roots = [i.operands[0] for i in (*self.reduces, *self.checks)] + [v for v, _ in self.copies]
            stack = [v for v in roots if v.type.shape == self.space.extents and self.passes[v] == number]
            seen: set[Value] = set()
            while stack:
                value = stack.pop()
                made = self.producer.get(value)
                if made is None or value in seen or value in self.kept:
                    continue
                seen.add(value)
                is_dear = isinstance(made.op, Elementwise) and not made.op.cheap and value.type.shape == self.space.extents
                if is_dear and self.passes[value] < number:
                    self.keep(value)
                elif not isinstance(made.op, Reduce):
                    stack.extend(made.operands)

    def keep(self, value: Value) -> None:
        if value in self.outputs:
            self.kept[value] = self.outputs[value]
            return
        shape = self.space.extents[self.rows :]
        self.scratch.append(RefType(value.type.dtype, shape))
        self.kept[value] = Out(Value(RefType(value.type.dtype, self.b.shape(shape)), "row"))

    # evaluation

    def element(self, value: Value, index: tuple[Value, ...], guard: Value | None = None) -> Value:
        """The scalar at an index; where ``guard`` is false nothing is read and the value does not matter."""
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
            made = self.producer.get(key[0])
            if made is not None:
                self.b.place, self.b.word = made.loc, key[0].name
            self.memo[key] = self.make(key)
            self.b.word = ""
            stack.pop()
        return self.memo[(value, index, guard)]

    def is_loaded(self, value: Value) -> bool:
        return value in self.kept and self.passes[value] < self.now

    def requires(self, key: Key) -> list[Key]:
        value, index, guard = key
        made = self.producer.get(value)
        if made is None or self.is_loaded(value):
            return []
        if isinstance(made.op, Elementwise):
            return [(v, index, guard) for v in made.operands]
        if isinstance(made.op, Reindex):
            return [(v, i, g) for v, i, _, g in self.sources(made, index, guard)]
        if isinstance(made.op, Gather):
            rank = made.operands[1].type.rank
            return [(v, index[:rank], guard) for v in made.operands[1:]]
        return []

    def sources(
        self, made: Instruction, index: tuple[Value, ...], guard: Value | None
    ) -> list[tuple[Value, tuple[Value, ...], Value | None, Value | None]]:
        """The alternatives of a reindex op: operand, index, condition, and the guard under which it is read."""
        assert isinstance(made.op, Reindex)
        types = [v.type for v in made.operands]
        found, before = [], guard
        for position, source, condition in made.op.access(self.b, list(index), types, made.params, self.b.extent_of):
            inner = before
            if condition is not None:
                inner = condition if before is None else self.b.bitand(before, condition)
                outside = self.b.bitnot(condition)
                before = outside if before is None else self.b.bitand(before, outside)
            found.append((made.operands[position], tuple(source), condition, inner))
        return found

    def make(self, key: Key) -> Value:
        value, index, guard = key
        made = self.producer.get(value)
        if made is None:
            return self.load(value, index, guard)
        if self.is_loaded(value):
            return self.read(self.kept[value], index if value in self.outputs else index[self.rows :])
        match made.op:
            case Elementwise():
                scalars = [self.memo[(v, index, guard)] for v in made.operands]
                return self.b.emit(made.op, scalars, dict(made.params))[0]
            case Constant():
                return self.b.emit(made.op, (), dict(made.params))[0]
            case Count():
                return self.b.extent_of(product(made.params["shape"]))
            case Iota():
                position = index[made.params["axis"]]
                dtype = made.params["dtype"]
                return position if dtype is I64 else self.b.cast(position, dtype=dtype)
            case Reindex():
                return self.choose(self.sources(made, index, guard), value)
            case Gather():
                return self.gather(made, index, guard)
        raise AssertionError(f"{made.op.name} is not known at this place of its group")

    def choose(self, sources: Any, value: Value) -> Value:
        chosen: Value | None = None
        for operand, index, condition, guard in reversed(sources):
            here = self.memo[(operand, index, guard)]
            if condition is None:
                chosen = here
                continue
            other = self.b.const(0, value.type.dtype) if chosen is None else chosen
            chosen = self.b.select(condition, here, other)
        assert chosen is not None
        return chosen

    def load(self, value: Value, index: tuple[Value, ...], guard: Value | None) -> Value:
        ref = self.refs[value]
        self.b.word = value.name
        if isinstance(ref.type, ArrayType):
            return ref
        found: Value = self.b.load(ref, *index) if guard is None else self.b.load_if(ref, guard, *index)
        return found

    def gather(self, made: Instruction, index: tuple[Value, ...], guard: Value | None) -> Value:
        """An element at computed positions: negative ones count from the end, and none leaves the array."""
        x, *indices = made.operands
        b, rank = self.b, indices[0].type.rank
        source, rest = [], list(index[rank:])
        given = dict(zip(made.params["axes"], indices, strict=True))
        for axis, extent in enumerate(x.type.shape):
            if axis not in given:
                source.append(rest.pop(0))
                continue
            source.append(wrapped(b, self.memo[(given[axis], index[:rank], guard)], b.extent_of(extent)))
        return self.load(x, tuple(source), guard)

    def read(self, out: Out, index: Sequence[Value]) -> Value:
        found: Value = self.b.here("load", out.ref, *index, *out.last)
        return found

    def write(self, value: Value, out: Out, index: Sequence[Value]) -> None:
        self.b.here("store", value, out.ref, *index, *out.last)

    # loops

    def run(self) -> Draft:
        for value in self.kept:
            if value not in self.outputs:
                self.parameters.append(self.kept[value].ref)
        self.prepare()
        return self.drafted(self.over_rows((), 0))

    def drafted(self, results: dict[Instruction, list[Value]]) -> Draft:
        """What is left to do after all loops, and the kernel."""
        self.finish(results)
        failures = tuple((i.params["error"], i.params["message"], str(i.loc)) for i in self.checks)
        kernel = self.b.kernel(self.parameters)
        return Draft(kernel=kernel, sizes=self.b.sizes(), scratch=tuple(self.scratch), failures=failures)

    def suffix(self, i: Instruction) -> int:
        """The first axis of the trailing axes that a reduction (or a check) runs over."""
        axes = range(self.rank) if isinstance(i.op, Check) else i.params["axes"]
        first = self.rank
        while first and first - 1 in axes:
            first -= 1
        return first

    def is_broken(self, i: Instruction) -> bool:
        """Whether a reduction also runs over axes outside the trailing ones, and so adds up in memory."""
        return not isinstance(i.op, Check) and len(i.params["axes"]) > self.rank - self.suffix(i)

    def prepare(self) -> None:
        """Fill with its identity every result that adds up in memory."""
        for i in self.reduces:
            if not self.is_broken(i) or i.result not in self.outputs:
                continue
            out, (value,) = self.outputs[i.result], self.identity(i)
            loops = []
            for extent in i.result.type.shape:
                loops.append((self.b.open(), self.b.extent_of(extent)))
            self.write(value, out, [index for index, _ in loops])
            for index, count in reversed(loops):
                self.b.close(index, count)

    def identity(self, i: Instruction) -> list[Value]:
        if isinstance(i.op, Check):
            return [self.b.const(True, BOOL)]
        assert isinstance(i.op, Reduce)
        dtype = i.operands[0].type.dtype
        first = self.b.const(i.op.identity(dtype), dtype)
        return [first, self.b.const(-1, I64)] if i.op.gives_position else [first]

    def combiner(self, i: Instruction) -> str:
        return i.op.combine if isinstance(i.op, Reduce) else "bitand"

    def over_rows(self, prefix: tuple[Value, ...], axis: int) -> dict[Instruction, list[Value]]:
        """The loops over rows; returns what their bodies yield for reductions that go on outside."""
        if axis == self.rows:
            return self.row(prefix)
        return self.loop(prefix, axis, self.over_rows)

    def row(self, prefix: tuple[Value, ...]) -> dict[Instruction, list[Value]]:
        """All passes of one row, and its row results."""
        results: dict[Instruction, list[Value]] = {}
        for number in range(self.last_pass() + 1):
            self.now = number
            results.update(self.over_elements(prefix, self.rows))
        self.now += 1
        if self.rows:
            for value, out in self.copies:
                if value.type.shape == self.space.extents[: self.rows] and value.type.shape != self.space.extents:
                    if value in self.refs or not self.ends_late(value):
                        self.write(self.element(value, prefix), out, prefix)
        return results

    def ends_late(self, value: Value) -> bool:
        """Whether a value of a row's shape is a reduction that adds up in memory."""
        made = self.producer.get(value)
        return made is not None and made in self.reduces and not self.is_row_reduce(made)

    def last_pass(self) -> int:
        work = [self.passes[v] for v, _ in self.copies if v.type.shape == self.space.extents]
        work += [self.passes[i.operands[0]] for i in (*self.reduces, *self.checks)]
        return max(work, default=0)

    def work(self) -> list[Instruction]:
        """The reductions and checks of elements that the present pass makes."""
        checks = [i for i in self.checks if i.operands[0].type.shape == self.space.extents and self.rank]
        return [i for i in (*self.reduces, *checks) if self.passes[i.operands[0]] == self.now]

    def over_elements(self, prefix: tuple[Value, ...], axis: int) -> dict[Instruction, list[Value]]:
        if axis < self.rank:
            if not self.has_work():
                return {}
            return self.loop(prefix, axis, self.over_elements)
        results: dict[Instruction, list[Value]] = {}
        if not self.rank:
            return results
        for i in self.work():
            value = self.element(i.operands[0], prefix)
            found = [value, prefix[i.params["axes"][0]]] if isinstance(i.op, Reduce) and i.op.gives_position else [value]
            if self.suffix(i) == self.rank:
                self.accumulate(i, found, prefix)
            else:
                results[i] = found
        ended = self.ended_values()
        stored = [
            (self.element(value, prefix), out)
            for value, out in self.copies
            if value.type.shape == self.space.extents and self.passes[value] == self.now and value not in ended
        ]
        for element, out in stored:
            self.write(element, out, prefix)
        for value, out in self.kept.items():
            if self.passes[value] == self.now and value not in self.outputs:
                self.write(self.element(value, prefix), out, prefix[self.rows :])
        return results

    def ended_values(self) -> set[Value]:
        return {i.result for i in self.reduces}

    def has_work(self) -> bool:
        outputs = any(v.type.shape == self.space.extents and self.passes[v] == self.now for v, _ in self.copies)
        return bool(self.work()) or outputs or any(self.passes[v] == self.now for v in self.kept)

    def loop(self, prefix: tuple[Value, ...], axis: int, inside: Any) -> dict[Instruction, list[Value]]:
        """One loop of the nest. Reductions whose trailing axes begin at or before ``axis`` are combined through it."""
        index = self.b.open("ijklmnop"[axis] if axis < 8 else "i")
        yielded = inside((*prefix, index), axis + 1)
        carried = list(yielded)
        initial = [v for i in carried for v in self.identity(i)]
        yields = [v for i in carried for v in yielded[i]]
        combine = [self.combiner(i) for i in carried]
        count = self.b.extent_of(self.space.extents[axis])
        found = list(self.b.close(index, count, initial, yields, combine or None))
        results: dict[Instruction, list[Value]] = {}
        for i in carried:
            width = len(self.identity(i))
            values, found = found[:width], found[width:]
            if self.suffix(i) == axis and axis:
                self.end(i, values, prefix)
            else:
                results[i] = values
        return results

    def end(self, i: Instruction, values: list[Value], prefix: tuple[Value, ...]) -> None:
        """A reduction over exactly the loops just closed, or a part of one that adds up in memory."""
        if self.is_broken(i):
            self.accumulate(i, values, prefix)
            return
        result = values[-1]
        if self.is_row_reduce(i):
            self.memo[(i.result, prefix, None)] = result
        elif i.result in self.outputs:
            self.write(result, self.outputs[i.result], prefix)

    def accumulate(self, i: Instruction, values: list[Value], prefix: tuple[Value, ...]) -> None:
        if i.result not in self.outputs:
            return
        out = self.outputs[i.result]
        kept = [v for axis, v in enumerate(prefix) if axis not in i.params["axes"]]
        before = self.read(out, kept)
        self.b.place = i.loc
        after = self.b.emit(OPS[self.combiner(i)], (before, values[0]))[0]
        self.write(after, out, kept)

    def finish(self, results: dict[Instruction, list[Value]]) -> None:
        """After all loops: what ended, scalars computed from it, checks."""
        for i, values in results.items():
            if isinstance(i.op, Reduce):
                self.memo[(i.result, (), None)] = values[-1]
        for value, out in self.copies:
            if not value.type.shape:
                self.write(self.element(value, ()), out, ())
        for code, i in enumerate(self.checks, 1):
            held = results[i][0] if i in results else self.element(i.operands[0], ())
            self.b.here("fail", self.b.bitnot(held), code=code)
        self.copy_repeats()

    def copy_repeats(self) -> None:
        """Results that adds up in memory are computed once; a second result of the same value is a copy."""
        for value, out in self.copies:
            first = self.outputs[value]
            if out is first or value not in self.ended_values() or not value.type.shape:
                continue
            loops = [(self.b.open(), self.b.extent_of(e)) for e in value.type.shape]
            index = [i for i, _ in loops]
            self.write(self.read(first, index), out, index)
            for i, count in reversed(loops):
                self.b.close(i, count)


def wrapped(b: KernelBuilder, position: Value, extent: Value) -> Value:
    """An index into an axis: counted from the end if negative, and kept inside."""
    zero, one = b.const(0, I64), b.const(1, I64)
    moved = b.select(b.lt(position, zero), b.add(position, extent), position)
    found: Value = b.maximum(b.minimum(moved, b.sub(extent, one)), zero)
    return found


def _flat_cost(space: Space) -> Cost:
    """One pass: each operand and result moves once. A reduction over axes that are not the last reads and writes its sums for
    each element, and these stay in cache."""
    sums = [i for i in space.region.instructions if isinstance(i.op, Reduce) and _is_scattered(space, i)]
    near = 2 * elements(space) * sum(i.result.type.dtype.bytes for i in sums)
    footprint = sum(nominal_bytes(i.result.type) for i in sums)
    moved = moved_once(space)
    return Cost(bytes=moved, near=moved + near, flops=work(space.region.instructions), footprint=footprint)


def _is_scattered(space: Space, i: Instruction) -> bool:
    axes, rank = i.params["axes"], len(space.extents)
    return i.operands[0].type.shape == space.extents and tuple(axes) != tuple(range(rank - len(axes), rank))


def _rows_cost(space: Space) -> Cost:
    """As many passes over a row as its reductions ask for: its operands move from memory once and from cache each time, and what
    is cheap is computed again."""
    flat = _flat_cost(space)
    passes = 1 + len({i for i in space.region.instructions if isinstance(i.op, Reduce) and not _is_scattered(space, i)})
    row = sum(
        nominal_bytes(ArrayType(v.type.dtype, v.type.shape[space.rows :]))
        for v in (*space.region.parameters, *space.region.results)
        if v.type.shape == space.extents
    )
    return Cost(bytes=flat.bytes, near=passes * flat.near, flops=passes * flat.flops, footprint=flat.footprint + row)


def _ordered(space: Space) -> str | None:
    return "elements are visited in the order of a scan" if space.scans else None


FLAT = Schedule(
    name="flat",
    fits=lambda space, layouts: "elements need reductions of their rows" if space.rows else _ordered(space),
    cost=_flat_cost,
    draft=group_kernel,
)
ROWS = Schedule(
    name="rows",
    fits=lambda space, layouts: _ordered(space) if space.rows else "no element needs a reduction of its row",
    cost=_rows_cost,
    draft=group_kernel,
)
