"""How a kernel mapped for CUDA becomes launches: its top-level loops one after the other, and what runs between them.

What one launch computes is seen by the next one, so loops that read what others wrote are launches of their own. A value made
in one launch and read in a later one goes through memory; everything else is computed again where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pullback.codegen.analysis.independence import OWN, PRIVATE, Loops
from pullback.codegen.analysis.library_loops import batch_of, calls_library
from pullback.codegen.cuda.schedule.map_loops import linear, perfect_nest
from pullback.codegen.cuda.schedule.select_tiled_matmul import has_product
from pullback.codegen.cuda.source.transposed_tiles import Turned, turned
from pullback.ir.core.structure import Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Fail, For, If, Load, Store, scanned_element
from pullback.ir.ops.kernel.matmul import Product
from pullback.ir.ops.library.routines import Library
from pullback.ir.ops.library.sort import RowSort

TILES = ("tiles_few", "tiles_large", "tiles_small", "tiles_part", "tiles_join")


@dataclass(eq=False)
class Stage:
    """One launch. ``kind``: "grid" (an iteration a thread), "block" (an iteration a block), "serial" (one block), "one" (one
    thread), "routine" (a block does what a library does, for each of a batch), "finish" (one block joins the partial results of
    the launch before), "fold" (adds the copies of ``ref`` that blocks of ``loop`` wrote), and of a scan in chunks, which is the
    last of ``nest``, "scan_totals", "scan_begin" and "scan"; of a sort, ``loop``, "sort_rows" (all of it), "sort_count",
    "sort_begin" and "sort_place" of each ``turn``; of a product, ``loop`` or in it, "tiles_few", "tiles_large", "tiles_small",
    "tiles_part" and "tiles_join" (see ``cuda_launch.Tiles``). ``turned``: what a grid reads across memory. ``tail``: what one
    thread runs after the loop."""

    kind: str
    loop: Instruction | None = None
    nest: tuple[Instruction, ...] = ()
    fates: dict[Value, str] = field(default_factory=dict)
    ref: Value | None = None
    tail: list[Instruction] = field(default_factory=list)
    turn: int = 0
    turned: Turned | None = None
    only: frozenset[Instruction] | None = None
    """Of what is in the loop, the instructions that the launch needs; None: all."""

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
        if self.kind == "scan_totals":
            yield from pre_of(self.nest[-1])[1]
        for i in self.instructions():
            if i is self.loop and self.kind == "finish":
                yield from i.operands[1:]
                continue
            yield from i.operands
            for region in i.regions:
                for inner in walk(region):
                    if self.only is not None and inner not in self.only:
                        continue
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
                if calls_library(i) and batch_of(i):
                    found.append(Stage("routine", i))
                elif has_product(i):
                    found.extend(Stage(kind, i) for kind in TILES)
                elif scan_of(i) is not None:
                    found.extend(_scanned(i))
                elif i.params.get("map") in ("grid", "block"):
                    found.extend(_shared_out(i, loops))
                elif calls_library(i) or any(k.params.get("map") == "lane" for k in walk(i.regions[0])):
                    found.append(Stage("serial", i))
                else:
                    append(i)
            case RowSort():
                found.append(Stage("sort_rows", i))
                steps = ("sort_count", "sort_begin", "sort_place")
                found.extend(Stage(kind, i, turn=turn) for turn in range(i.operands[0].type.dtype.bytes) for kind in steps)
            case Product():
                found.extend(Stage(kind, i) for kind in TILES)
            case Library():
                found.append(Stage("routine", i))
            case Store() | Fail() | If():
                append(i)
            case Load() if loops.place(i.operands[0])[0] in written:
                append(i)
    return found


def product_of(i: Instruction) -> Instruction:
    """The call of a library in an instruction."""
    return next(k for k in (i, *(k for r in i.regions for k in walk(r))) if isinstance(k.op, Library))


def is_paired(call: Instruction) -> bool:
    """Whether a routine is called on complex numbers."""
    assert isinstance(call.op, Library)
    return bool(call.op.pairs([v.type for v in call.operands]))


def scan_of(loop: Instruction) -> list[Instruction] | None:
    """The loops over the lines of a scan whose chunks are shared out, and the scan."""
    nest = [loop]
    while not nest[-1].params.get("scan") and nest[-1].params.get("map") != "chunk":
        inner = [i for i in nest[-1].regions[0].instructions if isinstance(i.op, For)]
        if len(inner) != 1 or nest[-1].params.get("map") not in ("grid", "block"):
            return None
        nest.append(inner[0])
    return nest if nest[-1].params.get("map") in ("lane", "chunk") else None


def _scanned(loop: Instruction) -> Iterator[Stage]:
    nest = scan_of(loop)
    assert nest is not None
    around = [i for outer in nest[:-1] for i in outer.regions[0].instructions]
    made, _ = pre_of(nest[-1])
    yield Stage("scan_totals", loop, tuple(nest), only=frozenset((*around, *made)))
    again = () if nest[-1].params.get("scan") else (*around, *made)
    yield Stage("scan_begin", loop, tuple(nest), only=frozenset((*nest, *again)))
    yield Stage("scan", loop, tuple(nest))
    if any(i.params.get("combine") for i in nest):
        yield Stage("finish", loop)


def pre_of(loop: Instruction) -> tuple[list[Instruction], list[Value]]:
    """The instructions of a loop's body that make the elements that its scans take in, and these elements; of what is linear in
    what it carries, its factor and its term."""
    (region,) = loop.regions
    scanned = zip(loop.params.get("scan", ()), region.parameters[1:], region.results)
    elements = [v for name, before, after in scanned if (v := scanned_element(region, name, before, after)) is not None]
    elements = elements or list(linear(loop) or ())
    needed = set(elements)
    made: list[Instruction] = []
    for i in reversed(region.instructions):
        if not needed.isdisjoint(i.results):
            made.insert(0, i)
            needed.update(i.operands)
    return made, elements


def _shared_out(loop: Instruction, loops: Loops) -> Iterator[Stage]:
    how = loop.params["map"]
    nest = [i for i in perfect_nest(loop) if i.params.get("map") == how]
    fates = loops.fates(nest) or {}
    yield Stage(how, loop, tuple(nest), fates, turned=turned(nest, loops) if how == "grid" else None)
    for ref, fate in fates.items():
        if fate not in (OWN, PRIVATE):
            yield Stage("fold", loop, (), fates, ref)
    if "combine" in loop.params:
        yield Stage("finish", loop)
