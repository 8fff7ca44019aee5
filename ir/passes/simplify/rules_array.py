"""Rules about shapes and order: rearrangements and reductions; ``rules_contract`` has those of contractions.
tests/golden/passes holds one example of each, under its name.

A ``broadcast`` moves towards the results, so that work is done before it, on smaller arrays; other rearrangements move
inside a ``broadcast``, where they often vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.core.op import Op
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.simplify.rewrite import Rewriter, rule, spread_like, without

Axes = tuple[int, ...]


def broadcast_axes(b: Rewriter, x: Value) -> Axes:
    """The axes that a broadcast added to ``x``; none if it is not one."""
    made = b.made(x, "broadcast")
    return () if made is None else tuple(made.params["axes"])


def renumbered(axes: Sequence[int], removed: Sequence[int]) -> Axes:
    """What axes are called after others are removed."""
    return tuple(a - sum(r < a for r in removed) for a in axes if a not in removed)


def inserted(axes: Sequence[int], added: Sequence[int]) -> Axes:
    """What axes are called after ``added`` (numbers in the result) are put in."""
    names = [k for k in range(max(axes, default=-1) + 1 + len(added)) if k not in added]
    return tuple(names[a] for a in axes)


def spread(b: Rewriter, x: Value, axes: Sequence[int], shape: Shape) -> Value:
    """A broadcast unless there is nothing to add."""
    found: Value = b.broadcast(x, axes=tuple(axes), shape=tuple(shape)) if axes else x
    return found


def narrow(b: Rewriter, x: Value, removed: Sequence[int]) -> Value:
    """A broadcast value without some of the axes that the broadcast added."""
    made = b.made_by[x]
    axes = renumbered(made.params["axes"], removed)
    return spread(b, made.operands[0], axes, without(x.type.shape, removed))


@rule(Elementwise)
def work_before_broadcast(b: Rewriter, *operands: Value, op: Op, **params: Any) -> Value | None:
    # f(broadcast x, broadcast y) = broadcast f(x, y)
    common = set(broadcast_axes(b, operands[0]))
    for operand in operands[1:]:
        common.intersection_update(broadcast_axes(b, operand))
    if not common:
        return None
    removed = sorted(common)
    (result,) = b.emit(op, [narrow(b, v, removed) for v in operands], params)
    return spread(b, result, removed, operands[0].type.shape)


# rearrangements


@rule("broadcast", "squeeze", "flip")
def no_axes(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # broadcast x {axes=[]} = x
    return None if axes else x


@rule("broadcast")
def broadcast_of_broadcast(b: Rewriter, x: Value, axes: Axes, shape: Shape, **_: Any) -> Value | None:
    # broadcast (broadcast x) = broadcast x
    inner = broadcast_axes(b, x)
    if not inner:
        return None
    return spread(b, b.made_by[x].operands[0], sorted({*axes, *inserted(inner, axes)}), shape)


@rule("squeeze")
def squeeze_of_broadcast(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (broadcast x) = x where the axes are the same; others stay with the op they came from
    added = broadcast_axes(b, x)
    gone = [a for a in axes if a in added]
    if not gone:
        return None
    rest = renumbered(axes, gone)
    found = narrow(b, x, gone)
    return b.squeeze(found, axes=rest) if rest else found


@rule("squeeze")
def squeeze_inside_broadcast(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (broadcast x) = broadcast (squeeze x)
    added = broadcast_axes(b, x)
    if not added or set(axes) & set(added):
        return None
    inner = b.squeeze(b.made_by[x].operands[0], axes=renumbered(axes, added))
    return spread(b, inner, renumbered(added, axes), without(x.type.shape, axes))


@rule("squeeze")
def squeeze_of_squeeze(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (squeeze x) = squeeze x
    made = b.made(x, "squeeze")
    if made is None:
        return None
    return b.squeeze(made.operands[0], axes=tuple(sorted({*made.params["axes"], *inserted(axes, made.params["axes"])})))


@rule("transpose")
def transpose_to_same(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose x {perm=[0, 1, ...]} = x
    return x if tuple(perm) == tuple(range(len(perm))) else None


@rule("transpose")
def transpose_of_transpose(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose (transpose x) = transpose x
    made = b.made(x, "transpose")
    return None if made is None else b.transpose(made.operands[0], perm=tuple(made.params["perm"][p] for p in perm))


@rule("transpose")
def transpose_inside_broadcast(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose (broadcast x) = broadcast (transpose x)
    added = broadcast_axes(b, x)
    if not added:
        return None
    kept = renumbered(perm, added)
    inner = b.transpose(b.made_by[x].operands[0], perm=kept) if kept else b.made_by[x].operands[0]
    axes = [k for k, p in enumerate(perm) if p in added]
    return spread(b, inner, axes, tuple(x.type.shape[p] for p in perm))


@rule("reshape")
def reshape_to_same(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # reshape x to its own shape = x
    return x if x.type.shape == tuple(shape) else None


@rule("reshape")
def reshape_of_reshape(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # reshape (reshape x) = reshape x, reshape (squeeze x) = reshape x
    made = b.made(x, "reshape", "squeeze")
    return None if made is None else b.reshape(made.operands[0], shape=shape)


@rule("squeeze")
def squeeze_of_reshape(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (reshape x) = reshape x
    source = b.operand(x, "reshape")
    return None if source is None else b.reshape(source, shape=without(x.type.shape, axes))


@rule("reshape")
def reshape_of_broadcast(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # reshape (broadcast x) = reshape x where the new axes have extent 1, and of a constant, the constant in that shape
    added = broadcast_axes(b, x)
    if not added:
        return None
    source = b.made_by[x].operands[0]
    if not source.type.rank:
        return spread(b, source, range(len(shape)), shape) if shape else None
    return b.reshape(source, shape=shape) if all(x.type.shape[a] == 1 for a in added) else None


@rule("reshape")
def reshape_of_ones(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # a reshape that removes or adds axes of extent 1 is a squeeze or a broadcast
    removed = [k for k, e in enumerate(x.type.shape) if e == 1]
    added = [k for k, e in enumerate(shape) if e == 1]
    if without(x.type.shape, removed) != without(shape, added):
        return None
    inner = b.squeeze(x, axes=tuple(removed)) if removed else x
    return spread(b, inner, added, shape)


@rule("flip")
def flip_of_flip(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # flip (flip x) = x along the same axes
    made = b.made(x, "flip")
    return None if made is None else b.flip(made.operands[0], axes=tuple(sorted({*axes} ^ {*made.params["axes"]})))


@rule("flip")
def flip_inside_broadcast(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # flip (broadcast x) = broadcast (flip x); along new axes there is nothing to flip
    added = broadcast_axes(b, x)
    if not added:
        return None
    inner = b.flip(b.made_by[x].operands[0], axes=renumbered(axes, added))
    return spread(b, inner, added, x.type.shape)


@rule("cumsum", "linear_recurrence")
def scan_of_flipped(b: Rewriter, *operands: Value, op: Op, axis: int, reverse: bool, **_: Any) -> Value | None:
    # scan (flip x) = flip (scan x), from the other end along a flipped axis
    made = [b.made(x, "flip") for x in operands]
    axes = {tuple(i.params["axes"]) for i in made if i is not None}
    if None in made or len(axes) != 1:
        return None
    (flipped,) = axes
    params = {"axis": axis, "reverse": reverse != (axis in flipped)}
    return b.flip(b.emit(op, [i.operands[0] for i in made if i is not None], params)[0], axes=flipped)


@rule("gather")
def gather_of_transpose(b: Rewriter, x: Value, *indices: Value, axes: Axes, **_: Any) -> Value | None:
    # (transpose x)[i] = transpose x[i], taken from the axes that were moved
    made = b.made(x, "transpose")
    if made is None:
        return None
    perm = made.params["perm"]
    taken = sorted(((perm[a], index) for a, index in zip(axes, indices, strict=True)), key=lambda pair: pair[0])
    found = b.gather(made.operands[0], *(index for _, index in taken), axes=tuple(a for a, _ in taken))
    count, rest = indices[0].type.rank, [p for k, p in enumerate(perm) if k not in axes]
    return b.transpose(found, perm=(*range(count), *(count + sorted(rest).index(p) for p in rest)))


@rule("shift")
def shift_by_nothing(b: Rewriter, x: Value, offset: int, **_: Any) -> Value | None:
    # shift x {offset=0} = x
    return None if offset else x


@rule("slice", "pad")
def whole(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # x[:] = x
    return x if x.type.shape == tuple(shape) and _starts(start, step) else None


def _starts(start: Shape, step: Axes) -> bool:
    return all(s == 0 for s in start) and all(d == 1 for d in step)


@rule("slice")
def slice_of_slice(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # x[a::d][b::e] = x[c::f] where no offset has to be computed
    made = b.made(x, "slice")
    if made is None:
        return None
    starts: list[int | str | None] = []
    for s, inner_start, inner_step in zip(start, made.params["start"], made.params["step"]):
        if not s:
            starts.append(s if inner_start is None else inner_start)
        elif not inner_start and inner_step == 1:
            starts.append(s)
        else:
            return None
    steps = tuple(d * e for d, e in zip(step, made.params["step"]))
    return b.slice(made.operands[0], start=tuple(starts), step=steps, shape=shape)


@rule("slice")
def slice_inside_broadcast(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # (broadcast x)[i] = broadcast x[i]
    added = broadcast_axes(b, x)
    if not added:
        return None
    source = b.made_by[x].operands[0]
    inner = [without(entries, added) for entries in (start, step, shape)]
    part = b.slice(source, start=inner[0], step=inner[1], shape=inner[2]) if source.type.rank else source
    return spread(b, part, added, shape)


@rule("slice")
def slice_of_written(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # (pad v)[at its place] = v, and so of slice_set
    made = b.made(x, "pad", "slice_set")
    if made is None or tuple(made.params["start"]) != tuple(start) or tuple(made.params["step"]) != tuple(step):
        return None
    written = made.operands[-1]
    return written if written.type.shape == tuple(shape) else None


@rule("slice_set")
def set_whole(b: Rewriter, x: Value, value: Value, start: Shape, step: Axes, **_: Any) -> Value | None:
    # x[:] = v makes v
    return value if x.type.shape == value.type.shape and _starts(start, step) else None


MOST_PLACES = 16


@rule("slice_add")
def added_place_by_place(b: Rewriter, base: Value, value: Value, start: Shape, step: Axes, **_: Any) -> Value | None:
    # what is added to zeros at each place of an axis is put side by side, but for the sign of zeros
    axis = _axis_of_place(start, value)
    made = b.made(base, "slice_add", "pad")
    if axis is None:
        return None
    places = {start[axis]: value}
    while made is not None and b.reads.get(made.result) == 1 and len(places) < MOST_PLACES:
        start, value = made.params["start"], made.operands[-1]
        if _axis_of_place(start, value) != axis or start[axis] in places:
            return None
        places[start[axis]] = value
        if made.op.name == "pad":
            whole = tuple(range(len(places)))
            parts = [places[k] for k in whole if k in places]
            is_whole = len(parts) == len(whole) == base.type.shape[axis]
            return b.concat(*parts, axis=axis, starts=whole, shape=base.type.shape) if is_whole else None
        made = b.made(made.operands[0], "slice_add", "pad")
    return None


def _axis_of_place(start: Shape, value: Value) -> int | None:
    """The axis of which a value has one place, and all of the others."""
    axes = [k for k, first in enumerate(start) if first is not None]
    return axes[0] if len(axes) == 1 and value.type.shape[axes[0]] == 1 and isinstance(start[axes[0]], int) else None


@rule("concat")
def concat_of_one(b: Rewriter, *operands: Value, **_: Any) -> Value | None:
    # concat x = x
    return operands[0] if len(operands) == 1 else None


@rule("slice")
def slice_of_concat(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # (concat x, y)[where y is] = y
    made = b.made(x, "concat")
    if made is None or any(d != 1 for d in step):
        return None
    axis = made.params["axis"]
    for operand, place in zip(made.operands, made.params["starts"]):
        at = tuple(place if k == axis else 0 for k in range(len(start)))
        if tuple(start) == at and tuple(shape) == operand.type.shape:
            return operand
    return None


# reductions


@rule("count")
def count_of_extents(b: Rewriter, *operands: Value, shape: Shape, **_: Any) -> Value | None:
    # how many elements x has along some axes = how many an array of those extents has
    return b.count(shape=shape) if operands else None


EXACT = ("max", "min", "any", "all")


@rule("sum", "prod", *EXACT)
def reduce_ones(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # over axes of extent 1: sum x = x + 0, max x = x
    ones = tuple(a for a in axes if x.type.shape[a] == 1)
    if len(ones) < len(axes):
        return None
    found = b.squeeze(x, axes=ones) if ones else x
    return b.add(found, spread_like(b, 0, found)) if op.name == "sum" else found


@rule(*EXACT)
def reduce_of_reduce(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # max (max x) = max x
    made = b.made(x, op.name)
    if made is None or b.reads.get(x) != 1:
        return None
    merged = sorted({*made.params["axes"], *inserted(axes, made.params["axes"])})
    return b.emit(op, made.operands, {"axes": tuple(merged)})[0]


@rule("sum", "prod", *EXACT)
def reduce_inside_broadcast(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # sum (broadcast x) = broadcast (sum x) over other axes than the new ones
    added = broadcast_axes(b, x)
    if not added or set(axes) & set(added):
        return None
    (inner,) = b.emit(op, [b.made_by[x].operands[0]], {"axes": renumbered(axes, added)})
    return spread(b, inner, renumbered(added, axes), without(x.type.shape, axes))


@rule("sum")
def sum_of_doubles(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # sum (x + x) = sum x + sum x: doubling is exact
    made = b.made(x, "add")
    if made is None or made.operands[0] is not made.operands[1] or b.reads.get(x) != 1 or x.type.dtype.kind != "f":
        return None
    (once,) = b.emit(op, made.operands[:1], {"axes": axes})
    return b.add(once, once)
