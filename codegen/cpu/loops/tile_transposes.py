"""transposes: tile loops whose reads are transposed.

Requires: a kernel whose functions are expanded. Keeps: its meaning, to the bit. If memory is contiguous along an outer loop
and not along the innermost, as in reading a transposed array, each iteration of the innermost loop touches another cache line,
which is evicted from L1 before its next element is read; strides of a power of two also map these lines to the same few cache
sets. So both loops run in blocks. The elements that a block reads are first copied to a tile, one by one, since gathers are
slow on many processors, and then read from the tile in vectors. Rows of memory this short are not detected by the hardware
prefetcher, so each block prefetches the elements that the next one reads and writes.

A copy of a strided array tests its strides at run time and selects one of the two orders.

Blocks of few rows are not worthwhile. If the innermost loop is short, it is interchanged with the outer one: reads are then
contiguous and writes are not.

Cost: every cache line moves once from and to memory, and an element is written to L1 and read from it once more. Footprint: a
tile of 4 to 16 KiB for each operand that is transposed; its rows are one element longer than the block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from pullback.codegen.analysis.independence import is_shifted
from pullback.codegen.cpu.loops.unroll_and_jam import Env, is_plain
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import For, Load, Store

MOST_INSIDE = 40
"""Greatest number of instructions of an innermost body that is tiled."""
MOST_TILES = 3
"""Greatest number of transposed operands."""
LEAST_TRIP_COUNT = 8
"""Loops of fewer iterations are short."""
LINE = 64
"""Bytes of a cache line."""
COPY_UNROLL = 8
"""Elements of a cache line that are copied per iteration."""
TILE_BYTES, MOST_TILE = 256, 64
"""Bytes of a tile's row, and the greatest number of its elements; a block has as many iterations of both loops."""


