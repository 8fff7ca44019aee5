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


def combined(names: Sequence[str], parts: Sequence[Sequence[Partials]]) -> list[Partials]:
    """Return the partial results of a run of blocks, where ``parts`` has those of each block, for each reduction.

    A run whose length is a power of two and that starts at a multiple of it is a subtree of the tree of all blocks.
    """
    level = [list(p) for p in parts]
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2])
        above = [[COMBINATIONS[name](a, b) for name, a, b in zip(names, x, y, strict=True)] for x, y in pairs]
        level = above + (level[-1:] if len(level) % 2 else [])
    return level[0]
