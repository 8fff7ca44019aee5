"""Programs that read the clock around their steps, which a profile runs in place of the ordinary ones.

The kernels are those of the ordinary program. Between the steps are further ones, each of which stores the processor's clock,
so that intervals are adjacent: the time of a call is the sum of its steps and of what is before and after them. In a program
with control flow the driver reads the clock itself (``codegen.cpu.llvm.program_timing``). An ordinary call contains none of
this.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.codegen.cpu.llvm.program_timing import TimedProgramWriter, clock_of
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Module, walk
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import Launch
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import Executable, Instance, Table
from pullback.runtime.program.launcher import HEADER, address_of

CLOCK = clock_of(platform.machine())
SOURCE = f"""
declare i64 @{CLOCK}()

define i64 @pullback_ticks() {{
  %now = call i64 @{CLOCK}()
  ret i64 %now
}}

define i64 @pullback_stamp(ptr %slots) {{
  %place = load ptr, ptr %slots
  %now = call i64 @{CLOCK}()
  store i64 %now, ptr %place
  ret i64 0
}}
"""
CALIBRATION_S = 0.02
"""The seconds over which the clock is calibrated."""


class _Laps(TimedProgramWriter):
    clock = CLOCK


@dataclass(frozen=True, kw_only=True, eq=False)
class Clock:
    """The processor's clock. ``ticks`` reads it; ``stamp``: the address of a step that stores it; ``seconds``: the length of a
    tick."""

    ticks: Callable[[], int]
    stamp: int
    seconds: float

    @staticmethod
    def calibrated() -> Clock:
        """Return the clock, its tick calibrated against ``time.perf_counter_ns``. Raises RuntimeError if programs cannot read
        a clock."""
        code = default_engine().load(SOURCE, symbols=["pullback_ticks", "pullback_stamp"])
        ticks: Callable[[], int] = ctypes.CFUNCTYPE(ctypes.c_int64)(code["pullback_ticks"])
        first = _pair(ticks)
        time.sleep(CALIBRATION_S)
        last = _pair(ticks)
        if last[1] <= first[1]:
            raise RuntimeError(f"programs cannot read a clock on this machine ({platform.machine()})")
        return Clock(ticks=ticks, stamp=code["pullback_stamp"], seconds=(last[0] - first[0]) / (last[1] - first[1]) / 1e9)


@functools.cache
def clock() -> Clock:
    """Return the clock of this process."""
    return Clock.calibrated()


def _pair(ticks: Callable[[], int]) -> tuple[int, int]:
    """Return the time in nanoseconds and in ticks, from the fastest of several tries."""
    tries = []
    for _ in range(9):
        before = time.perf_counter_ns()
        now = ticks()
        after = time.perf_counter_ns()
        tries.append((after - before, (before + after) // 2, now))
    _, at, now = min(tries)
    return at, now


@dataclass(frozen=True, eq=False)
class Times:
    """One call, in ticks of ``second`` seconds. ``stamps``: its start, the start of its first step, the end of its last step,
    and its end. ``laps`` and ``runs`` of each step: the total time of its runs, and their number. ``starts``: the start of
    each step; meaningless for steps in loops and branches."""

    stamps: Any
    laps: Any
    runs: Any
    starts: Any
    second: float


class TimedExecutable(Executable):
    """A program that stores the clock before its first step and after each one. It must be called by one thread at a time."""

    writer = _Laps
    laps: Table

    def __init__(self, module: Module) -> None:
        inner = sum(isinstance(i.op, Launch | Host) for i in walk(module.functions[0].body))
        self.laps = np.zeros(2 * inner, np.int64)
        super().__init__(module)
        self.stamps = np.zeros(len(self.plan.steps) + 1, np.int64)

    def instantiate(self, sizes: Mapping[str, int]) -> Instance:
        instance = super().instantiate(sizes)
        functions, starts = instance.tables[:2]
        count, base, first = len(functions), len(instance.block), address_of(self.stamps)
        pair_table = np.full((2, 2 * count + 1), clock().stamp, np.int64)
        pair_table[1, 0::2] = base + np.arange(count + 1)
        pair_table[:, 1::2] = functions, starts
        tables = (pair_table[0], pair_table[1], *instance.tables[2:])
        header = instance.header.copy()
        header[HEADER.index("functions")], header[HEADER.index("offsets")] = address_of(pair_table[0]), address_of(pair_table[1])
        header[HEADER.index("steps")] = 2 * count + 1
        block = np.concatenate([instance.block, first + 8 * np.arange(count + 1)])
        return replace(instance, block=block, header=header, tables=tables)

    def failure(self, status: int) -> BaseException:
        step = (status >> 32) // 2
        return super().failure(step << 32 | status & 0xFFFFFFFF)

    def timed(self, instance: Instance, arguments: list[Any]) -> Times:
        """Run one call, drop its results, and return its times."""
        ticks = clock().ticks
        self.laps[:] = 0
        start = ticks()
        results = self.call(instance, arguments)
        end = ticks()
        del results
        outer, second = np.array([start, self.stamps[0], self.stamps[-1], end]), clock().seconds
        if self.plan.has_driver:
            return Times(outer, self.laps[0::2].copy(), self.laps[1::2].copy(), np.zeros(len(self.laps) // 2), second)
        laps = np.diff(self.stamps)
        return Times(outer, laps, np.ones(len(laps)), self.stamps[:-1].copy(), second)
