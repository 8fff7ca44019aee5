"""phases: a vector loop with a long body becomes loops over strips of its iterations, the body in phases, each a loop of its own.

Requires: a kernel scheduled for the CPU. Keeps: its meaning, and the order in which memory that is read is written. Elements
do not depend on one another, so a processor works on several vectors at once, as many as its window of instructions holds: of
a body of three hundred instructions, one, whose longest chain of operations then is the time of an iteration. A phase is so
short that the window holds many. What one phase computes and another reads is kept in memory of the kernel's own, as long as
a strip and near enough to stay in the first cache; constants, positions and what is read from arguments are made again.
A branch around rare code is a step of one phase: around a call there, less waits in memory than in the whole body.
Phases share out the asking for the elements of the next strip.

Where to cut is chosen by what lives there (``_cuts``): the least number of values kept, at a nominal price, and of instructions
beyond what a window holds.
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
"""The least and the greatest number of instructions of a body that is cut. LLVM's time for many phases grows fast; a body that is
longer still is written once (``llvm_loops``)."""
WINDOW = 48
"""What a processor's window holds several times, where no more is known of it."""
NEAR = 48 << 10
"""The bytes of a first cache, for the strips of all arrays that a loop reads, writes and keeps."""
LEAST_STRIP, MOST_STRIP = 64, 512
# Nominal prices in instructions: a phase, a value kept over a cut, an instruction beyond the window.
PHASE, KEPT, BEYOND = 8.0, 1.5, 0.75

IDENTITY = {op.combine: op.identity for op in OPS.values() if isinstance(op, Reduce)}


def phases(block: Block, processor: Processor | None = None) -> Block:
    """A kernel's body with its long vector loops cut, for a processor of the table or any other."""
    return _Phases(Loops(block), processor).block(block)


class _Phases:
    def __init__(self, loops: Loops, processor: Processor | None) -> None:
        self.loops, self.processor = loops, processor

    def block(self, block: Block) -> Block:
        made: list[Instruction] = []
        for i in block.instructions:
            if not i.regions:
                made.append(i)
                continue
            body = _Body(self.loops, i.regions[0], self.processor) if _is_plain(i) else None
            if body is not None and body.can_be_cut():
                _strips(Builder(i.loc, made), i, body)
            else:
                made.append(replace(i, regions=tuple(self.block(r) for r in i.regions)))
        return replace(block, instructions=tuple(made))


def _is_plain(i: Instruction) -> bool:
    """Whether it is a vector loop that carries nothing but what it combines."""
    return i.params.get("map") == "vector" and is_independent(i) and i.params.keys() <= {"map", "combine", "multiple"}


