"""Records of the copies of arrays that a program makes, and why, for reports."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value

FROM_OUTSIDE = "it comes from outside, and is not overwritten"
IN_STEP = "another value of the same step is in its memory"
TWICE = "it is carried in two positions, or comes from outside the loop"
EITHER = "the loop ends with it in either of its buffers"
FOR_EACH = "it is kept for each iteration"
OF_BRANCH = "it is the result of a branch, which has it in another buffer"
ROW_MAJOR = "it is read in row-major order"


@dataclass(frozen=True, eq=False)
class ArrayCopy:
    """The copy of an array, ``value``, by ``step`` of the program. ``reason`` says why it is copied; ``reader`` is the step
    that still reads the array, if that is the reason."""

    step: Instruction
    value: Value
    reason: str
    reader: Instruction | None = None


@dataclass(frozen=True, eq=False)
class CopyLog:
    """The copies of a program, in order; none are recorded if ``records`` is None."""

    records: list[ArrayCopy] | None = None

    def add(self, instructions: Sequence[Instruction], value: Value, reason: str, reader: Instruction | None = None) -> None:
        """Record that the last of the instructions copies an array."""
        if self.records is not None and value.type.shape:
            self.records.append(ArrayCopy(instructions[-1], value, reason, reader))
