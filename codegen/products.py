"""products: matrix products spelled out in loops.

Requires: a lowered kernel. Keeps: its meaning. On the CPU the result is cut into blocks, which threads share out. For each block
as many terms as a packed panel has are added at a time: the right operand's columns are packed in panels as wide as a tile, then
row by row of panels the left operand's rows, and a tile of sums after the other is computed in registers. What sums there are
wait in memory of the block's own; after the last terms those of a row of tiles go, element by element, where the product's last
region takes them. Packing is where the regions of the operands run.

The order of additions is that of the terms, in blocks whose length depends on their number alone. For a GPU (no ``shape``), a
``product`` becomes plain loops over rows, columns and terms.

Cost: an element of the left operand is packed once for each block of columns, one of the right operand once for each block of
rows. Footprint: ``Shape`` says which cache holds what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.codegen.cuda_loops import is_shifted
from pullback.codegen.product_shapes import GROUP, Shape, shape_for
from pullback.codegen.processors import Target
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.kernel import Load
from pullback.ir.ops.product import Product
from pullback.ir.structure import Block, Instruction, Value, copied
from pullback.ir.types import I64, scalar

Body = Callable[[Builder, Value], None]


def products(block: Block, target: Target | None = None, outermost: bool = True) -> Block:
    """A kernel's body without products: for a CPU, or for a GPU if there is no ``target``."""
    made: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Product) and target is not None:
            _Blocked(Builder(i.loc, made), i, target, outermost).spell()
        elif isinstance(i.op, Product):
            _spell(Builder(i.loc, made), i)
        else:
            regions = tuple(products(r, target, False) for r in i.regions)
            made.append(replace(i, regions=regions) if i.regions else i)
    return replace(block, instructions=tuple(made))


def _spell(b: Builder, i: Instruction) -> None:
    rows, columns, terms = i.operands
    left, right, each = i.regions
    row, column, term = (Value(scalar(I64), name) for name in "ijp")
    x, y = copied(left, (row, term)), copied(right, (term, column))
    zero = b.const(0.0, x.results[0].type.dtype)

    inner = Builder(i.loc, [*x.instructions, *y.instructions])
    terms_of = inner.block([term], [inner.mul(x.results[0], y.results[0])])
    around = Builder(i.loc)
    (total,) = around.emit(OPS["for"], (terms, zero), {"combine": ("add",)}, [terms_of])
    around.instructions.extend(copied(each, (row, column, total)).instructions)
    across = Builder(i.loc)
    across.emit(OPS["for"], (columns,), {}, [around.block([column], [])])
    b.emit(OPS["for"], (rows,), {}, [across.block([row], [])])


