"""Build the microkernel of complex products, and recognise complex operands and results that are accessed by contiguous rows.
The microkernel keeps two sums per element, stored adjacent as the parts of a number are."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import Rows, constant, when
from pullback.codegen.cpu.matmul.blocking import LINE
from pullback.codegen.cpu.matmul.microkernel import PREFETCH_DISTANCE, Microkernel, PrefetchStreams, streams_of
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block
from pullback.ir.core.types import COMPLEX_OF, I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import Load, Store

PARTS = (0, 1)
"""Positions of the real and the imaginary part."""


@dataclass(frozen=True)
class ComplexMicrokernel(Microkernel):
    """The complex microkernel. The sums of a row are its real parts, then its imaginary parts, vector by vector."""

    @property
    def name(self) -> str:
        return f"tile_{COMPLEX_OF[self.dtype].name}_{self.shape.rows}x{self.shape.columns}"

    def rows_of_sums(self, b: Builder, values: dict[str, Value]) -> dict[str, Value]:
        two = constant(b, 2)
        references: dict[str, Value] = {}
        for name, ref, stride in (("before", "sums", "distance"), ("after", "to", "apart")):
            starts = [b.mul(values[stride], constant(b, r)) for r in range(self.shape.rows)]
            references |= {
                f"{name}{r}": b.emit(OPS["ref_at"], (values[ref], start, two), {})[0] for r, start in enumerate(starts)
            }
        return references

    def body(self, b: Builder, lane: Value, values: dict[str, Value]) -> None:
        shape = self.shape
        lanes = [lane, *(b.add(lane, constant(b, x * shape.lanes)) for x in range(1, shape.vectors))]
        zero = constant(b, 0)
        for r in range(shape.rows):
            for c in range(0, shape.columns, LINE // self.dtype.bytes // 2):
                b.prefetch(values[f"after{r}"], constant(b, c), zero, into_l1=True)
        passes = shape.passes(self.row_count)
        for some, streams in zip(passes, streams_of(len(passes)), strict=True):
            self.one_pass(b, lanes, some, streams, values)

    def one_pass(self, b: Builder, lanes: list[Value], some: range, streams: PrefetchStreams, values: dict[str, Value]) -> None:
        shape, scale, parts = self.shape, values["scale"], [constant(b, part) for part in PARTS]
        rows, to = ({r: values[f"{name}{r}"] for r in some} for name in ("before", "after"))
        zero = b.const(0.0, self.dtype)
        count = 2 * len(some) * shape.vectors
        body = self.k_loop_body(b, lanes, some, streams, values)
        totals = b.emit(OPS["for"], (values["count"], *[zero] * count), {"map": "serial"}, [body])
        # the two parts adjacent, so that two stores become one interleaved store
        order = [(r, x, part) for r in some for x in range(shape.vectors) for part in PARTS]
        positions = [(r, lanes[x], parts[part]) for r, x, part in order]
        sums_of_parts = [totals[(2 * (r - some.start) + part) * shape.vectors + x] for r, x, part in order]

        def put(b: Builder, sums: Sequence[Value]) -> None:
            for (r, *position), total in zip(positions, sums, strict=True):
                b.store(total, to[r], *position)

        def add(b: Builder) -> None:
            before = [b.load(rows[r], *position) for r, *position in positions]
            put(b, [self.multiply_add(b, t, scale, s) for t, s in zip(sums_of_parts, before, strict=True)])

        when(b, values["is_first"], lambda b: put(b, [b.mul(total, scale) for total in sums_of_parts]))
        when(b, b.bitnot(values["is_first"]), add)

    def k_loop_body(
        self, b: Builder, lanes: list[Value], rows: range, streams: PrefetchStreams, values: dict[str, Value]
    ) -> Block:
        shape, panel = self.shape, values["right"]
        vectors, size = shape.vectors, 2 * shape.columns
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(self.dtype), "sum") for _ in range(2 * len(rows) * vectors)]
        row, column = step.mul(p, constant(step, 2 * shape.rows)), step.mul(p, constant(step, size))
        positions = [*lanes, *(step.add(lane, constant(step, shape.columns)) for lane in lanes)]
        right = [step.load(panel, step.add(column, position)) for position in positions]
        after: list[Value] = []
        for r in rows:
            left = [step.load(values["left"], step.add(row, constant(step, 2 * r + part))) for part in PARTS]
            first_sum = 2 * (r - rows.start) * vectors
            after += self.products(step, left, right, before[first_sum : first_sum + 2 * vectors])
        for position in positions if not rows.start else ():
            step.prefetch(panel, step.add(step.add(column, constant(step, PREFETCH_DISTANCE * size)), position), into_l1=True)
        self.prefetch_streams(step, p, lanes[0], streams, values)
        return step.block([p, *before], after)

    def products(self, b: Builder, left: Sequence[Value], right: Sequence[Value], before: Sequence[Value]) -> list[Value]:
        """Emit the multiply-adds of one left element with a row of the right panel; return the new sums."""
        (re, im), half = left, len(right) // 2
        negated, reals, imaginaries = b.neg(im), right[:half], right[half:]
        real = [self.multiply_add(b, re, y, z) for y, z in zip(reals, before[:half], strict=True)]
        imaginary = [self.multiply_add(b, re, y, z) for y, z in zip(imaginaries, before[half:], strict=True)]
        real = [self.multiply_add(b, negated, y, z) for y, z in zip(imaginaries, real, strict=True)]
        return [*real, *(self.multiply_add(b, im, y, z) for y, z in zip(reals, imaginary, strict=True))]


@dataclass(frozen=True)
class PairRows(Rows):
    """Contiguous rows of pairs of numbers; ``index`` addresses a pair."""

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        index = (row if k == self.axis else v for k, v in enumerate(self.index[:-1]))
        return b.emit(OPS["ref_at"], (self.ref, *index, column, constant(b, 0)), {})[0]

    def pairs(self, b: Builder) -> tuple[Value, Value]:
        """Return a reference to all pairs and the stride between rows in pairs."""
        zero, two = constant(b, 0), constant(b, 2)
        index = [zero if k == self.axis else v for k, v in enumerate(self.index[:-1])]
        memory = b.emit(OPS["ref_at"], (self.ref, *index, zero, zero, two), {})[0]
        return memory, b.raw_shr(self.stride(b), constant(b, 1))


def loading_pairs(memory: Value, stride: Value, is_transposed: bool) -> Block:
    """Build the region of an operand that loads pairs by rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    row, column = reversed(at) if is_transposed else at
    offset = b.add(b.mul(row, stride), column)
    return b.block(at, [b.load(memory, offset, constant(b, part)) for part in (0, 1)])


