"""Products of cotangents that descend from an infinite slope: zero times it is zero.

The square root, and what is like it at the end of its domain, has a finite value and an infinite slope at 0. Where the argument
is at its least there, as a sum of squares is, its own derivative is 0, and so is that of the whole: a cotangent that descends
from such a slope is *steep*, and a product of a steep factor and an exact zero is 0 instead of NaN. Which cotangents are steep is
known when the rules run; all others are multiplied as ever.

The product is a ``select``. So a derivative of higher order has the predicate born there: what is 0 for this reason stays 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import Contribution, Op
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.elementwise.elementwise import Elementwise, is_fractional, mul, pow


def is_steep(instruction: Instruction) -> bool:
    """Whether an op's slope may be infinite where its value is finite and at its least."""
    op = instruction.op
    if not isinstance(op, Elementwise) or op.steep is None or not instruction.result.type.dtype.is_float:
        return False
    return op.steep(instruction.params)


def is_frail(instruction: Instruction) -> bool:
    """Whether an op's derivative has zeros that prevail over no infinity."""
    return instruction.op is pow and is_fractional(instruction.params)


class StrongBuilder(Builder):
    """A builder that knows which of its values are steep: those marked and what is computed from them."""

    def __init__(self, loc: Loc = NOWHERE, instructions: list[Instruction] | None = None, hint: str = "") -> None:
        super().__init__(loc, instructions, hint)
        self.steep: set[Value] = set()

    @classmethod
    def over(cls, builder: Builder) -> StrongBuilder:
        """A builder of the same block as another one, of which no value is steep so far."""
        found = cls(builder.loc, builder.instructions, builder.hint)
        found.makers = builder.makers
        return found

    def at(self, loc: Loc, hint: str | None = None) -> StrongBuilder:
        found = type(self).over(super().at(loc, hint))
        found.steep = self.steep
        return found

    def emit(
        self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None, regions: Sequence[Block] = ()
    ) -> tuple[Value, ...]:
        if not self.steep or regions or self.steep.isdisjoint(operands):
            return super().emit(op, operands, params, regions)
        results = super().emit(op, operands, params)
        if len(operands) == 2 and sum(v in self.steep for v in operands) == 1:
            a, f = operands if operands[0] in self.steep else reversed(operands)
            if op is mul:
                results = (strong_product(self.plain(), a, f, results[0]),)
            elif isinstance(op, Contract):
                results = (self._contraction(params or {}, a, f, operands[0] is a, results[0]),)
        self.mark(results)
        return results

    def mark(self, contributions: Iterable[Contribution]) -> None:
        """The floating-point values among these are steep from now on."""
        for v in contributions:
            if isinstance(v, Value) and isinstance(v.type, ArrayType) and v.type.dtype.is_inexact:
                self.steep.add(v)

    def plain(self) -> Builder:
        """A builder of the same block, for which no value is steep."""
        found = Builder(self.loc, self.instructions, self.hint)
        found.makers = self.makers
        return found

    def _contraction(self, params: Any, a: Value, f: Value, is_first: bool, found: Value) -> Value:
        """Each product by itself where there are no more of them than elements of an operand or of the result; else the
        contraction as it is."""
        words, out = split(params["spec"])
        word, other = words if is_first else words[::-1]
        summed = "".join(k for k in dict.fromkeys(word + other) if k not in out)
        if summed and not (set(word) | set(other) == set(word) or set(word) | set(other) == set(other)):
            return found
        b, space = self.plain(), out + summed
        extents = {**dict(zip(word, a.type.shape, strict=True)), **dict(zip(other, f.type.shape, strict=True))}
        shape = tuple(extents[k] for k in space)
        x, y = _over(b, a, word, space, shape), _over(b, f, other, space, shape)
        product = strong_product(b, x, y, b.mul(x, y) if summed else found)
        total: Value = b.sum(product, axes=tuple(range(len(out), len(space)))) if summed else product
        return total


def strong_product(b: Builder, a: Value, f: Value, product: Value) -> Value:
    """A product of a steep factor and another one, but 0 where that is 0 and the steep one not finite."""
    if _is_nonzero(b, f):
        return product
    size = b.abs(a)
    is_finite = b.lt(size, b.full(math.inf, size.type))
    found: Value = b.select(b.bitor(b.ne(f, b.zeros_like(f)), is_finite), product, b.zeros_like(product))
    return found


def _is_nonzero(b: Builder, x: Value) -> bool:
    """Whether a value is known to be a constant other than 0."""
    maker = b.maker(x)
    if maker is not None and maker.op.name == "broadcast":
        maker = b.maker(maker.operands[0])
    return maker is not None and maker.op.name == "const" and maker.params["value"] != 0


def _over(b: Builder, x: Value, word: str, space: str, shape: tuple[Any, ...]) -> Value:
    """An operand of a contraction at each place of the space of all its subscripts."""
    order = [word.index(k) for k in space if k in word]
    if order != list(range(len(word))):
        x = b.transpose(x, perm=tuple(order))
    axes = tuple(k for k, letter in enumerate(space) if letter not in word)
    found: Value = b.broadcast(x, axes=axes, shape=shape) if axes else x
    return found

