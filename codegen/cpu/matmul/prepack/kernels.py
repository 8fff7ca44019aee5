"""Kernels of products whose right operand is packed before: one that packs it, and one that multiplies by what is packed.

    kernel pack(w, out panels, out known)             a panel of columns after the other, each with all its terms
    kernel multiply(x, w, out, panels, known)         tiles of rows, by panels that threads or rows share out

Both go by the extents whether it pays: for a product of less rows than a tile has, or an operand that is too large, nothing is
packed, and the library does it.

A panel of columns is packed by a function that kernels share, one for each dtype and each order of the operand.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import RowsAt, loop, number, parts, shared
from pullback.codegen.cpu.matmul.packing import Panels
from pullback.codegen.cpu.matmul.prepack.microkernel import LOW, tiles
from pullback.codegen.cpu.matmul.prepack.rows import PackedRows, scaled
from pullback.codegen.cpu.matmul.shared_packing import loading
from pullback.codegen.cpu.matmul.subnormals import KNOWN, SLOW
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import I64, DType, Extent, RefType, Shape, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR
from pullback.ir.shapes.extents import product, quotient


@dataclass(frozen=True)
class PackedPanel:
    """Packs a panel, all its terms, and notes what is known of it. Parameters of the function: the operand, the panel and what is
    known of it; the numbers of terms and of columns, and the panel's first column."""

    rows: PackedRows
    is_turned: bool

    @property
    def name(self) -> str:
        return f"panel_{self.rows.dtype.name}_{self.rows.columns}_{'nt'[self.is_turned]}"

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *given: Value) -> None:
        b.emit(OPS["call"], given, {"function": self.name})

    def function(self) -> Block:
        row, size = RefType(self.rows.dtype, (FAR,)), self.rows.columns
        types: dict[str, Type] = {
            "from": row, "panel": row, "known": RefType(I64, (FAR,)), **dict.fromkeys(("terms", "columns", "first"), scalar(I64)),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        panel, known, terms, columns, first = list(given.values())[1:]
        b, scales = Builder(), self.rows.scales
        region = loading(RowsAt(given["from"], terms if self.is_turned else columns), self.is_turned)
        width = b.minimum(number(b, size), b.sub(columns, first))
        Panels(region, 0, columns, size, self.rows.tall.lanes).pack(b, panel, (number(b, 0), terms), (first, width))
        count = b.mul(terms, number(b, size))
        scales.look(b, panel, known, count, number(b, SLOW))
        scaled(b, scales, panel, known, count)
        return b.block(list(given.values()), [])


@functools.cache
def _function(of: PackedPanel) -> Block:
    return of.function()


WORTH = 3 << 13
"""So many cycles of multiply-adds are worth another thread that is awake."""
LARGEST, LONGEST = 1 << 24, 1 << 13
"""The most bytes that are packed, and the most terms."""
UNEVEN = 8
"""Tiles of rows are shared out if at most this part of the time is waited for the last thread."""


class Prepacked:
    """The kernels of products of a dtype on a machine."""

    def __init__(self, dtype: DType, target: Target) -> None:
        self.dtype = dtype
        self.near = target.cache // 2
        self.rows = PackedRows(*tiles(dtype, target), self.near)
        self.size = self.rows.columns

    def buffers(self, terms: Extent, columns: Extent) -> tuple[tuple[DType, Shape], tuple[DType, Shape]]:
        """The types of packed panels and of what is known of them."""
        count = quotient(columns, self.size)
        return (self.dtype, (count, product((terms, self.size)))), (I64, (count, KNOWN))

    def fits(self, b: Builder, rows: Value, terms: Value, columns: Value) -> Value:
        """Whether a product of such extents is done so."""
        bytes_ = b.mul(b.mul(terms, columns), number(b, self.dtype.bytes))
        is_small = b.bitand(b.le(terms, number(b, LONGEST)), b.le(bytes_, number(b, LARGEST)))
        found: Value = b.bitand(b.ge(rows, number(b, LOW)), is_small)
        return found

    # packing

    def pack(self, name: str, is_turned: bool) -> Function:
        """Packs an operand of s0 terms by s1 columns, or what has them the other way round, for s2 rows, in s3 panels of s4
        numbers."""
        b, function = Builder(), PackedPanel(self.rows, is_turned)
        w = Value(RefType(self.dtype, ("s1", "s0") if is_turned else ("s0", "s1")), "w")
        panels, known = Value(RefType(self.dtype, ("s3", "s4")), "panels"), Value(RefType(I64, ("s3", KNOWN)), "known")
        terms, columns, rows, count = (size(b, f"s{k}") for k in range(4))
        zero = number(b, 0)

        def panel(b: Builder, j: Value) -> None:
            begins = [b.emit(OPS["ref_at"], (ref, row, zero), {})[0] for ref, row in ((w, zero), (panels, j), (known, j))]
            function.call(b, *begins, terms, columns, b.mul(j, number(b, self.size)))

        loop(b, b.select(self.fits(b, rows, terms, columns), count, zero), panel, map="core")
        return Function(name, Block((w, panels, known), (function.define(), *b.instructions), ()), "kernel")

    # multiplying

    def multiply(self, name: str, kernel: Function, sizes: int) -> Function:
        """A kernel that does by panels, where it pays, the plain product of another one, which has so many sizes. Panels and what
        is known of them are two more parameters, the extents of panels two more sizes."""
        (plain,) = kernel.instructions
        x, _, out = plain.operands
        count, numbers = f"s{sizes}", f"s{sizes + 1}"
        panels = Value(RefType(self.dtype, (count, numbers)), "panels")
        known = Value(RefType(I64, (count, KNOWN)), "known")
        b = Builder(plain.loc)
        rows, terms, columns = (size(b, e) for e in (out.type.shape[0], x.type.shape[1], out.type.shape[1]))
        fits = self.fits(b, rows, terms, columns)
        b.emit(OPS["if"], (b.bitnot(fits),), {}, [Block((), (plain,), ())])
        self.share(b, fits, (x, panels, out, known), (rows, terms, columns), size(b, count))
        functions: dict[str, Instruction] = {}
        self.rows.define(functions)
        body = Block((*kernel.parameters, panels, known), (*functions.values(), *b.instructions), ())
        return Function(name, body, "kernel")

    def share(self, b: Builder, fits: Value, refs: Sequence[Value], extents: tuple[Value, ...], count: Value) -> None:
        """The loop over chunks: of tiles of rows, if threads get equally many and all panels stay in the second cache, else of
        panels. Low tiles go with the last tall one, whose rows they may share."""
        tall, one, zero = number(b, self.rows.tall.rows), number(b, 1), number(b, 0)
        rows, terms, columns = extents
        talls = b.idiv(rows, tall)
        units, tiles_of = b.maximum(talls, one), b.add(talls, parts(b, b.sub(rows, b.mul(talls, tall)), LOW))
        threads = b.emit(OPS["threads"], (), {})[0]
        of_rows, of_columns = b.minimum(threads, units), b.minimum(threads, count)
        waits = b.sub(b.mul(shared(b, units, of_rows), of_rows), units)
        bytes_ = b.mul(b.mul(terms, columns), number(b, self.dtype.bytes))
        is_even = b.bitand(b.eq(of_rows, threads), b.le(b.mul(waits, number(b, UNEVEN)), units))
        by_rows = b.bitand(is_even, b.le(bytes_, number(b, self.near)))
        is_long = b.ge(b.mul(b.mul(rows, terms), columns), number(b, WORTH * 2 * self.rows.tall.lanes))
        wanted = b.maximum(b.select(is_long, b.select(by_rows, of_rows, of_columns), one), one)
        all_ = b.select(by_rows, units, count)
        each = b.maximum(shared(b, all_, wanted), one)
        chunks = b.select(fits, shared(b, all_, each), zero)

        def chunk(b: Builder, c: Value) -> None:
            first = b.mul(c, each)
            some = b.minimum(each, b.sub(all_, first))
            is_last = b.eq(b.add(first, some), all_)
            of_these = b.select(is_last, b.sub(tiles_of, first), some)
            tiles_here = b.select(by_rows, first, zero), b.select(by_rows, of_these, tiles_of)
            panels_here = b.select(by_rows, zero, first), b.select(by_rows, count, some)
            begins = [b.emit(OPS["ref_at"], (ref, zero, zero), {})[0] for ref in refs]
            self.rows.call(b, *begins, *self.rows.memory(b), rows, terms, columns, *tiles_here, *panels_here)

        loop(b, chunks, chunk, map="core")


def size(b: Builder, extent: Extent) -> Value:
    return number(b, extent) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
