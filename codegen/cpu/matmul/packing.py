"""Pack the operands of a matrix product into panels: a few rows (or columns), K iteration by K iteration.

Packing evaluates the operands' regions in vectors along the contiguous axis: along the rows (or columns) of a panel, or along
K, in which case groups of rows are transposed in registers. Rows beyond the end are filled with zeros or copies of the last
row; their sums are never read, but stale subnormal numbers would be slow.

The parts of complex numbers are adjacent in left panels; in right panels all real parts of an iteration precede the imaginary
ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import (
    ceil_div,
    constant,
    elements,
    floor_div,
    is_contiguous_along,
    prefetch,
    serial,
    vector,
    when,
)
from pullback.codegen.cpu.matmul.blocking import LINE, TRANSPOSE_GROUP
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block
from pullback.ir.core.value import Value

K_RUN = 16
"""K iterations packed of one panel before the next one, whose memory is on other pages."""
LIGHT = 4
"""Most instructions, per part, of an operand that is packed in several vectors at a time."""
Span = tuple[Value, Value]
"""A first index and a count."""


class Panels:
    """Packs one operand. ``region`` takes the K index in position ``term`` and a row or column, of which there are ``total``,
    in the other; a panel has ``size`` of these; vectors have ``lanes``. ``numbers``: numbers of a panel per K iteration."""

    def __init__(self, region: Block, term: int, total: Value, size: int, lanes: int) -> None:
        self.region, self.term, self.total, self.size, self.lanes = region, term, total, size, lanes
        self.dtype = region.results[0].type.dtype
        self.is_transposed = is_contiguous_along(region, term, 1 - term)
        self.planes = len(region.results)
        self.numbers = size * self.planes
        self.element_stride, self.part_stride = (1, size) if term == 0 else (self.planes, 1)
        self.line = LINE // self.dtype.bytes // self.planes

    @property
    def is_light(self) -> bool:
        """Whether an element takes few instructions."""
        return len(self.region.instructions) <= LIGHT * self.planes

    def at(self, p: Value, k: Value) -> tuple[Value, Value]:
        """Return the arguments of the region for a K index and a row or column."""
        return (p, k) if self.term == 0 else (k, p)

    def elements(self, b: Builder, p: Value, k: Value) -> Sequence[Value]:
        """Inline the region; return the number, or the two parts of a complex one."""
        return elements(b, self.region, *self.at(p, k))

    def prefetch(self, b: Builder, p: Value, k: Value) -> None:
        """Emit prefetches of an element's memory."""
        prefetch(b, self.region, *self.at(p, k))

    def offset(self, b: Builder, p: Value, k: Value) -> Value:
        """Return the offset of an element within a panel."""
        offset: Value = b.add(
            b.mul(p, constant(b, self.numbers)), k if self.element_stride == 1 else b.mul(k, constant(b, self.element_stride))
        )
        return offset

    def put(self, b: Builder, values: Sequence[Value], panel: Value, p: Value, k: Value) -> None:
        """Store the parts of an element."""
        first = self.offset(b, p, k)
        for part, value in enumerate(values):
            b.store(value, panel, b.add(first, constant(b, part * self.part_stride)) if part else first)

    # one panel

    def pack(self, b: Builder, panel: Value, k_span: Span, rows: Span) -> None:
        """Pack the K span of a panel, which may have fewer than ``size`` rows."""
        if self.is_transposed:
            self.pack_transposed(b, panel, k_span, rows[0])
            return
        if not self.is_light or self.size < self.lanes:
            serial(b, k_span[1], lambda b, p: self.pack_partial(b, panel, p, b.add(k_span[0], p), rows))
            return
        is_whole = b.eq(rows[1], constant(b, self.size))
        full, rest = (b.select(holds, k_span[1], constant(b, 0)) for holds in (is_whole, b.bitnot(is_whole)))
        serial(b, full, lambda b, p: self.pack_full(b, panel, p, k_span[0], rows[0]))
        serial(b, rest, lambda b, p: self.pack_partial(b, panel, p, b.add(k_span[0], p), rows))

    def pack_partial(self, b: Builder, panel: Value, p: Value, at: Value, rows: Span) -> None:
        """Pack one K iteration of a panel with missing rows."""
        first, count = rows
        size = constant(b, self.numbers)
        zero = b.const(0.0, self.dtype)
        used = count if self.planes == 1 else b.mul(count, constant(b, self.planes))

        def clear(b: Builder, v: Value) -> None:
            b.store(zero, panel, b.add(b.mul(p, constant(b, self.numbers)), v))

        when(b, b.lt(used, size), lambda b: vector(b, size, self.numbers, clear))
        vector(b, count, 1, lambda b, v: self.put(b, self.elements(b, at, b.add(first, v)), panel, p, v))

    def pack_transposed(self, b: Builder, panel: Value, k_span: Span, first: Value, prefetches: bool = False) -> None:
        """Pack a panel that is contiguous along K, transposing groups of rows in registers. ``prefetches``: also prefetch the
        same span of the next panel."""
        last = b.sub(self.total, constant(b, 1))
        group_size = TRANSPOSE_GROUP // self.element_stride

        def group(b: Builder, g: Value) -> None:
            start = b.mul(g, constant(b, group_size))
            first_row = b.add(first, start)
            rows = [b.minimum(b.add(first_row, constant(b, k)), last) for k in range(group_size)]

            def some(b: Builder, p: Value) -> None:
                at = b.add(k_span[0], p)
                loaded = [self.elements(b, at, row) for row in rows]
                offset = self.offset(b, p, start)
                parts_by_distance = {
                    k * self.element_stride + part * self.part_stride: x
                    for k, parts in enumerate(loaded)
                    for part, x in enumerate(parts)
                }
                offsets = {
                    distance: b.add(offset, constant(b, distance)) if distance else offset
                    for distance in sorted(parts_by_distance)
                }
                for distance, target in offsets.items():
                    b.store(parts_by_distance[distance], panel, target)
                for k in range(self.size, self.size + group_size) if prefetches else ():
                    self.prefetch(b, at, b.add(first_row, constant(b, k)))

            vector(b, k_span[1], 1, some)

        serial(b, constant(b, self.size // group_size), group)

    def pack_full(self, b: Builder, panel: Value, p: Value, first_term: Value, first: Value) -> None:
        """Pack one K iteration of a full panel, several vectors at a time where elements are cheap. A last vector that would
        be partial overlaps its predecessor, because partial stores are slow on many processors."""
        at = b.add(first_term, p)
        step = self.lanes if self.is_light else self.size

        def store(b: Builder, v: Value) -> None:
            positions = [b.add(v, constant(b, min(x, self.size - step))) for x in range(0, self.size, step)]
            loaded = [self.elements(b, at, b.add(first, k)) for k in positions]
            for values, k in zip(loaded, positions, strict=True):
                self.put(b, values, panel, p, k)

        vector(b, constant(b, step), step, store)

    # several

    def pack_some(self, b: Builder, panels: Value, first_panel: Value, k_span: Span, columns: Span, panel_count: Value) -> None:
        """Pack consecutive panels, the first of them at position ``first_panel``."""
        first, count = columns

        def start(b: Builder, j: Value) -> Value:
            column: Value = b.add(first, b.mul(j, constant(b, self.size)))
            return column

        if self.is_transposed:
            serial(
                b,
                panel_count,
                lambda b, j: self.pack_transposed(b, b.subview(panels, b.add(first_panel, j)), k_span, start(b, j), True),
            )
            return
        full = floor_div(b, count, self.size)
        done = b.mul(full, constant(b, self.size))
        rest = b.sub(count, done)

        def some(b: Builder, g: Value) -> None:
            start_p = b.mul(g, constant(b, K_RUN))
            few = b.minimum(constant(b, K_RUN), b.sub(k_span[1], start_p))

            def panel_of(b: Builder, j: Value) -> None:
                panel, here = b.subview(panels, b.add(first_panel, j)), start(b, j)
                serial(b, few, lambda b, q: self.pack_full(b, panel, b.add(start_p, q), k_span[0], here))

            serial(b, full, panel_of)

        serial(b, ceil_div(b, k_span[1], K_RUN), some)
        last = b.subview(panels, b.add(first_panel, full))
        when(b, b.gt(rest, constant(b, 0)), lambda b: self.pack(b, last, k_span, (b.add(first, done), rest)))

    def prefetch_block(self, b: Builder, k_span: Span, first: Value) -> None:
        """Prefetch a K span of a panel."""

        def some(b: Builder, p: Value) -> None:
            at = b.add(k_span[0], p)
            for x in range(0, self.size, self.line):
                self.prefetch(b, at, b.add(first, constant(b, x)))

        def lines(b: Builder, p: Value) -> None:
            at = b.add(k_span[0], b.mul(p, constant(b, self.line)))
            for k in range(self.size):
                self.prefetch(b, at, b.add(first, constant(b, k)))

        if self.is_transposed:
            serial(b, floor_div(b, b.add(k_span[1], constant(b, self.line - 1)), self.line), lines)
        else:
            serial(b, k_span[1], some)
