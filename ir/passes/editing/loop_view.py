"""The parts of a ``scan`` or ``while``, named: what passes over loops have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, StackType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, While


@dataclass(frozen=True, eq=False)
class LoopParts:
    """Of the operands of a loop, of the parameters and results of its body, and of its results: which are which.

    Positions count from 0 within each kind. ``first``: operands before the carried values.
    """

    body: Block
    condition: Block | None
    first: int
    carried: int
    sliced: int
    length: tuple[Any, ...]
    reverse: bool

    def operands(self, given: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Carried values, sequences and captures, of things that belong to the operands."""
        middle = self.first + self.carried
        end = middle + self.sliced
        return list(given[self.first : middle]), list(given[middle:end]), list(given[end:])

    def parameters(self, given: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Carried values, rows and captures, of things that belong to the parameters of the body."""
        middle = 1 + self.carried
        end = middle + self.sliced
        return list(given[1:middle]), list(given[middle:end]), list(given[end:])

    def results(self, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Carried values and sequences, of things that belong to the results."""
        return list(given[: self.carried]), list(given[self.carried + (self.condition is not None) :])

    def rows(self, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Carried values and rows, of things that belong to the results of the body."""
        return list(given[: self.carried]), list(given[self.carried :])

    def count(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Value | None:
        """The count of runs, if it is a value."""
        if self.condition is not None:
            return outputs[self.carried]
        return inputs[0] if self.first else None

    def sequence(self, row: Type) -> Type:
        """The type of a result sequence."""
        return ArrayType(row.dtype, (*self.length, *row.shape)) if self.length else StackType(row.dtype, row.shape)


def parts_of(instruction: Instruction) -> LoopParts:
    """The parts of a loop."""
    op, params = instruction.op, instruction.params
    assert isinstance(op, Loop)
    *conditions, body = instruction.regions
    return LoopParts(
        body=body,
        condition=conditions[0] if isinstance(op, While) else None,
        first=op.first(params),
        carried=params["carried"],
        sliced=params.get("sliced", 0),
        length=tuple(params.get("length", ())),
        reverse=params.get("reverse", False),
    )


def scan(
    b: Builder,
    body: Block,
    carries: Sequence[Value],
    sequences: Sequence[Value],
    captures: Sequence[Value],
    length: tuple[Any, ...],
    count: Value | None,
    reverse: bool = False,
    checkpoint: str | None = None,
) -> tuple[Value, ...]:
    """Emit a scan."""
    counted = () if count is None or length else (count,)
    params: dict[str, Any] = {"carried": len(carries), "sliced": len(sequences), "length": length, "reverse": reverse}
    if checkpoint is not None:
        params["checkpoint"] = checkpoint
    return b.emit(OPS["scan"], (*counted, *carries, *sequences, *captures), params, [body])


def by_rows(b: Builder, function: Callable[..., Value], *stacks: Value) -> Value:
    """The stack of what ``function(builder, *rows)`` gives for the rows of stacks of one length."""
    inner = Builder(b.loc, hint=b.hint)
    rows = [Value(ArrayType(s.type.dtype, s.type.shape)) for s in stacks]
    body = inner.block([Value(scalar(I64), "i"), *rows], [function(inner, *rows)])
    return scan(b, body, (), stacks, (), (), b.stack_length(stacks[0]))[0]


def add(b: Builder, x: Value, y: Value) -> Value:
    """The sum of two arrays, or of two stacks of one length."""
    return by_rows(b, lambda made, *rows: made.add(*rows), x, y) if isinstance(x.type, StackType) else b.add(x, y)


def either(b: Builder, x: Value, y: Value) -> Value:
    """Where one of two arrays of bools, or of two stacks of them, holds."""
    return by_rows(b, lambda made, *rows: made.bitor(*rows), x, y) if isinstance(x.type, StackType) else b.bitor(x, y)


def both(b: Builder, x: Value, y: Value) -> Value:
    """Where two arrays of bools, or two stacks of them, hold."""
    return by_rows(b, lambda made, *rows: made.bitand(*rows), x, y) if isinstance(x.type, StackType) else b.bitand(x, y)


def zeros_like(b: Builder, value: Value) -> Value:
    """Zeros of the type of a value; of a stack, as many as it has."""
    if not isinstance(value.type, StackType):
        return b.zeros_like(value)
    return by_rows(b, Builder.zeros_like, value)


def holds_anywhere(b: Builder, x: Value) -> Value:
    """Whether any element of an array of bools, or of a stack of them, holds."""
    if not isinstance(x.type, StackType):
        found: Value = b.any(x, axes=tuple(range(x.type.rank))) if x.type.rank else x
        return found
    inner = Builder(b.loc, hint=b.hint)
    so_far, row = Value(scalar(BOOL), "any"), Value(ArrayType(BOOL, x.type.shape))
    body = inner.block([Value(scalar(I64), "i"), so_far, row], [inner.bitor(so_far, holds_anywhere(inner, row))])
    return scan(b, body, (b.const(False, BOOL),), (x,), (), (), b.stack_length(x))[0]


def everywhere(b: Builder, x: Value, like: Value) -> Value:
    """A scalar for each element of an array or stack."""
    if not isinstance(like.type, StackType):
        return b.spread(x, like.type.shape)
    inner = Builder(b.loc, hint=b.hint)
    row, own = Value(ArrayType(like.type.dtype, like.type.shape)), Value(x.type)
    body = inner.block([Value(scalar(I64), "i"), row, own], [inner.spread(own, like.type.shape)])
    return scan(b, body, (), (like,), (x,), (), b.stack_length(like))[0]
