"""Predicates of cotangents: a predicate on the results of an instruction becomes one on each operand.

A cotangent that is zero where a predicate is false must not be multiplied by an infinite derivative there: zero times infinity
is NaN. So contributions are selected by the predicate; where a contraction sums dead products with others, its operands are
selected instead. Neither is done where no value can be infinite or NaN: a value is *exposed* if it depends on an op that has a
pole, may overflow, or is not known to do neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import Into
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.array.index import Gather, Place, Scatter
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.array.scan import Accumulate, LinearRecurrence
from pullback.ir.ops.control.markers import CotangentTap
from pullback.ir.ops.elementwise.elementwise import Elementwise, select
from pullback.ir.ops.library.family import Composed, Linalg
from pullback.ir.ops.library.fourier import Fourier
from pullback.ir.ops.library.sort import Sort

Predicates = list[Value | None]

FINITE_FAMILIES = (Reduce, Reindex, Contract, Gather, Scatter, Place, LinearRecurrence, Accumulate)
"""Op families whose values and derivatives are finite for finite operands."""


class History:
    """Facts about the values that a builder's instructions define. ``exposed``: outer values that are exposed."""

    def __init__(self, builder: Builder, exposed: Sequence[Value] = ()) -> None:
        self._instructions = builder.instructions
        self._read = 0
        self._spread: dict[Value, frozenset[int]] = {}
        self._exposed = set(exposed)

    def _catch_up(self) -> None:
        for instruction in self._instructions[self._read :]:
            if instruction.op.name == "broadcast":
                self._spread[instruction.result] = frozenset(instruction.params["axes"])
            elif instruction.op.name in ("bitand", "bitor", "bitnot"):
                axes = [self._spread.get(v, frozenset()) for v in instruction.operands]
                self._spread[instruction.result] = frozenset.intersection(*axes)
            if _exposes(instruction) or not self._exposed.isdisjoint(instruction.operands):
                self._exposed.update(instruction.results)
        self._read = len(self._instructions)

    def is_exposed(self, x: Value) -> bool:
        """Return whether a value may be infinite or NaN, or have such a derivative, for finite arguments."""
        self._catch_up()
        return x in self._exposed

    def spread(self, x: Value) -> frozenset[int]:
        """Return the axes along which all elements are known to be equal."""
        self._catch_up()
        return self._spread.get(x, frozenset())


def _exposes(instruction: Instruction) -> bool:
    """Return whether the results of an instruction are exposed for any operands."""
    op = instruction.op
    if op.name == "const":
        value = instruction.params["value"]
        return isinstance(value, float) and not math.isfinite(value)
    return not op.finite and not isinstance(op, FINITE_FAMILIES)


def masked_operands(
    b: Builder, history: History, instruction: Instruction, inputs: Sequence[Value], predicate: Value, wants: Sequence[bool]
) -> Sequence[Value]:
    """Return the operands of an instruction for its gradient rule: elements of a contraction's operand are zero if no result
    that reads them has a cotangent."""
    if not isinstance(instruction.op, Contract):
        return inputs
    words, out = split(instruction.params["spec"])
    operands = list(inputs)
    for position, (x, word) in enumerate(zip(inputs, words, strict=True)):
        is_free = _unread(out, word) <= history.spread(predicate)
        is_whole = _unread(out, words[1 - position]) <= history.spread(predicate)
        if wants[1 - position] and not is_whole and (is_free or history.is_exposed(x)):
            operands[position] = b.select(_within(b, predicate, out, x, word), x, b.zeros_like(x))
    return operands


def _unread(out: str, word: str) -> frozenset[int]:
    """Return the axes of the result that an operand does not have."""
    return frozenset(k for k, letter in enumerate(out) if letter not in word)


def _within(b: Builder, predicate: Value, out: str, x: Value, word: str) -> Value:
    """Emit, for each element of a contraction's operand, whether the predicate holds for a result that reads it."""
    axes = tuple(sorted(_unread(out, word)))
    holds = b.any(predicate, axes=axes) if axes else predicate
    left = [letter for letter in out if letter in word]
    order = [letter for letter in word if letter in left]
    if order != left:
        holds = b.transpose(holds, perm=tuple(left.index(letter) for letter in order))
    return _spread(b, holds, tuple(k for k, letter in enumerate(word) if letter not in left), x)


def _spread(b: Builder, x: Value, axes: tuple[int, ...], like: Value) -> Value:
    """Broadcast a value to the shape of ``like``, unless there is no axis to add."""
    result: Value = b.broadcast(x, axes=axes, shape=_shape(like)) if axes else x
    return result


