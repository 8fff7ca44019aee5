"""A driver that reads the clock before and after each of its steps, for a profile.

It is the same driver but for these reads. Step ``k``, in the order of the program's text, adds its ticks to word ``2 k`` of the
table in the slot ("laps",), and 1 to the word after it.
"""

from __future__ import annotations

from typing import Any

from pullback.codegen.cpu.llvm.program import ProgramWriter
from pullback.ir.core.structure import Instruction


def clock_of(machine: str) -> str:
    """The intrinsic that reads the clock of a machine, as ``platform.machine`` names it."""
    return "llvm.x86.rdtsc" if machine in ("x86_64", "AMD64") else "llvm.readsteadycounter"


class LapsWriter(ProgramWriter):
    """The driver in the making. ``clock``: the intrinsic."""

    clock = "llvm.x86.rdtsc"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.steps = 0
        self.declared[f"declare i64 @{self.clock}()"] = None

    def launch(self, i: Instruction) -> None:
        start = self.now()
        super().launch(i)
        self.lap(start)

    def host(self, i: Instruction) -> None:
        start = self.now()
        super().host(i)
        self.lap(start)

    def now(self) -> str:
        return self.let(f"call i64 @{self.clock}()")

    def lap(self, start: str) -> None:
        """A step has ended."""
        taken = self.let(f"sub i64 {self.now()}, {start}")
        table = self.callee("laps")
        for word, more in ((2 * self.steps, taken), (2 * self.steps + 1, "1")):
            place = self.let(f"getelementptr i64, ptr {table}, i64 {word}")
            before = self.let(f"load i64, ptr {place}")
            self.line(f"store i64 {self.let(f'add i64 {before}, {more}')}, ptr {place}")
        self.steps += 1
