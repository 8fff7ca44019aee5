"""Programs on a CUDA device: segments on one stream, interrupted only where the host needs a value.

A ``CudaExecutable`` holds the machine code of a program's kernels, compiled from one text. For each set of sizes the program
is planned in advance, if possible; else a call interprets it (``interpreter``). The host waits for the device only where it
needs a value: for a branch, a loop of unknown length, a check, a host call, and a result that goes to NumPy. A kernel without
CUDA C is run by the CPU, on copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.runtime.cuda.arrays.device_array import DeviceArray
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.program.interpreter import Run
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, Schedule, SizedProgram
from pullback.runtime.cuda.program.planned import PlannedProgram
from pullback.runtime.cuda.program.planner import NotPlannable
from pullback.runtime.cuda.program.serialize import Parts

KEPT_INSTANCES = 64
"""The largest number of sets of sizes whose instances are kept."""


@dataclass(frozen=True, eq=False)
class CudaInstance(SizedProgram):
    """A program with its sizes: its launches, and its planned program, None if it cannot be planned."""

    planned: list[PlannedProgram | None]


class CudaExecutable(LoadedProgram):
    """A callable program: its compiled kernels on the device ``name``. The constructor raises DeviceError."""

    home: Mapping[int, int] = {}
    uses_plans = True
    """Whether programs are planned, if possible; else they are interpreted, each buffer in its own block."""

    def __init__(self, parts: Parts, name: str, title: str, schedule: Schedule) -> None:
        super().__init__(parts, name, title, schedule)
        self.instances: dict[tuple[int, ...], CudaInstance] = {}

    def instance(self, sizes: Mapping[str, int]) -> CudaInstance:
        """Return the program with these sizes; the last few are kept."""
        key = tuple(sizes.values())
        sized = self.instances.get(key)
        if sized is None:
            if len(self.instances) >= KEPT_INSTANCES:
                self.instances.pop(next(iter(self.instances.copy())), None)
            sized = self.instances.setdefault(key, CudaInstance(dict(sizes), {}, []))
        return sized

    def call(self, instance: CudaInstance, arguments: Sequence[Any], chosen: Sequence[Any] | None = None) -> list[Any]:
        """Run the program on arguments: NumPy arrays or device arrays for references, scalars for rank-0 parameters.

        ``chosen``: for each result an array whose memory it may use, or None. The results are on the device if an argument is,
        or with ``chosen``; else they are NumPy arrays. Raises CheckFailed, DeviceError, and what a host call raises.
        """
        planned = instance.planned[0] if instance.planned else None
        if chosen is None and planned is not None and planned.fresh and self.uses_plans:
            results = planned.replay(arguments)
            if results is not None:
                return self._with_scalars(results, arguments)
        on_device = chosen is not None or any(isinstance(a, DeviceArray) for a in arguments)
        self.check(arguments)
        with self.device:
            if not instance.planned:
                instance.planned.append(self._planned(instance))
            planned = instance.planned[0]
            if planned is None or not self.uses_plans:
                results = Run(self, instance).results(arguments, on_device)
            else:
                results = planned.run(
                    arguments, on_device, None if chosen is None else planned.result_blocks(self._computed(chosen))
                )
        return self._with_scalars(results, arguments)

    def _with_scalars(self, results: list[Any], arguments: Sequence[Any]) -> list[Any]:
        """Insert into the results the scalars that are passed through from the arguments."""
        for at, position, dtype in self.passed_through:
            results.insert(at, dtype.type(arguments[position]))
        return results

    def _computed(self, chosen: Sequence[Any]) -> list[Any]:
        """Return the chosen arrays of those results that the program computes."""
        handed = {at for at, _, _ in self.passed_through}
        return [each for k, each in enumerate(chosen) if k not in handed]

    def _planned(self, instance: CudaInstance) -> PlannedProgram | None:
        try:
            return PlannedProgram(self, instance)
        except NotPlannable:
            return None

    def check(self, arguments: Sequence[Any]) -> None:
        """Raise DeviceError for an array on another device."""
        for parameter, argument in zip(self.program.parameters, arguments, strict=True):
            if isinstance(argument, DeviceArray) and argument.gpu is not self.device:
                where = f"{self.title} runs on {self.device.name}"
                raise DeviceError(f"{parameter.name} is on {argument.device}, and {where}")
