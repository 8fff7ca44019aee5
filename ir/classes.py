"""Size classes: the extents that a template knows as numbers, because other code is made for them.

A short axis that the arrays of a pair have in common (the coordinates of points, in ``x[:, None, :] - y[None, :, :]``) is a
number up to ``MOST_SPELLED``: what is computed along it is spelled out. Every other extent stays a name, so that one template
serves all sizes of it.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.extents import Abstract, abstract, rename
from pullback.ir.passes.components import MOST_SPELLED
from pullback.ir.passes.pairs import shared_axes
from pullback.ir.structure import Block, Function


def templated(function: Function) -> Abstract:
    """``abstract``, with the extents of size classes as numbers: what a template is made of, and its key."""
    found = abstract(function)
    fixed = {name: found.sizes[name] for name in _short(found.function.body) if 1 <= found.sizes.get(name, 0) <= MOST_SPELLED}
    if not fixed:
        return found
    sizes = {name: size for name, size in found.sizes.items() if name not in fixed}
    return replace(found, function=rename(found.function, fixed), sizes=sizes)


def _short(block: Block) -> set[str]:
    """The names of the extents that pairs share."""
    axes = ((v.type.shape[a], v.type.rank) for v, shared in shared_axes(block).items() for a in shared)
    found = {e for e, rank in axes if isinstance(e, str) and rank > 2}
    return found.union(*(_short(region) for i in block.instructions for region in i.regions))
