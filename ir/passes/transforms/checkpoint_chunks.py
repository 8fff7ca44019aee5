"""Split scans of known length into several, so that a gradient can recompute one of them at a time.

    h = scan %x {length=[9]}   ->   h3 = scan %x {length=[3]}; h6 = scan %h3 {length=[3]}; h = scan %h6 {length=[3]}

The gradient of a scan holds the residuals of all its iterations. Between two parts only the carried values are live. A scan of n
iterations becomes about the square root of n parts; those of up to three iterations become straight-line code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Scan
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of, scan
from pullback.ir.passes.editing.replay import inline


def has_long_scans(block: Block) -> bool:
    """Return whether ``with_split_scans`` splits a scan of a block."""
    return any(map(_is_split, block.instructions))


def with_split_scans(block: Block) -> Block:
    """Return a block with its scans of known length split, but for those with the param ``checkpoint=sqrt``."""
    b = Builder()
    renamed: dict[Value, Value] = {}
    for instruction in block.instructions:
        i = replace(instruction, operands=tuple(renamed.get(v, v) for v in instruction.operands))
        if _is_split(i):
            renamed.update(zip(i.results, _parts(b.at(i.loc), i), strict=True))
        else:
            b.append(i)
    return b.block(block.parameters, [renamed.get(v, v) for v in block.results])


def _is_split(i: Instruction) -> bool:
    if not isinstance(i.op, Scan) or i.params.get("checkpoint") == "sqrt" or not i.params["length"]:
        return False
    (length,) = i.params["length"]
    return isinstance(length, int) and length > 1


def _parts(b: Builder, i: Instruction) -> list[Value]:
    """Emit the parts of a scan and return its results."""
    loop = parts_of(i)
    carries, sequences, captures = loop.operands(i.operands)
    (length,) = loop.length
    size = math.isqrt(length)
    starts = range(0, length, size)
    rows: dict[int, list[Value]] = {}
    for start in reversed(starts) if loop.reverse else starts:
        count = min(size, length - start)
        slices = [_slice(b, x, start, count) for x in sequences]
        if size == 1:
            outputs = _iteration(b, loop, start, [*carries, *slices, *captures])
        else:
            body = _from(b, loop, start)
            outputs = scan(b, body, carries, slices, captures, (count,), None, loop.reverse, i.params.get("checkpoint"))
        carries, rows[start] = list(outputs[: loop.carried]), list(outputs[loop.carried :])
    columns = zip(*(rows[start] for start in starts), strict=True)
    return [*carries, *(_concat(b, parts, tuple(starts), v) for parts, v in zip(columns, i.results[loop.carried :], strict=True))]


def _iteration(b: Builder, loop: LoopParts, index: int, operands: Sequence[Value]) -> tuple[Value, ...]:
    """Emit one iteration of a loop, on sequences of one row; its rows are returned as such sequences."""
    carries, slices, captures = loop.parameters([b.const(index, I64), *operands])
    rows = [b.squeeze(x, axes=(0,)) for x in slices]
    carried, yielded = loop.rows(inline(b, loop.body, [b.const(index, I64), *carries, *rows, *captures]))
    return (*carried, *(b.broadcast(v, axes=(0,), shape=(1, *v.type.shape)) for v in yielded))


def _from(b: Builder, loop: LoopParts, start: int) -> Block:
    """Return the body of a loop for the iterations from ``start`` on."""
    inner = Builder(b.loc)
    index, *others = [Value(p.type, p.name) for p in loop.body.parameters]
    position = inner.add(index, inner.const(start, I64)) if start else index
    return inner.block([index, *others], inline(inner, loop.body, [position, *others]))


def _slice(b: Builder, x: Value, start: int, count: int) -> Value:
    inner = (None,) * (x.type.rank - 1)
    part: Value = b.slice(x, start=(start, *inner), step=(1,) * x.type.rank, shape=(count, *x.type.shape[1:]))
    return part


def _concat(b: Builder, parts: tuple[Value, ...], starts: tuple[int, ...], like: Value) -> Value:
    if len(parts) == 1:
        return parts[0]
    whole: Value = b.concat(*parts, axis=0, starts=starts, shape=like.type.shape)
    return whole
