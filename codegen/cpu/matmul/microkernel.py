"""Build the microkernel of a matrix product: accumulators stay in registers while two packed panels are multiplied over a K
block.

It is a function shared by all kernels whose products have one dtype. It accesses only packed panels, their marks
(``subnormals``) and rows of memory passed to it, so kernels are compiled without it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import ceil_div, constant, serial, when
from pullback.codegen.cpu.matmul.blocking import LINE, Blocking
from pullback.codegen.cpu.matmul.subnormals import MARKS, Scales
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED

PREFETCH_DISTANCE = 16
"""K iterations by which the microkernel prefetches the panel of the right operand from L2 into L1 on its first use."""
PrefetchStreams = Sequence[tuple[str, str]]
"""Addresses prefetched by each iteration: parameters of the microkernel for the reference and for the stride between
iterations."""
STREAMS = (("ahead", "along"), ("beside", "by"))
"""The two prefetch streams of a microkernel."""


def streams_of(passes: int) -> list[PrefetchStreams]:
    """Return the prefetch streams of each pass."""
    return [STREAMS] if passes == 1 else [STREAMS[:1], STREAMS[1:], *[()] * (passes - 2)]


@dataclass(frozen=True)
class Microkernel:
    """The microkernel of a dtype. ``low``: rows of a short one, which has accumulators for that many rows of a panel only.

    Parameters: the packed panels, of which the first is the left one, and their marks; the position of the right panel and the
    K extent; whether this is the first K block; the sums of earlier K blocks and the target of the new sums, each with its row
    stride; two prefetch addresses with their stride per iteration.
    """

    dtype: DType
    shape: Blocking
    has_fma: bool
    short: int = 0

    @property
    def name(self) -> str:
        return f"tile_{self.dtype.name}_{self.shape.rows}x{self.shape.columns}{f'_low{self.short}' * bool(self.short)}"

    @property
    def row_count(self) -> int:
        """Rows of the panel that have accumulators."""
        return self.short or self.shape.rows

    def define(self) -> Instruction:
        """Return the definition, which stands at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *arguments: Value) -> None:
        """Emit a call."""
        b.emit(OPS["call"], arguments, {"function": self.name})

    def function(self) -> Block:
        """Build the body of the function."""
        shape, row = self.shape, RefType(self.dtype, (UNBOUNDED,))
        types: dict[str, Type] = {
            "panels": RefType(self.dtype, (shape.max_column_panels + 1, shape.panel_stride), space="stack"),
            "known": RefType(I64, (shape.max_column_panels + 1, MARKS), space="stack"),
            "k": scalar(I64), "count": scalar(I64), "is_first": scalar(BOOL), "sums": row, "distance": scalar(I64),
            "to": row, "apart": scalar(I64), "ahead": row, "along": scalar(I64),
            "beside": row, "by": scalar(I64),
        }  # fmt: skip
        values = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        panels, count, k = values["panels"], values["count"], values["k"]
        sizes = b.mul(count, constant(b, shape.rows * shape.planes)), b.mul(count, constant(b, shape.columns * shape.planes))
        scale = Scales.of_shape(self.dtype, shape).rescale(b, panels, values["known"], k, sizes)
        values |= self.rows_of_sums(b, values)
        values |= {"left": b.subview(panels, constant(b, 0)), "right": b.subview(panels, k), "scale": scale}
        lanes, lane = Builder(), Value(scalar(I64), "v")
        self.body(lanes, lane, values)
        params = {"map": "vector", "multiple": shape.lanes}
        b.emit(OPS["for"], (constant(b, shape.lanes),), params, [lanes.block([lane], [])])
        return b.block(list(values.values())[: len(types)], [])

    def rows_of_sums(self, b: Builder, values: dict[str, Value]) -> dict[str, Value]:
        """Return references to the rows of the earlier sums ("before") and of the target ("after")."""
        zero, targets = constant(b, 0), (("before", "sums", "distance"), ("after", "to", "apart"))
        return {name: b.emit(OPS["ref_at"], (values[ref], zero, values[stride]), {})[0] for name, ref, stride in targets}

    def body(self, b: Builder, lane: Value, values: dict[str, Value]) -> None:
        """Emit the work of one lane."""
        shape, to = self.shape, values["after"]
        lanes = [lane, *(b.add(lane, constant(b, x * shape.lanes)) for x in range(1, shape.vectors))]

        def ask(b: Builder, r: Value) -> None:
            for x in lanes:
                b.prefetch(to, r, x, into_l1=True)

        serial(b, constant(b, self.row_count), ask)
        passes = shape.passes(self.row_count)
        for rows, streams in zip(passes, streams_of(len(passes)), strict=True):
            self.one_pass(b, lanes, rows, streams, values)

    def one_pass(self, b: Builder, lanes: list[Value], some: range, streams: PrefetchStreams, values: dict[str, Value]) -> None:
        """Emit one pass: the rows ``some``, whose accumulators are in registers."""
        sums, to, scale = values["before"], values["after"], values["scale"]
        rows = [constant(b, r) for r in some]
        positions = [(row, x) for row in rows for x in lanes]
        zero, body = b.const(0.0, self.dtype), self.k_loop_body(b, lanes, some, streams, values)
        totals = b.emit(
            OPS["for"], (ceil_div(b, values["count"], self.shape.k_unroll), *[zero] * len(positions)), {"map": "serial"}, [body]
        )

        def put(b: Builder) -> None:
            for position, total in zip(positions, totals, strict=True):
                b.store(b.mul(total, scale), to, *position)

        def add(b: Builder) -> None:
            before = [b.load(sums, *position) for position in positions]
            after = [self.multiply_add(b, t, scale, s) for t, s in zip(totals, before, strict=True)]
            for position, total in zip(positions, after, strict=True):
                b.store(total, to, *position)

        when(b, values["is_first"], put)
        when(b, b.bitnot(values["is_first"]), add)

    def k_loop_body(
        self, b: Builder, lanes: list[Value], rows: range, streams: PrefetchStreams, values: dict[str, Value]
    ) -> Block:
        """Build the body of the K loop, unrolled; iterations behind the end read zeros."""
        shape, panel = self.shape, values["right"]
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = sums = [Value(scalar(self.dtype), "sum") for _ in range(len(rows) * shape.vectors)]
        row, column = (step.mul(p, constant(step, shape.k_unroll * size)) for size in (shape.rows, shape.columns))
        for k in range(shape.k_unroll):
            first = step.add(column, constant(step, k * shape.columns)) if k else column
            right = [step.load(panel, step.add(first, lane)) for lane in lanes]
            after = []
            for r in rows:
                left = step.load(values["left"], step.add(row, constant(step, k * shape.rows + r)))
                first_sum = (r - rows.start) * shape.vectors
                after += [self.multiply_add(step, left, right[x], sums[first_sum + x]) for x in range(shape.vectors)]
            sums = after
            if not rows.start:
                step.prefetch(
                    panel, step.add(step.add(first, constant(step, PREFETCH_DISTANCE * shape.columns)), lanes[0]), into_l1=True
                )
        self.prefetch_streams(step, p, lanes[0], streams, values)
        return step.block([p, *before], sums)

    @property
    def prefetched_elements(self) -> int:
        """Elements prefetched from each stream per loop iteration: half of the bytes that the iteration reads of the right
        panel, in whole cache lines."""
        line = LINE // self.dtype.bytes
        return -(-self.shape.k_unroll * self.shape.columns * self.shape.planes // line // 2) * line

    def prefetch_streams(self, b: Builder, p: Value, lane: Value, streams: PrefetchStreams, values: dict[str, Value]) -> None:
        """Emit the prefetches of an iteration."""
        for ref, by in streams:
            first = b.add(b.mul(p, values[by]), lane)
            for k in range(0, self.prefetched_elements, LINE // self.dtype.bytes):
                b.prefetch(values[ref], b.add(first, constant(b, k)) if k else first)

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        """Emit ``x * y + z``, fused where the machine has FMA."""
        total: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return total


@functools.cache
def _function(tile: Microkernel) -> Block:
    return tile.function()
