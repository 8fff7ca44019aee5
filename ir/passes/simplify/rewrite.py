"""The engine of ``simplify``: one forward replay of a block through a builder that applies rules to what it emits.

What a rule emits goes through the rules too, and equal instructions are made once, so a single replay is enough and its
cost is near-linear. The laws of rules:

1. A rule keeps the type and never makes more work: fewer or cheaper operations, or the same on smaller arrays.
2. It is exact in floating point, NaN, infinities, -0.0 and subnormals included (the payload and sign of a NaN excepted);
   if not, its docstring says what bounds it.
3. Constants are right operands; rules look for them there only.
4. Extents are compared, never computed with: they may be names.
5. Whether it applies depends on no other constants than 0, 1, -1, 2, 3, 0.5, -0.5 and bools, so that all others stay
   interchangeable.

A rule is called with the builder, the operands and the params by keyword, and returns the value to use instead or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc, use_counts
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.passes.editing.cse import key


@dataclass(frozen=True, eq=False, kw_only=True)
class Rule:
    name: str
    apply: Callable[..., Value | None]


RULES: dict[str | type[Op], list[Rule]] = {}


def rule(*kinds: str | type[Op]) -> Callable[[Callable[..., Value | None]], Callable[..., Value | None]]:
    """Register a rule, under its function's name, for ops (by name) or families."""

    def register(function: Callable[..., Value | None]) -> Callable[..., Value | None]:
        for kind in kinds:
            RULES.setdefault(kind, []).append(Rule(name=function.__name__, apply=function))
        return function

    return register


class Rewriter(Builder):
    """Emits simplified instructions into one block."""

    def __init__(self, loc: Loc = NOWHERE, instructions: list[Instruction] | None = None, hint: str = "") -> None:
        super().__init__(loc, instructions, hint)
        self.made_by: dict[Value, Instruction] = {}
        self.reads: dict[Value, int] = {}
        self.known: dict[tuple[Any, ...], tuple[Value, ...]] = {}

    def emit(
        self,
        op: Op,
        operands: Sequence[Value] = (),
        params: dict[str, Any] | None = None,
        regions: Sequence[Block] = (),
        original: Instruction | None = None,
    ) -> tuple[Value, ...]:
        """Results of the op, simplified. ``original`` is kept if it turns out to be what is to be emitted."""
        params = params or {}
        if op.effect == "pure" and not regions:
            for candidate in (*RULES.get(op.name, ()), *RULES.get(type(op), ())):
                found = candidate.apply(self, *operands, op=op, **params)
                if found is not None:
                    return (found,)
            identity = key(op, operands, params)
            if identity in self.known:
                return self.known[identity]
            self.known[identity] = self.place(op, operands, params, regions, original)
            return self.known[identity]
        return self.place(op, operands, params, regions, original)

    def place(
        self, op: Op, operands: Sequence[Value], params: dict[str, Any], regions: Sequence[Block], original: Instruction | None
    ) -> tuple[Value, ...]:
        if original is not None and original.operands == tuple(operands) and original.regions == tuple(regions):
            self.instructions.append(original)
        elif original is not None and regions:
            self.instructions.append(replace(original, operands=tuple(operands), regions=tuple(regions)))
        else:
            super().emit(op, operands, params, regions)
        for value in self.instructions[-1].results:
            self.made_by[value] = self.instructions[-1]
        return self.instructions[-1].results

    def made(self, value: Value, *names: str) -> Instruction | None:
        """The instruction that defines a value if it is one of the named ops."""
        found = self.made_by.get(value)
        return found if found is not None and found.op.name in names else None

    def operand(self, value: Value, name: str) -> Value | None:
        """The operand of the unary op that defines a value, if it is the named one."""
        found = self.made(value, name)
        return None if found is None else found.operands[0]

    def constant(self, value: Value) -> Any:
        """The number that every element of a value is known to be; None if there is none."""
        source = self.operand(value, "broadcast")
        found = self.made(value if source is None else source, "const")
        return None if found is None else found.params["value"]

    def equals(self, value: Value, number: float) -> bool:
        """Whether every element is known to be ``number``; of floats, zeros of different sign differ."""
        found = self.constant(value)
        return bool(
            found is not None
            and found == number
            and (found != 0 or not value.type.dtype.is_float or math.copysign(1, found) == math.copysign(1, number))
        )


def rewritten(block: Block) -> Block:
    """The block with every instruction, those of its regions included, emitted anew through the rules."""
    b = Rewriter()
    counts = use_counts(block)
    new: dict[Value, Value] = {}
    for instruction in block.instructions:
        operands = [new.get(v, v) for v in instruction.operands]
        if instruction.op is OPS["check"] and b.constant(operands[0]):
            continue
        b.loc, b.hint = instruction.loc, instruction.results[0].name if instruction.results else ""
        regions = tuple(rewritten(region) for region in instruction.regions)
        results = b.emit(instruction.op, operands, dict(instruction.params), regions, instruction)
        for old, value in zip(instruction.results, results, strict=True):
            new[old] = value
            b.reads[value] = b.reads.get(value, 0) + counts.get(old, 0)
    return Block(block.parameters, tuple(b.instructions), tuple(new.get(v, v) for v in block.results))


def spread_like(b: Builder, number: Any, value: Value) -> Value:
    """A constant of the type of ``value``."""
    return b.full(number, value.type)


def without(shape: Shape, axes: Sequence[int]) -> Shape:
    """The extents of the other axes."""
    return tuple(extent for k, extent in enumerate(shape) if k not in axes)
