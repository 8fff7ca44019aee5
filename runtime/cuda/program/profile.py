"""Programs on a CUDA device with events between their steps, which a profile runs in place of the ordinary ones.

The kernels are those of the ordinary program, launched one after the other, each buffer in its own block; an event records the
device's clock wherever a step begins or ends. While the host enqueues the steps of a program without loops, the device is kept
busy, so that the steps follow each other without waiting for the host.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from pullback.ir.core.structure import Instruction, Module, walk
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import Launch
from pullback.runtime.cuda.arrays.device_array import DeviceArray
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.program import build as cuda_build
from pullback.runtime.cuda.program.build import Schedule
from pullback.runtime.cuda.program.executable import CudaExecutable, CudaInstance
from pullback.runtime.cuda.program.interpreter import Run
from pullback.runtime.cuda.program.loaded_program import Fallback
from pullback.runtime.program.profile import Times

STEP_S = 2e-5
"""The largest time in seconds that the host needs to enqueue a step."""
FILLED = 64 << 20
"""The bytes of the memory that is filled repeatedly meanwhile."""


class TimedProgram:
    """A program for the device ``name`` that is timed by events. It must be called by one thread at a time.

    Raises what ``cuda_build.compiled`` raises.
    """

    busy_bytes = 4e12
    """A fill rate in bytes per second that no device reaches."""

    def __init__(self, module: Module, name: str, title: str, schedule: Schedule) -> None:
        self.executable: CudaExecutable = cuda_build.compiled(module, name, title, schedule)
        body = self.executable.program.body
        steps = [i for i in walk(body) if isinstance(i.op, Launch | Host)]
        self.numbers = {id(i): k for k, i in enumerate(steps)}
        self.has_regions = any(i.regions for i in body.instructions)

    @property
    def fallbacks(self) -> tuple[Fallback, ...]:
        """The kernels that the CPU runs."""
        return self.executable.fallbacks

    def instance(self, sizes: Any) -> CudaInstance:
        """Return the program with these sizes."""
        return self.executable.instance(sizes)

    def timed(self, instance: CudaInstance, arguments: list[Any]) -> Times:
        """Run one call, drop its results, and return its times in seconds. Raises what a call raises."""
        gpu = self.executable.device
        self.executable.check(arguments)
        with gpu:
            run = _TimedRun(self, instance)
            if not self.has_regions:
                self.keep_busy(len(self.numbers))
            run.mark()
            results = run.results(arguments, any(isinstance(a, DeviceArray) for a in arguments))
            run.mark()
            gpu.stream.synchronize()
            gpu.launched.clear()
            del results
            return run.times(len(self.numbers))

    def keep_busy(self, steps: int) -> None:
        """Keep the device busy for as long as the host needs to enqueue ``steps`` steps."""
        size = min(FILLED, cuda.mem_get_info()[0] // 8)
        count = math.ceil(steps * STEP_S * self.busy_bytes / max(size, 1))
        if count and size:
            gpu = self.executable.device
            block = gpu.take(size, "what keeps the device busy before a profile")
            for _ in range(count):
                cuda.memset_d32_async(block.address, 0, size // 4, gpu.stream)


class _TimedRun(Run):
    """A call with an event at its start, at the start and the end of each step, and at its end."""

    def __init__(self, timed: TimedProgram, instance: CudaInstance) -> None:
        super().__init__(timed.executable, instance)
        self.numbers = timed.numbers
        self.marks: list[Any] = []
        self.spans: list[tuple[int, int]] = []

    def mark(self) -> None:
        self.marks.append(cuda.Event())
        self.marks[-1].record(self.stream)

    def launch(self, i: Instruction) -> None:
        self.mark()
        super().launch(i)
        self.close(i)

    def in_python(self, i: Instruction) -> None:
        self.mark()
        super().in_python(i)
        self.close(i)

    def close(self, i: Instruction) -> None:
        self.mark()
        self.spans.append((self.numbers[id(i)], len(self.marks) - 1))

    def times(self, count: int) -> Times:
        """Return the times of the events, once the device is done."""
        first = self.marks[0]
        at = np.array([first.time_till(each) * 1e-3 for each in self.marks])
        laps, runs = np.zeros(count), np.zeros(count, np.int64)
        starts = np.full(count, np.nan)
        for step, end in self.spans:
            laps[step] += at[end] - at[end - 1]
            runs[step] += 1
            starts[step] = at[end - 1]
        inside = [at[1], at[-2]] if len(at) > 2 else [at[0], at[-1]]
        return Times(np.array([at[0], *inside, at[-1]]), laps, runs, starts, 1.0)
