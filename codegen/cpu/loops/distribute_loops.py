"""phases: split vector loops with long bodies into phases (loop fission), one strip of iterations at a time.

Requires: a kernel scheduled for the CPU. Keeps: its meaning, and the order in which memory that is read is written. The
elements of a vector loop are independent, so a processor overlaps as many iterations as its instruction window holds. A body
of three hundred instructions fills the window alone, and each iteration then takes as long as its longest dependency chain. A
phase is short enough for many iterations to overlap. Values that one phase computes and another uses are kept in kernel-local
buffers, one strip long and small enough to stay in L1; constants, positions and loads from arguments are rematerialised. A
branch around rare code is part of one phase, which reduces the number of values that are spilled around its call. The phases
share the prefetches of the next strip.

Cuts are placed to minimise a cost (``_cuts``): a nominal price per value kept across a cut and per instruction beyond the
window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from pullback.codegen.analysis.independence import Loops, is_independent
from pullback.codegen.targets import Processor
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall
from pullback.ir.ops.kernel.kernel import Extent, Load, Store, Subview, combined_values

LONG, LONGEST = 120, 400
"""The least and the greatest number of instructions of a body that is split.

LLVM's compile time grows fast with the number of phases; a longer body is emitted once (``llvm.loops``).
"""
WINDOW = 48
"""Instructions in a phase, several of which fit in the window of a processor that is not in the table."""
L1_BYTES = 48 << 10
"""Bytes of L1 available to the strips of all arrays that a loop reads, writes and keeps."""
LEAST_STRIP, MOST_STRIP = 64, 512
"""The least and the greatest number of iterations of a strip."""
# Nominal prices in instructions: of a phase, of a value kept across a cut, and of an instruction beyond the window.
PHASE, KEPT, BEYOND = 8.0, 1.5, 0.75

IDENTITY = {op.combine: op.identity for op in OPS.values() if isinstance(op, Reduce)}


def phases(block: Block, processor: Processor | None = None) -> Block:
    """Split the long vector loops of a kernel's body for a processor, or for any if None."""
    return _Splitter(Loops(block), processor).block(block)


class _Splitter:
    """Splits the loops of a kernel."""

    def __init__(self, loops: Loops, processor: Processor | None) -> None:
        self.loops, self.processor = loops, processor

    def block(self, block: Block) -> Block:
        """Return a block whose long vector loops are split."""
        instructions: list[Instruction] = []
        for i in block.instructions:
            if not i.regions:
                instructions.append(i)
                continue
            body = _Body(self.loops, i.regions[0], self.processor) if _is_plain(i) else None
            if body is not None and body.can_be_cut():
                _strips(Builder(i.loc, instructions), i, body)
            else:
                instructions.append(replace(i, regions=tuple(self.block(r) for r in i.regions)))
        return replace(block, instructions=tuple(instructions))


def _is_plain(i: Instruction) -> bool:
    """Return whether an instruction is a vector loop that carries only reductions."""
    return i.params.get("map") == "vector" and is_independent(i) and i.params.keys() <= {"map", "combine", "multiple"}


