"""Matrix products on the CPU: packed, in tiles of registers and blocks of caches (Goto and van de Geijn 2008).

The result is cut into blocks, which threads share out. For each block as many terms as a packed panel has are added at a time:
the right operand's columns are packed in panels as wide as a tile, then panel by panel the left operand's rows, and one tile of
sums after the other is computed in registers. Sums wait in memory of the block's own; after the last terms those of a row of
tiles go, element by element, where the product's last region takes them.

The order of additions is that of the terms, in runs whose length depends on their number alone.

Memory is asked for while tiles are computed: the sums of a tile when it begins, and with each tile its share of what is packed
next and of where the results go.

Cost: an element of the left operand is packed once for each block of columns, one of the right operand once for each block of
rows. Footprint: ``product_shapes`` says which cache holds what.
"""

from __future__ import annotations

from dataclasses import dataclass

from pullback.codegen.processors import Target
from pullback.codegen.product_panels import Panels, Span
from pullback.codegen.product_parts import ask, loop, number, parts, serial, shared, when, whole
from pullback.codegen.product_scales import KNOWN, Scales
from pullback.codegen.product_shapes import LINE, Shape, shape_for
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.product import ROWS
from pullback.ir.structure import Instruction, Value, copied
from pullback.ir.types import I64, scalar

NEXT = 16
"""So many terms ahead a panel of the right operand is asked for, from the second cache into the first."""
EACH = 4
"""Of fewer blocks a thread, each gets equally many."""
FLAT, NARROW = 4, 8
"""Blocks of so few panels of rows have at most so many of columns: these are read again soon after they are packed."""
TOGETHER = 16
"""Blocks of so many panels of rows begin at a multiple of the rows that a row of a *part* is for: no two blocks share one."""
LIGHT = 4
"""What is done with results in so few instructions is done tile by tile."""
FEW = 5
"""Loops of fewer chunks may find that it is not worth waking a thread (``run``): some more are empty."""


@dataclass(frozen=True)
class Packed:
    """The two panels of a tile, how many terms they have, and what its sums are multiplied by."""

    left: Value
    right: Value
    count: Value
    scale: Value


