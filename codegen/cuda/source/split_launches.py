"""Split a kernel mapped for CUDA into launches: its top-level loops, one after the other, and the instructions between them.

A launch sees what earlier launches wrote, so a loop that reads what another one wrote is a launch of its own. A value that is
computed once, by one launch, and read in a later one goes through memory; any other value is recomputed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from pullback.codegen.analysis.independence import OWN, PRIVATE, Loops
from pullback.codegen.analysis.library_loops import batch_of, calls_library
from pullback.codegen.cuda.schedule.map_loops import linear_recurrence, perfect_nest
from pullback.codegen.cuda.schedule.select_tiled_matmul import has_product
from pullback.codegen.cuda.source.transposed_tiles import TransposedLoads, find_transposed_loads
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Fail, For, If, Load, Store, scanned_element
from pullback.ir.ops.kernel.matmul import Product
from pullback.ir.ops.library.routines import Library
from pullback.ir.ops.library.sort import RowSort

TILE_KINDS = ("tiles_few", "tiles_large", "tiles_small", "tiles_part", "tiles_join")
"""The kinds of launches of a matrix product, of which the extents select some."""


@dataclass(eq=False)
class Stage:
    """One launch. ``kind``:

    - "grid": a thread per iteration; "block": a block per iteration; "serial": one block; "one": one thread
    - "routine": a block runs a library routine, for each element of a batch
    - "finish": one block combines the partial results of the previous launch
    - "fold": adds up the copies of ``ref`` that blocks of ``loop`` wrote
    - "scan_totals", "scan_begin", "scan": a scan in chunks, which is the last loop of ``nest``
    - "sort_rows": a complete sort, which is ``loop``; "sort_count", "sort_begin", "sort_place": the steps of pass ``sort_pass``
    - "tiles_few", "tiles_large", "tiles_small", "tiles_part", "tiles_join": a product, which is ``loop`` or inside it (see
      ``launch.Tiles``)

    ``transposed``: the transposed loads of a grid. ``tail``: the instructions that one thread runs after the loop.
    """

    kind: str
    loop: Instruction | None = None
    nest: tuple[Instruction, ...] = ()
    fates: dict[Value, str] = field(default_factory=dict)
    ref: Value | None = None
    tail: list[Instruction] = field(default_factory=list)
    sort_pass: int = 0
    transposed: TransposedLoads | None = None
    only: frozenset[Instruction] | None = None
    """The instructions of the loop that the launch needs; None: all."""

    @property
    def takes_tail(self) -> bool:
        return self.kind in ("serial", "one", "finish")

    def computed(self) -> set[Value]:
        """Return the values that are computed here and cannot be recomputed elsewhere."""
        values = {v for i in self.tail for v in i.results}
        if self.loop is not None and self.kind in ("serial", "finish"):
            values.update(self.loop.results)
        return values

    def instructions(self) -> Iterator[Instruction]:
        """Yield the instructions whose operands the launch needs; a finishing stage needs a loop's operands, not its body."""
        yield from self.tail
        if self.loop is not None and self.kind != "fold":
            yield self.loop

    def reads(self) -> Iterator[Value]:
        """Yield the values that the launch reads."""
        if self.kind == "scan_totals":
            yield from scan_inputs(self.nest[-1])[1]
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
    """Return the launches of a kernel, in order."""
    result: list[Stage] = []
    written = loops.stored(kernel.body)

    def append(i: Instruction) -> None:
        if not result or not result[-1].takes_tail:
            result.append(Stage("one"))
        result[-1].tail.append(i)

    for i in kernel.body.instructions:
        match i.op:
            case For():
                if calls_library(i) and batch_of(i):
                    result.append(Stage("routine", i))
                elif has_product(i):
                    result.extend(Stage(kind, i) for kind in TILE_KINDS)
                elif scan_of(i) is not None:
                    result.extend(_scan_stages(i))
                elif i.params.get("map") in ("grid", "block"):
                    result.extend(_distributed_stages(i, loops))
                elif calls_library(i) or any(k.params.get("map") == "lane" for k in walk(i.regions[0])):
                    result.append(Stage("serial", i))
                else:
                    append(i)
            case RowSort():
                result.append(Stage("sort_rows", i))
                steps = ("sort_count", "sort_begin", "sort_place")
                result.extend(
                    Stage(kind, i, sort_pass=sort_pass) for sort_pass in range(i.operands[0].type.dtype.bytes) for kind in steps
                )
            case Product():
                result.extend(Stage(kind, i) for kind in TILE_KINDS)
            case Library():
                result.append(Stage("routine", i))
            case Store() | Fail() | If():
                append(i)
            case Load() if loops.root_and_index(i.operands[0])[0] in written:
                append(i)
    return result


