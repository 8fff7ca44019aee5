"""The tile of a matrix product: sums that stay in registers while the terms of two packed panels are multiplied and added.

It is a function that all kernels share whose products have one dtype: it reads and writes nothing but packed panels, what is
known of them, and rows of memory that it is given. So a kernel is compiled without it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.product_pairs import products_of
from pullback.codegen.product_parts import number, when
from pullback.codegen.product_scales import KNOWN, Scales
from pullback.codegen.product_shapes import Shape
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.shared import FAR
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import BOOL, COMPLEX_OF, I64, DType, RefType, Type, scalar

NEXT = 16
"""So many terms ahead a panel of the right operand is asked for, from the second cache into the first."""


@dataclass(frozen=True)
class Tile:
    """The tile of products of a dtype. Its parameters: the packed panels, of which the first one is of rows, and what is known of
    them; which panel of columns, and how many terms; the rows where its sums wait, from which column on, and whether they are put
    there or added; whether they go somewhere else at once, where, and how far apart rows are there; what each term asks for
    meanwhile, and how far behind that of the term before."""

    dtype: DType
    shape: Shape
    has_fma: bool

    @property
    def name(self) -> str:
        dtype = self.dtype if self.shape.planes == 1 else COMPLEX_OF[self.dtype]
        return f"tile_{dtype.name}_{self.shape.rows}x{self.shape.columns}"

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["shared"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *given: Value) -> None:
        b.emit(OPS["call"], given, {"function": self.name})

    def function(self) -> Block:
        shape, row = self.shape, RefType(self.dtype, (FAR,))
        types: dict[str, Type] = {
            "panels": RefType(self.dtype, (shape.most_wide + 1, shape.panel), space="stack"),
            "known": RefType(I64, (shape.most_wide + 1, KNOWN), space="stack"),
            "k": scalar(I64), "count": scalar(I64), "sums": RefType(self.dtype, (shape.high, shape.strip), space="stack"),
            "column": scalar(I64), "is_first": scalar(BOOL), "goes": scalar(BOOL),
            "out": row if shape.planes == 1 else RefType(self.dtype, (FAR, 2)),
            "apart": scalar(I64), "ahead": row, "along": scalar(I64),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        panels, count, k = given["panels"], given["count"], given["k"]
        sizes = b.mul(count, number(b, shape.high)), b.mul(count, number(b, shape.columns * shape.planes))
        scale = Scales(self.dtype, shape.lanes, shape.terms * shape.planes).settle(b, panels, given["known"], k, sizes)
        given |= {"left": b.sub_ref(panels, number(b, 0)), "right": b.sub_ref(panels, k), "scale": scale}
        lanes, lane = Builder(), Value(scalar(I64), "v")
        self.body(lanes, lane, given)
        params = {"map": "vector", "multiple": shape.lanes}
        b.emit(OPS["for"], (number(b, shape.lanes),), params, [lanes.block([lane], [])])
        return b.block(list(given.values())[: len(types)], [])

    def body(self, b: Builder, lane: Value, given: dict[str, Value]) -> None:
        """What a lane does."""
        shape, sums, scale = self.shape, given["sums"], given["scale"]
        lanes = [lane, *(b.add(lane, number(b, x * shape.lanes)) for x in range(1, shape.vectors))]
        places = [(r, x) for r in range(shape.high) for x in range(shape.vectors)]
        rows, columns = [number(b, r) for r in range(shape.high)], [b.add(given["column"], x) for x in lanes]
        waiting = [(rows[r], columns[x]) for r, x in places]

        def ask(b: Builder) -> None:
            for at in waiting:
                b.prefetch(sums, *at, near=True)

        when(b, b.bitnot(given["goes"]), ask)
        zero, body = b.const(0.0, self.dtype), self.term(b, lanes, given)
        totals = b.emit(OPS["for"], (given["count"], *[zero] * len(places)), {"map": "serial"}, [body])

        def go(b: Builder) -> None:
            distant = [b.mul(given["apart"], r) for r in rows[: shape.rows]]
            for r, x in ((r, x) for r in range(shape.rows) for x in range(shape.vectors)):
                sums = [b.mul(totals[(r * shape.planes + k) * shape.vectors + x], scale) for k in range(shape.planes)]
                at = b.add(distant[r], lanes[x])
                for total, part in zip(sums, [()] if shape.planes == 1 else [(rows[k],) for k in range(2)], strict=True):
                    b.store(total, given["out"], at, *part)

        def put(b: Builder) -> None:
            for at, total in zip(waiting, totals, strict=True):
                b.store(b.mul(total, scale), sums, *at)

        def add(b: Builder) -> None:
            before = [b.load(sums, *at) for at in waiting]
            after = [self.multiply_add(b, t, scale, s) for t, s in zip(totals, before, strict=True)]
            for at, total in zip(waiting, after, strict=True):
                b.store(total, sums, *at)

        goes, is_first = given["goes"], given["is_first"]
        when(b, goes, go)
        when(b, b.bitand(is_first, b.bitnot(goes)), put)
        when(b, b.bitnot(is_first), add)

    def term(self, b: Builder, lanes: list[Value], given: dict[str, Value]) -> Block:
        """One term of all sums."""
        shape, panel = self.shape, given["right"]
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(self.dtype), "sum") for _ in range(shape.high * shape.vectors)]
        row, column = (step.mul(p, number(step, size)) for size in (shape.high, shape.columns * shape.planes))
        planes = [lanes, *([step.add(lane, number(step, k * shape.columns)) for lane in lanes] for k in range(1, shape.planes))]
        right = [[step.load(panel, step.add(column, lane)) for lane in plane] for plane in planes]
        after: list[Value] = []
        for r in range(0, shape.high, shape.planes):
            left = [step.load(given["left"], step.add(row, number(step, k))) for k in range(r, r + shape.planes)]
            after += self.terms(step, left, right, before[r * shape.vectors : (r + shape.planes) * shape.vectors])
        numbers = [lane for plane in planes for lane in plane]
        for lane in numbers:
            far = number(step, NEXT * shape.columns * shape.planes)
            step.prefetch(panel, step.add(step.add(column, far), lane), near=True)
        ahead = step.mul(p, given["along"])
        for lane in numbers:
            step.prefetch(given["ahead"], step.add(ahead, lane))
        return step.block([p, *before], after)

    def terms(self, b: Builder, left: list[Value], right: list[list[Value]], before: list[Value]) -> list[Value]:
        """The sums of a row with the products of its element by those of some columns added."""
        if len(left) > 1:
            return products_of(b, self.multiply_add, left, right, before)
        return [self.multiply_add(b, left[0], y, z) for y, z in zip(right[0], before, strict=True)]

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found


@functools.cache
def _function(tile: Tile) -> Block:
    return tile.function()
