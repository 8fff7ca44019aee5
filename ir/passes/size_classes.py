"""Size classes: the extents that a template knows as numbers, because other code is made for them.

A short axis that the arrays of a pair have in common (the coordinates of points, in ``x[:, None, :] - y[None, :, :]``) is a
number up to ``MOST_SPELLED``: what is computed along it is spelled out. Where parts of one array are read that differ in where
they begin, as the neighbours of a stencil, starts up to ``MOST_NEAR`` are numbers: code for neighbours reads a row once. So are
axes of that length that a reshape makes and a reduction takes away from between others: that is pooling. An axis that a reshape
makes, and of which several single places are read, is a number up to ``MOST_PARTS``, and so are they. A product of one row,
one column or one term is no matrix product: such an extent is the number 1. Every other extent stays a name, so that one template
serves all sizes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import Extent, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.index import Place
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import pad, reshape, slice_
from pullback.ir.passes.singular.even_powers import even_powers
from pullback.ir.passes.singular.roots import roots
from pullback.ir.passes.structure.pairs import shared_axes
from pullback.ir.passes.structure.split_axes import MOST_PARTS, cuts
from pullback.ir.passes.structure.split_coordinates import MOST_SPELLED
from pullback.ir.shapes.extents import Abstract, abstract, rename

MOST_NEAR = 4


def templated(function: Function, *, exactly: bool = False) -> Abstract:
    """``abstract``, with the extents of size classes as numbers: what a template is made of, and its key. ``exactly``: for the
    function as it is, not rewritten as these very extents allow (``cuts``)."""
    found = abstract(roots(even_powers(function if exactly else cuts(function))))
    body = found.function.body
    short, near = _short(body), _near(body) | _pooled(body)
    fixed = {name: int(found.sizes[name]) for name in found.sizes if name in short and 1 <= found.sizes[name] <= MOST_SPELLED}
    fixed |= {name: int(found.sizes[name]) for name in found.sizes if name in near and found.sizes[name] <= MOST_NEAR}
    placed = _placed(body, found.sizes)
    fixed |= {name: int(found.sizes[name]) for name in found.sizes if name in placed}
    multiplied = _multiplied(body, found.sizes)
    fixed |= {name: 1 for name in found.sizes if name in multiplied and found.sizes[name] == 1}
    if not fixed:
        return found
    sizes = {name: size for name, size in found.sizes.items() if name not in fixed}
    return replace(found, function=rename(found.function, fixed), sizes=sizes)


def _short(block: Block) -> set[str]:
    """The names of the extents that pairs share."""
    axes = ((v.type.shape[a], v.type.rank) for v, shared in shared_axes(block).items() for a in shared)
    found = {e for e, rank in axes if isinstance(e, str) and rank > 2}
    return found.union(*(_short(region) for i in block.instructions for region in i.regions))


def _multiplied(block: Block, sizes: Mapping[str, int]) -> set[str]:
    """The names of the extents that contractions multiply and that make them no matrix products: all rows, columns or terms
    of one are 1."""
    found: set[str] = set()
    for i in block.instructions:
        if isinstance(i.op, Contract):
            words, out = i.params["spec"].split("->")
            left, right = words.split(",")
            extents = dict(zip(left + right, (e for v in i.operands for e in v.type.shape), strict=True))
            for part in (set(left) - set(right), set(right) - set(left), (set(left) & set(right)) - set(out)):
                names = {extents[k] for k in part}
                if all(sizes.get(e, e) == 1 for e in names):
                    found |= {e for e in names if isinstance(e, str)}
    return found.union(*(_multiplied(region, sizes) for i in block.instructions for region in i.regions))


def _near(block: Block) -> set[str]:
    """The names of the starts of parts that are neighbours of each other, and of parts that are put beside such. Along an axis of
    which they have one place, parts are picked, not neighbours."""
    parts: dict[tuple[Value, Shape], list[Instruction]] = {}
    for i in block.instructions:
        if i.op is slice_:
            parts.setdefault((i.operands[0], i.result.type.shape), []).append(i)
    groups = {key: made for key, made in parts.items() if any(i.params["start"] != made[0].params["start"] for i in made)}
    shapes = {shape for _, shape in groups}
    starts = [(i.params["start"], shape) for (_, shape), made in groups.items() for i in made]
    for i in block.instructions:
        if (i.op is pad and i.operands[0].type.shape in shapes) or (
            isinstance(i.op, Place) and i.operands[1].type.shape in shapes
        ):
            starts.append((i.params["start"], i.operands[0 if i.op is pad else 1].type.shape))
    found = {
        name
        for start, shape in starts
        for name, extent in zip(start, shape, strict=True)
        if isinstance(name, str) and extent != 1
    }
    return found.union(*(_near(region) for i in block.instructions for region in i.regions))


def _placed(block: Block, sizes: Mapping[str, int]) -> set[str]:
    """The names of the short extents that a reshape makes and of which several single places are read, and of these places."""
    shaped = {i.result: i.operands[0].type.shape for i in block.instructions if i.op is reshape}
    read: dict[tuple[Value, int], set[Extent]] = {}
    for i in block.instructions:
        if i.op is slice_ and i.operands[0] in shaped:
            whole = i.operands[0].type.shape
            for k, e in enumerate(i.result.type.shape):
                if e == 1 and whole[k] not in shaped[i.operands[0]]:
                    read.setdefault((i.operands[0], k), set()).add(i.params["start"][k])
    found: set[Extent] = set()
    for (value, axis), starts in read.items():
        extent = value.type.shape[axis]
        if len(starts) > 1 and (sizes[extent] if isinstance(extent, str) else extent) <= MOST_PARTS:
            found |= {extent, *starts}
    return {e for e in found if isinstance(e, str)}.union(*(_placed(r, sizes) for i in block.instructions for r in i.regions))


def _pooled(block: Block) -> set[str]:
    """The names of the extents that a reshape makes, and a reduction takes away from between others."""
    shaped = {i.result for i in block.instructions if i.op is reshape}
    found: set[Extent] = set()
    for i in block.instructions:
        if isinstance(i.op, Reduce) and i.operands[0] in shaped:
            shape, axes = i.operands[0].type.shape, i.params["axes"]
            found.update(shape[a] for a in axes if any(a < k for k in range(len(shape)) if k not in axes) or len(axes) > 1)
    inner = [_pooled(region) for i in block.instructions for region in i.regions]
    return {e for e in found if isinstance(e, str)}.union(*inner)
