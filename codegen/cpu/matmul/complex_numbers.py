"""Writes the microkernel of products of complex numbers, and says which of them access memory contiguously.

The microkernel has two sums for each element, which are stored beside each other as its parts are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import Rows, number, when
from pullback.codegen.cpu.matmul.blocking import LINE
from pullback.codegen.cpu.matmul.microkernel import NEXT, Asked, Tile, asked_in
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block
from pullback.ir.core.types import COMPLEX_OF, I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Load, Store

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
            found |= {f"{name}{r}": b.emit(OPS["ref_at"], (given[ref], start, two), {})[0] for r, start in enumerate(starts)}
        return found

    def body(self, b: Builder, lane: Value, given: dict[str, Value]) -> None:
        shape = self.shape
        lanes = [lane, *(b.add(lane, number(b, x * shape.lanes)) for x in range(1, shape.vectors))]
        zero = number(b, 0)
        for r in range(shape.rows):
            for c in range(0, shape.columns, LINE // self.dtype.bytes // 2):
                b.prefetch(given[f"after{r}"], number(b, c), zero, into_l1=True)
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
            step.prefetch(panel, step.add(step.add(column, number(step, NEXT * size)), place), into_l1=True)
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


@dataclass(frozen=True)
class PairRows(Rows):
    """Rows of pairs of numbers; ``index`` is that of a pair."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        index = (row if k == self.axis else v for k, v in enumerate(self.index[:-1]))
        return b.emit(OPS["ref_at"], (self.ref, *index, column, number(b, 0)), {})[0]

    def pairs(self, b: Builder) -> tuple[Value, Value]:
        """The memory of all pairs, and how many are from one row to the next."""
        zero, two = number(b, 0), number(b, 2)
        index = [zero if k == self.axis else v for k, v in enumerate(self.index[:-1])]
        memory = b.emit(OPS["ref_at"], (self.ref, *index, zero, zero, two), {})[0]
        return memory, b.raw_shr(self.apart(b), number(b, 1))


def loading_pairs(memory: Value, apart: Value, is_turned: bool) -> Block:
    """The region of an operand whose pairs lie in rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    row, column = reversed(at) if is_turned else at
    place = b.add(b.mul(row, apart), column)
    return b.block(at, [b.load(memory, place, number(b, part)) for part in (0, 1)])


def pairs_of(region: Block, row: int = 0, column: int = 1) -> PairRows | None:
    """Where a region loads both parts of a number, or stores both sums, by rows of neighbours along two of its parameters, and
    does nothing else but conjugate; None if it does otherwise."""
    constants = {i.result: i.params["value"] for i in region.instructions if isinstance(i.op, Constant)}
    signs = {i.result: i.operands[0] for i in region.instructions if i.op is OPS["neg"]}
    accesses = [i for i in region.instructions if not isinstance(i.op, Constant) and i.op is not OPS["neg"]]
    if len(accesses) != 2 or not all(isinstance(i.op, Load | Store) and not i.op.masked for i in accesses):
        return None
    values = [i.operands[0] if isinstance(i.op, Store) else i.result for i in accesses]
    if values != [signs.get(v, v) for v in region.parameters[2:] or region.results]:
        return None
    (ref, first), (other, second) = map(ref_and_index, accesses)
    assert isinstance(ref.type, RefType)
    if ref is not other or ref.type.layout != "c" or ref.type.shape[-1] != 2 or tuple(first[:-1]) != tuple(second[:-1]):
        return None
    if (constants.get(first[-1]), constants.get(second[-1])) != (0, 1):
        return None
    index = tuple(first[:-1])
    at = [k for k, v in enumerate(index) if v in region.parameters]
    if len(at) != 2 or (index[at[0]], index[-1]) != (region.parameters[row], region.parameters[column]):
        return None
    return PairRows(ref, index, at[0])
