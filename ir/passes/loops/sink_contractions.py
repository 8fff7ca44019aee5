"""fission: products that a scan adds up, run by run, become one product after it.

    d += x_t.T @ g_t for each t               ->    g, stacked by the scan; then d += einsum("tbi,tbj->ij", x, g)
    d += concat(x_t, h_t).T @ g_t for each t  ->    h and g, stacked; then d += einsum("tbi,tbj->ij", concat(x, h), g)

The gradient of a recurrence by its weights is such a sum. One large product reads and writes the total once, not once a run.
"""

from __future__ import annotations

import string
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, use_counts, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, others, split
from pullback.ir.ops.array.reindex import concat
from pullback.ir.ops.control.loops import Scan
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.loop_view import parts_of
from pullback.ir.shapes.extents import nominal_bytes

MOST_JOINED = 4
"""What is put side by side of more arrays is stacked as it is."""


def fission(function: Function) -> Function:
    """Move sums of products out of scans of a known length, those in regions too.

    Requires: a func without instructions of transforms; other kinds are returned as they are. Keeps: results but for the order of
    these sums. A sum is moved if a row to stack takes at most twice the bytes of the total.
    """
    if not any(isinstance(i.op, Scan) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    b = Builder()
    env: dict[Value, Value] = {}
    for old in block.instructions:
        regions = tuple(_block(region) if region.instructions else region for region in old.regions)
        i = replace(old, regions=regions)
        operands = tuple(env.get(v, v) for v in i.operands)
        sums = _sums(i) if isinstance(i.op, Scan) and i.params["length"] else []
        if sums:
            made: Sequence[Value] = _moved(b.at(i.loc), i, operands, sums)
        else:
            b.append(replace(i, operands=operands))
            continue
        env.update(zip(i.results, made, strict=True))
    return Block(block.parameters, tuple(b.instructions), tuple(env.get(v, v) for v in block.results))


@dataclass(frozen=True, eq=False)
class _Sum:
    """The carried value at ``position`` is the sum of the results of ``products``, which are computed from ``parts`` of each run:
    their operands, or what these put side by side."""

    position: int
    products: tuple[Instruction, ...]
    parts: tuple[Value, ...]


def _sums(scan: Instruction) -> list[_Sum]:
    loop = parts_of(scan)
    made = {v: i for i in loop.body.instructions for v in i.results}
    counts = use_counts(loop.body)
    carries, rows, captures = loop.parameters(loop.body.parameters)
    still = {*captures, *(c for k, c in enumerate(carries) if loop.body.results[k] is c)}
    free = {*rows, *loop.body.results[loop.carried :]}
    found = []
    for k, (carry, result) in enumerate(zip(carries, loop.body.results, strict=False)):
        products = [made.get(term) for term in _terms(carry, result, made, counts)]
        moved = [i for i in products if i is not None and isinstance(i.op, Contract) and still.isdisjoint(i.operands)]
        parts = tuple(part for i in moved for v in i.operands for part in ([v] if v in free else _parts(v, made, still)))
        size = sum(nominal_bytes(v.type) for v in set(parts) - free)
        if moved and len(moved) == len(products) and size <= 2 * nominal_bytes(carry.type):
            found.append(_Sum(k, tuple(moved), parts))
    return found


def _parts(value: Value, made: Mapping[Value, Instruction], still: Container[Value]) -> Sequence[Value]:
    """What a value puts side by side, if that is of each run; else itself."""
    joined = made.get(value)
    if joined is None or joined.op is not concat or len(joined.operands) > MOST_JOINED:
        return [value]
    return [value] if any(v in still for v in joined.operands) else joined.operands


def _terms(carry: Value, result: Value, made: dict[Value, Instruction], counts: dict[Value, int]) -> list[Value]:
    """What is added to a carried value, in order, if nothing else reads it or a partial sum; else nothing."""
    terms: list[Value] = []
    while result is not carry:
        total = made.get(result)
        if total is None or total.op is not OPS["add"] or counts[result] != 1:
            return []
        before, term = total.operands
        if term is carry:
            before, term = term, before
        terms.append(term)
        result = before
    return terms[::-1] if counts[carry] == 1 and carry not in terms else []


def _moved(b: Builder, scan: Instruction, operands: tuple[Value, ...], sums: Sequence[_Sum]) -> list[Value]:
    loop = parts_of(scan)
    inits, sequences, captures = loop.operands(operands)
    carries, rows, own_captures = loop.parameters(loop.body.parameters)
    gone = {s.position for s in sums}
    kept = [k for k in range(loop.carried) if k not in gone]
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
    made = b.emit(scan.op, (*(inits[k] for k in kept), *sequences, *captures), params, [body])
    columns = made[len(kept) :]
    ends: list[Value] = list(inits)
    for k, v in zip(kept, made, strict=False):
        ends[k] = v
    known = {**dict(zip(rows, sequences, strict=True)), **{v: columns[k] for v, k in stacked.items()}}
    makers = {v: i for i in loop.body.instructions for v in i.results}
    for s in sums:
        for i in s.products:
            after = b.at(i.loc, i.result.name)
            given = [_of_all_runs(after, v, known, makers) for v in i.operands]
            product = after.contract(*given, spec=_over(i.params["spec"]), **others(i.params))
            ends[s.position] = after.add(ends[s.position], product)
    return [*ends, *columns[: len(scan.results) - loop.carried]]


def _of_all_runs(b: Builder, value: Value, known: Mapping[Value, Value], made: Mapping[Value, Instruction]) -> Value:
    """The sequence of a value, or of its parts put side by side."""
    if value in known:
        return known[value]
    joined = made[value]
    parts = [known[v] for v in joined.operands]
    shape = (parts[0].type.shape[0], *value.type.shape)
    found: Value = b.concat(*parts, axis=joined.params["axis"] + 1, starts=joined.params["starts"], shape=shape)
    return found


def _over(spec: str) -> str:
    """The subscripts of a contraction that sums over a leading axis of both operands, too."""
    (left, right), out = split(spec)
    letter = next(c for c in string.ascii_letters if c not in spec)
    return f"{letter}{left},{letter}{right}->{out}"
