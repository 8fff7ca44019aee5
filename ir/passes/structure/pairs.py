"""Detect pairs: values that combine two arrays along different axes, as in ``x[:, None, :] - y[None, :, :]``.

Such a value has an element for each pair and each index along the shared axes. It need not be stored, and a short shared axis
need not be an axis of the computation: the coordinates of points in two or three dimensions are two or three scalars.
"""

from __future__ import annotations

from pullback.ir.core.structure import Block
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.elementwise.elementwise import Elementwise

Repeats = frozenset[frozenset[int]]
"""For each of some arrays, the set of axes along which it is repeated."""


def shared_axes(block: Block) -> dict[Value, tuple[int, ...]]:
    """Return, for each elementwise result that pairs arrays and reads no array of its own size, the axes that all of them
    have."""
    repeats: dict[Value, Repeats] = {}
    shared: dict[Value, tuple[int, ...]] = {}
    for i in block.instructions:
        if i.op is broadcast:
            is_array = bool(i.operands[0].type.shape)
            repeats[i.result] = frozenset((frozenset(i.params["axes"]),) if is_array else ())
        elif isinstance(i.op, Constant | Count | Iota):
            repeats[i.result] = frozenset()
        elif isinstance(i.op, Elementwise) and all(v in repeats for v in i.operands):
            repeats[i.result] = frozenset().union(*(repeats[v] for v in i.operands))
            if _pairs(repeats[i.result]):
                repeated = frozenset().union(*repeats[i.result])
                shared[i.result] = tuple(a for a in range(i.result.type.rank) if a not in repeated)
    return shared


def _pairs(repeats: Repeats) -> bool:
    """Return whether one array varies where another is repeated, and vice versa."""
    return any(not (a <= b or b <= a) for a in repeats for b in repeats)
