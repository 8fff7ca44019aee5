"""The packing of operands that are read as they lie: functions that kernels share, for each dtype and order of an operand.

What other operands are computed from is in the kernel itself (``product_panels``).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import Rows, RowsAt, number, rows_of, serial
from pullback.codegen.cpu.matmul.blocking import Shape
from pullback.codegen.cpu.matmul.complex_numbers import PairRows, loading_pairs, pairs_of
from pullback.codegen.cpu.matmul.packing import Panels, Span
from pullback.codegen.cpu.matmul.strided_operands import Lying, loading
from pullback.codegen.cpu.matmul.subnormals import KNOWN, Scales
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR
from pullback.ir.ops.kernel.kernel import Load, is_strided

LEFT = ("term", "count", "row", "height", "total")
RIGHT = ("k", "term", "count", "column", "width", "number", "total")


@dataclass(frozen=True)
class Lies:
    """Where a plain operand lies, and whether it is turned: what lies side by side is then not the terms of the left one, nor the
    columns of the right one. ``known``: a value that says so; of strided ones, strides do. ``packed_by``: where the function is
    that packs it, if that is known too."""

    rows: Rows | RowsAt | Lying | PairRows
    is_turned: bool
    known: Value | None = None
    packed_by: Value | None = None

    @property
    def is_either(self) -> bool:
        """Whether that shows when the kernel runs."""
        return self.known is not None or isinstance(self.rows, Lying)

    def turned(self, b: Builder) -> Value:
        """Whether such an operand is turned."""
        if self.known is not None or not isinstance(self.rows, Lying):
            return self.known or b.const(self.is_turned, BOOL)
        found = self.rows.has_columns(b)
        return b.bitnot(found) if self.is_turned else found


def lies(region: Block, in_rows: bool = False) -> Lies | None:
    """That of the region of an operand; None if it is not plain. ``in_rows``: a strided one has rows or columns of neighbours."""
    made = region.instructions
    if len(made) != 1 or not isinstance(made[0].op, Load) or made[0].results != region.results:
        return None
    ref, *index = made[0].operands
    if in_rows and is_strided(ref) and set(index) == set(region.parameters):
        return Lies(Lying(ref), index[0] is not region.parameters[0])
    rows = rows_of(region)
    found = rows or rows_of(region, 1, 0)
    return None if found is None else Lies(found, rows is None)


def operands_of(i: Instruction) -> tuple[Lies | None, Lies | None]:
    """Where those of a product lie."""
    in_rows = i.params.get("in_place", ())
    left, right = (lies(region, k in in_rows) for k, region in enumerate(i.regions[:2]))
    return left, right


def pairs_lie(region: Block) -> Lies | None:
    """That of the region of a complex operand."""
    if any(i.op is OPS["neg"] for i in region.instructions):
        return None
    straight, turned = pairs_of(region), pairs_of(region, 1, 0)
    return Lies(straight, False) if straight is not None else Lies(turned, True) if turned is not None else None


def pack(b: Builder, by: Value, panels: Value, known: Value, of: Lies, *numbers: Value) -> None:
    """Pack into some memory, by the function at an address, and note in another that nothing is known of it. ``numbers``: as
    ``LEFT`` or ``RIGHT`` say."""
    zero, rows = number(b, 0), of.rows
    at = rows.pairs(b) if isinstance(rows, PairRows) else (rows.begin(b, zero, zero), rows.apart(b))
    b.emit(OPS["call_indirect"], (by, panels, known, *at, *numbers), {})


@dataclass(frozen=True)
class Pack:
    """Packs panels of an operand: one of the left one, or some of the right one."""

    dtype: DType
    is_left: bool
    is_turned: bool
    shape: Shape

    @property
    def name(self) -> str:
        dtype = self.dtype.name if self.shape.planes == 1 else f"c{self.dtype.bits * self.shape.planes}"
        return f"pack_{'left' if self.is_left else 'right'}_{dtype}_{'nt'[self.is_turned]}"

    def define(self) -> Instruction:
        """The definition, at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def function(self) -> Block:
        shape, lead = self.shape, () if self.is_left else (FAR,)
        is_real = shape.planes == 1
        types: dict[str, Type] = {
            "panels": RefType(self.dtype, (*lead, shape.panel), space="stack"),
            "known": RefType(I64, (*lead, KNOWN), space="stack"),
            "from": RefType(self.dtype, (FAR,) if is_real else (FAR, 2)), "apart": scalar(I64),
            **dict.fromkeys(LEFT if self.is_left else RIGHT, scalar(I64)),
        }  # fmt: skip
        given = {name: Value(t, name) for name, t in types.items()}
        b, memory = Builder(), (given["from"], given["apart"])
        region = loading(RowsAt(*memory), self.is_turned) if is_real else loading_pairs(*memory, self.is_turned)
        terms = given["term"], given["count"]
        (self.left if self.is_left else self.right)(b, region, given, terms)
        return b.block(list(given.values()), [])

    def left(self, b: Builder, region: Block, given: dict[str, Value], terms: Span) -> None:
        shape, panel = self.shape, given["panels"]
        Panels(region, 1, given["total"], shape.rows, shape.lanes).pack(b, panel, terms, (given["row"], given["height"]))
        Scales.of_shape(self.dtype, shape).forget(b, panel, given["known"], b.mul(terms[1], number(b, shape.rows * shape.planes)))

    def right(self, b: Builder, region: Block, given: dict[str, Value], terms: Span) -> None:
        shape, panels, k = self.shape, given["panels"], given["k"]
        scales, size = Scales.of_shape(self.dtype, shape), b.mul(terms[1], number(b, shape.columns * shape.planes))
        of = Panels(region, 0, given["total"], shape.columns, shape.lanes)
        of.pack_some(b, panels, k, terms, (given["column"], given["width"]), given["number"])

        def forget(b: Builder, x: Value) -> None:
            at = b.add(k, x)
            scales.forget(b, b.subview(panels, at), b.subview(given["known"], at), size)

        serial(b, given["number"], forget)


@functools.cache
def _function(pack: Pack) -> Block:
    return pack.function()
