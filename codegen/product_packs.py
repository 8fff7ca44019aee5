"""The packing of operands that are read as they lie: functions that kernels share, for each dtype and order of an operand.

What other operands are computed from is in the kernel itself (``product_panels``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.product_panels import Panels, Span
from pullback.codegen.product_parts import Rows, RowsAt, number, rows_of, serial
from pullback.codegen.product_scales import KNOWN, Scales
from pullback.codegen.product_shapes import Shape
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.kernel import Load
from pullback.ir.ops.shared import FAR
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import I64, DType, RefType, Type, scalar

LEFT = ("term", "count", "row", "height", "total")
RIGHT = ("k", "term", "count", "column", "width", "number", "total")


@dataclass(frozen=True)
class Lies:
    """Where a plain operand lies, and whether it is turned: what lies side by side is then not the terms of the left one, nor the
    columns of the right one."""

    rows: Rows | RowsAt
    is_turned: bool


def lies(region: Block) -> Lies | None:
    """That of the region of an operand; None if it is not plain."""
    made = region.instructions
    if len(made) != 1 or not isinstance(made[0].op, Load) or made[0].results != region.results:
        return None
    rows = rows_of(region)
    found = rows or rows_of(region, 1, 0)
    return None if found is None else Lies(found, rows is None)


@dataclass(frozen=True)
class Pack:
    """Packs panels of an operand: one of the left one, or some of the right one."""

    dtype: DType
    is_left: bool
    is_turned: bool
    shape: Shape

    @property
    def name(self) -> str:
        return f"pack_{'left' if self.is_left else 'right'}_{self.dtype.name}_{'nt'[self.is_turned]}"

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["shared"], (), (), {"function": self.name}, (_function(self),))

    def call(self, b: Builder, panels: Value, known: Value, of: Lies, *numbers: Value) -> None:
        """Pack into some memory, and note in another that nothing is known of it. ``numbers``: as ``LEFT`` or ``RIGHT`` say."""
        zero = number(b, 0)
        given = panels, known, of.rows.begin(b, zero, zero), of.rows.apart(b), *numbers
        b.emit(OPS["call"], given, {"function": self.name})

    def function(self) -> Block:
        shape, lead = self.shape, () if self.is_left else (FAR,)
        types: dict[str, Type] = {
            "panels": RefType(self.dtype, (*lead, shape.panel), space="stack"),
            "known": RefType(I64, (*lead, KNOWN), space="stack"),
            "from": RefType(self.dtype, (FAR,)), "apart": scalar(I64),
            **dict.fromkeys(LEFT if self.is_left else RIGHT, scalar(I64)),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        b, region = Builder(), loading(RowsAt(given["from"], given["apart"]), self.is_turned)
        terms = given["term"], given["count"]
        (self.left if self.is_left else self.right)(b, region, given, terms)
        return b.block(list(given.values()), [])

    def left(self, b: Builder, region: Block, given: dict[str, Value], terms: Span) -> None:
        shape, panel = self.shape, given["panels"]
        Panels(region, 1, given["total"], shape.rows, shape.lanes).pack(b, panel, terms, (given["row"], given["height"]))
        Scales.of_shape(self.dtype, shape).forget(b, panel, given["known"], b.mul(terms[1], number(b, shape.rows)))

    def right(self, b: Builder, region: Block, given: dict[str, Value], terms: Span) -> None:
        shape, panels, k = self.shape, given["panels"], given["k"]
        scales, size = Scales.of_shape(self.dtype, shape), b.mul(terms[1], number(b, shape.columns))
        of = Panels(region, 0, given["total"], shape.columns, shape.lanes)
        of.pack_some(b, panels, k, terms, (given["column"], given["width"]), given["number"])

        def forget(b: Builder, x: Value) -> None:
            at = b.add(k, x)
            scales.forget(b, b.sub_ref(panels, at), b.sub_ref(given["known"], at), size)

        serial(b, given["number"], forget)


def loading(rows: RowsAt, is_turned: bool) -> Block:
    """The region of an operand that lies in rows."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    return b.block(at, [b.load(rows.ref, *rows.index(b, *(reversed(at) if is_turned else at)))])


@functools.cache
def _function(pack: Pack) -> Block:
    return pack.function()
