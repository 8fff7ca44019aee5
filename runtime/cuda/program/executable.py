"""Programs on a CUDA device: pieces on one stream, what must know a value by the host.

A ``CudaExecutable`` holds the machine code of a program's kernels, compiled from one text. For each set of sizes the program is
written out as a tape, if it can be; else a call walks through it (``interpreter``). Nothing waits for the device but what must
know a value: a branch, a loop of unknown length, a check, a step in Python, and a result that goes to NumPy. A kernel that has
no CUDA C is run by the CPU, on copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.runtime.cuda.arrays.device_array import DeviceArray
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.program.interpreter import Run
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, Schedule, SizedProgram
from pullback.runtime.cuda.program.planned import Tape
from pullback.runtime.cuda.program.planner import Unfit
from pullback.runtime.cuda.program.serialize import Parts

KEPT_INSTANCES = 64


@dataclass(frozen=True, eq=False)
class CudaInstance(SizedProgram):
    """A program with its sizes: launches that were bound to them, and its tape, None if it cannot have one."""

    tape: list[Tape | None]


class CudaExecutable(LoadedProgram):
    """A program and its compiled kernels, on the device ``name``, which can be called. Raises DeviceError."""

    home: Mapping[int, int] = {}
    uses_tapes = True
    """Whether programs are written out, where they can be; else they are walked through, each buffer in memory of its own."""

    def __init__(self, parts: Parts, name: str, title: str, schedule: Schedule) -> None:
        super().__init__(parts, name, title, schedule)
        self.instances: dict[tuple[int, ...], CudaInstance] = {}

    def instance(self, sizes: Mapping[str, int]) -> CudaInstance:
        """The program with these sizes; the last few are kept."""
        key = tuple(sizes.values())
        found = self.instances.get(key)
        if found is None:
            if len(self.instances) >= KEPT_INSTANCES:
                self.instances.pop(next(iter(self.instances.copy())), None)
            found = self.instances.setdefault(key, CudaInstance(dict(sizes), {}, []))
        return found

    def call(self, instance: CudaInstance, arguments: Sequence[Any], chosen: Sequence[Any] | None = None) -> list[Any]:
        """Run on arguments: NumPy arrays or arrays on the device for references, scalars for rank-0 parameters.

        ``chosen``: for each result an array in which it may be made, or None. The results are arrays on the device if an argument
        is one, or with ``chosen``; else NumPy's. Raises CheckFailed, DeviceError, and what a step in Python raises.
        """
        tape = instance.tape[0] if instance.tape else None
        if chosen is None and tape is not None and tape.fresh and self.uses_tapes:
            found = tape.again(arguments)
            if found is not None:
                return self._with_numbers(found, arguments)
        keeps = chosen is not None or any(isinstance(a, DeviceArray) for a in arguments)
        self.check(arguments)
        with self.device:
            if not instance.tape:
                instance.tape.append(self._tape(instance))
            tape = instance.tape[0]
            if tape is None or not self.uses_tapes:
                found = Run(self, instance).results(arguments, keeps)
            else:
                found = tape.run(arguments, keeps, None if chosen is None else tape.rooms(self._of_program(chosen)))
        return self._with_numbers(found, arguments)

    def _with_numbers(self, found: list[Any], arguments: Sequence[Any]) -> list[Any]:
        """The results, with the numbers among them that a call only hands through."""
        for at, position, dtype in self.handed:
            found.insert(at, dtype.type(arguments[position]))
        return found

    def _of_program(self, chosen: Sequence[Any]) -> list[Any]:
        """What is chosen for the results that the program computes."""
        handed = {at for at, _, _ in self.handed}
        return [each for k, each in enumerate(chosen) if k not in handed]

    def _tape(self, instance: CudaInstance) -> Tape | None:
        try:
            return Tape(self, instance)
        except Unfit:
            return None

    def check(self, arguments: Sequence[Any]) -> None:
        """Raises DeviceError for an array of another device."""
        for parameter, argument in zip(self.program.parameters, arguments, strict=True):
            if isinstance(argument, DeviceArray) and argument.place is not self.device:
                where = f"{self.title} runs on {self.device.name}"
                raise DeviceError(f"{parameter.name} is on {argument.device}, and {where}")
