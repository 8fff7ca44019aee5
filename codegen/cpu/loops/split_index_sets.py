"""borders: split the index sets of loops that select by their index, so that the selection is constant in each part.

Requires: a kernel whose functions are expanded. Keeps: its meaning, to the bit but for the order of sums. In a stencil, each
padded, set or joined part adds a condition on the index. There are two ways to split:

- *Inside and outside.* If all parts are padded or set, or joined or rolled at a constant distance from an end, the innermost
  loop becomes three: before the range where all conditions hold, that range, which is nearly everything and needs no
  conditions, and the rest. If rows are such loops, ``bands`` runs the ends of several rows together.
- *Pieces.* If parts of one array are joined elsewhere, as in a roll by many positions, the innermost loop becomes a loop over the
  pieces between the positions where conditions change. Conditions are computed once per piece, and joined parts are read by
  one load.

A reduction is also split: the inside is reduced first, then the ends; or the pieces in order.

Cost: one more copy of the body and one or two vectors for each end of a row; some dozen instructions per piece.
"""

from __future__ import annotations

from pullback.codegen.cpu.loops.index_set_pieces import Pieces, Producers, is_plain_loop
from pullback.codegen.cpu.loops.stencil_rows import bands
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import For


def borders(kernel: Block) -> Block:
    """Return the body of a kernel whose innermost loops are split where they select by the index."""
    return _split(kernel, {}, frozenset(kernel.parameters), False)


def _split(block: Block, outer: Producers, parameters: frozenset[Value], is_nested: bool) -> Block:
    """Split the loops of a block.

    ``outer``: the producers of the values of enclosing blocks. ``parameters``: those of the kernel. ``is_nested``: the block
    is in a loop, where reductions may be short, such as one over the taps of a filter: three loops would be slower than one
    that selects.
    """
    producers = dict(outer)
    instructions: list[Instruction] = []
    for i in block.instructions:
        for v in i.results:
            producers[v] = i
        band = bands(i, producers, parameters)
        if band is not None:
            band.write(Builder(i.loc, instructions))
            continue
        is_inner = is_nested or (isinstance(i.op, For) and i.params.get("map") != "core")
        regions = tuple(_split(r, producers, parameters, is_inner) for r in i.regions)
        rebuilt = Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i
        is_short = is_nested and bool(i.results)
        work = Pieces(rebuilt, producers, parameters) if is_plain_loop(rebuilt) and not is_short else None
        write = work.choose_writer() if work is not None else None
        if write is not None:
            write(Builder(i.loc, instructions))
        else:
            instructions.append(rebuilt)
    return Block(block.parameters, tuple(instructions), block.results)