class Blocks:
    """One product."""

    def __init__(self, b: Builder, i: Instruction, target: Target, outermost: bool) -> None:
        self.b, self.outermost = b, outermost
        self.rows, self.columns, self.terms, *self.parts = i.operands
        self.combine = i.params.get("combine", ())
        left, right, self.each = i.regions
        self.dtype = left.results[0].type.dtype
        self.is_light = not self.parts and len(self.each.instructions) <= LIGHT
        self.has_fma = target.has_fma
        self.shape: Shape = shape_for(target, self.dtype)
        self.scales = Scales(self.dtype, self.shape.lanes, self.shape.terms)
        self.left = Panels(left, 1, self.rows, self.shape.rows, self.shape.lanes)
        self.right = Panels(right, 0, self.columns, self.shape.columns, self.shape.lanes)

    def spell(self) -> None:
        b, shape = self.b, self.shape
        row_panels, column_panels = parts(b, self.rows, shape.rows), parts(b, self.columns, shape.columns)
        is_long = b.ge(b.mul(b.mul(self.rows, self.columns), self.terms), number(b, shape.worth))
        down, along = self.number(row_panels, column_panels, is_long)
        high, wide = shared(b, row_panels, down), shared(b, column_panels, along)
        if self.parts:
            high = b.mul(parts(b, high, TOGETHER), number(b, TOGETHER))
        high, wide = b.maximum(high, number(b, 1)), b.maximum(wide, number(b, 1))
        down = shared(b, row_panels, high)
        blocks = b.mul(down, shared(b, column_panels, wide))

        def block(b: Builder, c: Value) -> None:
            column = b.idiv(c, down)
            first = b.mul(b.sub(c, b.mul(column, down)), high)
            left = b.mul(column, wide)
            panels, across = b.minimum(high, b.sub(row_panels, first)), b.minimum(wide, b.sub(column_panels, left))
            self.block(b, (first, panels), (left, across))

        if not self.outermost:
            serial(b, blocks, block)
            return
        chunks = b.select(b.bitand(is_long, b.gt(blocks, number(b, 1))), b.maximum(blocks, number(b, FEW)), blocks)
        loop(b, chunks, lambda b, c: when(b, b.lt(c, blocks), lambda b: block(b, c)), map="core")

    def number(self, row_panels: Value, column_panels: Value, is_long: Value) -> tuple[Value, Value]:
        """Into how many blocks rows and columns are cut: as many as caches ask for; where there is work for several threads, some
        for each."""
        b, shape, one = self.b, self.shape, number(self.b, 1)
        down = b.maximum(parts(b, row_panels, shape.most_high), one)
        is_flat = b.le(row_panels, number(b, FLAT))
        wide = b.select(is_flat, number(b, min(NARROW, shape.most_wide)), number(b, shape.most_wide))
        along = b.maximum(shared(b, column_panels, wide), one)
        if not self.outermost:
            return down, along
        threads = b.emit(OPS["threads"], (), {})[0]
        few = b.lt(b.mul(down, along), b.mul(threads, number(b, EACH)))
        wanted = b.select(b.bitand(few, is_long), threads, one)
        by_rows = b.ge(row_panels, wanted)
        of_rows, of_columns = b.select(by_rows, wanted, one), b.select(by_rows, one, wanted)
        return b.mul(shared(b, down, of_rows), of_rows), b.mul(shared(b, along, of_columns), of_columns)

    def block(self, b: Builder, row_panels: Span, column_panels: Span) -> None:
        """The block of some panels of rows and of columns."""
        shape, one = self.shape, number(b, 1)
        (first, panels), (left, across) = row_panels, column_panels
        i0, j0 = b.mul(first, number(b, shape.rows)), b.mul(left, number(b, shape.columns))
        width = b.minimum(b.mul(across, number(b, shape.columns)), b.sub(self.columns, j0))
        runs = b.maximum(parts(b, self.terms, shape.terms), one)
        several = b.gt(runs, one)
        length = b.mul(parts(b, shared(b, self.terms, runs), shape.lanes), number(b, shape.lanes))
        is_far = self.is_far(b)
        # the left operand's panel comes first, then those of the right one
        among = b.add(across, one)
        panels_of = b.local(among, dtype=self.dtype, shape=(shape.most_wide + 1, shape.panel))
        known = b.local(among, dtype=I64, shape=(shape.most_wide + 1, KNOWN))
        packed = b.sub_ref(panels_of, number(b, 0))
        sums = b.local(b.select(several, panels, one), dtype=self.dtype, shape=(shape.most_high, shape.rows, shape.strip))

        def run(b: Builder, q: Value) -> None:
            p0 = b.mul(q, length)
            count = b.minimum(length, b.sub(self.terms, p0))
            is_first, is_last = b.eq(q, number(b, 0)), b.eq(b.add(q, one), runs)
            of_row, of_column = (b.mul(count, number(b, size)) for size in (shape.rows, shape.columns))
            self.right.pack_all(b, panels_of, (p0, count), (j0, width), across)
            serial(b, across, lambda b, j: self.forget(b, panels_of, known, b.add(j, one), of_column))

            def row(b: Builder, r: Value) -> None:
                i = b.add(i0, b.mul(r, number(b, shape.rows)))
                height = b.minimum(number(b, shape.rows), b.sub(self.rows, i))
                self.left.pack(b, packed, (p0, count), (i, height))
                self.forget(b, panels_of, known, number(b, 0), of_row)
                strip = b.sub_ref(sums, b.select(several, r, number(b, 0)))
                part = shared(b, b.select(is_far, count, number(b, 0)), across)
                ends = b.bitand(is_far, is_last)

                def tile(b: Builder, j: Value) -> None:
                    c = b.mul(j, number(b, shape.columns))
                    self.left.ask_for(b, (b.add(p0, b.mul(j, part)), part), b.add(i, number(b, shape.rows)))
                    when(b, ends, lambda b: self.ask_results(b, i, b.add(j0, c)))
                    k = b.add(j, one)
                    scale = self.scales.settle(b, panels_of, known, k, (of_row, of_column))
                    self.tile(b, Packed(packed, b.sub_ref(panels_of, k), count, scale), strip, c, is_first)
                    if self.is_light:
                        some = b.minimum(number(b, shape.columns), b.sub(width, c))
                        when(b, is_last, lambda b: self.finish(b, strip, (i, height), (j0, c, some)))

                serial(b, across, tile)
                if not self.is_light:
                    when(b, is_last, lambda b: self.finish(b, strip, (i, height), (j0, number(b, 0), width)))

            serial(b, panels, row)

        serial(b, runs, run)

    def forget(self, b: Builder, panels: Value, known: Value, k: Value, count: Value) -> None:
        self.scales.forget(b, b.sub_ref(panels, k), b.sub_ref(known, k), count)

    def is_far(self, b: Builder) -> Value:
        """Whether operands and results are more than the second cache has room for beside what is packed."""
        numbers = b.add(b.mul(self.terms, b.add(self.rows, self.columns)), b.mul(self.rows, self.columns))
        found: Value = b.gt(numbers, number(b, self.shape.near))
        return found

    def ask_results(self, b: Builder, i: Value, j: Value) -> None:
        """Ask for where the results of a tile go, and what they are computed from."""
        def row(b: Builder, r: Value) -> None:
            for c in range(0, self.shape.columns, LINE // self.dtype.bytes):
                ask(b, self.each, b.add(i, r), b.add(j, number(b, c)))

        serial(b, number(b, self.shape.rows), row)

    def finish(self, b: Builder, strip: Value, rows: Span, columns: tuple[Value, Value, Value]) -> None:
        """What is done with the sums of a row of tiles."""
        i0, height = rows
        j0, first, count = columns
        whole_rows = whole(b, i0, ROWS) if self.parts else i0

        def row(b: Builder, r: Value) -> None:
            i = b.add(i0, r)

            def element(b: Builder, k: Value) -> None:
                c = b.add(first, k)
                j = b.add(j0, c)
                found = copied(self.each, (i, j, b.load(strip, r, c)))
                b.instructions.extend(found.instructions)
                for part, name, value in zip(self.parts, self.combine, found.results, strict=True):
                    b.store(b.emit(OPS[name], (b.load(part, whole_rows, j), value))[0], part, whole_rows, j)

            loop(b, count, element)

        serial(b, height, row)

    def tile(self, b: Builder, packed: Packed, strip: Value, j: Value, is_first: Value) -> None:
        """A tile of sums, in registers while its terms are added; then they are put into their strip at a column, or added to it,
        each multiplied by a scale."""
        shape, panel, scale = self.shape, packed.right, packed.scale
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        numbers = [number(inner, r) for r in range(shape.rows)]
        lanes = [lane, *(inner.add(lane, number(inner, x * shape.lanes)) for x in range(1, shape.vectors))]
        zero = inner.const(0.0, self.dtype)
        places = [(r, x) for r in range(shape.rows) for x in range(shape.vectors)]
        at = [inner.add(j, lane) for lane in lanes]
        for r, x in places:
            inner.prefetch(strip, numbers[r], at[x], near=True)
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        before = [Value(scalar(self.dtype), "sum") for _ in places]
        from_row, from_panel = (step.mul(p, number(step, size)) for size in (shape.rows, shape.columns))
        right = [step.load(panel, step.add(from_panel, lane)) for lane in lanes]
        after = []
        for r in range(shape.rows):
            left = step.load(packed.left, step.add(from_row, numbers[r]))
            after += [self.multiply_add(step, left, right[x], before[r * shape.vectors + x]) for x in range(shape.vectors)]
        for lane_ in lanes:
            step.prefetch(panel, step.add(step.add(from_panel, number(step, NEXT * shape.columns)), lane_), near=True)
        body = step.block([p, *before], after)
        totals = inner.emit(OPS["for"], (packed.count, *[zero] * len(places)), {"map": "serial"}, [body])

        def put(b: Builder) -> None:
            for (r, x), total in zip(places, totals, strict=True):
                b.store(b.mul(total, scale), strip, numbers[r], at[x])

        def add(b: Builder) -> None:
            before = [b.load(strip, numbers[r], at[x]) for r, x in places]
            sums = [self.multiply_add(b, t, scale, s) for t, s in zip(totals, before, strict=True)]
            for (r, x), total in zip(places, sums, strict=True):
                b.store(total, strip, numbers[r], at[x])

        when(inner, is_first, put)
        when(inner, inner.bitnot(is_first), add)
        params = {"map": "vector", "multiple": shape.lanes}
        b.emit(OPS["for"], (number(b, shape.lanes),), params, [inner.block([lane], [])])

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found
