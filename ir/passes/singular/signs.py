"""Sign analysis: what is known statically of the signs of values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import Transform


class Sign(IntEnum):
    """What is known of all elements of a value that are not NaN."""

    ANY = 0
    NOT_NEGATIVE = 1
    POSITIVE = 2


NOT_NEGATIVE_OF_ANY = frozenset(("abs", "exp", "exp2", "expit", "erfc", "hypot", "iota", "count"))
"""Ops whose results are not negative for any operand."""
COUNTS = frozenset(("iota", "count"))
"""Ops with integer results whose sign is tracked."""
AT_LEAST_ONE = frozenset(("cosh",))
"""Ops whose results are at least 1."""
FILLED = frozenset(("pad", "shift"))
"""Reindexing ops that fill with zeros."""
KEPT = frozenset(("stop_gradient",))
"""Ops that keep the sign."""
PRODUCTS = frozenset(("mul", "div"))
"""Ops with results that are not negative for operands that are not negative."""
DOWN_TO_ZERO = frozenset(("sum", "prod", "cumsum", "cast", "cbrt", "tanh", "asinh", "atan", "sinh", "expm1", "log1p"))
"""Ops that keep the sign, but may underflow to zero."""


class Signs:
    """The signs of the values of a block, recorded instruction by instruction, and its constants."""

    def __init__(self, parameters: Sequence[Value], signs: Sequence[Sign] = ()) -> None:
        self.known: dict[Value, Sign] = dict(zip(parameters, signs, strict=False))
        self.constants: dict[Value, Any] = {}

    def of(self, x: Value) -> Sign:
        return self.known.get(x, Sign.ANY)

    def note(self, i: Instruction) -> None:
        """Record an instruction, which follows those recorded before."""
        if i.regions or len(i.results) != 1 or not isinstance(i.result.type, ArrayType):
            return
        if i.op.name == "const":
            self.constants[i.result] = i.params["value"]
            self.known[i.result] = _of_number(i.params["value"])
            return
        if isinstance(i.op, Reindex) and len(i.operands) == 1 and i.operands[0] in self.constants:
            self.constants[i.result] = self.constants[i.operands[0]]
        if i.result.type.dtype.is_float or i.op.name in COUNTS:
            self.known[i.result] = self._sign(i)

    def region_signs(self, i: Instruction, region: Block) -> list[Sign]:
        """Return the signs of the parameters of a region: of a transform, the signs of the operands; of other ops, nothing is
        known."""
        if isinstance(i.op, Transform) and len(region.parameters) == len(i.operands):
            return [self.of(v) for v in i.operands]
        return []

    def _sign(self, i: Instruction) -> Sign:
        name, of = i.op.name, [self.of(v) for v in i.operands]
        if name in NOT_NEGATIVE_OF_ANY:
            return max(of[0], Sign.NOT_NEGATIVE) if name == "abs" else Sign.NOT_NEGATIVE
        if name in AT_LEAST_ONE:
            return Sign.POSITIVE
        if name in KEPT or (isinstance(i.op, Reindex) and len(of) == 1):
            return min(of[0], Sign.NOT_NEGATIVE) if name in FILLED else of[0]
        rule = _RULES.get(name)
        if rule is not None:
            return rule(of)
        if name in PRODUCTS:
            is_square = name == "mul" and i.operands[0] is i.operands[1]
            return Sign.NOT_NEGATIVE if is_square or min(of) else Sign.ANY
        if name == "pow":
            exponent = self.constants.get(i.operands[1])
            is_even = isinstance(exponent, int | float) and exponent % 2 == 0
            return Sign.NOT_NEGATIVE if is_even or of[0] else Sign.ANY
        if name in DOWN_TO_ZERO:
            return min(of[0], Sign.NOT_NEGATIVE)
        if isinstance(i.op, Contract):
            (left, right), _ = split(i.params["spec"])
            is_square = i.operands[0] is i.operands[1] and left == right
            return Sign.NOT_NEGATIVE if is_square or min(of) else Sign.ANY
        return Sign.ANY


def _of_number(value: Any) -> Sign:
    if isinstance(value, bool | complex) or not value >= 0:
        return Sign.ANY
    return Sign.POSITIVE if value > 0 else Sign.NOT_NEGATIVE


def _of_sum(of: Sequence[Sign]) -> Sign:
    return max(of) if min(of) else Sign.ANY


_RULES: dict[str, Callable[[Sequence[Sign]], Sign]] = {
    "add": _of_sum,
    "maximum": max,
    "minimum": min,
    "select": lambda of: min(of[1:]),
    "clip": lambda of: min(max(of[0], of[1]), of[2]),
    "sqrt": lambda of: max(of[0], Sign.NOT_NEGATIVE),
    "max": lambda of: of[0],
    "min": lambda of: of[0],
}
