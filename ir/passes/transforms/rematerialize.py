"""Rematerialise values for the gradient: the value and the derivative of a function of a product come from one saved array.

    y = tanh(z); y @ w; ...; d * sech2(z); y.T @ e
    ->  y, kept = split(z); y @ w; ...; y2, slope = join(kept); d * slope; y2.T @ e    (``kept_tails``)
    y = tanh(z); y @ w; ...; d * sech2(z)
    ->  y = tanh(z); slope = sech2(z); y @ w; ...; d * slope

The derivative is a function of z. Products read their operands from memory, so y would be saved in addition to z. After the
rewrite, y is freed after its last reader in the forward part, and the gradient computes no exponential. If z is in memory
anyway, for instance at a checkpoint, nothing else is saved: the gradient computes value and derivative from z, together, with
one exponential.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.transforms.kept_tails import Tail, tail_of


@dataclass(eq=False)
class Pair:
    """A function's ``value`` and its ``derivative``; ``late``: products of the gradient that read the value; ``end``: the
    instruction behind which they are moved, which multiplies the derivative by the cotangent ``after``. ``tail``: how value
    and derivative are computed from one number, or None."""

    value: Instruction
    derivative: Instruction
    late: Sequence[Instruction]
    end: Instruction
    after: Value
    tail: Tail | None = None
    kept: Value | None = None
    second_value: Value | None = None
    held: list[Instruction] = field(default_factory=list)


def recomputed(function: Function) -> Function:
    """Compute values that products of a gradient read together with the derivatives, both from one residual.

    Requires: a func without transform instructions; other kinds are returned unchanged. Keeps: results.
    """
    if function.kind != "func" or not any(_primitive(i) for i in function.instructions):
        return function
    pairs = pairs_of(function.body)
    return replace(function, body=_Writer(pairs).run(function.body)) if pairs else function


def _primitive(i: Instruction) -> str:
    """Return the name of the function whose derivative an instruction computes, or the empty string."""
    return i.op.derivative_of if isinstance(i.op, Elementwise) else ""


def _is_late(i: Instruction) -> bool:
    """Return whether an instruction belongs to a gradient."""
    return i.loc.note.startswith("pullback(")


def pairs_of(block: Block) -> list[Pair]:
    """Return the values and derivatives of a block that are computed from one residual."""
    uses = _Uses(block)
    readers = uses.readers
    pairs: list[Pair] = []
    taken: set[Instruction] = set()
    before: set[Instruction] = set()
    for i in block.instructions:
        before.add(i)
        if not _primitive(i) or not _is_late(i) or len(readers[i.result]) != 1:
            continue
        (z,), (end,) = i.operands, readers[i.result]
        value = next((r for r in readers[z] if r.op.name == _primitive(i) and not _is_late(r)), None)
        after = next((v for v in end.operands if v is not i.result), None)
        if value is None or after is None or value.result in block.results or after.type != z.type:
            continue
        late = [r for r in readers[value.result] if _is_late(r)]
        early = [r for r in readers[value.result] if not _is_late(r)]
        tail = tail_of(value.op, z) if early and value in before and not uses.is_late(z, i) else None
        is_apart = not early or any(isinstance(r.op, Contract) for r in early)
        can_move = all(isinstance(r.op, Contract) and r not in taken for r in late) and end not in taken
        if (late or tail) and is_apart and can_move:
            taken.update((*late, end))
            pairs.append(Pair(value, i, late, end, after, tail))
    return pairs


class _Uses:
    """The definitions and readers of the values of a block."""

    def __init__(self, block: Block) -> None:
        self.results = frozenset(block.results)
        self.readers: dict[Value, list[Instruction]] = defaultdict(list)
        self.definitions: dict[Value, Instruction] = {}
        for i in block.instructions:
            self.definitions.update(dict.fromkeys(i.results, i))
            for v in dict.fromkeys(i.operands):
                self.readers[v].append(i)

    def is_late(self, z: Value, derivative: Instruction) -> bool:
        """Return whether ``z`` is in memory for the gradient even without its ``derivative``: z, or a value that it is
        computed from elementwise, is a parameter, a result, or read by another instruction of the gradient."""
        stack, seen = [z], {z}
        while stack:
            v = stack.pop()
            i = self.definitions.get(v)
            if i is not None and i.op is OPS["broadcast"]:
                continue
            if i is None or v in self.results or any(_is_late(r) and r is not derivative for r in self.readers[v]):
                return True
            if isinstance(i.op, Elementwise):
                operands = [u for u in i.operands if u not in seen and u.type == z.type]
                stack += operands
                seen.update(operands)
        return False


class _Writer:
    """Rewrites a block with the late products of each pair behind its end. ``waiting``: the results of the deferred products."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.of_product = {r: p for p in pairs for r in p.late}
        self.of_end = {p.end: p for p in pairs}
        self.of_value = {p.value: p for p in pairs}
        self.of_derivative = {p.derivative: p for p in pairs}
        self.names: dict[Value, Value] = {}
        self.deferred: dict[Value, Pair] = {}
        self.builder = Builder()

    def run(self, block: Block) -> Block:
        for i in block.instructions:
            pair = self.of_product.get(i)
            if pair is not None and pair.second_value is None:
                pair.held.append(i)
                self.deferred.update(dict.fromkeys(i.results, pair))
                continue
            self.append(i)
            if i in self.of_end:
                self.release(self.of_end[i])
        for pair in self.pairs:
            self.release(pair)
        return self.builder.block(block.parameters, [self.names.get(v, v) for v in block.results])

    def append(self, i: Instruction) -> None:
        for v in i.operands:
            if v in self.deferred:
                self.release(self.deferred[v], is_early=True)
        if self.is_by_tail(i):
            return
        pair = self.of_end.get(i)
        if pair is not None and pair.held:
            pair.second_value = self.recompute(pair)
        pair = self.of_product.get(i)
        self.builder.append(self.named(i if pair is None else self.reading_second_value(i, pair)))

    def is_by_tail(self, i: Instruction) -> bool:
        """Emit a function's value with its tail, or the derivative from the tail; return whether ``i`` is one of these.
        Without late products the derivative is computed together with the value."""
        pair = self.of_value.get(i) or self.of_derivative.get(i)
        if pair is None or pair.tail is None:
            return False
        b, z = self.builder.at(i.loc, i.result.name), self.named(i).operands[0]
        if i is pair.value:
            if pair.late:
                self.names[i.result], pair.kept = pair.tail.split(b, z)
            else:
                self.names[i.result] = b.emit(i.op, (z,))[0]
                self.names[pair.derivative.result] = pair.tail.slope(b, z)
        elif pair.kept is not None:
            self.names[i.result] = pair.tail.join(b, pair.kept)[1]
        return True

    def recompute(self, pair: Pair) -> Value:
        """Emit the value a second time, before the end."""
        b = self.builder.at(pair.end.loc, pair.value.result.name)
        after = self.names.get(pair.after, pair.after)
        if pair.tail is not None and pair.kept is not None:
            return pair.tail.join(b, b.ordered_after(pair.kept, after))[0]
        z = pair.value.operands[0]
        return b.emit(pair.value.op, (b.ordered_after(self.names.get(z, z), after),))[0]

    def named(self, i: Instruction) -> Instruction:
        return replace(i, operands=tuple(self.names.get(v, v) for v in i.operands))

    def reading_second_value(self, i: Instruction, pair: Pair) -> Instruction:
        second_value = pair.second_value
        if second_value is None:
            return i
        return replace(i, operands=tuple(second_value if v is pair.value.result else v for v in i.operands))

    def release(self, pair: Pair, is_early: bool = False) -> None:
        """Append the deferred products of a pair. ``is_early``: before its end, reading the first value."""
        held, pair.held = pair.held, []
        for i in held:
            for v in i.results:
                self.deferred.pop(v, None)
        for i in held:
            self.append(i) if is_early else self.builder.append(self.named(self.reading_second_value(i, pair)))
