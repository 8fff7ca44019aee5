"""indexed_views: gather the elements of a view of an array from the array, instead of copying the view first.

    s = x[1:-1]; y = s[:, j]                            y = x[:, j][1:-1]

Requires: an optimised func without gradient instructions. Keeps: its meaning. An index into a view becomes an index into the
array: it is counted from the end of the view first. ``write_through`` is the same for updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Gather, gather, proof
from pullback.ir.ops.array.reindex import flip, slice_, squeeze, transpose
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.editing.replay import New, replaced
from pullback.ir.passes.structure.write_through import is_stored, moved_index

FEW_INDICES = 16
"""Number of indices up to which elements are gathered through any view; more are gathered from a copy of a strided view."""

Producers = Mapping[Value, Instruction]


def indexed_views(function: Function) -> Function:
    """Return the function with such reads."""
    if not any(isinstance(i.op, Gather) for i in function.instructions):
        return function
    producer = {v: i for i in function.instructions for v in i.results}
    chosen = {i for i in function.instructions if i.op is gather and _is_gathered_through(i, producer)}
    if not chosen:
        return function

    def emit(b: Builder, i: Instruction, new: New) -> list[Value]:
        return [_gathered(b, i, producer, new)]

    return dce(replaced(function, chosen.__contains__, emit))


def _views(value: Value, producer: Producers) -> list[Instruction]:
    """Return the views through which a gather can read, from a value to an array."""
    views: list[Instruction] = []
    definition = producer.get(value)
    while definition is not None and definition.op in (slice_, squeeze, flip, transpose):
        views.append(definition)
        definition = producer.get(definition.operands[0])
    return views


def _is_gathered_through(i: Instruction, producer: Producers) -> bool:
    """Return whether the elements of a view are to be gathered from its array: if they are few, or adjacent in memory."""
    views = _views(i.operands[0], producer)
    if not any(v.op is not squeeze for v in views) or not is_stored(views[-1].operands[0], producer):
        return False
    shape = i.operands[1].type.shape
    is_few = all(isinstance(e, int) for e in shape) and prod(e for e in shape if isinstance(e, int)) <= FEW_INDICES
    last = i.operands[0].type.rank - 1
    is_adjacent = all(v.op is slice_ and v.params["step"][-1] == 1 for v in views) and last not in i.params["axes"]
    return is_few or is_adjacent


def _gathered(b: Builder, i: Instruction, producer: Producers, new: New) -> Value:
    """Emit a gather from the array of a view."""
    indices = list(map(new, i.operands[1:]))
    axes, rank, proved = tuple(i.params["axes"]), indices[0].type.rank, set(i.params.get("in_range", ()))
    undo: list[tuple[Any, dict[str, Any]]] = []
    views = _views(i.operands[0], producer)
    for view in views:
        (source,), params = view.operands, view.params
        extents = view.result.type.shape
        if view.op is squeeze:
            kept = [k for k in range(source.type.rank) if k not in params["axes"]]
            axes, proved = tuple(kept[a] for a in axes), {kept[a] for a in proved}
            rest = [k for k in range(source.type.rank) if k not in axes]
            undo.append((squeeze, {"axes": tuple(rank + rest.index(k) for k in params["axes"])}))
            continue
        if view.op is transpose:
            perm = params["perm"]
            kept = [perm[k] for k in range(len(perm)) if k not in axes]
            pairs = sorted(zip((perm[a] for a in axes), indices, strict=True), key=lambda pair: pair[0])
            axes, indices, proved = tuple(a for a, _ in pairs), [index for _, index in pairs], {perm[a] for a in proved}
            undo.append((transpose, {"perm": (*range(rank), *(rank + sorted(kept).index(k) for k in kept))}))
            continue
        rest = [k for k in range(source.type.rank) if k not in axes]
        if view.op is flip:
            flips = params["axes"]
            indices = [
                moved_index(b, x, extents[a], None, 1, a in flips, a in proved) for a, x in zip(axes, indices, strict=True)
            ]
            flipped = tuple(rank + n for n, k in enumerate(rest) if k in params["axes"])
            undo += [(flip, {"axes": flipped})] if flipped else []
            continue
        start, step = params["start"], params["step"]
        indices = [
            moved_index(b, x, extents[a], start[a], step[a], is_proved=a in proved)
            for a, x in zip(axes, indices, strict=True)
        ]
        if any(start[k] is not None for k in rest):
            lead = indices[0].type.shape
            undo.append(
                (
                    slice_,
                    {
                        "start": ((None,) * rank) + tuple(start[k] for k in rest),
                        "step": ((1,) * rank) + tuple(step[k] for k in rest),
                        "shape": (*lead, *(extents[k] for k in rest)),
                    },
                )
            )
    root = views[-1].operands[0]
    (result,) = b.emit(gather, (new(root), *indices), {"axes": axes, **proof(tuple(proved))})
    for op, params in reversed(undo):
        (result,) = b.emit(op, (result,), params)
    return result