def propagated(
    b: Builder,
    history: History,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    predicates: Sequence[Value],
    wants: Sequence[bool],
) -> Predicates:
    """Return the predicate of each operand; None where there is none, or where it is of no use."""
    op, params = instruction.op, instruction.params
    if isinstance(op, Elementwise | CotangentTap):
        return [predicates[0]] * len(inputs)
    if isinstance(op, Reduce):
        return [_spread(b, predicates[0], tuple(params["axes"]), inputs[0])]
    if isinstance(op, Contract):
        words, out = split(params["spec"])
        return [
            _within(b, predicates[0], out, x, word)
            if want and (history.is_exposed(x) or _unread(out, word) <= history.spread(predicates[0]))
            else None
            for x, word, want in zip(inputs, words, wants, strict=True)
        ]
    if isinstance(op, Reindex | Gather | Scatter | Place) and op.pullback is not None:
        return _moved(b, instruction, inputs, outputs, predicates, wants)
    if not any(history.is_exposed(x) for x in (*inputs, *outputs)):
        return [None] * len(inputs)
    return _by_rows(b, op, params, inputs, outputs, predicates, wants)


def _moved(
    b: Builder,
    instruction: Instruction,
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    predicates: Sequence[Value],
    wants: Sequence[bool],
) -> Predicates:
    """Apply the gradient rule itself to bools: predicates move like cotangents, and the sum of bools is "or"."""
    bools = [v if isinstance(v.type, ArrayType) and v.type.dtype is I64 else _none(b, v) for v in inputs]
    params: Mapping[str, Any] = instruction.params
    assert instruction.op.pullback is not None
    parts = instruction.op.pullback(b, instruction.op, bools, outputs, predicates, params, wants)
    return [part.dense() if isinstance(part, Into) else part if isinstance(part, Value) else None for part in parts]


def _by_rows(
    b: Builder,
    op: Any,
    params: Mapping[str, Any],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    predicates: Sequence[Value],
    wants: Sequence[bool],
) -> Predicates:
    """Return, for each operand, whether the predicate holds for any result with the same batch index; for a scan or a Fourier
    transform, anywhere along its axis."""
    if isinstance(op, LinearRecurrence | Accumulate | Fourier):
        axes: tuple[int, ...] = (params["axis"],)
        return [_spread(b, b.any(predicates[0], axes=axes), axes, inputs[0])] * len(inputs)
    batch = _batch_rank(op, inputs)
    rows: Value | None = None
    for predicate in predicates:
        shape = _shape(predicate)
        inner = tuple(range(batch, len(shape)))
        row = b.any(predicate, axes=inner) if inner else predicate
        rows = row if rows is None else b.bitor(rows, row)
    assert rows is not None
    return [
        _spread(b, rows, tuple(range(batch, len(_shape(x)))), x) if want else None for x, want in zip(inputs, wants, strict=True)
    ]


def forward_predicate(
    b: Builder, instruction: Instruction, inputs: Sequence[Value], is_moved: Sequence[bool], off: Predicates
) -> Value | None:
    """Forward mode: return a predicate that holds where the tangent of the result is not zero, from those of the operands with
    tangents; None if it is unknown."""
    op = instruction.op
    if op is select:
        return _chosen(b, inputs[0], is_moved[1:], off[1:])
    if op.name == "abs" and instruction.results[0].type == inputs[0].type:
        return b.ne(inputs[0], b.zeros_like(inputs[0]))
    predicates = [p for p, moved in zip(off, is_moved, strict=True) if moved]
    if any(p is None for p in predicates):
        return None
    if isinstance(op, Elementwise | CotangentTap):
        either = predicates[0]
        for other in predicates[1:]:
            either = either if other is either else b.bitor(either, other)
        return either
    if isinstance(op, Reduce) and op.linear:
        return b.any(predicates[0], **instruction.params)
    if isinstance(op, Reindex):
        bools = [_none(b, x) if p is None else p for x, p in zip(inputs, off, strict=True)]
        return b.emit(op, bools, dict(instruction.params))[0]
    return None


def _chosen(b: Builder, condition: Value, is_moved: Sequence[bool], off: Predicates) -> Value | None:
    """Return where a select takes a branch that has a tangent."""
    parts: list[Value] = []
    for taken, moved, predicate in zip((condition, b.bitnot(condition)), is_moved, off, strict=True):
        if moved and predicate is None and all(is_moved):
            return None
        if moved:
            parts.append(taken if predicate is None else b.bitand(taken, predicate))
    return parts[0] if len(parts) == 1 else b.bitor(*parts)


def _none(b: Builder, x: Value) -> Value:
    """Emit False for each element of a value."""
    return b.full(False, ArrayType(BOOL, _shape(x)))


def _shape(x: Value) -> tuple[Any, ...]:
    assert isinstance(x.type, ArrayType)
    return x.type.shape


def _batch_rank(op: Any, inputs: Sequence[Value]) -> int:
    """Return the number of leading batch axes of a linear-algebra or sorting op."""
    if isinstance(op, Linalg):
        return len(_shape(inputs[0])) - op.core[0]
    if isinstance(op, Sort):
        return len(_shape(inputs[0])) - 1
    return len(_shape(inputs[0])) - 2 if isinstance(op, Composed) else 0
