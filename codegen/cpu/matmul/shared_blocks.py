"""Expand plain matrix products: operands loaded straight from memory, and sums that are only stored.

The block of such a product differs between kernels only in addresses, strides and the functions that pack. It is therefore a
function shared by all kernels, one for each dtype, which receives the addresses of the packing functions. A kernel that uses
it is little more than its loop over blocks, and compiles in a few milliseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from pullback.codegen.cpu.loops.nest_builder import Rows, RowsAt, ceil_div, ceil_div_by, constant, is_stored, rows_of, when
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.blocked import Block, BlockedMatmul
from pullback.codegen.cpu.matmul.blocking import Blocking
from pullback.codegen.cpu.matmul.few_rows import FewRows
from pullback.codegen.cpu.matmul.interleaved_batch import Strides
from pullback.codegen.cpu.matmul.narrow import Address, Narrow, Tiles
from pullback.codegen.cpu.matmul.shared_packing import PlainOperand, operands_of
from pullback.codegen.cpu.matmul.strided_operands import loading
from pullback.codegen.cpu.matmul.subnormals import MARKS
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import UNBOUNDED

Transposed = tuple[bool, bool]
"""Whether each operand of a product is transposed."""
REFS = ("left", "right", "out")
"""Parameters of the shared functions: references, integers, booleans, packing functions, short microkernels; and the integers
of a narrow batch."""
NUMBERS = ("rows", "columns", "terms", "i0", "panels", "j0", "width", "across", "length", "runs")
CHOICES = ("several", "keeps", "is_far", "left_turned", "right_turned")
PACKS = ("pack_left", "pack_right")
LOWS = ("low", "lower")
OF_BATCH = ("rows", "columns", "terms", "first", "products", "panel", "panels")


@dataclass(frozen=True)
class Access:
    """The memory of a plain product's operands and results."""

    left: PlainOperand
    right: PlainOperand
    out: Rows

    @property
    def transposed(self) -> Transposed:
        """Whether each operand is transposed."""
        return self.left.is_transposed, self.right.is_transposed

    @property
    def batch_rows(self) -> tuple[Rows, ...]:
        """The rows of operands and results of a batch."""
        return tuple(rows for rows in (self.left.rows, self.right.rows, self.out) if isinstance(rows, Rows))

    def starts(self, b: Builder, product: Value | None = None) -> list[Value]:
        """Return references to the operands and the result; for a batch, to those of the first product."""
        zero = constant(b, 0)
        if product is not None:
            return [rows.of(product, zero).begin(b, zero, zero) for rows in self.batch_rows]
        return [rows.begin(b, zero, zero) for rows in (self.left.rows, self.right.rows, self.out)]

    def distances(self, b: Builder) -> list[Value]:
        """Return the row strides of the operands and the result."""
        return [rows.stride(b) for rows in (self.left.rows, self.right.rows, self.out)]

    def run_time_orders(self, b: Builder) -> list[Value]:
        """Return, as values, whether each operand is transposed."""
        return [operand.transposed(b) for operand in (self.left, self.right)]

    def strides(self, b: Builder, product: Value) -> list[Strides]:
        """Return the row, column and batch strides of the operands and the result."""
        result: list[Strides] = []
        for rows, is_transposed in zip(self.batch_rows, (*self.transposed, False), strict=True):
            row, column = (constant(b, 1), rows.stride(b)) if is_transposed else (rows.stride(b), constant(b, 1))
            result.append((row, column, rows.next(b, product) if product in rows.index else None))
        return result


def access(i: Instruction) -> Access | None:
    """Return the memory of a product; None if it is not plain."""
    epilogue = i.regions[2]
    (x, y), out = operands_of(i), rows_of(epilogue)
    is_plain = len(i.operands) == 3 and is_stored(epilogue)
    return Access(x, y, out) if is_plain and x is not None and y is not None and out is not None else None