class _Body:
    """The body of a vector loop: its ``steps`` in order, and what is ``free``, made again wherever it is read."""

    def __init__(self, loops: Loops, region: Block, processor: Processor | None) -> None:
        self.loops, self.region = loops, region
        self.window = processor.window if processor else WINDOW
        self.processor = processor
        self.written: dict[Value, int] = {}
        self.read: dict[Value, int] = {}
        for position, i in enumerate(region.instructions):
            if isinstance(i.op, Store):
                self.written.setdefault(loops.place(i.operands[1])[0], position)
            if isinstance(i.op, Load):
                self.read[loops.place(i.operands[0])[0]] = position
        self.made = {v for i in region.instructions for v in i.results}
        self.free = self.find_free()
        self.steps = [i for i in region.instructions if not self.is_free(i)]

    def find_free(self) -> dict[Value, Instruction]:
        found: dict[Value, Instruction] = {}
        for i in self.region.instructions:
            is_position = isinstance(i.op, Elementwise) and all(v.type == scalar(I64) for v in (*i.operands, *i.results))
            is_light = isinstance(i.op, Constant | Extent | Load | Subview) or is_position
            if is_light and all(v in found or v not in self.made for v in i.operands):
                found.update(dict.fromkeys(i.results, i))
        return found

    def moves(self, where: Sequence[Value]) -> bool:
        """Whether a place is known without reading memory, and differs from iteration to iteration."""
        index, seen, stack = self.region.parameters[0], set[Value](), list(where)
        while stack:
            v = stack.pop()
            if v in self.made and (v not in self.free or not isinstance(self.free[v].op, Elementwise | Constant | Extent)):
                return False
            stack += self.free[v].operands if v in self.made and v not in seen else ()
            seen.add(v)
        return index in seen

    def is_free(self, i: Instruction) -> bool:
        return bool(i.results) and i.results[0] in self.free

    def can_be_cut(self) -> bool:
        """Whether it is long, made of plain instructions, and reads nothing that it has written. Lanes that are left out
        read zero of what waits, by which integers must not be divided."""
        kinds = Elementwise | Constant | Extent | Load | ColdCall | Store | Subview
        is_plain = all(isinstance(i.op, kinds) and not i.regions and i.op.name != "idiv" for i in self.region.instructions)
        rereads = any(self.read.get(ref, -1) > position for ref, position in self.written.items())
        return LONG <= len(self.steps) <= LONGEST and is_plain and not rereads

    def lengths(self, steps: Sequence[Instruction]) -> list[int]:
        """How many instructions each counts for."""
        return [self.processor.cycles(i) or 1 if self.processor else 1 for i in steps]

    def is_late(self, i: Instruction) -> bool:
        """Whether it writes what later phases may have to read: that waits for the last phase."""
        return isinstance(i.op, Store) and self.loops.place(i.operands[1])[0] in self.read

    def parts(self) -> list[list[Instruction]]:
        """The steps of each phase."""
        steps = sorted(self.steps, key=self.is_late)
        bounds = [0, *_cuts(steps, self.lengths(steps), self.region.results, self.window), len(steps)]
        return [steps[first:end] for first, end in pairwise(bounds)]


def _cuts(steps: Sequence[Instruction], lengths: Sequence[int], results: Sequence[Value], window: int) -> list[int]:
    """Before which steps to cut."""
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
    """How many values of the steps before each are read from there on."""
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
    """The loop over strips; a strip runs the phases one after the other."""
    count, *initial = i.operands
    parts = body.parts()
    waiting = _kept(parts, body.region.results)
    length = _length(body, len(waiting))
    kept = {v: b.local(dtype=v.type.dtype, shape=(length,)) for v in waiting}
    inner, at = Builder(i.loc), Value(scalar(I64), "strip")
    first = inner.mul(at, inner.const(length, I64))
    here = inner.minimum(inner.const(length, I64), inner.sub(count, first))
    found: tuple[Value, ...] = ()
    for part, coming in zip(parts, _asked(body, parts), strict=True):
        is_last = part is parts[-1]
        region = _asking(i, body, _phase(i, body, part, kept, first, is_last), coming, first, length)
        operands = (here, *(_identities(inner, i) if is_last else ()))
        found = tuple(Value(v.type, v.name) for v in i.results) if is_last else ()
        params = {k: v for k, v in i.params.items() if k == "map" or (is_last and k == "combine")}
        inner.append(Instruction(i.op, operands, found, params, (region,), i.loc))
    rounded = b.add(count, b.const(length - 1, I64))
    strips = b.idiv(rounded, b.const(length, I64))
    params = {**{k: v for k, v in i.params.items() if k == "combine"}, "map": "serial"}
    b.append(Instruction(i.op, (strips, *initial), i.results, params, (inner.block([at], found),), i.loc))


def _asked(body: _Body, parts: Sequence[Sequence[Instruction]]) -> list[list[Sequence[Value]]]:
    """The elements of arguments and results, as operands of loads, that each phase asks for in the next strip. Phases take turns,
    those that write after the others, since memory is busy with these."""
    reads = [i.operands for i in body.free.values() if isinstance(i.op, Load) and not i.op.masked]
    writes = [i.operands[1:] for i in body.steps if isinstance(i.op, Store) and not i.op.masked]
    turns = sorted(range(len(parts)), key=lambda k: any(isinstance(i.op, Store) for i in parts[k]))
    shared: list[list[Sequence[Value]]] = [[] for _ in parts]
    for k, where in enumerate(dict.fromkeys(w for w in (*reads, *writes) if body.moves(w))):
        shared[turns[k % len(turns)]].append(where)
    return shared


