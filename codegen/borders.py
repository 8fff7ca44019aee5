"""borders: loops whose iterations choose by their index run in parts in which the choice is one for all.

Requires: a kernel whose functions are spelled out. Keeps: its meaning, to the bit. What an element of a stencil is depends on
whether it lies inside: a condition on the index for each part that is padded, set or joined. Two ways:

- *Inside and outside.* Where everything is padded or set, the innermost loop becomes three: up to where all parts are inside,
  inside, which is nearly everywhere and has no conditions left, and the rest. Where rows are such loops, ``bands`` has the
  rest of all of them apart.
- *Pieces.* Where parts of one array are joined, as when it is rolled, neither is the rule. The innermost loop becomes one over
  the pieces between the places where conditions change; they are computed once a piece, and joined parts read by one load.

Cost: a copy of the body more, and a vector or two for each end of a row; some dozen instructions for each piece of one.
"""

from __future__ import annotations

from pullback.codegen.bands import bands
from pullback.codegen.pieces import Makers, Pieces, is_plain_loop
from pullback.ir.builder import Builder
from pullback.ir.structure import Block, Instruction, Value


def borders(kernel: Block) -> Block:
    """The body of a kernel, whose innermost loops run in parts where they choose by the index."""
    return _split(kernel, {}, frozenset(kernel.parameters))


def _split(block: Block, outer: Makers, given: frozenset[Value]) -> Block:
    """``outer``: what made the values of the blocks around. ``given``: the parameters of the kernel."""
    makers = dict(outer)
    made: list[Instruction] = []
    for i in block.instructions:
        for v in i.results:
            makers[v] = i
        band = bands(i, makers, given)
        if band is not None:
            band.write(Builder(i.loc, made))
            continue
        regions = tuple(_split(r, makers, given) for r in i.regions)
        again = Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i
        work = Pieces(again, makers, given) if is_plain_loop(again) else None
        write = work.way() if work is not None else None
        if write is not None:
            write(Builder(i.loc, made))
        else:
            made.append(again)
    return Block(block.parameters, tuple(made), block.results)
