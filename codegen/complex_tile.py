"""The tile of products of complex numbers: two sums for each element, which go where their parts are side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.product_parts import number, when
from pullback.codegen.product_shapes import LINE
from pullback.codegen.product_tile import NEXT, Asked, Tile, asked_in
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.structure import Block, Value
from pullback.ir.types import COMPLEX_OF, I64, scalar

PARTS = (0, 1)


@dataclass(frozen=True)
class ComplexTile(Tile):
    """The sums of a row are its real parts, then the imaginary ones, vector by vector."""

    @property
    def name(self) -> str:
        return f"tile_{COMPLEX_OF[self.dtype].name}_{self.shape.rows}x{self.shape.columns}"

    def rows_of_sums(self, b: Builder, given: dict[str, Value]) -> dict[str, Value]:
        two = number(b, 2)
        found: dict[str, Value] = {}
        for name, ref, apart in (("before", "sums", "distance"), ("after", "to", "apart")):
            starts = [b.mul(given[apart], number(b, r)) for r in range(self.shape.rows)]
            found |= {f"{name}{r}": b.emit(OPS["row_ref"], (given[ref], start, two), {})[0] for r, start in enumerate(starts)}
        return found

    def body(self, b: Builder, lane: Value, given: dict[str, Value]) -> None:
        shape = self.shape
        lanes = [lane, *(b.add(lane, number(b, x * shape.lanes)) for x in range(1, shape.vectors))]
        zero = number(b, 0)
        for r in range(shape.rows):
            for c in range(0, shape.columns, LINE // self.dtype.bytes // 2):
                b.prefetch(given[f"after{r}"], number(b, c), zero, near=True)
        passes = shape.passes(self.high)
        for some, asked in zip(passes, asked_in(len(passes)), strict=True):
            self.some_rows(b, lanes, some, asked, given)

    def some_rows(self, b: Builder, lanes: list[Value], some: range, asked: Asked, given: dict[str, Value]) -> None:
        shape, scale, parts = self.shape, given["scale"], [number(b, part) for part in PARTS]
        rows, to = ({r: given[f"{name}{r}"] for r in some} for name in ("before", "after"))
        nothing = b.const(0.0, self.dtype)
        count = 2 * len(some) * shape.vectors
        body = self.term(b, lanes, some, asked, given)
        totals = b.emit(OPS["for"], (given["count"], *[nothing] * count), {"map": "serial"}, [body])
        # part by part beside each other, so that two stores are those of pairs
        order = [(r, x, part) for r in some for x in range(shape.vectors) for part in PARTS]
        at = [(r, lanes[x], parts[part]) for r, x, part in order]
        found = [totals[(2 * (r - some.start) + part) * shape.vectors + x] for r, x, part in order]

        def put(b: Builder, sums: Sequence[Value]) -> None:
            for (r, *place), total in zip(at, sums, strict=True):
                b.store(total, to[r], *place)

        def add(b: Builder) -> None:
            before = [b.load(rows[r], *place) for r, *place in at]
            put(b, [self.multiply_add(b, t, scale, s) for t, s in zip(found, before, strict=True)])

        when(b, given["is_first"], lambda b: put(b, [b.mul(total, scale) for total in found]))
        when(b, b.bitnot(given["is_first"]), add)

    def term(self, b: Builder, lanes: list[Value], rows: range, asked: Asked, given: dict[str, Value]) -> Block:
        shape, panel = self.shape, given["right"]
        vectors, size = shape.vectors, 2 * shape.columns
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(self.dtype), "sum") for _ in range(2 * len(rows) * vectors)]
        row, column = step.mul(p, number(step, 2 * shape.rows)), step.mul(p, number(step, size))
        places = [*lanes, *(step.add(lane, number(step, shape.columns)) for lane in lanes)]
        right = [step.load(panel, step.add(column, place)) for place in places]
        after: list[Value] = []
        for r in rows:
            left = [step.load(given["left"], step.add(row, number(step, 2 * r + part))) for part in PARTS]
            at = 2 * (r - rows.start) * vectors
            after += self.products(step, left, right, before[at : at + 2 * vectors])
        for place in places if not rows.start else ():
            step.prefetch(panel, step.add(step.add(column, number(step, NEXT * size)), place), near=True)
        self.ask_ahead(step, p, lanes[0], asked, given)
        return step.block([p, *before], after)

    def products(self, b: Builder, left: Sequence[Value], right: Sequence[Value], before: Sequence[Value]) -> list[Value]:
        """The sums of a row with the products of its element by those of some columns added."""
        (re, im), half = left, len(right) // 2
        minus, reals, others = b.neg(im), right[:half], right[half:]
        real = [self.multiply_add(b, re, y, z) for y, z in zip(reals, before[:half], strict=True)]
        other = [self.multiply_add(b, re, y, z) for y, z in zip(others, before[half:], strict=True)]
        real = [self.multiply_add(b, minus, y, z) for y, z in zip(others, real, strict=True)]
        return [*real, *(self.multiply_add(b, im, y, z) for y, z in zip(reals, other, strict=True))]