def _asking(i: Instruction, body: _Body, region: Block, coming: Sequence[Sequence[Value]], first: Value, length: int) -> Block:
    """A phase that also asks for these elements of the next strip."""
    (at,), b = region.parameters, Builder(i.loc)
    env = {body.region.parameters[0]: b.add(b.add(first, at), b.const(length, I64))}

    def value(v: Value) -> Value:
        if v not in env and v in body.free:
            made = body.free[v]
            results = tuple(Value(r.type, r.name) for r in made.results)
            b.append(replace(made, operands=tuple(map(value, made.operands)), results=results))
            env.update(zip(made.results, results, strict=True))
        return env.get(v, v)

    for where in coming:
        b.emit(OPS["prefetch"], [value(v) for v in where])
    return replace(region, instructions=(*b.instructions, *region.instructions))


def _length(body: _Body, kept: int) -> int:
    """Of a strip: a power of two. A body may have nothing in memory."""
    widest = max((_bytes(v) for k in body.region.instructions for v in k.results), default=1)
    most = NEAR // (widest * max(1, kept + len(body.read.keys() | body.written.keys())))
    return min(MOST_STRIP, max(LEAST_STRIP, 1 << max(most, 1).bit_length() - 1))


def _bytes(v: Value) -> int:
    return v.type.dtype.bytes if isinstance(v.type, ArrayType) else 1


def _kept(parts: Sequence[Sequence[Instruction]], results: Sequence[Value]) -> list[Value]:
    """The values that a later phase reads."""
    made = {v: k for k, part in enumerate(parts) for i in part for v in i.results}
    reads = [(v, k) for k, part in enumerate(parts) for i in part for v in i.operands]
    reads += [(v, len(parts) - 1) for v in results]
    return list(dict.fromkeys(v for v, k in reads if v in made and made[v] < k))


def _phase(
    i: Instruction, body: _Body, part: Sequence[Instruction], kept: dict[Value, Value], first: Value, is_last: bool
) -> Block:
    """The body of one phase: what it reads of others, its steps, and what it keeps for others."""
    old = body.region.parameters[0]
    b, at = Builder(i.loc), Value(scalar(I64), old.name)
    env: dict[Value, Value] = {old: b.add(first, at)}

    def value(v: Value) -> Value:
        if v not in env:
            if v in kept:
                env[v] = b.load(kept[v], at)
            elif v in body.free:
                again(body.free[v])
            else:
                env[v] = v
        return env[v]

    def again(k: Instruction) -> None:
        operands = tuple(value(v) for v in k.operands)
        made = tuple(Value(v.type, v.name) for v in k.results)
        b.append(replace(k, operands=operands, results=made))
        env.update(zip(k.results, made, strict=True))

    def before_stores(first_store: Instruction) -> None:
        """Read what the last steps and the results need, before it is written over."""
        rest = part[part.index(first_store) :]
        for v in (*(v for k in rest for v in k.operands), *body.region.results):
            if v in body.free:
                value(v)

    for k in part:
        if is_last and body.is_late(k):
            before_stores(k)
        again(k)
        for v in k.results:
            if v in kept:
                b.store(env[v], kept[v], at)
    return b.block([at], [value(v) for v in body.region.results] if is_last else [])


def _identities(b: Builder, i: Instruction) -> list[Value]:
    found = []
    for name, values in combined_values(i.params.get("combine", ()), i.results):
        dtype = values[0].type.dtype
        found.append(b.const(IDENTITY[name](dtype), dtype))
        found += [b.const(-1, I64) for _ in values[1:]]
    return found
