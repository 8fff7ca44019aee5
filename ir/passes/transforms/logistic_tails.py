"""Reduce the residual of a function's argument in a loop to one number from which value and derivative are computed without an
exponential (``kept_tails``).

    a loop forward       y = tanh(z); yield z    ->    y, kept = split(z); yield kept
    a loop in reverse    tanh(z); sech2(z)       ->    join(kept)

Both are bit-identical, and the residual has as many bytes as the argument.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, Scan
from pullback.ir.passes.editing.loop_view import parts_of
from pullback.ir.passes.transforms.kept_tails import TAILS, Tail, tail_of

DERIVATIVES = frozenset(t.derivative for t in TAILS.values())
Rows = set[tuple[Instruction, int]]
"""Loops, each with the position of one of its body's results."""
NOT_KEPT: tuple[None, Rows] = None, set()
"""The entry of a value whose tail is not saved."""


def tails(function: Function) -> Function:
    """Save tails of arguments instead of the arguments, where only the functions and their derivatives read what is saved.

    Requires: a func without transform instructions, of which no further derivative is taken; other kinds are returned
    unchanged. Keeps: results.
    """
    if function.kind != "func" or not any(i.op in DERIVATIVES for i in walk(function.body)):
        return function
    uses = _Uses(function.body)
    kept: dict[Value, tuple[Tail, Rows]] = {}
    readers: dict[Instruction, Tail] = {}
    for i in walk(function.body):
        tail = tail_of(i.op, i.operands[0]) if i.op in TAILS else None
        if tail is not None and i.operands[0] not in kept:
            rows, reading = _kept(i.operands[0], tail, uses)
            if rows:
                kept[i.operands[0]] = tail, rows
                readers.update(dict.fromkeys(reading, tail))
    if not kept:
        return function
    return replace(function, body=_Writer(kept, readers).block(function.body, None))


class _Uses:
    """The uses of each value of a block and its regions: the reading instructions with the operand's position, and the
    instructions whose last region yields it, with the position among the results; None stands for results of the function
    and of conditions."""

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


def _kept(z: Value, tail: Tail, uses: _Uses) -> tuple[Rows, set[Instruction]]:
    """Return the rows of loops that save ``z`` only for derivatives, and their readers in reverse loops."""
    rows: Rows = set()
    readers: set[Instruction] = set()
    for owner, k in uses.yields[z]:
        sequence = _sequence(owner, k)
        reading = None if sequence is None else _readers(sequence, tail, uses)
        if owner is not None and reading is not None and any(r.op is tail.derivative for r in reading):
            rows.add((owner, k))
            readers |= reading
    return rows, readers


def _sequence(owner: Instruction | None, k: int) -> Value | None:
    """Return the sequence that a loop returns for result ``k`` of its body; None for other results."""
    if owner is None or not isinstance(owner.op, Loop) or k < owner.params["carried"]:
        return None
    return owner.results[k - len(owner.regions[-1].results)]


def _readers(v: Value, tail: Tail, uses: _Uses) -> set[Instruction] | None:
    """Return the functions and derivatives of a tail that read a sequence row by row; None if there are other readers."""
    readers: set[Instruction] = set()
    for i, k in uses.operands[v]:
        if i.op in (tail.function, tail.derivative):
            readers.add(i)
            continue
        if not isinstance(i.op, Scan):
            return None
        loop = parts_of(i)
        if not 0 <= k - loop.first - loop.carried < loop.sliced:
            return None
        inner = _readers(loop.body.parameters[1 + k - loop.first], tail, uses)
        if inner is None:
            return None
        readers |= inner
    for owner, k in uses.yields[v]:
        sequence = _sequence(owner, k)
        outer = None if sequence is None else _readers(sequence, tail, uses)
        if outer is None:
            return None
        readers |= outer
    return readers


class _Writer:
    """Rewrites blocks so that loops save the tails of the values in ``kept`` in the given rows, which ``readers`` read."""

    def __init__(self, kept: Mapping[Value, tuple[Tail, Rows]], readers: Mapping[Instruction, Tail]) -> None:
        self.kept, self.readers = kept, readers

    def block(self, block: Block, owner: Instruction | None) -> Block:
        b = Builder()
        names: dict[Value, Value] = {}
        signed: dict[Value, Value] = {}
        parts: dict[Value, tuple[Value, Value]] = {}
        for i in block.instructions:
            regions = tuple(self.block(region, i) for region in i.regions)
            at = b.at(i.loc, i.results[0].name if i.results else "")
            tail, _ = self.kept.get(i.operands[0], NOT_KEPT) if i.op in TAILS else NOT_KEPT
            if tail is not None and i.op is tail.function:
                names[i.result], signed[i.operands[0]] = tail.split(at, names.get(i.operands[0], i.operands[0]))
            elif i in self.readers:
                tail, w = self.readers[i], i.operands[0]
                if w not in parts:
                    parts[w] = tail.join(at, w)
                names[i.result] = parts[w][0 if i.op is tail.function else 1]
            else:
                b.append(replace(i, operands=tuple(names.get(v, v) for v in i.operands), regions=regions))
        results = [names.get(v, v) for v in block.results]
        for k, v in enumerate(block.results):
            if owner is not None and (owner, k) in self.kept.get(v, NOT_KEPT)[1]:
                results[k] = signed[v]
        return b.block(block.parameters, results)
