"""Products of cotangents that derive from an infinite slope: an exact zero times such a cotangent is zero.

The square root, and similar functions at the end of their domain, have a finite value and an infinite slope at 0. If the
argument is at its minimum there, as a sum of squares is, its own derivative is 0, and so is the derivative of the composition.
A cotangent that derives from such a slope is *steep*, and a product of a steep factor and an exact zero is 0 instead of NaN.
Which cotangents are steep is known when the rules run; all others are multiplied as usual.

The product is a ``select``, so a derivative of higher order gets a predicate from it: a value that is 0 for this reason stays
0.
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
    """Return whether an op's slope may be infinite where its value is finite and minimal."""
    op = instruction.op
    if not isinstance(op, Elementwise) or op.steep is None or not instruction.result.type.dtype.is_float:
        return False
    return op.steep(instruction.params)


def is_frail(instruction: Instruction) -> bool:
    """Return whether an op's derivative has zeros that do not cancel an infinity."""
    return instruction.op is pow and is_fractional(instruction.params)


class StrongBuilder(Builder):
    """A builder that tracks which of its values are steep: the marked ones and the values computed from them."""

    def __init__(self, loc: Loc = NOWHERE, instructions: list[Instruction] | None = None, hint: str = "") -> None:
        super().__init__(loc, instructions, hint)
        self.steep: set[Value] = set()

    @classmethod
    def over(cls, builder: Builder) -> StrongBuilder:
        """Return a builder of the same block as another one, without steep values."""
        strong = cls(builder.loc, builder.instructions, builder.hint)
        strong.makers = builder.makers
        return strong

    def at(self, loc: Loc, hint: str | None = None) -> StrongBuilder:
        strong = type(self).over(super().at(loc, hint))
        strong.steep = self.steep
        return strong

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
        """Mark the floating-point values among these as steep."""
        for v in contributions:
            if isinstance(v, Value) and isinstance(v.type, ArrayType) and v.type.dtype.is_inexact:
                self.steep.add(v)

    def plain(self) -> Builder:
        """Return a builder of the same block that does not track steep values."""
        builder = Builder(self.loc, self.instructions, self.hint)
        builder.makers = self.makers
        return builder

    def _contraction(self, params: Any, a: Value, f: Value, is_first: bool, contraction: Value) -> Value:
        """Emit the products one by one if there are no more of them than elements of an operand or of the result; else return
        the contraction unchanged."""
        words, out = split(params["spec"])
        word, other = words if is_first else words[::-1]
        summed = "".join(k for k in dict.fromkeys(word + other) if k not in out)
        if summed and not (set(word) | set(other) == set(word) or set(word) | set(other) == set(other)):
            return contraction
        b, space = self.plain(), out + summed
        extents = {**dict(zip(word, a.type.shape, strict=True)), **dict(zip(other, f.type.shape, strict=True))}
        shape = tuple(extents[k] for k in space)
        x, y = _over(b, a, word, space, shape), _over(b, f, other, space, shape)
        product = strong_product(b, x, y, b.mul(x, y) if summed else contraction)
        total: Value = b.sum(product, axes=tuple(range(len(out), len(space)))) if summed else product
        return total


def strong_product(b: Builder, a: Value, f: Value, product: Value) -> Value:
    """Emit a product of a steep factor and another one that is 0 where the other is 0 and the steep one is not finite."""
    if _is_nonzero(b, f):
        return product
    size = b.abs(a)
    is_finite = b.lt(size, b.full(math.inf, size.type))
    result: Value = b.select(b.bitor(b.ne(f, b.zeros_like(f)), is_finite), product, b.zeros_like(product))
    return result


def _is_nonzero(b: Builder, x: Value) -> bool:
    """Return whether a value is known to be a constant other than 0."""
    maker = b.maker(x)
    if maker is not None and maker.op.name == "broadcast":
        maker = b.maker(maker.operands[0])
    return maker is not None and maker.op.name == "const" and maker.params["value"] != 0


def _over(b: Builder, x: Value, word: str, space: str, shape: tuple[Any, ...]) -> Value:
    """Broadcast an operand of a contraction to the space of all its subscripts."""
    order = [word.index(k) for k in space if k in word]
    if order != list(range(len(word))):
        x = b.transpose(x, perm=tuple(order))
    axes = tuple(k for k, letter in enumerate(space) if letter not in word)
    result: Value = b.broadcast(x, axes=axes, shape=shape) if axes else x
    return result
