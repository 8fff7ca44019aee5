"""tails: what a loop keeps of a logistic function's argument for its gradient is the tail, by which value and derivative cost
no exponential.

    a run forward   y = expit(z); yield z       ->    q = expit(-abs(z)); y = 1 - q, or q below 0; yield copysign(q, z)
    a run back      expit(z); logistic_pdf(z)   ->    1 - q, or q if the sign is set; q (1 - q), q = abs(z)

Both are as expit and logistic_pdf compute them, and of as many bytes as the argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import DTYPES, F32, F64, I64
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, Scan
from pullback.ir.passes.editing.loop_view import parts_of

VALUE, DERIVATIVE = OPS["expit"], OPS["logistic_pdf"]
SIGNED = {F64: I64, F32: DTYPES["i32"]}
"""The integers whose sign is that of a float of the same bits."""


def tails(function: Function) -> Function:
    """Keep the tails of arguments of logistic functions where nothing but the functions and their derivatives reads what is kept.

    Requires: a func without instructions of transforms, where no cotangent will arrive any more; other kinds are returned as
    they are. Keeps: results.
    """
    if function.kind != "func" or not any(i.op is DERIVATIVE for i in walk(function.body)):
        return function
    uses = _Uses(function.body)
    kept: dict[Value, set[tuple[Instruction, int]]] = {}
    readers: set[Instruction] = set()
    for i in walk(function.body):
        if i.op is VALUE and i.operands[0] not in kept and i.result.type.dtype in SIGNED:
            places, reading = _kept(i.operands[0], uses)
            if places:
                kept[i.operands[0]] = places
                readers |= reading
    if not kept:
        return function
    return replace(function, body=_Writer(kept, readers).block(function.body, None))


class _Uses:
    """Who reads each value of a block and of the regions inside: instructions with the position of the operand, and whose body
    yields it, with the position among the results; None for the results of the whole and of conditions."""

    def __init__(self, block: Block) -> None:
        self.operands: dict[Value, list[tuple[Instruction, int]]] = defaultdict(list)
        self.yields: dict[Value, list[tuple[Instruction | None, int]]] = defaultdict(list)
        self.of_block(block, None)

    def of_block(self, block: Block, owner: Instruction | None) -> None:
        for i in block.instructions:
            for k, v in enumerate(i.operands):
                self.operands[v].append((i, k))
            for region in i.regions:
                self.of_block(region, i if region is i.regions[-1] else None)
        for k, v in enumerate(block.results):
            self.yields[v].append((owner, k))


def _kept(z: Value, uses: _Uses) -> tuple[set[tuple[Instruction, int]], set[Instruction]]:
    """The rows of loops that keep ``z`` for derivatives alone, and who reads them in the end."""
    places: set[tuple[Instruction, int]] = set()
    readers: set[Instruction] = set()
    for owner, k in uses.yields[z]:
        sequence = _sequence(owner, k)
        reading = None if sequence is None else _readers(sequence, uses)
        if owner is not None and reading is not None and any(r.op is DERIVATIVE for r in reading):
            places.add((owner, k))
            readers |= reading
    return places, readers


def _sequence(owner: Instruction | None, k: int) -> Value | None:
    """The sequence that a loop makes of result ``k`` of its body; None for other results."""
    if owner is None or not isinstance(owner.op, Loop) or k < owner.params["carried"]:
        return None
    return owner.results[k - len(owner.regions[-1].results)]


def _readers(v: Value, uses: _Uses) -> set[Instruction] | None:
    """The logistic functions and derivatives that read a sequence row by row; None if there are other readers."""
    found: set[Instruction] = set()
    for i, k in uses.operands[v]:
        if i.op in (VALUE, DERIVATIVE):
            found.add(i)
            continue
        if not isinstance(i.op, Scan):
            return None
        loop = parts_of(i)
        if not 0 <= k - loop.first - loop.carried < loop.sliced:
            return None
        inner = _readers(loop.body.parameters[1 + k - loop.first], uses)
        if inner is None:
            return None
        found |= inner
    for owner, k in uses.yields[v]:
        sequence = _sequence(owner, k)
        outer = None if sequence is None else _readers(sequence, uses)
        if outer is None:
            return None
        found |= outer
    return found


class _Writer:
    """Writes blocks in which loops keep tails of the values ``kept`` in the rows named, which ``readers`` read."""

    def __init__(self, kept: Mapping[Value, set[tuple[Instruction, int]]], readers: set[Instruction]) -> None:
        self.kept, self.readers = kept, readers

    def block(self, block: Block, owner: Instruction | None) -> Block:
        b = Builder()
        names: dict[Value, Value] = {}
        signed: dict[Value, Value] = {}
        parts: dict[Value, tuple[Value, Value]] = {}
        for i in block.instructions:
            regions = tuple(self.block(region, i) for region in i.regions)
            at = b.at(i.loc, i.results[0].name if i.results else "")
            if i.op is VALUE and i.operands[0] in self.kept:
                names[i.result], signed[i.operands[0]] = _split(at, names.get(i.operands[0], i.operands[0]))
            elif i in self.readers:
                w = i.operands[0]
                if w not in parts:
                    size = at.abs(w)
                    parts[w] = size, at.sub(at.full(1.0, w.type), size)
                names[i.result] = _joined(at, w, *parts[w]) if i.op is VALUE else at.mul(*parts[w])
            else:
                b.append(replace(i, operands=tuple(names.get(v, v) for v in i.operands), regions=regions))
        results = [names.get(v, v) for v in block.results]
        for k, v in enumerate(block.results):
            if owner is not None and (owner, k) in self.kept.get(v, ()):
                results[k] = signed[v]
        return b.block(block.parameters, results)


def _split(b: Builder, z: Value) -> tuple[Value, Value]:
    """The logistic function of ``z``, and its tail with the sign of ``z``."""
    tail = b.expit(b.neg(b.abs(z)))
    y = b.select(b.lt(z, b.zeros_like(z)), tail, b.sub(b.full(1.0, z.type), tail))
    return y, b.copysign(tail, z)


def _joined(b: Builder, w: Value, size: Value, rest: Value) -> Value:
    """The value of a tail with its sign, which a zero has too."""
    bits = b.bitcast(w, dtype=SIGNED[w.type.dtype])
    found: Value = b.select(b.lt(bits, b.zeros_like(bits)), size, rest)
    return found
