"""beside: arrays that are put side by side along a short axis are stored together.

Requires: an optimised func without complex values. Keeps: all other instructions. ``np.stack([x, y], axis=-1)`` visited as
elements of the result would choose by the last index at each of them; visited as elements of its parts it computes and stores
all parts of a place. So do the gradients of gates, which are places of an axis, for the product that reads them. A few cheap
elementwise operations on arrays put side by side are made of their parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.reindex import broadcast, concat, reshape
from pullback.ir.ops.control.loops import Loop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

MOST = 8
MOST_TIMES = 32
"""So many operations on parts take the place of those on arrays put side by side: code is made anew for each part."""
Parts = tuple[Value, ...]


def beside(function: Function) -> Function:
    """The function with ``interleave`` for each such array that it hands out, or reads as a whole alone."""
    producer = {v: i for i in function.instructions for v in i.results}
    whole = _read_whole(function)
    joined = _joined(function, producer, whole)
    handed = {v for v in joined if v in whole}
    inside = _inside(joined, handed)
    parts: dict[Value, Parts] = {}
    axes: dict[Value, int] = {}

    def made(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        if i.op is concat:
            axes[i.result] = i.params["axis"]
            parts[i.result] = tuple(_part(b, v, axes[i.result], producer.get(v), new) for v in i.operands)
        else:
            first = next(v for v in i.operands if v in parts)
            axes[i.result], like = axes[first], parts[first]
            sources = {v: producer[v].operands[0] for v in i.operands if v not in parts}
            same = {v: (b.spread(new(k), like[0].type.shape),) * len(like) for v, k in sources.items()}
            each = zip(*(parts[v] if v in parts else same[v] for v in i.operands), strict=True)
            parts[i.result] = tuple(b.emit(i.op, operands, dict(i.params))[0] for operands in each)
        # What is not handed out is read by its parts' readers alone.
        if i.result not in handed:
            return i.results
        axis = axes[i.result]
        return [b.interleave(*parts[i.result], **({} if axis == i.result.type.rank - 1 else {"axis": axis}))]

    return replaced(function, lambda i: not inside.isdisjoint(i.results), made)


def _read_whole(function: Function) -> Counter[Value]:
    """How often values are results of the function, or read as arrays in memory."""
    found = Counter(function.results)
    for i in function.instructions:
        if i.op is reshape or isinstance(i.op, Contract | Loop):
            found.update(i.operands)
    return found


def _joined(
    function: Function, made: Mapping[Value, Instruction], whole: Mapping[Value, int]
) -> dict[Value, Instruction]:
    """What puts few arrays side by side, or is a cheap function of as many; nothing else reads what these read."""
    counts, found = use_counts(function.body), dict[Value, Instruction]()
    number: dict[Value, tuple[int, int]] = {}
    times: dict[Value, int] = {}
    for i in function.instructions:
        if _is_beside(i):
            number[i.result], found[i.result] = (len(i.operands), i.params["axis"]), i
        elif isinstance(i.op, Elementwise) and i.op.cheap:
            of = dict.fromkeys(v for v in i.operands if not _is_spread(made.get(v)))
            known = {number.get(v, (0, 0)) for v in of}
            if len(known) != 1 or (0, 0) in known or any(counts[v] != i.operands.count(v) for v in of):
                continue
            times[i.result] = sum(times.get(v, 0) for v in of) + max(known)[0]
            if times[i.result] <= MOST_TIMES:
                number[i.result], found[i.result] = max(known), i
    return {v: i for v, i in found.items() if whole.get(v, 0) in (0, counts[v])}


def _is_spread(i: Instruction | None) -> bool:
    """Whether a value is a scalar that is broadcast."""
    return i is not None and i.op is broadcast and i.operands[0].type.rank == 0


def _inside(joined: Mapping[Value, Instruction], handed: set[Value]) -> set[Value]:
    """The results handed out and what they are made of."""
    inside, stack = set[Value](), list(handed)
    while stack:
        v = stack.pop()
        if v not in inside:
            inside.add(v)
            stack += [k for k in joined[v].operands if k in joined] if joined[v].op is not concat else []
    return inside


def _part(b: Builder, v: Value, axis: int, spread: Instruction | None, new: New) -> Value:
    """One of the arrays put side by side, without the axis along which they are."""
    if spread is not None and spread.op is broadcast and tuple(spread.params["axes"]) == (axis,):
        return new(spread.operands[0])
    found: Value = b.squeeze(new(v), axes=(axis,))
    return found


def _is_beside(i: Instruction) -> bool:
    """Whether an instruction joins few arrays of one place each."""
    if i.op is not concat or not 2 <= len(i.operands) <= MOST:
        return False
    return i.result.type.rank > 1 and all(v.type.shape[i.params["axis"]] == 1 for v in i.operands)
