"""Compute some rows of a product with a prepacked right operand: a function shared by all kernels, one for each dtype.

Rows are processed a tile at a time, column panels in groups that stay in L2. The last short tiles end with the last row and
overlap their predecessors, so that rows are computed twice rather than padded. The order of additions depends on the extents
alone.

Subnormals are handled as in other products (``subnormals``), except that memory shared by threads is never written: a panel is
scaled, or not, when it is packed. Rows with subnormals are copied first and the copy is scaled. Where sums of scaled numbers
might overflow, the rows themselves and an unscaled copy of the panel are multiplied.
"""

from __future__ import annotations

import functools
from functools import reduce

from pullback.codegen.cpu.loops.nest_builder import ceil_div, ceil_div_by, constant, serial, vector, when
from pullback.codegen.cpu.matmul.blocking import SCAN_UNROLL
from pullback.codegen.cpu.matmul.prepack.microkernel import SHORT_ROWS, PrepackedMicrokernel
from pullback.codegen.cpu.matmul.subnormals import GREATEST, MARKS, SCALED, SLOW, UNKNOWN, Scales
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED

K_BLOCK = 512
"""Length of a K block, which is accumulated in registers; copies of rows and panels have this length."""
FEWEST = 4
"""Fewest panels of a group, which share what is computed about the rows."""
REFS = ("left", "panels", "to")
"""Reference and integer parameters of the function."""
NUMBERS = ("rows", "terms", "columns", "first", "tiles", "panel", "count")


@dataclass(frozen=True)
class PackedRows:
    """The function of some tiles of rows and some panels. Parameters: references to the left rows, the panels and the results;
    marks of the panels and of the rows; memory for a copy of rows and of a panel; the extents of the product, first tile
    and count, first panel and count. ``near``: bytes of a group of panels."""

    tall: PrepackedMicrokernel
    short: PrepackedMicrokernel
    group_bytes: int

    @property
    def dtype(self) -> DType:
        return self.tall.dtype

    @property
    def columns(self) -> int:
        return self.tall.columns

    @property
    def name(self) -> str:
        return f"prepacked_{self.dtype.name}_{self.tall.rows}x{self.columns}"

    @property
    def scales(self) -> Scales:
        return Scales(self.dtype, self.tall.lanes, K_BLOCK, SCAN_UNROLL)

    def define(self, functions: dict[str, Instruction]) -> None:
        """Add the definitions to those at the top of a kernel."""
        for tile in (self.tall, self.short):
            functions[tile.name] = tile.define()
        functions[self.name] = Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *arguments: Value) -> None:
        b.emit(OPS["call"], arguments, {"function": self.name})

    def memory(self, b: Builder) -> tuple[Value, Value, Value]:
        """Allocate the marks of rows and the copies."""
        tall = self.tall
        rows, panel = (b.local(dtype=self.dtype, shape=(K_BLOCK * size,)) for size in (tall.rows, tall.columns))
        return b.local(dtype=I64, shape=(MARKS,)), rows, panel

    def function(self) -> Block:
        types: dict[str, Type] = {
            **dict.fromkeys(REFS, RefType(self.dtype, (UNBOUNDED,))), "known": RefType(I64, (UNBOUNDED,)),
            "known_rows": RefType(I64, (MARKS,), space="stack"),
            "own_rows": RefType(self.dtype, (K_BLOCK * self.tall.rows,), space="stack"),
            "own_panel": RefType(self.dtype, (K_BLOCK * self.columns,), space="stack"),
            **dict.fromkeys(NUMBERS, scalar(I64)),
        }  # fmt: skip
        values = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        _Rows(self, values).emit(b)
        return b.block(list(values.values()), [])


@functools.cache
def _function(form: PackedRows) -> Block:
    return form.function()


@dataclass(frozen=True, eq=False, kw_only=True)
class _KBlock:
    """A K block of a tile of rows: first K index, extent, whether it is the first block; rows of the tile, the address of the
    rows, the offset of the results."""

    p0: Value
    count: Value
    is_first: Value
    is_tall: Value
    height: Value
    left: Value
    to: Value


