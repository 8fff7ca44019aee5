"""The kernel of a group of elements, and of reductions of all of them, that reads strided matrices.

Where all that it reads of matrices is strided and has columns (Fortran's order), elements are visited as they lie: in one line if
their places do not matter, else column by column. Otherwise they are visited in tiles of 64 rows, and what does not lie in rows
is brought near, turned in registers: so results and other operands, which have rows, are written and read along them. Which of
this holds, the strides say when the kernel runs.

Cost: every line moves once from and to memory; an element of a tile is written to the first cache and read there once more.

A window of a matrix has so many columns that 64 rows of it fit in L1, or more where all operands have rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.loops.stage_rows import TILE
from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Schedule
from pullback.codegen.kernels.elements import LEAST, Elements
from pullback.codegen.kernels.groups.rows import BLOCK, FLAT, GroupKernel
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, I64
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise

LONG = 4
"""The logarithm of how many windows side by side are one where all matrices have rows."""


def neighbours(e: Elements, axis: int) -> Value:
    """Whether in all strided matrices of a group neighbours along an axis are neighbours in memory, and those along the other one
    whole elements apart."""
    b, held = e.b, e.b.const(True, BOOL)
    for value in e.brought:
        size = value.type.dtype.bytes
        along, across = (b.emit(OPS["stride"], (e.refs[value],), {"axis": k})[0] for k in (axis, 1 - axis))
        whole = b.eq(b.bitand(across, b.const(size - 1, I64)), b.const(0, I64))
        held = b.bitand(held, b.bitand(b.eq(along, b.const(size, I64)), whole))
    return held


def windows(e: Elements) -> tuple[Value, Value]:
    """The logarithm of how many columns a window of a group has, and how many windows hold all columns."""
    b = e.b
    least = min(TILE // v.type.dtype.bytes for v in e.brought).bit_length() - 1
    log = b.select(neighbours(e, 1), b.const(least + LONG, I64), b.const(least, I64))
    last = b.sub(b.raw_shl(b.const(1, I64), log), b.const(1, I64))
    return log, b.raw_shr(b.add(b.extent_of(e.space.extents[1]), last), log)


Found = dict[Instruction, list[Value]]
AS_IS, TURNED, IN_LINE = slice(None), slice(None, None, -1), slice(1)
"""What of an element's index is one of a matrix as it is read."""


