"""Packing of a panel of columns before a loop: a function that kernels share for each dtype and each order of the operand."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.prepacked_rows import PackedRows, scaled
from pullback.codegen.product_packs import loading
from pullback.codegen.product_panels import Panels
from pullback.codegen.product_parts import RowsAt, number
from pullback.codegen.product_scales import SLOW
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.shared import FAR
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import I64, RefType, Type, scalar


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
        return Instruction(OPS["shared"], (), (), {"function": self.name}, (_function(self),))

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
