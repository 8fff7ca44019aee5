"""The ways in which the partial results of two blocks become one, and the tree in which those of all blocks do.

The tree is fixed by the number of blocks: neighbours are combined first, and a result without a neighbour moves up. So the bits
of a reduction do not depend on who computes which block, or when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import OPS

Partials = tuple[Any, ...]
"""The partial results of one reduction over some blocks."""
Combination = Callable[[Partials, Partials], Partials]


def _elementwise(name: str) -> Combination:
    """Return the combination by an op of two operands, which has the op's results for NaN, signed zeros and overflow."""

    def combined(a: Partials, b: Partials) -> Partials:
        with np.errstate(all="ignore"):
            return tuple(np.asarray(OPS[name].function(x, y), np.asarray(x).dtype) for x, y in zip(a, b, strict=True))

    return combined


def _first_extreme(is_better: Callable[[Any, Any], Any]) -> Combination:
    """Return the combination of pairs of a position and an extreme: the first NaN, else the first extreme."""

    def combined(a: Partials, b: Partials) -> Partials:
        (position, best), (other_position, other) = map(np.asarray, a), map(np.asarray, b)
        takes_other = is_better(other, best) | ((other != other) & (best == best))
        takes_other &= best == best
        return np.where(takes_other, other_position, position), np.where(takes_other, other, best)

    return combined


COMBINATIONS: dict[str, Combination] = {
    **{name: _elementwise(name) for name in ("add", "mul", "maximum", "minimum", "bitand", "bitor")},
    "argmax": _first_extreme(np.greater),
    "argmin": _first_extreme(np.less),
}
"""The combinations by name: those of ``Reduce.combine``."""


MOST_STACKED = 2**20
"""The bytes of partial results up to which those of all blocks are stacked, so that one call of NumPy computes a level
of the tree. Above, the copy costs more than the calls."""


def combined(names: Sequence[str], parts: Sequence[Sequence[Partials]]) -> list[Partials]:
    """Return the partial results of a run of blocks, where ``parts`` has those of each block, for each reduction.

    A run whose length is a power of two and that starts at a multiple of it is a subtree of the tree of all blocks.
    """
    level = [list(p) for p in parts]
    if len(level) == 1:
        return level[0]
    if len(level) * sum(np.asarray(x).nbytes for partials in level[0] for x in partials) <= MOST_STACKED:
        return combined_stacks(names, [tuple(map(np.stack, zip(*each, strict=True))) for each in zip(*level, strict=True)])
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2])
        above = [[COMBINATIONS[name](a, b) for name, a, b in zip(names, x, y, strict=True)] for x, y in pairs]
        level = above + (level[-1:] if len(level) % 2 else [])
    return level[0]


def combined_stacks(names: Sequence[str], stacks: Sequence[Partials]) -> list[Partials]:
    """Return what ``combined`` returns, in new arrays, for the partial results of each reduction with the blocks along the first
    axis."""
    return [_up_the_tree(COMBINATIONS[name], partials) for name, partials in zip(names, stacks, strict=True)]


def _up_the_tree(combine: Combination, level: Partials) -> Partials:
    while (count := len(level[0])) > 1:
        even = count - count % 2
        above = combine(tuple(x[0:even:2] for x in level), tuple(x[1:even:2] for x in level))
        level = tuple(np.concatenate([x, y[even:]]) for x, y in zip(above, level, strict=True)) if even < count else above
    return tuple(np.array(x[0]) for x in level)
