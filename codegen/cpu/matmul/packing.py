"""The packed operands of a matrix product: panels of some rows, or columns, term by term.

Packing is where the regions of the operands run, in vectors along what lies side by side in memory: along a panel's rows (or
columns) of one term, or along the terms, and then some rows at a time are turned in registers. Rows that are not there are zero,
or copies of the last one: nobody reads their sums, but numbers left over from elsewhere might be slow ones.

Of complex numbers the parts of each row of the left operand are side by side; of the right one, all real parts of a term come
before the imaginary ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.loops.nest_builder import ask, elements, number, parts, serial, vector, walks, when, whole
from pullback.codegen.cpu.matmul.blocking import GROUP, LINE
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block
from pullback.ir.core.value import Value

SOME = 16
"""So many terms of a panel are packed before those of the next one, which has pages of its own."""
LIGHT = 4
"""An operand of so few instructions is packed in several vectors at a time."""
Span = tuple[Value, Value]
"""A first one and how many."""


class Panels:
    """Packs one operand. ``region`` takes a term where ``term`` says, and a row or column, of which there are ``total``, in the
    other place; a panel has ``size`` of these, vectors ``lanes``. ``numbers``: how many of a term are in a panel."""

    def __init__(self, region: Block, term: int, total: Value, size: int, lanes: int) -> None:
        self.region, self.term, self.total, self.size, self.lanes = region, term, total, size, lanes
        self.dtype = region.results[0].type.dtype
        self.is_turned = walks(region, term, 1 - term)
        self.planes = len(region.results)
        self.numbers = size * self.planes
        self.step, self.apart = (1, size) if term == 0 else (self.planes, 1)
        self.line = LINE // self.dtype.bytes // self.planes

    @property
    def is_light(self) -> bool:
        """Whether an element is little code."""
        return len(self.region.instructions) <= LIGHT * self.planes

    def at(self, p: Value, k: Value) -> tuple[Value, Value]:
        """The arguments of the region for a term and a row or column."""
        return (p, k) if self.term == 0 else (k, p)

    def elements(self, b: Builder, p: Value, k: Value) -> Sequence[Value]:
        """What the region yields, the parts of a complex number or one."""
        return elements(b, self.region, *self.at(p, k))

    def ask(self, b: Builder, p: Value, k: Value) -> None:
        ask(b, self.region, *self.at(p, k))

    def place(self, b: Builder, p: Value, k: Value) -> Value:
        """Where a panel has a term of one of its rows or columns."""
        found: Value = b.add(b.mul(p, number(b, self.numbers)), k if self.step == 1 else b.mul(k, number(b, self.step)))
        return found

    def put(self, b: Builder, values: Sequence[Value], panel: Value, p: Value, k: Value) -> None:
        """Store the parts of an element."""
        first = self.place(b, p, k)
        for part, value in enumerate(values):
            b.store(value, panel, b.add(first, number(b, part * self.apart)) if part else first)

    # one panel

    def pack(self, b: Builder, panel: Value, terms: Span, of: Span) -> None:
        """Pack the terms of a panel that may have fewer rows than fit."""
        if self.is_turned:
            self.turn(b, panel, terms, of[0])
            return
        if not self.is_light or self.size < self.lanes:
            serial(b, terms[1], lambda b, p: self.part(b, panel, p, b.add(terms[0], p), of))
            return
        is_whole = b.eq(of[1], number(b, self.size))
        whole_, rest = (b.select(holds, terms[1], number(b, 0)) for holds in (is_whole, b.bitnot(is_whole)))
        serial(b, whole_, lambda b, p: self.whole_part(b, panel, p, terms[0], of[0]))
        serial(b, rest, lambda b, p: self.part(b, panel, p, b.add(terms[0], p), of))

    def part(self, b: Builder, panel: Value, p: Value, at: Value, of: Span) -> None:
        """One term of such a panel."""
        first, count = of
        size = number(b, self.numbers)
        zero = b.const(0.0, self.dtype)
        given = count if self.planes == 1 else b.mul(count, number(b, self.planes))

        def clear(b: Builder, v: Value) -> None:
            b.store(zero, panel, b.add(b.mul(p, number(b, self.numbers)), v))

        when(b, b.lt(given, size), lambda b: vector(b, size, self.numbers, clear))
        vector(b, count, 1, lambda b, v: self.put(b, self.elements(b, at, b.add(first, v)), panel, p, v))

    def turn(self, b: Builder, panel: Value, terms: Span, first: Value, asks: bool = False) -> None:
        """Pack a panel of which terms are neighbours in memory. ``asks``: for the same terms of the next panel."""
        last = b.sub(self.total, number(b, 1))
        together = GROUP // self.step

        def group(b: Builder, g: Value) -> None:
            start = b.mul(g, number(b, together))
            of = b.add(first, start)
            rows = [b.minimum(b.add(of, number(b, k)), last) for k in range(together)]

            def some(b: Builder, p: Value) -> None:
                at = b.add(terms[0], p)
                found = [self.elements(b, at, row) for row in rows]
                place = self.place(b, p, start)
                behind = {k * self.step + part * self.apart: x for k, parts in enumerate(found) for part, x in enumerate(parts)}
                places = {far: b.add(place, number(b, far)) if far else place for far in sorted(behind)}
                for far, there in places.items():
                    b.store(behind[far], panel, there)
                for k in range(self.size, self.size + together) if asks else ():
                    self.ask(b, at, b.add(of, number(b, k)))

            vector(b, terms[1], 1, some)

        serial(b, number(b, self.size // together), group)

    def whole_part(self, b: Builder, panel: Value, p: Value, first_term: Value, first: Value) -> None:
        """One term of a panel that has all its rows or columns, in as many vectors at a time as are little code: a last one that
        is not full begins among those before. (Stores of parts of vectors are slow on many processors.)"""
        at = b.add(first_term, p)
        step = self.lanes if self.is_light else self.size

        def store(b: Builder, v: Value) -> None:
            places = [b.add(v, number(b, min(x, self.size - step))) for x in range(0, self.size, step)]
            found = [self.elements(b, at, b.add(first, k)) for k in places]
            for values, k in zip(found, places, strict=True):
                self.put(b, values, panel, p, k)

        vector(b, number(b, step), step, store)

    # several

    def pack_some(self, b: Builder, panels: Value, begin: Value, terms: Span, of: Span, number_of: Value) -> None:
        """Pack panels that lie side by side, the first of them at a position."""
        first, count = of

        def start(b: Builder, j: Value) -> Value:
            found: Value = b.add(first, b.mul(j, number(b, self.size)))
            return found

        if self.is_turned:
            serial(b, number_of, lambda b, j: self.turn(b, b.subview(panels, b.add(begin, j)), terms, start(b, j), True))
            return
        full = whole(b, count, self.size)
        done = b.mul(full, number(b, self.size))
        rest = b.sub(count, done)

        def some(b: Builder, g: Value) -> None:
            start_p = b.mul(g, number(b, SOME))
            few = b.minimum(number(b, SOME), b.sub(terms[1], start_p))

            def panel_of(b: Builder, j: Value) -> None:
                panel, here = b.subview(panels, b.add(begin, j)), start(b, j)
                serial(b, few, lambda b, q: self.whole_part(b, panel, b.add(start_p, q), terms[0], here))

            serial(b, full, panel_of)

        serial(b, parts(b, terms[1], SOME), some)
        last = b.subview(panels, b.add(begin, full))
        when(b, b.gt(rest, number(b, 0)), lambda b: self.pack(b, last, terms, (b.add(first, done), rest)))

    def ask_for(self, b: Builder, terms: Span, first: Value) -> None:
        """Ask for some terms of a panel."""
        def some(b: Builder, p: Value) -> None:
            at = b.add(terms[0], p)
            for x in range(0, self.size, self.line):
                self.ask(b, at, b.add(first, number(b, x)))

        def lines(b: Builder, p: Value) -> None:
            at = b.add(terms[0], b.mul(p, number(b, self.line)))
            for k in range(self.size):
                self.ask(b, at, b.add(first, number(b, k)))

        if self.is_turned:
            serial(b, whole(b, b.add(terms[1], number(b, self.line - 1)), self.line), lines)
        else:
            serial(b, terms[1], some)
