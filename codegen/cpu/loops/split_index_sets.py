"""borders: loops whose iterations choose by their index run in parts in which the choice is one for all.

Requires: a kernel whose functions are spelled out. Keeps: its meaning, to the bit but for
the order of sums. What an element of a stencil is depends on whether it lies inside: a condition on the index for each part that
is padded, set or joined. Two ways:

- *Inside and outside.* Where everything is padded or set, the innermost loop becomes three: up to where all parts are inside,
  inside, which is nearly everywhere and has no conditions left, and the rest. Where rows are such loops, ``bands`` has the
  rest of all of them apart.
- *Pieces.* Where parts of one array are joined, as when it is rolled, neither is the rule. The innermost loop becomes one over
  the pieces between the places where conditions change; they are computed once a piece, and joined parts read by one load.

A loop that combines what its iterations yield runs in three as well: first the inside is combined, then the ends.

Cost: a copy of the body more, and a vector or two for each end of a row; some dozen instructions for each piece of one.
"""

from __future__ import annotations

from pullback.codegen.cpu.loops.index_set_pieces import Makers, Pieces, is_plain_loop
from pullback.codegen.cpu.loops.stencil_rows import bands
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import For


def borders(kernel: Block) -> Block:
    """The body of a kernel, whose innermost loops run in parts where they choose by the index."""
    return _split(kernel, {}, frozenset(kernel.parameters), False)


def _split(block: Block, outer: Makers, given: frozenset[Value], is_nested: bool) -> Block:
    """``outer``: what made the values of the blocks around. ``given``: the parameters of the kernel. ``is_nested``: the block is
    run by each iteration of a loop, and its reductions may be short, such as one over the taps of a filter: three loops would
    take longer than one that chooses."""
    makers = dict(outer)
    made: list[Instruction] = []
    for i in block.instructions:
        for v in i.results:
            makers[v] = i
        band = bands(i, makers, given)
        if band is not None:
            band.write(Builder(i.loc, made))
            continue
        is_inner = is_nested or (isinstance(i.op, For) and i.params.get("map") != "core")
        regions = tuple(_split(r, makers, given, is_inner) for r in i.regions)
        again = Instruction(i.op, i.operands, i.results, i.params, regions, i.loc) if regions else i
        is_short = is_nested and bool(i.results)
        work = Pieces(again, makers, given) if is_plain_loop(again) and not is_short else None
        write = work.way() if work is not None else None
        if write is not None:
            write(Builder(i.loc, made))
        else:
            made.append(again)
    return Block(block.parameters, tuple(made), block.results)
