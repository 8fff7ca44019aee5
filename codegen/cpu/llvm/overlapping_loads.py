"""Combine overlapping loads of a row in a vector loop, as in a stencil.

A vector load that is not aligned to the vector's size touches two cache lines if a vector is a line long. So of the loads of
one row, only the one with the highest index is emitted; loads that begin less than a vector before it are shuffled from it and
the vector that the previous iteration loaded. Nothing is read that the loop would not read anyway.

This applies only to memory that the kernel never writes, and to vectors of one cache line: shorter ones rarely touch two
lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.llvm.addresses import Addresses
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, stored, vector_of
from pullback.codegen.cpu.llvm.streaming import LINE
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Load, Prefetch

MOST_ROWS = 12
"""Largest number of vectors carried from one iteration to the next."""

Position = tuple[frozenset[tuple[Value, int]], int]
"""A position as a sum: values, each with its coefficient, and a constant."""


def read_only(kernel: Function) -> frozenset[Value]:
    """Return the parameters of a kernel that are only loaded or prefetched."""
    other = {
        value
        for i in walk(kernel.body)
        for position, value in enumerate(i.operands)
        if position or not isinstance(i.op, Load | Prefetch)
    }
    return frozenset(kernel.parameters) - other


@dataclass(frozen=True, eq=False)
class Row:
    """Overlapping loads of one row.

    ``before``: for each load, its distance in elements before the highest one. ``slot``: the stack slot of the previous
    vector.
    """

    highest: Instruction
    distances: dict[Instruction, int]
    slot: str


class Rows:
    """The overlapping loads of a vector loop; ``run`` emits its iterations without masks."""

    def __init__(self, e: FunctionWriter, region: Block, addresses: Addresses) -> None:
        self.e, self.addresses = e, addresses
        self.current: dict[Row, tuple[str, str]] = {}
        self.row_by_load: dict[Instruction, Row] = {}
        loads_by_row: dict[Any, list[tuple[int, Instruction]]] = {}
        for i in region.instructions:
            if isinstance(i.op, Load) and not i.op.masked and i in addresses.first and self.is_line(i):
                ref, index = ref_and_index(i)
                coefficients, offset = self.position(index[-1])
                loads_by_row.setdefault((ref, *index[:-1], coefficients), []).append((offset, i))
        rows = [row for loads in loads_by_row.values() for row in self.overlapping(loads)]
        for row in rows if len(rows) <= MOST_ROWS else ():
            self.row_by_load.update(dict.fromkeys(row.distances, row))

    def is_line(self, i: Instruction) -> bool:
        """Return whether a load reads one cache line of read-only memory."""
        ref, e = i.operands[0], self.e
        dtype = ref.type.dtype
        return ref in e.read_only and not dtype.is_bool and dtype.bytes * e.width == LINE

    def position(self, value: Value) -> Position:
        """Return a position of the loop's body as a sum."""
        producer, bound = self.addresses.producer.get(value), self.e.env.get(value)
        literal = bound.literal if bound is not None else None
        if producer is not None and isinstance(producer.op, Constant):
            literal = int(producer.params["value"])
        if literal is not None:
            return frozenset(), literal
        if producer is None or producer.op.name not in ("add", "sub"):
            return frozenset({(value, 1)}), 0
        sign = 1 if producer.op.name == "add" else -1
        (left, a), (right, b) = map(self.position, producer.operands)
        coefficients = dict(left)
        for v, times in right:
            coefficients[v] = coefficients.get(v, 0) + sign * times
        return frozenset((v, times) for v, times in coefficients.items() if times), a + sign * b

    def overlapping(self, loads: Sequence[tuple[int, Instruction]]) -> list[Row]:
        """Group loads of a row whose starts differ by less than a vector, from the highest index down."""
        rows: list[Row] = []
        left = sorted(loads, key=lambda load: -load[0])
        while left:
            highest, first = left[0]
            distances = {i: highest - offset for offset, i in left if highest - offset < self.e.width}
            if len(set(distances.values())) > 1:
                rows.append(Row(first, distances, self.e.slot(self.type_of(first))))
            left = left[len(distances) :]
        return rows

    def run(self, slot: str, limit: str, body: Callable[[], None]) -> None:
        """Emit ``body``, which runs iterations from the counter in ``slot`` up to ``limit``, after loading the first previous
        vectors."""
        e = self.e
        if not self.row_by_load:
            body()
            return
        index = e.let(f"load i64, ptr {slot}")
        with e.when(e.let(f"icmp slt i64 {index}, {limit}")):
            for row in dict.fromkeys(self.row_by_load.values()):
                self.begin(row, index)
            e.rows = self
            body()
            e.rows = None

    def begin(self, row: Row, index: str) -> None:
        """Initialise the previous vector of a row: the first iteration needs the lanes from the lowest load on."""
        e, t = self.e, self.type_of(row.highest)
        lowest, distance = max(row.distances.items(), key=lambda load: load[1])
        name = stored(lowest.operands[0].type.dtype)
        at = e.let(f"getelementptr {name}, ptr {self.addresses.first[lowest]}, i64 {index}")
        loaded = e.let(f"load {t}, ptr {at}, align {lowest.operands[0].type.dtype.bytes}")
        shuffled = self.shuffled(t, loaded, loaded, e.width - distance)
        e.line(f"store {t} {shuffled}, ptr {row.slot}")

    def load(self, i: Instruction) -> Lanes:
        """Emit a load of a row."""
        e, row = self.e, self.row_by_load[i]
        if row not in self.current:
            memref = e.memrefs[row.highest.operands[0]]
            pointer = e.contiguous_address(memref, *e.bases[row.highest])
            current = e.load_contiguous(memref, pointer, None, prefetches=row.highest not in e.repeated).text
            self.current[row] = e.let(f"load {self.type_of(i)}, ptr {row.slot}"), current
        (before, current), distance = self.current[row], row.distances[i]
        return Lanes(self.shuffled(self.type_of(i), before, current, distance) if distance else current, None)

    def shuffled(self, t: str, before: str, current: str, distance: int) -> str:
        """Return the vector that begins ``far`` elements before the current one, from it and the previous one."""
        width = self.e.width
        lanes = ", ".join(f"i32 {width - distance + k}" for k in range(width))
        return self.e.let(f"shufflevector {t} {before}, {t} {current}, <{width} x i32> <{lanes}>")

    def keep(self) -> None:
        """Store the vectors of this iteration, or part of one, as the previous ones."""
        for row, (_, current) in self.current.items():
            self.e.line(f"store {self.type_of(row.highest)} {current}, ptr {row.slot}")
        self.current.clear()

    def type_of(self, i: Instruction) -> str:
        """Return the vector type of a load."""
        dtype: DType = i.operands[0].type.dtype
        return vector_of(stored(dtype), self.e.width)