class _Strided(GroupKernel):
    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.brought = brought(space, layouts)
        self.way = AS_IS

    def run(self) -> Draft:
        b = self.b
        none = b.const(0, I64)
        self.rows_of, self.columns_of = (b.extent_of(e) for e in self.space.extents)
        by_columns = self.in_columns() if self.is_alone() else b.const(False, BOOL)
        tiles = b.select(by_columns, none, b.const(1, I64))
        found: Found = self.along_columns(by_columns) if self.is_alone() else {}
        return self.drafted(self.in_tiles(tiles, found))

    def is_alone(self) -> bool:
        """Whether no other matrix is read or written."""
        others = {v for v in self.region.parameters if v.type.rank > 1} - {*self.brought}
        return not others and not any(v.type.rank > 1 for v, _ in self.copies)

    def load(self, value: Value, index: tuple[Value, ...], guard: Value | None) -> Value:
        return super().load(value, index[self.way] if value in self.brought else index, guard)

    # the two ways

    def along_columns(self, holds: Value) -> Found:
        """All elements in one line, or column by column, if that holds."""
        b, none = self.b, self.b.const(0, I64)
        before, is_line = self.refs, self.is_anywhere()
        op, params, self.way = ("flat_view", {}, IN_LINE) if is_line else ("row_view", {"transposed": True}, TURNED)
        self.refs = before | {v: b.emit(OPS[op], (before[v],), params)[0] for v in self.brought}
        if is_line:
            place = b.open("i")
            found = self.over_elements((place, none), 2)
            found = self.left(place, b.select(holds, b.mul(self.rows_of, self.columns_of), none), found)
        else:
            column, row = b.open("j"), b.open("i")
            found = self.left(row, self.rows_of, self.over_elements((row, column), 2))
            found = self.left(column, b.select(holds, self.columns_of, none), found)
        self.refs, self.way = before, AS_IS
        return found

    def in_columns(self) -> Value:
        """Whether all matrices have columns, which lie one behind the other if an element's place does not matter."""
        b, held = self.b, neighbours(self, 0)
        for value in self.brought if self.is_anywhere() else ():
            size = b.const(value.type.dtype.bytes, I64)
            beside = b.emit(OPS["stride"], (self.refs[value],), {"axis": 1})[0]
            held = b.bitand(held, b.eq(beside, b.mul(self.rows_of, size)))
        return held

    def is_anywhere(self) -> bool:
        """Whether elements are computed of numbers and of elements alone."""
        spread = (i for i in self.region.instructions if not isinstance(i.op, Elementwise | Reduce | Check))
        return all(not i.operands[0].type.shape if i.op is broadcast else not i.results[0].type.shape for i in spread)

    def in_tiles(self, some: Value, sofar: Found) -> Found:
        """Tile by tile; ``some``: 0 if there is nothing to do. ``sofar``: what reductions have found."""
        b = self.b
        log, beside = windows(self)
        width = b.raw_shl(b.const(1, I64), log)
        height = b.const(BLOCK, I64)
        above = b.raw_shr(b.add(self.rows_of, b.const(BLOCK - 1, I64)), b.const(BLOCK.bit_length() - 1, I64))
        tile = b.open("t")
        place = b.idiv(tile, beside)
        first, left = b.mul(place, height), b.raw_shl(b.sub(tile, b.mul(place, beside)), log)
        count, long = b.minimum(b.sub(self.rows_of, first), height), b.minimum(b.sub(self.columns_of, left), width)
        before = self.bring_near(first, count, left, long)
        row = b.open("i")
        column = b.open("j")
        for ref in self.companions():
            b.here("prefetch", ref, b.add(first, row), b.add(b.add(left, width), column))
        found = self.over_elements((b.add(first, row), b.add(left, column)), 2)
        self.refs = before
        found = self.left(column, long, found)
        found = self.left(row, count, found, trip_count=BLOCK)
        return self.left(tile, b.mul(some, b.mul(above, beside)), found, sofar, independent=True)

    def companions(self) -> list[Value]:
        """The other matrices that are read or written in rows; the next tile's elements are asked for."""
        read = [self.refs[v] for v in self.refs if v.type.shape == self.space.extents and v not in self.brought]
        written = [out.ref for _, out in self.copies if out.ref.type.rank == len(self.space.extents)]
        return list(dict.fromkeys([*read, *written]))

    def left(
        self, index: Value, count: Value, found: Found, sofar: Found | None = None, trip_count: int = 0, independent: bool = False
    ) -> Found:
        """Leave a loop that combines what reductions found in it."""
        initial = [v for i in found for v in (sofar[i] if sofar else self.identity(i))]
        yields = [v for values in found.values() for v in values]
        combine = [self.combiner(i) for i in found]
        results = self.b.close(index, count, initial, yields, combine or None, trip_count=trip_count, independent=independent)
        return {i: [v] for i, v in zip(found, results, strict=True)}


def brought(space: Space, layouts: Sequence[str]) -> list[Value]:
    """The strided matrices of which a group reads each element for results of that place."""
    elsewhere = set[Value]()
    for i in reversed(space.region.instructions):
        is_here = isinstance(i.op, Elementwise | Check | Reduce) or i.op is broadcast
        if not is_here or (isinstance(i.op, Elementwise) and not elsewhere.isdisjoint(i.results)):
            elsewhere.update(i.operands)
    return [
        v
        for v, layout in zip(space.region.parameters, layouts, strict=True)
        if layout == "strided" and v.type.shape == space.extents and v not in elsewhere and v.type.dtype.bytes >= LEAST
    ]


def _fits(space: Space, layouts: Sequence[str]) -> str | None:
    if space.rows or len(space.extents) != 2 or not space.nears:
        return "its elements are not those of a matrix"
    if space.order:
        return space.order
    reduces = [i for i in space.region.instructions if isinstance(i.op, Reduce)]
    if any(i.op.gives_position or tuple(i.params["axes"]) != (0, 1) for i in reduces if isinstance(i.op, Reduce)):
        return "something is reduced along one axis, or gives a position"
    return None if brought(space, layouts) else "it reads no strided matrix"


STRIDED = Schedule(
    name="strided",
    fits=_fits,
    cost=FLAT.cost,
    draft=lambda *given: _Strided(*given).run(),
    targets=frozenset({"cpu"}),
)
