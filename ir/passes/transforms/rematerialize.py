"""recomputed: what a product of the forward part reads is computed again for one of the gradient, beside its derivative.

    y = tanh(z); y @ w; ...; d * sech2(z); y.T @ e    ->    y = tanh(z); y @ w; ...; again = tanh(z); d * sech2(z); again.T @ e

The derivative is one of z, which is kept for it. Products take their operands from memory, so y would be kept beside z; as it is,
one exponential gives both where they are needed, and y goes after its last reader of the forward part. A y that only products
of the gradient read, as where a checkpoint keeps z, is computed there alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.elementwise.elementwise import Elementwise


@dataclass(eq=False)
class Pair:
    """A function's value, ``late`` products of the gradient that read it, and the ``end`` behind which they go: what multiplies
    the derivative by the cotangent ``after``."""

    value: Instruction
    late: Sequence[Instruction]
    end: Instruction
    after: Value
    again: Value | None = None
    held: list[Instruction] = field(default_factory=list)


def recomputed(function: Function) -> Function:
    """Compute anew what a derivative shares its exponential with, for the products of a gradient that read it.

    Requires: a func without instructions of transforms; other kinds are returned as they are. Keeps: results.
    """
    if function.kind != "func" or not any(_primitive(i) for i in function.instructions):
        return function
    pairs = _pairs(function.body)
    return replace(function, body=_Writer(pairs).run(function.body)) if pairs else function


def _primitive(i: Instruction) -> str:
    """The name of the function whose derivative an instruction computes beside it, or nothing."""
    return i.op.derivative_of if isinstance(i.op, Elementwise) else ""


def _is_late(i: Instruction) -> bool:
    return i.loc.note.startswith("pullback(")


def _pairs(block: Block) -> list[Pair]:
    readers: dict[Value, list[Instruction]] = defaultdict(list)
    for i in block.instructions:
        for v in dict.fromkeys(i.operands):
            readers[v].append(i)
    pairs: list[Pair] = []
    taken: set[Instruction] = set()
    for i in block.instructions:
        if not _primitive(i) or not _is_late(i) or len(readers[i.result]) != 1:
            continue
        (z,), (end,) = i.operands, readers[i.result]
        value = next((r for r in readers[z] if r.op.name == _primitive(i) and not _is_late(r)), None)
        after = next((v for v in end.operands if v is not i.result), None)
        if value is None or after is None or value.result in block.results or after.type != z.type:
            continue
        late = [r for r in readers[value.result] if _is_late(r)]
        early = [r for r in readers[value.result] if not _is_late(r)]
        is_apart = not early or any(isinstance(r.op, Contract) for r in early)
        if late and is_apart and all(isinstance(r.op, Contract) and r not in taken for r in late) and end not in taken:
            taken.update((*late, end))
            pairs.append(Pair(value, late, end, after))
    return pairs


class _Writer:
    """Writes a block with the late products of each pair behind its end. ``waiting``: the results of those that are held back."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self.of_product = {r: p for p in pairs for r in p.late}
        self.of_end = {p.end: p for p in pairs}
        self.waiting: dict[Value, Pair] = {}
        self.builder = Builder()

    def run(self, block: Block) -> Block:
        for i in block.instructions:
            pair = self.of_product.get(i)
            if pair is not None and pair.again is None:
                pair.held.append(i)
                self.waiting.update(dict.fromkeys(i.results, pair))
                continue
            self.append(i)
            if i in self.of_end:
                self.release(self.of_end[i])
        for pair in self.pairs:
            self.release(pair)
        return self.builder.block(block.parameters, block.results)

    def append(self, i: Instruction) -> None:
        for v in i.operands:
            if v in self.waiting:
                self.release(self.waiting[v], is_early=True)
        pair = self.of_end.get(i)
        if pair is not None and pair.held:
            b = self.builder.at(i.loc, pair.value.result.name)
            pair.again = b.emit(pair.value.op, (b.ordered_after(pair.value.operands[0], pair.after),))[0]
        pair = self.of_product.get(i)
        self.builder.append(i if pair is None else self.reading_again(i, pair))

    def reading_again(self, i: Instruction, pair: Pair) -> Instruction:
        again = pair.again
        if again is None:
            return i
        return replace(i, operands=tuple(again if v is pair.value.result else v for v in i.operands))

    def release(self, pair: Pair, is_early: bool = False) -> None:
        """Append what is held back; before the end it reads the value itself."""
        held, pair.held = pair.held, []
        for i in held:
            for v in i.results:
                self.waiting.pop(v, None)
        for i in held:
            self.append(i) if is_early else self.builder.append(self.reading_again(i, pair))
