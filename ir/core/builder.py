"""Build blocks and functions instruction by instruction, inferring the result types.

A builder is a view of a block: ``at(loc)`` returns another builder that appends to the same block with another location. Ops
are methods: ``b.mul(x, y)``, ``b.sum(x, axes=(0,))``. An op with one result returns that value; other ops return a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.core.op import OPS, Op, must_match
from pullback.ir.core.scalars import as_complex, as_float, as_int
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc
from pullback.ir.core.types import ArrayType, DType, Type, dtype_of
from pullback.ir.core.value import Value


class _Definitions:
    """A map from values to their defining instructions, over a list of instructions that grows."""

    def __init__(self, instructions: list[Instruction]) -> None:
        self.instructions, self.read = instructions, 0
        self.definitions: dict[Value, Instruction] = {}

    def find(self, value: Value) -> Instruction | None:
        for i in self.instructions[self.read :]:
            self.definitions.update(dict.fromkeys(i.results, i))
        self.read = len(self.instructions)
        return self.definitions.get(value)


def _method(name: str) -> Callable[..., Any]:
    """Return the method of builders that emits the op ``name``."""

    def method(self: Builder, *operands: Value, **params: Any) -> Any:
        op = OPS.get(name)
        if op is None:
            raise AttributeError(f"no op is called {name}")
        results = self.emit(op, operands, params)
        return results[0] if len(results) == 1 else results

    return method


class Builder:
    """Appends instructions to one block. ``loc``: location of new instructions; ``hint``: name of their results."""

    is_linear = False
    """Whether the emitted code is going to be transposed, so that it must be linear in the cotangents, which are symbolic
    then."""

    def __init__(self, loc: Loc = NOWHERE, instructions: list[Instruction] | None = None, hint: str = "") -> None:
        self.loc = loc
        self.hint = hint
        self.instructions: list[Instruction] = [] if instructions is None else instructions
        self.makers = _Definitions(self.instructions)

    def at(self, loc: Loc, hint: str | None = None) -> Builder:
        """Return a builder of the same block whose instructions have location ``loc`` and whose values are named ``hint``."""
        builder = type(self)(loc, self.instructions, self.hint if hint is None else hint)
        builder.makers = self.makers
        builder.is_linear = self.is_linear
        return builder

    def maker(self, value: Value) -> Instruction | None:
        """Return the instruction of this block that defines ``value``; None if another block does."""
        return self.makers.find(value)

    def emit(
        self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None, regions: Sequence[Block] = ()
    ) -> tuple[Value, ...]:
        """Append an instruction and return its results. Raises TypeError on operands the op does not take."""
        operand_types = [v.type for v in operands]
        try:
            params = op.settle(operand_types, params or {})
            types = op.infer(operand_types, params, regions, must_match)
        except TypeError as error:
            raise TypeError(f"{op.name}({', '.join(map(str, operand_types))}): {error}") from None
        results = tuple(Value(t, self.hint) for t in types)
        self.instructions.append(Instruction(op, tuple(operands), results, params, tuple(regions), self.loc))
        return results

    def region(self) -> Builder:
        """Return a builder for a region of an instruction that is emitted later. The region may read values defined so far."""
        return type(self)(self.loc, [], self.hint)

    def append(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)

    def remove_from(self, start: int) -> list[Instruction]:
        """Remove the instructions from index ``start`` on, and return them."""
        removed = self.instructions[start:]
        del self.instructions[start:]
        self.makers.read = min(self.makers.read, start)
        return removed

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in OPS:
            raise AttributeError(f"no op is called {name}")
        setattr(Builder, name, _method(name))  # later look-ups find the class attribute
        method: Callable[..., Any] = getattr(self, name)
        return method

    def const(self, value: Any, dtype: DType | str) -> Value:
        """Emit a rank-0 constant."""
        element = dtype_of(dtype)
        plain = bool(value) if element.is_bool else as_int(value) if element.is_integer else value
        if element.is_float:
            plain = as_float(plain)
        if element.is_complex:
            plain = as_complex(plain)
        return self.emit(OPS["const"], (), {"value": plain, "dtype": element})[0]

    def full(self, value: Any, type: Type) -> Value:
        """Emit an array filled with one constant: a rank-0 constant, broadcast."""
        assert isinstance(type, ArrayType)
        return self.spread(self.const(value, type.dtype), type.shape)

    def spread(self, x: Value, shape: tuple[Any, ...]) -> Value:
        """Broadcast a rank-0 value to ``shape``."""
        if not shape:
            return x
        return self.emit(OPS["broadcast"], (x,), {"axes": tuple(range(len(shape))), "shape": shape})[0]

    def zeros_like(self, x: Value) -> Value:
        return self.full(0, x.type)

    def block(self, parameters: Sequence[Value], results: Sequence[Value]) -> Block:
        return Block(tuple(parameters), tuple(self.instructions), tuple(results))

    def function(self, name: str, parameters: Sequence[Value], results: Sequence[Value], kind: str = "func") -> Function:
        return Function(name, self.block(parameters, results), kind)