def transposes(block: Block) -> Block:
    """Return a block whose loops with transposed reads are tiled."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        nest = _nest(i)
        transposed_loads = _transposed_loads(nest) if nest is not None else []
        strided_loads = _strided_load(nest) if nest is not None and not transposed_loads else []
        if nest is not None and (transposed_loads or strided_loads):
            b = Builder(i.loc, instructions)
            _TiledNest(b, nest, transposed_loads or strided_loads).write(
                _emit_is_transposed(b, strided_loads[0]) if strided_loads else None
            )
            continue
        regions = tuple(map(transposes, i.regions))
        instructions.append(Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i)
    return Block(block.parameters, tuple(instructions), block.results)


def _nest(i: Instruction) -> list[Instruction] | None:
    """Return the loops from this one to the innermost, which alone stores, from the outside in; None if they are no such nest."""
    nest = []
    while True:
        if not isinstance(i.op, For) or i.results or i.params.get("ordered") or "map" in i.params:
            return None
        nest.append(i)
        body = i.regions[0].instructions
        loops = [k for k in body if k.regions]
        if not all(is_plain(k) for k in body if not k.regions) or len(loops) > 1:
            return None
        if not loops:
            return nest if len(nest) > 1 and len(body) <= MOST_INSIDE else None
        if any(isinstance(k.op, Store) for k in body):
            return None
        (i,) = loops


def copied_nest(i: Instruction) -> tuple[Instruction, Instruction, Value] | None:
    """Return the load and the store of a loop that copies a strided matrix row by row, and its number of columns.

    None if an instruction is not such a loop.
    """
    nest = _nest(i)
    if nest is None or not _strided_load(nest):
        return None
    load, store = nest[-1].regions[0].instructions
    return load, store, nest[1].operands[0]


def _transposed_loads(nest: Sequence[Instruction]) -> list[Instruction]:
    """Return the loads of a nest that are contiguous along the outermost loop and not along the innermost."""
    index, inner = nest[0].regions[0].parameters[0], nest[-1].regions[0].parameters[0]
    instructions = [k for loop in nest for k in loop.regions[0].instructions if not k.regions]
    producers = {v: k for k in instructions for v in k.results}
    outer_varying, inner_varying = _varying(instructions, index), _varying(instructions, inner)
    if any(v in outer_varying for loop in nest[1:] for v in loop.operands):
        return []
    stores = [k for k in instructions if isinstance(k.op, Store)]
    loads = [k for k in instructions if isinstance(k.op, Load)]
    written = [k.operands[1] for k in stores]
    if len(set(written)) != len(written) or any(k.operands[0] in written for k in loads):
        return []
    if any(isinstance(k.op, Load) and k.op.masked for k in loads) or not all(
        _is_contiguous_along(k, inner, producers, inner_varying) for k in stores
    ):
        return []
    candidates = [k for k in loads if k.operands[-1] not in inner_varying and not inner_varying.isdisjoint(k.operands)]
    transposed = [k for k in candidates if _is_contiguous_along(k, index, producers, outer_varying)]
    return transposed if len(transposed) <= MOST_TILES else []


def _strided_load(nest: Sequence[Instruction]) -> list[Instruction]:
    """Return the load of a nest that copies a strided matrix; whether it is transposed is known at run time."""
    body = nest[-1].regions[0].instructions
    if len(nest) != 2 or [k.op for k in body] != [OPS["load"], OPS["store"]]:
        return []
    load, store = body
    row, column = (loop.regions[0].parameters[0] for loop in nest)
    around = [k for k in nest[0].regions[0].instructions if not k.regions]
    producers = {v: k for k in around for v in k.results}
    is_copy = store.operands[0] in load.results and load.operands[1:] == store.operands[2:]
    layouts = [getattr(ref.type, "layout", "") for ref in (load.operands[0], store.operands[1])]
    if not is_copy or layouts != ["strided", "c"]:
        return []
    varying = _varying(around, row)
    first, *columns = load.operands[1:]
    is_row = first in varying and is_shifted(first, row, producers, varying)
    return [load] if is_row and columns == [column] and nest[1].operands[0] not in varying else []


def _emit_is_transposed(b: Builder, load: Instruction) -> Value:
    """Emit whether the stride of the first axis of a reference is less than that of the second."""
    first, second = (b.emit(OPS["stride"], (load.operands[0],), {"axis": k})[0] for k in (0, 1))
    result: Value = b.lt(b.abs(first), b.abs(second))
    return result


def _is_contiguous_along(access: Instruction, index: Value, producers: Mapping[Value, Instruction], varying: Set[Value]) -> bool:
    """Return whether an access is contiguous along an index."""
    return (
        len(access.operands) > 1 and access.operands[-1] in varying and is_shifted(access.operands[-1], index, producers, varying)
    )


def _varying(instructions: Sequence[Instruction], index: Value) -> set[Value]:
    """Return the values that depend on an index."""
    values = {index}
    for k in instructions:
        if not values.isdisjoint(k.operands):
            values.update(k.results)
    return values


class _TiledNest:
    """A nest of loops in three forms, one of which runs: tiled, interchanged, and unchanged."""

    def __init__(self, b: Builder, nest: Sequence[Instruction], transposed_loads: Sequence[Instruction]) -> None:
        self.b, self.nest, self.transposed_loads = b, nest, transposed_loads
        around = [k for loop in nest[:-1] for k in loop.regions[0].instructions if not k.regions]
        self.body = nest[-1].regions[0].instructions
        self.producers = {v: k for k in (*around, *self.body) for v in k.results}
        self.row_values = [v for v in {v: None for k in self.body for v in k.operands} if self.producers.get(v) in around]
        """What a row of the innermost loop needs once."""
        self.outer, self.inner = nest[0].regions[0].parameters[0], nest[-1].regions[0].parameters[0]
        bytes_ = max(k.result.type.dtype.bytes for k in transposed_loads)
        self.tile, self.line = min(MOST_TILE, TILE_BYTES // bytes_), LINE // bytes_

    def write(self, is_transposed: Value | None) -> None:
        """Emit the three forms. ``is_transposed``: whether the read is transposed, if that is only known at run time."""
        b = self.b
        (rows,), (columns,) = self.nest[0].operands, self.nest[-1].operands
        least = b.const(LEAST_TRIP_COUNT, I64)
        short = b.lt(self.value(b, columns, {}), least)
        zero = b.const(0, I64)
        swapped = b.select(short, rows, zero)
        tall = b.ge(rows, least)
        remaining = b.select(short, zero, rows)
        tiled = b.select(tall, remaining, zero)
        if is_transposed is not None:
            swapped, tiled = (b.select(is_transposed, count, zero) for count in (swapped, tiled))
            remaining = b.sub(rows, swapped)
        self.blocks(tiled)
        self.swapped(swapped)
        self.plain(b.sub(remaining, tiled))

    # the three forms

    def blocks(self, rows: Value) -> None:
        """Emit the tiled form: blocks of the outermost loop, then, inside the middle loops, blocks of the innermost one."""
        b, tile = self.b, self.tile
        locals_ = [b.local(dtype=k.result.type.dtype, shape=(tile, tile + 1)) for k in self.transposed_loads]

        def of_rows(b: Builder, first: Value, height: Value) -> None:
            def of_columns(b: Builder, env: Env) -> None:
                columns = self.value(b, self.nest[-1].operands[0], env)
                self.in_blocks(b, columns, lambda b, left, width: self.block(b, env, locals_, (first, height, left, width)))

            self.middle_loops(b, self.nest[1:-1], {}, of_columns)

        self.in_blocks(b, rows, of_rows)

    def swapped(self, rows: Value) -> None:
        """Emit the interchanged form."""

        def inner(b: Builder, env: Env) -> None:
            self.loop(b, self.value(b, self.nest[-1].operands[0], env), lambda b, j: outer(b, {**env, self.inner: j}))

        def outer(b: Builder, env: Env) -> None:
            self.loop(b, rows, lambda b, i: self.elements(b, {**env, self.outer: i}))

        self.middle_loops(self.b, self.nest[1:-1], {}, inner)

    def plain(self, rows: Value) -> None:
        """Emit the unchanged form."""

        def outer(b: Builder, i: Value) -> None:
            self.middle_loops(b, self.nest[1:-1], {self.outer: i}, inner)

        def inner(b: Builder, env: Env) -> None:
            self.emit_row_values(b, env)
            columns = self.value(b, self.nest[-1].operands[0], env)
            self.loop(b, columns, lambda b, j: self.elements(b, {**env, self.inner: j}))

        self.loop(self.b, rows, outer)

    # parts of the forms

    def block(self, b: Builder, env: Env, tiles: Sequence[Value], bounds: Sequence[Value]) -> None:
        """Fill the tiles, then run the body on them."""
        first, height, left, width = bounds

        def copy(b: Builder, r: Value, v: Value) -> None:
            here = {**env, self.outer: b.add(first, v), self.inner: b.add(left, r)}
            for k, tile in zip(self.transposed_loads, tiles, strict=True):
                b.store(b.load(k.operands[0], *(self.value(b, p, here) for p in k.operands[1:])), tile, v, r)

        def fill(b: Builder, r: Value) -> None:
            several = b.const(COPY_UNROLL, I64)
            groups = b.raw_shr(height, b.const(COPY_UNROLL.bit_length() - 1, I64))
            done = b.mul(groups, several)
            self.loop(b, groups, lambda b, g: copies(b, r, b.mul(g, several)), ordered=True)
            self.loop(b, b.sub(height, done), lambda b, v: copy(b, r, b.add(done, v)), ordered=True)

        def copies(b: Builder, r: Value, v: Value) -> None:
            coming = {**env, self.outer: b.add(first, v), self.inner: b.add(b.add(left, r), b.const(self.tile, I64))}
            self.prefetch(b, [k.operands for k in self.transposed_loads], coming)
            for k in range(COPY_UNROLL):
                copy(b, r, b.add(v, b.const(k, I64)))

        def run(b: Builder, outer: Env, v: Value, r: Value) -> None:
            here = {**outer, self.inner: b.add(left, r)}
            here.update((k.result, b.load(tile, v, r)) for k, tile in zip(self.transposed_loads, tiles, strict=True))
            self.elements(b, here)

        written = [k.operands[1:] for k in self.body if isinstance(k.op, Store)]

        def row(b: Builder, v: Value) -> None:
            outer = {**env, self.outer: b.add(first, v)}
            self.emit_row_values(b, outer)
            for r in range(0, self.tile, self.line):
                self.prefetch(b, written, {**outer, self.inner: b.add(left, b.const(self.tile + r, I64))})
            self.loop(b, width, lambda b, r: run(b, outer, v, r))

        self.loop(b, width, fill, ordered=True)
        self.loop(b, height, row)

    def prefetch(self, b: Builder, elements: Sequence[Sequence[Value]], env: Env) -> None:
        """Emit prefetches of elements of the next block."""
        for ref, *index in elements:
            b.emit(OPS["prefetch"], [ref, *(self.value(b, p, env) for p in index)])

    def in_blocks(self, b: Builder, count: Value, body: Callable[[Builder, Value, Value], None]) -> None:
        """Emit a loop over blocks; ``body`` takes the first index and the length of a block."""
        tile = b.const(self.tile, I64)
        log = b.const(self.tile.bit_length() - 1, I64)
        blocks = b.raw_shr(b.add(count, b.const(self.tile - 1, I64)), log)

        def inside(b: Builder, k: Value) -> None:
            first = b.mul(k, tile)
            body(b, first, b.minimum(b.sub(count, first), tile))

        self.loop(b, blocks, inside)

    def middle_loops(self, b: Builder, loops: Sequence[Instruction], env: Env, body: Callable[[Builder, Env], None]) -> None:
        """Emit the loops between the outermost and the innermost around a body."""
        if not loops:
            body(b, env)
            return
        (index,) = loops[0].regions[0].parameters
        count = self.value(b, loops[0].operands[0], env)
        self.loop(b, count, lambda b, k: self.middle_loops(b, loops[1:], {**env, index: k}, body))

    def loop(self, b: Builder, count: Value, body: Callable[[Builder, Value], None], **params: Any) -> None:
        """Emit a loop."""
        like = self.nest[0]
        inside, index = Builder(like.loc), Value(self.outer.type)
        body(inside, index)
        b.append(Instruction(like.op, (count,), (), params, (inside.block((index,), ()),), like.loc))

    def elements(self, b: Builder, env: Env) -> None:
        """Emit the innermost body for one element."""
        for k in self.body:
            if not k.results:
                self.copy(b, k, env)
            else:
                self.value(b, k.results[0], env)

    def emit_row_values(self, b: Builder, env: Env) -> None:
        """Emit the values that a row of the innermost loop computes once."""
        for value in self.row_values:
            self.value(b, value, env)

    def value(self, b: Builder, value: Value, env: Env) -> Value:
        """Return a value in a new body; values of the nest are computed there."""
        if value not in env and value in self.producers:
            self.copy(b, self.producers[value], env)
        return env.get(value, value)

    def copy(self, b: Builder, k: Instruction, env: Env) -> None:
        """Copy an instruction with replaced operands."""
        operands = tuple(self.value(b, v, env) for v in k.operands)
        results = tuple(Value(v.type, v.name) for v in k.results)
        b.append(Instruction(k.op, operands, results, k.params, (), k.loc))
        env.update(zip(k.results, results, strict=True))
