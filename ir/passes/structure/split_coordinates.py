"""Unroll short shared axes of pairs: the coordinates of points become separate arrays.

    d = x[:, None, :] - y[None, :, :]; sum(d * d, axis=2)      of f64[n,3] and f64[m,3] becomes
    d0 = x0[:, None] - y0[None, :]; ...; d0 * d0 + d1 * d1 + d2 * d2

The remaining values have only the axes of the pairs: reductions over them share one pass, and no value is repeated along a
third axis.

The same is done with elementwise functions of arrays that are joined along a short axis, and of those that are read index by
index, if reductions or single indices of them are read:

    c = stack([a, b], 1); sum(c * w)                           becomes sum(a * w[:, 0] + b * w[:, 1])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, with_contents, with_regions
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Iota
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, concat, slice_, squeeze
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.structure.pairs import shared_axes
from pullback.ir.passes.structure.split_values import split_values

MOST_UNROLLED = 32
"""Largest extent of an axis that is unrolled."""

MOST_JOINED = 16
"""Largest extent of an axis along which arrays are joined or read index by index that is unrolled."""
MOST_COPIES = 512
"""Largest weight of the functions of joined arrays that are unrolled, counted once for each index."""
FUNCTION_WEIGHT = 30
"""Weight of a function that is not cheap; other elementwise ops weigh 1."""

Makers = Mapping[Value, Instruction]
Readers = Mapping[Value, Sequence[Instruction | None]]


def components(function: Function) -> Function:
    """Replace elementwise values of pairs by one value for each index along a short axis of known extent.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit, up to the order in which a sum over the
    axis adds.
    """
    return replace(function, body=_unrolled(function.body)) if function.kind == "func" else function


def _unrolled(block: Block) -> Block:
    """Return the block, and its regions, without short axes of pairs. One axis of a value is unrolled at a time."""
    block = with_contents(block, [with_regions(i, map(_unrolled, i.regions)) for i in block.instructions], block.results)
    while chosen := _chosen(block):
        block = split_values(block, chosen)
    return block


def _chosen(block: Block) -> dict[Value, tuple[int, ...]]:
    """Return the values to unroll, each with its axis: values of pairs, elementwise results and reductions of them, if only
    reductions read the last of them and no array of their size is read."""
    makers = {v: i for i in block.instructions for v in i.results}
    readers: dict[Value, list[Instruction | None]] = {v: [None] for v in block.results}
    for i in block.instructions:
        for v in i.operands:
            readers.setdefault(v, []).append(i)
    chosen: dict[Value, tuple[int, ...]] = {}
    seen: set[Value] = set()
    for value, axes in shared_axes(block).items():
        short = [a for a in axes if _is_short(value.type.shape, a)]
        if not short or value.type.rank < 3 or value in seen:
            continue
        group = _elementwise_group(value, makers, readers)
        seen |= group
        if all(_is_never_stored(v, short[-1], group, makers, readers) for v in group):
            chosen.update(dict.fromkeys(group, (short[-1],)))
            chosen.update(_reduced(group, short[-1], readers))
    return {**chosen, **_joined_groups(block, seen, makers, readers)}


def _reduced(group: set[Value], axis: int, readers: Readers) -> dict[Value, tuple[int, ...]]:
    """Return the reductions of values of a group that keep the unrolled axis, each with that axis."""
    reductions = (k for v in group for k in readers.get(v, ()) if k is not None and isinstance(k.op, Reduce))
    return {k.result: (axis - sum(a < axis for a in k.params["axes"]),) for k in reductions if axis not in k.params["axes"]}


def _joined_groups(block: Block, seen: set[Value], makers: Makers, readers: Readers) -> dict[Value, tuple[int, ...]]:
    """Return the values to unroll, each with its axis, that are functions of joined arrays, or read index by index. ``seen``:
    the values of other groups."""
    chosen: dict[Value, tuple[int, ...]] = {}
    for i in block.instructions:
        axis = _joined_axis(i) if i.op is concat else _index_axis(i)
        value = i.result if i.op is concat else i.operands[0] if axis is not None else None
        if value is None or axis is None or value in seen or value.type.rank < 2 or value not in makers:
            continue
        group = _elementwise_group(value, makers, readers, with_joins=True)
        work = [makers[v] for v in group if isinstance(makers[v].op, Elementwise)]
        joins = {v for v in group if makers[v].op is concat and _joined_axis(makers[v]) == axis}
        seen |= group
        weight = sum(1 if isinstance(k.op, Elementwise) and k.op.cheap else FUNCTION_WEIGHT for k in work)
        extent = value.type.shape[axis]
        if not isinstance(extent, int) or weight * extent > MOST_COPIES or not (work or joins):
            continue
        members = {*joins, *(k.result for k in work)}
        reads = [k for v in members for k in readers.get(v, ()) if k is None or not isinstance(k.op, Elementwise)]
        is_read = any(k is not None and (work or k.op is not slice_) for k in reads)
        is_whole = not joins and None in reads
        if is_read and not is_whole and all(k is None or _reads_parts(k, axis) for k in reads):
            chosen.update(dict.fromkeys(members, (axis,)))
            chosen.update(_reduced(members, axis, readers))
    return chosen


def _joined_axis(i: Instruction) -> int | None:
    """Return the axis along which a concat joins few arrays of extent 1; None if it is no such concat."""
    if i.op is not concat or len(i.operands) > MOST_JOINED:
        return None
    axis: int = i.params["axis"]
    return axis if all(v.type.shape[axis] == 1 for v in i.operands) else None


def _index_axis(i: Instruction) -> int | None:
    """Return the first short axis along which an instruction reads one index of a value; None if there is none."""
    if i.op is not slice_:
        return None
    outer, part = i.operands[0].type.shape, i.result.type.shape
    for axis, (start, e, f) in enumerate(zip(i.params["start"], part, outer, strict=True)):
        if isinstance(start, int) and e == 1 and isinstance(f, int) and 1 < f <= MOST_JOINED:
            return axis
    return None


def _reads_parts(reader: Instruction, axis: int) -> bool:
    """Return whether an instruction reduces its operand or reads one index along an axis."""
    return not reader.op.gives_position if isinstance(reader.op, Reduce) else _is_index(reader, axis)


def _is_index(i: Instruction, axis: int) -> bool:
    """Return whether an instruction reads one index along an axis."""
    return i.op is slice_ and i.result.type.shape[axis] == 1 and isinstance(i.params["start"][axis], int)


def _elementwise_group(value: Value, makers: Makers, readers: Readers, with_joins: bool = False) -> set[Value]:
    """Return the values connected to ``value`` by elementwise ops; ``with_joins``: also the joined arrays that these read."""
    group: set[Value] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        if current not in group:
            group.add(current)
            stack += [k.result for k in readers.get(current, ()) if k is not None and isinstance(k.op, Elementwise)]
            operands = makers[current].operands if not with_joins or isinstance(makers[current].op, Elementwise) else ()
            sources = [makers[v] for v in operands if v in makers]
            stack += [k.result for k in sources if isinstance(k.op, Elementwise) or (with_joins and _joined_axis(k) is not None)]
    return group


def _is_never_stored(value: Value, axis: int, group: set[Value], makers: Makers, readers: Readers) -> bool:
    """Return whether a value reads no array of its size, and only reductions and values of the same group read it."""
    sources = [makers.get(v) for v in makers[value].operands if v not in group]
    is_made = all(i is not None and (i.op is broadcast or isinstance(i.op, Iota)) for i in sources)
    is_reduced = all(k is not None and _takes_parts(k, axis) for k in readers.get(value, ()))
    return is_made and is_reduced and not value.type.dtype.is_complex


def _takes_parts(reader: Instruction, axis: int) -> bool:
    """Return whether an instruction can be computed from the components of its operand."""
    if isinstance(reader.op, Reduce):
        return not reader.op.gives_position
    return isinstance(reader.op, Elementwise) or (reader.op is squeeze and axis in reader.params["axes"])


def _is_short(shape: Shape, axis: int) -> bool:
    extent = shape[axis]
    return isinstance(extent, int) and 1 <= extent <= MOST_UNROLLED
