"""Find the first step of a call that produces a NaN, an infinity or a number out of range, for ``pb.jit(debug=True)``.

A call runs on the interpreter, which checks each instruction's results. Only if one of them is bad is the call run again with
all values kept, to determine whether the bad value reaches a result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.checking.interpreted_run import Array, Run, observed, run_straight
from pullback.checking.nonfinite_origins import Kind, NonFinite, Search, is_kind
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.loops import Loop, Switch
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.programs.call import Call

CHOOSING = frozenset({"max", "min", "fmax", "fmin", "maximum", "minimum", "clip"})
"""Ops that return one of their operands unchanged; the other operands do not matter."""


def first_wrong(call: Call) -> NonFinite | None:
    """Return the first step that produces a NaN or an infinity from finite numbers, or a number out of range, if its value
    matters.

    The value does not matter if it is read only by a ``where``, a minimum or a maximum that takes another value, or by a
    comparison. Nothing is printed; Python functions are called back. Raises as ``run_call``.
    """
    wrong: list[Instruction] = []

    def observe(i: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        if not wrong and not isinstance(i.op, Constant | Loop | Switch):
            is_bad = any(not _is_finite(r) for r in results)
            if is_bad or bool(np.any(out_of_range(i, operands))):
                wrong.append(i)

    observed(call, observe, effects=False)
    return next(_wrong(run_straight(call, effects=False)), None) if wrong else None


def _wrong(run: Run) -> Iterator[NonFinite]:
    """Yield the steps that first produce a bad value that matters, in program order."""
    search = Search(run, inf=True)
    matter = relevant_elements(run)
    for i in run.function.instructions:
        if isinstance(i.op, Constant):
            continue
        for value in i.results:
            masks: dict[Kind, Array] = {kind: is_kind(run.values[value], kind) for kind in search.kinds}
            masks["range"] = np.broadcast_to(out_of_range(i, [run.values[v] for v in i.operands]), run.values[value].shape)
            for kind, mask in masks.items():
                seen = mask & matter[value]
                if seen.any() and (kind == "range" or not search.causes(i, value, kind)):
                    yield replace(search.event(value, kind, seen), turn=run.iterations.get(i, ()))


def _is_finite(x: Any) -> bool:
    array = np.asarray(x)
    return array.dtype.kind in "biu" or bool(np.isfinite(array).all())


def out_of_range(i: Instruction, operands: Sequence[Any]) -> Any:
    """Return a mask of the elements for which an instruction on integers, or one that returns integers, has no result in
    NumPy's arithmetic."""
    name = i.op.name
    if not isinstance(i.op, Elementwise) or name not in ("cast", "floordiv", "mod", "shl", "shr"):
        return False
    target = i.result.type.dtype.numpy
    if target.kind not in "iu":
        return False
    limits = np.iinfo(target)
    x = np.asarray(operands[0])
    if name == "cast":
        if x.dtype.kind not in "fV":
            return False
        truncated = np.trunc(x.astype(np.float64))
        return ~((truncated >= float(limits.min)) & (truncated < float(limits.max) + 1))
    y = np.asarray(operands[1])
    if name in ("shl", "shr"):
        return (y < 0) | (y >= limits.bits)
    return (y == 0) | ((x == limits.min) & (y == -1) if limits.min else False)


def relevant_elements(run: Run) -> dict[Value, Array]:
    """Return, for each value, a mask of the elements that reach a result or an effect other than by a comparison or a choice
    of another value."""
    matter: dict[Value, Array] = {v: np.zeros(np.shape(x), bool) for v, x in run.values.items()}
    for value in run.function.results:
        matter[value][...] = True
    for i in reversed(run.function.instructions):
        for value, mask in zip(i.operands, _read(i, [matter[v] for v in i.results], run), strict=True):
            matter[value] |= mask
    return matter


def _read(i: Instruction, results: Sequence[Array], run: Run) -> Sequence[Any]:
    """Return, for each operand, a mask of the elements that matter, from the masks of the results."""
    op = i.op
    values = [run.values[v] for v in i.operands]
    if isinstance(op, Elementwise):
        (matter,) = results
        if op.gives == "select":
            chosen = np.asarray(values[0], bool)
            return [matter, matter & chosen, matter & ~chosen]
        if op.gives == "bool" and len(i.operands) == 2:
            return [False] * len(i.operands)
        if op.name in CHOOSING:
            bad = is_kind(run.values[i.result], "nan") | is_kind(run.values[i.result], "inf")
            return [matter & bad] * len(i.operands)
        return [matter] * len(i.operands)
    if isinstance(op, Reindex):
        return _moved(i, results[0], values, len(values))
    if isinstance(op, Gather):
        return [*_moved(i, results[0], values, 1), *[bool(results[0].any())] * (len(values) - 1)]
    if isinstance(op, Reduce) and op.name in CHOOSING:
        bad = is_kind(run.values[i.result], "nan") | is_kind(run.values[i.result], "inf")
        return [bool((results[0] & bad).any())]
    return [not results or any(bool(r.any()) for r in results)] * len(i.operands)


def _moved(i: Instruction, matter: Array, values: Sequence[Array], count: int) -> list[Array]:
    """Return the masks of the first ``count`` operands of an op that moves elements, by running the op on element indices."""
    moved = values[:count]
    starts = np.cumsum([0, *(x.size for x in moved)])
    indices = [np.arange(start, start + x.size).reshape(x.shape) for start, x in zip(starts, moved)]
    (sources,) = i.op.evaluate([*indices, *values[count:]], i.params, [replace(v.type, dtype=I64) for v in i.results])
    reached = np.zeros(starts[-1], bool)
    reached[np.asarray(sources)[matter]] = True
    return [reached[start : start + x.size].reshape(x.shape) for start, x in zip(starts, moved)]
