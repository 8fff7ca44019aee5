"""Elements of a group's values, evaluated on demand at an index: a chain of elementwise ops and reindexing becomes scalar code in
one loop body. The loops around it are a schedule's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.codegen.kernels.builder import KernelBuilder
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Interleave
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import is_strided
from pullback.ir.shapes.extents import product

LEAST = 4
"""The bytes of elements that are turned in registers."""
Key = tuple[Value, tuple[Value, ...], Value | None]


@dataclass(frozen=True, eq=False)
class Out:
    """Where a value is stored: at its index, followed by ``last``, in the memory of ``ref``; ``axis``: before that axis of the
    index instead."""

    ref: Value
    last: tuple[Value, ...] = ()
    axis: int | None = None

    def at(self, index: Sequence[Value]) -> tuple[Value, ...]:
        """The index of an element in memory."""
        axis = len(index) if self.axis is None else self.axis
        return (*index[:axis], *self.last, *index[axis:])


class Elements:
    """The kernel of a group in the making: its parameters, what is stored where, and the scalars at an index known so far."""

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
        self.row_reduces = [
            i
            for i in self.region.instructions
            if isinstance(i.op, Reduce) and self.rows and i.operands[0].type.shape == space.extents[: self.rows]
        ]
        self.elsewhere = self.read_elsewhere()
        self.brought = [v for v, ref in self.refs.items() if space.nears and is_strided(ref) and self.is_matrix(v)]
        self.checks = [i for i in self.region.instructions if isinstance(i.op, Check)]
        self.passes = self.find_passes()

    def read_elsewhere(self) -> set[Value]:
        """The values that something is computed from at another place than theirs."""
        found = set[Value]()
        for i in reversed(self.region.instructions):
            is_here = isinstance(i.op, Elementwise | Check | Reduce) or i.op is broadcast
            if not is_here or (isinstance(i.op, Elementwise) and not found.isdisjoint(i.results)):
                found.update(i.operands)
        return found

    def is_matrix(self, value: Value) -> bool:
        """Whether an operand is read element by element, in order, to be reduced, and rows of it can be brought near."""
        is_whole = self.rank == 2 and value.type.shape == self.space.extents and value not in self.elsewhere
        return is_whole and bool(self.reduces) and value.type.dtype.bytes >= LEAST

    def bring_near(self, *place: Value) -> dict[Value, Value]:
        """Bring some rows of strided matrices near, or a tile of them, which are read there from now on; what they were read from
        before. ``place``: the first row and how many, of a tile the first column and how many, too."""
        before = dict(self.refs)
        for value in self.brought:
            self.refs[value] = self.b.here("stage_rows", self.refs[value], *place)
        return before

    def outs(self, value: Value, ref: Value) -> list[tuple[Value, Out]]:
        """What is stored for a result: itself, or its parts side by side."""
        made = self.producer.get(value)
        if made is None or not isinstance(made.op, Interleave):
            return [(value, Out(ref))]
        axis = made.params.get("axis")
        return [(part, Out(ref, (self.b.const(k, I64),), axis)) for k, part in enumerate(made.operands)]

    def is_row_reduce(self, i: Instruction) -> bool:
        return bool(self.rows) and tuple(i.params["axes"]) == tuple(range(self.rows, self.rank))

    def ends_late(self, value: Value) -> bool:
        """Whether a value of a row's shape is a reduction that adds up in memory."""
        made = self.producer.get(value)
        return made is not None and made in self.reduces and not self.is_row_reduce(made)

    def find_passes(self) -> dict[Value, int]:
        """The pass that computes each value; for a row's value, the first pass that may read it."""
        passes: dict[Value, int] = dict.fromkeys(self.region.parameters, 0)
        for i in self.region.instructions:
            latest = max((passes[v] for v in i.operands), default=0)
            if isinstance(i.op, Reduce) and i in self.reduces and self.is_row_reduce(i):
                latest += 1
            passes.update((v, latest) for v in i.results)
        return passes

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

    def stored_at(self, value: Value, index: tuple[Value, ...]) -> tuple[Out, tuple[Value, ...]] | None:
        """Where an element of a value is that an earlier pass has stored for the present one."""
        return None

    def requires(self, key: Key) -> list[Key]:
        value, index, guard = key
        made = self.producer.get(value)
        if made is None or self.stored_at(value, index) is not None:
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
            operand = made.operands[position]
            read = None if self.is_there(operand, source) else inner
            found.append((operand, tuple(source), condition, read))
        return found

    def is_there(self, value: Value, index: Sequence[Value]) -> bool:
        """Return whether a value has an element at an index wherever the kernel is: the one of a scalar, or of a few. It is read
        under no guard, and so once, before all loops."""
        at = zip(index, value.type.shape, strict=True)
        return all(isinstance(e, int) and 0 <= self.b.numbers.get(v, -1) < e for v, e in at)

    def make(self, key: Key) -> Value:
        value, index, guard = key
        made = self.producer.get(value)
        if made is None:
            return self.load(value, index, guard)
        place = self.stored_at(value, index)
        if place is not None:
            return self.read(*place)
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
        # What loops gave is known under any guard.
        known = self.memo.get((value, index, None))
        if known is not None:
            return known
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
        found: Value = self.b.here("load", out.ref, *out.at(index))
        return found

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

    def ended_values(self) -> set[Value]:
        return {i.result for i in self.reduces}


def wrapped(b: KernelBuilder, position: Value, extent: Value) -> Value:
    """An index into an axis: counted from the end if negative, and kept inside."""
    zero, one = b.const(0, I64), b.const(1, I64)
    moved = b.select(b.lt(position, zero), b.add(position, extent), position)
    found: Value = b.maximum(b.minimum(moved, b.sub(extent, one)), zero)
    return found
