"""Functions that pack operands read straight from memory, shared by all kernels, one for each dtype, side and order. Operands
that are computed are packed by code within the kernel (``packing``)."""

from __future__ import annotations

import functools

from pullback.codegen.cpu.loops.nest_builder import Rows, RowsAt, constant, rows_of, serial
from pullback.codegen.cpu.matmul.blocking import Blocking
from pullback.codegen.cpu.matmul.complex_numbers import PairRows, loading_pairs, pairs_of
from pullback.codegen.cpu.matmul.packing import Panels, Span
from pullback.codegen.cpu.matmul.strided_operands import StridedRows, loading
from pullback.codegen.cpu.matmul.subnormals import MARKS, Scales
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED
from pullback.ir.ops.kernel.kernel import Load, is_strided

LEFT = ("term", "count", "row", "height", "total")
"""Parameters of a function that packs a left panel."""
RIGHT = ("k", "term", "count", "column", "width", "number", "total")
"""Parameters of a function that packs right panels."""


@dataclass(frozen=True)
class PlainOperand:
    """An operand that a region loads and does nothing else with.

    ``is_turned``: transposed, that is, the left operand is contiguous along its rows and not along K, or the right one along
    K. ``known``: a value that decides this at run time instead; for strided references the strides decide. ``packed_by``: the
    address of the function that packs it, if known.
    """

    rows: Rows | RowsAt | StridedRows | PairRows
    is_transposed: bool
    transposed_at_run_time: Value | None = None
    packed_by: Value | None = None

    @property
    def is_either(self) -> bool:
        """Whether the order is known only at run time."""
        return self.transposed_at_run_time is not None or isinstance(self.rows, StridedRows)

    def transposed(self, b: Builder) -> Value:
        """Return whether the operand is transposed."""
        if self.transposed_at_run_time is not None or not isinstance(self.rows, StridedRows):
            return self.transposed_at_run_time or b.const(self.is_transposed, BOOL)
        has_columns = self.rows.has_columns(b)
        return b.bitnot(has_columns) if self.is_transposed else has_columns


def plain_operand(region: Block, in_rows: bool = False) -> PlainOperand | None:
    """Return the operand that a region loads; None if the region computes anything. ``in_rows``: a strided reference has
    contiguous rows or columns."""
    instructions = region.instructions
    if len(instructions) != 1 or not isinstance(instructions[0].op, Load) or instructions[0].results != region.results:
        return None
    ref, *index = instructions[0].operands
    if in_rows and is_strided(ref) and set(index) == set(region.parameters):
        return PlainOperand(StridedRows(ref), index[0] is not region.parameters[0])
    rows = rows_of(region)
    operand_rows = rows or rows_of(region, 1, 0)
    return None if operand_rows is None else PlainOperand(operand_rows, rows is None)


def operands_of(i: Instruction) -> tuple[PlainOperand | None, PlainOperand | None]:
    """Return both operands of a product, None for those that are computed."""
    in_rows = i.params.get("in_place", ())
    left, right = (plain_operand(region, k in in_rows) for k, region in enumerate(i.regions[:2]))
    return left, right


def plain_complex_operand(region: Block) -> PlainOperand | None:
    """Return the complex operand that a region loads; None if the region computes anything."""
    if any(i.op is OPS["neg"] for i in region.instructions):
        return None
    straight, transposed = pairs_of(region), pairs_of(region, 1, 0)
    return (
        PlainOperand(straight, False)
        if straight is not None
        else PlainOperand(transposed, True)
        if transposed is not None
        else None
    )


def pack(b: Builder, function: Value, panels: Value, marks: Value, operand: PlainOperand, *numbers: Value) -> None:
    """Emit a call of the packing function at address ``function``, which also resets the panels' marks. ``numbers``: values
    for the parameters ``LEFT`` or ``RIGHT``."""
    zero, rows = constant(b, 0), operand.rows
    source = rows.pairs(b) if isinstance(rows, PairRows) else (rows.begin(b, zero, zero), rows.stride(b))
    b.emit(OPS["call_indirect"], (function, panels, marks, *source, *numbers), {})


@dataclass(frozen=True)
class PackFunction:
    """A function that packs one panel of a left operand, or several of a right one."""

    dtype: DType
    is_left: bool
    is_transposed: bool
    shape: Blocking

    @property
    def name(self) -> str:
        dtype = self.dtype.name if self.shape.planes == 1 else f"c{self.dtype.bits * self.shape.planes}"
        return f"pack_{'left' if self.is_left else 'right'}_{dtype}_{'nt'[self.is_transposed]}"

    def define(self) -> Instruction:
        """Return the definition, which stands at the top of a kernel."""
        return Instruction(OPS["function"], (), (), {"function": self.name}, (_function(self),))

    def function(self) -> Block:
        """Build the body of the function."""
        shape, lead = self.shape, () if self.is_left else (UNBOUNDED,)
        is_real = shape.planes == 1
        types: dict[str, Type] = {
            "panels": RefType(self.dtype, (*lead, shape.panel_stride), space="stack"),
            "known": RefType(I64, (*lead, MARKS), space="stack"),
            "from": RefType(self.dtype, (UNBOUNDED,) if is_real else (UNBOUNDED, 2)), "apart": scalar(I64),
            **dict.fromkeys(LEFT if self.is_left else RIGHT, scalar(I64)),
        }  # fmt: skip
        values = {name: Value(t, name) for name, t in types.items()}
        b, memory = Builder(), (values["from"], values["apart"])
        region = loading(RowsAt(*memory), self.is_transposed) if is_real else loading_pairs(*memory, self.is_transposed)
        terms = values["term"], values["count"]
        (self.left if self.is_left else self.right)(b, region, values, terms)
        return b.block(list(values.values()), [])

    def left(self, b: Builder, region: Block, values: dict[str, Value], terms: Span) -> None:
        """Pack one panel of rows."""
        shape, panel = self.shape, values["panels"]
        Panels(region, 1, values["total"], shape.rows, shape.lanes).pack(b, panel, terms, (values["row"], values["height"]))
        Scales.of_shape(self.dtype, shape).reset(
            b, panel, values["known"], b.mul(terms[1], constant(b, shape.rows * shape.planes))
        )

    def right(self, b: Builder, region: Block, values: dict[str, Value], terms: Span) -> None:
        """Pack some panels of columns."""
        shape, panels, k = self.shape, values["panels"], values["k"]
        scales, size = Scales.of_shape(self.dtype, shape), b.mul(terms[1], constant(b, shape.columns * shape.planes))
        panels_of = Panels(region, 0, values["total"], shape.columns, shape.lanes)
        panels_of.pack_some(b, panels, k, terms, (values["column"], values["width"]), values["number"])

        def forget(b: Builder, x: Value) -> None:
            position = b.add(k, x)
            scales.reset(b, b.subview(panels, position), b.subview(values["known"], position), size)

        serial(b, values["number"], forget)


@functools.cache
def _function(pack: PackFunction) -> Block:
    return pack.function()
