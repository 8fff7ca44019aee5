"""Forward mode of ``scan``, ``while`` and ``switch``: the same loop or branch, which also carries, reads and returns tangents.
Zero tangents are omitted, except those of carried values that do not stay zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import ZERO, Zero
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Scan, Switch, While
from pullback.ir.passes.editing.activity import carries_needed, carries_reached
from pullback.ir.passes.editing.loop_view import LoopParts, parts_of
from pullback.ir.passes.transforms.forward import STRUCTURED, Tangent, dense, emit_with_tangents

Tangents = Sequence[Value | Zero]


def forward_loop(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], tangents: Tangents, wanted: Sequence[bool]
) -> tuple[list[Value], list[Tangent]]:
    """Emit a ``scan`` or ``while`` with tangents."""
    loop = parts_of(instruction)
    inits, sequences, captures = loop.operands(inputs)
    starts, row_tangents, capture_tangents = loop.operands(tangents)
    reached, _ = carries_reached(loop, [isinstance(t, Value) for t in tangents], smooth=True)
    read, _, _ = carries_needed(loop, wanted)
    moved = [k for k in range(loop.carried) if reached[k] and read[k]]
    body, gives = _body(b, loop, moved, row_tangents, capture_tangents, wanted)
    regions = [body]
    if loop.condition is not None:
        regions.insert(0, _condition_with_tangents(loop, loop.condition, moved, body, capture_tangents))
    operands = [
        *inputs[: loop.first],
        *inits,
        *(dense(b, starts[k], inits[k]) for k in moved),
        *sequences,
        *(t for t in row_tangents if isinstance(t, Value)),
        *captures,
        *(t for t in capture_tangents if isinstance(t, Value)),
    ]
    params = dict(instruction.params, carried=loop.carried + len(moved))
    if "sliced" in params:
        params["sliced"] = loop.sliced + sum(isinstance(t, Value) for t in row_tangents)
    outputs = iter(b.emit(instruction.op, operands, params, regions))
    finals, tops = _take(outputs, loop.carried), dict(zip(moved, _take(outputs, len(moved)), strict=True))
    trips = _take(outputs, int(loop.condition is not None))
    rows = _take(outputs, len(loop.body.results) - loop.carried)
    moving = dict(zip(gives, outputs, strict=True))
    ends: list[Tangent] = [tops.get(k, ZERO) for k in range(loop.carried)]
    return [*finals, *trips, *rows], [*ends, *(ZERO for _ in trips), *(moving.get(j, ZERO) for j in range(len(rows)))]


def _body(
    b: Builder, loop: LoopParts, moved: Sequence[int], rows: Tangents, captures: Tangents, wanted: Sequence[bool]
) -> tuple[Block, list[int]]:
    """Return the body with tangents, and the positions of the rows whose tangents it returns."""
    inner = Builder(b.loc, hint=b.hint)
    own = [Value(p.type, p.name) for p in loop.body.parameters]
    own_carries, own_rows, own_captures = loop.parameters(own)
    carried = {k: Value(own_carries[k].type, "t") for k in moved}
    of_rows, of_captures = ([Value(p.type, "t") if isinstance(t, Value) else ZERO for p, t in zip(group, tangents, strict=True)]
        for group, tangents in ((own_rows, rows), (own_captures, captures)))  # fmt: skip
    incoming: list[Tangent] = [ZERO, *(carried.get(k, ZERO) for k in range(loop.carried)), *of_rows, *of_captures]
    read = [j for j, want in enumerate(loop.results(wanted)[1]) if want]
    results, result_tangents = emit_with_tangents(inner, loop.body, own, incoming, [*moved, *(loop.carried + j for j in read)])
    ends = [dense(inner, t, own_carries[k]) for k, t in zip(moved, result_tangents, strict=False)]
    tops = {j: dense(inner, t, v) for j, t, v in _moving(read, result_tangents[len(moved) :], results[loop.carried :])}
    parameters = [own[0], *own_carries, *carried.values(), *own_rows, *_values(of_rows), *own_captures, *_values(of_captures)]
    finals, values = loop.rows(results)
    return inner.block(parameters, [*finals, *ends, *values, *tops.values()]), list(tops)


def _moving(read: Sequence[int], tangents: Sequence[Tangent], rows: Sequence[Value]) -> list[tuple[int, Tangent, Value]]:
    return [(j, t, rows[j]) for j, t in zip(read, tangents, strict=True) if not isinstance(t, Zero)]


def _values(tangents: Sequence[Tangent]) -> list[Value]:
    return [t for t in tangents if isinstance(t, Value)]


def _condition_with_tangents(loop: LoopParts, condition: Block, moved: Sequence[int], body: Block, captures: Tangents) -> Block:
    """Return the condition of a while, with parameters for tangents, which it does not read."""
    index, *values = condition.parameters
    carries, own = values[: loop.carried], values[loop.carried :]
    carried_tangents = [Value(carries[k].type, "t") for k in moved]
    further = [Value(p.type, "t") for p, t in zip(own, captures, strict=True) if isinstance(t, Value)]
    return Block((index, *carries, *carried_tangents, *own, *further), condition.instructions, condition.results)


def _take(values: Iterator[Value], count: int) -> list[Value]:
    return [next(values) for _ in range(count)]


def forward_switch(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], tangents: Tangents, wanted: Sequence[bool]
) -> tuple[list[Value], list[Tangent]]:
    """Emit a ``switch`` with tangents."""
    of = [j for j, want in enumerate(wanted) if want]
    branches = []
    for region in instruction.regions:
        inner = Builder(b.loc, hint=b.hint)
        own = [Value(p.type, p.name) for p in region.parameters]
        region_tangents = [Value(p.type, "t") if isinstance(t, Value) else ZERO for p, t in zip(own, tangents[1:], strict=True)]
        results, result_tangents = emit_with_tangents(inner, region, own, region_tangents, of)
        branches.append((inner, [*own, *_values(region_tangents)], results, result_tangents))
    moving = [p for p in range(len(of)) if any(not isinstance(result_tangents[p], Zero) for *_, result_tangents in branches)]
    regions = [
        inner.block(own, [*results, *(dense(inner, result_tangents[p], results[of[p]]) for p in moving)])
        for inner, own, results, result_tangents in branches
    ]
    outputs = b.emit(instruction.op, (*inputs, *_values(tangents[1:])), dict(instruction.params), regions)
    count = len(instruction.results)
    tops = {of[p]: v for p, v in zip(moving, outputs[count:], strict=True)}
    return list(outputs[:count]), [tops.get(j, ZERO) for j in range(count)]


STRUCTURED[Scan] = forward_loop
STRUCTURED[While] = forward_loop
STRUCTURED[Switch] = forward_switch
