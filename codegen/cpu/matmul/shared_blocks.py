"""Plain matrix products: operands that are read as they lie, and sums that are stored and nothing else.

What there is to do for a block is then the same for all of them but for where memory begins, how far apart its rows are, and who
packs them: it is a function that kernels share, for each dtype, which is given the addresses of those that pack. Such a kernel is
little more than its loop over blocks, and takes a few milliseconds to compile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pullback.codegen.cpu.loops.nest_builder import Rows, RowsAt, is_stored, number, parts, rows_of, shared, when
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.blocked import Block, Blocks
from pullback.codegen.cpu.matmul.blocking import Shape
from pullback.codegen.cpu.matmul.few_rows import FewRows
from pullback.codegen.cpu.matmul.interleaved_batch import Strides
from pullback.codegen.cpu.matmul.narrow import Narrow, Place, Tiles
from pullback.codegen.cpu.matmul.shared_packing import Lies, operands_of
from pullback.codegen.cpu.matmul.strided_operands import loading
from pullback.codegen.cpu.matmul.subnormals import KNOWN
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, I64, DType, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.functions import FAR

Turned = tuple[bool, bool]
"""Whether the operands of a product are turned."""
REFS = ("left", "right", "out")
NUMBERS = ("rows", "columns", "terms", "i0", "panels", "j0", "width", "across", "length", "runs")
CHOICES = ("several", "keeps", "is_far", "left_turned", "right_turned")
PACKS = ("pack_left", "pack_right")
LOWS = ("low", "lower")
OF_BATCH = ("rows", "columns", "terms", "first", "products", "panel", "panels")


@dataclass(frozen=True)
class Access:
    """Where a plain product's operands and results lie."""

    left: Lies
    right: Lies
    out: Rows

    @property
    def turned(self) -> Turned:
        return self.left.is_turned, self.right.is_turned

    @property
    def rows(self) -> tuple[Rows, ...]:
        """Those of a batch."""
        return tuple(rows for rows in (self.left.rows, self.right.rows, self.out) if isinstance(rows, Rows))

    def begins(self, b: Builder, which: Value | None = None) -> list[Value]:
        """The memory of the operands and the results; of the first product of a batch."""
        zero = number(b, 0)
        if which is not None:
            return [rows.of(which, zero).begin(b, zero, zero) for rows in self.rows]
        return [rows.begin(b, zero, zero) for rows in (self.left.rows, self.right.rows, self.out)]

    def distances(self, b: Builder) -> list[Value]:
        return [rows.apart(b) for rows in (self.left.rows, self.right.rows, self.out)]

    def choices(self, b: Builder) -> list[Value]:
        """Whether the operands are turned."""
        return [of.turned(b) for of in (self.left, self.right)]

    def strides(self, b: Builder, which: Value) -> list[Strides]:
        """Those of the operands and the results of a batch."""
        found: list[Strides] = []
        for rows, is_turned in zip(self.rows, (*self.turned, False), strict=True):
            row, column = (number(b, 1), rows.apart(b)) if is_turned else (rows.apart(b), number(b, 1))
            found.append((row, column, rows.next(b, which) if which in rows.index else None))
        return found


def access(i: Instruction) -> Access | None:
    """That of a product; None if it is not plain."""
    each = i.regions[2]
    (x, y), out = operands_of(i), rows_of(each)
    is_plain = len(i.operands) == 3 and is_stored(each)
    return Access(x, y, out) if is_plain and x is not None and y is not None and out is not None else None


@dataclass(frozen=True)
class _Kind:
    """Products of a dtype, of operands that are turned or not."""

    dtype: DType
    turned: Turned
    target: Target
    shape: Shape

    @property
    def suffix(self) -> str:
        return f"{self.dtype.name}_{''.join('nt'[t] for t in self.turned)}"

    def define(self, name: str, functions: Functions, body: Region) -> None:
        functions[name] = Instruction(OPS["function"], (), (), {"function": name}, (body,))

    def refs(self) -> dict[str, Value]:
        return {name: Value(RefType(self.dtype, (FAR,)), name) for name in REFS}

    def regions(self, refs: dict[str, Value], distances: dict[str, Value]) -> tuple[Region, ...]:
        """Those of a product."""
        left, right, out = (RowsAt(refs[name], distances[name]) for name in REFS)
        return loading(left, self.turned[0]), loading(right, self.turned[1]), _store(out)


def _numbers(*names: str) -> dict[str, Value]:
    return {name: Value(scalar(I64), name) for name in names}


def _store(row: RowsAt) -> Region:
    """The region of the results."""
    b, at = Builder(), [Value(scalar(I64), "i"), Value(scalar(I64), "j")]
    total = Value(scalar(row.ref.type.dtype), "sum")
    b.store(total, row.ref, *row.index(b, *at))
    return b.block([*at, total], [])


