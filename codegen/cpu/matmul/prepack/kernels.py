"""Build the two kernels of a product with a prepacked right operand: one packs it, the other multiplies by the panels.

    kernel pack(w, out panels, out known)             packs each panel of columns over all of K
    kernel multiply(x, w, out, panels, known)         computes tiles, divided among threads by panels or by rows

Both test the extents at run time: for a product with fewer rows than a tile, or for too large an operand, nothing is packed
and the library computes the product. A panel is packed by a function shared by all kernels, one for each dtype and order of
the operand.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import RowsAt, ceil_div, ceil_div_by, constant, loop
from pullback.codegen.cpu.matmul.packing import Panels
from pullback.codegen.cpu.matmul.prepack.microkernel import SHORT_ROWS, microkernels
from pullback.codegen.cpu.matmul.prepack.rows import PackedRows, scale_if_finite
from pullback.codegen.cpu.matmul.shared_packing import loading
from pullback.codegen.cpu.matmul.subnormals import MARKS, SLOW
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import I64, DType, Extent, RefType, Shape, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED
from pullback.ir.shapes.extents import product, quotient


@dataclass(frozen=True)
class PackedPanel:
    """The function that packs one panel over all of K and computes its marks. Parameters: the operand, the panel, its marks;
    K, the column count, and the panel's first column."""

    rows: PackedRows
    is_transposed: bool

    @property
    def name(self) -> str:
        return f"panel_{self.rows.dtype.name}_{self.rows.columns}_{'nt'[self.is_transposed]}"

    def define(self) -> Instruction:
        """Return the definition, which stands at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *arguments: Value) -> None:
        b.emit(OPS["call"], arguments, {"function": self.name})

    def function(self) -> Block:
        row, size = RefType(self.rows.dtype, (UNBOUNDED,)), self.rows.columns
        types: dict[str, Type] = {
            "from": row, "panel": row, "known": RefType(I64, (UNBOUNDED,)),
            **dict.fromkeys(("terms", "columns", "first"), scalar(I64)),
        }  # fmt: skip
        values = {name: Value(t, name) for name, t in types.items()}
        panel, marks, depth, columns, first = list(values.values())[1:]
        b, scales = Builder(), self.rows.scales
        region = loading(RowsAt(values["from"], depth if self.is_transposed else columns), self.is_transposed)
        width = b.minimum(constant(b, size), b.sub(columns, first))
        Panels(region, 0, columns, size, self.rows.tall.lanes).pack(b, panel, (constant(b, 0), depth), (first, width))
        count = b.mul(depth, constant(b, size))
        scales.scan(b, panel, marks, count, constant(b, SLOW))
        scale_if_finite(b, scales, panel, marks, count)
        return b.block(list(values.values()), [])


@functools.cache
def _function(panel: PackedPanel) -> Block:
    return panel.function()


WORTH = 3 << 13
"""Cycles of multiply-adds from which another worker that is already awake pays for itself."""
LARGEST, LONGEST = 1 << 24, 1 << 13
"""Most bytes that are packed, and largest K."""
MAX_IMBALANCE = 8
"""Tiles of rows are divided among threads if at most one part in this many of the time is spent idle at the end."""


class Prepacked:
    """The kernels of products of a dtype on a machine."""

    def __init__(self, dtype: DType, target: Target) -> None:
        self.dtype = dtype
        self.l2_bytes = target.cache // 2
        self.rows = PackedRows(*microkernels(dtype, target), self.l2_bytes)
        self.size = self.rows.columns

    def buffers(self, depth: Extent, columns: Extent) -> tuple[tuple[DType, Shape], tuple[DType, Shape]]:
        """Return the types of the panels and of their marks."""
        count = quotient(columns, self.size)
        return (self.dtype, (count, product((depth, self.size)))), (I64, (count, MARKS))

    def fits(self, b: Builder, rows: Value, depth: Value, columns: Value) -> Value:
        """Return whether a product of such extents uses panels."""
        bytes_ = b.mul(b.mul(depth, columns), constant(b, self.dtype.bytes))
        is_small = b.bitand(b.le(depth, constant(b, LONGEST)), b.le(bytes_, constant(b, LARGEST)))
        fits_extents: Value = b.bitand(b.ge(rows, constant(b, SHORT_ROWS)), is_small)
        return fits_extents

    # packing

    def pack(self, name: str, is_transposed: bool) -> Function:
        """Build the kernel that packs an operand of s0 (K) by s1 columns, or its transpose, for a product of s2 rows, into s3
        panels of s4 numbers."""
        b, function = Builder(), PackedPanel(self.rows, is_transposed)
        w = Value(RefType(self.dtype, ("s1", "s0") if is_transposed else ("s0", "s1")), "w")
        panels, marks = Value(RefType(self.dtype, ("s3", "s4")), "panels"), Value(RefType(I64, ("s3", MARKS)), "known")
        depth, columns, rows, count = (size(b, f"s{k}") for k in range(4))
        zero = constant(b, 0)

        def panel(b: Builder, j: Value) -> None:
            starts = [b.emit(OPS["ref_at"], (ref, row, zero), {})[0] for ref, row in ((w, zero), (panels, j), (marks, j))]
            function.call(b, *starts, depth, columns, b.mul(j, constant(b, self.size)))

        loop(b, b.select(self.fits(b, rows, depth, columns), count, zero), panel, map="core")
        return Function(name, Block((w, panels, marks), (function.define(), *b.instructions), ()), "kernel")

    # multiplying

    def multiply(self, name: str, kernel: Function, sizes: int) -> Function:
        """Build the kernel that replaces the plain product ``kernel``, which has ``sizes`` sizes. Panels and their marks are
        two more parameters, the extents of the panels two more sizes."""
        (plain,) = kernel.instructions
        x, _, out = plain.operands
        count, panel_size = f"s{sizes}", f"s{sizes + 1}"
        panels = Value(RefType(self.dtype, (count, panel_size)), "panels")
        marks = Value(RefType(I64, (count, MARKS)), "known")
        b = Builder(plain.loc)
        rows, depth, columns = (size(b, e) for e in (out.type.shape[0], x.type.shape[1], out.type.shape[1]))
        fits = self.fits(b, rows, depth, columns)
        b.emit(OPS["if"], (b.bitnot(fits),), {}, [Block((), (plain,), ())])
        self.divide(b, fits, (x, panels, out, marks), (rows, depth, columns), size(b, count))
        functions: dict[str, Instruction] = {}
        self.rows.define(functions)
        body = Block((*kernel.parameters, panels, marks), (*functions.values(), *b.instructions), ())
        return Function(name, body, "kernel")

    def divide(self, b: Builder, fits: Value, refs: Sequence[Value], extents: tuple[Value, ...], count: Value) -> None:
        """Emit the loop over chunks: of tiles of rows if the threads get equal shares and all panels stay in L2, else of
        panels. Short tiles go with the last tall one, whose rows they may repeat."""
        tall, one, zero = constant(b, self.rows.tall.rows), constant(b, 1), constant(b, 0)
        rows, depth, columns = extents
        tall_tiles = b.idiv(rows, tall)
        units, tile_count = (
            b.maximum(tall_tiles, one),
            b.add(tall_tiles, ceil_div(b, b.sub(rows, b.mul(tall_tiles, tall)), SHORT_ROWS)),
        )
        threads = b.emit(OPS["threads"], (), {})[0]
        row_threads, column_threads = b.minimum(threads, units), b.minimum(threads, count)
        idle = b.sub(b.mul(ceil_div_by(b, units, row_threads), row_threads), units)
        bytes_ = b.mul(b.mul(depth, columns), constant(b, self.dtype.bytes))
        is_even = b.bitand(b.eq(row_threads, threads), b.le(b.mul(idle, constant(b, MAX_IMBALANCE)), units))
        by_rows = b.bitand(is_even, b.le(bytes_, constant(b, self.l2_bytes)))
        is_long = b.ge(b.mul(b.mul(rows, depth), columns), constant(b, WORTH * 2 * self.rows.tall.lanes))
        wanted = b.maximum(b.select(is_long, b.select(by_rows, row_threads, column_threads), one), one)
        total = b.select(by_rows, units, count)
        per_chunk = b.maximum(ceil_div_by(b, total, wanted), one)
        chunks = b.select(fits, ceil_div_by(b, total, per_chunk), zero)

        def chunk(b: Builder, c: Value) -> None:
            first = b.mul(c, per_chunk)
            some = b.minimum(per_chunk, b.sub(total, first))
            is_last = b.eq(b.add(first, some), total)
            chunk_tiles = b.select(is_last, b.sub(tile_count, first), some)
            tiles_here = b.select(by_rows, first, zero), b.select(by_rows, chunk_tiles, tile_count)
            panels_here = b.select(by_rows, zero, first), b.select(by_rows, count, some)
            starts = [b.emit(OPS["ref_at"], (ref, zero, zero), {})[0] for ref in refs]
            self.rows.call(b, *starts, *self.rows.memory(b), rows, depth, columns, *tiles_here, *panels_here)

        loop(b, chunks, chunk, map="core")


def size(b: Builder, extent: Extent) -> Value:
    """Return an extent as a value."""
    return constant(b, extent) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