class _Body:
    """The body of a vector loop: its ``steps`` in order, and the instructions that are ``free`` to rematerialise at each use."""

    def __init__(self, loops: Loops, region: Block, processor: Processor | None) -> None:
        self.loops, self.region = loops, region
        self.window = processor.window if processor else WINDOW
        self.processor = processor
        self.written: dict[Value, int] = {}
        self.read: dict[Value, int] = {}
        for position, i in enumerate(region.instructions):
            if isinstance(i.op, Store):
                self.written.setdefault(loops.root_and_index(i.operands[1])[0], position)
            if isinstance(i.op, Load):
                self.read[loops.root_and_index(i.operands[0])[0]] = position
        self.defined = {v for i in region.instructions for v in i.results}
        self.rematerialised = self.find_rematerialised()
        self.steps = [i for i in region.instructions if not self.is_rematerialised(i)]

    def find_rematerialised(self) -> dict[Value, Instruction]:
        """Return the instructions that are rematerialised: constants, extents, loads, subviews and positions, by result."""
        rematerialised: dict[Value, Instruction] = {}
        for i in self.region.instructions:
            is_position = isinstance(i.op, Elementwise) and all(v.type == scalar(I64) for v in (*i.operands, *i.results))
            is_light = isinstance(i.op, Constant | Extent | Load | Subview) or is_position
            if is_light and all(v in rematerialised or v not in self.defined for v in i.operands):
                rematerialised.update(dict.fromkeys(i.results, i))
        return rematerialised

    def varies_with_index(self, operands: Sequence[Value]) -> bool:
        """Return whether an address is computed without loads and differs from iteration to iteration."""
        index, seen, stack = self.region.parameters[0], set[Value](), list(operands)
        while stack:
            v = stack.pop()
            if v in self.defined and (
                v not in self.rematerialised or not isinstance(self.rematerialised[v].op, Elementwise | Constant | Extent)
            ):
                return False
            stack += self.rematerialised[v].operands if v in self.defined and v not in seen else ()
            seen.add(v)
        return index in seen

    def is_rematerialised(self, i: Instruction) -> bool:
        """Return whether an instruction is rematerialised at each use."""
        return bool(i.results) and i.results[0] in self.rematerialised

    def can_be_cut(self) -> bool:
        """Return whether a body can be split: it is long, has only plain instructions, and reads nothing that it has written.

        Inactive lanes read zeros from the buffers of other phases, so integer divisions are excluded.
        """
        kinds = Elementwise | Constant | Extent | Load | ColdCall | Store | Subview
        is_plain = all(isinstance(i.op, kinds) and not i.regions and i.op.name != "idiv" for i in self.region.instructions)
        rereads = any(self.read.get(ref, -1) > position for ref, position in self.written.items())
        return LONG <= len(self.steps) <= LONGEST and is_plain and not rereads

    def lengths(self, steps: Sequence[Instruction]) -> list[int]:
        """Return the length of each step in instructions; a division counts as many as its cycles."""
        return [self.processor.cycles(i) or 1 if self.processor else 1 for i in steps]

    def is_deferred_store(self, i: Instruction) -> bool:
        """Return whether an instruction stores to memory that the body also reads: such stores are moved to the last phase."""
        return isinstance(i.op, Store) and self.loops.root_and_index(i.operands[1])[0] in self.read

    def split(self) -> list[list[Instruction]]:
        """Return the steps of each phase."""
        steps = sorted(self.steps, key=self.is_deferred_store)
        bounds = [0, *_cuts(steps, self.lengths(steps), self.region.results, self.window), len(steps)]
        return [steps[first:end] for first, end in pairwise(bounds)]


