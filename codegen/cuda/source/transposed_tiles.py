"""Maps of one CUDA kernel that read across memory: their elements are computed tile by tile.

A load is turned if its last index moves with another counter than the innermost one: neighbouring threads would read places far
from each other. The threads of a block first fetch a tile of 32 by 32 the way it lies, into shared memory, whose rows are one
element longer so that its banks serve a column at once, and then read it the other way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pullback.codegen.analysis.independence import Loops
from pullback.codegen.cuda.source.names import bare, loaded, stored_name
from pullback.codegen.cuda.source.statements import Writer, digits
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load

SIDE = 32
MOST_TILES = 4
"""So many loads of a body are turned at most: their tiles have room in shared memory."""


@dataclass(frozen=True, eq=False)
class Turned:
    """The loop of a nest along which turned loads lie in memory, and these loads, each with what makes its index."""

    across: Instruction
    loads: dict[Instruction, list[Instruction]]


def turned(nest: Sequence[Instruction], loops: Loops) -> Turned | None:
    """What a nest of a grid reads across memory; None if nothing."""
    *outer, inner = nest
    region = inner.regions[0]
    if not outer or any(i.regions for i in region.instructions):
        return None
    inside = {v for i in walk(nest[0].regions[0]) for v in i.results} | {i.regions[0].parameters[0] for i in nest}
    stored = loops.stored(region)
    found: dict[Instruction, dict[Instruction, list[Instruction]]] = {}
    for i in region.instructions:
        if not isinstance(i.op, Load) or i.op.masked or i.operands[0] in stored or len(i.operands) < 3:
            continue
        *early, last = i.operands[1:]
        made = _makers(region.instructions, i.operands[1:])
        counter = inner.regions[0].parameters[0]
        if any(isinstance(k.op, Load) for k in made) or not any(loops.moves_with(v, counter, inside) for v in early):
            continue
        for loop in outer:
            if loops.moves_with(last, loop.regions[0].parameters[0], inside):
                found.setdefault(loop, {})[i] = made
    if not found:
        return None
    across = max(found, key=lambda loop: len(found[loop]))
    return Turned(across, dict(list(found[across].items())[:MOST_TILES]))


def _makers(instructions: Sequence[Instruction], values: Sequence[Value]) -> list[Instruction]:
    """Of some instructions those that make values."""
    needed = set(values)
    made: list[Instruction] = []
    for i in reversed(instructions):
        if not needed.isdisjoint(i.results):
            made.insert(0, i)
            needed.update(i.operands)
    return made


def write_tiles(w: Writer, nest: Sequence[Instruction], found: Turned) -> None:
    """The statements of a launch, of blocks of any multiple of 32 threads."""
    inner = nest[-1]
    counters, counts = [w.counter(i) for i in nest], [bare(w.value(i.operands[0])) for i in nest]
    sides = (nest.index(found.across), len(nest) - 1)
    tiles = {}
    for load in found.loads:
        t = load.operands[0].type
        assert isinstance(t, RefType)
        tiles[load] = w.names.fresh(f"{w.places[load.operands[0]].text}_tile")
        w.line(f"__shared__ {stored_name(t.dtype)} {tiles[load]}[{SIDE}][{SIDE + 1}];")
    w.line(f"int column = threadIdx.x % {SIDE}, step = blockDim.x / {SIDE};")
    shared = [w.name("tiles", f"({n} + {SIDE - 1}) / {SIDE}") if k in sides else n for k, n in enumerate(counts)]
    firsts = [w.names.fresh(f"first_{c}") if k in sides else c for k, c in enumerate(counters)]
    tile = w.names.fresh("tile")
    with w.braces(f"for (long long {tile} = blockIdx.x; {tile} < {' * '.join(shared)}; {tile} += gridDim.x) {{"):
        texts = digits(tile, firsts, shared)
        scaled = [f"{name} = ({text.split(' = ')[1]}) * {SIDE}" if k in sides else text
                  for k, (name, text) in enumerate(zip(firsts, texts, strict=True))]  # fmt: skip
        w.line(f"long long {', '.join(scaled)};")
        across, along = ((counters[k], firsts[k], counts[k]) for k in sides)
        with _rows(w, along, across):
            for outer in nest[:-1]:
                _pure(w, outer, nest)
            indices = {i for made in found.loads.values() for i in made}
            for i in inner.regions[0].instructions:
                if i in indices:
                    w.instruction(i)
            for load in found.loads:
                w.line(f"{tiles[load]}[row][column] = {w.at(w.places[load.operands[0]], load.operands[1:])};")
        w.sync()
        with _rows(w, across, along):
            for outer in nest[:-1]:
                _pure(w, outer, nest)
            for i in inner.regions[0].instructions:
                if i in tiles:
                    w.comment(i.loc)
                    w.let(i.result, loaded(f"{tiles[i]}[column][row]", i.result.type.dtype))
                else:
                    w.instruction(i)
        w.sync()


def _pure(w: Writer, outer: Instruction, nest: Sequence[Instruction]) -> None:
    for i in outer.regions[0].instructions:
        if i not in nest:
            w.instruction(i)


@contextmanager
def _rows(w: Writer, row: tuple[str, str, str], column: tuple[str, str, str]) -> Iterator[None]:
    """The elements of a tile that a thread takes: one counter goes by rows, the other by columns. Of each: its name, its first
    value in the tile, and how many it counts in all."""
    (i, first, count), (j, beside, many) = row, column
    with w.braces(f"for (int row = threadIdx.x / {SIDE}; row < {SIDE}; row += step) {{"):
        w.line(f"long long {i} = {first} + row, {j} = {beside} + column;")
        with w.braces(f"if ({i} < {count} && {j} < {many}) {{"):
            yield
