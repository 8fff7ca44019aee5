"""Blocks of plain products of at most ``ROWS`` rows on machines with 16 vector registers, with a right operand read in place
by rows.

Packing its columns would take longer than multiplying a few rows by them. A few K iterations are processed at a time:
contiguous rows of the right operand are read while those of the next iterations are prefetched, and added to the sums of some
rows, which stay in L1; after each K block the sums are added to the results.

Cost: the right operand is read once, at memory bandwidth. Each vector of it costs one multiply-add per row of the left
operand, and a quarter of a load and store of a sum. Subnormal numbers are not rescaled.
"""

from __future__ import annotations

import functools

from pullback.codegen.cpu.loops.nest_builder import ceil_div, ceil_div_by, constant, loop, serial, vector, when
from pullback.codegen.cpu.matmul.blocking import Blocking
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED

ROWS, GROUP = 8, 4
"""Largest number of rows of such products, and rows that are multiplied by a part of the right operand at a time."""
K_UNROLL = 4
"""K iterations accumulated between the load and the store of a sum."""
VECTORS = 2
"""Adjacent vectors read per K iteration."""
STRIP = 1 << 11
"""Bytes of a row of a block."""
OPERANDS = ("left", "right", "to")
"""Reference parameters of the function."""
NUMBERS = ("row", "term", "apart", "to_apart", "rows", "terms", "length", "first", "width")
"""Integer parameters of the function: row and K stride of the left operand, row strides of the right operand and the result,
rows, K, length of a K block, first column and column count."""


@dataclass(frozen=True)
class FewRows:
    """The function of a block for one dtype. Its K blocks are as long as those of packed panels, so that results have the same
    bits wherever operands are in memory."""

    dtype: DType
    shape: Blocking

    @property
    def name(self) -> str:
        return f"few_rows_{self.dtype.name}"

    def is_for(self, target: Target) -> bool:
        """Return whether microkernels for a machine take several passes over their panels because registers are few."""
        return target.has_fma and len(self.shape.passes(self.shape.rows)) > 1

    def define(self) -> Instruction:
        """Return the definition, which stands at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def fits(self, b: Builder, rows: Value, columns: Value, is_transposed: Value) -> Value:
        """Return whether a product takes this form: few rows, long rows of the right operand, which is not transposed."""
        is_flat = b.bitand(b.le(rows, constant(b, ROWS)), b.ge(columns, constant(b, VECTORS * self.panel_columns)))
        result: Value = b.bitand(is_flat, b.bitnot(is_transposed))
        return result

    @property
    def panel_columns(self) -> int:
        """Columns read at a time."""
        return VECTORS * self.shape.lanes

    @property
    def max_columns(self) -> int:
        """Largest number of columns of a block."""
        return STRIP // self.dtype.bytes

    def function(self) -> Block:
        """Build the body of the function."""
        types: dict[str, Type] = {
            **dict.fromkeys(OPERANDS, RefType(self.dtype, (UNBOUNDED,))),
            **dict.fromkeys(NUMBERS, scalar(I64)),
        }
        values = {name: Value(t, name) for name, t in types.items()}
        b, depth = Builder(), values["terms"]
        length = values["length"]
        values["sums"] = b.local(dtype=self.dtype, shape=(ROWS, self.max_columns))

        def run(b: Builder, q: Value) -> None:
            p = b.mul(q, length)
            self.run(b, values, (p, b.minimum(length, b.sub(depth, p))), b.eq(q, constant(b, 0)))

        serial(b, b.maximum(ceil_div_by(b, depth, length), constant(b, 1)), run)
        return b.block([values[name] for name in types], [])

    def run(self, b: Builder, values: dict[str, Value], k_span: tuple[Value, Value], is_first: Value) -> None:
        """Emit a K block for all rows: store its sums as results, or add them to the results of earlier K blocks."""
        sums, to, width, (p, count) = values["sums"], values["to"], values["width"], k_span
        zero, groups = b.const(0.0, self.dtype), ceil_div(b, values["rows"], GROUP)
        serial(b, b.mul(groups, constant(b, GROUP)), lambda b, r: loop(b, width, lambda b, c: b.store(zero, sums, r, c)))
        full_steps = b.raw_shr(count, constant(b, K_UNROLL.bit_length() - 1))
        last = b.add(p, b.mul(full_steps, constant(b, K_UNROLL)))

        def some(b: Builder, first: Value, count: int) -> None:
            serial(b, groups, lambda b, g: self.group(b, values, b.mul(g, constant(b, GROUP)), first, count))

        serial(b, full_steps, lambda b, t: some(b, b.add(p, b.mul(t, constant(b, K_UNROLL))), K_UNROLL))
        serial(b, b.sub(b.add(p, count), last), lambda b, t: some(b, b.add(last, t), 1))

        def row(b: Builder, r: Value) -> None:
            at = b.mul(r, values["to_apart"])

            def put(b: Builder, c: Value) -> None:
                b.store(b.load(sums, r, c), to, b.add(at, c))

            def add(b: Builder, c: Value) -> None:
                position = b.add(at, c)
                b.store(b.add(b.load(to, position), b.load(sums, r, c)), to, position)

            when(b, is_first, lambda b: loop(b, width, put))
            when(b, b.bitnot(is_first), lambda b: loop(b, width, add))

        serial(b, values["rows"], row)

    def group(self, b: Builder, values: dict[str, Value], i: Value, first: Value, k_count: int) -> None:
        """Emit what some K iterations add to the sums of a group of rows. Missing rows repeat the last one."""
        lanes, width = self.shape.lanes, values["width"]
        end = b.sub(values["rows"], constant(b, 1))
        rows = [b.mul(b.minimum(b.add(i, constant(b, k)), end), values["row"]) for k in range(GROUP)]
        k_offsets = [b.mul(b.add(first, constant(b, t)), values["term"]) for t in range(k_count)]
        left = [[b.load(values["left"], b.add(row, term)) for term in k_offsets] for row in rows]
        sums = [b.subview(values["sums"], b.add(i, constant(b, k))) for k in range(GROUP)]
        starts = [b.add(b.mul(b.add(first, constant(b, t)), values["apart"]), values["first"]) for t in range(2 * k_count)]
        right = [b.emit(OPS["ref_at"], (values["right"], begin), {})[0] for begin in starts]

        def element(b: Builder, column: Value) -> None:
            factors = [b.load(row, column) for row in right[:k_count]]
            for row, each in zip(sums, left, strict=True):
                total = b.load(row, column)
                for x, y in zip(each, factors, strict=True):
                    total = b.fma(x, y, total)
                b.store(total, row, column)

        if k_count == 1:
            loop(b, width, element)
            return

        def panel(b: Builder, k: Value) -> None:
            start = b.mul(k, constant(b, self.panel_columns))

            def vectors(b: Builder, v: Value) -> None:
                here = b.add(start, v)
                for row in right[k_count:]:
                    b.prefetch(row, here, into_l1=True)
                for x in range(VECTORS):
                    element(b, b.add(here, constant(b, x * lanes)) if x else here)

            vector(b, constant(b, lanes), lanes, vectors)

        full_panels = b.idiv(width, constant(b, self.panel_columns))
        done = b.mul(full_panels, constant(b, self.panel_columns))
        serial(b, full_panels, panel)
        remainder = b.sub(width, done)
        when(b, b.gt(remainder, constant(b, 0)), lambda b: loop(b, remainder, lambda b, c: element(b, b.add(c, done))))


@functools.cache
def _function(form: FewRows) -> Block:
    return form.function()
