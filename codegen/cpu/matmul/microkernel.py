"""The tile of a matrix product: sums that stay in registers while the terms of two packed panels are multiplied and added.

It is a function that all kernels share whose products have one dtype: it reads and writes nothing but packed panels, what is
known of them, and rows of memory that it is given. So a kernel is compiled without it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import number, parts, serial, when
from pullback.codegen.cpu.matmul.blocking import LINE, Shape
from pullback.codegen.cpu.matmul.subnormals import KNOWN, Scales
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR

NEXT = 16
"""So many terms ahead a panel of the right operand is asked for, from the second cache into the first, when it is first read."""
Asked = Sequence[tuple[str, str]]
"""What terms ask for, of the parameters of a tile, and how far behind that of the term before."""
ASKED = (("ahead", "along"), ("beside", "by"))


def asked_in(passes: int) -> list[Asked]:
    """What the terms ask for in each of some passes through the panels of a tile."""
    return [ASKED] if passes == 1 else [ASKED[:1], ASKED[1:], *[()] * (passes - 2)]


@dataclass(frozen=True)
class Tile:
    """The tile of products of a dtype. Its parameters: the packed panels, of which the first one is of rows, and what is known of
    them; which panel of columns, and how many terms; whether these are the first ones; where the sums of those before are, where
    all of them go, and how far apart rows are in both; what each term asks for meanwhile, and how far behind that of the term
    before. A ``low`` one has sums of so many rows of a panel alone."""

    dtype: DType
    shape: Shape
    has_fma: bool
    low: int = 0

    @property
    def name(self) -> str:
        return f"tile_{self.dtype.name}_{self.shape.rows}x{self.shape.columns}{f'_low{self.low}' * bool(self.low)}"

    @property
    def high(self) -> int:
        """How many of a panel's rows it has sums of."""
        return self.low or self.shape.rows

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *given: Value) -> None:
        b.emit(OPS["call"], given, {"function": self.name})

    def function(self) -> Block:
        shape, row = self.shape, RefType(self.dtype, (FAR,))
        types: dict[str, Type] = {
            "panels": RefType(self.dtype, (shape.most_wide + 1, shape.panel), space="stack"),
            "known": RefType(I64, (shape.most_wide + 1, KNOWN), space="stack"),
            "k": scalar(I64), "count": scalar(I64), "is_first": scalar(BOOL), "sums": row, "distance": scalar(I64),
            "to": row, "apart": scalar(I64), "ahead": row, "along": scalar(I64),
            "beside": row, "by": scalar(I64),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        panels, count, k = given["panels"], given["count"], given["k"]
        sizes = b.mul(count, number(b, shape.rows * shape.planes)), b.mul(count, number(b, shape.columns * shape.planes))
        scale = Scales.of_shape(self.dtype, shape).settle(b, panels, given["known"], k, sizes)
        given |= self.rows_of_sums(b, given)
        given |= {"left": b.subview(panels, number(b, 0)), "right": b.subview(panels, k), "scale": scale}
        lanes, lane = Builder(), Value(scalar(I64), "v")
        self.body(lanes, lane, given)
        params = {"map": "vector", "multiple": shape.lanes}
        b.emit(OPS["for"], (number(b, shape.lanes),), params, [lanes.block([lane], [])])
        return b.block(list(given.values())[: len(types)], [])

    def rows_of_sums(self, b: Builder, given: dict[str, Value]) -> dict[str, Value]:
        """Where sums are, and where they go."""
        zero, ways = number(b, 0), (("before", "sums", "distance"), ("after", "to", "apart"))
        return {name: b.emit(OPS["ref_at"], (given[ref], zero, given[apart]), {})[0] for name, ref, apart in ways}

    def body(self, b: Builder, lane: Value, given: dict[str, Value]) -> None:
        """What a lane does."""
        shape, to = self.shape, given["after"]
        lanes = [lane, *(b.add(lane, number(b, x * shape.lanes)) for x in range(1, shape.vectors))]

        def ask(b: Builder, r: Value) -> None:
            for x in lanes:
                b.prefetch(to, r, x, into_l1=True)

        serial(b, number(b, self.high), ask)
        passes = shape.passes(self.high)
        for rows, asked in zip(passes, asked_in(len(passes)), strict=True):
            self.some_rows(b, lanes, rows, asked, given)

    def some_rows(self, b: Builder, lanes: list[Value], some: range, asked: Asked, given: dict[str, Value]) -> None:
        """The sums of some rows, which are in registers."""
        sums, to, scale = given["before"], given["after"], given["scale"]
        rows = [number(b, r) for r in some]
        at = [(row, x) for row in rows for x in lanes]
        zero, body = b.const(0.0, self.dtype), self.term(b, lanes, some, asked, given)
        totals = b.emit(OPS["for"], (parts(b, given["count"], self.shape.at_once), *[zero] * len(at)), {"map": "serial"}, [body])

        def put(b: Builder) -> None:
            for place, total in zip(at, totals, strict=True):
                b.store(b.mul(total, scale), to, *place)

        def add(b: Builder) -> None:
            before = [b.load(sums, *place) for place in at]
            after = [self.multiply_add(b, t, scale, s) for t, s in zip(totals, before, strict=True)]
            for place, total in zip(at, after, strict=True):
                b.store(total, to, *place)

        when(b, given["is_first"], put)
        when(b, b.bitnot(given["is_first"]), add)

    def term(self, b: Builder, lanes: list[Value], rows: range, asked: Asked, given: dict[str, Value]) -> Block:
        """Some terms of the sums of some rows: behind the last one are zeros."""
        shape, panel = self.shape, given["right"]
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = sums = [Value(scalar(self.dtype), "sum") for _ in range(len(rows) * shape.vectors)]
        row, column = (step.mul(p, number(step, shape.at_once * size)) for size in (shape.rows, shape.columns))
        for k in range(shape.at_once):
            first = step.add(column, number(step, k * shape.columns)) if k else column
            right = [step.load(panel, step.add(first, lane)) for lane in lanes]
            after = []
            for r in rows:
                left = step.load(given["left"], step.add(row, number(step, k * shape.rows + r)))
                at = (r - rows.start) * shape.vectors
                after += [self.multiply_add(step, left, right[x], sums[at + x]) for x in range(shape.vectors)]
            sums = after
            if not rows.start:
                step.prefetch(panel, step.add(step.add(first, number(step, NEXT * shape.columns)), lanes[0]), into_l1=True)
        self.ask_ahead(step, p, lanes[0], asked, given)
        return step.block([p, *before], sums)

    @property
    def asked(self) -> int:
        """So many numbers of each of two places are asked for with some terms: half of what these have of a panel of columns."""
        line = LINE // self.dtype.bytes
        return -(-self.shape.at_once * self.shape.columns * self.shape.planes // line // 2) * line

    def ask_ahead(self, b: Builder, p: Value, lane: Value, asked: Asked, given: dict[str, Value]) -> None:
        """What some terms ask for beside the panel of columns."""
        for ref, by in asked:
            first = b.add(b.mul(p, given[by]), lane)
            for k in range(0, self.asked, LINE // self.dtype.bytes):
                b.prefetch(given[ref], b.add(first, number(b, k)) if k else first)

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found


@functools.cache
def _function(tile: Tile) -> Block:
    return tile.function()
