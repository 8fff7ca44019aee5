"""Views of ``scan`` and ``while`` with named parts, and emission of scans, for passes over loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import BOOL, I64, ArrayType, StackType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, While


@dataclass(frozen=True, eq=False)
class LoopParts:
    """The layout of a loop. Its methods split lists whose entries correspond to the loop's operands or results, or to the
    parameters or results of its body.

    Positions count from 0 within each kind. ``first``: number of operands before the carried values.
    """

    body: Block
    condition: Block | None
    first: int
    carried: int
    sliced: int
    length: tuple[Any, ...]
    reverse: bool

    def operands(self, items: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Split a list with an entry per operand into carried values, sequences and captures."""
        middle = self.first + self.carried
        end = middle + self.sliced
        return list(items[self.first : middle]), list(items[middle:end]), list(items[end:])

    def parameters(self, items: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Split a list with an entry per parameter of the body into carried values, rows and captures."""
        middle = 1 + self.carried
        end = middle + self.sliced
        return list(items[1:middle]), list(items[middle:end]), list(items[end:])

    def results(self, items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Split a list with an entry per result into carried values and sequences."""
        return list(items[: self.carried]), list(items[self.carried + (self.condition is not None) :])

    def rows(self, items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Split a list with an entry per result of the body into carried values and rows."""
        return list(items[: self.carried]), list(items[self.carried :])

    def count(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Value | None:
        """Return the trip count if it is a value; else None."""
        if self.condition is not None:
            return outputs[self.carried]
        return inputs[0] if self.first else None

    def sequence(self, row: Type) -> Type:
        """Return the type of a result sequence."""
        return ArrayType(row.dtype, (*self.length, *row.shape)) if self.length else StackType(row.dtype, row.shape)


def parts_of(instruction: Instruction) -> LoopParts:
    """Return the layout of a loop."""
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
    """Emit a scan and return its results."""
    counted = () if count is None or length else (count,)
    params: dict[str, Any] = {"carried": len(carries), "sliced": len(sequences), "length": length, "reverse": reverse}
    if checkpoint is not None:
        params["checkpoint"] = checkpoint
    return b.emit(OPS["scan"], (*counted, *carries, *sequences, *captures), params, [body])


def map_rows(b: Builder, function: Callable[..., Value], *stacks: Value) -> Value:
    """Emit a scan that applies ``function(builder, *rows)`` to the rows of stacks of one length; returns the stack of the
    results."""
    inner = Builder(b.loc, hint=b.hint)
    rows = [Value(ArrayType(s.type.dtype, s.type.shape)) for s in stacks]
    body = inner.block([Value(scalar(I64), "i"), *rows], [function(inner, *rows)])
    return scan(b, body, (), stacks, (), (), b.stack_length(stacks[0]))[0]


def add(b: Builder, x: Value, y: Value) -> Value:
    """Emit the sum of two arrays, or of two stacks of one length."""
    return map_rows(b, lambda inner, *rows: inner.add(*rows), x, y) if isinstance(x.type, StackType) else b.add(x, y)


def logical_or(b: Builder, x: Value, y: Value) -> Value:
    """Emit the elementwise "or" of two arrays of bools, or of two stacks of them."""
    return map_rows(b, lambda inner, *rows: inner.bitor(*rows), x, y) if isinstance(x.type, StackType) else b.bitor(x, y)


def logical_and(b: Builder, x: Value, y: Value) -> Value:
    """Emit the elementwise "and" of two arrays of bools, or of two stacks of them."""
    return map_rows(b, lambda inner, *rows: inner.bitand(*rows), x, y) if isinstance(x.type, StackType) else b.bitand(x, y)


def zeros_like(b: Builder, value: Value) -> Value:
    """Emit zeros of the type of a value; for a stack, of its length."""
    if not isinstance(value.type, StackType):
        return b.zeros_like(value)
    return map_rows(b, Builder.zeros_like, value)


def any_element(b: Builder, x: Value) -> Value:
    """Emit whether any element of an array of bools, or of a stack of them, is true."""
    if not isinstance(x.type, StackType):
        result: Value = b.any(x, axes=tuple(range(x.type.rank))) if x.type.rank else x
        return result
    inner = Builder(b.loc, hint=b.hint)
    so_far, row = Value(scalar(BOOL), "any"), Value(ArrayType(BOOL, x.type.shape))
    body = inner.block([Value(scalar(I64), "i"), so_far, row], [inner.bitor(so_far, any_element(inner, row))])
    return scan(b, body, (b.const(False, BOOL),), (x,), (), (), b.stack_length(x))[0]


def broadcast_like(b: Builder, x: Value, like: Value) -> Value:
    """Emit a scalar broadcast to the shape of an array or stack."""
    if not isinstance(like.type, StackType):
        return b.spread(x, like.type.shape)
    inner = Builder(b.loc, hint=b.hint)
    row, own = Value(ArrayType(like.type.dtype, like.type.shape)), Value(x.type)
    body = inner.block([Value(scalar(I64), "i"), row, own], [inner.spread(own, like.type.shape)])
    return scan(b, body, (), (like,), (x,), (), b.stack_length(like))[0]