@dataclass(frozen=True)
class _Kind:
    """Plain products of a dtype with operands transposed or not."""

    dtype: DType
    transposed: Transposed
    target: Target
    shape: Blocking

    @property
    def suffix(self) -> str:
        return f"{self.dtype.name}_{''.join('nt'[t] for t in self.transposed)}"

    def define(self, name: str, functions: Functions, body: Region) -> None:
        """Define a shared function."""
        functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (body,))

    def refs(self) -> dict[str, Value]:
        """Return the reference parameters."""
        return {name: Value(RefType(self.dtype, (UNBOUNDED,)), name) for name in REFS}

    def regions(self, refs: dict[str, Value], distances: dict[str, Value]) -> tuple[Region, ...]:
        """Return the regions of a product in memory given by references and row strides."""
        left, right, out = (RowsAt(refs[name], distances[name]) for name in REFS)
        return loading(left, self.transposed[0]), loading(right, self.transposed[1]), _store(out)


def _i64_parameters(*names: str) -> dict[str, Value]:
    """Return i64 parameters by name."""
    return {name: Value(scalar(I64), name) for name in names}


def _store(row: RowsAt) -> Region:
    """Build the region that stores a sum."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    total = Value(scalar(row.ref.type.dtype), "sum")
    b.store(total, row.ref, *row.index(b, *at))
    return b.block([*at, total], [])


# blocks


class PlainBlockedMatmul(BlockedMatmul):
    """The blocks of a plain product, expanded into calls of the shared function."""

    def __init__(
        self, b: Builder, i: Instruction, target: Target, functions: Functions, outermost: bool,
        batch: tuple[Value, Value] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(b, i, target, functions, outermost, batch)
        memory = access(i)
        assert memory is not None
        self.access, kind = memory, _Kind(self.dtype, (False, False), target, self.shape)
        self.name = f"blocks_{self.dtype.name}"
        self.few_rows = FewRows(self.dtype, self.shape)
        self.has_few_rows: Value | None = None
        if self.few_rows.is_for(target):
            functions[self.few_rows.name] = self.few_rows.define()
            self.has_few_rows = self.few_rows.fits(b, self.rows, self.columns, memory.right.transposed(b))
        kind.define(self.name, functions, _block(kind))

    def block_counts(self, row_panels: Value, column_panels: Value, is_long: Value) -> tuple[Value, Value]:
        """Return the number of blocks; products of few rows have longer blocks, since nothing is packed."""
        b = self.b
        row_blocks, column_blocks = super().block_counts(row_panels, column_panels, is_long)
        if self.has_few_rows is None:
            return row_blocks, column_blocks
        wanted = b.select(is_long, b.emit(OPS["threads"], (), {})[0], constant(b, 1))
        few_row_blocks = b.mul(
            ceil_div_by(b, ceil_div(b, column_panels, self.few_rows.max_columns // self.shape.columns), wanted), wanted
        )
        return row_blocks, b.select(self.has_few_rows, few_row_blocks, column_blocks)

    def memory(self, b: Builder, several: Value, panels: Value, across: Value) -> dict[str, Value]:
        """Allocate scratch; blocks of few rows need one panel."""
        packed = across if self.has_few_rows is None else b.select(self.has_few_rows, constant(b, 1), across)
        return super().memory(b, several, panels, packed)

    def runs(self, b: Builder, block: Block) -> None:
        """Emit the call for a block."""
        integers = (self.rows, self.columns, self.depth, *block.rows, *block.columns, block.across, block.length, block.runs)
        choices = (block.several, block.keeps, block.is_far, *self.access.run_time_orders(b))
        scratch = (block.panels, block.known, block.sums)
        pack_functions = self.pack_address(b, self.access.left, True), self.pack_address(b, self.access.right, False)
        arguments = (
            *self.access.starts(b),
            *scratch,
            *self.access.distances(b),
            *pack_functions,
            *self.short_kernel_addresses(b),
            *integers,
            *choices,
        )
        b.emit(OPS["call"], arguments, {"function": self.name})


@functools.cache
def _block(kind: _Kind) -> Region:
    """Build the shared function of a block."""
    shape = kind.shape
    panels = Value(RefType(kind.dtype, (shape.max_column_panels + 1, shape.panel_stride), space="stack"), "packed")
    marks = Value(RefType(I64, (shape.max_column_panels + 1, MARKS), space="stack"), "known")
    sums = Value(RefType(kind.dtype, (shape.max_row_panels, shape.rows, shape.sums_stride), space="stack"), "sums")
    refs, distances, n = kind.refs(), {name: Value(scalar(I64), f"{name}_apart") for name in REFS}, _i64_parameters(*NUMBERS)
    choices = {name: Value(scalar(BOOL), name) for name in CHOICES}
    pack_functions, short_kernels = _i64_parameters(*PACKS), _i64_parameters(*LOWS[: len(shape.short_rows)])
    left, right, out = (RowsAt(refs[name], distances[name]) for name in REFS)

    def in_panels(b: Builder) -> None:
        product = Instruction(OPS["product"], (n["rows"], n["columns"], n["terms"]), (), {}, kind.regions(refs, distances))
        blocks = BlockedMatmul(b, product, kind.target, Functions(), False)
        blocks.short_addresses = list(short_kernels.values())
        blocks.packed = (
            PlainOperand(left, False, choices["left_turned"], pack_functions["pack_left"]),
            PlainOperand(right, False, choices["right_turned"], pack_functions["pack_right"]),
        )
        blocks.right_rows, blocks.out_rows = right, out
        blocks.runs(b, Block(
            rows=(n["i0"], n["panels"]), columns=(n["j0"], n["width"]), across=n["across"], length=n["length"], runs=n["runs"],
            **{name: choices[name] for name in ("several", "keeps", "is_far")}, panels=panels, known=marks, sums=sums,
        ))  # fmt: skip

    def as_it_lies(b: Builder) -> None:
        one, stride, transposed = constant(b, 1), left.distance, choices["left_turned"]
        steps = b.select(transposed, one, stride), b.select(transposed, stride, one), right.distance, out.distance
        memory = left.ref, right.ref, out.begin(b, constant(b, 0), n["j0"])
        arguments = *memory, *steps, n["rows"], n["terms"], n["length"], n["j0"], n["width"]
        b.emit(OPS["call"], arguments, {"function": few_rows.name})

    b, few_rows = Builder(), FewRows(kind.dtype, shape)
    if few_rows.is_for(kind.target):
        is_few = few_rows.fits(b, n["rows"], n["columns"], choices["right_turned"])
        when(b, is_few, as_it_lies)
        when(b, b.bitnot(is_few), in_panels)
    else:
        in_panels(b)
    others = {**pack_functions, **short_kernels, **n, **choices}
    return b.block([*refs.values(), panels, marks, sums, *distances.values(), *others.values()], [])


# narrow products of a batch


class PlainNarrow(Narrow):
    """A batch of plain products with few columns."""

    def __init__(self, b: Builder, i: Instruction, target: Target, batch: tuple[Value, Value], functions: Functions) -> None:
        super().__init__(b, i, target, batch)
        memory = access(i)
        assert memory is not None
        self.access, self.functions = memory, functions
        self.kind = _Kind(self.dtype, memory.transposed, target, self.shape)
        self.is_in_place = not self.kind.transposed[1]

    def make_tiles(self, vectors: int, rows: int, fits: Value) -> Tiles:
        with self.functions.under(self.b, self.count, fits):
            return PlainTiles(self, vectors, rows)


class PlainTiles(Tiles):
    """Tiles of narrow plain products, expanded into calls of a shared function."""

    batch: PlainNarrow

    def __init__(self, of: PlainNarrow, vectors: int, rows: int) -> None:
        super().__init__(of, vectors, rows)
        order = "r" * of.rows_outermost + "t" * of.k_outermost
        self.name = f"narrow_{of.kind.suffix}_{rows}x{vectors}_{order}"
        of.kind.define(self.name, of.functions, _narrow(of.kind, vectors, rows, of.rows_outermost, of.k_outermost))

    def block(self, b: Builder, packed: Value | None, products: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        batch = self.batch
        memory = (
            batch.access.starts(b, batch.product),
            batch.access.distances(b),
            [rows.next(b, batch.product) for rows in batch.access.batch_rows],
        )
        self.call(b, packed, memory, (batch.rows, batch.columns, batch.depth), products, panels)

    def call(
        self, b: Builder, packed: Value | None, memory: Sequence[Sequence[Value]], extents: Sequence[Value],
        products: tuple[Value, Value], panels: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """Emit the call. ``memory``: references to the first product's operands and result, their row strides, their batch
        strides. ``extents``: rows, columns and K."""
        begins, distances, next_ = memory
        right = begins[1] if packed is None else packed
        arguments = (*begins, right, *distances, *next_, *extents, *products, *panels)
        b.emit(OPS["call"], arguments, {"function": self.name})


class _SharedTiles(Tiles):
    """Tiles within the shared function, where batch strides are parameters."""

    def __init__(self, of: Narrow, vectors: int, rows: int, kind: _Kind, memory: tuple[dict[str, Value], ...]) -> None:
        super().__init__(of, vectors, rows)
        self.kind, (self.refs, self.strides, self.next) = kind, memory
        self.is_in_place = not kind.transposed[1]

    def regions(self, b: Builder, z: Value) -> tuple[Region, ...]:
        at = {name: b.mul(z, self.next[name]) for name in REFS}
        rows = [b.emit(OPS["ref_at"], (self.refs[name], at[name], self.strides[name]), {})[0] for name in REFS]
        self.left, _, self.out = rows
        left, right, out = (RowsAt(ref, self.strides[name], True) for ref, name in zip(rows, REFS, strict=True))
        return loading(left, self.kind.transposed[0]), loading(right, self.kind.transposed[1]), _store(out)

    def left_loader(self, b: Builder, region: Region, rows: list[Value]) -> Callable[[Builder, int, Value], Value]:
        if self.kind.transposed[0]:
            return super().left_loader(b, region, rows)
        row_refs = [b.emit(OPS["ref_at"], (self.left, row, constant(b, 0)), {})[0] for row in rows]
        return lambda step, r, at: step.load(row_refs[r], at)

    def result_address(self, b: Builder, each: Region, row: Value, first: Value) -> Callable[[Builder, Value, Value], Address]:
        begin = b.emit(OPS["ref_at"], (self.out, row, first), {})[0]
        return lambda b, lane, column: (begin, (lane,))


@functools.cache
def _narrow(kind: _Kind, vectors: int, rows: int, by_rows: bool, by_terms: bool) -> Region:
    """Build the shared function of some row panels of some products."""
    refs, n = kind.refs(), _i64_parameters(*OF_BATCH)
    strides, next_ = ({name: Value(scalar(I64), f"{name}_{word}") for name in REFS} for word in ("apart", "next"))
    b = Builder()
    product = Instruction(OPS["product"], (n["rows"], n["columns"], n["terms"]), (), {}, kind.regions(refs, strides))
    batch = Narrow(b, product, kind.target, (n["products"], n["first"]))
    batch.rows_outermost, batch.k_block = by_rows, batch.k_block_for(by_terms)
    tiles = _SharedTiles(batch, vectors, rows, kind, (refs, strides, next_))
    packed = Value(RefType(kind.dtype, (UNBOUNDED, batch.shape.k_block * tiles.column_count), space="stack"), "packed")
    tiles.block(b, None if tiles.is_in_place else packed, (n["first"], n["products"]), (n["panel"], n["panels"]))
    return b.block([*refs.values(), packed, *strides.values(), *next_.values(), *n.values()], [])
