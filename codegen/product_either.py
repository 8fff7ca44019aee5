"""Packed operands of a matrix product that lie in memory by rows or by columns, which shows when the kernel runs.

Both ways to pack are there, and a branch around them takes one. What is in the panels is the same, and so is the order of
additions: it goes by the region of the operand, as if that were dense.
"""

from __future__ import annotations

from collections.abc import Callable

from pullback.codegen.product_panels import Panels, Span
from pullback.codegen.product_parts import ask, number, when
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.kernel import Load, is_strided
from pullback.ir.structure import Block, Instruction, Value


def panels_of(b: Builder, region: Block, lies: bool, term: int, total: Value, size: int, lanes: int) -> Panels:
    """The panels of an operand; ``lies``: its region loads from a strided reference that has rows or columns."""
    return EitherPanels(b, region, term, total, size, lanes) if lies else Panels(region, term, total, size, lanes)


class EitherPanels(Panels):
    """Panels that are packed in the one way or the other."""

    def __init__(self, b: Builder, region: Block, term: int, total: Value, size: int, lanes: int) -> None:
        self.rows, self.columns = (Panels(_with(b, region, turned), term, total, size, lanes) for turned in (False, True))
        self.given = region
        super().__init__(self.rows.region, term, total, size, lanes)
        (ref,) = _strided(region)
        apart = b.emit(OPS["stride"], (ref,), {"axis": 1})[0]
        self.has_rows: Value = b.eq(apart, number(b, self.dtype.bytes))
        self.has_columns: Value = b.bitnot(self.has_rows)

    def either(self, b: Builder, body: Callable[[Builder, Panels], None]) -> None:
        when(b, self.has_rows, lambda b: body(b, self.rows))
        when(b, self.has_columns, lambda b: body(b, self.columns))

    def ask(self, b: Builder, p: Value, k: Value) -> None:
        ask(b, self.given, *self.at(p, k))

    def pack(self, b: Builder, panel: Value, terms: Span, of: Span) -> None:
        self.either(b, lambda b, panels: panels.pack(b, panel, terms, of))

    def pack_some(self, b: Builder, panels: Value, begin: Value, terms: Span, of: Span, number_of: Value) -> None:
        self.either(b, lambda b, some: some.pack_some(b, panels, begin, terms, of, number_of))

    def ask_for(self, b: Builder, terms: Span, first: Value) -> None:
        self.either(b, lambda b, panels: panels.ask_for(b, terms, first))


def _strided(region: Block) -> list[Value]:
    return [i.operands[0] for i in region.instructions if isinstance(i.op, Load) and is_strided(i.operands[0])]


def _with(b: Builder, region: Block, turned: bool) -> Block:
    """A region that loads from a strided reference as one that loads from its rows, or from its columns."""
    made: list[Instruction] = []
    for i in region.instructions:
        if isinstance(i.op, Load) and is_strided(i.operands[0]):
            ref, *index = i.operands
            rows = b.emit(OPS["as_rows"], (ref,), {"turned": turned})[0]
            i = Instruction(i.op, (rows, *(index[::-1] if turned else index)), i.results, i.params, (), i.loc)
        made.append(i)
    return Block(region.parameters, tuple(made), region.results)
