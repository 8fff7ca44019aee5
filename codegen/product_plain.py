"""Blocks of plain matrix products: operands that are read as they lie, and sums that are stored and nothing else.

What there is to do for a block is then the same for all of them but for where memory begins and how far apart its rows are: it is
a function that kernels share, for each dtype and for each order of the operands. Such a kernel is little more than its loop over
blocks, and takes a few milliseconds to compile.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from pullback.codegen.processors import Target
from pullback.codegen.product_blocks import Block, Blocks
from pullback.codegen.product_parts import Row, Rows, number, rows_of
from pullback.codegen.product_scales import KNOWN
from pullback.codegen.product_shapes import shape_for
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.kernel import Load, Store
from pullback.ir.ops.shared import FAR
from pullback.ir.structure import Block as Region
from pullback.ir.structure import Instruction, Value
from pullback.ir.types import BOOL, I64, DType, RefType, scalar

NUMBERS = ("rows", "columns", "terms", "i0", "panels", "j0", "width", "across", "length", "runs")
CHOICES = ("several", "keeps", "is_far")


def blocks_of(i: Instruction) -> type[Blocks]:
    """What spells out a product."""
    return Blocks if _access(i) is None else PlainBlocks


@dataclass(frozen=True)
class _Access:
    """Where a plain product's operands and results lie, and whether those of an operand are turned: the rows that are side by side
    in memory are those of its columns."""

    left: Rows
    right: Rows
    out: Rows
    turned: tuple[bool, bool]


def _access(i: Instruction) -> _Access | None:
    left, right, each = i.regions
    if len(i.operands) > 3 or any(len(r.instructions) != 1 for r in i.regions):
        return None
    loads, stores = [r.instructions[0] for r in (left, right)], each.instructions[0]
    if not isinstance(stores.op, Store) or not all(isinstance(k.op, Load) and r.results == k.results for k, r in zip(loads, (left, right), strict=True)):
        return None
    if stores.operands[0] is not each.parameters[2]:
        return None
    found = [(rows_of(r), rows_of(r, 1, 0)) for r in (left, right)]
    (x, x_turned), (y, y_turned), out = *found, rows_of(each)
    first, second = x or x_turned, y or y_turned
    if first is None or second is None or out is None:
        return None
    return _Access(first, second, out, (x is None, y is None))


@dataclass(frozen=True)
class _Function:
    """The function of a block of products of a dtype, of operands that are turned or not."""

    dtype: DType
    turned: tuple[bool, bool]
    target: Target

    @property
    def name(self) -> str:
        return f"blocks_{self.dtype.name}_{''.join('nt'[t] for t in self.turned)}"

    def types(self) -> dict[str, RefType]:
        shape = shape_for(self.target, self.dtype)
        return {
            **dict.fromkeys(("left", "right", "out"), RefType(self.dtype, (FAR,))),
            "own": RefType(self.dtype, (shape.most_wide + 1, shape.panel), space="stack"),
            "known": RefType(I64, (shape.most_wide + 1, KNOWN), space="stack"),
            "sums": RefType(self.dtype, (shape.most_high, shape.rows, shape.strip), space="stack"),
        }

    def body(self) -> Region:
        refs = {name: Value(t, name) for name, t in self.types().items()}
        distances = {name: Value(scalar(I64), f"{name}_apart") for name in ("left", "right", "out")}
        n = {name: Value(scalar(I64), name) for name in NUMBERS}
        c = {name: Value(scalar(BOOL), name) for name in CHOICES}
        b = Builder()
        left, right, out = (Row(refs[name], distances[name]) for name in distances)
        regions = (_load(left, self.turned[0]), _load(right, self.turned[1]), _store(out))
        product = Instruction(OPS["product"], (n["rows"], n["columns"], n["terms"]), (), {}, regions)
        blocks = Blocks(b, product, self.target, {}, False)
        blocks.goes = out
        blocks.comes = None if self.turned[1] else right
        blocks.runs(b, Block(
            rows=(n["i0"], n["panels"]), columns=(n["j0"], n["width"]), across=n["across"], length=n["length"], runs=n["runs"],
            **c, panels=refs["own"], known=refs["known"], sums=refs["sums"],
        ))  # fmt: skip
        return b.block([*refs.values(), *distances.values(), *n.values(), *c.values()], [])


class PlainBlocks(Blocks):
    """Those of a plain product."""

    def __init__(
        self, b: Builder, i: Instruction, target: Target, functions: dict[str, Instruction], outermost: bool,
        batch: tuple[Value, Value] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(b, i, target, functions, outermost, batch)
        access = _access(i)
        assert access is not None
        self.access = access
        function = _Function(self.dtype, access.turned, target)
        self.name = function.name
        functions[self.name] = Instruction(OPS["shared"], (), (), {"function": self.name}, (_body(function),))

    def runs(self, b: Builder, block: Block) -> None:
        zero = number(b, 0)
        of = (self.access.left, self.access.right, self.access.out)
        begins, distances = [rows.begin(b, zero, zero) for rows in of], [rows.apart(b) for rows in of]
        numbers = (self.rows, self.columns, self.terms, *block.rows, *block.columns, block.across, block.length, block.runs)
        given = (*begins, block.panels, block.known, block.sums, *distances, *numbers, block.several, block.keeps, block.is_far)
        b.emit(OPS["call"], given, {"function": self.name})


def _load(row: Row, is_turned: bool) -> Region:
    """The region of an operand."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    place = row.place(b, *(reversed(at) if is_turned else at))
    return b.block(at, [b.load(row.ref, place)])


def _store(row: Row) -> Region:
    """The region of the results."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    total = Value(scalar(row.ref.type.dtype), "sum")
    b.store(total, row.ref, row.place(b, *at))
    return b.block([*at, total], [])


@functools.cache
def _body(function: _Function) -> Region:
    return function.body()
