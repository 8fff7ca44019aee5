"""The kernel of a group of elements, and of reductions of all of them, that reads strided matrices.

Where every matrix that it reads is strided and has contiguous columns (Fortran's order), elements are visited in the order of
memory: in one line if values do not depend on the index, else column by column. Otherwise they are visited in tiles of 64
rows, and matrices without contiguous rows are staged in cache, transposed in registers: so results and other operands, which
have contiguous rows, are written and read along them. The kernel checks the strides when it runs.

Cost: every cache line moves once from and to memory; an element of a tile is written to L1 and read there once more.

A window of a matrix has as many columns as 64 rows of it fit in L1, or more where all operands have contiguous rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.loops.stage_rows import TILE_ROW_BYTES
from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.cost import Schedule
from pullback.codegen.kernels.elements import LEAST_STAGED_BYTES, Elements
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

LOG_JOINED_WINDOWS = 4
"""The logarithm of the number of adjacent windows that are joined into one where all matrices have contiguous rows."""


def neighbours(e: Elements, axis: int) -> Value:
    """Return whether all strided matrices of a group are contiguous along an axis, and their other stride is a multiple of the
    element size."""
    b, held = e.b, e.b.const(True, BOOL)
    for value in e.staged:
        size = value.type.dtype.bytes
        along, across = (b.emit(OPS["stride"], (e.refs[value],), {"axis": k})[0] for k in (axis, 1 - axis))
        is_multiple = b.eq(b.bitand(across, b.const(size - 1, I64)), b.const(0, I64))
        held = b.bitand(held, b.bitand(b.eq(along, b.const(size, I64)), is_multiple))
    return held


def windows(e: Elements) -> tuple[Value, Value]:
    """Return the logarithm of the number of columns of a window of a group, and the number of windows that hold all columns."""
    b = e.b
    least = min(TILE_ROW_BYTES // v.type.dtype.bytes for v in e.staged).bit_length() - 1
    log = b.select(neighbours(e, 1), b.const(least + LOG_JOINED_WINDOWS, I64), b.const(least, I64))
    last = b.sub(b.raw_shl(b.const(1, I64), log), b.const(1, I64))
    return log, b.raw_shr(b.add(b.extent_of(e.space.extents[1]), last), log)


Reductions = dict[Instruction, list[Value]]
"""The values of reductions."""
AS_IS, TRANSPOSED, IN_LINE = slice(None), slice(None, None, -1), slice(1)
"""Which part of an element's index is the index into a matrix as it is viewed."""


