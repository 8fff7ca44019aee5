"""transposes: loops that read memory across its rows read it through tiles.

Requires: a kernel whose functions are spelled out. Keeps: its meaning, to the bit. Where neighbours along an outer loop, not
along the innermost, are neighbours in memory, as when a transposed array is read, each step of the innermost loop needs another
line, which has left the first cache before its next element is wanted; distances of a power of two bring all of them to the same
few places of the cache, too. So both loops run in blocks. What a block reads is first copied to a tile, element by element,
since gathers are slow on many processors, and then read from there in vectors. Rows of memory that are this short are no
streams that a processor sees coming, so each block asks for what the next one reads and writes.

A copy of a strided array finds its strides when it runs, and then goes one way or the other.

Blocks of few rows are not worth it. If the innermost loop is short, it and the outer one change places: memory is read along,
and written across.

Cost: every line moves once from and to memory, and an element is written to the first cache and read from it once more.
Footprint: a tile of 4 to 16 KiB for each operand that is read across, its rows one element longer than the block.
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
MOST_TILES = 3
LEAST = 8
"""Loops of fewer iterations are short."""
LINE = 64
SEVERAL = 8
"""So many elements of a line are copied in one step."""
TILE_BYTES, MOST_TILE = 256, 64
"""A block has as many iterations of both loops as have so many bytes of elements, and at most so many."""


def transposes(block: Block) -> Block:
    """A block whose loops that read memory across its rows run through tiles."""
    made: list[Instruction] = []
    for i in block.instructions:
        nest = _nest(i)
        across = _read_across(nest) if nest is not None else []
        copied = _copied(nest) if nest is not None and not across else []
        if nest is not None and (across or copied):
            b = Builder(i.loc, made)
            _Tiled(b, nest, across or copied).write(_is_across(b, copied[0]) if copied else None)
            continue
        regions = tuple(map(transposes, i.regions))
        made.append(Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i)
    return Block(block.parameters, tuple(made), block.results)


def _nest(i: Instruction) -> list[Instruction] | None:
    """The loops from this one to the innermost, which alone stores."""
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
    """The load and the store of a loop that copies a strided matrix row by row, and how many columns that has; None if an
    instruction is something else."""
    nest = _nest(i)
    if nest is None or not _copied(nest):
        return None
    load, store = nest[-1].regions[0].instructions
    return load, store, nest[1].operands[0]


def _read_across(nest: Sequence[Instruction]) -> list[Instruction]:
    """The loads for which neighbours along the outermost loop of a nest, not along the innermost, are neighbours in memory."""
    index, inner = nest[0].regions[0].parameters[0], nest[-1].regions[0].parameters[0]
    instructions = [k for loop in nest for k in loop.regions[0].instructions if not k.regions]
    made = {v: k for k in instructions for v in k.results}
    own, across = _varying(instructions, index), _varying(instructions, inner)
    if any(v in own for loop in nest[1:] for v in loop.operands):
        return []
    stores = [k for k in instructions if isinstance(k.op, Store)]
    loads = [k for k in instructions if isinstance(k.op, Load)]
    written = [k.operands[1] for k in stores]
    if len(set(written)) != len(written) or any(k.operands[0] in written for k in loads):
        return []
    if any(isinstance(k.op, Load) and k.op.masked for k in loads) or not all(_is_along(k, inner, made, across) for k in stores):
        return []
    turned = [k for k in loads if k.operands[-1] not in across and not across.isdisjoint(k.operands)]
    found = [k for k in turned if _is_along(k, index, made, own)]
    return found if len(found) <= MOST_TILES else []


def _copied(nest: Sequence[Instruction]) -> list[Instruction]:
    """The load of a nest that copies a strided reference of two axes as it is; its strides, at run time, say what is in rows."""
    body = nest[-1].regions[0].instructions
    if len(nest) != 2 or [k.op for k in body] != [OPS["load"], OPS["store"]]:
        return []
    load, store = body
    row, column = (loop.regions[0].parameters[0] for loop in nest)
    around = [k for k in nest[0].regions[0].instructions if not k.regions]
    made = {v: k for k in around for v in k.results}
    is_copy = store.operands[0] in load.results and load.operands[1:] == store.operands[2:]
    layouts = [getattr(ref.type, "layout", "") for ref in (load.operands[0], store.operands[1])]
    if not is_copy or layouts != ["strided", "c"]:
        return []
    varies = _varying(around, row)
    first, *rest = load.operands[1:]
    is_row = first in varies and is_shifted(first, row, made, varies)
    return [load] if is_row and rest == [column] and nest[1].operands[0] not in varies else []


def _is_across(b: Builder, load: Instruction) -> Value:
    """Whether neighbours along the first axis of a strided reference lie nearer than those along the second."""
    first, second = (b.emit(OPS["stride"], (load.operands[0],), {"axis": k})[0] for k in (0, 1))
    found: Value = b.lt(b.abs(first), b.abs(second))
    return found


def _is_along(access: Instruction, index: Value, made: Mapping[Value, Instruction], varies: Set[Value]) -> bool:
    """Whether neighbours along an index are neighbours in memory."""
    return len(access.operands) > 1 and access.operands[-1] in varies and is_shifted(access.operands[-1], index, made, varies)


def _varying(instructions: Sequence[Instruction], index: Value) -> set[Value]:
    """What depends on an index."""
    found = {index}
    for k in instructions:
        if not found.isdisjoint(k.operands):
            found.update(k.results)
    return found


class _Tiled:
    """A nest of loops as three of which one runs: through tiles, with the outermost loop innermost, and as it was."""

    def __init__(self, b: Builder, nest: Sequence[Instruction], across: Sequence[Instruction]) -> None:
        self.b, self.nest, self.across = b, nest, across
        around = [k for loop in nest[:-1] for k in loop.regions[0].instructions if not k.regions]
        self.body = nest[-1].regions[0].instructions
        self.made = {v: k for k in (*around, *self.body) for v in k.results}
        self.settled = [v for v in {v: None for k in self.body for v in k.operands} if self.made.get(v) in around]
        """What a row of the innermost loop needs once."""
        self.outer, self.inner = nest[0].regions[0].parameters[0], nest[-1].regions[0].parameters[0]
        bytes_ = max(k.result.type.dtype.bytes for k in across)
        self.tile, self.line = min(MOST_TILE, TILE_BYTES // bytes_), LINE // bytes_

    def write(self, is_across: Value | None) -> None:
        """Write them. ``is_across``: whether memory is read across, where that is not sure."""
        b = self.b
        (rows,), (columns,) = self.nest[0].operands, self.nest[-1].operands
        least = b.const(LEAST, I64)
        short = b.lt(self.known(b, columns, {}), least)
        none = b.const(0, I64)
        swapped = b.select(short, rows, none)
        tall = b.ge(rows, least)
        rest = b.select(short, none, rows)
        tiled = b.select(tall, rest, none)
        if is_across is not None:
            swapped, tiled = (b.select(is_across, some, none) for some in (swapped, tiled))
            rest = b.sub(rows, swapped)
        self.blocks(tiled)
        self.swapped(swapped)
        self.plain(b.sub(rest, tiled))

    # the three ways

    def blocks(self, rows: Value) -> None:
        """Blocks of the outermost loop, and in the loops between of the innermost one."""
        b, tile = self.b, self.tile
        locals_ = [b.local(dtype=k.result.type.dtype, shape=(tile, tile + 1)) for k in self.across]

        def of_rows(b: Builder, first: Value, height: Value) -> None:
            def of_columns(b: Builder, env: Env) -> None:
                columns = self.known(b, self.nest[-1].operands[0], env)
                self.in_blocks(b, columns, lambda b, left, width: self.block(b, env, locals_, (first, height, left, width)))

            self.between(b, self.nest[1:-1], {}, of_columns)

        self.in_blocks(b, rows, of_rows)

    def swapped(self, rows: Value) -> None:
        def inner(b: Builder, env: Env) -> None:
            self.loop(b, self.known(b, self.nest[-1].operands[0], env), lambda b, j: outer(b, {**env, self.inner: j}))

        def outer(b: Builder, env: Env) -> None:
            self.loop(b, rows, lambda b, i: self.elements(b, {**env, self.outer: i}))

        self.between(self.b, self.nest[1:-1], {}, inner)

    def plain(self, rows: Value) -> None:
        def outer(b: Builder, i: Value) -> None:
            self.between(b, self.nest[1:-1], {self.outer: i}, inner)

        def inner(b: Builder, env: Env) -> None:
            self.settle(b, env)
            columns = self.known(b, self.nest[-1].operands[0], env)
            self.loop(b, columns, lambda b, j: self.elements(b, {**env, self.inner: j}))

        self.loop(self.b, rows, outer)

    # their parts

    def block(self, b: Builder, env: Env, tiles: Sequence[Value], place: Sequence[Value]) -> None:
        """Fill the tiles, then run the body on them."""
        first, height, left, width = place

        def copy(b: Builder, r: Value, v: Value) -> None:
            here = {**env, self.outer: b.add(first, v), self.inner: b.add(left, r)}
            for k, tile in zip(self.across, tiles, strict=True):
                b.store(b.load(k.operands[0], *(self.known(b, p, here) for p in k.operands[1:])), tile, v, r)

        def fill(b: Builder, r: Value) -> None:
            several = b.const(SEVERAL, I64)
            groups = b.raw_shr(height, b.const(SEVERAL.bit_length() - 1, I64))
            done = b.mul(groups, several)
            self.loop(b, groups, lambda b, g: copies(b, r, b.mul(g, several)), ordered=True)
            self.loop(b, b.sub(height, done), lambda b, v: copy(b, r, b.add(done, v)), ordered=True)

        def copies(b: Builder, r: Value, v: Value) -> None:
            coming = {**env, self.outer: b.add(first, v), self.inner: b.add(b.add(left, r), b.const(self.tile, I64))}
            self.ask(b, [k.operands for k in self.across], coming)
            for k in range(SEVERAL):
                copy(b, r, b.add(v, b.const(k, I64)))

        def run(b: Builder, outer: Env, v: Value, r: Value) -> None:
            here = {**outer, self.inner: b.add(left, r)}
            here.update((k.result, b.load(tile, v, r)) for k, tile in zip(self.across, tiles, strict=True))
            self.elements(b, here)

        written = [k.operands[1:] for k in self.body if isinstance(k.op, Store)]

        def row(b: Builder, v: Value) -> None:
            outer = {**env, self.outer: b.add(first, v)}
            self.settle(b, outer)
            for r in range(0, self.tile, self.line):
                self.ask(b, written, {**outer, self.inner: b.add(left, b.const(self.tile + r, I64))})
            self.loop(b, width, lambda b, r: run(b, outer, v, r))

        self.loop(b, width, fill, ordered=True)
        self.loop(b, height, row)

    def ask(self, b: Builder, elements: Sequence[Sequence[Value]], env: Env) -> None:
        """Ask for what the next block reads or writes."""
        for ref, *index in elements:
            b.emit(OPS["prefetch"], [ref, *(self.known(b, p, env) for p in index)])


    def in_blocks(self, b: Builder, count: Value, body: Callable[[Builder, Value, Value], None]) -> None:
        """A loop over blocks: ``body`` gets where each begins and how long it is."""
        tile = b.const(self.tile, I64)
        log = b.const(self.tile.bit_length() - 1, I64)
        blocks = b.raw_shr(b.add(count, b.const(self.tile - 1, I64)), log)

        def inside(b: Builder, k: Value) -> None:
            first = b.mul(k, tile)
            body(b, first, b.minimum(b.sub(count, first), tile))

        self.loop(b, blocks, inside)

    def between(self, b: Builder, loops: Sequence[Instruction], env: Env, body: Callable[[Builder, Env], None]) -> None:
        """The loops between the outermost and the innermost around a body."""
        if not loops:
            body(b, env)
            return
        (index,) = loops[0].regions[0].parameters
        count = self.known(b, loops[0].operands[0], env)
        self.loop(b, count, lambda b, k: self.between(b, loops[1:], {**env, index: k}, body))

    def loop(self, b: Builder, count: Value, body: Callable[[Builder, Value], None], **params: Any) -> None:
        like = self.nest[0]
        inside, index = Builder(like.loc), Value(self.outer.type)
        body(inside, index)
        b.append(Instruction(like.op, (count,), (), params, (inside.block((index,), ()),), like.loc))

    def elements(self, b: Builder, env: Env) -> None:
        """What the innermost loop does, for one element."""
        for k in self.body:
            if not k.results:
                self.again(b, k, env)
            else:
                self.known(b, k.results[0], env)

    def settle(self, b: Builder, env: Env) -> None:
        for value in self.settled:
            self.known(b, value, env)

    def known(self, b: Builder, value: Value, env: Env) -> Value:
        """A value in a new body: what stands for it, computed there if it is of the nest."""
        if value not in env and value in self.made:
            self.again(b, self.made[value], env)
        return env.get(value, value)

    def again(self, b: Builder, k: Instruction, env: Env) -> None:
        operands = tuple(self.known(b, v, env) for v in k.operands)
        results = tuple(Value(v.type, v.name) for v in k.results)
        b.append(Instruction(k.op, operands, results, k.params, (), k.loc))
        env.update(zip(k.results, results, strict=True))
