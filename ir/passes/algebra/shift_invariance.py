"""Recognise maxima that are subtracted inside exponentials and added back, as in a softmax: they do not affect the derivative.

    m = max x;  e = exp (x - m);  e / sum e          log (sum e) + m          x - m - log (sum e)

Adding t to m divides ``e`` by exp(t), and the results do not depend on t. The pass follows how each value depends on m:
*shifted* by k t, or *scaled* by exp(k t). If every use of m ends with k = 0, m is made a constant for derivatives, since its
gradient contribution is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """The dependence of a value on ``peak``: scaled or shifted, ``times`` being k. ``axes``: the axes of the value that are
    the axes of the peak, in its order."""

    peak: Value
    is_scaled: bool
    times: int
    axes: Axes


def shifts(function: Function) -> Function:
    """Insert a ``stop_gradient`` after each such maximum in a region.

    Requires: a func before ``grad`` (other kinds are returned unchanged); after ``simplify`` and ``cse`` it recognises more.
    Keeps: values bit by bit, and derivatives up to rounding.
    """
    if function.kind != "func" or not any(i.regions for i in function.instructions):
        return function
    instructions = tuple(_with_regions(i) for i in function.instructions)
    return replace(function, body=replace(function.body, instructions=instructions))


def _with_regions(instruction: Instruction) -> Instruction:
    if not instruction.regions:
        return instruction
    return replace(instruction, regions=tuple(_detached(region) for region in instruction.regions))


def _detached(block: Block) -> Block:
    changes: dict[Value, Change] = {}
    escaped: set[Value] = set()
    for instruction in block.instructions:
        if instruction.op.name in ("max", "min") and instruction.result.type.dtype.is_float:
            _escape(instruction.operands, changes, escaped)
            peak = instruction.result
            changes[peak] = Change(peak, False, 1, tuple(range(peak.type.rank)))
            continue
        operand_changes = [changes.get(v) for v in instruction.operands]
        if not any(operand_changes):
            continue
        change = _followed(instruction, operand_changes)
        if change is None:
            _escape(instruction.operands, changes, escaped)
        elif change.times:
            changes[instruction.result] = change
    _escape(block.results, changes, escaped)
    peaks = {c.peak for c in changes.values()} - escaped
    renamed: dict[Value, Value] = {}
    out: list[Instruction] = []
    for instruction in block.instructions:
        operands = tuple(renamed.get(v, v) for v in instruction.operands)
        new = _with_regions(instruction if operands == instruction.operands else replace(instruction, operands=operands))
        out.append(new)
        if instruction.results and instruction.results[0] in peaks:
            peak = instruction.result
            renamed[peak] = Value(peak.type, peak.name)
            out.append(Instruction(OPS["stop_gradient"], (peak,), (renamed[peak],), {}, (), instruction.loc))
    return replace(block, instructions=tuple(out))


def _escape(values: Sequence[Value], changes: dict[Value, Change], escaped: set[Value]) -> None:
    escaped.update(changes[v].peak for v in values if v in changes)


def _followed(instruction: Instruction, changes: Sequence[Change | None]) -> Change | None:
    """Return how the result depends on the peak of its operands; None if that is unknown."""
    name, params = instruction.op.name, instruction.params
    first = changes[0]
    second = changes[1] if len(changes) == 2 else None
    if len(changes) == 1:
        assert first is not None
        return _of_one(name, params, first, instruction.operands[0].type.rank)
    if len(changes) != 2:
        return None
    if first is not None and second is not None and (first.peak, first.is_scaled, first.axes) != (
        second.peak, second.is_scaled, second.axes
    ):  # fmt: skip
        return None
    some = first or second
    assert some is not None
    if name not in (("mul", "div") if some.is_scaled else ("add", "sub")):
        return None
    sign = 1 if name in ("add", "mul") else -1
    return replace(some, times=(first.times if first else 0) + sign * (second.times if second else 0))


def _of_one(name: str, params: Mapping[str, Any], change: Change, rank: int) -> Change | None:
    match name:
        case "exp" if not change.is_scaled:
            return replace(change, is_scaled=True)
        case "log" if change.is_scaled:
            return replace(change, is_scaled=False)
        case "neg":
            return change if change.is_scaled else replace(change, times=-change.times)
        case "broadcast":
            kept = [k for k in range(rank + len(params["axes"])) if k not in params["axes"]]
            return replace(change, axes=tuple(kept[a] for a in change.axes))
        case "transpose":
            return replace(change, axes=tuple(params["perm"].index(a) for a in change.axes))
        case "sum" | "squeeze" if change.is_scaled or name == "squeeze":
            if set(params["axes"]) & set(change.axes):
                return None
            return replace(change, axes=tuple(a - sum(gone < a for gone in params["axes"]) for a in change.axes))
    return None
