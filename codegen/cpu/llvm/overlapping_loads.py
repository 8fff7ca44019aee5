"""Rows that a vector loop reads at several places beside each other, in emitted LLVM code.

A vector that begins beside a multiple of its size lies in two lines of the caches, and a processor with vectors of a line reads
both. So neighbours in a row are read once: the vector that begins at the highest of the places is loaded, and those that begin up
to its size before are put together from it and the one that the iteration before has loaded. Nothing is read that the loop
would not read anyway.

Only of memory that the kernel never writes, and where a vector is a line: those of half a line rarely lie in two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.llvm.addresses import Addresses
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, stored, wide
from pullback.codegen.cpu.llvm.streaming import LINE
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Load, Prefetch

MOST_ROWS = 12
"""So many vectors an iteration may hand to the next one."""

Position = tuple[frozenset[tuple[Value, int]], int]
"""A position as a sum: values, each with how often it is added, and a number."""


def read_only(kernel: Function) -> frozenset[Value]:
    """The parameters that a kernel loads elements of and does nothing else with."""
    other = {
        value
        for i in walk(kernel.body)
        for position, value in enumerate(i.operands)
        if position or not isinstance(i.op, Load | Prefetch)
    }
    return frozenset(kernel.parameters) - other


@dataclass(frozen=True, eq=False)
class Row:
    """Loads of one row, by how many elements before the highest one each begins. ``slot``: the vector before the present one."""

    highest: Instruction
    before: dict[Instruction, int]
    slot: str


class Rows:
    """The rows of a vector loop; those of its iterations that run without a mask go through ``run``."""

    def __init__(self, e: FunctionWriter, region: Block, addresses: Addresses) -> None:
        self.e, self.addresses = e, addresses
        self.current: dict[Row, tuple[str, str]] = {}
        self.of: dict[Instruction, Row] = {}
        found: dict[Any, list[tuple[int, Instruction]]] = {}
        for i in region.instructions:
            if isinstance(i.op, Load) and not i.op.masked and i in addresses.first and self.is_line(i):
                ref, index = ref_and_index(i)
                terms, number = self.position(index[-1])
                found.setdefault((ref, *index[:-1], terms), []).append((number, i))
        rows = [row for loads in found.values() for row in self.clusters(loads)]
        for row in rows if len(rows) <= MOST_ROWS else ():
            self.of.update(dict.fromkeys(row.before, row))

    def is_line(self, i: Instruction) -> bool:
        """Whether a load is of a line of memory that stays as it is."""
        ref, e = i.operands[0], self.e
        dtype = ref.type.dtype
        return ref in e.read_only and not dtype.is_bool and dtype.bytes * e.width == LINE

    def position(self, value: Value) -> Position:
        """A position of the loop's body as a sum."""
        made, known = self.addresses.producer.get(value), self.e.env.get(value)
        literal = known.literal if known is not None else None
        if made is not None and isinstance(made.op, Constant):
            literal = int(made.params["value"])
        if literal is not None:
            return frozenset(), literal
        if made is None or made.op.name not in ("add", "sub"):
            return frozenset({(value, 1)}), 0
        sign = 1 if made.op.name == "add" else -1
        (left, a), (right, b) = map(self.position, made.operands)
        terms = dict(left)
        for v, times in right:
            terms[v] = terms.get(v, 0) + sign * times
        return frozenset((v, times) for v, times in terms.items() if times), a + sign * b

    def clusters(self, loads: Sequence[tuple[int, Instruction]]) -> list[Row]:
        """Rows of places no further apart than a vector is long, from the highest down."""
        rows: list[Row] = []
        left = sorted(loads, key=lambda load: -load[0])
        while left:
            high, first = left[0]
            near = {i: high - number for number, i in left if high - number < self.e.width}
            if len(set(near.values())) > 1:
                rows.append(Row(first, near, self.e.slot(self.type_of(first))))
            left = left[len(near) :]
        return rows

    def run(self, slot: str, limit: str, body: Callable[[], None]) -> None:
        """Iterations from the number in a slot up to a limit."""
        e = self.e
        if not self.of:
            body()
            return
        index = e.let(f"load i64, ptr {slot}")
        with e.when(e.let(f"icmp slt i64 {index}, {limit}")):
            for row in dict.fromkeys(self.of.values()):
                self.begin(row, index)
            e.rows = self
            body()
            e.rows = None

    def begin(self, row: Row, index: str) -> None:
        """What the first iteration needs of the vector before its own: the lowest load has it, in front."""
        e, t = self.e, self.type_of(row.highest)
        lowest, far = max(row.before.items(), key=lambda load: load[1])
        name = stored(lowest.operands[0].type.dtype)
        at = e.let(f"getelementptr {name}, ptr {self.addresses.first[lowest]}, i64 {index}")
        loaded = e.let(f"load {t}, ptr {at}, align {lowest.operands[0].type.dtype.bytes}")
        turned = self.shuffled(t, loaded, loaded, e.width - far)
        e.line(f"store {t} {turned}, ptr {row.slot}")

    def load(self, i: Instruction) -> Lanes:
        """A load of a row, in an iteration."""
        e, row = self.e, self.of[i]
        if row not in self.current:
            place = e.places[row.highest.operands[0]]
            pointer = e.beside(place, *e.bases[row.highest])
            here = e.load_line(place, pointer, None, asks=row.highest not in e.again).text
            self.current[row] = e.let(f"load {self.type_of(i)}, ptr {row.slot}"), here
        (before, here), far = self.current[row], row.before[i]
        return Lanes(self.shuffled(self.type_of(i), before, here, far) if far else here, None)

    def shuffled(self, t: str, before: str, here: str, far: int) -> str:
        """The vector that begins so many elements before one that another is before."""
        width = self.e.width
        lanes = ", ".join(f"i32 {width - far + k}" for k in range(width))
        return self.e.let(f"shufflevector {t} {before}, {t} {here}, <{width} x i32> <{lanes}>")

    def keep(self) -> None:
        """After an iteration, or a part of one: its vectors are those before."""
        for row, (_, here) in self.current.items():
            self.e.line(f"store {self.type_of(row.highest)} {here}, ptr {row.slot}")
        self.current.clear()

    def type_of(self, i: Instruction) -> str:
        dtype: DType = i.operands[0].type.dtype
        return wide(stored(dtype), self.e.width)
