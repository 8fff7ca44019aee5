"""pace: reorder a long loop body so that the divider is never idle.

Requires: the body of a loop before its functions are expanded, for a processor of the table. Keeps: its meaning, and the order
of stores. Quotients and roots occupy a separate unit for many cycles; consecutive ones stall the other units, and elsewhere
the divider is idle. So a quotient is placed as soon as the instructions before it have taken as long as the divider. If none
is ready, the instructions that the next one depends on come first; while the divider is behind, those that none depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pullback.codegen.cpu.loops.distribute_loops import LONG, LONGEST
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, Load, Store, Subview

MOST_BEHIND = 16
"""Greatest backlog of the divider in cycles that is modelled; a larger one is avoided by multiply-adds (``llvm.division``)."""


@dataclass(frozen=True)
class Work:
    """The divider cycles of an instruction after expansion, and its number of other instructions."""

    divider: int
    others: int


Weigh = Callable[[Instruction], Work]


def paced(block: Block, weigh: Weigh, others: int) -> Block:
    """Return a block with its instructions reordered; ``others`` instructions start per cycle.

    The block is unchanged if it is not split into phases, has no quotients, or loads after it has stored.
    """
    if not _is_plain(block):
        return block
    works = {i: weigh(i) for i in block.instructions if not isinstance(i.op, Store) and not _is_free(i)}
    length = sum(work.others for work in works.values())
    if not LONG <= length <= LONGEST or not any(work.divider for work in works.values()):
        return block
    producers = {v: i for i in block.instructions for v in i.results}
    ordered: dict[Instruction, None] = {}
    for i in (*_order(works, producers, others), *sorted(block.instructions, key=lambda i: isinstance(i.op, Store))):
        _append(i, producers, ordered)
    return replace(block, instructions=tuple(ordered))


def _append(i: Instruction, producers: Mapping[Value, Instruction], ordered: dict[Instruction, None]) -> None:
    """Append an instruction, after the missing instructions it depends on."""
    stack = [i]
    while stack:
        missing = [producers[v] for v in stack[-1].operands if v in producers and producers[v] not in ordered]
        stack += missing
        if not missing:
            ordered.setdefault(stack.pop())


def _is_plain(block: Block) -> bool:
    """Return whether a block has only plain instructions, and no load after a store."""
    kinds = Elementwise | Constant | Extent | Load | Store | Subview
    stores = [isinstance(i.op, Store) for i in block.instructions if isinstance(i.op, Load | Store)]
    return stores == sorted(stores) and all(isinstance(i.op, kinds) and not i.regions for i in block.instructions)


def _is_free(i: Instruction) -> bool:
    """Return whether an instruction is rematerialised at each use."""
    t = i.results[0].type
    return not isinstance(i.op, Elementwise) or (isinstance(t, ArrayType) and t.dtype is I64)


def _order(works: Mapping[Instruction, Work], producers: Mapping[Value, Instruction], others: int) -> Sequence[Instruction]:
    """Return the weighted instructions in their new order."""
    reads = {i: _sources(i, works, producers) for i in works}
    cycles_after = _divider_cycles_after(works, reads)
    remaining, placed, order = list(works), set[Instruction](), list[Instruction]()
    busy = work = 0.0
    while remaining:
        ready = [i for i in remaining if reads[i] <= placed]
        slow = [i for i in ready if works[i].divider]
        quick = [i for i in ready if not works[i].divider]
        if slow and (busy <= work or not quick):
            i = max(slow, key=lambda k: cycles_after[k])
        elif busy > work:
            i = min(quick, key=lambda k: cycles_after[k])
        else:
            i = max(quick, key=lambda k: cycles_after[k])
        order.append(i)
        placed.add(i)
        remaining.remove(i)
        work += works[i].others / others
        busy = min(busy + works[i].divider, work + MOST_BEHIND)
    return order


def _sources(i: Instruction, works: Mapping[Instruction, Work], producers: Mapping[Value, Instruction]) -> set[Instruction]:
    """Return the weighted instructions that an instruction depends on."""
    sources, seen, stack = set[Instruction](), set[Value](), [*i.operands]
    while stack:
        v = stack.pop()
        if v in seen or v not in producers:
            continue
        seen.add(v)
        if producers[v] in works:
            sources.add(producers[v])
        else:
            stack += producers[v].operands
    return sources


def _divider_cycles_after(
    works: Mapping[Instruction, Work], reads: Mapping[Instruction, set[Instruction]]
) -> dict[Instruction, int]:
    """Return, for each instruction, the least divider cycles of the instructions that depend on it."""
    cycles_after = dict.fromkeys(works, 0)
    for i in reversed(list(works)):
        for k in reads[i]:
            cycles_after[k] = max(cycles_after[k], cycles_after[i] + works[i].divider)
    return cycles_after