class _Blocked:
    """A product in packed, register-tiled blocks. Positions of rows are called i, of columns j, of terms p."""

    def __init__(self, b: Builder, i: Instruction, target: Target, outermost: bool) -> None:
        self.b, self.i, self.outermost = b, i, outermost
        self.rows, self.columns, self.terms = i.operands
        self.left, self.right, self.each = i.regions
        self.dtype = self.left.results[0].type.dtype
        self.has_fma = target.has_fma
        self.shape: Shape = shape_for(target, self.dtype)

    # blocks of the result

    def spell(self) -> None:
        b, shape = self.b, self.shape
        row_panels, column_panels = self.over(b, self.rows, shape.rows), self.over(b, self.columns, shape.columns)
        down, along = self.blocks(b, row_panels, column_panels)
        high, wide = self.quotient(b, row_panels, down), self.quotient(b, column_panels, along)
        number = b.mul(down, along)

        def block(b: Builder, c: Value) -> None:
            column = b.idiv(c, down)
            row = b.sub(c, b.mul(column, down))
            first, left = b.mul(row, high), b.mul(column, wide)
            panels = b.minimum(high, b.sub(row_panels, first))
            panels = b.maximum(panels, b.const(0, I64))
            across = b.maximum(b.minimum(wide, b.sub(column_panels, left)), b.const(0, I64))
            self.block(b, first, panels, left, across)

        self.loop(b, number, block, **({"map": "core"} if self.outermost else {"map": "serial", "ordered": True}))

    def blocks(self, b: Builder, row_panels: Value, column_panels: Value) -> tuple[Value, Value]:
        """Into how many blocks the panels of rows and of columns are cut: as many as caches ask for; and where there is work for
        several threads, some for each, equally many."""
        shape, one = self.shape, b.const(1, I64)
        down = b.maximum(self.over(b, row_panels, shape.most_high), one)
        along = b.maximum(self.over(b, column_panels, shape.most_wide), one)
        if not self.outermost:
            return down, along
        work = b.mul(b.mul(self.rows, self.columns), self.terms)
        threads = b.emit(OPS["threads"], (), {})[0]
        wanted = b.select(b.ge(work, b.const(shape.worth, I64)), threads, one)
        uneven = b.lt(b.mul(down, along), b.mul(wanted, b.const(4, I64)))
        wanted = b.select(uneven, wanted, one)
        by_rows = b.ge(row_panels, wanted)
        down = b.mul(self.quotient(b, down, b.select(by_rows, wanted, one)), b.select(by_rows, wanted, one))
        along = b.mul(self.quotient(b, along, b.select(by_rows, one, wanted)), b.select(by_rows, one, wanted))
        return down, along

    def block(self, b: Builder, first: Value, panels: Value, left: Value, across: Value) -> None:
        """The block of so many panels of rows and of columns, from a first one of each."""
        shape, zero, one = self.shape, b.const(0, I64), b.const(1, I64)
        i0, j0 = b.mul(first, b.const(shape.rows, I64)), b.mul(left, b.const(shape.columns, I64))
        width = b.minimum(b.mul(across, b.const(shape.columns, I64)), b.sub(self.columns, j0))
        times = b.maximum(self.over(b, self.terms, shape.terms), one)
        several = b.gt(times, one)
        length = self.over(b, self.quotient(b, self.terms, times), shape.lanes)
        length = b.mul(length, b.const(shape.lanes, I64))
        packed = b.local(dtype=self.dtype, shape=(shape.terms, shape.rows))
        panels_of_right = b.local(across, dtype=self.dtype, shape=(shape.most_wide, shape.terms, shape.columns))
        kept = b.select(several, panels, one)
        sums = b.local(kept, dtype=self.dtype, shape=(shape.most_high, shape.rows, shape.strip))

        def some_terms(b: Builder, q: Value) -> None:
            p0 = b.mul(q, length)
            count = b.minimum(length, b.sub(self.terms, p0))
            is_first, is_last = b.eq(q, zero), b.eq(b.add(q, one), times)
            self.pack_right(b, panels_of_right, (p0, count), (j0, width, across))

            def row_of_tiles(b: Builder, r: Value) -> None:
                i = b.add(i0, b.mul(r, b.const(shape.rows, I64)))
                height = b.minimum(b.const(shape.rows, I64), b.sub(self.rows, i))
                self.pack_left(b, packed, (p0, count), (i, height))
                strip = b.sub_ref(sums, b.select(several, r, zero))

                def tile(b: Builder, j: Value) -> None:
                    panel = b.sub_ref(panels_of_right, j)
                    self.tile(b, packed, panel, count, strip, b.mul(j, b.const(shape.columns, I64)), is_first)

                self.serial(b, across, tile)
                self.when(b, is_last, lambda b: self.finish(b, strip, (i, height), (j0, width)))

            self.serial(b, panels, row_of_tiles)

        self.serial(b, times, some_terms)

    def finish(self, b: Builder, strip: Value, rows: tuple[Value, Value], columns: tuple[Value, Value]) -> None:
        """What is done with the sums of a row of tiles."""
        i0, height = rows
        j0, width = columns

        def row(b: Builder, r: Value) -> None:
            i = b.add(i0, r)

            def element(b: Builder, c: Value) -> None:
                found = copied(self.each, (i, b.add(j0, c), b.load(strip, r, c)))
                b.instructions.extend(found.instructions)

            self.loop(b, width, element)

        self.loop(b, height, row, ordered=True, map="serial")

    # the tile in registers

    def tile(
        self, b: Builder, packed: Value, panel: Value, count: Value, strip: Value, j: Value, is_first: Value
    ) -> None:
        shape = self.shape
        inner, lane = Builder(b.loc), Value(scalar(I64), "v")
        numbers = [inner.const(r, I64) for r in range(max(shape.rows, shape.vectors))]
        lanes = [lane, *(inner.add(lane, inner.const(x * shape.lanes, I64)) for x in range(1, shape.vectors))]
        zero = inner.const(0.0, self.dtype)
        step, p = Builder(b.loc), Value(scalar(I64), "p")
        places = [(r, x) for r in range(shape.rows) for x in range(shape.vectors)]
        before = [Value(scalar(self.dtype), "sum") for _ in places]
        right = [step.load(panel, p, at) for at in lanes]
        after = []
        for r in range(shape.rows):
            left = step.load(packed, p, numbers[r])
            for x in range(shape.vectors):
                after.append(self.multiply_add(step, left, right[x], before[r * shape.vectors + x]))
        terms = step.block([p, *before], after)
        totals = inner.emit(OPS["for"], (count, *[zero] * len(places)), {"map": "serial"}, [terms])
        at = [inner.add(j, lane) for lane in lanes]

        def put(b: Builder) -> None:
            for (r, x), total in zip(places, totals, strict=True):
                b.store(total, strip, numbers[r], at[x])

        def add(b: Builder) -> None:
            sums = [b.add(b.load(strip, numbers[r], at[x]), t) for (r, x), t in zip(places, totals, strict=True)]
            for (r, x), total in zip(places, sums, strict=True):
                b.store(total, strip, numbers[r], at[x])

        self.when(inner, is_first, put)
        self.when(inner, inner.bitnot(is_first), add)
        width = b.const(shape.lanes, I64)
        b.emit(OPS["for"], (width,), {"map": "vector", "multiple": shape.lanes}, [inner.block([lane], [])])

    def multiply_add(self, b: Builder, x: Value, y: Value, z: Value) -> Value:
        found: Value = b.fma(x, y, z) if self.has_fma else b.add(b.mul(x, y), z)
        return found

    # packing

    def pack_right(self, b: Builder, panels: Value, terms: tuple[Value, Value], columns: tuple[Value, Value, Value]) -> None:
        """Pack so many terms from a first one of some columns, in panels."""
        size, (j0, width, across) = self.shape.columns, columns
        p0, count = terms
        if _walks(self.right, 0, 1):

            def panel_of(b: Builder, j: Value) -> None:
                first = b.add(j0, b.mul(j, b.const(size, I64)))
                last = b.sub(self.columns, b.const(1, I64))
                self.pack_across(b, b.sub_ref(panels, j), terms, size, lambda b, p, k: self.element(
                    b, self.right, p, b.minimum(b.add(first, k), last)))

            self.serial(b, across, panel_of)
            return
        whole = self.quotient_down(b, width, size)
        done = b.mul(whole, b.const(size, I64))
        rest = b.sub(width, done)
        none = b.const(0, I64)

        def term(b: Builder, p: Value) -> None:
            at = b.add(p0, p)

            def panel_of(b: Builder, j: Value) -> None:
                panel = b.sub_ref(panels, j)
                first = b.add(j0, b.mul(j, b.const(size, I64)))
                self.vector(b, b.const(size, I64), size, lambda b, v: b.store(
                    self.element(b, self.right, at, b.add(first, v)), panel, p, v))

            self.serial(b, whole, panel_of)

        def end(b: Builder, p: Value) -> None:
            panel, at, first = b.sub_ref(panels, whole), b.add(p0, p), b.add(j0, done)
            self.part(b, panel, p, size, rest, lambda b, v: self.element(b, self.right, at, b.add(first, v)))

        self.serial(b, count, term)
        self.serial(b, b.select(b.gt(rest, none), count, none), end)

    def pack_left(self, b: Builder, packed: Value, terms: tuple[Value, Value], rows: tuple[Value, Value]) -> None:
        """Pack so many terms from a first one of a panel's rows."""
        size, (i0, height) = self.shape.rows, rows
        p0, count = terms
        if _walks(self.left, 1, 0):
            last = b.sub(self.rows, b.const(1, I64))
            self.pack_across(b, packed, terms, size, lambda b, p, k: self.element(
                b, self.left, b.minimum(b.add(i0, k), last), p))
            return

        def term(b: Builder, p: Value) -> None:
            at = b.add(p0, p)
            self.part(b, packed, p, size, height, lambda b, v: self.element(b, self.left, b.add(i0, v), at))

        self.serial(b, count, term)

    def part(
        self, b: Builder, panel: Value, p: Value, size: int, count: Value, element: Callable[[Builder, Value], Value]
    ) -> None:
        """One term of a panel that may have fewer rows or columns than fit; those that are not there are zero."""
        zero = b.const(0.0, self.dtype)

        def clear(b: Builder) -> None:
            self.vector(b, b.const(size, I64), size, lambda b, v: b.store(zero, panel, p, v))

        self.when(b, b.lt(count, b.const(size, I64)), clear)
        self.vector(b, count, 1, lambda b, v: b.store(element(b, v), panel, p, v))

    def pack_across(
        self, b: Builder, panel: Value, terms: tuple[Value, Value], size: int,
        element: Callable[[Builder, Value, Value], Value],
    ) -> None:
        """Pack a panel of elements whose terms are neighbours in memory: some rows (or columns) at a time, turned."""
        p0, count = terms

        def group(b: Builder, g: Value) -> None:
            first = b.mul(g, b.const(GROUP, I64))

            def some(b: Builder, p: Value) -> None:
                at = b.add(p0, p)
                places = [first, *(b.add(first, b.const(k, I64)) for k in range(1, GROUP))]
                values = [element(b, at, k) for k in places]
                for value, k in zip(values, places, strict=True):
                    b.store(value, panel, p, k)

            self.vector(b, count, 1, some)

        self.serial(b, b.const(size // GROUP, I64), group)

    @staticmethod
    def element(b: Builder, region: Block, *at: Value) -> Value:
        """An element of an operand."""
        found = copied(region, at)
        b.instructions.extend(found.instructions)
        return found.results[0]

    # what kernels are made of

    def over(self, b: Builder, count: Value, size: int) -> Value:
        """How many of a size hold a count."""
        return self.quotient(b, count, b.const(size, I64), size)

    def quotient(self, b: Builder, count: Value, size: Value, known: int = 0) -> Value:
        """A quotient that is rounded up."""
        more = b.add(count, b.sub(size, b.const(1, I64)))
        return self.quotient_down(b, more, known) if known else b.idiv(more, b.maximum(size, b.const(1, I64)))

    @staticmethod
    def quotient_down(b: Builder, count: Value, size: int) -> Value:
        is_power = size & (size - 1) == 0
        found: Value = b.raw_shr(count, b.const(size.bit_length() - 1, I64)) if is_power else b.idiv(count, b.const(size, I64))
        return found

    def serial(self, b: Builder, count: Value, body: Body) -> None:
        self.loop(b, count, body, map="serial", ordered=True)

    def vector(self, b: Builder, count: Value, multiple: int, body: Body) -> None:
        self.loop(b, count, body, map="vector", **({"multiple": multiple} if multiple > 1 else {}))

    @staticmethod
    def loop(b: Builder, count: Value, body: Body, **params: object) -> None:
        inner, index = Builder(b.loc), Value(scalar(I64))
        body(inner, index)
        b.emit(OPS["for"], (count,), params, [inner.block([index], [])])

    @staticmethod
    def when(b: Builder, condition: Value, body: Callable[[Builder], None]) -> None:
        inner = Builder(b.loc)
        body(inner)
        b.emit(OPS["if"], (condition,), {}, [inner.block([], [])])


def _walks(region: Block, one: int, other: int) -> bool:
    """Whether more of what a region reads lies side by side along one of its parameters than along the other."""
    return _along(region, region.parameters[one]) > _along(region, region.parameters[other])


def _along(region: Block, index: Value) -> int:
    """How many of a region's loads read neighbours along an index."""
    made = {v: i for i in region.instructions for v in i.results}
    varies = {index}
    for i in region.instructions:
        if not varies.isdisjoint(i.operands):
            varies.update(i.results)
    loads = (i for i in region.instructions if isinstance(i.op, Load))
    return sum(_is_along(i.operands[1 + i.op.masked :], index, made, varies) for i in loads if isinstance(i.op, Load))


def _is_along(at: Sequence[Value], index: Value, made: dict[Value, Instruction], varies: set[Value]) -> bool:
    return bool(at) and at[-1] in varies and is_shifted(at[-1], index, made, varies) and varies.isdisjoint(at[:-1])