def pairs_of(region: Block, row: int = 0, column: int = 1) -> PairRows | None:
    """Return the rows by which a region loads both parts of a number, or stores both sums, along two of its parameters; None
    if it does anything else but conjugate."""
    constants = {i.result: i.params["value"] for i in region.instructions if isinstance(i.op, Constant)}
    signs = {i.result: i.operands[0] for i in region.instructions if i.op is OPS["neg"]}
    accesses = [i for i in region.instructions if not isinstance(i.op, Constant) and i.op is not OPS["neg"]]
    if len(accesses) != 2 or not all(isinstance(i.op, Load | Store) and not i.op.masked for i in accesses):
        return None
    values = [i.operands[0] if isinstance(i.op, Store) else i.result for i in accesses]
    if values != [signs.get(v, v) for v in region.parameters[2:] or region.results]:
        return None
    (ref, first), (second_ref, second) = map(ref_and_index, accesses)
    assert isinstance(ref.type, RefType)
    if ref is not second_ref or ref.type.layout != "c" or ref.type.shape[-1] != 2 or tuple(first[:-1]) != tuple(second[:-1]):
        return None
    if (constants.get(first[-1]), constants.get(second[-1])) != (0, 1):
        return None
    index = tuple(first[:-1])
    varying = [k for k, v in enumerate(index) if v in region.parameters]
    if len(varying) != 2 or (index[varying[0]], index[-1]) != (region.parameters[row], region.parameters[column]):
        return None
    return PairRows(ref, index, varying[0])