# blocks

class PlainBlocks(Blocks):
    """The blocks of a plain product."""

    def __init__(
        self, b: Builder, i: Instruction, target: Target, functions: Functions, outermost: bool,
        batch: tuple[Value, Value] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(b, i, target, functions, outermost, batch)
        found = access(i)
        assert found is not None
        self.access, kind = found, _Kind(self.dtype, (False, False), target, self.shape)
        self.name = f"blocks_{self.dtype.name}"
        self.few = FewRows(self.dtype, self.shape)
        self.is_few: Value | None = None
        if self.few.is_for(target):
            functions[self.few.name] = self.few.define()
            self.is_few = self.few.fits(b, self.rows, self.columns, found.right.turned(b))
        kind.define(self.name, functions, _block(kind))

    def number(self, row_panels: Value, column_panels: Value, is_long: Value) -> tuple[Value, Value]:
        """Few rows have longer ones, and pack nothing."""
        b = self.b
        down, along = super().number(row_panels, column_panels, is_long)
        if self.is_few is None:
            return down, along
        wanted = b.select(is_long, b.emit(OPS["threads"], (), {})[0], number(b, 1))
        of_few = b.mul(shared(b, parts(b, column_panels, self.few.most // self.shape.columns), wanted), wanted)
        return down, b.select(self.is_few, of_few, along)

    def memory(self, b: Builder, several: Value, panels: Value, across: Value) -> dict[str, Value]:
        packed = across if self.is_few is None else b.select(self.is_few, number(b, 1), across)
        return super().memory(b, several, panels, packed)

    def runs(self, b: Builder, block: Block) -> None:
        numbers = (self.rows, self.columns, self.terms, *block.rows, *block.columns, block.across, block.length, block.runs)
        choices = (block.several, block.keeps, block.is_far, *self.access.choices(b))
        own = (block.panels, block.known, block.sums)
        packs = self.packing(b, self.access.left, True), self.packing(b, self.access.right, False)
        given = (*self.access.begins(b), *own, *self.access.distances(b), *packs, *self.low_tiles(b), *numbers, *choices)
        b.emit(OPS["call"], given, {"function": self.name})


@functools.cache
def _block(kind: _Kind) -> Region:
    """The function of a block, of operands that are turned or not."""
    shape = kind.shape
    panels = Value(RefType(kind.dtype, (shape.most_wide + 1, shape.panel), space="stack"), "packed")
    marks = Value(RefType(I64, (shape.most_wide + 1, KNOWN), space="stack"), "known")
    sums = Value(RefType(kind.dtype, (shape.most_high, shape.rows, shape.strip), space="stack"), "sums")
    refs, distances, n = kind.refs(), {name: Value(scalar(I64), f"{name}_apart") for name in REFS}, _numbers(*NUMBERS)
    choices = {name: Value(scalar(BOOL), name) for name in CHOICES}
    packs, lows = _numbers(*PACKS), _numbers(*LOWS[: len(shape.lows)])
    left, right, out = (RowsAt(refs[name], distances[name]) for name in REFS)

    def in_panels(b: Builder) -> None:
        product = Instruction(OPS["product"], (n["rows"], n["columns"], n["terms"]), (), {}, kind.regions(refs, distances))
        blocks = Blocks(b, product, kind.target, Functions(), False)
        blocks.lows = list(lows.values())
        blocks.packed = (
            Lies(left, False, choices["left_turned"], packs["pack_left"]),
            Lies(right, False, choices["right_turned"], packs["pack_right"]),
        )
        blocks.comes, blocks.goes = right, out
        blocks.runs(b, Block(
            rows=(n["i0"], n["panels"]), columns=(n["j0"], n["width"]), across=n["across"], length=n["length"], runs=n["runs"],
            **{name: choices[name] for name in ("several", "keeps", "is_far")}, panels=panels, known=marks, sums=sums,
        ))  # fmt: skip

    def as_it_lies(b: Builder) -> None:
        one, apart, turned = number(b, 1), left.distance, choices["left_turned"]
        steps = b.select(turned, one, apart), b.select(turned, apart, one), right.distance, out.distance
        memory = left.ref, right.ref, out.begin(b, number(b, 0), n["j0"])
        given = *memory, *steps, n["rows"], n["terms"], n["length"], n["j0"], n["width"]
        b.emit(OPS["call"], given, {"function": few.name})

    b, few = Builder(), FewRows(kind.dtype, shape)
    if few.is_for(kind.target):
        is_few = few.fits(b, n["rows"], n["columns"], choices["right_turned"])
        when(b, is_few, as_it_lies)
        when(b, b.bitnot(is_few), in_panels)
    else:
        in_panels(b)
    given = {**packs, **lows, **n, **choices}
    return b.block([*refs.values(), panels, marks, sums, *distances.values(), *given.values()], [])


# narrow products of a batch

class PlainNarrow(Narrow):
    """A batch of plain products with few columns."""

    def __init__(
        self, b: Builder, i: Instruction, target: Target, batch: tuple[Value, Value], functions: Functions
    ) -> None:
        super().__init__(b, i, target, batch)
        found = access(i)
        assert found is not None
        self.access, self.functions = found, functions
        self.kind = _Kind(self.dtype, found.turned, target, self.shape)
        self.lies = not self.kind.turned[1]

    def tiles(self, vectors: int, rows: int, fits: Value) -> Tiles:
        with self.functions.under(self.b, self.count, fits):
            return PlainTiles(self, vectors, rows)


class PlainTiles(Tiles):
    """Their tiles."""

    of: PlainNarrow

    def __init__(self, of: PlainNarrow, vectors: int, rows: int) -> None:
        super().__init__(of, vectors, rows)
        order = "r" * of.by_rows + "t" * of.by_terms
        self.name = f"narrow_{of.kind.suffix}_{rows}x{vectors}_{order}"
        of.kind.define(self.name, of.functions, _narrow(of.kind, vectors, rows, of.by_rows, of.by_terms))

    def block(self, b: Builder, packed: Value | None, products: tuple[Value, Value], panels: tuple[Value, Value]) -> None:
        of = self.of
        memory = of.access.begins(b, of.which), of.access.distances(b), [rows.next(b, of.which) for rows in of.access.rows]
        self.call(b, packed, memory, (of.rows, of.columns, of.terms), products, panels)

    def call(
        self, b: Builder, packed: Value | None, memory: Sequence[Sequence[Value]], extents: Sequence[Value],
        products: tuple[Value, Value], panels: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """``memory``: where the operands and results of the first product begin, how far apart their rows are, and those of the
        next product. ``extents``: rows, columns and terms of each."""
        begins, distances, next_ = memory
        own = begins[1] if packed is None else packed
        given = (*begins, own, *distances, *next_, *extents, *products, *panels)
        b.emit(OPS["call"], given, {"function": self.name})


class _Within(Tiles):
    """The tiles of a batch of which it is known how far apart products lie."""

    def __init__(self, of: Narrow, vectors: int, rows: int, kind: _Kind, memory: tuple[dict[str, Value], ...]) -> None:
        super().__init__(of, vectors, rows)
        self.kind, (self.refs, self.apart, self.next) = kind, memory
        self.lies = not kind.turned[1]

    def regions(self, b: Builder, z: Value) -> tuple[Region, ...]:
        at = {name: b.mul(z, self.next[name]) for name in REFS}
        rows = [b.emit(OPS["ref_at"], (self.refs[name], at[name], self.apart[name]), {})[0] for name in REFS]
        self.left, _, self.out = rows
        left, right, out = (RowsAt(ref, self.apart[name], True) for ref, name in zip(rows, REFS, strict=True))
        return loading(left, self.kind.turned[0]), loading(right, self.kind.turned[1]), _store(out)

    def left_of(self, b: Builder, region: Region, rows: list[Value]) -> Callable[[Builder, int, Value], Value]:
        if self.kind.turned[0]:
            return super().left_of(b, region, rows)
        each = [b.emit(OPS["ref_at"], (self.left, row, number(b, 0)), {})[0] for row in rows]
        return lambda step, r, at: step.load(each[r], at)

    def out_of(self, b: Builder, each: Region, row: Value, first: Value) -> Callable[[Builder, Value, Value], Place]:
        begin = b.emit(OPS["ref_at"], (self.out, row, first), {})[0]
        return lambda b, lane, column: (begin, (lane,))


@functools.cache
def _narrow(kind: _Kind, vectors: int, rows: int, by_rows: bool, by_terms: bool) -> Region:
    """The function of some panels of rows of some products."""
    refs, n = kind.refs(), _numbers(*OF_BATCH)
    apart, next_ = ({name: Value(scalar(I64), f"{name}_{word}") for name in REFS} for word in ("apart", "next"))
    b = Builder()
    product = Instruction(OPS["product"], (n["rows"], n["columns"], n["terms"]), (), {}, kind.regions(refs, apart))
    of = Narrow(b, product, kind.target, (n["products"], n["first"]))
    of.by_rows, of.run_length = by_rows, of.run_of(by_terms)
    tiles = _Within(of, vectors, rows, kind, (refs, apart, next_))
    packed = Value(RefType(kind.dtype, (FAR, of.shape.terms * tiles.wide), space="stack"), "packed")
    tiles.block(b, None if tiles.lies else packed, (n["first"], n["products"]), (n["panel"], n["panels"]))
    return b.block([*refs.values(), packed, *apart.values(), *next_.values(), *n.values()], [])
