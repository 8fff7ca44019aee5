"""Recognises maxima that are taken out of exponentials and put back, as in a softmax: they are no part of the derivative.

    m = max x;  e = exp (x - m);  e / sum e          log (sum e) + m          x - m - log (sum e)

Added to by t, m makes ``e`` smaller by a factor of exp(t), so the results do not depend on it. How a value depends on m is
followed through the ops: it is *shifted*, by k t, or *scaled*, by exp(k t). Where everything that m reaches ends with k = 0,
m becomes a constant to derivatives: what its gradient rule would contribute is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Change:
    """How a value follows ``peak``. ``axes``: those of the value that are the peak's own, in their order."""

    peak: Value
    is_scaled: bool
    times: int
    axes: Axes


def shifts(function: Function) -> Function:
    """Put a ``stop_gradient`` behind each such maximum in a region.

    Requires: a func before ``grad`` (other kinds are returned as they are); after ``simplify`` and ``cse`` it sees more.
    Keeps: values bit by bit, and derivatives but for rounding.
    """
    if function.kind != "func" or not any(i.regions for i in function.instructions):
        return function
    made = tuple(_with_regions(i) for i in function.instructions)
    return replace(function, body=replace(function.body, instructions=made))


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
        known = [changes.get(v) for v in instruction.operands]
        if not any(known):
            continue
        found = _followed(instruction, known)
        if found is None:
            _escape(instruction.operands, changes, escaped)
        elif found.times:
            changes[instruction.result] = found
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


def _followed(instruction: Instruction, known: Sequence[Change | None]) -> Change | None:
    """How the result follows the peak that operands follow; None if it is not known to."""
    name, params = instruction.op.name, instruction.params
    first = known[0]
    second = known[1] if len(known) == 2 else None
    if len(known) == 1:
        assert first is not None
        return _of_one(name, params, first, instruction.operands[0].type.rank)
    if len(known) != 2:
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
