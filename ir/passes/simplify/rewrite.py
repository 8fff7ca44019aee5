"""The engine of ``simplify``: replay a block forwards once, through a builder that applies rewrite rules to every instruction.

Instructions that a rule emits are subject to the rules as well, and equal instructions are merged, so that one replay is
enough and its cost is near-linear. Requirements on rules:

1. A rule keeps the type and never adds work: fewer or cheaper operations, or the same on smaller arrays.
2. It is exact in floating point, including NaN, infinities, -0.0 and subnormals (except for the payload and sign of a NaN);
   if not, its docstring bounds the error.
3. Constants are right operands in canonical form; rules match them only there.
4. Extents are compared, but not computed with: they may be names.
5. The only constants that it matches are 0, 1, -1, 2, 3, 0.5, -0.5 and bools, so that all others can become parameters.

A rule is called with the builder, the operands, and the params by keyword. It returns the replacement value or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any
from weakref import WeakSet

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc, use_counts, with_contents, with_regions
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.passes.editing.constants import constant_of
from pullback.ir.passes.editing.cse import key


@dataclass(frozen=True, eq=False, kw_only=True)
class Rule:
    """A rewrite rule: ``apply(b, *operands, op=op, **params)`` returns the replacement value or None."""

    name: str
    apply: Callable[..., Value | None]


RULES: dict[str | type[Op], list[Rule]] = {}
"""The rules by op name or op family, in the order in which they are tried."""


@cache
def rules_of(op: Op) -> tuple[Callable[..., Value | None], ...]:
    """Return the functions of the rules for an op: those by its name, then those of its family."""
    return tuple(candidate.apply for candidate in (*RULES.get(op.name, ()), *RULES.get(type(op), ())))


def rule(*kinds: str | type[Op]) -> Callable[[Callable[..., Value | None]], Callable[..., Value | None]]:
    """Register a rule, under its function's name, for ops (by name) or families."""

    def register(function: Callable[..., Value | None]) -> Callable[..., Value | None]:
        for kind in kinds:
            RULES.setdefault(kind, []).append(Rule(name=function.__name__, apply=function))
        rules_of.cache_clear()
        return function

    return register


class Rewriter(Builder):
    """Emits simplified instructions into one block."""

    def __init__(self, loc: Loc = NOWHERE, instructions: list[Instruction] | None = None, hint: str = "") -> None:
        super().__init__(loc, instructions, hint)
        self.definitions: dict[Value, Instruction] = {}
        self.reads: dict[Value, int] = {}
        self.known: dict[tuple[Any, ...], tuple[Value, ...]] = {}
        """The results of instructions, by their keys; separately for each part of a gradient that recomputes some."""

    def emit(
        self,
        op: Op,
        operands: Sequence[Value] = (),
        params: dict[str, Any] | None = None,
        regions: Sequence[Block] = (),
        original: Instruction | None = None,
    ) -> tuple[Value, ...]:
        """Emit an op, simplified, and return its results. ``original`` is reused if it is exactly the instruction to emit."""
        params = params or {}
        if op.effect == "pure" and not regions:
            for apply in rules_of(op):
                replacement = apply(self, *operands, op=op, **params)
                if replacement is not None:
                    return (replacement,)
            identity = key(op, operands, params) if not self.loc.part else (self.loc.part, *key(op, operands, params))
            if identity in self.known:
                return self.known[identity]
            self.known[identity] = self.append_unsimplified(op, operands, params, regions, original)
            return self.known[identity]
        return self.append_unsimplified(op, operands, params, regions, original)

    def append_unsimplified(
        self, op: Op, operands: Sequence[Value], params: dict[str, Any], regions: Sequence[Block], original: Instruction | None
    ) -> tuple[Value, ...]:
        """Append an instruction that no rule applies to."""
        if original is not None and original.operands == tuple(operands) and original.regions == tuple(regions):
            self.instructions.append(original)
        elif original is not None and regions:
            self.instructions.append(with_regions(original, regions, operands))
        else:
            super().emit(op, operands, params, regions)
        for value in self.instructions[-1].results:
            self.definitions[value] = self.instructions[-1]
        return self.instructions[-1].results

    def producer(self, value: Value, *names: str) -> Instruction | None:
        """Return the instruction that defines ``value`` if its op is one of ``names``; else None."""
        producer = self.definitions.get(value)
        return producer if producer is not None and producer.op.name in names else None

    def operand(self, value: Value, name: str) -> Value | None:
        """Return the operand of the op called ``name`` if a unary op of that name defines ``value``; else None."""
        producer = self.producer(value, name)
        return None if producer is None else producer.operands[0]

    def constant(self, value: Value) -> Any:
        """Return the number that every element of ``value`` is known to be; None if there is none."""
        return constant_of(value, self.definitions)

    def equals(self, value: Value, constant: float) -> bool:
        """Return whether every element of ``value`` is known to be ``constant``; floating-point zeros of different sign
        differ."""
        element = self.constant(value)
        return bool(
            element is not None
            and element == constant
            and (element != 0 or not value.type.dtype.is_float or math.copysign(1, element) == math.copysign(1, constant))
        )


_SIMPLIFIED: WeakSet[Block] = WeakSet()
"""Blocks that ``simplified`` returned. Blocks are closed and frozen, so that each is simplified once."""


def simplified(block: Block) -> Block:
    """Return the block with the rules applied to every instruction, including those of its regions."""
    if block in _SIMPLIFIED:
        return block
    b = Rewriter()
    counts = use_counts(block)
    new: dict[Value, Value] = {}
    checked: set[Value] = set()
    for instruction in block.instructions:
        operands = [new.get(v, v) for v in instruction.operands]
        if instruction.op is OPS["check"]:
            constant = b.constant(operands[0])
            if constant or operands[0] in checked:
                continue
            checked.update(operands[:1] if constant is None else ())
        b.loc, b.hint = instruction.loc, instruction.results[0].name if instruction.results else ""
        regions = tuple(simplified(region) for region in instruction.regions)
        results = b.emit(instruction.op, operands, dict(instruction.params), regions, instruction)
        for old, value in zip(instruction.results, results, strict=True):
            new[old] = value
            b.reads[value] = b.reads.get(value, 0) + counts.get(old, 0)
    simple = with_contents(block, b.instructions, [new.get(v, v) for v in block.results])
    _SIMPLIFIED.add(simple)
    return simple


def constant_like(b: Builder, constant: Any, value: Value) -> Value:
    """Emit a constant of the type of ``value``."""
    return b.full(constant, value.type)


def without_axes(shape: Shape, axes: Sequence[int]) -> Shape:
    """Return the extents of a shape without some axes."""
    return tuple(extent for k, extent in enumerate(shape) if k not in axes)
