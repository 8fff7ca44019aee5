"""The cost model of unrolled loops: how many operations all iterations of a loop may have, and of which loops."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.structure import Instruction, walk
from pullback.ir.ops.array.index import Gather, Place, Scatter
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.loops import Loop

MOST_UNROLLED, MOST_LENGTHENING, MOST_SEPARATE = LIMITS = 2000, 400, 200
"""Largest number of operations of all iterations of a loop of known length that stays unrolled: a tenth of a second of compile.
The second is of loops in which an array becomes longer or shorter: each iteration has kernels of its own, half a second in all,
but these are faster than those for any length. The third is of loops over numbers and elements, and of loops that write parts of
arrays: their iterations gain nothing by being in one kernel."""
LOOP_OPERATIONS = 100
"""Operations that take as long to compile as a loop that is rolled, besides those of its body."""
MOST_EMPTY = 4
"""Largest number of iterations at the start of a loop that are skipped to find one that computes something."""


def is_long(iteration: Sequence[Instruction], count: int, lengthens: bool = False) -> bool:
    """Return whether a loop of ``count`` iterations like one, which ``lengthens`` arrays, is too long to be unrolled."""
    return (count - 1) * _operations(iteration) > most_unrolled(iteration, lengthens)


def most_unrolled(iteration: Sequence[Instruction], lengthens: bool = False) -> int:
    """Return the largest number of operations of all iterations of a loop that stays unrolled. ``lengthens``: each has other
    lengths of arrays."""
    if is_separate(walk_all(iteration)):
        return MOST_SEPARATE
    return MOST_LENGTHENING if lengthens else MOST_UNROLLED


def is_separate(instructions: Sequence[Instruction]) -> bool:
    """Return whether instructions compute numbers and elements alone, or write parts of arrays."""
    if any(isinstance(i.op, Scatter | Place) for i in instructions):
        return True
    computing = [i for i in instructions if not i.regions and not isinstance(i.op, Reindex | Gather | Scatter | Place)]
    return all(n == 1 for i in computing for v in i.results for n in v.type.shape)


class Growth:
    """The growth of the iterations of a loop that is unrolled, as of those of ``for j in range(i)`` in a loop over i, whose
    first ones are short. ``operations``: those of the first ``counted`` iterations."""

    def __init__(self) -> None:
        self.operations = self.counted = 0

    def is_too_much(self, instructions: Sequence[Instruction], done: int, count: int, lengthens: bool = False) -> bool:
        """Return whether ``count`` iterations, of which ``done`` ran as ``instructions``, have more operations than may be
        unrolled, if those to come are like the last ones. They are counted after 2, 4, 8, ... iterations. ``lengthens``: as for
        ``most_unrolled``."""
        if done & (done - 1) or done < 2:
            return False
        before, since = self.operations, done - self.counted
        self.operations, self.counted = _operations(instructions), done
        expected = self.operations + (self.operations - before) * (count - done) // since
        return expected > most_unrolled(instructions, lengthens)


def walk_all(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Return instructions and those of their regions."""
    return [*instructions, *(inner for i in instructions for region in i.regions for inner in walk(region))]


def _operations(instructions: Sequence[Instruction]) -> int:
    """Return the number of operations of iterations, in regions too."""
    every = walk_all(instructions)
    return len(every) + LOOP_OPERATIONS * sum(isinstance(i.op, Loop) for i in every)
