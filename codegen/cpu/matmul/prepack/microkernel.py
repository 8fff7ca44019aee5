"""Build the microkernel of a matrix product whose right operand is prepacked and whose left operand is read in place, row by
row.

A broadcast load may read from anywhere, so packing a few rows for it gains nothing. Accumulators stay in registers through a K
block.
"""

from __future__ import annotations

import functools

from pullback.codegen.cpu.loops.nest_builder import constant, floor_div, serial, when
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED

PREFETCH_DISTANCE = 16
"""K iterations by which a panel is prefetched from L2 into L1."""
K_UNROLL = 4
"""K iterations unrolled, so that row addresses are not computed for each."""
VECTORS = 2
SHORT_ROWS = 4
"""Rows of the short microkernel, which serves the remaining rows; a product with fewer rows is not prepacked."""


@dataclass(frozen=True)
class PrepackedMicrokernel:
    """The microkernel of ``rows`` rows by two vectors of a dtype. Parameters of the function: the left rows and their stride;
    the packed panel; the K extent; whether sums are stored or added, the factor by which they are multiplied, their target
    with its row stride, and the column count."""

    dtype: DType
    rows: int
    lanes: int
    has_fma: bool

    @property
    def columns(self) -> int:
        return VECTORS * self.lanes

    @property
    def k_unroll(self) -> int:
        """K iterations unrolled."""
        return K_UNROLL if self.rows > SHORT_ROWS else 1

    @property
    def name(self) -> str:
        return f"rows_{self.dtype.name}_{self.rows}x{self.columns}"

    def define(self) -> Instruction:
        """Return the definition, which stands at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *arguments: Value) -> None:
        b.emit(OPS["call"], arguments, {"function": self.name})

    def function(self) -> Block:
        row = RefType(self.dtype, (UNBOUNDED,))
        types: dict[str, Type] = {
            "left": row, "apart": scalar(I64), "panel": row, "count": scalar(I64), "is_first": scalar(BOOL),
            "scale": scalar(self.dtype), "to": row, "to_apart": scalar(I64), "width": scalar(I64),
        }  # fmt: skip
        values = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        zero = constant(b, 0)
        left = b.emit(OPS["ref_at"], (values["left"], zero, values["apart"]), {})[0]
        sums = b.emit(OPS["ref_at"], (values["to"], zero, values["to_apart"]), {})[0]
        inner, lane = Builder(), Value(scalar(I64), "v")
        self.body(inner, lane, values, left, sums)
        params = {"map": "vector", "multiple": self.lanes}
        b.emit(OPS["for"], (constant(b, self.lanes),), params, [inner.block([lane], [])])
        return b.block(list(values.values()), [])

    def body(self, b: Builder, lane: Value, values: dict[str, Value], left: Value, sums: Value) -> None:
        """Emit the work of one lane."""
        lanes = [lane, *(b.add(lane, constant(b, x * self.lanes)) for x in range(1, VECTORS))]
        rows = [constant(b, r) for r in range(self.rows)]
        positions = [(row, column, b.lt(column, values["width"])) for row in rows for column in lanes]

        def ask(b: Builder, r: Value) -> None:
            for x in lanes:
                b.prefetch(sums, r, x, into_l1=True)

        serial(b, constant(b, self.rows), ask)
        zero, zero_at, scale = b.const(0.0, self.dtype), constant(b, 0), values["scale"]
        unrolled = floor_div(b, values["count"], self.k_unroll) if self.k_unroll > 1 else zero_at
        done = b.mul(unrolled, constant(b, self.k_unroll))
        counts = (unrolled, zero_at, self.k_unroll), (b.sub(values["count"], done), done, 1)
        totals = [zero] * len(positions)
        for count, first, step in counts[self.k_unroll == 1 :]:
            terms = self.k_loop_body(b, lanes, (values["panel"], left), first, step)
            totals = list(b.emit(OPS["for"], (count, *totals), {"map": "serial"}, [terms]))

        def put(b: Builder) -> None:
            for (row, column, mask), total in zip(positions, totals, strict=True):
                b.store_if(b.mul(total, scale), sums, mask, row, column)

        def add(b: Builder) -> None:
            for (row, column, mask), total in zip(positions, totals, strict=True):
                before = b.load_if(sums, mask, row, column)
                b.store_if(self.multiply_add(b, total, scale, before), sums, mask, row, column)

        when(b, values["is_first"], put)
        when(b, b.bitnot(values["is_first"]), add)

    def k_loop_body(self, b: Builder, lanes: list[Value], refs: tuple[Value, Value], first: Value, count: int) -> Block:
        """Build the body of the K loop, ``count`` iterations at a time from ``first`` on."""
        panel, left = refs
        step, q = Builder(b.loc), Value(scalar(I64), "q")
        sums = before = [Value(scalar(self.dtype), "sum") for _ in range(self.rows * VECTORS)]
        start = step.add(step.mul(q, constant(step, count)), first)
        for k in range(count):
            p = step.add(start, constant(step, k)) if k else start
            column = step.mul(p, constant(step, self.columns))
            right = [step.load(panel, step.add(column, lane)) for lane in lanes]
            after = []
            for r in range(self.rows):
                x = step.load(left, constant(step, r), p)
                after += [self.multiply_add(step, x, y, sums[r * VECTORS + k]) for k, y in enumerate(right)]
            sums = after
            for lane in lanes:
                step.prefetch(
                    panel, step.add(step.add(column, constant(step, PREFETCH_DISTANCE * self.columns)), lane), into_l1=True
                )
        return step.block([q, *before], sums)

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        """Emit ``x * y + z``, fused where the machine has FMA."""
        total: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return total


def microkernels(dtype: DType, target: Target) -> tuple[PrepackedMicrokernel, PrepackedMicrokernel]:
    """Return the tall and the short microkernel of a dtype on a machine."""
    lanes = max(1, target.vector_bytes // dtype.bytes)
    tall = 8 if target.vector_bytes == 64 else 6 if target.has_fma else SHORT_ROWS
    return PrepackedMicrokernel(dtype, tall, lanes, target.has_fma), PrepackedMicrokernel(
        dtype, SHORT_ROWS, lanes, target.has_fma
    )


@functools.cache
def _function(tile: PrepackedMicrokernel) -> Block:
    return tile.function()