class _Strided(GroupKernel):
    """The kernel of a group that reads strided matrices under construction."""

    def __init__(self, space: Space, layouts: Sequence[str], over: Mapping[int, int]) -> None:
        super().__init__(space, layouts, over)
        self.staged = stageable(space, layouts)
        self.way = AS_IS

    def run(self) -> Draft:
        b = self.b
        none = b.const(0, I64)
        self.rows_of, self.columns_of = (b.extent_of(e) for e in self.space.extents)
        by_columns = self.in_columns() if self.is_alone() else b.const(False, BOOL)
        tiles = b.select(by_columns, none, b.const(1, I64))
        reductions: Reductions = self.along_columns(by_columns) if self.is_alone() else {}
        return self.finished_draft(self.in_tiles(tiles, reductions))

    def is_alone(self) -> bool:
        """Return whether no other matrix is read or written."""
        others = {v for v in self.region.parameters if v.type.rank > 1} - {*self.staged}
        return not others and not any(v.type.rank > 1 for v, _ in self.copies)

    def load(self, value: Value, index: tuple[Value, ...], guard: Value | None) -> Value:
        return super().load(value, index[self.way] if value in self.staged else index, guard)

    # the two ways

    def along_columns(self, holds: Value) -> Reductions:
        """Emit the loop over all elements in one line, or column by column, if ``holds``."""
        b, none = self.b, self.b.const(0, I64)
        before, is_line = self.refs, self.is_index_free()
        op, params, self.way = ("flat_view", {}, IN_LINE) if is_line else ("row_view", {"transposed": True}, TRANSPOSED)
        self.refs = before | {v: b.emit(OPS[op], (before[v],), params)[0] for v in self.staged}
        if is_line:
            position = b.open("i")
            reductions = self.over_elements((position, none), 2)
            reductions = self.close_loop(position, b.select(holds, b.mul(self.rows_of, self.columns_of), none), reductions)
        else:
            column, row = b.open("j"), b.open("i")
            reductions = self.close_loop(row, self.rows_of, self.over_elements((row, column), 2))
            reductions = self.close_loop(column, b.select(holds, self.columns_of, none), reductions)
        self.refs, self.way = before, AS_IS
        return reductions

    def in_columns(self) -> Value:
        """Return whether all matrices have contiguous columns, without gaps between them if values do not depend on the index."""
        b, held = self.b, neighbours(self, 0)
        for value in self.staged if self.is_index_free() else ():
            size = b.const(value.type.dtype.bytes, I64)
            column_stride = b.emit(OPS["stride"], (self.refs[value],), {"axis": 1})[0]
            held = b.bitand(held, b.eq(column_stride, b.mul(self.rows_of, size)))
        return held

    def is_index_free(self) -> bool:
        """Return whether elements are computed from scalars and elements alone."""
        spread = (i for i in self.region.instructions if not isinstance(i.op, Elementwise | Reduce | Check))
        return all(not i.operands[0].type.shape if i.op is broadcast else not i.results[0].type.shape for i in spread)

    def in_tiles(self, tiles_run: Value, starts: Reductions) -> Reductions:
        """Emit the loop over tiles; ``tiles_run``: 1, or 0 if there is nothing to do. ``starts``: the initial values of the
        reductions."""
        b = self.b
        log, windows_per_row = windows(self)
        width = b.raw_shl(b.const(1, I64), log)
        height = b.const(BLOCK, I64)
        above = b.raw_shr(b.add(self.rows_of, b.const(BLOCK - 1, I64)), b.const(BLOCK.bit_length() - 1, I64))
        tile = b.open("t")
        row_of_tiles = b.idiv(tile, windows_per_row)
        first, left = b.mul(row_of_tiles, height), b.raw_shl(b.sub(tile, b.mul(row_of_tiles, windows_per_row)), log)
        count, long = b.minimum(b.sub(self.rows_of, first), height), b.minimum(b.sub(self.columns_of, left), width)
        before = self.stage(first, count, left, long)
        row = b.open("i")
        column = b.open("j")
        for ref in self.row_major_matrices():
            b.here("prefetch", ref, b.add(first, row), b.add(b.add(left, width), column))
        reductions = self.over_elements((b.add(first, row), b.add(left, column)), 2)
        self.refs = before
        reductions = self.close_loop(column, long, reductions)
        reductions = self.close_loop(row, count, reductions, trip_count=BLOCK)
        return self.close_loop(tile, b.mul(tiles_run, b.mul(above, windows_per_row)), reductions, starts, independent=True)

    def row_major_matrices(self) -> list[Value]:
        """Return the other matrices that are read or written in rows; their elements of the next tile are prefetched."""
        read = [self.refs[v] for v in self.refs if v.type.shape == self.space.extents and v not in self.staged]
        written = [out.ref for _, out in self.copies if out.ref.type.rank == len(self.space.extents)]
        return list(dict.fromkeys([*read, *written]))

    def close_loop(
        self,
        index: Value,
        count: Value,
        reductions: Reductions,
        starts: Reductions | None = None,
        trip_count: int = 0,
        independent: bool = False,
    ) -> Reductions:
        """Close a loop that combines reductions."""
        initial = [v for i in reductions for v in (starts[i] if starts else self.identity(i))]
        yields = [v for values in reductions.values() for v in values]
        combine = [self.combiner(i) for i in reductions]
        results = self.b.close(index, count, initial, yields, combine or None, trip_count=trip_count, independent=independent)
        return {i: [v] for i, v in zip(reductions, results, strict=True)}


def stageable(space: Space, layouts: Sequence[str]) -> list[Value]:
    """Return the strided matrices whose elements a group reads only for results at the same index."""
    elsewhere = set[Value]()
    for i in reversed(space.region.instructions):
        is_here = isinstance(i.op, Elementwise | Check | Reduce) or i.op is broadcast
        if not is_here or (isinstance(i.op, Elementwise) and not elsewhere.isdisjoint(i.results)):
            elsewhere.update(i.operands)
    return [
        v
        for v, layout in zip(space.region.parameters, layouts, strict=True)
        if layout == "strided"
        and v.type.shape == space.extents
        and v not in elsewhere
        and v.type.dtype.bytes >= LEAST_STAGED_BYTES
    ]


def _fits(space: Space, layouts: Sequence[str]) -> str | None:
    if space.rows or len(space.extents) != 2 or not space.nears:
        return "its elements are not those of a matrix"
    if space.order:
        return space.order
    reduces = [i for i in space.region.instructions if isinstance(i.op, Reduce)]
    if any(i.op.gives_position or tuple(i.params["axes"]) != (0, 1) for i in reduces if isinstance(i.op, Reduce)):
        return "something is reduced along one axis, or gives a position"
    return None if stageable(space, layouts) else "it reads no strided matrix"


STRIDED = Schedule(
    name="strided",
    fits=_fits,
    cost=FLAT.cost,
    draft=lambda *arguments: _Strided(*arguments).run(),
    targets=frozenset({"cpu"}),
)
