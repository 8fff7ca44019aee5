"""Emit a driver that reads the clock before and after each of its steps, for a profile.

It is otherwise the same driver. Step ``k``, in the order of the program's text, adds its clock ticks to word ``2 k`` of the
table in the slot ("laps",), and 1 to the word after it.
"""

from __future__ import annotations

from typing import Any

from pullback.codegen.cpu.llvm.program import ProgramWriter
from pullback.ir.core.structure import Instruction


def clock_of(machine: str) -> str:
    """Return the intrinsic that reads the clock of a machine, named as by ``platform.machine``."""
    return "llvm.x86.rdtsc" if machine in ("x86_64", "AMD64") else "llvm.readsteadycounter"


class TimedProgramWriter(ProgramWriter):
    """Emits a driver that times its steps. ``clock``: the intrinsic that reads the clock."""

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
        """Emit a read of the clock."""
        return self.let(f"call i64 @{self.clock}()")

    def lap(self, start: str) -> None:
        """Emit the end of a step: add its time and count to the table."""
        elapsed = self.let(f"sub i64 {self.now()}, {start}")
        table = self.callee("laps")
        for word, increment in ((2 * self.steps, elapsed), (2 * self.steps + 1, "1")):
            address = self.let(f"getelementptr i64, ptr {table}, i64 {word}")
            before = self.let(f"load i64, ptr {address}")
            self.line(f"store i64 {self.let(f'add i64 {before}, {increment}')}, ptr {address}")
        self.steps += 1
