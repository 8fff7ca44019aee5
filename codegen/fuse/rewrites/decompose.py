"""decompose: replace every op that exists only for its gradient by the ordinary ops that compute it.

Requires: an optimised func. Keeps: all other instructions.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import Composed
from pullback.ir.passes.editing.replay import New, replaced


def decompose(function: Function) -> Function:
    """Return the function without ``Composed`` ops."""

    def expand(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        assert isinstance(i.op, Composed)
        return i.op.compose(b, *map(new, i.operands), **i.params)

    return replaced(function, lambda i: isinstance(i.op, Composed), expand)
