"""Checkpoint loops: in reverse mode, a loop with the param ``checkpoint=sqrt`` becomes a loop over chunks, each of about as many
iterations as there are chunks, so that it saves fewer residuals.

The size of a chunk is known at run time only, so the inner loop saves its residuals in stacks. Those are no residuals of the
outer loop, whose reverse reruns each chunk. Saved at any time are the carried values at the start of each chunk, and the
residuals of one chunk: together they grow with the square root of the trip count.

A ``while`` first runs to determine its trip count, and then again as a scan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction, copy_block
from pullback.ir.core.types import F64, I64, StackType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of, scan
from pullback.ir.passes.editing.replay import inline
from pullback.ir.passes.transforms.residuals import without_effects


def chunk_loops(block: Block, active: Collection[Value]) -> Block:
    """Return a block in which loops with the param ``checkpoint=sqrt`` that return ``active`` values run in chunks."""
    if not any(_is_chunked(i, active) for i in block.instructions):
        return block
    b = Builder()
    renamed: dict[Value, Value] = {}
    for instruction in block.instructions:
        operands = tuple(renamed.get(v, v) for v in instruction.operands)
        if _is_chunked(instruction, active):
            results = _chunked(b.at(instruction.loc), replace(instruction, operands=operands))
            renamed.update(zip(instruction.results, results, strict=True))
        else:
            b.append(replace(instruction, operands=operands))
    return b.block(block.parameters, [renamed.get(v, v) for v in block.results])


def _is_chunked(instruction: Instruction, active: Collection[Value]) -> bool:
    if not isinstance(instruction.op, Loop) or instruction.params.get("checkpoint") != "sqrt":
        return False
    return not any(isinstance(v.type, StackType) for v in (*instruction.operands, *instruction.results)) and any(
        v in active for v in instruction.results
    )


def _chunked(b: Builder, instruction: Instruction) -> list[Value]:
    """Emit a loop in chunks, and return its results."""
    loop = parts_of(instruction)
    inits, sequences, captures = loop.operands(instruction.operands)
    body, trips = loop.body, []
    if loop.condition is None:
        count = b.count(shape=loop.length) if loop.length else instruction.operands[0]
    else:
        body = copy_block(without_effects(body, body.results))
        results = tuple(Value(v.type, v.name) for v in instruction.results)
        params = {k: v for k, v in instruction.params.items() if k != "checkpoint"}
        b.append(replace(instruction, results=results, params=params))
        trips = [count := results[loop.carried]]
    root = b.cast(b.ceil(b.sqrt(b.cast(count, dtype=F64))), dtype=I64)
    size = b.maximum(root, b.const(1, I64))
    chunks = b.floordiv(b.add(count, b.sub(size, b.const(1, I64))), size)
    _, rows = loop.results(instruction.results)
    outer = _over_chunks(b, loop, body, [v.type for v in rows])
    outputs = scan(b, outer, [*inits, *map(b.zeros_like, rows)], (), [count, size, *sequences, *captures], (), chunks)
    return [*outputs[: loop.carried], *trips, *outputs[loop.carried :]]


def _over_chunks(b: Builder, loop: LoopParts, body: Block, rows: Sequence[Type]) -> Block:
    """Return the body of the loop over chunks. It carries the carried values of the loop, and its result sequences, of types
    ``rows``; it captures the trip count, the size of a chunk, and the sequences and captures of the loop."""
    builder = Builder(b.loc)
    chunk = Value(scalar(I64), "chunk")
    carried, sequences, captures = _parameters(loop, body, rows)
    count, size = Value(scalar(I64), "count"), Value(scalar(I64), "size")
    first = builder.mul(chunk, size)
    runs = builder.minimum(size, builder.sub(count, first))
    inner = _within_chunk(b, loop, body, rows)
    results = scan(builder, inner, carried, (), [count, first, *sequences, *captures], (), runs)
    return builder.block([chunk, *carried, count, size, *sequences, *captures], results)


def _within_chunk(b: Builder, loop: LoopParts, body: Block, rows: Sequence[Type]) -> Block:
    """Return the body of the loop in a chunk: the original body, on rows read from the sequences, writing rows of the results."""
    builder = Builder(b.loc)
    index = Value(scalar(I64), "i")
    carried, sequences, captures = _parameters(loop, body, rows)
    count, first = Value(scalar(I64), "count"), Value(scalar(I64), "first")
    position = builder.add(first, index)
    if loop.reverse:
        position = builder.sub(builder.sub(count, builder.const(1, I64)), position)
    slices = [builder.gather(x, position, axes=(0,)) for x in sequences]
    results = inline(builder, body, [position, *carried[: loop.carried], *slices, *captures])
    ends, values = loop.rows(results)
    written = [builder.scatter_set(y, position, row, axes=(0,)) for y, row in zip(carried[loop.carried :], values, strict=True)]
    return builder.block([index, *carried, count, first, *sequences, *captures], [*ends, *written])


def _parameters(loop: LoopParts, body: Block, rows: Sequence[Type]) -> tuple[list[Value], list[Value], list[Value]]:
    """Return fresh parameters: carried values with the result sequences, sequences, captures."""
    carries, slices, captures = loop.parameters([Value(p.type, p.name) for p in body.parameters])
    sequences = [Value(loop.sequence(v.type), v.name) for v in slices]
    return [*carries, *map(Value, rows)], sequences, captures
