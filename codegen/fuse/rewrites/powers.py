"""powers_by_roots: turn powers with the constant exponents 3/2, 5/2, -1/2 and -3/2 into products and quotients with a root.

Requires: an optimised func without gradient instructions, since the derivatives of the product at 0 are not those of the power.
Keeps: its meaning, to 1.5 units in the last place (3/2, -1/2), as ``pow``, or 2 (5/2, -3/2), with the special cases of C99
(F.10.4.4): a power of -inf is inf or 0, and one of -0.0 is that of 0.0. Distances in laws of gravity have such powers; ``pow``
takes some forty operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.passes.editing.constants import constant_of
from pullback.ir.passes.editing.replay import New, replaced

POWERS: dict[float, Callable[[Builder, Value, Value, Value], Value]] = {
    1.5: lambda b, x, root, one: b.mul(x, root),
    2.5: lambda b, x, root, one: b.mul(b.mul(x, x), b.abs(root)),
    -0.5: lambda b, x, root, one: b.div(one, b.abs(root)),
    -1.5: lambda b, x, root, one: b.div(b.div(one, x), root),
}
"""By exponent, a function of a builder, x, the square root of x and 1, which emits the power of x that is not -inf."""


def powers_by_roots(function: Function) -> Function:
    """Return the function with such powers of floats by square roots."""
    producer = {v: i for i in function.instructions for v in i.results}

    def exponent_of(i: Instruction) -> float | None:
        """Return the constant exponent of a power; None if there is none."""
        if i.op.name != "pow" or not i.result.type.dtype.is_float:
            return None
        exponent = constant_of(i.operands[1], producer)
        return None if exponent is None else float(exponent)

    def emit(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        x, exponent = new(i.operands[0]), exponent_of(i)
        assert exponent is not None and isinstance(x.type, ArrayType)
        power = POWERS[exponent](b, x, b.sqrt(x), b.full(1.0, x.type))
        is_lowest = b.eq(x, b.full(float("-inf"), x.type))
        return [b.select(is_lowest, b.full(float("inf") if exponent > 0 else 0.0, x.type), power)]

    return replaced(function, lambda i: exponent_of(i) in POWERS, emit)
