"""pace: a long loop body in an order in which the divider has work all the time.

Requires: the body of a loop before its functions are spelled out, for a processor of the table. Keeps: its meaning, and the order
of what is stored. Quotients and roots take a unit of their own for many cycles; where several of them come one after the other,
the other units wait for it, and elsewhere it has nothing to do. So a quotient is put where the other instructions before it
have taken as long as the divider, and if there is none to put, what leads to the next one; while the divider is behind, what
leads to none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.codegen.cpu.loops.distribute_loops import LONG, LONGEST
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, Load, Store, Subview

MOST_BEHIND = 16
"""So many cycles other units wait for the divider, at most: what is more comes of multiply-adds (``llvm_division``)."""


@dataclass(frozen=True)
class Work:
    """The cycles that an instruction, spelled out, takes of the divider, and the instructions of other units."""

    divider: int
    others: int


Weigh = Callable[[Instruction], Work]


def paced(block: Block, weigh: Weigh, others: int) -> Block:
    """The body with its instructions in another order, ``others`` of which start in a cycle; the same if it is not cut into
    phases, has no quotients, or reads after it has written."""
    if not _is_plain(block):
        return block
    works = {i: weigh(i) for i in block.instructions if not isinstance(i.op, Store) and not _is_free(i)}
    length = sum(work.others for work in works.values())
    if not LONG <= length <= LONGEST or not any(work.divider for work in works.values()):
        return block
    made = {v: i for i in block.instructions for v in i.results}
    found: dict[Instruction, None] = {}
    for i in (*_order(works, made, others), *sorted(block.instructions, key=lambda i: isinstance(i.op, Store))):
        _append(i, made, found)
    return replace(block, instructions=tuple(found))


def _append(i: Instruction, made: Mapping[Value, Instruction], found: dict[Instruction, None]) -> None:
    """An instruction after what it reads that is not there yet."""
    stack = [i]
    while stack:
        missing = [made[v] for v in stack[-1].operands if v in made and made[v] not in found]
        stack += missing
        if not missing:
            found.setdefault(stack.pop())


def _is_plain(block: Block) -> bool:
    kinds = Elementwise | Constant | Extent | Load | Store | Subview
    stores = [isinstance(i.op, Store) for i in block.instructions if isinstance(i.op, Load | Store)]
    return stores == sorted(stores) and all(isinstance(i.op, kinds) and not i.regions for i in block.instructions)


def _is_free(i: Instruction) -> bool:
    """Whether it is made where it is read."""
    t = i.results[0].type
    return not isinstance(i.op, Elementwise) or (isinstance(t, ArrayType) and t.dtype is I64)


def _order(works: Mapping[Instruction, Work], made: Mapping[Value, Instruction], others: int) -> Sequence[Instruction]:
    reads = {i: _sources(i, works, made) for i in works}
    ahead = _ahead(works, reads)
    waiting, placed, order = list(works), set[Instruction](), list[Instruction]()
    busy = work = 0.0
    while waiting:
        ready = [i for i in waiting if reads[i] <= placed]
        slow = [i for i in ready if works[i].divider]
        quick = [i for i in ready if not works[i].divider]
        if slow and (busy <= work or not quick):
            i = max(slow, key=lambda k: ahead[k])
        elif busy > work:
            i = min(quick, key=lambda k: ahead[k])
        else:
            i = max(quick, key=lambda k: ahead[k])
        order.append(i)
        placed.add(i)
        waiting.remove(i)
        work += works[i].others / others
        busy = min(busy + works[i].divider, work + MOST_BEHIND)
    return order


def _sources(i: Instruction, works: Mapping[Instruction, Work], made: Mapping[Value, Instruction]) -> set[Instruction]:
    """The weighty instructions that one reads."""
    found, seen, stack = set[Instruction](), set[Value](), [*i.operands]
    while stack:
        v = stack.pop()
        if v in seen or v not in made:
            continue
        seen.add(v)
        if made[v] in works:
            found.add(made[v])
        else:
            stack += made[v].operands
    return found


def _ahead(works: Mapping[Instruction, Work], reads: Mapping[Instruction, set[Instruction]]) -> dict[Instruction, int]:
    """The cycles that the divider takes, at least, after each instruction."""
    ahead = dict.fromkeys(works, 0)
    for i in reversed(list(works)):
        for k in reads[i]:
            ahead[k] = max(ahead[k], ahead[i] + works[i].divider)
    return ahead
