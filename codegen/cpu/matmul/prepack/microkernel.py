"""The tile of a matrix product whose right operand was packed before, and whose left one is read as it lies, row by row.

What a processor loads for all lanes at once may lie anywhere, so nothing is gained by packing a few rows for it. Sums stay in
registers from the first term of a run to its last.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import number, serial, when, whole
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR

NEXT = 16
"""So many terms ahead a panel is asked for, from the second cache into the first."""
SEVERAL = 4
"""So many terms are written out: where a row is need not be computed for each."""
VECTORS = 2
LOW = 4
"""The rows of tiles for the rows that are left, and the fewest that a product may have."""


@dataclass(frozen=True)
class RowsTile:
    """A tile of so many rows by two vectors of a dtype. Parameters of its function: the left rows, how far apart they lie; the
    packed panel; how many terms; whether sums are put or added, what they are multiplied by, where they go, how far apart rows
    are there, and how many columns there are."""

    dtype: DType
    rows: int
    lanes: int
    has_fma: bool

    @property
    def columns(self) -> int:
        return VECTORS * self.lanes

    @property
    def several(self) -> int:
        """How many terms are written out."""
        return SEVERAL if self.rows > LOW else 1

    @property
    def name(self) -> str:
        return f"rows_{self.dtype.name}_{self.rows}x{self.columns}"

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *given: Value) -> None:
        b.emit(OPS["call"], given, {"function": self.name})

    def function(self) -> Block:
        row = RefType(self.dtype, (FAR,))
        types: dict[str, Type] = {
            "left": row, "apart": scalar(I64), "panel": row, "count": scalar(I64), "is_first": scalar(BOOL),
            "scale": scalar(self.dtype), "to": row, "to_apart": scalar(I64), "width": scalar(I64),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        zero = number(b, 0)
        left = b.emit(OPS["ref_at"], (given["left"], zero, given["apart"]), {})[0]
        sums = b.emit(OPS["ref_at"], (given["to"], zero, given["to_apart"]), {})[0]
        inner, lane = Builder(), Value(scalar(I64), "v")
        self.body(inner, lane, given, left, sums)
        params = {"map": "vector", "multiple": self.lanes}
        b.emit(OPS["for"], (number(b, self.lanes),), params, [inner.block([lane], [])])
        return b.block(list(given.values()), [])

    def body(self, b: Builder, lane: Value, given: dict[str, Value], left: Value, sums: Value) -> None:
        """What a lane does."""
        lanes = [lane, *(b.add(lane, number(b, x * self.lanes)) for x in range(1, VECTORS))]
        rows = [number(b, r) for r in range(self.rows)]
        at = [(row, place, b.lt(place, given["width"])) for row in rows for place in lanes]

        def ask(b: Builder, r: Value) -> None:
            for x in lanes:
                b.prefetch(sums, r, x, into_l1=True)

        serial(b, number(b, self.rows), ask)
        zero, zero_at, scale = b.const(0.0, self.dtype), number(b, 0), given["scale"]
        several = whole(b, given["count"], self.several) if self.several > 1 else zero_at
        done = b.mul(several, number(b, self.several))
        counts = (several, zero_at, self.several), (b.sub(given["count"], done), done, 1)
        totals = [zero] * len(at)
        for count, first, step in counts[self.several == 1 :]:
            terms = self.terms(b, lanes, (given["panel"], left), first, step)
            totals = list(b.emit(OPS["for"], (count, *totals), {"map": "serial"}, [terms]))

        def put(b: Builder) -> None:
            for (row, place, holds), total in zip(at, totals, strict=True):
                b.store_if(b.mul(total, scale), sums, holds, row, place)

        def add(b: Builder) -> None:
            for (row, place, holds), total in zip(at, totals, strict=True):
                before = b.load_if(sums, holds, row, place)
                b.store_if(self.multiply_add(b, total, scale, before), sums, holds, row, place)

        when(b, given["is_first"], put)
        when(b, b.bitnot(given["is_first"]), add)

    def terms(self, b: Builder, lanes: list[Value], refs: tuple[Value, Value], first: Value, count: int) -> Block:
        """So many terms of all sums, from a first one on."""
        panel, left = refs
        step, q = Builder(b.loc), Value(scalar(I64), "q")
        sums = before = [Value(scalar(self.dtype), "sum") for _ in range(self.rows * VECTORS)]
        start = step.add(step.mul(q, number(step, count)), first)
        for k in range(count):
            p = step.add(start, number(step, k)) if k else start
            column = step.mul(p, number(step, self.columns))
            right = [step.load(panel, step.add(column, lane)) for lane in lanes]
            after = []
            for r in range(self.rows):
                x = step.load(left, number(step, r), p)
                after += [self.multiply_add(step, x, y, sums[r * VECTORS + k]) for k, y in enumerate(right)]
            sums = after
            for lane in lanes:
                step.prefetch(panel, step.add(step.add(column, number(step, NEXT * self.columns)), lane), into_l1=True)
        return step.block([q, *before], sums)

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found


def tiles(dtype: DType, target: Target) -> tuple[RowsTile, RowsTile]:
    """The tiles of products of a dtype on a machine: the tall one and the low one."""
    lanes = max(1, target.vector_bytes // dtype.bytes)
    tall = 8 if target.vector_bytes == 64 else 6 if target.has_fma else LOW
    return RowsTile(dtype, tall, lanes, target.has_fma), RowsTile(dtype, LOW, lanes, target.has_fma)


@functools.cache
def _function(tile: RowsTile) -> Block:
    return tile.function()
