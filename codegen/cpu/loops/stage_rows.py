"""stage_rows: rows of strided matrices that loops read are staged in the kernel's own memory, unless they are contiguous.

Requires: a kernel for the CPU whose loops are cut in chunks. Keeps: its meaning, to the bit. Where columns are neighbours in
memory (Fortran's order), neighbours along a row are lines apart, and each of these has left the caches before the next row wants
its next element. So some rows are copied first, to memory of the kernel's own: four columns at a time, turned in registers.
Matrices with neither rows nor columns are copied element by element.

Cost: every line moves once from memory, and an element is written and read twice in the first and second caches.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.cpu.loops.nest_builder import loop, number, parts, serial, vector, when
from pullback.codegen.cpu.loops.stage_columns import LONG, Reduced, Sums, is_near, sums_of
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import StageRows

ROWS = 64
"""The rows that are brought near at a time, at most."""
LINE = 64
TILE = 256
"""The bytes of a row of the tile that lies in the first cache."""
ROOM = 1 << 40


def stage_rows(block: Block, vector_bytes: int = LINE) -> Block:
    """A block in which the rows of every ``stage_rows`` are there. ``vector_bytes``: so many are turned together."""
    made: list[Instruction] = []
    for k, i in enumerate(block.instructions):
        if is_near(i):
            wide = min(TILE // n.operands[0].type.dtype.bytes for n in block.instructions[k:] if is_near(n))
            sums = sums_of(block.instructions[k:], block.results, vector_bytes, wide)
            if sums is not None:
                _by_columns(Builder(i.loc, made), sums, wide, vector_bytes)
                return Block(block.parameters, tuple(made), block.results)
        if isinstance(i.op, StageRows):
            _Rows(Builder(i.loc, made), i, vector_bytes).write()
        else:
            made.append(replace(i, regions=tuple(stage_rows(r, vector_bytes) for r in i.regions)) if i.regions else i)
    return Block(block.parameters, tuple(made), block.results)


def _by_columns(b: Builder, sums: Sums, wide: int, vector_bytes: int) -> None:
    """Loops over rows, some columns at a time if all matrices have columns, and many."""
    for i in sums.others:
        b.append(i)
    rows = [_Rows(b, i, vector_bytes) for i in sums.nears]
    columns = rows[0].columns
    holds = b.gt(columns, number(b, LONG * wide))
    for matrix in rows:
        has_rows, has_columns = matrix.ways()
        holds = b.bitand(holds, b.bitand(has_columns, b.bitxor(has_rows, b.const(True, BOOL))))

    def bring(b: Builder, i: Instruction, left: Value, long: Value) -> Value:
        (old,) = i.results
        found = Value(old.type, old.name)
        tile = _Rows(b, Instruction(i.op, (*i.operands, left, long), (found,), {}, (), i.loc), vector_bytes)
        tile.write_tile(b.const(False, BOOL), None, None)
        return found

    def whole(b: Builder) -> None:
        for i in sums.nears:
            _Rows(b, i, vector_bytes).write()
        for r in sums.loops:
            b.append(r.loop)

    when(b, holds, lambda b: Reduced(b, sums, columns, bring, wide, ROWS).write())
    when(b, b.bitxor(holds, b.const(True, BOOL)), whole)


class _Rows:
    """Some rows of one matrix."""

    def __init__(self, b: Builder, i: Instruction, vector_bytes: int) -> None:
        self.b, self.i = b, i
        self.ref, self.first, self.count, *self.window = i.operands
        self.dtype = self.ref.type.dtype
        self.columns = b.emit(OPS["extent"], (), {"size": self.ref.type.shape[1]})[0]
        self.line, self.wide = LINE // self.dtype.bytes, TILE // self.dtype.bytes
        self.together = vector_bytes // self.dtype.bytes
        self.lead = b.mul(b.bitor(parts(b, self.columns, self.line), number(b, 1)), number(b, self.line))

    def ways(self) -> tuple[Value, Value]:
        """Whether the matrix has rows in memory, and whether it has columns."""
        b, size = self.b, number(self.b, self.dtype.bytes)
        rows, columns = (b.emit(OPS["stride"], (self.ref,), {"axis": axis})[0] for axis in (0, 1))
        none, rest = number(b, 0), number(b, self.dtype.bytes - 1)
        has_rows = b.bitand(b.eq(columns, size), b.eq(b.bitand(rows, rest), none))
        return has_rows, b.bitand(b.eq(rows, size), b.eq(b.bitand(columns, rest), none))

    def write(self) -> None:
        b, one = self.b, number(self.b, 1)
        has_rows, has_columns = self.ways()
        copied, others = (b.bitxor(x, b.const(True, BOOL)) for x in (has_rows, has_columns))
        by_columns = b.bitand(copied, has_columns)
        if self.window:
            self.write_tile(has_rows, by_columns, b.bitand(copied, others))
            return
        is_narrow = b.bitand(by_columns, b.le(self.columns, number(b, self.wide)))
        wanted = b.select(b.bitor(has_rows, is_narrow), one, b.mul(self.count, self.lead))
        room = b.local(wanted, dtype=self.dtype, shape=(ROOM,))
        tile = b.local(dtype=self.dtype, shape=(ROWS, self.wide + self.line))
        when(b, by_columns, lambda b: self.turned(b, room, tile, is_narrow))
        when(b, b.bitand(copied, others), lambda b: self.one_by_one(b, room))
        found = b.emit(OPS["select_rows"], (has_rows, self.ref, room, self.first, self.lead), {})[0]
        given = b.bitxor(is_narrow, b.const(True, BOOL)), found, tile, self.first, number(b, self.wide + self.line)
        b.append(Instruction(OPS["select_rows"], given, self.i.results, {}, (), self.i.loc))

    def write_tile(self, has_rows: Value, by_columns: Value | None, others: Value | None) -> None:
        """The rows' elements in some columns, no more than a tile has; without conditions the matrix is known to have columns."""
        b, (left, width) = self.b, self.window
        tile, lead = b.local(dtype=self.dtype, shape=(ROWS, self.wide + self.line)), number(b, self.wide + self.line)
        last, size = b.sub(self.columns, number(b, 1)), number(b, self.wide)
        ways = size, number(b, 0), last

        def turned(b: Builder) -> None:
            ref = b.emit(OPS["row_view"], (self.ref,), {"transposed": True})[0]
            groups = parts(b, width, self.together)
            serial(b, groups, lambda b, g: self.group(b, ref, tile, left, b.mul(g, number(b, self.together)), ways))

        def row(b: Builder, r: Value) -> None:
            at = b.add(self.first, r)
            loop(b, width, lambda b, j: b.store(b.load(self.ref, at, b.add(left, j)), tile, r, j), map="vector", short=True)

        if by_columns is None or others is None:
            turned(b)
        else:
            when(b, by_columns, turned)
            when(b, others, lambda b: serial(b, self.count, row))
        given = has_rows, self.ref, tile, self.first, lead, left
        b.append(Instruction(OPS["select_rows"], given, self.i.results, {}, (), self.i.loc))

    def one_by_one(self, b: Builder, room: Value) -> None:
        def row(b: Builder, r: Value) -> None:
            start, at = b.mul(r, self.lead), b.add(self.first, r)
            loop(b, self.columns, lambda b, j: b.store(b.load(self.ref, at, j), room, b.add(start, j)), map="vector", short=True)

        serial(b, self.count, row)

    def turned(self, b: Builder, room: Value, tile: Value, is_narrow: Value) -> None:
        by_columns = b.emit(OPS["row_view"], (self.ref,), {"transposed": True})[0]
        size = number(b, self.wide)
        last = b.sub(self.columns, number(b, 1))
        ways = b.select(is_narrow, number(b, 0), size), b.select(is_narrow, number(b, ROWS), number(b, 0)), last

        def some(b: Builder, k: Value) -> None:
            left = b.mul(k, size)
            width = b.minimum(b.sub(self.columns, left), size)
            groups = parts(b, width, self.together)
            serial(b, groups, lambda b, g: self.group(b, by_columns, tile, left, b.mul(g, number(b, self.together)), ways))
            count = b.select(is_narrow, number(b, 0), self.count)
            serial(b, count, lambda b, r: row(b, r, left, width))

        def row(b: Builder, r: Value, left: Value, width: Value) -> None:
            start = b.add(b.mul(r, self.lead), left)
            whole = b.mul(parts(b, width, self.line), number(b, self.line))
            vector(b, whole, self.line, lambda b, j: b.store(b.load(tile, r, j), room, b.add(start, j)))

        serial(b, parts(b, self.columns, self.wide), some)

    def group(self, b: Builder, ref: Value, tile: Value, left: Value, c: Value, ways: tuple[Value, Value, Value]) -> None:
        """Some columns, from one on, turned. ``ref``: the matrix, turned; ``ways``: how far beside and below them is what comes
        next, and the last column."""
        beside, below, last = ways
        columns = [b.minimum(b.add(b.add(left, c), number(b, k)), last) for k in range(self.together)]
        coming = [b.minimum(b.add(column, beside), last) for column in columns]

        def one(b: Builder, v: Value) -> None:
            at = b.add(self.first, v)
            serial(b, number(b, self.together), lambda b, k: single(b, v, at, b.add(c, k)))

        def single(b: Builder, v: Value, at: Value, k: Value) -> None:
            b.store(b.load(ref, b.minimum(b.add(left, k), last), at), tile, v, k)

        def rows(b: Builder, v: Value) -> None:
            at = b.add(self.first, v)
            values = [b.load(ref, column, at) for column in columns]
            here = [c, *(b.add(c, number(b, k)) for k in range(1, self.together))]
            for value, place in zip(values, here, strict=True):
                b.store(value, tile, v, place)
            for column in coming:
                b.prefetch(ref, column, b.add(at, below))

        whole = b.bitand(self.count, number(b, -self.together))
        vector(b, whole, self.together, rows)
        serial(b, b.sub(self.count, whole), lambda b, v: one(b, b.add(whole, v)))