class _Rows:
    """Emits the body of the function."""

    def __init__(self, form: PackedRows, values: dict[str, Value]) -> None:
        self.form, self.tall, self.short, self.scales = form, form.tall, form.short, form.scales
        self.dtype, self.size = form.dtype, form.columns
        self.left, self.panels, self.to, self.known = (values[name] for name in (*REFS, "known"))
        self.known_rows, self.own_rows, self.own_panel = values["known_rows"], values["own_rows"], values["own_panel"]
        self.rows, self.depth, self.columns, self.first, self.tiles, self.panel, self.count = (values[n] for n in NUMBERS)

    def emit(self, b: Builder) -> None:
        bytes_ = b.mul(b.maximum(self.depth, constant(b, 1)), constant(b, self.size * self.dtype.bytes))
        group = b.maximum(b.idiv(constant(b, self.form.group_bytes), bytes_), constant(b, FEWEST))

        def some(b: Builder, g: Value) -> None:
            first_panel = b.mul(g, group)
            panels = b.add(self.panel, first_panel), b.minimum(group, b.sub(self.count, first_panel))
            serial(b, self.tiles, lambda b, t: self.tile(b, b.add(self.first, t), panels))

        serial(b, ceil_div_by(b, self.count, group), some)

    def tile(self, b: Builder, t: Value, panels: tuple[Value, Value]) -> None:
        """Emit a tile of rows over all of K."""
        tall_rows = constant(b, self.tall.rows)
        tall_tiles = b.idiv(self.rows, tall_rows)
        is_tall = b.lt(t, tall_tiles)
        short_row = b.add(b.mul(tall_tiles, tall_rows), b.mul(b.sub(t, tall_tiles), constant(b, SHORT_ROWS)))
        row = b.select(is_tall, b.mul(t, tall_rows), b.minimum(short_row, b.sub(self.rows, constant(b, SHORT_ROWS))))
        height = b.select(is_tall, tall_rows, constant(b, SHORT_ROWS))
        to = b.mul(row, self.columns)

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, constant(b, K_BLOCK))
            left = b.emit(OPS["ref_at"], (self.left, b.add(b.mul(row, self.depth), p0)), {})[0]
            count = b.minimum(constant(b, K_BLOCK), b.sub(self.depth, p0))
            is_first = b.eq(q, constant(b, 0))
            self.run(b, _KBlock(p0=p0, count=count, is_first=is_first, is_tall=is_tall, height=height, left=left, to=to), panels)

        serial(b, b.maximum(ceil_div(b, self.depth, K_BLOCK), constant(b, 1)), run)

    def run(self, b: Builder, run: _KBlock, panels: tuple[Value, Value]) -> None:
        b.store(b.cast(self.is_slow(b, run), dtype=I64), self.known_rows, constant(b, SLOW))
        for mark, value in ((SCALED, 0), (GREATEST, UNKNOWN)):
            b.store(constant(b, value), self.known_rows, constant(b, mark))

        def panel(b: Builder, k: Value) -> None:
            j = b.add(panels[0], k)
            c = b.mul(j, constant(b, self.size))
            offset = b.add(b.mul(c, self.depth), b.mul(run.p0, constant(b, self.size)))
            packed = b.emit(OPS["ref_at"], (self.panels, offset), {})[0]
            to = b.emit(OPS["ref_at"], (self.to, b.add(run.to, c)), {})[0]
            target = to, self.columns, b.sub(self.columns, c)
            marks = b.emit(OPS["ref_at"], (self.known, b.mul(j, constant(b, MARKS))), {})[0]
            slow = b.add(b.load(self.known_rows, constant(b, SLOW)), b.load(marks, constant(b, SCALED)))
            is_plain = b.eq(slow, constant(b, 0))
            one = b.const(1.0, self.dtype)
            when(b, is_plain, lambda b: self.multiply(b, run, (run.left, self.depth), packed, one, target))
            when(b, b.bitnot(is_plain), lambda b: self.multiply_scaled(b, run, packed, marks, target))

        serial(b, panels[1], panel)

    def multiply(
        self, b: Builder, run: _KBlock, left: tuple[Value, Value], panel: Value, scale: Value, target: tuple[Value, ...]
    ) -> None:  # fmt: skip
        arguments = *left, panel, run.count, run.is_first, scale, *target
        when(b, run.is_tall, lambda b: self.tall.call(b, *arguments))
        when(b, b.bitnot(run.is_tall), lambda b: self.short.call(b, *arguments))

    # subnormal numbers

    def is_slow(self, b: Builder, run: _KBlock) -> Value:
        """Return whether a K block of a tile's rows contains subnormals."""
        scales, bits = self.scales, self.scales.bits
        most = b.sub(b.const(0, bits), b.const(1, bits))
        unit, last = b.const(1, bits), b.sub(run.height, constant(b, 1))
        starts = [b.mul(b.minimum(constant(b, r), last), self.depth) for r in range(self.tall.rows)]
        inner, v = Builder(b.loc), Value(scalar(I64), "v")
        magnitudes = [scales.unsigned(inner, inner.load(run.left, inner.add(start, v))) for start in starts]
        least = reduce(inner.minimum, [inner.sub(x, unit) for x in magnitudes])
        params = {"map": "vector", "combine": ("minimum",)}
        results = b.emit(OPS["for"], (run.count, most), params, [inner.block([v], [least])])
        slow: Value = b.lt(results[0], b.const((1 << scales.fraction) - 1, bits))
        return slow

    def copy_stride(self, b: Builder, run: _KBlock) -> Value:
        """Return the stride between copied rows: whole vectors."""
        size = self.size
        stride: Value = b.mul(ceil_div(b, run.count, size), constant(b, size))
        return stride

    def copy_rows(self, b: Builder, run: _KBlock) -> None:
        """Copy a K block of rows; scale the copy if it contains subnormals and stays finite."""
        stride = self.copy_stride(b, run)
        total = b.mul(stride, run.height)
        vector(b, total, self.size, lambda b, v: b.store(b.const(0.0, self.dtype), self.own_rows, v))

        def row(b: Builder, r: Value) -> None:
            start, to = b.mul(r, self.depth), b.mul(r, stride)
            vector(b, run.count, 1, lambda b, v: b.store(b.load(run.left, b.add(start, v)), self.own_rows, b.add(to, v)))

        serial(b, run.height, row)
        scale_if_finite(b, self.scales, self.own_rows, self.known_rows, total)

    def multiply_scaled(self, b: Builder, run: _KBlock, packed: Value, marks: Value, target: tuple[Value, ...]) -> None:
        """Emit a tile with possibly scaled numbers, where its sums cannot overflow."""
        scales, greatest, scaled_mark = self.scales, constant(b, GREATEST), constant(b, SCALED)
        is_new = b.eq(b.load(self.known_rows, greatest), constant(b, UNKNOWN))
        when(b, is_new, lambda b: self.copy_rows(b, run))
        x, y = b.load(self.known_rows, greatest), b.load(marks, greatest)
        panel_scaled = b.load(marks, scaled_mark)
        shift = b.mul(b.add(b.load(self.known_rows, scaled_mark), panel_scaled), constant(b, scales.shift))
        fits = b.le(b.add(b.add(x, y), shift), constant(b, 3 * scales.bias - 2 - K_BLOCK.bit_length()))
        exponent = b.cast(b.sub(constant(b, scales.bias), shift), dtype=scales.bits)
        scale = b.bitcast(b.raw_shl(exponent, b.const(scales.fraction, scales.bits)), dtype=self.dtype)
        in_place, plain = (run.left, self.depth), b.const(1.0, self.dtype)
        copied = b.emit(OPS["ref_at"], (self.own_rows, constant(b, 0)), {})[0], self.copy_stride(b, run)
        overflows = b.bitnot(fits)
        is_scaled = b.ne(panel_scaled, constant(b, 0))

        def unscaled(b: Builder) -> None:
            self.copy_panel(b, run, packed)
            panel = b.emit(OPS["ref_at"], (self.own_panel, constant(b, 0)), {})[0]
            self.multiply(b, run, in_place, panel, plain, target)

        when(b, fits, lambda b: self.multiply(b, run, copied, packed, scale, target))
        when(b, b.bitand(overflows, is_scaled), unscaled)
        when(b, b.bitand(overflows, b.bitnot(is_scaled)), lambda b: self.multiply(b, run, in_place, packed, plain, target))

    def copy_panel(self, b: Builder, run: _KBlock, packed: Value) -> None:
        """Copy a K block of a panel without its scale."""
        down = b.const(2.0**-self.scales.shift, self.dtype)
        size = b.mul(run.count, constant(b, self.size))
        vector(b, size, self.size, lambda b, v: b.store(b.mul(b.load(packed, v), down), self.own_panel, v))


def scale_if_finite(b: Builder, scales: Scales, panel: Value, marks: Value, count: Value) -> None:
    """Scale memory whose subnormals are marked, if all numbers stay finite, and set the marks."""
    scales.scan(b, panel, marks, count, constant(b, GREATEST))
    b.store(constant(b, 0), marks, constant(b, SCALED))
    limit = constant(b, 2 * scales.bias - scales.shift)
    fits = b.le(b.load(marks, constant(b, GREATEST)), limit)
    scales.set_scale(b, panel, marks, count, fits)
