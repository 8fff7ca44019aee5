"""Rules for rearrangements and reductions; those for contractions are in ``rules_contract``. tests/golden/passes holds one
example of each rule, under its name.

A ``broadcast`` moves towards the results, so that work is done before it, on smaller arrays; other rearrangements move inside
a ``broadcast``, where they often vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.core.op import Op
from pullback.ir.core.types import Extent, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import proof
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.simplify.rewrite import Rewriter, constant_like, rule, without_axes

Axes = tuple[int, ...]


def broadcast_axes(b: Rewriter, x: Value) -> Axes:
    """Return the axes that a broadcast added to ``x``; none if ``x`` is not the result of a broadcast."""
    producer = b.producer(x, "broadcast")
    return () if producer is None else tuple(producer.params["axes"])


def renumbered(axes: Sequence[int], removed: Sequence[int]) -> Axes:
    """Return the positions of axes after ``removed`` are taken out."""
    return tuple(a - sum(r < a for r in removed) for a in axes if a not in removed)


def inserted(axes: Sequence[int], added: Sequence[int]) -> Axes:
    """Return the positions of axes after axes are inserted at the positions ``added`` of the result."""
    names = [k for k in range(max(axes, default=-1) + 1 + len(added)) if k not in added]
    return tuple(names[a] for a in axes)


def spread(b: Rewriter, x: Value, axes: Sequence[int], shape: Shape) -> Value:
    """Emit a broadcast, unless there is no axis to add."""
    result: Value = b.broadcast(x, axes=tuple(axes), shape=tuple(shape)) if axes else x
    return result


def narrow(b: Rewriter, x: Value, removed: Sequence[int]) -> Value:
    """Return a broadcast value without some of the axes that the broadcast added."""
    producer = b.definitions[x]
    axes = renumbered(producer.params["axes"], removed)
    return spread(b, producer.operands[0], axes, without_axes(x.type.shape, removed))


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
    return spread(b, b.definitions[x].operands[0], sorted({*axes, *inserted(inner, axes)}), shape)


@rule("squeeze")
def squeeze_of_broadcast(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (broadcast x) = x for equal axes; the remaining axes stay with their op
    added = broadcast_axes(b, x)
    removed = [a for a in axes if a in added]
    if not removed:
        return None
    remaining = renumbered(axes, removed)
    result = narrow(b, x, removed)
    return b.squeeze(result, axes=remaining) if remaining else result


@rule("squeeze")
def squeeze_inside_broadcast(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (broadcast x) = broadcast (squeeze x)
    added = broadcast_axes(b, x)
    if not added or set(axes) & set(added):
        return None
    inner = b.squeeze(b.definitions[x].operands[0], axes=renumbered(axes, added))
    return spread(b, inner, renumbered(added, axes), without_axes(x.type.shape, axes))


@rule("squeeze")
def squeeze_of_squeeze(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (squeeze x) = squeeze x
    inner = b.producer(x, "squeeze")
    if inner is None:
        return None
    return b.squeeze(inner.operands[0], axes=tuple(sorted({*inner.params["axes"], *inserted(axes, inner.params["axes"])})))


@rule("transpose")
def transpose_to_same(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose x {perm=[0, 1, ...]} = x
    return x if tuple(perm) == tuple(range(len(perm))) else None


@rule("transpose")
def transpose_of_transpose(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose (transpose x) = transpose x
    producer = b.producer(x, "transpose")
    return None if producer is None else b.transpose(producer.operands[0], perm=tuple(producer.params["perm"][p] for p in perm))


@rule("transpose")
def transpose_inside_broadcast(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose (broadcast x) = broadcast (transpose x)
    added = broadcast_axes(b, x)
    if not added:
        return None
    kept = renumbered(perm, added)
    inner = b.transpose(b.definitions[x].operands[0], perm=kept) if kept else b.definitions[x].operands[0]
    axes = [k for k, p in enumerate(perm) if p in added]
    return spread(b, inner, axes, tuple(x.type.shape[p] for p in perm))


@rule("reshape")
def reshape_to_same(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # reshape x to its own shape = x
    return x if x.type.shape == tuple(shape) else None


@rule("reshape")
def reshape_of_reshape(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # reshape (reshape x) = reshape x, reshape (squeeze x) = reshape x
    producer = b.producer(x, "reshape", "squeeze")
    return None if producer is None else b.reshape(producer.operands[0], shape=shape)


@rule("squeeze")
def squeeze_of_reshape(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # squeeze (reshape x) = reshape x
    source = b.operand(x, "reshape")
    return None if source is None else b.reshape(source, shape=without_axes(x.type.shape, axes))


@rule("reshape")
def reshape_of_broadcast(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # reshape (broadcast x) = reshape x where the new axes have extent 1, and of a constant, the constant in that shape
    added = broadcast_axes(b, x)
    if not added:
        return None
    source = b.definitions[x].operands[0]
    if not source.type.rank:
        return spread(b, source, range(len(shape)), shape) if shape else None
    return b.reshape(source, shape=shape) if all(x.type.shape[a] == 1 for a in added) else None


@rule("reshape")
def reshape_of_ones(b: Rewriter, x: Value, shape: Shape, **_: Any) -> Value | None:
    # a reshape that removes or adds axes of extent 1 is a squeeze or a broadcast
    removed = [k for k, e in enumerate(x.type.shape) if e == 1]
    added = [k for k, e in enumerate(shape) if e == 1]
    if without_axes(x.type.shape, removed) != without_axes(shape, added):
        return None
    inner = b.squeeze(x, axes=tuple(removed)) if removed else x
    return spread(b, inner, added, shape)


@rule("flip")
def flip_of_flip(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # flip (flip x) = x along the same axes
    producer = b.producer(x, "flip")
    return None if producer is None else b.flip(producer.operands[0], axes=tuple(sorted({*axes} ^ {*producer.params["axes"]})))


@rule("flip")
def flip_inside_broadcast(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    # flip (broadcast x) = broadcast (flip x); along new axes there is nothing to flip
    added = broadcast_axes(b, x)
    if not added:
        return None
    inner = b.flip(b.definitions[x].operands[0], axes=renumbered(axes, added))
    return spread(b, inner, added, x.type.shape)


@rule("cumsum", "linear_recurrence")
def scan_of_flipped(b: Rewriter, *operands: Value, op: Op, axis: int, reverse: bool, **_: Any) -> Value | None:
    # scan (flip x) = flip (scan x), from the other end along a flipped axis
    producers = [b.producer(x, "flip") for x in operands]
    axes = {tuple(i.params["axes"]) for i in producers if i is not None}
    if None in producers or len(axes) != 1:
        return None
    (flipped,) = axes
    params = {"axis": axis, "reverse": reverse != (axis in flipped)}
    return b.flip(b.emit(op, [i.operands[0] for i in producers if i is not None], params)[0], axes=flipped)


@rule("gather")
def gather_of_transpose(b: Rewriter, x: Value, *indices: Value, axes: Axes, in_range: Axes = (), **_: Any) -> Value | None:
    # (transpose x)[i] = transpose x[i], taken from the axes that were moved
    producer = b.producer(x, "transpose")
    if producer is None:
        return None
    perm = producer.params["perm"]
    taken = sorted(((perm[a], index) for a, index in zip(axes, indices, strict=True)), key=lambda pair: pair[0])
    proved = proof([perm[a] for a in in_range])
    result = b.gather(producer.operands[0], *(index for _, index in taken), axes=tuple(a for a, _ in taken), **proved)
    count, rest = indices[0].type.rank, [p for k, p in enumerate(perm) if k not in axes]
    return b.transpose(result, perm=(*range(count), *(count + sorted(rest).index(p) for p in rest)))


@rule("gather")
def gather_of_broadcast(b: Rewriter, x: Value, *indices: Value, axes: Axes, in_range: Axes = (), **_: Any) -> Value | None:
    # (broadcast x)[i] = broadcast x[i], without the indices along the new axes
    added = broadcast_axes(b, x)
    if not added:
        return None
    count = indices[0].type.rank
    kept = [(a, index) for a, index in zip(axes, indices, strict=True) if a not in added]
    source = b.definitions[x].operands[0]
    rest = [k for k in range(x.type.rank) if k not in axes]
    new = [count + n for n, k in enumerate(rest) if k in added]
    shape = (*indices[0].type.shape, *(x.type.shape[k] for k in rest))
    if kept:
        proved = proof(renumbered([a for a, _ in kept if a in in_range], added))
        part = b.gather(source, *(index for _, index in kept), axes=renumbered([a for a, _ in kept], added), **proved)
        return spread(b, part, new, shape)
    return spread(b, source, [*range(count), *new], shape)


@rule("gather")
def gather_of_transposed_slice(
    b: Rewriter, x: Value, *indices: Value, axes: Axes, in_range: Axes = (), **_: Any
) -> Value | None:
    # (transpose x)[a:b][i] = (transpose x[a:b])[i]
    producer = b.producer(x, "slice")
    inner = None if producer is None else b.producer(producer.operands[0], "transpose")
    if producer is None or inner is None:
        return None
    perm = tuple(inner.params["perm"])
    order = [perm.index(k) for k in range(len(perm))]
    part = {name: tuple(producer.params[name][k] for k in order) for name in ("start", "step", "shape")}
    return b.gather(b.transpose(b.slice(inner.operands[0], **part), perm=perm), *indices, axes=axes, **proof(in_range))


@rule("gather")
def gather_of_flip(b: Rewriter, x: Value, *indices: Value, axes: Axes, in_range: Axes = (), **_: Any) -> Value | None:
    # (flip x)[i] = flip x[n - 1 - i] at a single position
    producer = b.producer(x, "flip")
    if producer is None or indices[0].type.rank:
        return None
    flipped = producer.params["axes"]
    moved = [
        _from_end(b, i, x.type.shape[a], a in in_range) if a in flipped else i for a, i in zip(axes, indices, strict=True)
    ]
    result = b.gather(producer.operands[0], *moved, axes=axes, **proof(in_range))
    return b.flip(result, axes=renumbered([a for a in flipped if a not in axes], axes))


@rule("gather")
def gather_of_flipped_slice(b: Rewriter, x: Value, *indices: Value, axes: Axes, in_range: Axes = (), **_: Any) -> Value | None:
    # (flip x)[:, a:b][i] = (flip x)[i][a:b] at a single position
    producer = b.producer(x, "slice")
    if producer is None or b.producer(producer.operands[0], "flip") is None or indices[0].type.rank:
        return None
    part = {name: tuple(producer.params[name]) for name in ("start", "step", "shape")}
    if any(part["start"][a] is not None for a in axes):
        return None
    taken = b.gather(producer.operands[0], *indices, axes=axes, **proof(in_range))
    return b.slice(taken, **{name: without_axes(entries, axes) for name, entries in part.items()})


def _from_end(b: Rewriter, index: Value, extent: Extent, is_proved: bool) -> Value:
    """Emit the index of an element, counted from the other end of its axis. ``is_proved``: the index is in range."""
    count = b.count(shape=(extent,))
    first = index if is_proved else b.select(b.lt(index, b.zeros_like(index)), b.add(index, count), index)
    result: Value = b.sub(b.sub(count, constant_like(b, 1, index)), first)
    return result


@rule("shift")
def shift_by_nothing(b: Rewriter, x: Value, offset: int, **_: Any) -> Value | None:
    # shift x {offset=0} = x
    return None if offset else x


@rule("roll")
def roll_back(b: Rewriter, x: Value, axes: Axes, offset: Shape, backward: bool, **_: Any) -> Value | None:
    # roll (roll x) = x in opposite directions; by nothing, roll x = x
    if offset == (0,):
        return x
    producer = b.producer(x, "roll")
    params = {"axes": axes, "offset": offset, "backward": not backward}
    return producer.operands[0] if producer is not None and dict(producer.params) == params else None


@rule("roll")
def roll_inside_broadcast(b: Rewriter, x: Value, axes: Axes, offset: Shape, backward: bool, **_: Any) -> Value | None:
    # roll (broadcast x) = broadcast (roll x); along new axes nothing moves
    added = broadcast_axes(b, x)
    if not added or (set(axes) & set(added) and not set(axes) <= set(added)):
        return None
    if set(axes) <= set(added):
        return x
    inner = b.roll(b.definitions[x].operands[0], axes=renumbered(axes, added), offset=offset, backward=backward)
    return spread(b, inner, added, x.type.shape)


@rule("slice", "pad")
def whole(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # x[:] = x
    return x if x.type.shape == tuple(shape) and _starts(start, step) else None


def _starts(start: Shape, step: Axes) -> bool:
    return all(s in (None, 0) for s in start) and all(d == 1 for d in step)


@rule("slice")
def slice_of_slice(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # x[a::d][b::e] = x[c::f] where no offset has to be computed
    producer = b.producer(x, "slice")
    if producer is None:
        return None
    starts: list[int | str | None] = []
    for s, inner_start, inner_step in zip(start, producer.params["start"], producer.params["step"]):
        if not s:
            starts.append(s if inner_start is None else inner_start)
        elif not inner_start and inner_step == 1:
            starts.append(s)
        else:
            return None
    steps = tuple(d * e for d, e in zip(step, producer.params["step"]))
    return b.slice(producer.operands[0], start=tuple(starts), step=steps, shape=shape)


@rule("slice")
def slice_inside_broadcast(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # (broadcast x)[i] = broadcast x[i]
    added = broadcast_axes(b, x)
    if not added:
        return None
    source = b.definitions[x].operands[0]
    inner = [without_axes(entries, added) for entries in (start, step, shape)]
    part = b.slice(source, start=inner[0], step=inner[1], shape=inner[2]) if source.type.rank else source
    return spread(b, part, added, shape)


@rule("slice")
def slice_of_written(b: Rewriter, x: Value, start: Shape, step: Axes, shape: Shape, **_: Any) -> Value | None:
    # (pad v)[the padded part] = v, and the same for slice_set
    producer = b.producer(x, "pad", "slice_set")
    if producer is None or tuple(producer.params["start"]) != tuple(start) or tuple(producer.params["step"]) != tuple(step):
        return None
    written = producer.operands[-1]
    return written if written.type.shape == tuple(shape) else None


@rule("slice_set")
def set_whole(b: Rewriter, x: Value, value: Value, start: Shape, step: Axes, **_: Any) -> Value | None:
    # x[:] = v makes v
    return value if x.type.shape == value.type.shape and _starts(start, step) else None


# reductions


@rule("count")
def count_of_extents(b: Rewriter, *operands: Value, shape: Shape, **_: Any) -> Value | None:
    # the count of elements of x along some axes = the product of these extents
    return b.count(shape=shape) if operands else None


EXACT = ("max", "min", "any", "all")
"""Reductions that do not round."""


@rule("sum", "prod", *EXACT)
def reduce_ones(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # over axes of extent 1: sum x = x + 0, max x = x
    ones = tuple(a for a in axes if x.type.shape[a] == 1)
    if len(ones) < len(axes):
        return None
    result = b.squeeze(x, axes=ones) if ones else x
    return b.add(result, constant_like(b, 0, result)) if op.name == "sum" else result


@rule(*EXACT)
def reduce_of_reduce(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # max (max x) = max x
    producer = b.producer(x, op.name)
    if producer is None or b.reads.get(x) != 1:
        return None
    merged = sorted({*producer.params["axes"], *inserted(axes, producer.params["axes"])})
    return b.emit(op, producer.operands, {"axes": tuple(merged)})[0]


@rule("sum", "prod", *EXACT)
def reduce_inside_broadcast(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # sum (broadcast x) = broadcast (sum x) over other axes than the new ones
    added = broadcast_axes(b, x)
    if not added or set(axes) & set(added):
        return None
    (inner,) = b.emit(op, [b.definitions[x].operands[0]], {"axes": renumbered(axes, added)})
    return spread(b, inner, renumbered(added, axes), without_axes(x.type.shape, axes))


@rule("sum")
def sum_of_doubles(b: Rewriter, x: Value, axes: Axes, op: Op, **_: Any) -> Value | None:
    # sum (x + x) = sum x + sum x: doubling is exact
    producer = b.producer(x, "add")
    if producer is None or producer.operands[0] is not producer.operands[1] or b.reads.get(x) != 1 or x.type.dtype.kind != "f":
        return None
    (once,) = b.emit(op, producer.operands[:1], {"axes": axes})
    return b.add(once, once)
