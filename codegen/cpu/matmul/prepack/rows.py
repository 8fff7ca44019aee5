"""What is done for some rows of a product whose right operand was packed before: a function that kernels share for each dtype.

Rows are taken a tile at a time, panels of columns in groups that stay in the second cache; of the rows that are left, low tiles
begin where they end with the last row, so that rows are computed twice instead of some that are not there. What a tile adds in
which order depends on the extents alone.

Subnormal numbers are as in other products (``product_scales``), but that nobody writes what threads share: a panel was scaled, or
not, when it was packed. Rows that have such numbers are copied first, and the copy is scaled. Where sums of scaled numbers might
overflow, the rows themselves and a copy of the panel without its scale are multiplied.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from functools import reduce

from pullback.codegen.cpu.loops.nest_builder import number, parts, serial, shared, vector, when
from pullback.codegen.cpu.matmul.blocking import BESIDE
from pullback.codegen.cpu.matmul.prepack.microkernel import LOW, RowsTile
from pullback.codegen.cpu.matmul.subnormals import GREATEST, KNOWN, SCALED, SLOW, UNKNOWN, Scales
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR

RUN = 512
"""So many terms are added in registers; copies of rows and panels have as many."""
FEWEST = 4
"""A group has at least so many panels: what is looked up about rows serves all of them."""
REFS = ("left", "panels", "to")
NUMBERS = ("rows", "terms", "columns", "first", "tiles", "panel", "count")


@dataclass(frozen=True)
class PackedRows:
    """The function of some tiles of rows and some panels of columns. Parameters: where the left rows begin, the packed panels and
    the results; what is known of panels, and of rows; memory for a copy of rows and of a panel; the extents of the product, the
    first tile and how many, the first panel and how many. ``near``: the bytes of a group of panels."""

    tall: RowsTile
    low: RowsTile
    near: int

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
        return Scales(self.dtype, self.tall.lanes, RUN, BESIDE)

    def define(self, functions: dict[str, Instruction]) -> None:
        """The definitions, at the top of a kernel."""
        for tile in (self.tall, self.low):
            functions[tile.name] = tile.define()
        functions[self.name] = Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, *given: Value) -> None:
        b.emit(OPS["call"], given, {"function": self.name})

    def memory(self, b: Builder) -> tuple[Value, Value, Value]:
        """What is known of rows, and the copies."""
        tall = self.tall
        rows, panel = (b.local(dtype=self.dtype, shape=(RUN * size,)) for size in (tall.rows, tall.columns))
        return b.local(dtype=I64, shape=(KNOWN,)), rows, panel

    def function(self) -> Block:
        types: dict[str, Type] = {
            **dict.fromkeys(REFS, RefType(self.dtype, (FAR,))), "known": RefType(I64, (FAR,)),
            "known_rows": RefType(I64, (KNOWN,), space="stack"),
            "own_rows": RefType(self.dtype, (RUN * self.tall.rows,), space="stack"),
            "own_panel": RefType(self.dtype, (RUN * self.columns,), space="stack"),
            **dict.fromkeys(NUMBERS, scalar(I64)),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        b = Builder()
        _Rows(self, given).spell(b)
        return b.block(list(given.values()), [])


@functools.cache
def _function(of: PackedRows) -> Block:
    return of.function()


@dataclass(frozen=True, eq=False, kw_only=True)
class _Run:
    """A run of terms of a tile of rows: the first term, how many, whether it is the first run; how many rows the tile has, where
    they begin and, each, where their results do."""

    p0: Value
    count: Value
    is_first: Value
    is_tall: Value
    height: Value
    left: Value
    to: Value


class _Rows:
    """The body of the function."""

    def __init__(self, of: PackedRows, given: dict[str, Value]) -> None:
        self.of, self.tall, self.low, self.scales = of, of.tall, of.low, of.scales
        self.dtype, self.size = of.dtype, of.columns
        self.left, self.panels, self.to, self.known = (given[name] for name in (*REFS, "known"))
        self.known_rows, self.own_rows, self.own_panel = given["known_rows"], given["own_rows"], given["own_panel"]
        self.rows, self.terms, self.columns, self.first, self.tiles, self.panel, self.count = (given[n] for n in NUMBERS)

    def spell(self, b: Builder) -> None:
        bytes_ = b.mul(b.maximum(self.terms, number(b, 1)), number(b, self.size * self.dtype.bytes))
        group = b.maximum(b.idiv(number(b, self.of.near), bytes_), number(b, FEWEST))

        def some(b: Builder, g: Value) -> None:
            begin = b.mul(g, group)
            panels = b.add(self.panel, begin), b.minimum(group, b.sub(self.count, begin))
            serial(b, self.tiles, lambda b, t: self.tile(b, b.add(self.first, t), panels))

        serial(b, shared(b, self.count, group), some)

    def tile(self, b: Builder, t: Value, panels: tuple[Value, Value]) -> None:
        """A tile of rows, all its terms."""
        high = number(b, self.tall.rows)
        talls = b.idiv(self.rows, high)
        is_tall = b.lt(t, talls)
        behind = b.add(b.mul(talls, high), b.mul(b.sub(t, talls), number(b, LOW)))
        row = b.select(is_tall, b.mul(t, high), b.minimum(behind, b.sub(self.rows, number(b, LOW))))
        height = b.select(is_tall, high, number(b, LOW))
        to = b.mul(row, self.columns)

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, number(b, RUN))
            left = b.emit(OPS["ref_at"], (self.left, b.add(b.mul(row, self.terms), p0)), {})[0]
            count = b.minimum(number(b, RUN), b.sub(self.terms, p0))
            is_first = b.eq(q, number(b, 0))
            self.run(b, _Run(p0=p0, count=count, is_first=is_first, is_tall=is_tall, height=height, left=left, to=to), panels)

        serial(b, b.maximum(parts(b, self.terms, RUN), number(b, 1)), run)

    def run(self, b: Builder, run: _Run, panels: tuple[Value, Value]) -> None:
        b.store(b.cast(self.is_slow(b, run), dtype=I64), self.known_rows, number(b, SLOW))
        for at, value in ((SCALED, 0), (GREATEST, UNKNOWN)):
            b.store(number(b, value), self.known_rows, number(b, at))

        def panel(b: Builder, k: Value) -> None:
            j = b.add(panels[0], k)
            c = b.mul(j, number(b, self.size))
            place = b.add(b.mul(c, self.terms), b.mul(run.p0, number(b, self.size)))
            packed = b.emit(OPS["ref_at"], (self.panels, place), {})[0]
            to = b.emit(OPS["ref_at"], (self.to, b.add(run.to, c)), {})[0]
            goes = to, self.columns, b.sub(self.columns, c)
            known = b.emit(OPS["ref_at"], (self.known, b.mul(j, number(b, KNOWN))), {})[0]
            slow = b.add(b.load(self.known_rows, number(b, SLOW)), b.load(known, number(b, SCALED)))
            is_plain = b.eq(slow, number(b, 0))
            one = b.const(1.0, self.dtype)
            when(b, is_plain, lambda b: self.multiply(b, run, (run.left, self.terms), packed, one, goes))
            when(b, b.bitnot(is_plain), lambda b: self.settled(b, run, packed, known, goes))

        serial(b, panels[1], panel)

    def multiply(
        self, b: Builder, run: _Run, left: tuple[Value, Value], panel: Value, scale: Value, goes: tuple[Value, ...]
    ) -> None:  # fmt: skip
        given = *left, panel, run.count, run.is_first, scale, *goes
        when(b, run.is_tall, lambda b: self.tall.call(b, *given))
        when(b, b.bitnot(run.is_tall), lambda b: self.low.call(b, *given))

    # subnormal numbers

    def is_slow(self, b: Builder, run: _Run) -> Value:
        """Whether a run of a tile's rows has subnormal numbers."""
        scales, bits = self.scales, self.scales.bits
        most = b.sub(b.const(0, bits), b.const(1, bits))
        one, last = b.const(1, bits), b.sub(run.height, number(b, 1))
        starts = [b.mul(b.minimum(number(b, r), last), self.terms) for r in range(self.tall.rows)]
        inner, v = Builder(b.loc), Value(scalar(I64), "v")
        found = [scales.unsigned(inner, inner.load(run.left, inner.add(start, v))) for start in starts]
        least = reduce(inner.minimum, [inner.sub(x, one) for x in found])
        params = {"map": "vector", "combine": ("minimum",)}
        results = b.emit(OPS["for"], (run.count, most), params, [inner.block([v], [least])])
        slow: Value = b.lt(results[0], b.const((1 << scales.fraction) - 1, bits))
        return slow

    def apart(self, b: Builder, run: _Run) -> Value:
        """How far apart copied rows lie: whole vectors."""
        size = self.size
        found: Value = b.mul(parts(b, run.count, size), number(b, size))
        return found

    def copy_rows(self, b: Builder, run: _Run) -> None:
        """Copy a run of rows, and scale the copy if it has subnormal numbers and they stay finite."""
        apart = self.apart(b, run)
        whole = b.mul(apart, run.height)
        vector(b, whole, self.size, lambda b, v: b.store(b.const(0.0, self.dtype), self.own_rows, v))

        def row(b: Builder, r: Value) -> None:
            start, to = b.mul(r, self.terms), b.mul(r, apart)
            vector(b, run.count, 1, lambda b, v: b.store(b.load(run.left, b.add(start, v)), self.own_rows, b.add(to, v)))

        serial(b, run.height, row)
        scaled(b, self.scales, self.own_rows, self.known_rows, whole)

    def settled(self, b: Builder, run: _Run, packed: Value, known: Value, goes: tuple[Value, ...]) -> None:
        """A tile of which some numbers may be scaled, if its sums cannot overflow."""
        scales, greatest, at = self.scales, number(b, GREATEST), number(b, SCALED)
        is_new = b.eq(b.load(self.known_rows, greatest), number(b, UNKNOWN))
        when(b, is_new, lambda b: self.copy_rows(b, run))
        x, y = b.load(self.known_rows, greatest), b.load(known, greatest)
        panel_scaled = b.load(known, at)
        shift = b.mul(b.add(b.load(self.known_rows, at), panel_scaled), number(b, scales.shift))
        fits = b.le(b.add(b.add(x, y), shift), number(b, 3 * scales.bias - 2 - RUN.bit_length()))
        exponent = b.cast(b.sub(number(b, scales.bias), shift), dtype=scales.bits)
        scale = b.bitcast(b.raw_shl(exponent, b.const(scales.fraction, scales.bits)), dtype=self.dtype)
        lies, plain = (run.left, self.terms), b.const(1.0, self.dtype)
        own = b.emit(OPS["ref_at"], (self.own_rows, number(b, 0)), {})[0], self.apart(b, run)
        other = b.bitnot(fits)
        is_scaled = b.ne(panel_scaled, number(b, 0))

        def unscaled(b: Builder) -> None:
            self.copy_panel(b, run, packed)
            panel = b.emit(OPS["ref_at"], (self.own_panel, number(b, 0)), {})[0]
            self.multiply(b, run, lies, panel, plain, goes)

        when(b, fits, lambda b: self.multiply(b, run, own, packed, scale, goes))
        when(b, b.bitand(other, is_scaled), unscaled)
        when(b, b.bitand(other, b.bitnot(is_scaled)), lambda b: self.multiply(b, run, lies, packed, plain, goes))

    def copy_panel(self, b: Builder, run: _Run, packed: Value) -> None:
        """Copy a run of a panel as it was before it was scaled."""
        down = b.const(2.0**-self.scales.shift, self.dtype)
        size = b.mul(run.count, number(b, self.size))
        vector(b, size, self.size, lambda b, v: b.store(b.mul(b.load(packed, v), down), self.own_panel, v))


def scaled(b: Builder, scales: Scales, panel: Value, known: Value, count: Value) -> None:
    """Scale memory of which it is known whether it has subnormal numbers, if all numbers stay finite, and note what is known."""
    scales.look(b, panel, known, count, number(b, GREATEST))
    b.store(number(b, 0), known, number(b, SCALED))
    limit = number(b, 2 * scales.bias - scales.shift)
    fits = b.le(b.load(known, number(b, GREATEST)), limit)
    scales.bring(b, panel, known, count, fits)

