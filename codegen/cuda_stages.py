"""How a kernel mapped for CUDA becomes launches: its top-level loops one after the other, and what runs between them.

What one launch computes is seen by the next one, so loops that read what others wrote are launches of their own. A value made
in one launch and read in a later one goes through memory; everything else is computed again where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pullback.codegen.cuda_loops import OWN, PRIVATE, Loops, perfect_nest
from pullback.ir.ops.kernel import Fail, For, If, Load, Store
from pullback.ir.ops.library import Library
from pullback.ir.structure import Function, Instruction, Value, walk


@dataclass(eq=False)
class Stage:
    """One launch. ``kind``: "grid" (an iteration a thread), "block" (an iteration a block), "serial" (one block), "one" (one
    thread), "gemm" (tiles), "finish" (one block joins the partial results of the launch before), "fold" (adds the copies of
    ``ref`` that blocks of ``loop`` wrote). ``tail``: what one thread runs after the loop."""

    kind: str
    loop: Instruction | None = None
    nest: tuple[Instruction, ...] = ()
    fates: dict[Value, str] = field(default_factory=dict)
    ref: Value | None = None
    tail: list[Instruction] = field(default_factory=list)

    @property
    def takes_tail(self) -> bool:
        return self.kind in ("serial", "one", "finish")

    def made(self) -> set[Value]:
        """The values that are made here and cannot be computed again."""
        found = {v for i in self.tail for v in i.results}
        if self.loop is not None and self.kind in ("serial", "finish"):
            found.update(self.loop.results)
        return found

    def instructions(self) -> Iterator[Instruction]:
        """The instructions whose operands are needed here; a finishing stage needs a loop's operands, not its body."""
        yield from self.tail
        if self.loop is not None and self.kind != "fold":
            yield self.loop

    def reads(self) -> Iterator[Value]:
        for i in self.instructions():
            if i is self.loop and self.kind == "finish":
                yield from i.operands[1:]
                continue
            yield from i.operands
            for region in i.regions:
                for inner in walk(region):
                    yield from inner.operands
                    for block in inner.regions:
                        yield from block.results
                yield from region.results


def stages(kernel: Function, loops: Loops) -> list[Stage]:
    """The launches of a kernel, in order."""
    found: list[Stage] = []
    written = loops.stored(kernel.body)

    def append(i: Instruction) -> None:
        if not found or not found[-1].takes_tail:
            found.append(Stage("one"))
        found[-1].tail.append(i)

    for i in kernel.body.instructions:
        match i.op:
            case For():
                if any(isinstance(k.op, Library) for k in walk(i.regions[0])):
                    found.append(Stage("gemm", i))
                elif i.params.get("map") in ("grid", "block"):
                    found.extend(_shared_out(i, loops))
                elif any(k.params.get("map") == "lane" for k in walk(i.regions[0])):
                    found.append(Stage("serial", i))
                else:
                    append(i)
            case Library():
                found.append(Stage("gemm", i))
            case Store() | Fail() | If():
                append(i)
            case Load() if loops.place(i.operands[0])[0] in written:
                append(i)
    return found


def _shared_out(loop: Instruction, loops: Loops) -> Iterator[Stage]:
    how = loop.params["map"]
    nest = [i for i in perfect_nest(loop) if i.params.get("map") == how]
    fates = loops.fates(nest) or {}
    yield Stage(how, loop, tuple(nest), fates)
    for ref, fate in fates.items():
        if fate not in (OWN, PRIVATE):
            yield Stage("fold", loop, (), fates, ref)
    if "combine" in loop.params:
        yield Stage("finish", loop)