def _cuts(steps: Sequence[Instruction], lengths: Sequence[int], results: Sequence[Value], window: int) -> list[int]:
    """Return the steps before which to cut, at the least total cost, by dynamic programming."""
    alive, before = _alive(steps, results), [0, *accumulate(lengths)]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(steps) + 1):
        price = PHASE + (KEPT * alive[end] if end < len(steps) else 0.0)
        starts = range(max(0, end - 2 * window), max(1, end - window // 4))
        best.append(min((best[k][0] + price + BEYOND * max(0, before[end] - before[k] - window), k) for k in starts))
    cuts, at = [], best[-1][1]
    while at:
        cuts.append(at)
        at = best[at][1]
    return cuts[::-1]


def _alive(steps: Sequence[Instruction], results: Sequence[Value]) -> list[int]:
    """Return, for each step, how many values of earlier steps are live before it."""
    last = dict.fromkeys(results, len(steps))
    for position, i in reversed(list(enumerate(steps))):
        for v in i.operands:
            last.setdefault(v, position)
    change = [0] * (len(steps) + 2)
    for position, i in enumerate(steps):
        for v in i.results:
            if v in last:
                change[position + 1] += 1
                change[last[v] + 1] -= 1
    alive, total = [], 0
    for step in change:
        total += step
        alive.append(total)
    return alive


def _strips(b: Builder, i: Instruction, body: _Body) -> None:
    """Emit the loop over strips, whose body runs the phases one after the other."""
    count, *initial = i.operands
    parts = body.split()
    crossing = _crossing_values(parts, body.region.results)
    length = _strip_length(body, len(crossing))
    kept = {v: b.local(dtype=v.type.dtype, shape=(length,)) for v in crossing}
    inner, at = Builder(i.loc), Value(scalar(I64), "strip")
    first = inner.mul(at, inner.const(length, I64))
    strip_length = inner.minimum(inner.const(length, I64), inner.sub(count, first))
    results: tuple[Value, ...] = ()
    for part, prefetched in zip(parts, _distribute_prefetches(body, parts), strict=True):
        is_last = part is parts[-1]
        region = _with_prefetches(i, body, _phase(i, body, part, kept, first, is_last), prefetched, first, length)
        operands = (strip_length, *(_identities(inner, i) if is_last else ()))
        results = tuple(Value(v.type, v.name) for v in i.results) if is_last else ()
        params = {k: v for k, v in i.params.items() if k == "map" or (is_last and k == "combine")}
        inner.append(Instruction(i.op, operands, results, params, (region,), i.loc))
    rounded = b.add(count, b.const(length - 1, I64))
    strips = b.idiv(rounded, b.const(length, I64))
    params = {**{k: v for k, v in i.params.items() if k == "combine"}, "map": "serial"}
    b.append(Instruction(i.op, (strips, *initial), i.results, params, (inner.block([at], results),), i.loc))


def _distribute_prefetches(body: _Body, parts: Sequence[Sequence[Instruction]]) -> list[list[Sequence[Value]]]:
    """Return, for each phase, the addresses that it prefetches for the next strip, as operands of loads.

    They are distributed evenly; phases that store come last, because they keep the memory busy.
    """
    reads = [i.operands for i in body.rematerialised.values() if isinstance(i.op, Load) and not i.op.masked]
    writes = [i.operands[1:] for i in body.steps if isinstance(i.op, Store) and not i.op.masked]
    phase_order = sorted(range(len(parts)), key=lambda k: any(isinstance(i.op, Store) for i in parts[k]))
    shared: list[list[Sequence[Value]]] = [[] for _ in parts]
    for k, operands in enumerate(dict.fromkeys(w for w in (*reads, *writes) if body.varies_with_index(w))):
        shared[phase_order[k % len(phase_order)]].append(operands)
    return shared


def _with_prefetches(
    i: Instruction, body: _Body, region: Block, prefetched: Sequence[Sequence[Value]], first: Value, length: int
) -> Block:
    """Return a phase preceded by prefetches for the next strip."""
    (at,), b = region.parameters, Builder(i.loc)
    env = {body.region.parameters[0]: b.add(b.add(first, at), b.const(length, I64))}

    def value(v: Value) -> Value:
        if v not in env and v in body.rematerialised:
            producer = body.rematerialised[v]
            results = tuple(Value(r.type, r.name) for r in producer.results)
            b.append(replace(producer, operands=tuple(map(value, producer.operands)), results=results))
            env.update(zip(producer.results, results, strict=True))
        return env.get(v, v)

    for operands in prefetched:
        b.emit(OPS["prefetch"], [value(v) for v in operands])
    return replace(region, instructions=(*b.instructions, *region.instructions))


def _strip_length(body: _Body, kept: int) -> int:
    """Return the length of a strip, a power of two that keeps all arrays of the loop in L1; a body may use no memory."""
    widest = max((_bytes(v) for k in body.region.instructions for v in k.results), default=1)
    most = L1_BYTES // (widest * max(1, kept + len(body.read.keys() | body.written.keys())))
    return min(MOST_STRIP, max(LEAST_STRIP, 1 << max(most, 1).bit_length() - 1))


def _bytes(v: Value) -> int:
    """Return the bytes of an element of a value; 1 for references."""
    return v.type.dtype.bytes if isinstance(v.type, ArrayType) else 1


def _crossing_values(parts: Sequence[Sequence[Instruction]], results: Sequence[Value]) -> list[Value]:
    """Return the values that a later phase uses."""
    phase_of = {v: k for k, part in enumerate(parts) for i in part for v in i.results}
    reads = [(v, k) for k, part in enumerate(parts) for i in part for v in i.operands]
    reads += [(v, len(parts) - 1) for v in results]
    return list(dict.fromkeys(v for v, k in reads if v in phase_of and phase_of[v] < k))


def _phase(
    i: Instruction, body: _Body, part: Sequence[Instruction], kept: dict[Value, Value], first: Value, is_last: bool
) -> Block:
    """Return the body of one phase: loads of the values kept by others, its steps, and stores of the values that others use."""
    old = body.region.parameters[0]
    b, at = Builder(i.loc), Value(scalar(I64), old.name)
    env: dict[Value, Value] = {old: b.add(first, at)}

    def value(v: Value) -> Value:
        if v not in env:
            if v in kept:
                env[v] = b.load(kept[v], at)
            elif v in body.rematerialised:
                copy(body.rematerialised[v])
            else:
                env[v] = v
        return env[v]

    def copy(k: Instruction) -> None:
        operands = tuple(value(v) for v in k.operands)
        results = tuple(Value(v.type, v.name) for v in k.results)
        b.append(replace(k, operands=operands, results=results))
        env.update(zip(k.results, results, strict=True))

    def before_stores(first_store: Instruction) -> None:
        """Load the values that the last steps and the results need before the memory is overwritten."""
        remaining = part[part.index(first_store) :]
        for v in (*(v for k in remaining for v in k.operands), *body.region.results):
            if v in body.rematerialised:
                value(v)

    for k in part:
        if is_last and body.is_deferred_store(k):
            before_stores(k)
        copy(k)
        for v in k.results:
            if v in kept:
                b.store(env[v], kept[v], at)
    return b.block([at], [value(v) for v in body.region.results] if is_last else [])


def _identities(b: Builder, i: Instruction) -> list[Value]:
    """Return the start values of a loop's reductions."""
    identities = []
    for name, values in combined_values(i.params.get("combine", ()), i.results):
        dtype = values[0].type.dtype
        identities.append(b.const(IDENTITY[name](dtype), dtype))
        identities += [b.const(-1, I64) for _ in values[1:]]
    return identities
