"""Sink products that a scan accumulates, one per iteration, into one product after the loop (loop fission).

    d += x_t.T @ g_t for each t               ->    g, stacked by the scan; then d += einsum("tbi,tbj->ij", x, g)
    d += concat(x_t, h_t).T @ g_t for each t  ->    h and g, stacked; then d += einsum("tbi,tbj->ij", concat(x, h), g)

The gradient of a recurrence with respect to its weights is such a sum. One large product reads and writes the total once, not
in every iteration.
"""

from __future__ import annotations

import string
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, use_counts, walk, with_contents, with_regions
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, others, split
from pullback.ir.ops.array.reindex import concat
from pullback.ir.ops.control.loops import Scan
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_view import parts_of
from pullback.ir.shapes.extents import definers, nominal_bytes

MOST_JOINED = 4
"""Largest number of operands of a concat whose operands are stacked one by one; a larger concat is stacked itself."""


def fission(function: Function) -> Function:
    """Move sums of products out of scans of known length, including scans in regions.

    Requires: a func without transform instructions; other kinds are returned unchanged. Keeps: results up to the order of
    these sums. A sum is moved if a row to stack has at most twice the bytes of the total, and the scan has no param
    ``checkpoint=sums``.
    """
    if not any(isinstance(i.op, Scan) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    b = Builder()
    env: dict[Value, Value] = {}
    for old in block.instructions:
        i = with_regions(old, map(_block, old.regions))
        operands = tuple(env.get(v, v) for v in i.operands)
        sums = _sums(i) if _may_be_split(i) else []
        if sums:
            results: Sequence[Value] = _split_loop(b.at(i.loc), i, operands, sums)
        else:
            b.append(with_regions(i, i.regions, operands))
            continue
        env.update(zip(i.results, results, strict=True))
    return with_contents(block, b.instructions, [env.get(v, v) for v in block.results])


def _may_be_split(i: Instruction) -> bool:
    """Return whether an instruction is a scan of known length whose gradient may store what its iterations add up."""
    is_fixed = isinstance(i.op, Scan) and bool(i.params["length"]) and not definers(i.regions[0].instructions)
    return is_fixed and i.params.get("checkpoint") != "sums"


@dataclass(frozen=True, eq=False)
class _Sum:
    """The carried value at ``position`` is the sum of the results of ``products``, which are computed from ``parts`` of each
    iteration: their operands, or the operands of a concat among these."""

    position: int
    products: tuple[Instruction, ...]
    parts: tuple[Value, ...]


def _sums(scan: Instruction) -> list[_Sum]:
    """Return the accumulated products of a scan that may be moved."""
    loop = parts_of(scan)
    definitions = {v: i for i in loop.body.instructions for v in i.results}
    counts = use_counts(loop.body)
    carries, rows, captures = loop.parameters(loop.body.parameters)
    same = {*captures, *(c for k, c in enumerate(carries) if loop.body.results[k] is c)}
    free = {*rows, *loop.body.results[loop.carried :]}
    sums = []
    for k, (carry, result) in enumerate(zip(carries, loop.body.results, strict=False)):
        products = [definitions.get(term) for term in _addends(carry, result, definitions, counts)]
        moved = [i for i in products if i is not None and isinstance(i.op, Contract) and same.isdisjoint(i.operands)]
        parts = tuple(part for i in moved for v in i.operands for part in ([v] if v in free else _operands(v, definitions, same)))
        size = sum(nominal_bytes(v.type) for v in set(parts) - free)
        if moved and len(moved) == len(products) and size <= 2 * nominal_bytes(carry.type):
            sums.append(_Sum(k, tuple(moved), parts))
    return sums


def _operands(value: Value, definitions: Mapping[Value, Instruction], invariant: Container[Value]) -> Sequence[Value]:
    """Return the operands of a concat if all of them vary between iterations; else the value itself."""
    concatenation = definitions.get(value)
    if concatenation is None or concatenation.op is not concat or len(concatenation.operands) > MOST_JOINED:
        return [value]
    return [value] if any(v in invariant for v in concatenation.operands) else concatenation.operands


def _addends(carry: Value, result: Value, definitions: dict[Value, Instruction], counts: dict[Value, int]) -> list[Value]:
    """Return the values added to a carried value, in order, if nothing else reads it or a partial sum; else none."""
    terms: list[Value] = []
    while result is not carry:
        total = definitions.get(result)
        if total is None or total.op is not OPS["add"] or counts[result] != 1:
            return []
        before, term = total.operands
        if term is carry:
            before, term = term, before
        terms.append(term)
        result = before
    return terms[::-1] if counts[carry] == 1 and carry not in terms else []


def _split_loop(b: Builder, scan: Instruction, operands: tuple[Value, ...], sums: Sequence[_Sum]) -> list[Value]:
    """Emit the scan without the sums, and their products after it."""
    loop = parts_of(scan)
    inits, sequences, captures = loop.operands(operands)
    carries, rows, own_captures = loop.parameters(loop.body.parameters)
    moved = {s.position for s in sums}
    kept = [k for k in range(loop.carried) if k not in moved]
    yielded = list(loop.body.results[loop.carried :])
    stacked: dict[Value, int] = {}
    for s in sums:
        for v in s.parts:
            if v not in rows:
                stacked.setdefault(v, yielded.index(v) if v in yielded else len(yielded))
                if v not in yielded:
                    yielded.append(v)
    parameters = (loop.body.parameters[0], *(carries[k] for k in kept), *rows, *own_captures)
    results = (*(loop.body.results[k] for k in kept), *yielded)
    body = live(Block(parameters, loop.body.instructions, results))
    params = {**scan.params, "carried": len(kept)}
    outputs = b.emit(scan.op, (*(inits[k] for k in kept), *sequences, *captures), params, [body])
    columns = outputs[len(kept) :]
    ends: list[Value] = list(inits)
    for k, v in zip(kept, outputs, strict=False):
        ends[k] = v
    entire_sequences = {**dict(zip(rows, sequences, strict=True)), **{v: columns[k] for v, k in stacked.items()}}
    makers = {v: i for i in loop.body.instructions for v in i.results}
    for s in sums:
        for i in s.products:
            after = b.at(i.loc, i.result.name)
            arguments = [_sequence_of(after, v, entire_sequences, makers) for v in i.operands]
            product = after.contract(*arguments, spec=_with_leading_axis(i.params["spec"]), **others(i.params))
            ends[s.position] = after.add(ends[s.position], product)
    return [*ends, *columns[: len(scan.results) - loop.carried]]


def _sequence_of(b: Builder, value: Value, sequences: Mapping[Value, Value], definitions: Mapping[Value, Instruction]) -> Value:
    """Return the sequence of a value, or the concat of the sequences of its parts."""
    if value in sequences:
        return sequences[value]
    concatenation = definitions[value]
    parts = [sequences[v] for v in concatenation.operands]
    shape = (parts[0].type.shape[0], *value.type.shape)
    result: Value = b.concat(*parts, axis=concatenation.params["axis"] + 1, starts=concatenation.params["starts"], shape=shape)
    return result


def _with_leading_axis(spec: str) -> str:
    """Return the subscripts of a contraction that also sums over a leading axis of both operands."""
    (left, right), out = split(spec)
    letter = next(c for c in string.ascii_letters if c not in spec)
    return f"{letter}{left},{letter}{right}->{out}"