def library_call_of(i: Instruction) -> Instruction:
    """Return the library call in an instruction."""
    return next(k for k in (i, *(k for r in i.regions for k in walk(r))) if isinstance(k.op, Library))


def is_paired(call: Instruction) -> bool:
    """Return whether a routine is called on complex numbers."""
    assert isinstance(call.op, Library)
    return bool(call.op.pairs([v.type for v in call.operands]))


def scan_of(loop: Instruction) -> list[Instruction] | None:
    """Return the loops over the lines of a scan whose chunks are distributed, and the scan; None if a loop is no such scan."""
    nest = [loop]
    while not nest[-1].params.get("scan") and nest[-1].params.get("map") != "chunk":
        inner = [i for i in nest[-1].regions[0].instructions if isinstance(i.op, For)]
        if len(inner) != 1 or nest[-1].params.get("map") not in ("grid", "block"):
            return None
        nest.append(inner[0])
    return nest if nest[-1].params.get("map") in ("lane", "chunk") else None


def _scan_stages(loop: Instruction) -> Iterator[Stage]:
    nest = scan_of(loop)
    assert nest is not None
    around = [i for outer in nest[:-1] for i in outer.regions[0].instructions]
    definitions, _ = scan_inputs(nest[-1])
    yield Stage("scan_totals", loop, tuple(nest), only=frozenset((*around, *definitions)))
    recomputed = () if nest[-1].params.get("scan") else (*around, *definitions)
    yield Stage("scan_begin", loop, tuple(nest), only=frozenset((*nest, *recomputed)))
    yield Stage("scan", loop, tuple(nest))
    if any(i.params.get("combine") for i in nest):
        yield Stage("finish", loop)


def scan_inputs(loop: Instruction) -> tuple[list[Instruction], list[Value]]:
    """Return the elements that a loop's scans take in, preceded by the instructions that compute them; for a linear
    recurrence, its factor and its addend."""
    (region,) = loop.regions
    scanned = zip(loop.params.get("scan", ()), region.parameters[1:], region.results)
    elements = [v for name, before, after in scanned if (v := scanned_element(region, name, before, after)) is not None]
    elements = elements or list(linear_recurrence(loop) or ())
    needed = set(elements)
    definitions: list[Instruction] = []
    for i in reversed(region.instructions):
        if not needed.isdisjoint(i.results):
            definitions.insert(0, i)
            needed.update(i.operands)
    return definitions, elements


def _distributed_stages(loop: Instruction, loops: Loops) -> Iterator[Stage]:
    how = loop.params["map"]
    nest = [i for i in perfect_nest(loop) if i.params.get("map") == how]
    fates = loops.fates(nest) or {}
    yield Stage(how, loop, tuple(nest), fates, transposed=find_transposed_loads(nest, loops) if how == "grid" else None)
    for ref, fate in fates.items():
        if fate not in (OWN, PRIVATE):
            yield Stage("fold", loop, (), fates, ref)
    if "combine" in loop.params:
        yield Stage("finish", loop)
