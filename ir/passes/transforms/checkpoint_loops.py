"""Loops that keep less for their gradient: where a derivative is taken in reverse mode, a loop with the param ``checkpoint``
becomes a loop over chunks, each of about as many runs as there are chunks.

How many runs a chunk has is known only when it runs, so the inner loop keeps what its reverse reads in stacks. Those are no
residuals of the outer loop, whose reverse runs each chunk again. What is kept at a time are the carried values at the start of
each chunk, and what one chunk keeps: in sum as much as for the square root of the runs.

The runs of a ``while`` are counted first, and then run again as a scan.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction, copied
from pullback.ir.core.types import F64, I64, StackType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of, scan
from pullback.ir.passes.editing.replay import inline
from pullback.ir.passes.transforms.residuals import quiet


def in_chunks(block: Block, active: Collection[Value]) -> Block:
    """A block in whose differentiated loops with the param ``checkpoint``, those that give ``active`` values, run in chunks."""
    if not any(_is_chunked(i, active) for i in block.instructions):
        return block
    b = Builder()
    renamed: dict[Value, Value] = {}
    for instruction in block.instructions:
        operands = tuple(renamed.get(v, v) for v in instruction.operands)
        if _is_chunked(instruction, active):
            made = _chunked(b.at(instruction.loc), replace(instruction, operands=operands))
            renamed.update(zip(instruction.results, made, strict=True))
        else:
            b.append(replace(instruction, operands=operands))
    return b.block(block.parameters, [renamed.get(v, v) for v in block.results])


def _is_chunked(instruction: Instruction, active: Collection[Value]) -> bool:
    if not isinstance(instruction.op, Loop) or "checkpoint" not in instruction.params:
        return False
    return not any(isinstance(v.type, StackType) for v in (*instruction.operands, *instruction.results)) and any(
        v in active for v in instruction.results
    )


def _chunked(b: Builder, instruction: Instruction) -> list[Value]:
    """Emit a loop in chunks; its results."""
    loop = parts_of(instruction)
    inits, sequences, captures = loop.operands(instruction.operands)
    body, trips = loop.body, []
    if loop.condition is None:
        count = b.count(shape=loop.length) if loop.length else instruction.operands[0]
    else:
        body = copied(quiet(body, body.results))
        results = tuple(Value(v.type, v.name) for v in instruction.results)
        params = {k: v for k, v in instruction.params.items() if k != "checkpoint"}
        b.append(replace(instruction, results=results, params=params))
        trips = [count := results[loop.carried]]
    root = b.cast(b.ceil(b.sqrt(b.cast(count, dtype=F64))), dtype=I64)
    size = b.maximum(root, b.const(1, I64))
    chunks = b.floordiv(b.add(count, b.sub(size, b.const(1, I64))), size)
    _, rows = loop.results(instruction.results)
    outer = _over_chunks(b, loop, body, [v.type for v in rows])
    found = scan(b, outer, [*inits, *map(b.zeros_like, rows)], (), [count, size, *sequences, *captures], (), chunks)
    return [*found[: loop.carried], *trips, *found[loop.carried :]]


def _over_chunks(b: Builder, loop: LoopParts, body: Block, rows: Sequence[Type]) -> Block:
    """The body of the loop over chunks: it carries what the loop does, and its result sequences, which are ``rows``; it captures
    the count of runs, the size of a chunk, and the sequences and captures of the loop."""
    made = Builder(b.loc)
    chunk = Value(scalar(I64), "chunk")
    carried, sequences, captures = _parameters(loop, body, rows)
    count, size = Value(scalar(I64), "count"), Value(scalar(I64), "size")
    first = made.mul(chunk, size)
    runs = made.minimum(size, made.sub(count, first))
    inner = _within_chunk(b, loop, body, rows)
    results = scan(made, inner, carried, (), [count, first, *sequences, *captures], (), runs)
    return made.block([chunk, *carried, count, size, *sequences, *captures], results)


def _within_chunk(b: Builder, loop: LoopParts, body: Block, rows: Sequence[Type]) -> Block:
    """The body of the loop in a chunk: that of the loop, on rows that it reads from the sequences, and puts into the results."""
    made = Builder(b.loc)
    index = Value(scalar(I64), "i")
    carried, sequences, captures = _parameters(loop, body, rows)
    count, first = Value(scalar(I64), "count"), Value(scalar(I64), "first")
    place = made.add(first, index)
    if loop.reverse:
        place = made.sub(made.sub(count, made.const(1, I64)), place)
    slices = [made.gather(x, place, axes=(0,)) for x in sequences]
    results = inline(made, body, [place, *carried[: loop.carried], *slices, *captures])
    ends, given = loop.rows(results)
    written = [made.scatter_set(y, place, row, axes=(0,)) for y, row in zip(carried[loop.carried :], given, strict=True)]
    return made.block([index, *carried, count, first, *sequences, *captures], [*ends, *written])


def _parameters(loop: LoopParts, body: Block, rows: Sequence[Type]) -> tuple[list[Value], list[Value], list[Value]]:
    """Fresh parameters: carried values with the result sequences, sequences, captures."""
    carries, slices, captures = loop.parameters([Value(p.type, p.name) for p in body.parameters])
    sequences = [Value(loop.sequence(v.type), v.name) for v in slices]
    return [*carries, *map(Value, rows)], sequences, captures
