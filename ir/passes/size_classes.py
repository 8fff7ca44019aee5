"""Size classes: the extents that are constants in a program template, because their value changes the generated code.

- A short axis that the arrays of a pair share (the coordinates of points, in ``x[:, None, :] - y[None, :, :]``) is constant up
  to ``MOST_UNROLLED``: computations along it are unrolled.
- Starts of slices of one array that differ, such as the neighbours of a stencil, are constant up to ``MOST_NEIGHBOURS``: code for
  neighbours reads a row once. So is an axis up to that length that a reshape creates and a reduction removes from between
  others, as in pooling.
- Offsets of rolls are constant up to ``MOST_NEIGHBOURS``: the few elements that come in at the other end are known to be few.
- Extents of slices and of repeated elements that are concatenated are constant up to ``MOST_NEIGHBOURS``, as are the starts of
  these slices: a border has few elements, and comes from near an end.
- An axis that a reshape creates and that is read at several single indices is constant up to ``MOST_PARTS``; so are the indices.
- Any other axis of which most indices are read or written one by one, such as channels, is constant up to ``MOST_COMPONENTS``; so
  are the indices.
- An axis along which a program extracts or assembles components, and the positions, are constant up to
  ``short_axes.MOST_PARTS``: the components become separate values.
- An extent of 1 is constant where a scalar is written into an array, as one element, in a loop or branch.
- An extent of 1 is constant where a new axis of an array is the one along which it is joined to others, and where it makes a
  contraction a product with one row, one column or K of 1, since that is no matrix product.

Every other extent stays symbolic, so that one template serves all its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import Extent, Shape, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.index import Place
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, concat, flip, pad, reshape, roll, slice_, squeeze
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.passes.algebra.powers_of_two import powers_of_two
from pullback.ir.passes.loops.index_ranges import index_ranges
from pullback.ir.passes.singular.even_powers import even_powers
from pullback.ir.passes.singular.roots import roots
from pullback.ir.passes.strip_values import strip_values
from pullback.ir.passes.structure.pairs import shared_axes
from pullback.ir.passes.structure.rolls import rolls
from pullback.ir.passes.structure.short_axes import constant_names
from pullback.ir.passes.structure.split_axes import MOST_PARTS, cuts
from pullback.ir.passes.structure.split_coordinates import MOST_UNROLLED
from pullback.ir.passes.structure.write_through import write_through
from pullback.ir.shapes.extents import Abstract, abstract, rename

MOST_COMPONENTS = 16
"""Largest extent of an axis of components that is constant: the elements of a row are loaded and stored by shuffles."""
MOST_NEIGHBOURS = 4
"""Largest start of a neighbouring slice, and largest extent of a pooled axis, that is constant."""


LARGEST = 1 << 62
"""The value of an extent by value in comparisons with the bounds of size classes."""
BORDERS = (slice_, broadcast, concat, squeeze, flip)
"""Ops by which borders are taken from an array."""


def templated(function: Function, *, exactly: bool = False, symbolic: int | None = None) -> Abstract:
    """Return ``abstract`` of a function, with the extents of size classes constant: the content of a template, and its key.
    ``exactly``: without the rewrites ``rolls`` and ``cuts``, and the proofs of ``index_ranges``, which depend on the extents.
    ``symbolic``: a number; extents of it are in no size class."""
    function = strip_values(function)
    if not exactly:
        function = index_ranges(function)
    function = powers_of_two(function)
    named = abstract(roots(even_powers(write_through(function if exactly else cuts(rolls(function))))))
    body = named.function.body
    short, close = _short(body), _neighbouring(body) | _pooled(body) | _rolled(body) | _borders(body)
    fixed = {name: int(named.sizes[name]) for name in named.sizes if name in short and 1 <= named.sizes[name] <= MOST_UNROLLED}
    fixed |= {name: int(named.sizes[name]) for name in named.sizes if name in close and named.sizes[name] <= MOST_NEIGHBOURS}
    placed = _indexed(body, named.sizes)
    fixed |= {name: int(named.sizes[name]) for name in named.sizes if name in placed}
    split = constant_names(body, named.sizes)
    fixed |= {name: int(named.sizes[name]) for name in named.sizes if name in split}
    fixed |= {name: 1 for name in _added(body) | _elements(body) if named.sizes.get(name) == 1}
    multiplied = _multiplied(body, named.sizes)
    fixed |= {name: 1 for name in named.sizes if name in multiplied and named.sizes[name] == 1}
    fixed = {name: size for name, size in fixed.items() if size != symbolic}
    if not fixed:
        return named
    sizes = {name: size for name, size in named.sizes.items() if name not in fixed}
    return replace(named, function=rename(named.function, fixed), sizes=sizes)


def _short(block: Block) -> set[str]:
    """Return the names of extents that the arrays of pairs share."""
    axes = ((v.type.shape[a], v.type.rank) for v, shared in shared_axes(block).items() for a in shared)
    names = {e for e, rank in axes if isinstance(e, str) and rank > 2}
    return names.union(*(_short(region) for i in block.instructions for region in i.regions))


def _added(block: Block) -> set[str]:
    """Return the names of the extents of new axes along which arrays are joined to others."""
    added = {i.result: i.params["axes"] for i in block.instructions if i.op is broadcast}
    joins = [(v, i.params["axis"]) for i in block.instructions if i.op is concat for v in i.operands]
    names = {v.type.shape[axis] for v, axis in joins if axis in added.get(v, ())}
    return {e for e in names if isinstance(e, str)}.union(*(_added(r) for i in block.instructions for r in i.regions))


def _elements(block: Block, is_inside: bool = False) -> set[str]:
    """Return the names of the extents of scalars that are written, as parts of arrays, in loops and branches."""
    scalars = {i.result for i in block.instructions if i.op is broadcast and not i.operands[0].type.shape and is_inside}
    values = [i.operands[1] for i in block.instructions if isinstance(i.op, Place) and i.operands[1] in scalars]
    names = {e for v in values for e in v.type.shape}
    inner = (_elements(r, is_inside or isinstance(i.op, Loop | Switch)) for i in block.instructions for r in i.regions)
    return {e for e in names if isinstance(e, str)}.union(*inner)


def _multiplied(block: Block, sizes: Mapping[str, int]) -> set[str]:
    """Return the names of extents of 1 that make contractions no matrix products: their rows, their columns or their reduction
    axes all have extent 1."""
    result: set[str] = set()
    for i in block.instructions:
        if isinstance(i.op, Contract):
            words, out = i.params["spec"].split("->")
            left, right = words.split(",")
            extents = dict(zip(left + right, (e for v in i.operands for e in v.type.shape), strict=True))
            for part in (set(left) - set(right), set(right) - set(left), (set(left) & set(right)) - set(out)):
                names = {extents[k] for k in part}
                if all(sizes.get(e, e) == 1 for e in names):
                    result |= {e for e in names if isinstance(e, str)}
    return result.union(*(_multiplied(region, sizes) for i in block.instructions for region in i.regions))


def _neighbouring(block: Block) -> set[str]:
    """Return the names of the starts of overlapping slices of one array, and of writes of the same shape. Along an axis with
    extent 1 slices select elements and are not neighbours."""
    parts: dict[tuple[Value, Shape], list[Instruction]] = {}
    for i in block.instructions:
        if i.op is slice_:
            parts.setdefault((i.operands[0], i.result.type.shape), []).append(i)
    groups = {key: slices for key, slices in parts.items() if any(i.params["start"] != slices[0].params["start"] for i in slices)}
    shapes = {shape for _, shape in groups}
    starts = [(i.params["start"], shape) for (_, shape), slices in groups.items() for i in slices]
    for i in block.instructions:
        if (i.op is pad and i.operands[0].type.shape in shapes) or (
            isinstance(i.op, Place) and i.operands[1].type.shape in shapes
        ):
            starts.append((i.params["start"], i.operands[0 if i.op is pad else 1].type.shape))
    result = {
        name
        for start, shape in starts
        for name, extent in zip(start, shape, strict=True)
        if isinstance(name, str) and extent != 1
    }
    return result.union(*(_neighbouring(region) for i in block.instructions for region in i.regions))


def _rolled(block: Block) -> set[str]:
    """Return the names of the offsets of rolls."""
    names = {e for i in block.instructions if i.op is roll for e in i.params["offset"] if isinstance(e, str)}
    return names.union(*(_rolled(region) for i in block.instructions for region in i.regions))


def _borders(block: Block) -> set[str]:
    """Return the names of the extents of slices and broadcasts along an axis along which they are concatenated, and of the
    starts of these slices."""
    makers = {i.result: i for i in block.instructions if i.op in BORDERS}
    names: set[Any] = set()
    for i in block.instructions:
        axis = i.params["axis"] if i.op is concat else 0
        for v in i.operands if i.op is concat and any(v.type.shape[axis] != 1 for v in i.operands) else ():
            maker = makers.get(v)
            names |= {v.type.shape[axis]} if maker is not None else set()
            while maker is not None and maker.op is not slice_:
                maker = makers.get(maker.operands[0])
            names |= set(maker.params["start"]) if maker is not None else set()
    return {e for e in names if isinstance(e, str)}.union(*(_borders(r) for i in block.instructions for r in i.regions))


def _indexed(block: Block, sizes: Mapping[str, int]) -> set[str]:
    """Return the names of short extents that are accessed at several single indices, and of these indices: of those that a
    reshape creates, and of those of which most indices are accessed."""
    shaped = {i.result: i.operands[0].type.shape for i in block.instructions if i.op is reshape}
    created: dict[tuple[Value, int], set[Extent]] = {}
    accessed: dict[Extent, set[Extent]] = {}
    ones: dict[Extent, set[Extent]] = {}
    for i in block.instructions:
        if i.op is not slice_ and not isinstance(i.op, Place):
            continue
        outer, part = i.operands[0], i.operands[1].type if isinstance(i.op, Place) else i.result.type
        for k, e in enumerate(part.shape):
            start, extent = i.params["start"][k], outer.type.shape[k]
            if start is None or _size(e, sizes) != 1:
                continue
            accessed.setdefault(extent, set()).add(start)
            ones.setdefault(extent, set()).add(e)
            if i.op is slice_ and e == 1 and outer in shaped and extent not in shaped[outer]:
                created.setdefault((outer, k), set()).add(start)
    names: set[Extent] = set()
    for (value, axis), starts in created.items():
        if len(starts) > 1 and _size(value.type.shape[axis], sizes) <= MOST_PARTS:
            names |= {value.type.shape[axis], *starts}
    for extent, starts in accessed.items():
        count = len({_size(start, sizes) for start in starts})
        if count > 1 and count * 2 >= _size(extent, sizes) <= MOST_COMPONENTS:
            names |= {extent, *starts, *ones[extent]}
    return {e for e in names if isinstance(e, str)}.union(*(_indexed(r, sizes) for i in block.instructions for r in i.regions))


def _size(extent: Extent, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent; one by value is in the largest class."""
    if isinstance(extent, str):
        return LARGEST if is_by_value(extent) else sizes[extent]
    return extent


def _pooled(block: Block) -> set[str]:
    """Return the names of extents that a reshape creates and a reduction removes from between others."""
    shaped = {i.result for i in block.instructions if i.op is reshape}
    names: set[Extent] = set()
    for i in block.instructions:
        if isinstance(i.op, Reduce) and i.operands[0] in shaped:
            shape, axes = i.operands[0].type.shape, i.params["axes"]
            names.update(shape[a] for a in axes if any(a < k for k in range(len(shape)) if k not in axes) or len(axes) > 1)
    inner = [_pooled(region) for i in block.instructions for region in i.regions]
    return {e for e in names if isinstance(e, str)}.union(*inner)
