"""Maps of a CUDA kernel with transposed loads, computed tile by tile.

A load is transposed if its last index moves with another counter than the innermost one, so that adjacent threads would read
distant addresses. The threads of a block first fetch a tile of 32 by 32 elements with contiguous loads into shared memory,
whose rows are padded by one element to avoid bank conflicts between the elements of a column, and then read it transposed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pullback.codegen.analysis.independence import Loops
from pullback.codegen.cuda.source.names import bare, loaded, stored_name
from pullback.codegen.cuda.source.statements import Writer, counters_from_index
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load

SIDE = 32
"""Rows and columns of a tile."""
MOST_TILES = 4
"""Most transposed loads of a body: their tiles must fit in shared memory."""


@dataclass(frozen=True, eq=False)
class TransposedLoads:
    """The loop along which transposed loads are contiguous, and these loads, each with the instructions that compute its
    index."""

    across: Instruction
    loads: dict[Instruction, list[Instruction]]


def find_transposed_loads(nest: Sequence[Instruction], loops: Loops) -> TransposedLoads | None:
    """Return the transposed loads of a nest mapped to a grid; None if there are none."""
    *outer, inner = nest
    region = inner.regions[0]
    if not outer or any(i.regions for i in region.instructions):
        return None
    inside = {v for i in walk(nest[0].regions[0]) for v in i.results} | {i.regions[0].parameters[0] for i in nest}
    stored = loops.stored(region)
    candidates: dict[Instruction, dict[Instruction, list[Instruction]]] = {}
    for i in region.instructions:
        if not isinstance(i.op, Load) or i.op.masked or i.operands[0] in stored or len(i.operands) < 3:
            continue
        *leading, last = i.operands[1:]
        definitions = _definitions_of(region.instructions, i.operands[1:])
        counter = inner.regions[0].parameters[0]
        if any(isinstance(k.op, Load) for k in definitions) or not any(loops.varies_with(v, counter, inside) for v in leading):
            continue
        for loop in outer:
            if loops.varies_with(last, loop.regions[0].parameters[0], inside):
                candidates.setdefault(loop, {})[i] = definitions
    if not candidates:
        return None
    across = max(candidates, key=lambda loop: len(candidates[loop]))
    return TransposedLoads(across, dict(list(candidates[across].items())[:MOST_TILES]))


def _definitions_of(instructions: Sequence[Instruction], values: Sequence[Value]) -> list[Instruction]:
    """Return the instructions on which values depend, in order."""
    needed = set(values)
    definitions: list[Instruction] = []
    for i in reversed(instructions):
        if not needed.isdisjoint(i.results):
            definitions.insert(0, i)
            needed.update(i.operands)
    return definitions


def write_tiles(w: Writer, nest: Sequence[Instruction], transposed: TransposedLoads) -> None:
    """Emit the statements of a launch with blocks of any multiple of 32 threads."""
    inner = nest[-1]
    counters, counts = [w.counter(i) for i in nest], [bare(w.value(i.operands[0])) for i in nest]
    sides = (nest.index(transposed.across), len(nest) - 1)
    tiles = {}
    for load in transposed.loads:
        t = load.operands[0].type
        assert isinstance(t, RefType)
        tiles[load] = w.names.fresh(f"{w.locations[load.operands[0]].text}_tile")
        w.line(f"__shared__ {stored_name(t.dtype)} {tiles[load]}[{SIDE}][{SIDE + 1}];")
    w.line(f"int column = threadIdx.x % {SIDE}, step = blockDim.x / {SIDE};")
    shared = [w.name("tiles", f"({n} + {SIDE - 1}) / {SIDE}") if k in sides else n for k, n in enumerate(counts)]
    firsts = [w.names.fresh(f"first_{c}") if k in sides else c for k, c in enumerate(counters)]
    tile = w.names.fresh("tile")
    with w.braces(f"for (long long {tile} = blockIdx.x; {tile} < {' * '.join(shared)}; {tile} += gridDim.x) {{"):
        texts = counters_from_index(tile, firsts, shared)
        scaled = [f"{name} = ({text.split(' = ')[1]}) * {SIDE}" if k in sides else text
                  for k, (name, text) in enumerate(zip(firsts, texts, strict=True))]  # fmt: skip
        w.line(f"long long {', '.join(scaled)};")
        across, along = ((counters[k], firsts[k], counts[k]) for k in sides)
        with _tile_elements(w, along, across):
            for outer in nest[:-1]:
                _pure(w, outer, nest)
            indices = {i for definitions in transposed.loads.values() for i in definitions}
            for i in inner.regions[0].instructions:
                if i in indices:
                    w.instruction(i)
            for load in transposed.loads:
                w.line(f"{tiles[load]}[row][column] = {w.at(w.locations[load.operands[0]], load.operands[1:])};")
        w.sync()
        with _tile_elements(w, across, along):
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
def _tile_elements(w: Writer, row: tuple[str, str, str], column: tuple[str, str, str]) -> Iterator[None]:
    """Emit the loop over the elements of a tile that a thread takes: one counter moves along the rows, the other along the
    columns. Each is passed as its name, its first value in the tile and its trip count."""
    (i, first, count), (j, column_start, column_count) = row, column
    with w.braces(f"for (int row = threadIdx.x / {SIDE}; row < {SIDE}; row += step) {{"):
        w.line(f"long long {i} = {first} + row, {j} = {column_start} + column;")
        with w.braces(f"if ({i} < {count} && {j} < {column_count}) {{"):
            yield
